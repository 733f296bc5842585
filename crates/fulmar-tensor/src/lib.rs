//! Tensors, ragged tensors and nested tensor dictionaries over shared storage, with safetensors files.

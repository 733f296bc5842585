//! Tensors, dictionaries and their files, in one program.

mod dim_names;
mod gguf;
#[path = "../golden_value/mod.rs"]
mod golden_value;
mod index;
mod lazy_stack;
mod leaves;
mod ragged;
mod safetensors;
mod tensor;
mod tensor_dict;
mod torch_files;

//! Tensors, ragged tensors and nested tensor dictionaries over shared storage, with safetensors files.
//!
//! A [`Tensor`] is a dtype, a shape, strides and an offset over reference-counted storage. Views share the
//! storage. Writes copy it first if other tensors share it, so a tensor never changes under a reader.

#[cfg(target_endian = "big")]
compile_error!("fulmar-tensor keeps elements as little-endian bytes, as safetensors files do");

mod cast;
pub mod consolidated;
mod device;
mod element;
mod gather;
pub mod gguf;
mod index;
mod index_item;
mod key;
mod lazy_stack;
pub mod memmap;
mod non_tensor;
mod ragged;
mod replace_file;
pub mod safetensors;
mod shape;
mod storage;
mod sum;
mod tensor;
mod tensor_dict;
mod torch_dtype;
mod view;

pub use element::Element;
pub use fulmar_core::Result;
pub use half::{bf16, f16};
pub use index::Index;
pub use key::Key;
pub use lazy_stack::{LazyStack, Stacked};
pub use non_tensor::NonTensor;
pub use ragged::{PadSide, Ragged};
pub use replace_file::{FileBatch, make_folder, replace_file};
pub use storage::live_bytes;
pub use tensor::Tensor;
pub use tensor_dict::{ApplyOptions, BatchOfOne, Entry, Operation, PadSequence, Partition, TensorDict};
pub use torch_dtype::{from_torch_name, torch_name};

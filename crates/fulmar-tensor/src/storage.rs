//! Storage of elements: one typed [`Memory`] of a device.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;
use fulmar_compute::cpu::prefer_huge_pages;
use fulmar_compute::{Compute, Memory};
use fulmar_core::{Dtype, Error, ErrorKind, Result};
use half::{bf16, f16};

use crate::element::{Element, with_element};

/// The elements that one or more tensors share.
#[derive(Debug)]
pub enum Storage {
    F64(Memory<f64>),
    F32(Memory<f32>),
    F16(Memory<f16>),
    Bf16(Memory<bf16>),
    I64(Memory<i64>),
    I32(Memory<i32>),
    I16(Memory<i16>),
    I8(Memory<i8>),
    U8(Memory<u8>),
    U32(Memory<u32>),
    Bool(Memory<bool>),
}

/// Operations of an element type on a [`Storage`]. Public in a private module: this seals [`Element`].
pub trait Stored: Sized {
    fn store(values: Memory<Self>) -> Storage;

    /// Returns the elements, or `None` if the storage holds another type.
    fn memory(storage: &Storage) -> Option<&Memory<Self>>;

    fn memory_mut(storage: &mut Storage) -> Option<&mut Memory<Self>>;

    /// Returns the elements as their bytes in memory, which is little-endian.
    fn as_bytes(values: &[Self]) -> &[u8];

    /// Fills `values` with the next little-endian elements of `reader`.
    ///
    /// # Errors
    /// `Io` if `reader` fails or ends early; `Corrupt` if a bool is neither 0 nor 1.
    fn read_into(values: &mut [Self], reader: &mut dyn Read) -> Result<()>;
}

impl Storage {
    /// Returns the handle that computes on the device of the elements.
    pub fn compute(&self) -> Compute {
        match self {
            Self::F64(memory) => memory.compute(),
            Self::F32(memory) => memory.compute(),
            Self::F16(memory) => memory.compute(),
            Self::Bf16(memory) => memory.compute(),
            Self::I64(memory) => memory.compute(),
            Self::I32(memory) => memory.compute(),
            Self::I16(memory) => memory.compute(),
            Self::I8(memory) => memory.compute(),
            Self::U8(memory) => memory.compute(),
            Self::U32(memory) => memory.compute(),
            Self::Bool(memory) => memory.compute(),
        }
    }

    /// Reads `len` little-endian elements.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them; `Io` if `reader` fails or ends early; `Corrupt` if a bool is neither 0
    /// nor 1.
    pub fn read(dtype: Dtype, len: usize, reader: &mut dyn Read) -> Result<Self> {
        with_element!(dtype, T => {
            let mut values = reserved::<T>(len)?;
            while values.len() < len {
                let start = values.len();
                values.resize(len.min(start + READ_ELEMENTS), T::zeroed());
                T::read_into(&mut values[start..], reader)?;
            }
            Ok(T::store(values.into()))
        })
    }
}

/// Returns `len` zeros from the system's zeroed pages, which use memory only once they are written.
///
/// # Errors
/// `OutOfMemory` where `vec!` would abort the process.
pub fn zeroed<T: Element>(len: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_slice_box(len).map(Vec::from).map_err(|()| too_large::<T>(len))
}

/// Elements that are read at once: they stay in the cache between their first write and their read.
const READ_ELEMENTS: usize = 1 << 16;

/// Returns a vector with capacity for `len` elements, on huge pages where the system has them: rows are drawn from far apart.
///
/// # Errors
/// `OutOfMemory` where `Vec::with_capacity` would abort the process.
pub fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| too_large::<T>(len))?;
    prefer_huge_pages(values.spare_capacity_mut());
    Ok(values)
}

fn too_large<T>(len: usize) -> Error {
    let detail = format!("a tensor must fit in memory: got {len} elements of {}", std::any::type_name::<T>());
    Error::new(ErrorKind::OutOfMemory, detail)
}

/// Returns the number of bytes of all elements that tensors of this process hold now, each storage counted
/// once. For hosts with a garbage collector.
///
/// # Examples
/// ```standalone_crate
/// use fulmar_tensor::{Index, Tensor, live_bytes};
/// let tensor = Tensor::from_vec_f32(&[1024], vec![0.0; 1024])?;
/// assert_eq!(live_bytes(), 4096);
/// let picked = tensor.at(&[Index::list(vec![3, 1])])?;
/// assert_eq!(live_bytes(), 4096 + 8);
/// drop((tensor, picked));
/// assert_eq!(live_bytes(), 0);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[must_use]
pub fn live_bytes() -> u64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// Every storage adds its size when it is made and subtracts it when it is dropped.
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

impl Drop for Storage {
    fn drop(&mut self) {
        LIVE_BYTES.fetch_sub(self.size_bytes(), Ordering::Relaxed);
    }
}

macro_rules! stored {
    ($($variant:ident: $type:ty, $read_into:expr;)*) => {
        impl Storage {
            fn size_bytes(&self) -> u64 {
                match self {
                    $(Self::$variant(values) => (values.len() * size_of::<$type>()) as u64,)*
                }
            }
        }

        $(impl Stored for $type {
            fn store(values: Memory<Self>) -> Storage {
                let storage = Storage::$variant(values);
                LIVE_BYTES.fetch_add(storage.size_bytes(), Ordering::Relaxed);
                storage
            }

            fn memory(storage: &Storage) -> Option<&Memory<Self>> {
                if let Storage::$variant(values) = storage { Some(values) } else { None }
            }

            fn memory_mut(storage: &mut Storage) -> Option<&mut Memory<Self>> {
                if let Storage::$variant(values) = storage { Some(values) } else { None }
            }

            fn as_bytes(values: &[Self]) -> &[u8] {
                bytemuck::cast_slice(values)
            }

            fn read_into(values: &mut [Self], reader: &mut dyn Read) -> Result<()> {
                $read_into(values, reader)
            }
        })*
    };
}

stored! {
    F64: f64, read_plain;
    F32: f32, read_plain;
    F16: f16, read_plain;
    Bf16: bf16, read_plain;
    I64: i64, read_plain;
    I32: i32, read_plain;
    I16: i16, read_plain;
    I8: i8, read_plain;
    U8: u8, read_plain;
    U32: u32, read_plain;
    Bool: bool, read_bools;
}

fn read_plain<T: bytemuck::Pod>(values: &mut [T], reader: &mut dyn Read) -> Result<()> {
    Ok(reader.read_exact(bytemuck::cast_slice_mut(values))?)
}

fn read_bools(values: &mut [bool], reader: &mut dyn Read) -> Result<()> {
    let mut bytes = [0; 4096];
    for chunk in values.chunks_mut(bytes.len()) {
        let bytes = &mut bytes[..chunk.len()];
        reader.read_exact(bytes)?;
        if let Some(byte) = bytes.iter().find(|byte| **byte > 1) {
            return Err(Error::new(ErrorKind::Corrupt, format!("a bool must be 0 or 1: got {byte}")));
        }
        chunk.iter_mut().zip(bytes).for_each(|(value, byte)| *value = *byte == 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_that_cannot_exist_is_refused_instead_of_ending_the_process() {
        assert_eq!(zeroed::<f64>(usize::MAX / 8).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn bools_other_than_0_and_1_are_corrupt() {
        let mut bytes = vec![1; 5000];
        assert!(Storage::read(Dtype::Bool, 5000, &mut bytes.as_slice()).is_ok());
        bytes[4999] = 2;
        let error = Storage::read(Dtype::Bool, 5000, &mut bytes.as_slice()).unwrap_err();
        assert_eq!((error.kind(), error.detail()), (ErrorKind::Corrupt, "a bool must be 0 or 1: got 2"));
    }

    #[test]
    fn a_reader_that_ends_early_is_an_io_error() {
        assert_eq!(Storage::read(Dtype::F32, 2, &mut [0; 7].as_slice()).unwrap_err().kind(), ErrorKind::Io);
    }
}

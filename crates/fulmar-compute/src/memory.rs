//! Long-lived memory that its device can access.

use std::ops::{Deref, DerefMut};

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_cuda::Managed;

use crate::cpu::prefer_huge_pages;
use crate::{Compute, dispatch};

/// Elements that a [`Compute`] and the processor can both access as a slice. On the CPU this is a vector. On
/// a GPU it is memory that the driver manages, with one address for both, so functions that take slices work
/// unchanged.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, Memory};
/// let mut moments = Compute::Cpu.zeros::<f32>(2)?;
/// moments[1] = 3.0;
/// assert_eq!(Memory::from(vec![0.0, 3.0]), moments);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub enum Memory<T> {
    /// Main memory.
    Cpu(Vec<T>),
    /// Memory of a GPU.
    Cuda(Managed<T>),
}

impl Compute {
    /// Returns `len` zeros.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them.
    pub fn zeros<T: Copy + Default>(self, len: usize) -> Result<Memory<T>> {
        dispatch!(self, cpu => {
            let mut values = Vec::new();
            values.try_reserve_exact(len).map_err(|_| too_long::<T>(len))?;
            prefer_huge_pages(values.spare_capacity_mut());
            values.resize(len, T::default());
            Ok(values.into())
        })
    }

    /// Resizes `memory` to `len` elements on this device: old elements stay, new ones are 0. If a GPU has too
    /// little memory, [`Compute::check`] returns the error.
    pub fn resize<T: Copy + Default>(self, memory: &mut Memory<T>, len: usize) {
        dispatch!(self, cpu => match memory {
            Memory::Cpu(values) => {
                if len > values.capacity() {
                    values.reserve(len - values.len());
                    prefer_huge_pages(values.spare_capacity_mut());
                }
                values.resize(len, T::default());
            }
            Memory::Cuda(managed) => match managed.never {},
        });
    }

    /// Returns `values` on this device, without a copy if they are already there.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them.
    pub fn hold<T: Copy>(self, values: impl Into<Memory<T>>) -> Result<Memory<T>> {
        dispatch!(self, cpu => match values.into() {
            Memory::Cpu(values) => Ok(Memory::Cpu(values)),
            Memory::Cuda(managed) => match managed.never {},
        })
    }
}

impl<T> Memory<T> {
    /// Returns the number of elements for which memory is allocated.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Cpu(values) => values.capacity(),
            Self::Cuda(managed) => match managed.never {},
        }
    }

    /// Returns the handle that computes on the device of the elements.
    #[must_use]
    pub fn compute(&self) -> Compute {
        match self {
            Self::Cpu(_) => Compute::Cpu,
            Self::Cuda(managed) => match managed.never {},
        }
    }
}

/// Empty, on the CPU.
impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self::Cpu(Vec::new())
    }
}

impl<T: Clone> Clone for Memory<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Cpu(values) => Self::Cpu(values.clone()),
            Self::Cuda(managed) => match managed.never {},
        }
    }
}

/// Elements on the CPU, without a copy.
impl<T> From<Vec<T>> for Memory<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Cpu(values)
    }
}

impl<T> Deref for Memory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Cpu(values) => values,
            Self::Cuda(managed) => match managed.never {},
        }
    }
}

impl<T> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Cpu(values) => values,
            Self::Cuda(managed) => match managed.never {},
        }
    }
}

impl<T: PartialEq> PartialEq for Memory<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

fn too_long<T>(len: usize) -> Error {
    let detail = format!("out of memory: it cannot hold {len} elements of {}", std::any::type_name::<T>());
    Error::new(ErrorKind::OutOfMemory, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_is_refused_instead_of_ending_the_process() {
        let refused = Compute::Cpu.zeros::<f64>(usize::MAX / 8).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn held_elements_are_those_that_were_given_where_they_were() {
        let values = vec![1_u8, 2];
        let address = values.as_ptr();
        let mut held = Compute::Cpu.hold(values).unwrap();
        assert_eq!((held.as_ptr(), held.compute()), (address, Compute::Cpu));
        held[0] = 7;
        assert_eq!(*held, [7, 2]);
    }

    #[test]
    fn memory_grows_by_zeros_and_keeps_its_room_when_it_shrinks() {
        let mut memory = Memory::default();
        Compute::Cpu.resize(&mut memory, 3);
        memory.fill(5_i32);
        Compute::Cpu.resize(&mut memory, 1);
        assert!(memory.capacity() >= 3);
        Compute::Cpu.resize(&mut memory, 2);
        assert_eq!(*memory, [5, 0]);
    }
}

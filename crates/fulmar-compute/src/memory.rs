//! Memory of a device that lives longer than an operation.

use std::borrow::Cow;

use bytemuck::Zeroable;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_cuda::Buffer;

use crate::cpu::prefer_huge_pages;
use crate::{Compute, View, ViewMut, kept};

/// Elements on the device of a [`Compute`]: a vector, or memory of a GPU. Operations take its views; the processor reads it by
/// [`Compute::read`].
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, Memory};
/// let mut moments = Compute::Cpu.zeros::<f32>(2)?;
/// Compute::Cpu.write(&[3.0], moments.view_mut().slice(1..))?;
/// assert_eq!(*Compute::Cpu.read(&moments)?, [0.0, 3.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub enum Memory<T> {
    /// Main memory.
    Cpu(Vec<T>),
    /// Memory of a GPU.
    Cuda(Buffer<T>),
}

impl Compute {
    /// Returns `len` zeros.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them; `Unavailable` for a GPU that fails; errors of the operations so far.
    pub fn zeros<T: Copy + Zeroable>(self, len: usize) -> Result<Memory<T>> {
        let card = match self {
            Self::Cuda(card) => card,
            Self::Cpu => {
                let mut values = Vec::new();
                values.try_reserve_exact(len).map_err(|_| too_long::<T>(len))?;
                prefer_huge_pages(values.spare_capacity_mut());
                values.resize(len, T::zeroed());
                return Ok(values.into());
            }
        };
        self.check()?;
        card.zeros(len).map(Memory::Cuda)
    }

    /// Resizes `memory` to `len` elements on this device: old elements stay, new ones are 0. If a GPU has too
    /// little memory, [`Compute::check`] returns the error.
    pub fn resize<T: Copy + Zeroable>(self, memory: &mut Memory<T>, len: usize) {
        if let (Self::Cpu, Memory::Cpu(values)) = (self, &mut *memory) {
            if len > values.capacity() {
                values.reserve(len - values.len());
                prefer_huge_pages(values.spare_capacity_mut());
            }
            values.resize(len, T::zeroed());
        } else if memory.compute() != self || memory.len() != len {
            kept::run("resize", || self.resized(memory, len).map(|resized| *memory = resized));
        }
    }

    /// Returns `len` zeros for the intermediate results of a pass; `None` if a GPU has too little memory, and [`Compute::check`]
    /// returns the error.
    pub fn workspace<T: Copy + Zeroable>(self, len: usize) -> Option<Memory<T>> {
        let mut memory = Memory::default();
        self.resize(&mut memory, len);
        (memory.compute() == self).then_some(memory)
    }

    /// Returns a copy of `memory` on this device, cut or with zeros behind it.
    fn resized<T: Copy + Zeroable>(self, memory: &Memory<T>, len: usize) -> Result<Memory<T>> {
        let mut resized = self.zeros(len)?;
        let count = memory.len().min(len);
        match (memory.view().slice(..count), resized.view_mut().slice(..count)) {
            (View::Cuda(from), ViewMut::Cuda(to)) if from.card() == to.card() => {
                from.card().copy(from, to)?;
            }
            (from, to) => self.write(&self.read(from)?, to)?,
        }
        Ok(resized)
    }

    /// Returns `values` on this device, without a copy if they are already there.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them; `Unavailable` for a GPU that fails; errors of the operations so far.
    pub fn hold<T: Copy>(self, values: impl Into<Memory<T>>) -> Result<Memory<T>> {
        self.check()?;
        match (self, values.into()) {
            (Self::Cpu, Memory::Cuda(buffer)) => Ok(Memory::Cpu(buffer.read()?)),
            (Self::Cuda(card), Memory::Cpu(values)) => Ok(Memory::Cuda(card.upload(&values)?)),
            (Self::Cuda(card), Memory::Cuda(buffer)) if buffer.card() != card => {
                Ok(Memory::Cuda(card.upload(&buffer.read()?)?))
            }
            (_, held) => Ok(held),
        }
    }

    /// Waits for the operations so far and returns elements: those of main memory borrowed, those of a GPU copied.
    ///
    /// # Errors
    /// Errors of the operations so far; `Unavailable` for a GPU that fails.
    pub fn read<'a, T: Copy>(self, from: impl Into<View<'a, T>>) -> Result<Cow<'a, [T]>> {
        match from.into() {
            View::Cpu(values) => Ok(Cow::Borrowed(values)),
            View::Cuda(range) => {
                kept::take()?;
                Ok(Cow::Owned(range.card().read(range)?))
            }
        }
    }

    /// Copies `values` over elements of a device. They may change when this returns.
    ///
    /// # Errors
    /// `Unavailable` for a GPU that fails; errors of the operations so far.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn write<'a, T: Copy + 'a>(self, values: &[T], to: impl Into<ViewMut<'a, T>>) -> Result<()> {
        self.check()?;
        match to.into() {
            ViewMut::Cpu(to) => to.copy_from_slice(values),
            ViewMut::Cuda(range) => range.card().write(values, range)?,
        }
        Ok(())
    }
}

impl<T> Memory<T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Cpu(values) => values.len(),
            Self::Cuda(buffer) => buffer.len(),
        }
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements for which memory is allocated.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Cpu(values) => values.capacity(),
            Self::Cuda(buffer) => buffer.len(),
        }
    }

    /// Returns the number of allocated bytes.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }

    /// Returns the handle that computes on the device of the elements.
    #[must_use]
    pub fn compute(&self) -> Compute {
        match self {
            Self::Cpu(_) => Compute::Cpu,
            Self::Cuda(buffer) => Compute::Cuda(buffer.card()),
        }
    }

    /// Waits for the operations so far and returns the elements: those of main memory without a copy.
    ///
    /// # Errors
    /// The errors of [`Compute::read`].
    pub fn into_vec(self) -> Result<Vec<T>>
    where
        T: Copy,
    {
        match self {
            Self::Cpu(values) => Ok(values),
            held @ Self::Cuda(_) => Ok(held.view().read()?.into_owned()),
        }
    }

    /// Returns all elements to read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        match self {
            Self::Cpu(values) => View::Cpu(values),
            Self::Cuda(buffer) => View::Cuda(buffer.view()),
        }
    }

    /// Returns all elements to write.
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        match self {
            Self::Cpu(values) => ViewMut::Cpu(values),
            Self::Cuda(buffer) => ViewMut::Cuda(buffer.view_mut()),
        }
    }

    /// Returns the elements in main memory.
    ///
    /// # Panics
    /// If they are on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu(&self) -> &[T] {
        self.view().cpu()
    }

    /// Returns the elements in main memory.
    ///
    /// # Panics
    /// If they are on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu_mut(&mut self) -> &mut [T] {
        self.view_mut().cpu()
    }
}

/// Empty, on the CPU.
impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self::Cpu(Vec::new())
    }
}

/// On the same device. If a GPU has too little memory, the copy is empty and [`Compute::check`] returns the error.
impl<T: Copy> Clone for Memory<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Cpu(values) => Self::Cpu(values.clone()),
            Self::Cuda(buffer) => {
                kept::run("clone", || buffer.card().duplicate(buffer.view()).map(Self::Cuda))
            }
        }
    }
}

/// Elements on the CPU, without a copy.
impl<T> From<Vec<T>> for Memory<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Cpu(values)
    }
}

impl<'a, T> From<&'a Memory<T>> for View<'a, T> {
    fn from(memory: &'a Memory<T>) -> Self {
        memory.view()
    }
}

impl<'a, T> From<&'a mut Memory<T>> for ViewMut<'a, T> {
    fn from(memory: &'a mut Memory<T>) -> Self {
        memory.view_mut()
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
        assert_eq!((held.cpu().as_ptr(), held.compute()), (address, Compute::Cpu));
        Compute::Cpu.write(&[7], held.view_mut().slice(..1)).unwrap();
        assert_eq!(*Compute::Cpu.read(&held).unwrap(), [7, 2]);
    }

    #[test]
    fn memory_grows_by_zeros_and_keeps_its_room_when_it_shrinks() {
        let mut memory = Memory::default();
        Compute::Cpu.resize(&mut memory, 3);
        memory.cpu_mut().fill(5_i32);
        Compute::Cpu.resize(&mut memory, 1);
        assert!(memory.capacity() >= 3);
        Compute::Cpu.resize(&mut memory, 2);
        assert_eq!(memory.cpu(), [5, 0]);
    }
}

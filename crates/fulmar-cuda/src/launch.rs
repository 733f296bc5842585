//! The size and the arguments of a launch.

use crate::{Buffer, Slice, SliceMut};

/// The blocks of a launch, the threads of a block, and the bytes of shared memory of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in each direction.
    pub blocks: (u32, u32),
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// Returns a grid of one block for each of `rows`.
    #[must_use]
    pub const fn of_rows(rows: usize, threads: u32, shared_bytes: u32) -> Self {
        Self { blocks: (rows as u32, 1), threads, shared_bytes }
    }
}

/// An argument of a kernel: an address or a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// An address on the GPU, of 8 bytes.
    Address(u64),
    /// A whole number, for a parameter of 4 bytes or of 8.
    Number(u64),
    /// A number of single precision.
    Float(f32),
}

impl Argument {
    /// Returns `true` if a parameter of that many bytes can hold the argument.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        match self {
            Self::Address(_) => bytes == 8,
            Self::Number(number) => bytes == 8 || bytes == 4 && u32::try_from(*number).is_ok(),
            Self::Float(_) => bytes == 4,
        }
    }

    /// Returns the argument in the lowest bytes of a word.
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Address(word) | Self::Number(word) => word,
            Self::Float(number) => u64::from(number.to_bits()),
        }
    }
}

/// Returns the arguments of a launch.
///
/// # Examples
/// ```
/// use fulmar_cuda::{Argument, arguments};
/// assert_eq!(arguments![7_u32, 0.5], [Argument::Number(7), Argument::Float(0.5)]);
/// ```
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { [$($crate::Argument::from($value)),*] };
}

impl<T> From<&Buffer<T>> for Argument {
    fn from(buffer: &Buffer<T>) -> Self {
        buffer.view().into()
    }
}

impl<T> From<Option<&Buffer<T>>> for Argument {
    /// The null pointer for `None`.
    fn from(buffer: Option<&Buffer<T>>) -> Self {
        buffer.map_or(Self::Address(0), Self::from)
    }
}

impl<T> From<Slice<'_, T>> for Argument {
    fn from(slice: Slice<'_, T>) -> Self {
        Self::Address(slice.address())
    }
}

impl<T> From<Option<Slice<'_, T>>> for Argument {
    /// The null pointer for `None`.
    fn from(slice: Option<Slice<'_, T>>) -> Self {
        slice.map_or(Self::Address(0), Self::from)
    }
}

impl<T> From<SliceMut<'_, T>> for Argument {
    fn from(slice: SliceMut<'_, T>) -> Self {
        Self::Address(slice.into_address())
    }
}

impl From<usize> for Argument {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<u32> for Argument {
    fn from(number: u32) -> Self {
        Self::Number(u64::from(number))
    }
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Self {
        Self::Float(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_fits_parameters_of_its_width_alone() {
        let fits = |argument: Argument| [4, 8].map(|bytes| argument.fits(bytes));
        assert_eq!(fits(Argument::Address(1)), [false, true]);
        assert_eq!(fits(Argument::Float(1.0)), [true, false]);
        assert_eq!(fits(u32::MAX.into()), [true, true]);
        assert_eq!(fits((1_u64 << 32).into()), [false, true]);
        assert!(![1, 2, 16].iter().any(|bytes| Argument::Number(0).fits(*bytes)));
    }
}

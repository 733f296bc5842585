//! Elements of a device, as operations take them.

use std::borrow::Cow;
use std::ops::{Bound, Range, RangeBounds};

use fulmar_core::{Device, Error, ErrorKind, Result};
use fulmar_cuda::{Card, Slice, SliceMut};

use crate::Compute;

/// Elements to read: a slice of main memory, or a range of a GPU's memory.
///
/// # Examples
/// ```
/// use fulmar_compute::View;
/// let numbers = vec![1.0, 2.0, 3.0];
/// let (first, others) = View::from(&numbers).split_at(1);
/// assert_eq!((first.len(), others.slice(1..).cpu()), (1, &[3.0][..]));
/// ```
#[derive(Debug)]
pub enum View<'a, T> {
    /// Main memory.
    Cpu(&'a [T]),
    /// Memory of a GPU.
    Cuda(Slice<'a, T>),
}

/// Elements to write: a slice of main memory, or a range of a GPU's memory.
#[derive(Debug)]
pub enum ViewMut<'a, T> {
    /// Main memory.
    Cpu(&'a mut [T]),
    /// Memory of a GPU.
    Cuda(SliceMut<'a, T>),
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<'a, T> View<'a, T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Cpu(values) => values.len(),
            Self::Cuda(range) => range.len(),
        }
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns a range of the elements.
    ///
    /// # Panics
    /// If the range ends past the last element.
    #[must_use]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Self {
        let range = within(range, self.len());
        match self {
            Self::Cpu(values) => Self::Cpu(&values[range]),
            Self::Cuda(values) => Self::Cuda(values.slice(range)),
        }
    }

    /// Returns the elements before number `at`, and the others.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        (self.slice(..at), self.slice(at..))
    }

    /// Returns the address of the first element on its device, which compares places and is never read through.
    #[must_use]
    pub fn place(self) -> u64 {
        match self {
            Self::Cpu(values) => values.as_ptr().addr() as u64,
            Self::Cuda(range) => range.address(),
        }
    }

    /// Returns the handle that computes on the device of the elements.
    #[must_use]
    pub fn compute(self) -> Compute {
        match self {
            Self::Cpu(_) => Compute::Cpu,
            Self::Cuda(range) => Compute::Cuda(range.card()),
        }
    }

    /// Waits for the operations so far and returns the elements: those of main memory borrowed, those of a GPU copied.
    ///
    /// # Errors
    /// The errors of [`Compute::read`].
    pub fn read(self) -> Result<Cow<'a, [T]>>
    where
        T: Copy,
    {
        self.compute().read(self)
    }

    /// Returns the elements in main memory.
    ///
    /// # Panics
    /// If they are on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu(self) -> &'a [T] {
        match self {
            Self::Cpu(values) => values,
            Self::Cuda(_) => unreachable!("elements of a GPU are read by `Compute::read`"),
        }
    }

    /// Returns the elements on a GPU.
    pub(crate) fn cuda(self, card: Card) -> Result<Slice<'a, T>> {
        match self {
            Self::Cuda(range) if range.card() == card => Ok(range),
            _ => Err(elsewhere(card)),
        }
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Cpu(values) => values.len(),
            Self::Cuda(range) => range.len(),
        }
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the same elements for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        match self {
            Self::Cpu(values) => ViewMut::Cpu(values),
            Self::Cuda(range) => ViewMut::Cuda(range.reborrow()),
        }
    }

    /// Returns the elements to read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        match self {
            Self::Cpu(values) => View::Cpu(values),
            Self::Cuda(range) => View::Cuda(range.view()),
        }
    }

    /// Returns a range of the elements.
    ///
    /// # Panics
    /// If the range ends past the last element.
    #[must_use]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Self {
        let range = within(range, self.len());
        match self {
            Self::Cpu(values) => Self::Cpu(&mut values[range]),
            Self::Cuda(values) => Self::Cuda(values.slice(range)),
        }
    }

    /// Returns the elements before number `at`, and the others.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Cpu(values) => {
                let (before, others) = values.split_at_mut(at);
                (Self::Cpu(before), Self::Cpu(others))
            }
            Self::Cuda(values) => {
                let (before, others) = values.split_at(at);
                (Self::Cuda(before), Self::Cuda(others))
            }
        }
    }

    /// Returns the elements in main memory.
    ///
    /// # Panics
    /// If they are on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu(self) -> &'a mut [T] {
        match self {
            Self::Cpu(values) => values,
            Self::Cuda(_) => unreachable!("elements of a GPU are written by `Compute::write`"),
        }
    }

    /// Returns the elements on a GPU.
    pub(crate) fn cuda(self, card: Card) -> Result<SliceMut<'a, T>> {
        match self {
            Self::Cuda(range) if range.card() == card => Ok(range),
            _ => Err(elsewhere(card)),
        }
    }
}

/// Returns the ends of a range of `len` elements.
fn within(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    first..end
}

fn elsewhere(card: Card) -> Error {
    let device = Device::Cuda { ordinal: card.ordinal() };
    let detail = format!("elements must be on {device}, where they are used: got elements of another device");
    Error::new(ErrorKind::Incompatible, detail)
}

macro_rules! views_of_slices {
    ($(($($generic:tt)*) $type:ty;)*) => {
        $(impl<'a, T, $($generic)*> From<&'a $type> for View<'a, T> {
            fn from(values: &'a $type) -> Self {
                Self::Cpu(values)
            }
        }

        impl<'a, T, $($generic)*> From<&'a mut $type> for ViewMut<'a, T> {
            fn from(values: &'a mut $type) -> Self {
                Self::Cpu(values)
            }
        })*
    };
}

views_of_slices! {
    () [T];
    () Vec<T>;
    (const N: usize) [T; N];
}

impl<'a, T> From<&'a ViewMut<'_, T>> for View<'a, T> {
    fn from(view: &'a ViewMut<'_, T>) -> Self {
        view.view()
    }
}

impl<'a, T> From<&'a mut ViewMut<'_, T>> for ViewMut<'a, T> {
    fn from(view: &'a mut ViewMut<'_, T>) -> Self {
        view.reborrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_views_are_those_of_slices() {
        let mut numbers = [1, 2, 3, 4, 5];
        let view = View::from(&numbers);
        assert_eq!((view.len(), view.is_empty(), view.slice(5..).is_empty()), (5, false, true));
        assert_eq!(view.slice(1..4).slice(..=1).cpu(), [2, 3]);
        let mut all = ViewMut::from(&mut numbers);
        all.reborrow().slice(3..).cpu()[1] = 50;
        assert_eq!(View::from(&all).slice(4..).cpu(), [50]);
        let (before, others) = all.split_at(2);
        before.cpu()[0] = 10;
        assert_eq!((others.len(), others.is_empty(), others.view().cpu()), (3, false, &[3, 4, 50][..]));
        assert_eq!(numbers, [10, 2, 3, 4, 50]);
    }
}

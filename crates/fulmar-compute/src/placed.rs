//! Elements where an operation takes them, whether they were there or are copied.

use fulmar_core::Result;

use crate::{Compute, Memory, View};

/// Elements on the device of an operation: borrowed, or a copy.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, Placed};
/// let values = [1.0_f32, 2.0];
/// let placed = Compute::Cpu.place(&values)?;
/// assert!(matches!(placed, Placed::Borrowed(_)));
/// assert_eq!(placed.view().cpu(), values);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub enum Placed<'a, T> {
    /// Elements of the original.
    Borrowed(View<'a, T>),
    /// A copy.
    Owned(Memory<T>),
}

impl Compute {
    /// Returns `values` on this device: borrowed if they are there, else copied.
    ///
    /// # Errors
    /// The errors of [`Compute::hold`].
    pub fn place<'a, T: Copy>(self, values: impl Into<View<'a, T>>) -> Result<Placed<'a, T>> {
        let values = values.into();
        if values.compute() == self {
            return Ok(Placed::Borrowed(values));
        }
        self.hold(values.read()?.into_owned()).map(Placed::Owned)
    }
}

impl<T> Placed<'_, T> {
    /// Returns the elements to read.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        match self {
            Self::Borrowed(values) => *values,
            Self::Owned(values) => values.view(),
        }
    }
}

impl<'a, T> From<&'a Placed<'_, T>> for View<'a, T> {
    fn from(values: &'a Placed<'_, T>) -> Self {
        values.view()
    }
}

//! The kernels of a GPU, as operations will call them. No operation does yet: these types have no values, so the GPU arm of a
//! dispatch is unreachable at compile time.

use std::convert::Infallible;
use std::marker::PhantomData;

use fulmar_core::Result;

use crate::Card;

/// The kernels of one GPU: a handle, cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernels {}

impl Kernels {
    /// Returns the kernels of GPU number `ordinal`.
    ///
    /// # Errors
    /// The errors of [`Card::on`], always.
    pub fn on(ordinal: u32) -> Result<Self> {
        Card::on(ordinal)
            .and_then(|_| Err(fulmar_core::Error::new(fulmar_core::ErrorKind::Unavailable, "no kernels")))
    }

    /// Returns the number of their GPU.
    #[must_use]
    pub fn ordinal(self) -> u32 {
        match self {}
    }
}

/// Memory that a GPU and the processor both access at one address, as a slice.
#[derive(Debug)]
pub struct Managed<T> {
    /// Makes the type impossible to construct.
    pub never: Infallible,
    elements: PhantomData<T>,
}

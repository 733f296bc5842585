//! The kernels of a GPU. None exists yet: these types have no values, so the GPU arm of a dispatch is
//! unreachable at compile time.

use std::convert::Infallible;
use std::marker::PhantomData;

use fulmar_core::{Device, Error, ErrorKind, Result};

use crate::gpus;

/// The kernels of one GPU: a handle, cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernels {}

impl Kernels {
    /// Returns the kernels of GPU number `ordinal`.
    ///
    /// # Errors
    /// `Unavailable`, always: with what the machine lacks, or because there are no kernels yet.
    ///
    /// # Examples
    /// ```
    /// let error = fulmar_cuda::Kernels::on(0).unwrap_err();
    /// assert_eq!(error.kind(), fulmar_core::ErrorKind::Unavailable);
    /// ```
    pub fn on(ordinal: u32) -> Result<Self> {
        let device = Device::Cuda { ordinal };
        let gpus = gpus()?;
        let detail = match gpus.iter().find(|gpu| gpu.ordinal == ordinal) {
            None => {
                format!("device {device} must be one of {} GPUs, counted from 0: got {ordinal}", gpus.len())
            }
            Some(gpu) => format!("device {device} must have kernels: this release has none for {}", gpu.name),
        };
        Err(Error::new(ErrorKind::Unavailable, detail))
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

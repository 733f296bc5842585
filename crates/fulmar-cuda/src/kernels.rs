//! What computes on a GPU. There is nothing of it yet: no value of these types exists, so that whatever runs somewhere by its device
//! has a place for GPUs that the compiler knows cannot be reached.

use std::convert::Infallible;
use std::marker::PhantomData;

use fulmar_core::{Device, Error, ErrorKind, Result};

use crate::gpus;

/// The kernels of one GPU: a handle, cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernels {}

impl Kernels {
    /// The kernels of the GPU with the number `ordinal`.
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

    /// The number of their GPU.
    #[must_use]
    pub fn ordinal(self) -> u32 {
        match self {}
    }
}

/// Memory that a GPU and the processor both reach at one address: a range of it is a slice to either.
#[derive(Debug)]
pub struct Managed<T> {
    /// Why there is none.
    pub never: Infallible,
    elements: PhantomData<T>,
}

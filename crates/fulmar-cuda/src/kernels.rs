//! The kernels of a GPU, as operations will call them. No operation does yet: these types have no values, so the GPU arm of a
//! dispatch is unreachable at compile time.

use std::convert::Infallible;
use std::marker::PhantomData;

use fulmar_core::{Device, Error, ErrorKind, Result};

use crate::{fatbin, gpus};

/// The kernels of one GPU: a handle, cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernels {}

impl Kernels {
    /// Returns the kernels of GPU number `ordinal`.
    ///
    /// # Errors
    /// `Unavailable`, always: with what the machine or this build lacks, or because no operation calls kernels yet.
    ///
    /// # Examples
    /// ```
    /// let error = fulmar_cuda::Kernels::on(0).unwrap_err();
    /// assert_eq!(error.kind(), fulmar_core::ErrorKind::Unavailable);
    /// ```
    pub fn on(ordinal: u32) -> Result<Self> {
        let device = Device::Cuda { ordinal };
        let gpus = gpus()?;
        let Some(gpu) = gpus.iter().find(|gpu| gpu.ordinal == ordinal) else {
            let detail =
                format!("device {device} must be one of {} GPUs, counted from 0: got {ordinal}", gpus.len());
            return Err(Error::new(ErrorKind::Unavailable, detail));
        };
        fatbin()?;
        let detail = format!(
            "device {device} must be one that operations run on: this release only checks its kernels on {}",
            gpu.name
        );
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

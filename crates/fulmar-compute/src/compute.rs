//! The handle of a device, with each operation as a method.

use fulmar_core::{Device, Error, ErrorKind, Result};
use fulmar_cuda::Card;

use crate::kept;

/// A handle that runs operations on one device. It is cheap to copy.
///
/// On the CPU an operation is finished when its call returns. On a GPU it is queued, and runs after those before it: what the
/// processor reads, it reads by [`Compute::read`], which waits.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, MatRef};
/// use fulmar_core::{Device, ErrorKind};
/// let compute = Compute::on(Device::Cpu)?;
/// let mut out = compute.zeros::<f32>(1)?;
/// compute.matmul(&mut out, MatRef::new(&[1.0, 2.0], 1, 2), MatRef::new(&[3.0, 4.0], 2, 1), false);
/// assert_eq!(*compute.read(&out)?, [11.0]);
/// assert_eq!(Compute::on(Device::Cuda { ordinal: 0 }).unwrap_err().kind(), ErrorKind::Unavailable);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Compute {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Cuda(Card),
}

impl Compute {
    /// Returns the handle for `device`, of what runs on the CPU alone: tensors, losses and buffers.
    ///
    /// # Errors
    /// `Unavailable` for a GPU, with what is missing, or because it runs other things.
    pub fn on(device: Device) -> Result<Self> {
        match Self::open(device)? {
            Self::Cpu => Ok(Self::Cpu),
            Self::Cuda(card) => {
                let detail = format!(
                    "device must be cpu for anything but decoders, heads, log-probs and draws: got {device}, {}",
                    card.gpu().name
                );
                Err(Error::new(ErrorKind::Unavailable, detail))
            }
        }
    }

    /// Returns the handle for `device`, of what runs on GPUs too: decoders, heads, log-probs and draws.
    ///
    /// # Errors
    /// `Unavailable` for a GPU, with what is missing.
    pub fn open(device: Device) -> Result<Self> {
        match device {
            Device::Cpu => Ok(Self::Cpu),
            Device::Cuda { ordinal } => Ok(Self::Cuda(Card::open(ordinal)?)),
        }
    }

    /// Returns the device of this handle.
    #[must_use]
    pub fn device(self) -> Device {
        match self {
            Self::Cpu => Device::Cpu,
            Self::Cuda(card) => card.device(),
        }
    }

    /// Returns the first error of this thread's operations so far, with the operation's name, and forgets it. On a GPU an
    /// operation can fail after its inputs were checked; the operations after it then do nothing. Callers check once, after
    /// their last operation.
    ///
    /// # Errors
    /// Never on the CPU. On a GPU `Unavailable` for an operation without a kernel, or with the driver's error; `OutOfMemory`;
    /// `Incompatible` for elements of another device.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(_) => kept::take(),
        }
    }
}

/// Selects the code for the device of a [`Compute`]. Work that has code for the CPU alone is `Unavailable` on a GPU, with the
/// name of the function around it: returned if its result can be an error, else kept for [`Compute::check`].
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, dispatch};
/// fn largest(compute: Compute, values: &[f32]) -> f32 {
///     dispatch!(compute, cpu => values.iter().copied().fold(f32::NEG_INFINITY, f32::max))
/// }
/// assert_eq!(largest(Compute::Cpu, &[1.0, 3.0]), 3.0);
/// ```
#[macro_export]
macro_rules! dispatch {
    ($compute:expr, cpu => $cpu:expr) => {
        match $compute {
            $crate::Compute::Cpu => $cpu,
            $crate::Compute::Cuda(card) => {
                fn place() {}
                $crate::Lacking::lacking(card, $crate::name_around(&place))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_where_sums_run_unless_told_otherwise() {
        assert_eq!(Compute::default(), Compute::on(Device::Cpu).unwrap());
        assert_eq!(Compute::default().device(), Device::Cpu);
        Compute::default().check().unwrap();
    }

    #[test]
    fn a_gpu_is_refused_for_the_reason_that_its_door_gives() {
        for ordinal in [0, 7] {
            let refused = Compute::on(Device::Cuda { ordinal }).unwrap_err();
            assert_eq!(refused.kind(), fulmar_core::ErrorKind::Unavailable);
            // The first missing requirement: the build, the driver, a GPU of that number, a kernel.
            let reasons = ["CUDA must be built in", "driver", &format!("cuda:{ordinal}"), "kernels"];
            assert!(reasons.iter().any(|reason| refused.detail().contains(reason)), "{refused}");
        }
    }
}

//! Where sums run.

use fulmar_core::{Device, Result};
use fulmar_cuda::Kernels;

use crate::dispatch;

/// Where sums run: a handle, cheap to copy, whose methods are the operations.
///
/// An operation is done when its call returns, on every device, so that what it wrote can be read. Where that wait would cost more
/// than the operation, several become one operation of the table.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, MatRef};
/// use fulmar_core::{Device, ErrorKind};
/// let compute = Compute::on(Device::Cpu)?;
/// let mut out = compute.zeros::<f32>(1)?;
/// compute.matmul(&mut out, MatRef::new(&[1.0, 2.0], 1, 2), MatRef::new(&[3.0, 4.0], 2, 1), false);
/// assert_eq!(*out, [11.0]);
/// assert_eq!(Compute::on(Device::Cuda { ordinal: 0 }).unwrap_err().kind(), ErrorKind::Unavailable);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Compute {
    /// The processor.
    #[default]
    Cpu,
    /// A GPU of NVIDIA.
    Cuda(Kernels),
}

impl Compute {
    /// What computes on `device`.
    ///
    /// # Errors
    /// `Unavailable` for a GPU, with what is lacking.
    pub fn on(device: Device) -> Result<Self> {
        match device {
            Device::Cpu => Ok(Self::Cpu),
            Device::Cuda { ordinal } => Ok(Self::Cuda(Kernels::on(ordinal)?)),
        }
    }

    /// Where that is.
    #[must_use]
    pub fn device(self) -> Device {
        match self {
            Self::Cpu => Device::Cpu,
            Self::Cuda(kernels) => Device::Cuda { ordinal: kernels.ordinal() },
        }
    }

    /// Whether the operations so far went well. On a GPU one can fail after its inputs were found good; those behind it then do nothing.
    /// What calls operations asks once, at its end.
    ///
    /// # Errors
    /// Nothing on the CPU.
    pub fn check(self) -> Result<()> {
        dispatch!(self, cpu => Ok(()))
    }
}

/// The choice of a device: what runs on the CPU, for a [`Compute`]. There is no other device yet.
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
            $crate::Compute::Cuda(kernels) => match kernels {},
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
            // The first of what is lacking: the build, the driver, a GPU of that number, a kernel.
            let reasons = ["CUDA must be built in", "driver", &format!("cuda:{ordinal}"), "kernels"];
            assert!(reasons.iter().any(|reason| refused.detail().contains(reason)), "{refused}");
        }
    }
}

//! Converts the name of a device to a usable device.

use fulmar_core::{Device, Result};

use crate::{Card, gpus};

/// Returns the device called `cpu`, `cuda`, `cuda:N`, or `auto`, and opens a GPU. `auto` is the first GPU that can be opened, or the
/// CPU.
///
/// # Errors
/// The errors of [`Device`]'s `from_str`; `Unavailable` for a GPU, with what is missing.
///
/// # Examples
/// ```
/// use fulmar_core::{Device, ErrorKind};
/// let device = fulmar_cuda::place("auto")?;
/// assert!(device == Device::Cpu || fulmar_cuda::place(&device.to_string())? == device);
/// assert_eq!(fulmar_cuda::place("cuda:9999").unwrap_err().kind(), ErrorKind::Unavailable);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn place(name: &str) -> Result<Device> {
    if name == "auto" {
        let cards = gpus().unwrap_or_default().into_iter().map(|gpu| Card::open(gpu.ordinal));
        return Ok(cards.flatten().next().map_or(Device::Cpu, Card::device));
    }
    let device: Device = name.parse()?;
    match device {
        Device::Cpu => Ok(device),
        Device::Cuda { ordinal } => Ok(Device::Cuda { ordinal: Card::open(ordinal)?.ordinal() }),
    }
}

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;

    use super::*;

    #[test]
    fn the_cpu_is_always_there_and_no_gpu_is_without_a_reason() {
        assert_eq!(place("cpu").unwrap(), Device::Cpu);
        // Another GPU than the first one may be the only one that can be used.
        let usable =
            (0..16).map(|ordinal| Device::Cuda { ordinal }).find(|gpu| place(&gpu.to_string()).is_ok());
        assert_eq!(place("auto").unwrap(), usable.unwrap_or(Device::Cpu));
        let error = place("cuda:7").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let reasons = ["CUDA must be built in", "driver", "GPU"];
        assert!(reasons.iter().any(|reason| error.detail().contains(reason)), "{error}");
        assert_eq!(place("gpu").unwrap_err().kind(), ErrorKind::UnknownName);
    }
}

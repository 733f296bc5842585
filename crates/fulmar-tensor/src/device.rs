//! Devices of tensors. An operation runs on the device of its tensors and puts its result there.

use fulmar_compute::Compute;
use fulmar_core::{Device, Error, ErrorKind, Result};

use crate::element::with_element;
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict};

impl Tensor {
    /// Returns the device of the elements.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::{Device, ErrorKind};
    /// let tensor = fulmar_tensor::Tensor::from_vec(&[1], vec![7_i32])?;
    /// assert_eq!(tensor.device(), Device::Cpu);
    /// let error = tensor.to_device(Device::Cuda { ordinal: 0 }).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unavailable);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn device(&self) -> Device {
        self.compute().device()
    }

    /// Returns the handle that computes on this device.
    #[must_use]
    pub fn compute(&self) -> Compute {
        self.storage.compute()
    }

    /// Returns the tensor on `device`. Copies unless it is already there.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfMemory` if the elements do not fit
    /// in its memory.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        if device == self.device() {
            return Ok(self.clone());
        }
        let compute = Compute::on(device)?;
        with_element!(self.dtype, T => self.copied_on::<T>(compute))
    }
}

impl TensorDict {
    /// Returns the device of all tensors, ragged ones included; `None` without tensors or if their devices
    /// differ.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.first_device().filter(|device| self.is_on(*device))
    }

    /// Returns whether every tensor is on `device`.
    #[must_use]
    pub fn is_on(&self, device: Device) -> bool {
        self.entries().all(|(_, entry)| match entry {
            Entry::Tensor(tensor) => tensor.device() == device,
            Entry::Ragged(ragged) => ragged.values().device() == device,
            Entry::Dict(dict) => dict.is_on(device),
            Entry::NonTensor(_) => true,
        })
    }

    /// Moves every tensor, and the values of every ragged tensor, to `device`, as [`Tensor::to_device`] does.
    ///
    /// # Errors
    /// The errors of [`Tensor::to_device`], with the key of a tensor; `Unavailable` also for a dictionary
    /// without tensors.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Device;
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[1])?;
    /// assert_eq!(dict.device(), None);
    /// dict.set("id", Tensor::from_vec(&[1], vec![7_i32])?)?;
    /// assert_eq!(dict.to_device(Device::Cpu)?.device(), Some(Device::Cpu));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn to_device(&self, device: Device) -> Result<Self> {
        Compute::on(device)?;
        self.apply(&|tensor| tensor.to_device(device))
    }

    fn first_device(&self) -> Option<Device> {
        self.entries().find_map(|(_, entry)| match entry {
            Entry::Tensor(tensor) => Some(tensor.device()),
            Entry::Ragged(ragged) => Some(ragged.values().device()),
            Entry::Dict(dict) => dict.first_device(),
            Entry::NonTensor(_) => None,
        })
    }
}

/// Returns the handle that computes on the device of all `tensors`.
///
/// # Errors
/// `Incompatible` if they are on different devices.
pub fn compute_of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Compute> {
    let mut tensors = tensors.into_iter();
    let first = tensors.next().map(Tensor::compute).unwrap_or_default();
    match tensors.find(|tensor| tensor.compute() != first) {
        None => Ok(first),
        Some(other) => {
            let detail =
                format!("tensors must be on one device: got {} and {}", first.device(), other.device());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_THERE: Device = Device::Cuda { ordinal: 9999 };

    #[test]
    fn tensors_and_dictionaries_go_only_where_there_is_a_device() {
        let tensor = Tensor::from_vec(&[2], vec![1_u8, 2]).unwrap();
        assert!(tensor.to_device(Device::Cpu).unwrap().shares_storage(&tensor));
        let reason = Compute::on(NOT_THERE).unwrap_err();
        assert_eq!(tensor.to_device(NOT_THERE).unwrap_err(), reason);
        let mut dict = TensorDict::new(&[2]).unwrap();
        assert_eq!(dict.to_device(NOT_THERE).unwrap_err(), reason);
        dict.set(["in", "a"], tensor).unwrap();
        assert_eq!(dict.device(), Some(Device::Cpu));
        assert!(dict.is_on(Device::Cpu) && !dict.is_on(NOT_THERE));
        assert_eq!(dict.to_device(NOT_THERE).unwrap_err(), reason);
        assert_eq!(compute_of([]), Ok(Compute::Cpu));
    }
}

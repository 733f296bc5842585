//! The device of a tensor or a computation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, ErrorKind, Result};

/// A device by its name: `cpu`, or `cuda:N` for the GPU with that number; `cuda` is the first.
///
/// # Examples
/// ```
/// use fulmar_core::Device;
/// assert_eq!("cuda".parse::<Device>()?, Device::Cuda { ordinal: 0 });
/// assert_eq!(Device::Cuda { ordinal: 3 }.to_string(), "cuda:3");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// Main memory and the processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Cuda {
        /// The index that CUDA gives it.
        ordinal: u32,
    },
}

impl FromStr for Device {
    type Err = Error;

    /// # Errors
    /// `UnknownName` for any other text.
    fn from_str(name: &str) -> Result<Self> {
        match (name, name.strip_prefix("cuda:").map(str::parse)) {
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda { ordinal: 0 }),
            (_, Some(Ok(ordinal))) => Ok(Self::Cuda { ordinal }),
            _ => Err(Error::new(
                ErrorKind::UnknownName,
                format!("device must be cpu, cuda or cuda:N: got {name:?}"),
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|_| serde::de::Error::unknown_variant(&name, &["cpu", "cuda", "cuda:N"]))
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda { ordinal } => write!(f, "cuda:{ordinal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_to_devices_and_back_and_others_are_refused() {
        assert_eq!(Device::Cuda { ordinal: 12 }.to_string(), "cuda:12");
        assert_eq!("cuda".parse(), Ok(Device::Cuda { ordinal: 0 }));
        for device in [Device::Cpu, Device::Cuda { ordinal: 0 }, Device::Cuda { ordinal: 12 }] {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        for name in ["", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "auto"] {
            assert_eq!(name.parse::<Device>().unwrap_err().kind(), ErrorKind::UnknownName, "{name}");
        }
    }

    #[test]
    fn options_hold_devices_by_their_names() {
        let read = |json: &str| crate::options_from_json::<Device>("device", json);
        assert_eq!(read(r#""cuda:1""#), Ok(Device::Cuda { ordinal: 1 }));
        assert_eq!(serde_json::to_string(&Device::Cuda { ordinal: 1 }).unwrap(), r#""cuda:1""#);
        assert_eq!(read(r#""gpu""#).unwrap_err().kind(), ErrorKind::UnknownName);
        assert_eq!(read("0").unwrap_err().kind(), ErrorKind::Malformed);
    }
}

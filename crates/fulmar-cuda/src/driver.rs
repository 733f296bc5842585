//! The GPUs that NVIDIA's driver reports.

use cudarc::driver::{DriverError, result, sys};
use fulmar_core::{Error, ErrorKind, Result};

use crate::Gpu;

/// The CUDA version whose programs the driver must run, as CUDA numbers them: 13.0.
const VERSION_MIN: i32 = 13_000;

/// The functions that list GPUs.
const FUNCTIONS: [&str; 7] = [
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuInit",
];

/// Returns the GPUs that the driver shows, by their numbers.
///
/// # Errors
/// `Unavailable` with what is missing: the driver, a recent one, one that starts, or a GPU.
pub fn gpus() -> Result<Vec<Gpu>> {
    // SAFETY: opens NVIDIA's library under its own name, and runs only the driver's initialisers.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable("NVIDIA's driver must be installed: its library libcuda is missing"));
    }
    require(&FUNCTIONS)?;
    let mut version = 0;
    // SAFETY: writes one integer through the pointer, and may be called before anything else.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(failed)?;
    if version < VERSION_MIN {
        let (got, wanted) = (named(version), named(VERSION_MIN));
        return Err(unavailable(format!(
            "NVIDIA's driver must run CUDA {wanted} or later: got one for {got}"
        )));
    }
    result::init().map_err(failed)?;
    let count = result::device::get_count().map_err(failed)?;
    if count == 0 {
        return Err(unavailable("a GPU must be visible to NVIDIA's driver: it shows 0"));
    }
    (0..count).map(|ordinal| gpu(ordinal, version).map_err(failed)).collect()
}

/// Refuses a driver whose library lacks one of the functions: `cudarc` panics at the first use of one.
///
/// # Errors
/// `Unavailable` with the function. The library is there.
pub fn require(functions: &[&str]) -> Result<()> {
    // SAFETY: looks an address up, and uses it for nothing.
    let has = |name: &str| unsafe { sys::culib().get::<*const ()>(name.as_bytes()) }.is_ok();
    functions.iter().find(|name| !has(name)).map_or(Ok(()), |name| {
        Err(unavailable(format!("NVIDIA's driver must have the function {name}: its library lacks it")))
    })
}

fn gpu(ordinal: i32, version: i32) -> std::result::Result<Gpu, DriverError> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(ordinal)?;
    // SAFETY: the device was got from `get` on the line above.
    let (memory, major, minor) = unsafe {
        (
            result::device::total_mem(device)?,
            result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            result::device::get_attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        )
    };
    Ok(Gpu {
        ordinal: ordinal.unsigned_abs(),
        name: result::device::get_name(device)?,
        memory_bytes: memory as u64,
        compute_capability: (major.unsigned_abs(), minor.unsigned_abs()),
        driver_version: (version.unsigned_abs() / 1000, version.unsigned_abs() % 1000 / 10),
    })
}

fn named(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn failed(error: DriverError) -> Error {
    unavailable(format!("NVIDIA's driver must answer: got {error:?}"))
}

fn unavailable(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_the_driver_lacks_is_refused_by_name() {
        if gpus().is_ok() {
            require(&FUNCTIONS).unwrap();
            let refused = require(&["cuInit", "cuNoSuchFunction"]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert!(refused.detail().contains("cuNoSuchFunction"), "{refused}");
        }
    }
}

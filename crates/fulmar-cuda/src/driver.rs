//! The GPUs that NVIDIA's driver reports.

use cudarc::driver::{DriverError, result, sys};
use fulmar_core::{Error, ErrorKind, Result};

use crate::Gpu;

/// The CUDA version whose programs the driver must run, as CUDA numbers them: 13.0.
const VERSION_MIN: i32 = 13_000;

/// The driver's functions that this crate calls.
const FUNCTIONS: [&str; 36] = [
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventRecord",
    "cuFuncGetParamInfo",
    "cuFuncSetAttribute",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemGetInfo_v2",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
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
    if let Some(function) = FUNCTIONS.into_iter().find(|name| !has(name)) {
        return Err(unavailable(format!(
            "NVIDIA's driver must have the function {function}: its library lacks it"
        )));
    }
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
    (0..count).map(|ordinal| gpu(ordinal).map_err(failed)).collect()
}

/// Returns whether the driver's library has a function. `cudarc` panics at the first use of one that it lacks.
fn has(function: &str) -> bool {
    // SAFETY: looks an address up, and uses it for nothing.
    unsafe { sys::culib().get::<*const ()>(function.as_bytes()) }.is_ok()
}

fn gpu(ordinal: i32) -> std::result::Result<Gpu, DriverError> {
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

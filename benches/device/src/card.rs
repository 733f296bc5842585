//! One GPU: its memory, and launches of kernels by name. Every call waits for its work.

use std::ffi::{CString, c_void};
use std::marker::PhantomData;

use bytemuck::Pod;
use cudarc::driver::{DriverError, result, sys};
use fulmar_core::{Error, ErrorKind, Result};

/// The name of the GPU of `crates/fulmar-cuda/emulated`, which brings its own kernels.
const EMULATED: &str = "emulated GPU";

/// A GPU with its kernels loaded.
pub struct Card {
    pub name: String,
    pub capability: (u32, u32),
    pub memory_bytes: u64,
    stream: sys::CUstream,
    module: sys::CUmodule,
}

/// Blocks of a launch, threads of a block, and the bytes of shared memory of a block.
#[derive(Clone, Copy)]
pub struct Shape {
    pub blocks: (u32, u32),
    pub threads: u32,
    pub shared_bytes: u32,
}

/// An argument of a kernel: an address or a number, in the lowest bytes.
#[derive(Clone, Copy)]
pub struct Argument(u64);

/// `len` elements in the memory of a card.
pub struct Buffer<T> {
    address: sys::CUdeviceptr,
    len: usize,
    stream: sys::CUstream,
    elements: PhantomData<T>,
}

impl Card {
    /// Opens the first GPU that the driver shows.
    ///
    /// # Errors
    /// `Unavailable` with what is missing: the driver, a GPU, or kernels in this build.
    pub fn open() -> Result<Self> {
        let gpu = fulmar_cuda::gpus()?.remove(0);
        // The emulated GPU has its own kernels.
        let image = if gpu.name == EMULATED { &[0] } else { fulmar_cuda::fatbin()? };
        // SAFETY: `gpus` found the driver and started it; the image is a whole fatbin, which the module copies.
        let (stream, module) = unsafe {
            let device = result::device::get(gpu.ordinal.cast_signed()).map_err(failed("cuDeviceGet"))?;
            let context = result::primary_ctx::retain(device).map_err(failed("cuDevicePrimaryCtxRetain"))?;
            result::ctx::set_current(context).map_err(failed("cuCtxSetCurrent"))?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(failed("cuStreamCreate"))?;
            let module =
                result::module::load_data(image.as_ptr().cast()).map_err(failed("cuModuleLoadData"))?;
            (stream, module)
        };
        let (name, capability, memory_bytes) = (gpu.name, gpu.compute_capability, gpu.memory_bytes);
        Ok(Self { name, capability, memory_bytes, stream, module })
    }

    /// Returns whether this is the processor in disguise: its times say nothing.
    pub fn is_emulated(&self) -> bool {
        self.name == EMULATED
    }

    /// Copies `values` to new memory of the card.
    ///
    /// # Errors
    /// `LimitExceeded` if there is no memory left; `Unavailable` for any other answer of the driver.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        let buffer = self.poisoned(values.len())?;
        // SAFETY: the buffer has as many elements as the slice, which lives until the stream is done.
        unsafe { result::memcpy_htod_async(buffer.address, values, self.stream) }
            .map_err(failed("cuMemcpyHtoDAsync"))?;
        self.finish()?;
        Ok(buffer)
    }

    /// Allocates `len` elements of which every byte is 0xff: NaN for floats.
    ///
    /// # Errors
    /// The errors of [`Card::upload`].
    pub fn poisoned<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let bytes = (len * size_of::<T>()).max(1);
        // SAFETY: the stream is this card's; the memory is written before it is read.
        let address =
            unsafe { result::malloc_async(self.stream, bytes) }.map_err(failed("cuMemAllocAsync"))?;
        let buffer = Buffer { address, len, stream: self.stream, elements: PhantomData };
        // SAFETY: the bytes were allocated above.
        unsafe { result::memset_d8_async(address, 0xff, bytes, self.stream) }
            .map_err(failed("cuMemsetD8Async"))?;
        Ok(buffer)
    }

    /// Allocates `len` elements and fills them with copies of `pattern`, one after the other.
    ///
    /// # Errors
    /// The errors of [`Card::upload`].
    pub fn repeated<T: Pod>(&self, pattern: &[T], len: usize) -> Result<Buffer<T>> {
        let (from, to) = (self.upload(pattern)?, self.poisoned::<T>(len)?);
        for first in (0..len).step_by(pattern.len()) {
            let count = pattern.len().min(len - first);
            self.copy(&from, &to, first, count)?;
        }
        self.finish()?;
        Ok(to)
    }

    /// Queues a copy of the first `count` elements of `from` to those of `to` from `first` on.
    ///
    /// # Errors
    /// `Unavailable` with the driver's answer.
    pub fn copy<T: Pod>(&self, from: &Buffer<T>, to: &Buffer<T>, first: usize, count: usize) -> Result<()> {
        assert!(count <= from.len && first + count <= to.len, "a copy stays in its buffers");
        let place = to.address + (first * size_of::<T>()) as u64;
        // SAFETY: both ranges are within their buffers, as asserted above.
        unsafe { result::memcpy_dtod_async(place, from.address, count * size_of::<T>(), self.stream) }
            .map_err(failed("cuMemcpyDtoDAsync"))
    }

    /// Queues `work` once, then `times` times with a time for each, in milliseconds of the card.
    ///
    /// # Errors
    /// Errors of `work`; `Unavailable` with the driver's answer.
    pub fn timed(&self, times: usize, work: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f32>> {
        let event =
            || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(failed("cuEventCreate"));
        work()?;
        let mut events = Vec::with_capacity(times);
        for _ in 0..times {
            let (before, after) = (event()?, event()?);
            // SAFETY: the events were created above; the stream is this card's.
            unsafe { result::event::record(before, self.stream) }.map_err(failed("cuEventRecord"))?;
            work()?;
            // SAFETY: as above.
            unsafe { result::event::record(after, self.stream) }.map_err(failed("cuEventRecord"))?;
            events.push((before, after));
        }
        self.finish()?;
        let elapsed = |(before, after)| {
            // SAFETY: both events were recorded on one stream, which is done, and are destroyed once.
            unsafe {
                let found = result::event::elapsed(before, after).map_err(failed("cuEventElapsedTime"));
                result::event::destroy(before).map_err(failed("cuEventDestroy"))?;
                result::event::destroy(after).map_err(failed("cuEventDestroy"))?;
                found
            }
        };
        events.into_iter().map(elapsed).collect()
    }

    /// Runs a kernel and waits for it. The caller gives the arguments that the kernel's file lists.
    ///
    /// # Errors
    /// `Unavailable` with the driver's answer.
    pub fn launch<const N: usize>(&self, kernel: &str, shape: Shape, arguments: [Argument; N]) -> Result<()> {
        self.queue(kernel, shape, arguments)?;
        self.finish()
    }

    /// Queues a kernel. The caller keeps its buffers until the card is done.
    ///
    /// # Errors
    /// `Unavailable` with the driver's answer.
    pub fn queue<const N: usize>(
        &self,
        kernel: &str,
        shape: Shape,
        mut arguments: [Argument; N],
    ) -> Result<()> {
        use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
        let mut places = arguments.each_mut().map(|argument| (&raw mut argument.0).cast::<c_void>());
        let name = CString::new(kernel).map_err(|_| unavailable(kernel, "a name without zero bytes"))?;
        let (blocks, shared) = (shape.blocks, shape.shared_bytes);
        // SAFETY: the module is loaded for as long as the process runs; `places` are as many as the kernel has parameters,
        // and the driver reads them before it returns.
        unsafe {
            let function = result::module::get_function(self.module, name).map_err(failed(kernel))?;
            result::function::set_function_attribute(function, SHARED, shared.cast_signed())
                .map_err(failed(kernel))?;
            result::launch_kernel(
                function,
                (blocks.0, blocks.1, 1),
                (shape.threads, 1, 1),
                shared,
                self.stream,
                &mut places,
            )
            .map_err(failed(kernel))
        }
    }

    /// Captures the launches of `run` as a graph, and launches that `times` times.
    ///
    /// # Errors
    /// `Unavailable` with the driver's answer.
    pub fn repeat_captured<const N: usize>(
        &self,
        times: usize,
        kernel: &str,
        shape: Shape,
        arguments: [Argument; N],
    ) -> Result<()> {
        use sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL;
        // SAFETY: the stream is this card's; between the two calls it gets launches alone.
        let graph = unsafe {
            result::stream::begin_capture(self.stream, THREAD_LOCAL)
                .map_err(failed("cuStreamBeginCapture"))?;
            let queued = self.queue(kernel, shape, arguments);
            let graph = result::stream::end_capture(self.stream).map_err(failed("cuStreamEndCapture"))?;
            queued.map(|()| graph)?
        };
        // SAFETY: the graph was captured above and is destroyed once; its buffers outlive its launches.
        unsafe {
            let executable = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0))
                .map_err(failed("cuGraphInstantiate"))?;
            for _ in 0..times {
                result::graph::launch(executable, self.stream).map_err(failed("cuGraphLaunch"))?;
            }
            self.finish()?;
            result::graph::exec_destroy(executable).map_err(failed("cuGraphExecDestroy"))?;
            result::graph::destroy(graph).map_err(failed("cuGraphDestroy"))
        }
    }

    /// Waits for all that is queued.
    ///
    /// # Errors
    /// `Unavailable` with the driver's answer: also that of a kernel that failed.
    pub fn finish(&self) -> Result<()> {
        // SAFETY: the stream is this card's and lives as long as the process.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))
    }
}

impl<T: Pod> Buffer<T> {
    /// Returns the address of element number `first`.
    pub fn from(&self, first: usize) -> Argument {
        assert!(first <= self.len, "an address is within its buffer");
        Argument(self.address + (first * size_of::<T>()) as u64)
    }

    /// Copies the elements to the host.
    ///
    /// # Errors
    /// `Unavailable` with the driver's answer.
    pub fn read(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: the memory has as many elements as the vector, which lives until the stream is done.
        unsafe {
            result::memcpy_dtoh_async(&mut values, self.address, self.stream)
                .map_err(failed("cuMemcpyDtoHAsync"))?;
            result::stream::synchronize(self.stream).map_err(failed("cuStreamSynchronize"))?;
        }
        Ok(values)
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: the address came from this stream's allocator and is freed once. A failure leaves the memory to the driver.
        let _ = unsafe { result::free_async(self.address, self.stream) };
    }
}

impl<T> From<&Buffer<T>> for Argument {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(buffer.address)
    }
}

impl<T> From<Option<&Buffer<T>>> for Argument {
    /// The null pointer for `None`.
    fn from(buffer: Option<&Buffer<T>>) -> Self {
        Self(buffer.map_or(0, |buffer| buffer.address))
    }
}

impl From<usize> for Argument {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}

impl From<u32> for Argument {
    fn from(number: u32) -> Self {
        Self(u64::from(number))
    }
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Self {
        Self(u64::from(number.to_bits()))
    }
}

/// Returns the arguments of a launch.
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { [$($crate::card::Argument::from($value)),*] };
}

fn failed(what: &str) -> impl FnOnce(DriverError) -> Error + '_ {
    move |error| match error.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Error::new(ErrorKind::LimitExceeded, format!("{what}: the card has no memory left"))
        }
        status => unavailable(what, &format!("{status:?}")),
    }
}

fn unavailable(what: &str, got: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what} must succeed: got {got}"))
}

//! One GPU of the driver: its context, a stream of work and one of copies, the module of kernels and the pool of memory. All calls of
//! the driver are here, in `driver.rs`, and in `pinned.rs` and `ring.rs`.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use crate::card::{Lane, Opened};
use crate::driver::require;
use crate::pinned::Pinned;

/// The objects of one GPU, which live as long as the process.
pub struct Context {
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Copies to new memory, for which the stream of work waits.
    copies: sys::CUstream,
    module: sys::CUmodule,
    pool: sys::CUmemoryPool,
    /// Allocated by the first copy; `None` if the driver refuses.
    pinned: OnceLock<Option<Pinned>>,
}

// SAFETY: the driver's functions may be called from all threads, and these are handles of objects that are never destroyed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A kernel of the module.
pub struct Function {
    handle: sys::CUfunction,
    /// Bytes of each parameter.
    pub parameter_bytes: Vec<usize>,
    /// Bytes of shared memory that a launch may ask for.
    pub shared_bytes_max: u32,
}

// SAFETY: a handle of the module, which is never unloaded.
unsafe impl Send for Function {}

/// An error of the driver.
#[derive(Debug)]
pub struct Failure {
    /// The driver's function.
    pub function: &'static str,
    /// The driver's name of its error.
    pub status: String,
    /// The GPU has too little memory left.
    pub is_out_of_memory: bool,
    /// The context is lost: all later calls fail.
    pub is_fatal: bool,
}

/// Two events around some work.
pub struct Span {
    before: sys::CUevent,
    after: sys::CUevent,
}

/// Work that was captured and can be repeated.
pub struct Graph {
    executable: sys::CUgraphExec,
}

// SAFETY: a graph may be used by any thread, by one at a time: launches borrow it mutably.
unsafe impl Send for Graph {}
// SAFETY: as above; a shared reference gives no access to it.
unsafe impl Sync for Graph {}

thread_local! {
    /// The context and the stream of a capture by this thread.
    static CAPTURED: Cell<Option<(sys::CUcontext, sys::CUstream)>> = const { Cell::new(None) };
}

/// A capture by this thread, until it is dropped.
struct Capture;

impl Capture {
    fn begin(context: sys::CUcontext, stream: sys::CUstream) -> Self {
        CAPTURED.set(Some((context, stream)));
        Self
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        CAPTURED.set(None);
    }
}

/// A reference to an open GPU.
pub type Handle = &'static Opened;

pub const fn card(handle: Handle) -> &'static Opened {
    handle
}

pub const fn opened(card: &'static Opened) -> Handle {
    card
}

/// The functions of the driver that this file, `pinned.rs` and `ring.rs` call.
const FUNCTIONS: [&str; 37] = [
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetDefaultMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetParamInfo",
    "cuFuncSetAttribute",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Refuses a driver that lacks one of the functions of this file.
pub fn check() -> fulmar_core::Result<()> {
    require(&FUNCTIONS)
}

pub type Outcome<T> = Result<T, Failure>;

impl Context {
    /// Opens a GPU that the driver shows, and loads the kernels of `image` there.
    pub fn open(ordinal: u32, image: &[u8]) -> Outcome<Self> {
        use sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as RELEASE_THRESHOLD;
        // The pool keeps what is freed, until it is trimmed.
        let mut kept_bytes = u64::MAX;
        // SAFETY: the caller found the GPU through `gpus`, which started the driver; the image is a whole fatbin, which the
        // module copies; the attribute is a number of 64 bits.
        unsafe {
            let device = result::device::get(ordinal.cast_signed()).map_err(failed("cuDeviceGet"))?;
            let context = result::primary_ctx::retain(device).map_err(failed("cuDevicePrimaryCtxRetain"))?;
            result::ctx::set_current(context).map_err(failed("cuCtxSetCurrent"))?;
            let (stream, copies) = (create_stream()?, create_stream()?);
            let module =
                result::module::load_data(image.as_ptr().cast()).map_err(failed("cuModuleLoadData"))?;
            let pool =
                result::device::get_default_mem_pool(device).map_err(failed("cuDeviceGetDefaultMemPool"))?;
            result::mem_pool::set_attribute(pool, RELEASE_THRESHOLD, (&raw mut kept_bytes).cast())
                .map_err(failed("cuMemPoolSetAttribute"))?;
            Ok(Self { context, stream, copies, module, pool, pinned: OnceLock::new() })
        }
    }

    /// Makes the context that of the calling thread.
    pub fn bind(&self) -> Outcome<()> {
        // SAFETY: the context is retained for as long as the process runs.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("cuCtxSetCurrent"))
    }

    /// Returns the stream of work: that of a capture by this thread, or the context's.
    fn stream(&self) -> sys::CUstream {
        CAPTURED
            .get()
            .filter(|(context, _)| *context == self.context)
            .map_or(self.stream, |(_, stream)| stream)
    }

    /// Refuses what a capture by this thread cannot have: memory of its own, host memory, which a graph would read or write when it
    /// runs, and waits.
    fn outside(&self, function: &'static str) -> Outcome<()> {
        if self.stream() == self.stream {
            return Ok(());
        }
        Err(failed(function)(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)))
    }

    /// Allocates bytes in the order of a stream.
    ///
    /// Memory that is freed on the stream of work may be allocated on that of copies: the pool gives it once the free is done, or
    /// lets the stream wait for that. These policies, `CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES`, `_REUSE_ALLOW_OPPORTUNISTIC` and
    /// `_REUSE_ALLOW_INTERNAL_DEPENDENCIES`, are the default of a pool (CUDA's Driver API, `cuMemPoolSetAttribute`).
    pub fn allocate(&self, bytes: usize, lane: Lane) -> Outcome<u64> {
        self.outside("cuMemAllocAsync")?;
        // SAFETY: the stream is this context's.
        unsafe { result::malloc_async(self.lane(lane), bytes) }.map_err(failed("cuMemAllocAsync"))
    }

    fn lane(&self, lane: Lane) -> sys::CUstream {
        match lane {
            Lane::Work => self.stream,
            Lane::Copies => self.copies,
        }
    }

    /// Frees an allocation once the work that is queued is done, and with it the copy for which the stream of work waits.
    pub fn free(&self, address: u64) -> Outcome<()> {
        // SAFETY: the address came from `allocate` and its owner frees it once.
        unsafe { result::free_async(address, self.stream) }.map_err(failed("cuMemFreeAsync"))
    }

    /// Gives the memory that the pool keeps back to the GPU.
    pub fn trim(&self) -> Outcome<()> {
        self.finish()?;
        // SAFETY: the pool is the device's own.
        unsafe { result::mem_pool::trim_to(self.pool, 0) }.map_err(failed("cuMemPoolTrimTo"))
    }

    /// Returns the number of free bytes of the GPU, with those that the pool keeps.
    pub fn free_bytes(&self) -> Outcome<usize> {
        use sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as RESERVED;
        let kept = self.pool_bytes(RESERVED)?.saturating_sub(self.used_bytes()?);
        result::mem_get_info().map(|(free, _)| free + kept).map_err(failed("cuMemGetInfo"))
    }

    /// Returns the number of bytes of all allocations.
    pub fn used_bytes(&self) -> Outcome<usize> {
        self.pool_bytes(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    }

    fn pool_bytes(&self, attribute: sys::CUmemPool_attribute) -> Outcome<usize> {
        let mut bytes = 0_u64;
        // SAFETY: the pool is the device's own; the attribute is a number of 64 bits.
        unsafe { result::mem_pool::get_attribute(self.pool, attribute, (&raw mut bytes).cast()) }
            .map_err(failed("cuMemPoolGetAttribute"))?;
        Ok(bytes as usize)
    }

    /// Queues a fill of `len` elements of 1, 2 or 4 bytes by the lowest bytes of `word`.
    pub fn fill(&self, address: u64, word: u32, bytes: usize, len: usize) -> Outcome<()> {
        // SAFETY: the caller owns that many elements from the address, which is a multiple of their size.
        unsafe {
            match bytes {
                1 => sys::cuMemsetD8Async(address, word as u8, len, self.stream()),
                2 => sys::cuMemsetD16Async(address, word as u16, len, self.stream()),
                _ => sys::cuMemsetD32Async(address, word, len, self.stream()),
            }
        }
        .result()
        .map_err(failed("cuMemsetAsync"))
    }

    /// Queues a copy of bytes to the GPU; they may change when this returns. Work that is queued later waits for the copy.
    pub fn upload(&self, to: u64, from: &[u8], lane: Lane) -> Outcome<()> {
        self.outside("cuMemcpyHtoDAsync")?;
        let sent = match self.pinned() {
            Some(pinned) => pinned.send(to, from, lane),
            // SAFETY: the caller owns that many bytes from the address. The driver reads memory that is not pinned before it
            // returns.
            None => unsafe { result::memcpy_htod_async(to, from, self.lane(lane)) }
                .map_err(failed("cuMemcpyHtoDAsync")),
        };
        match lane {
            Lane::Work => sent,
            Lane::Copies => {
                // After a failure, too: the caller frees the memory, to which pieces may still be copied.
                let joined = self.join();
                sent.and(joined)
            }
        }
    }

    /// Lets the stream of work wait for the copies that are queued, or else the host.
    fn join(&self) -> Outcome<()> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(failed("cuEventCreate"))?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the streams are this context's; the event is destroyed once, and the driver keeps it until it has passed.
        unsafe {
            let joined = result::event::record(event, self.copies)
                .and_then(|()| result::stream::wait_event(self.stream, event, flags))
                .or_else(|_| result::stream::synchronize(self.copies));
            result::event::destroy(event).map_err(failed("cuEventDestroy"))?;
            joined.map_err(failed("cuStreamSynchronize"))
        }
    }

    fn pinned(&self) -> Option<&Pinned> {
        self.pinned.get_or_init(|| Pinned::allocate(self.stream, self.copies).ok()).as_ref()
    }

    /// Copies bytes to the host and waits for them, and so for all that is queued.
    pub fn download(&self, to: &mut [MaybeUninit<u8>], from: u64) -> Outcome<()> {
        self.outside("cuMemcpyDtoHAsync")?;
        if let Some(pinned) = self.pinned() {
            return pinned.receive(to, from);
        }
        // SAFETY: the caller owns that many bytes on the GPU; the copy is done when this returns.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.stream) }
            .result()
            .map_err(failed("cuMemcpyDtoHAsync"))?;
        self.finish()
    }

    /// Queues a copy on the GPU.
    pub fn copy(&self, to: u64, from: u64, bytes: usize) -> Outcome<()> {
        // SAFETY: the caller owns both ranges.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream()) }
            .map_err(failed("cuMemcpyDtoDAsync"))
    }

    /// Waits for all that is queued.
    pub fn finish(&self) -> Outcome<()> {
        self.outside("cuStreamSynchronize")?;
        // SAFETY: the stream is this context's.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))
    }

    /// Returns a kernel of the module.
    pub fn function(&self, name: &str) -> Outcome<Function> {
        let name = CString::new(name).map_err(|_| failed("cuModuleGetFunction")(not_found()))?;
        // SAFETY: the module is never unloaded; numbers are written through pointers to them.
        unsafe {
            let handle =
                result::module::get_function(self.module, name).map_err(failed("cuModuleGetFunction"))?;
            let mut parameter_bytes = Vec::new();
            let (mut offset, mut bytes) = (0, 0);
            loop {
                let index = parameter_bytes.len();
                match sys::cuFuncGetParamInfo(handle, index, &raw mut offset, &raw mut bytes) {
                    sys::CUresult::CUDA_SUCCESS => parameter_bytes.push(bytes),
                    // One past the last parameter.
                    sys::CUresult::CUDA_ERROR_INVALID_VALUE => break,
                    status => return Err(failed("cuFuncGetParamInfo")(DriverError(status))),
                }
            }
            Ok(Function { handle, parameter_bytes, shared_bytes_max: SHARED_BYTES })
        }
    }

    /// Lets launches of a kernel have that many bytes of shared memory.
    pub fn allow_shared(&self, function: &mut Function, bytes: u32) -> Outcome<()> {
        use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
        // SAFETY: the function is of the module, which is never unloaded.
        unsafe { result::function::set_function_attribute(function.handle, SHARED, bytes.cast_signed()) }
            .map_err(failed("cuFuncSetAttribute"))?;
        function.shared_bytes_max = bytes;
        Ok(())
    }

    /// Queues a kernel whose arguments are in the lowest bytes of `values`.
    pub fn launch(
        &self,
        function: &Function,
        blocks: (u32, u32),
        threads: u32,
        shared_bytes: u32,
        values: &mut [u64],
    ) -> Outcome<()> {
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        let (grid, block) = ((blocks.0, blocks.1, 1), (threads, 1, 1));
        // SAFETY: there are as many places as the kernel has parameters, none of which has more than 8 bytes, and the driver
        // reads them before it returns.
        unsafe {
            result::launch_kernel(function.handle, grid, block, shared_bytes, self.stream(), &mut places)
        }
        .map_err(failed("cuLaunchKernel"))
    }

    /// Captures what this thread queues in `work`, which is not run.
    pub fn capture<E: From<Failure>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        self.outside("cuStreamBeginCapture")?;
        // Work of other threads goes to the stream of the context meanwhile, where it is not captured.
        let stream = create_stream()?;
        let graph = self.capture_on(stream, work);
        // SAFETY: the stream was created above, and nothing runs on it. A failure leaves it to the driver.
        let _ = unsafe { result::stream::destroy(stream) };
        graph
    }

    fn capture_on<E: From<Failure>>(
        &self,
        stream: sys::CUstream,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        use sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL;
        // SAFETY: the stream is this context's.
        unsafe { result::stream::begin_capture(stream, THREAD_LOCAL) }
            .map_err(failed("cuStreamBeginCapture"))?;
        let queued = {
            let _capture = Capture::begin(self.context, stream);
            work()
        };
        // SAFETY: the capture began above, on this thread.
        let ended = unsafe { result::stream::end_capture(stream) }.map_err(failed("cuStreamEndCapture"));
        let graph = match (queued, ended) {
            (Ok(()), ended) => ended?,
            (Err(error), ended) => {
                // SAFETY: the graph of a capture that ended is this function's.
                let _ = ended.map(|graph| unsafe { result::graph::destroy(graph) });
                return Err(error);
            }
        };
        // SAFETY: the graph is whole, and what can be run is a copy of it.
        let executable = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) }
            .map_err(failed("cuGraphInstantiate"));
        // SAFETY: the graph is destroyed once. A failure leaves it to the driver.
        let _ = unsafe { result::graph::destroy(graph) };
        Ok(Graph { executable: executable? })
    }

    /// Queues a graph.
    pub fn repeat(&self, graph: &mut Graph) -> Outcome<()> {
        self.outside("cuGraphLaunch")?;
        // SAFETY: the graph lives; what it reads and writes outlives it.
        unsafe { result::graph::launch(graph.executable, self.stream) }.map_err(failed("cuGraphLaunch"))
    }

    /// Queues `work` between two events.
    pub fn timed<E: From<Failure>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Span, E> {
        let event =
            || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(failed("cuEventCreate"));
        let (before, after) = (event()?, event()?);
        // SAFETY: the events were created above; the stream is this context's.
        unsafe { result::event::record(before, self.stream) }.map_err(failed("cuEventRecord"))?;
        work()?;
        // SAFETY: as above.
        unsafe { result::event::record(after, self.stream) }.map_err(failed("cuEventRecord"))?;
        Ok(Span { before, after })
    }
}

impl Span {
    /// Returns the milliseconds between the events, once the stream is done.
    pub fn milliseconds(self) -> Outcome<f32> {
        // SAFETY: both events were recorded on one stream, and are destroyed once.
        unsafe {
            let elapsed = result::event::elapsed(self.before, self.after);
            result::event::destroy(self.before).map_err(failed("cuEventDestroy"))?;
            result::event::destroy(self.after).map_err(failed("cuEventDestroy"))?;
            elapsed.map_err(failed("cuEventElapsedTime"))
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once, after its last run. A failure leaves it to the driver.
        let _ = unsafe { result::graph::exec_destroy(self.executable) };
    }
}

/// Bytes of shared memory that every launch may ask for.
const SHARED_BYTES: u32 = 48 << 10;

fn create_stream() -> Outcome<sys::CUstream> {
    result::stream::create(result::stream::StreamKind::NonBlocking).map_err(failed("cuStreamCreate"))
}

fn not_found() -> DriverError {
    DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND)
}

/// Returns a function that makes the error of a function of the driver.
pub fn failed(function: &'static str) -> impl FnOnce(DriverError) -> Failure {
    move |DriverError(status)| Failure {
        function,
        status: format!("{status:?}"),
        is_out_of_memory: status == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        is_fatal: is_fatal(status),
    }
}

/// Returns whether no call of the context can succeed after this error.
fn is_fatal(status: sys::CUresult) -> bool {
    use sys::CUresult::*;
    matches!(
        status,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}

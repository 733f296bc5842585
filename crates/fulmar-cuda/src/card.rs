//! A GPU that is open, with its kernels.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{fmt, hash};

use fulmar_core::{Device, Error, ErrorKind, Result};

use crate::platform::{self, Context, Failure, Function, Handle, opened};
use crate::{Argument, Gpu, GraphPool, Grid, fatbin, gpus};

/// The name of the GPU of `emulated/`, which has its own kernels.
const EMULATED: &str = "emulated GPU";

/// A GPU with its kernels: a handle, cheap to copy. A process opens a GPU once and never closes it.
///
/// Its work runs on one stream, in the order of the calls. [`Card::read`] waits for it; the other calls only queue. Large copies to
/// new memory run on a second stream, and work that is queued after them waits for them.
#[derive(Clone, Copy)]
pub struct Card(Handle);

/// The state of an open GPU.
pub struct Opened {
    gpu: Gpu,
    pub(crate) context: Context,
    functions: Mutex<HashMap<String, Function>>,
    /// The first error that no call can succeed after.
    lost: OnceLock<String>,
    waits: AtomicU64,
    kernels: AtomicU64,
    captures: AtomicU64,
    graphs: AtomicU64,
}

/// Work that was captured, to be queued as a whole.
pub struct Graph {
    card: Card,
    /// `None` once it is dropped.
    graph: Option<platform::Graph>,
    /// The pool with the memory that the work allocated.
    _pool: Option<GraphPool>,
}

/// The open GPUs, each of which lives as long as the process, as its driver's context does.
static OPEN: Mutex<Vec<&'static Opened>> = Mutex::new(Vec::new());

impl Card {
    /// Opens GPU number `ordinal`, or returns it if it is open.
    ///
    /// # Errors
    /// `Unavailable` with what is missing: the driver, one of its functions, the GPU, a compute capability of 8.0, or kernels in this
    /// build.
    ///
    /// # Examples
    /// ```
    /// let error = fulmar_cuda::Card::open(9999).unwrap_err();
    /// assert_eq!(error.kind(), fulmar_core::ErrorKind::Unavailable);
    /// ```
    pub fn open(ordinal: u32) -> Result<Self> {
        let gpu = gpu(ordinal)?;
        if gpu.code().is_none() {
            let (device, (major, minor)) = (Device::Cuda { ordinal }, gpu.compute_capability);
            return Err(unavailable(format!(
                "{device} must have a compute capability of 8.0 or later: got {major}.{minor}"
            )));
        }
        let image = image(&gpu)?;
        crate::platform::check()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(card) = Self::among(&open, ordinal) {
            return Ok(card);
        }
        let context = Context::open(ordinal, image).map_err(|failure| failed("a GPU", ordinal, &failure))?;
        let card: &'static Opened = Box::leak(Box::new(Opened {
            gpu,
            context,
            functions: Mutex::default(),
            lost: OnceLock::new(),
            waits: AtomicU64::new(0),
            kernels: AtomicU64::new(0),
            captures: AtomicU64::new(0),
            graphs: AtomicU64::new(0),
        }));
        open.push(card);
        Ok(Self(opened(card)))
    }

    /// Returns GPU number `ordinal`, if this process has opened it.
    #[must_use]
    pub fn of_open(ordinal: u32) -> Option<Self> {
        Self::among(&OPEN.lock().unwrap_or_else(PoisonError::into_inner), ordinal)
    }

    fn among(open: &[&'static Opened], ordinal: u32) -> Option<Self> {
        open.iter().find(|card| card.gpu.ordinal == ordinal).map(|card| Self(opened(card)))
    }

    /// Returns what the driver shows of the GPU.
    #[must_use]
    pub fn gpu(self) -> &'static Gpu {
        &self.opened().gpu
    }

    /// Returns the number of the GPU.
    #[must_use]
    pub fn ordinal(self) -> u32 {
        self.gpu().ordinal
    }

    /// Returns the GPU as a device.
    #[must_use]
    pub fn device(self) -> Device {
        Device::Cuda { ordinal: self.ordinal() }
    }

    /// Returns `true` if the GPU is the processor, whose times tell nothing about a GPU.
    #[must_use]
    pub fn is_emulated(self) -> bool {
        self.gpu().name == EMULATED
    }

    /// Returns the number of bytes that are free on the GPU, with those that the pool keeps.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error.
    pub fn free_bytes(self) -> Result<usize> {
        self.run("a count of free memory", |context| Ok(context.free_bytes()?))
    }

    /// Returns the number of bytes that this process has allocated on the GPU.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error.
    pub fn used_bytes(self) -> Result<usize> {
        self.run("a count of used memory", |context| Ok(context.used_bytes()?))
    }

    /// Returns the number of times that the host waited for results of this GPU. A copy to the GPU that waits until those before it have left
    /// pinned memory is not counted.
    #[must_use]
    pub fn num_waits(self) -> u64 {
        self.opened().waits.load(Ordering::Relaxed)
    }

    /// Returns the number of kernels that were queued one by one, in captures too.
    #[must_use]
    pub fn num_kernels(self) -> u64 {
        self.opened().kernels.load(Ordering::Relaxed)
    }

    /// Returns the number of captures.
    #[must_use]
    pub fn num_captures(self) -> u64 {
        self.opened().captures.load(Ordering::Relaxed)
    }

    /// Returns the number of graphs that were queued.
    #[must_use]
    pub fn num_graphs(self) -> u64 {
        self.opened().graphs.load(Ordering::Relaxed)
    }

    /// Queues a kernel: blocks, threads and shared memory by `grid`, arguments in the order of the kernel's parameters.
    /// The caller keeps the memory that they name until it is done.
    ///
    /// # Errors
    /// `Unavailable` if this build has no kernel of that name, if arguments differ from its parameters in number or width, or
    /// with the driver's error.
    pub fn queue<const N: usize>(self, kernel: &str, grid: Grid, arguments: [Argument; N]) -> Result<()> {
        self.opened().kernels.fetch_add(1, Ordering::Relaxed);
        self.run(kernel, |context| {
            let mut functions = self.opened().functions.lock().unwrap_or_else(PoisonError::into_inner);
            if !functions.contains_key(kernel) {
                functions.insert(kernel.to_owned(), context.function(kernel)?);
            }
            let Some(function) = functions.get_mut(kernel) else { return Ok(()) };
            let mut values = checked(&function.parameter_bytes, arguments)?;
            if grid.shared_bytes > function.shared_bytes_max {
                context.allow_shared(function, grid.shared_bytes)?;
            }
            Ok(context.launch(function, grid.blocks, grid.threads, grid.shared_bytes, &mut values)?)
        })
    }

    /// Runs a kernel and waits for it, so that an error names it.
    ///
    /// # Errors
    /// The errors of [`Card::queue`].
    pub fn launch<const N: usize>(self, kernel: &str, grid: Grid, arguments: [Argument; N]) -> Result<()> {
        self.queue(kernel, grid, arguments)?;
        self.wait(kernel, Context::finish)
    }

    /// Waits for all that is queued.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error, which may be that of a kernel.
    pub fn finish(self) -> Result<()> {
        self.wait("queued work", Context::finish)
    }

    /// Captures what this thread queues in `work`: kernels, copies on the GPU and fills, none of which runs now. A graph has their
    /// arguments, and the memory of its run. Work of other threads is queued meanwhile and not captured. Work that allocates is run
    /// in a [`GraphPool`] first, and captured in it.
    ///
    /// # Errors
    /// Errors of `work`, such as `Unavailable` for memory that its pool lacks, a copy from or to the host, or a wait, which cannot be captured;
    /// `Unavailable` with the driver's error.
    pub fn capture(self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.opened().captures.fetch_add(1, Ordering::Relaxed);
        let graph = self.run("a graph", |context| context.capture(|| work().map_err(Fault::Ours)))?;
        Ok(Graph { card: self, graph: Some(graph), _pool: GraphPool::current() })
    }

    /// Queues `work` once, then `times` times; returns the milliseconds of each by the clock of the GPU.
    ///
    /// # Errors
    /// Errors of `work`; `Unavailable` with the driver's error.
    pub fn timed(self, times: usize, work: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f32>> {
        work()?;
        let spans: Vec<_> = (0..times)
            .map(|_| self.run("an event", |context| context.timed(|| work().map_err(Fault::Ours))))
            .collect::<Result<_>>()?;
        self.finish()?;
        self.run("an event", |_| {
            Ok(spans
                .into_iter()
                .map(crate::platform::Span::milliseconds)
                .collect::<std::result::Result<_, _>>()?)
        })
    }

    /// Runs `work`, which waits for the GPU, and counts the wait.
    pub(crate) fn wait(
        self,
        what: &str,
        work: impl FnOnce(&Context) -> std::result::Result<(), Failure>,
    ) -> Result<()> {
        self.opened().waits.fetch_add(1, Ordering::Relaxed);
        self.run(what, |context| Ok(work(context)?))
    }

    /// Runs calls of the driver for `what`, unless the context is lost.
    pub(crate) fn run<T>(
        self,
        what: &str,
        work: impl FnOnce(&'static Context) -> std::result::Result<T, Fault>,
    ) -> Result<T> {
        let Opened { context, lost, gpu, .. } = self.opened();
        if let Some(cause) = lost.get() {
            let device = Device::Cuda { ordinal: gpu.ordinal };
            return Err(unavailable(format!("{what} must run on {device}: it was lost before, {cause}")));
        }
        let done = context.bind().map_err(Fault::from).and_then(|()| work(context));
        done.map_err(|fault| match fault {
            Fault::Ours(error) => error,
            Fault::Wrong(detail) => unavailable(format!("{what} {detail}")),
            Fault::Driver(failure) => {
                let error = failed(what, gpu.ordinal, &failure);
                if failure.is_fatal {
                    let _ = lost.set(error.detail().to_owned());
                }
                error
            }
        })
    }

    fn opened(self) -> &'static Opened {
        crate::platform::card(self.0)
    }
}

impl Graph {
    /// Queues all of the work. The caller keeps the memory that it names until it is done.
    ///
    /// # Errors
    /// `Unavailable` with the driver's error.
    pub fn queue(&mut self) -> Result<()> {
        let Some(graph) = &mut self.graph else { return Ok(()) };
        self.card.opened().graphs.fetch_add(1, Ordering::Relaxed);
        self.card.run("a graph", |context| Ok(context.repeat(graph)?))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let graph = self.graph.take();
        // The driver destroys it in its context, once its last run is done. A lost context has nothing left to destroy.
        let _ = self.card.run("a graph", |_| {
            let _dropped_here = graph;
            Ok(())
        });
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Graph").field("card", &self.card).finish_non_exhaustive()
    }
}

/// A stream of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// All but copies to new memory, in the order of the calls.
    Work,
    /// Copies to new memory, which need not wait for the work that is queued.
    Copies,
}

/// An error inside [`Card::run`].
pub enum Fault {
    /// Of the driver.
    Driver(Failure),
    /// Of a launch: a rule that follows the kernel's name.
    Wrong(String),
    /// Of this crate, as it is.
    Ours(Error),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Driver(failure)
    }
}

/// Cards are equal if they are the same GPU.
impl PartialEq for Card {
    fn eq(&self, other: &Self) -> bool {
        self.ordinal() == other.ordinal()
    }
}

impl Eq for Card {}

impl hash::Hash for Card {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.ordinal().hash(state);
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Card").field(self.gpu()).finish()
    }
}

/// Returns the arguments as the kernel reads them, each in the lowest bytes of a word.
fn checked<const N: usize>(
    parameter_bytes: &[usize],
    arguments: [Argument; N],
) -> std::result::Result<[u64; N], Fault> {
    if parameter_bytes.len() != N {
        let wanted = parameter_bytes.len();
        return Err(Fault::Wrong(format!("must be launched with {wanted} arguments: got {N}")));
    }
    let wrong = arguments.iter().zip(parameter_bytes).position(|(argument, bytes)| !argument.fits(*bytes));
    match wrong {
        Some(index) => {
            let (got, bytes) = (arguments[index], parameter_bytes[index]);
            Err(Fault::Wrong(format!("must have {bytes} bytes as argument {index}: got {got:?}")))
        }
        None => Ok(arguments.map(Argument::word)),
    }
}

fn gpu(ordinal: u32) -> Result<Gpu> {
    let gpus = gpus()?;
    let count = gpus.len();
    gpus.into_iter().find(|gpu| gpu.ordinal == ordinal).ok_or_else(|| {
        let device = Device::Cuda { ordinal };
        unavailable(format!("device {device} must be one of {count} GPUs, counted from 0: got {ordinal}"))
    })
}

/// Returns the kernels for a GPU.
fn image(gpu: &Gpu) -> Result<&'static [u8]> {
    if gpu.name == EMULATED { Ok(&[0]) } else { fatbin() }
}

fn failed(what: &str, ordinal: u32, failure: &Failure) -> Error {
    let (device, Failure { function, status, .. }) = (Device::Cuda { ordinal }, failure);
    unavailable(format!("{what} must run on {device}: {function} returned {status}"))
}

fn unavailable(detail: String) -> Error {
    Error::new(ErrorKind::Unavailable, detail)
}

//! Runs work over rows on all cores. Chunks are cut by size, never by the number of threads, and each row is
//! written by one chunk only, so results do not depend on the number of threads. WebAssembly runs the same
//! chunks in sequence.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

#[cfg(not(target_family = "wasm"))]
use crate::team::Team;

/// Fewest floats that a task should process: below this, threads cost more than they gain.
const TASK_FLOATS: usize = 1 << 13;

/// The environment variable of the number of threads, that of rayon, which other crates use.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// The threads that help all others of this process.
#[cfg(not(target_family = "wasm"))]
static TEAM: OnceLock<Team> = OnceLock::new();

thread_local! {
    /// `true` if this thread runs one of several parallel parts, so its kernels must not share work.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    /// The number of threads inside [`with_num_threads`].
    static NUM_THREADS: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
}

/// Returns whether kernels share their work between threads: not inside [`for_each_part`], whose parts run in
/// parallel already.
fn shares_work() -> bool {
    !IS_ALONE.get() && num_threads() > 1
}

/// Returns the number of threads that kernels called here use: that of the processors, unless the environment variable
/// `RAYON_NUM_THREADS` or [`with_num_threads`] has another. WebAssembly has one.
#[must_use]
pub fn num_threads() -> usize {
    static OF_PROCESS: OnceLock<usize> = OnceLock::new();
    NUM_THREADS.get().map_or_else(|| *OF_PROCESS.get_or_init(num_threads_of_process), NonZeroUsize::get)
}

fn num_threads_of_process() -> usize {
    // Miri ends when the main thread does, and helpers of a process stay.
    if cfg!(any(target_family = "wasm", miri)) {
        return 1;
    }
    let asked = std::env::var(THREADS_VARIABLE).ok().and_then(|count| count.parse().ok());
    asked.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// Runs `work` with kernels on up to `count` threads. Results do not depend on it.
///
/// # Examples
/// ```
/// use std::num::NonZeroUsize;
/// let count = NonZeroUsize::new(3).unwrap();
/// assert_eq!(fulmar_kernel::with_num_threads(count, fulmar_kernel::num_threads), 3);
/// ```
pub fn with_num_threads<R>(count: NonZeroUsize, work: impl FnOnce() -> R) -> R {
    let _before = Restored { of: &NUM_THREADS, before: NUM_THREADS.replace(Some(count)) };
    work()
}

/// Runs `work` with kernels that stay on this thread.
pub(crate) fn alone<R>(work: impl FnOnce() -> R) -> R {
    let _before = Restored { of: &IS_ALONE, before: IS_ALONE.replace(true) };
    work()
}

/// Restores a value of this thread, even after a panic.
struct Restored<T: Copy + 'static> {
    of: &'static std::thread::LocalKey<Cell<T>>,
    before: T,
}

impl<T: Copy> Drop for Restored<T> {
    fn drop(&mut self) {
        self.of.set(self.before);
    }
}

/// Calls `work` with each number below `count`, in any order, at least `at_once` of them in sequence on one
/// thread.
pub(crate) fn for_tasks(count: usize, at_once: usize, work: impl Fn(usize) + Sync) {
    #[cfg(not(target_family = "wasm"))]
    if count > at_once && shares_work() {
        return TEAM.get_or_init(Team::new).run(num_threads() - 1, count, at_once, &work);
    }
    #[cfg(target_family = "wasm")]
    let _ = at_once;
    (0..count).for_each(work);
}

/// Returns the number of rows of `width` floats in one task.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (TASK_FLOATS / width.max(1)).max(1)
}

/// Calls `work(first_row, rows)` for consecutive chunks of `out`, rows of `width` elements.
pub(crate) fn for_rows<T: Send>(out: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    for_chunks(out, width, rows_per_task(width), work);
}

/// Runs [`for_rows`] with chunks of `rows` rows.
pub(crate) fn for_chunks<T: Send>(
    out: &mut [T],
    width: usize,
    rows: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    if out.len() > rows * width && shares_work() {
        let mut chunks: Vec<&mut [T]> = out.chunks_mut(rows * width).collect();
        for_each_of(&mut chunks, |chunk, out| work(chunk * rows, out));
        return;
    }
    for (chunk, out) in out.chunks_mut(rows * width).enumerate() {
        work(chunk * rows, out);
    }
}

/// Runs [`for_rows`] over two outputs `a` and `b` with rows of `widths`.
pub(crate) fn for_rows2(
    a: &mut [f32],
    b: &mut [f32],
    widths: (usize, usize),
    work: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let rows = rows_per_task(widths.0.max(widths.1));
    let pairs = a.chunks_mut(rows * widths.0).zip(b.chunks_mut(rows * widths.1));
    if pairs.len() > 1 && shares_work() {
        let mut pairs: Vec<(&mut [f32], &mut [f32])> = pairs.collect();
        for_each_of(&mut pairs, |chunk, (a, b)| work(chunk * rows, a, b));
        return;
    }
    for (chunk, (a, b)) in pairs.enumerate() {
        work(chunk * rows, a, b);
    }
}

/// Returns `(0..count).map(work)`, in order, computed on all cores.
pub(crate) fn map_tasks<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if count > 1 && shares_work() {
        let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
        for_each_of(&mut results, |task, result| *result = Some(work(task)));
        return results.into_iter().flatten().collect();
    }
    (0..count).map(work).collect()
}

/// Calls `work` with each of `parts` on its own thread and returns the results in order. Kernels inside run
/// on that thread alone. A single part runs on the calling thread, and its kernels on all.
///
/// # Examples
/// ```
/// let mut parts = [1, 2, 3];
/// assert_eq!(fulmar_kernel::for_each_part(&mut parts, |part| *part * 2), [2, 4, 6]);
/// ```
pub fn for_each_part<T: Send, R: Send>(parts: &mut [T], work: impl Fn(&mut T) -> R + Sync) -> Vec<R> {
    let parts: Vec<Mutex<&mut T>> = parts.iter_mut().map(Mutex::new).collect();
    map_tasks(parts.len(), |part| work(&mut lock(&parts[part])))
}

/// Calls `work(index, item)` for each of `items`, on all cores.
pub(crate) fn for_each_of<T: Send>(items: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
    let items: Vec<Mutex<&mut T>> = items.iter_mut().map(Mutex::new).collect();
    for_tasks(items.len(), 1, |index| work(index, &mut lock(&items[index])));
}

/// Returns an item that one task alone takes.
fn lock<T>(item: &Mutex<T>) -> MutexGuard<'_, T> {
    item.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to `total` the column sums of chunks of rows from `work(first_row, end_row, sums)`, in row order.
pub(crate) fn add_column_sums(
    rows: usize,
    total: &mut [f32],
    work: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    let per_task = rows_per_task(total.len());
    let partials = map_tasks(rows.div_ceil(per_task), |task| {
        let mut sums = vec![0.0; total.len()];
        work(task * per_task, ((task + 1) * per_task).min(rows), &mut sums);
        sums
    });
    for partial in partials {
        for (total, sum) in total.iter_mut().zip(partial) {
            *total += sum;
        }
    }
}

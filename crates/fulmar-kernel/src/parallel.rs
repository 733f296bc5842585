//! Runs work over rows on all cores. Chunks are cut by size, never by the number of threads, and each row is
//! written by one chunk only, so results do not depend on the number of threads. WebAssembly runs the same
//! chunks in sequence.

use std::cell::Cell;

#[cfg(not(target_family = "wasm"))]
use rayon::prelude::*;

/// Fewest floats that a task should process: below this, threads cost more than they gain.
const TASK_FLOATS: usize = 1 << 13;

thread_local! {
    /// `true` if this thread runs one of several parallel parts, so its kernels must not share work.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether kernels share their work between threads: not inside [`for_each_part`], whose parts run in
/// parallel already.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn shares_work() -> bool {
    num_threads() > 1 && !IS_ALONE.get()
}

/// Returns the number of threads that kernels use. Miri refuses the thread pool's own pointers, so it has one.
#[must_use]
pub fn num_threads() -> usize {
    #[cfg(not(any(target_family = "wasm", miri)))]
    return rayon::current_num_threads();
    #[cfg(any(target_family = "wasm", miri))]
    return 1;
}

/// Runs `work`, several kernels in sequence, on the thread pool, so that each kernel shares its work without
/// a handover between threads.
pub fn together<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    #[cfg(not(target_family = "wasm"))]
    return if shares_work() { rayon::scope(|_| work()) } else { work() };
    #[cfg(target_family = "wasm")]
    return work();
}

/// Calls `work` with each number below `count`, in any order, at least `together` of them in sequence on one
/// thread.
pub(crate) fn for_tasks(count: usize, together: usize, work: impl Fn(usize) + Sync + Send) {
    #[cfg(not(target_family = "wasm"))]
    if count > together && shares_work() {
        (0..count).into_par_iter().with_min_len(together.max(1)).for_each(work);
        return;
    }
    #[cfg(target_family = "wasm")]
    let _ = together;
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
    #[cfg(not(target_family = "wasm"))]
    if out.len() > rows * width && shares_work() {
        out.par_chunks_mut(rows * width).enumerate().for_each(|(chunk, out)| work(chunk * rows, out));
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
    #[cfg(not(target_family = "wasm"))]
    if a.len() > rows * widths.0 && shares_work() {
        let pairs = a.par_chunks_mut(rows * widths.0).zip(b.par_chunks_mut(rows * widths.1));
        pairs.enumerate().for_each(|(chunk, (a, b))| work(chunk * rows, a, b));
        return;
    }
    let pairs = a.chunks_mut(rows * widths.0).zip(b.chunks_mut(rows * widths.1));
    for (chunk, (a, b)) in pairs.enumerate() {
        work(chunk * rows, a, b);
    }
}

/// Returns `(0..count).map(work)`, in order, computed on all cores.
pub(crate) fn map_tasks<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    #[cfg(not(target_family = "wasm"))]
    if count > 1 && shares_work() {
        return (0..count).into_par_iter().map(&work).collect();
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
    #[cfg(not(target_family = "wasm"))]
    if parts.len() > 1 && shares_work() {
        return parts.par_iter_mut().map(|part| alone(|| work(part))).collect();
    }
    parts.iter_mut().map(work).collect()
}

/// Runs `work` with kernels that stay on this thread.
pub(crate) fn alone<R>(work: impl FnOnce() -> R) -> R {
    /// Restores the flag even if `work` panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_ALONE.set(self.0);
        }
    }
    let _before = Before(IS_ALONE.replace(true));
    work()
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

//! The checks: one file for each file of `crates/fulmar-cuda/kernels`, and one for the operations that use them.

pub mod attention;
pub mod attention_backward;
pub mod attention_f32;
mod cast;
mod decoder;
pub mod draw;
mod embedding;
mod engine;
mod graphs;
mod heads;
pub mod log_prob;
mod operations;
pub mod optimizer;
mod pages;
pub mod product;
pub mod product_f32;
pub mod rms_norm;
mod row_draws;
pub mod rows;
mod shortage;
pub mod spans;
mod swiglu;
mod training;

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid};

use crate::numbers::is_small;
use crate::report::Report;

/// Compares the kernels of one file with the processor; the errors are those of the card.
type Check = fn(&Card, &mut Report) -> Result<()>;

/// Name -> the check of a file of kernels, or of operations.
pub const CHECKS: [(&str, Check); 21] = [
    ("attention", attention::check),
    ("attention_backward", attention_backward::check),
    ("attention_f32", attention_f32::check),
    ("cast", cast::check),
    ("decoder", decoder::check),
    ("draw", draw::check),
    ("embedding", embedding::check),
    ("engine", engine::check),
    ("graphs", graphs::check),
    ("heads", heads::check),
    ("log_prob", log_prob::check),
    ("operations", operations::check),
    ("optimizer", optimizer::check),
    ("pages", pages::check),
    ("product", product::check),
    ("product_f32", product_f32::check),
    ("rms_norm", rms_norm::check),
    ("row_draws", row_draws::check),
    ("rows", rows::check),
    ("swiglu", swiglu::check),
    ("training", training::check),
];

/// Threads of a block of kernels that go over elements.
const THREADS: u32 = 256;

/// Lengths of what such a kernel goes over: one below and above a warp, a block, and what [`elements`] gives at once.
const LENGTHS: [usize; 12] = [1, 2, 31, 32, 33, 255, 256, 257, 767, 768, 769, 10_000];

/// Length of what such a kernel goes over on a GPU alone.
const LARGE_LENGTH: usize = (1 << 21) + 1;

/// Returns lengths of inputs.
fn lengths(card: &Card) -> Vec<usize> {
    with_large(card, &LENGTHS, &[LARGE_LENGTH])
}

/// Returns shapes, and on a GPU those that the emulated one has no time for.
fn with_large<T: Copy>(card: &Card, shapes: &[T], large: &[T]) -> Vec<T> {
    let large = if is_small(card) { &[] } else { large };
    shapes.iter().chain(large).copied().collect()
}

/// Returns up to `count` numbers below `end`, with both ends.
fn spread(end: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(end);
    (0..count).map(move |at| at * (end - 1) / (count - 1).max(1))
}

/// Returns the shape of a launch over elements: three blocks, so that longer inputs take several rounds.
const fn elements() -> Grid {
    Grid { blocks: (3, 1), threads: THREADS, shared_bytes: 0 }
}

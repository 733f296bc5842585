//! What runs on the processor whatever the device: the parts of an operation on the CPU, and the hands of those who feed devices.

// A body of Rust that is compiled for vector units.
pub use fulmar_kernel::lanes;
// One number, or a hint to the processor.
pub use fulmar_kernel::{exp, power, prefetch};
// How the processor's threads share work.
pub use fulmar_kernel::{active_lanes, for_each_part, num_threads, together};
// The parts of a draw, which chooses its device as a whole.
pub use fulmar_kernel::{SoftmaxRow, at_least, top_k};
// The tree of priorities, which stands in main memory: where a draw goes on depends on what it has just seen.
pub use fulmar_kernel::power_each;

//! Functions that run on the processor whatever the device: parts of CPU operations, and helpers of code that
//! feeds devices.

// A body of Rust that is compiled for vector units.
pub use fulmar_kernel::lanes;
// One number, or a hint to the processor or the system.
pub use fulmar_kernel::{exp, power, prefer_huge_pages, prefetch};
// The processor's threads.
pub use fulmar_kernel::{active_lanes, for_each_part, num_threads, with_num_threads};
// The parts of a draw; the whole draw selects its device.
pub use fulmar_kernel::{SoftmaxRow, at_least, top_k};
// For the tree of priorities, which is in main memory, as each step of a draw depends on the one before.
pub use fulmar_kernel::power_each;
// The sizes of a cache of keys, and of weights that are packed in their place.
pub use fulmar_kernel::{fills_panels, key_block_floats};

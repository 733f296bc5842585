//! Public data sets of offline reinforcement learning, from their own formats to dictionaries of steps.
//!
//! The rows are those of TorchRL's data sets: a step is what was seen before the action, `"next"` what came of
//! it. Nothing here opens a connection.
//!
//! | source | file | reader |
//! |---|---|---|
//! | D4RL | one HDF5 file of columns | [`read_d4rl`] |
//! | Minari | `main_data.hdf5` of episodes, `metadata.json` | [`read_minari`], [`MinariMetadata`]; written by [`write_minari`] |

mod d4rl;
mod minari;
mod minari_metadata;
mod minari_writer;
mod pickle;
mod rows;
mod split;

pub use d4rl::{D4rl, D4rlOptions, read_d4rl};
pub use fulmar_core::Result;
pub use minari::{Minari, read_minari};
pub use minari_metadata::MinariMetadata;
pub use minari_writer::{count_episodes, write_minari};
pub use pickle::{Pickle, PickleItem};
pub use split::split_trajectories;

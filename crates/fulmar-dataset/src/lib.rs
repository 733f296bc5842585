//! Public data sets of offline reinforcement learning, from their own formats to dictionaries of steps.
//!
//! The rows are those of TorchRL's data sets: a step is what was seen before the action, `"next"` what came of
//! it. Nothing here opens a connection.
//!
//! | source | file | reader |
//! |---|---|---|
//! | D4RL | one HDF5 file of columns | [`read_d4rl`] |
//! | Gen-DGRL | `.tar.xz` of pickled arrays | [`read_gen_dgrl`], [`convert_gen_dgrl`]; any pickle of plain values and arrays: [`Pickle`] |
//! | Open X-Embodiment | `.tar` files of pickled episodes | [`read_openx`], [`convert_openx`], one at a time: [`OpenXEpisode`] |
//! | Minari | `main_data.hdf5` of episodes, `metadata.json` | [`read_minari`], [`MinariMetadata`]; written by [`write_minari`] |

mod archive;
mod d4rl;
mod gen_dgrl;
mod image;
mod minari;
mod minari_metadata;
mod minari_writer;
mod object_file;
mod openx;
mod pickle;
mod rows;
mod rows_folder;
mod split;
mod step_columns;

pub use d4rl::{D4rl, D4rlOptions, read_d4rl};
pub use fulmar_core::Result;
pub use gen_dgrl::{GenDgrlOptions, convert_gen_dgrl, read_gen_dgrl};
pub use minari::{Minari, read_minari};
pub use minari_metadata::MinariMetadata;
pub use minari_writer::{count_episodes, write_minari};
pub use openx::{OpenXEpisode, convert_openx, read_openx};
pub use pickle::{Pickle, PickleItem};
pub use split::split_trajectories;

//! Public data sets of offline reinforcement learning, from their own formats to dictionaries of steps.
//!
//! The rows are those of TorchRL's data sets: a step is what was seen before the action, `"next"` what came of
//! it. Nothing here opens a connection.
//!
//! | source | file | reader |
//! |---|---|---|
//! | Atari DQN replay | six gzipped `.npy` arrays a split | [`convert_atari_split`], [`AtariStorage`] |
//! | D4RL | one HDF5 file of columns | [`read_d4rl`], [`convert_d4rl`] |
//! | Gen-DGRL | `.tar.xz` of pickled arrays | [`read_gen_dgrl`], [`convert_gen_dgrl`]; any pickle of plain values and arrays: [`Pickle`] |
//! | Open X-Embodiment | `.tar` files of pickled episodes | [`read_openx`], [`convert_openx`], one at a time: [`OpenXEpisode`] |
//! | Minari | `main_data.hdf5` of episodes, `metadata.json` | [`read_minari`], [`convert_minari`], [`MinariMetadata`]; written by [`write_minari`] |
//! | OpenML | ARFF, a table as text | [`read_arff`], [`read_openml`], [`open_openml`] |
//! | V-D4RL | `.npz` or HDF5, of images | [`open_vd4rl`], [`convert_vd4rl`], [`read_vd4rl`]; [`Npz`], [`read_npz`], [`read_npy`], [`read_npy_gz`] |
//! | RoboSet | HDF5 files of trials | [`read_roboset`], [`open_roboset`], [`convert_roboset`] |
//!
//! A conversion writes a folder that TorchRL opens as its own; [`FolderStorage`] has its rows for a replay buffer.
//!
//! Token data sets for RLHF are JSON lines: [`TokenizedDatasetLoader`] makes ids of them, [`Dataloader`] batches, [`PromptData`] and
//! [`PairwiseDataset`] records, and [`RolloutFromModel`] answers with their rewards.

mod archive;
mod arff;
mod arff_line;
mod atari;
mod atari_storage;
mod d4rl;
mod episodes;
mod files;
mod folder_storage;
mod gen_dgrl;
mod image;
mod minari;
mod minari_metadata;
mod minari_writer;
mod npy;
mod npz;
mod object_file;
mod openml;
mod openx;
mod pickle;
mod rlhf;
mod roboset;
mod rows;
mod rows_folder;
mod split;
mod step_columns;
mod vd4rl;

pub use arff::{ARFF_ATTRIBUTES_MAX, ARFF_LINE_BYTES_MAX, ARFF_VALUES_MAX, ArffColumn, read_arff};
pub use atari::convert_atari_split;
pub use atari_storage::{ATARI_SPLITS_MAX, AtariStorage};
pub use d4rl::{D4rl, D4rlOptions, convert_d4rl, read_d4rl};
pub use folder_storage::FolderStorage;
pub use fulmar_core::Result;
pub use gen_dgrl::{GenDgrlOptions, convert_gen_dgrl, read_gen_dgrl};
pub use minari::{Minari, convert_minari, read_minari};
pub use minari_metadata::MinariMetadata;
pub use minari_writer::{count_episodes, write_minari};
pub use npy::{NPY_BYTES_MAX, NPY_HEADER_BYTES_MAX, NpyHeader, read_npy, read_npy_gz};
pub use npz::{NPZ_MEMBERS_MAX, Npz, read_npz};
pub use openml::{OPENML_IDS, OpenmlOptions, open_openml, read_openml};
pub use openx::{OpenXEpisode, convert_openx, read_openx};
pub use pickle::{Pickle, PickleItem};
pub use rlhf::{
    Dataloader, DataloaderOptions, DrawnAnswer, GeneratedRows, LlmData, LlmInput, LlmOutput, PairwiseDataset,
    PromptData, PromptTensorDictTokenizer, RewardData, RolloutDraw, RolloutFromModel, RolloutOptions,
    TEXT_LINE_BYTES_MAX, TensorDictTokenizer, TextMapper, TextRow, TokenizedDatasetLoader,
    TokenizedDatasetOptions, create_infinite_iterator, pre_tokenization_hook, read_text_lines,
};
pub use roboset::{ROBOSET_FILES_MAX, convert_roboset, open_roboset, read_roboset, split_trials};
pub use split::split_trajectories;
pub use vd4rl::{
    LengthPolicy, VD4RL_FILES_MAX, VD4RL_WORKERS_MAX, Vd4rl, Vd4rlOptions, convert_vd4rl, open_vd4rl,
    read_vd4rl,
};

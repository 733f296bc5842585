//! The face of `fulmar-dataset`: files of public data sets.
//!
//! The table of classes and methods is `bindings/faces/dataset.rs`, the same for WebAssembly. The functions that convert
//! files to folders are here alone.

use fulmar::core::integer_from_f64;
use fulmar::dataset::{GenDgrlOptions, OpenmlOptions, Vd4rl, Vd4rlOptions};
use fulmar::replay::SharedStorage;
use fulmar::tensor;
use napi::bindgen_prelude::{AsyncTask, Float64Array, Uint8Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::replay::Storage;
use crate::slot::Slot;
use crate::task::{Work, task};
use crate::tensor::TensorDict;

include!("../../faces/dataset.rs");

/// Converts a D4RL file to a folder of steps.
#[napi]
pub fn convert_columns(source: String, folder: String, options: String) -> AsyncTask<Work<()>> {
    task(move || {
        let options = options_from_json::<D4rlOptions>("options", &options)?;
        dataset::convert_d4rl(source, folder, options).map(drop)
    })
}

/// Converts the folder of a Minari data set to a folder of steps.
#[napi]
pub fn convert_episodes(source: String, folder: String, split: bool) -> AsyncTask<Work<()>> {
    task(move || {
        if split {
            return dataset::Minari::open(source)?.split()?.save(folder);
        }
        dataset::convert_minari(source, folder).map(drop)
    })
}

/// Converts files of Open X-Embodiment to a folder of steps.
#[napi]
pub fn convert_openx(sources: Vec<String>, folder: String) -> AsyncTask<Work<()>> {
    task(move || dataset::convert_openx(&sources, folder).map(drop))
}

face! {
    /// An episode of a file of Open X-Embodiment.
    StreamedEpisode(dataset::OpenXEpisode)
    make {}
    call {
        /// Returns the steps.
        fn steps as steps() -> (TensorDict) { |episode| CoreResult::Ok(episode.steps.clone()) }
        /// Returns the position behind the episode in bytes.
        fn end as end() -> (f64) { |episode| CoreResult::Ok(episode.end as f64) }
    }
}

/// Reads the episode at a position of a file of Open X-Embodiment; null behind the last.
#[napi(ts_return_type = "Promise<StreamedEpisode | null>")]
pub fn read_openx_episode(path: String, start: f64, number: i32) -> AsyncTask<Work<Option<StreamedEpisode>>> {
    task(move || {
        let start = integer_from_f64("start", start)?;
        Ok(dataset::OpenXEpisode::open(path, start, number)?.map(StreamedEpisode::from))
    })
}

/// Converts an archive of Gen-DGRL to a folder of steps.
#[napi]
pub fn convert_gen_dgrl(source: String, folder: String, options: String) -> AsyncTask<Work<()>> {
    task(move || {
        let options = options_from_json::<GenDgrlOptions>("options", &options)?;
        dataset::convert_gen_dgrl(source, folder, options).map(drop)
    })
}

/// Converts an ARFF file of OpenML to a folder of rows.
#[napi]
pub fn convert_table(source: String, folder: String, id: String, options: String) -> AsyncTask<Work<()>> {
    task(move || {
        let options = options_from_json::<OpenmlOptions>("options", &options)?;
        tensor::memmap::save(folder, &dataset::open_openml(&id, source, &options)?)
    })
}

/// Converts a folder of RoboSet's files to a folder of steps.
#[napi]
pub fn convert_trials(source: String, folder: String, split: bool) -> AsyncTask<Work<()>> {
    task(move || {
        if split {
            return tensor::memmap::save(folder, &dataset::split_trials(&dataset::open_roboset(source)?)?);
        }
        dataset::convert_roboset(source, folder).map(drop)
    })
}

/// Converts a folder of V-D4RL's files to a folder of steps, and returns how many files were cut.
#[napi]
pub fn convert_frames(source: String, folder: String, split: bool, options: String) -> AsyncTask<Work<f64>> {
    task(move || {
        let options = options_from_json::<Vd4rlOptions>("options", &options)?;
        if !split {
            return Ok(dataset::convert_vd4rl(source, folder, options)? as f64);
        }
        let Vd4rl { steps, num_cut } = dataset::open_vd4rl(source, options)?.split()?;
        tensor::memmap::save(folder, &steps)?;
        Ok(num_cut as f64)
    })
}

/// Converts the files of a split of Atari DQN replay to a folder of steps, and returns how many there are.
#[napi]
pub fn convert_split(source: String, split: f64, id: String, folder: String) -> AsyncTask<Work<f64>> {
    task(move || {
        let split = integer_from_f64("split", split)? as usize;
        Ok(dataset::convert_atari_split(source, split, &id, folder)? as f64)
    })
}

face! {
    /// The rows of a folder, of which long columns stay in their files.
    RowsFolder(dataset::FolderStorage)
    make {
        /// Opens the folder; columns of more bytes stay in their files.
        fn open as open(folder: String, column_bytes_max: f64) {
            dataset::FolderStorage::open(folder, integer_from_f64("columnBytesMax", column_bytes_max)?)
        }
    }
    call {
        /// Returns the storage of a buffer.
        fn storage as storage() -> (Storage) {
            |rows| CoreResult::Ok(SharedStorage::new(Box::new(rows.clone())))
        }
    }
}

face! {
    /// The steps of Atari DQN replay in the folders of their splits.
    SplitsFolder(dataset::AtariStorage)
    make {
        /// Opens the folder of the splits.
        fn open as open(folder: String) { dataset::AtariStorage::open(folder) }
    }
    call {
        /// Returns the storage of a buffer.
        fn storage as storage() -> (Storage) {
            |splits| CoreResult::Ok(SharedStorage::new(Box::new(splits.clone())))
        }
        /// Returns the number of terminal steps up to each row.
        fn episodes as episodes() -> (Float64Array) {
            |splits| CoreResult::Ok(splits.episodes().iter().map(|count| *count as f64).collect::<Vec<_>>())
        }
        /// Returns the metadata of the splits as JSON.
        fn metadata as metadata() -> (String) {
            |splits| CoreResult::Ok(serde_json::json!(splits.metadata()).to_string())
        }
    }
}

//! The face of `fulmar-dataset`: files of public data sets.
//!
//! The table of classes and methods is `bindings/faces/dataset.rs`, the same for WebAssembly. The functions that convert
//! files to folders are here alone.

use fulmar::dataset::GenDgrlOptions;
use fulmar::tensor;
use napi::bindgen_prelude::{AsyncTask, Uint8Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;
use crate::task::{Work, task};
use crate::tensor::TensorDict;

include!("../../faces/dataset.rs");

/// Converts a D4RL file to a folder of steps.
#[napi]
pub fn convert_columns(source: String, folder: String, options: String) -> AsyncTask<Work<()>> {
    task(move || {
        let options = options_from_json::<D4rlOptions>("options", &options)?;
        dataset::read_d4rl(&Hdf5File::open(source)?, options)?.save(folder)
    })
}

/// Converts the folder of a Minari data set to a folder of steps.
#[napi]
pub fn convert_episodes(source: String, folder: String, split: bool) -> AsyncTask<Work<()>> {
    task(move || {
        let read = dataset::Minari::open(source)?;
        if split { read.split()?.save(folder) } else { read.save(folder) }
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

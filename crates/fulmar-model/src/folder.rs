//! Folders as Hugging Face lays them out: `config.json`, and weights in one safetensors file or in several with a list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fulmar_core::limits::MODEL_JSON_BYTES_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, options_from_json};
use fulmar_tensor::safetensors;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::parameters::{Filling, Layout};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Which file holds which tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Decoder {
    /// The model of a folder: `config.json` with `model.safetensors`, or with `model.safetensors.index.json` and the files that
    /// it lists. Weights of 16 bits are widened. One file is in memory at a time.
    ///
    /// # Errors
    /// `Io` if the system refuses; those of [`DecoderConfig::from_json`] and [`Decoder::from_safetensors`]; `Corrupt` for a list
    /// that names a file outside the folder or that the files do not bear out; `LimitExceeded` for a JSON file of more than
    /// [`MODEL_JSON_BYTES_MAX`]. The sentence names the file.
    pub fn from_folder(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let config = DecoderConfig::from_json(&read_json(&path.join(CONFIG))?)
            .map_err(|error| error.at(path.join(CONFIG).display()))?;
        Self::with_weights(config, |_, layout| weights(path, layout))
    }

    /// Writes `config.json` and `model.safetensors` into `path`, in the weights' dtype, each whole or not at all; the folder is made if it
    /// is not there.
    ///
    /// # Errors
    /// `Io` if the system refuses, naming the file.
    pub fn save_folder(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        fs::create_dir_all(path).map_err(|error| Error::from(error).at(path.display()))?;
        let bytes = self.to_safetensors()?;
        fulmar_tensor::replace_file(path.join(WEIGHTS), |writer| Ok(writer.write_all(&bytes)?))?;
        let text = config_json(self);
        fulmar_tensor::replace_file(path.join(CONFIG), |writer| Ok(writer.write_all(text.as_bytes())?))
    }
}

/// The shape, and the dtype under the name by which transformers of all versions know it.
fn config_json(decoder: &Decoder) -> String {
    let dtype = if decoder.dtype() == Dtype::Bf16 { "bfloat16" } else { "float32" };
    let mut config: Map<String, Value> =
        serde_json::from_str(&decoder.config().to_json()).unwrap_or_default();
    config.insert("torch_dtype".to_owned(), dtype.into());
    format!("{:#}", Value::Object(config))
}

fn weights(folder: &Path, layout: &Layout) -> Result<Vec<f32>> {
    let mut filling = Filling::new(&layout.parameters);
    let index = folder.join(INDEX);
    if index.exists() {
        for (file, names) in listed(&index)? {
            put(&folder.join(file), Some(names), &mut filling)?;
        }
    } else {
        put(&folder.join(WEIGHTS), None, &mut filling)?;
    }
    filling.finish().map_err(|error| error.at(folder.display()))
}

/// The tensors of each file.
fn listed(path: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let place = |error: Error| error.at(path.display());
    let index: Index = options_from_json("index", &read_json(path)?).map_err(place)?;
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, file) in index.weight_map {
        if Path::new(&file).file_name() != Some(file.as_ref()) {
            let detail = format!("{name:?} must lie in a file of the folder: got {file:?}");
            return Err(place(Error::new(ErrorKind::Corrupt, detail)));
        }
        files.entry(file).or_default().insert(name);
    }
    Ok(files)
}

/// Puts the tensors of a file into their places, which must be those that the list says, if there is one.
fn put(path: &Path, names: Option<BTreeSet<String>>, filling: &mut Filling<'_>) -> Result<()> {
    let file = safetensors::load_file(path)?;
    let place = |error: Error| error.at(path.display());
    if let Some(names) = names
        && !names.iter().eq(file.tensors.keys())
    {
        let detail =
            format!("a file must hold the {} tensors that {INDEX} lists for it: got others", names.len());
        return Err(place(Error::new(ErrorKind::Corrupt, detail)));
    }
    file.tensors.iter().try_for_each(|(name, tensor)| filling.put(name, tensor)).map_err(place)
}

fn read_json(path: &Path) -> Result<String> {
    let read = || {
        let size = fs::metadata(path)?.len();
        if size > MODEL_JSON_BYTES_MAX as u64 {
            let detail =
                format!("a JSON file of a model must have at most {MODEL_JSON_BYTES_MAX} bytes: got {size}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(fs::read_to_string(path)?)
    };
    read().map_err(|error| error.at(path.display()))
}

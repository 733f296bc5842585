//! Model folders in Hugging Face's layout: `config.json`, weights in one safetensors file or in several with
//! an index, PEFT's adapter, and files that servers read.

mod manifest;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fulmar_core::limits::{MODEL_JSON_BYTES_MAX, TOKENIZER_FILE_BYTES_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result, options_from_json};
use fulmar_tensor::{FileBatch, make_folder, safetensors};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::lora::{Lora, LoraConfig};
use crate::parameters::{Filling, Layout, check_whole};
use manifest::{Manifest, read_if_there, read_small};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const GENERATION: &str = "generation_config.json";
const ADAPTER_CONFIG: &str = "adapter_config.json";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Other files that a folder may have: generation config, tokenizer, chat template.
const EXTRA_FILES: [&str; 10] = [
    GENERATION,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
];

/// Extra files by name, shared by copies of a decoder.
pub(crate) type ExtraFiles = Arc<BTreeMap<String, Vec<u8>>>;

/// The index of tensors: the file of each.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Decoder {
    /// Loads the model of a folder: `config.json` with `model.safetensors`, or with
    /// `model.safetensors.index.json` and the files that it lists. Weights of 16 bits are widened. One file
    /// is in memory at a time. A PEFT adapter in the same folder is loaded too, as by
    /// [`Decoder::load_adapter`]. Files of a tokenizer and the like are kept for [`Decoder::save_folder`]. If
    /// the folder has the `manifest.json` that [`Decoder::save_folder`] writes, each file is checked against
    /// it.
    ///
    /// # Errors
    /// `Io` if the system refuses; the errors of [`DecoderConfig::from_json`] and
    /// [`Decoder::from_safetensors`]; `Corrupt` for an index that names a file outside the folder or does not
    /// match the files, for a file that differs from the saved one, and for one that is not a regular file;
    /// `LimitExceeded` for a JSON file of more than [`MODEL_JSON_BYTES_MAX`], or a file of a tokenizer of
    /// more than [`TOKENIZER_FILE_BYTES_MAX`]. The message names the file.
    pub fn from_folder(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let manifest = Manifest::read(path)?;
        let check = |name: &str| manifest.as_ref().map_or(Ok(()), |manifest| manifest.check(path, name));
        if let Some(manifest) = &manifest {
            manifest.check_sizes(path)?;
            refuse_unlisted(path, manifest)?;
        }
        check(CONFIG)?;
        let config = DecoderConfig::from_json(&read_json(&path.join(CONFIG))?)
            .map_err(|error| error.at(path.join(CONFIG).display()))?;
        check(WEIGHTS)?;
        check(INDEX)?;
        let mut decoder = Self::with_weights(config, |_, layout| weights(path, layout))?;
        for name in EXTRA_FILES {
            check(name)?;
            if let Some(bytes) = read_if_there(&path.join(name), TOKENIZER_FILE_BYTES_MAX)? {
                decoder.set_extra_file(name, bytes)?;
            }
        }
        check(ADAPTER_CONFIG)?;
        check(ADAPTER_WEIGHTS)?;
        if is_there(&path.join(ADAPTER_CONFIG))? || is_there(&path.join(ADAPTER_WEIGHTS))? {
            decoder.put_adapter(path)?;
        }
        Ok(decoder)
    }

    /// Writes the model into `path`, ready to be served: `config.json`, `model.safetensors` in the weights'
    /// dtype, `generation_config.json` if the ids that end a text are known, the files that
    /// [`Decoder::from_folder`] read, PEFT's files of an adapter, and a `manifest.json` with the checksums of
    /// all. Makes the folder if it is missing. All files are first written under temporary names, so a full
    /// disk leaves the old ones unchanged. A crash in the short moment of the renames leaves a folder that is
    /// refused. Files of an older model in the folder that would change this one are removed; others stay.
    ///
    /// # Errors
    /// `Io`, naming the file, if the system refuses; `NonFinite` for weights that are not finite.
    pub fn save_folder(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        make_folder(path)?;
        let older = Manifest::read(path)?;
        let (mut manifest, mut batch) = (Manifest::default(), FileBatch::default());
        for (name, bytes) in self.folder_files()? {
            manifest.stage(&mut batch, path, name, &bytes)?;
        }
        manifest.stage(&mut batch, path, WEIGHTS, &self.to_safetensors()?)?;
        if self.lora.is_some() {
            manifest.stage(&mut batch, path, ADAPTER_WEIGHTS, &self.lora_to_safetensors()?)?;
        }
        manifest.finish(batch, path)?;
        let listed = older.iter().flat_map(Manifest::names).filter(|name| !EXTRA_FILES.contains(name));
        for name in [INDEX, ADAPTER_CONFIG, ADAPTER_WEIGHTS].into_iter().chain(listed) {
            if !manifest.lists(name) {
                remove(&path.join(name))?;
            }
        }
        Ok(())
    }

    /// Writes the adapter into `path` as PEFT's `adapter_config.json` and `adapter_model.safetensors`, with a
    /// `manifest.json`. Makes the folder if it is missing.
    ///
    /// # Errors
    /// `Empty` without an adapter; `Io` if the system refuses, naming the file.
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig, LoraConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config.clone(), 1)?;
    /// decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0)?;
    /// let folder = std::env::temp_dir().join(format!("fulmar-doc-adapter-{}", std::process::id()));
    /// decoder.save_adapter(&folder)?;
    /// let mut again = Decoder::new(config, 1)?;
    /// again.load_adapter(&folder)?;
    /// assert_eq!(again.lora_to_safetensors()?, decoder.lora_to_safetensors()?);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn save_adapter(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (config, weights) = (self.lora_config_json()?, self.lora_to_safetensors()?);
        make_folder(path)?;
        let (mut manifest, mut batch) = (Manifest::read(path)?.unwrap_or_default(), FileBatch::default());
        manifest.stage(&mut batch, path, ADAPTER_CONFIG, config.as_bytes())?;
        manifest.stage(&mut batch, path, ADAPTER_WEIGHTS, &weights)?;
        manifest.finish(batch, path)
    }

    /// Loads the PEFT adapter in `path` and freezes the other weights.
    ///
    /// # Errors
    /// The errors of [`Decoder::load_lora`]; `Io` if the system refuses; `Corrupt` for a file that differs
    /// from the saved one. The message names the file.
    pub fn load_adapter(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if let Some(manifest) = Manifest::read(path)? {
            manifest.check(path, ADAPTER_CONFIG)?;
            manifest.check(path, ADAPTER_WEIGHTS)?;
        }
        self.put_adapter(path)?;
        self.count_change();
        Ok(())
    }

    fn put_adapter(&mut self, path: &Path) -> Result<()> {
        let place = |error: Error| error.at(path.join(ADAPTER_CONFIG).display());
        let config = LoraConfig::from_json(&read_json(&path.join(ADAPTER_CONFIG))?).map_err(place)?;
        let file = safetensors::load_file(path.join(ADAPTER_WEIGHTS))?;
        let place = |error: Error| error.at(path.join(ADAPTER_WEIGHTS).display());
        self.set_lora(|layout, _| Lora::of_file(config, layout, &file)).map_err(place)
    }

    /// Returns the files of this model's folder except the weights, by name: `config.json` as transformers
    /// and vLLM read it, the list of the tensors in `model.safetensors` (so that servers ignore other
    /// safetensors files), `adapter_config.json` if there is an adapter, `generation_config.json`, and the
    /// files of [`Decoder::set_extra_file`].
    ///
    /// # Errors
    /// Never today; formatting an adapter's config can fail in principle.
    pub fn folder_files(&self) -> Result<BTreeMap<&str, Cow<'_, [u8]>>> {
        let mut files = BTreeMap::from([
            (CONFIG, Cow::from(config_json(self).into_bytes())),
            (INDEX, Cow::from(index_json(self).into_bytes())),
        ]);
        if self.lora.is_some() {
            files.insert(ADAPTER_CONFIG, Cow::from(self.lora_config_json()?.into_bytes()));
        }
        if let Some(text) = generation_json(self.config()) {
            files.insert(GENERATION, Cow::from(text.into_bytes()));
        }
        let extra = self.extra_files.iter().map(|(name, bytes)| (name.as_str(), Cow::from(bytes)));
        files.extend(extra);
        Ok(files)
    }

    /// Returns the bytes of one of the [`Decoder::folder_files`].
    ///
    /// # Errors
    /// `UnknownName` for a file that is not one of them.
    pub fn folder_file(&self, name: &str) -> Result<Vec<u8>> {
        let bytes = self.folder_files()?.remove(name).map(Cow::into_owned);
        bytes.ok_or_else(|| {
            Error::new(
                ErrorKind::UnknownName,
                format!("name must be that of a file of the folder: got {name:?}"),
            )
        })
    }

    /// Keeps a file for [`Decoder::save_folder`]: one of a tokenizer, a chat template, or `generation_config.json`.
    ///
    /// # Errors
    /// `UnknownName` for another file; `LimitExceeded` for more than [`TOKENIZER_FILE_BYTES_MAX`].
    pub fn set_extra_file(&mut self, name: &str, bytes: Vec<u8>) -> Result<()> {
        if !EXTRA_FILES.contains(&name) {
            let detail =
                format!("an extra file of a model must be one of {}: got {name:?}", EXTRA_FILES.join(", "));
            return Err(Error::new(ErrorKind::UnknownName, detail));
        }
        if bytes.len() > TOKENIZER_FILE_BYTES_MAX {
            let detail =
                format!("{name} must have at most {TOKENIZER_FILE_BYTES_MAX} bytes: got {}", bytes.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Arc::make_mut(&mut self.extra_files).insert(name.to_owned(), bytes);
        Ok(())
    }
}

/// Refuses an adapter or an index that was added to a folder after it was saved: it would change the model.
fn refuse_unlisted(folder: &Path, manifest: &Manifest) -> Result<()> {
    for name in [INDEX, ADAPTER_CONFIG, ADAPTER_WEIGHTS] {
        let path = folder.join(name);
        if !manifest.lists(name) && is_there(&path)? {
            let detail =
                format!("this file is not in {}, so it was not saved with the model", manifest::MANIFEST);
            return Err(Error::new(ErrorKind::Corrupt, detail).at(path.display()));
        }
    }
    Ok(())
}

/// Returns whether `path` exists; any error other than its absence is returned.
fn is_there(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| Error::from(error).at(path.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from(error).at(path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the config with all keys of its file, the class of the model, and the dtype under the key that all
/// versions of transformers read.
fn config_json(decoder: &Decoder) -> String {
    let dtype = if decoder.dtype() == Dtype::Bf16 { "bfloat16" } else { "float32" };
    let config = decoder.config();
    let mut fields: Map<String, Value> = serde_json::from_str(&config.to_json()).unwrap_or_default();
    fields.entry("architectures").or_insert_with(|| json!([config.architecture()]));
    fields.insert("torch_dtype".to_owned(), dtype.into());
    format!("{:#}\n", Value::Object(fields))
}

/// Returns the index with the file of each tensor.
fn index_json(decoder: &Decoder) -> String {
    let bytes_each = if decoder.dtype() == Dtype::Bf16 { 2 } else { 4 };
    let map: Map<String, Value> =
        decoder.parameters().iter().map(|parameter| (parameter.name.clone(), WEIGHTS.into())).collect();
    let metadata = json!({ "total_size": bytes_each * decoder.num_parameters() });
    format!("{:#}\n", json!({ "metadata": metadata, "weight_map": map }))
}

/// Returns the ids that end a text, if the config has them.
fn generation_json(config: &DecoderConfig) -> Option<String> {
    let keys = ["bos_token_id", "eos_token_id", "pad_token_id"];
    let known = keys.iter().filter_map(|key| Some((*key, config.others.get(*key)?)));
    let mut fields: Map<String, Value> = known
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect();
    if !fields.contains_key("eos_token_id") {
        return None;
    }
    fields.insert("_from_model_config".to_owned(), true.into());
    Some(format!("{:#}\n", Value::Object(fields)))
}

fn weights(folder: &Path, layout: &Layout) -> Result<Vec<f32>> {
    let mut filling = Filling::new(&layout.parameters);
    let index = folder.join(INDEX);
    if is_there(&index)? {
        for (file, names) in listed(&index)? {
            put(&folder.join(file), Some(names), &mut filling)?;
        }
    } else {
        put(&folder.join(WEIGHTS), None, &mut filling)?;
    }
    filling.finish().map_err(|error| error.at(folder.display()))
}

/// Returns the tensors of each file.
fn listed(path: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let place = |error: Error| error.at(path.display());
    let index: Index = options_from_json("index", &read_json(path)?).map_err(place)?;
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, file) in index.weight_map {
        if Path::new(&file).file_name() != Some(file.as_ref()) {
            let detail = format!("{name:?} must be in a file of the folder: got {file:?}");
            return Err(place(Error::new(ErrorKind::Corrupt, detail)));
        }
        files.entry(file).or_default().insert(name);
    }
    Ok(files)
}

/// Copies the tensors of a file into their places; checks them against the index, if there is one.
fn put(path: &Path, names: Option<BTreeSet<String>>, filling: &mut Filling<'_>) -> Result<()> {
    let file = safetensors::load_file(path)?;
    let place = |error: Error| error.at(path.display());
    check_whole(&file).map_err(place)?;
    if let Some(names) = names
        && !names.iter().eq(file.tensors.keys())
    {
        let detail =
            format!("a file must hold exactly the {} tensors that {INDEX} lists for it", names.len());
        return Err(place(Error::new(ErrorKind::Corrupt, detail)));
    }
    file.tensors.iter().try_for_each(|(name, tensor)| filling.put(name, tensor)).map_err(place)
}

fn read_json(path: &Path) -> Result<String> {
    String::from_utf8(read_small(path, MODEL_JSON_BYTES_MAX)?).map_err(|_| {
        Error::new(ErrorKind::Malformed, "a JSON file of a model must be UTF-8").at(path.display())
    })
}

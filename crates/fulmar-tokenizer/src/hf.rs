//! Tokenizers from any `tokenizer.json` of Hugging Face.
//!
//! A file of the byte-level family uses our own [`ByteBpe`], every other one the crate `tokenizers`; ids,
//! ranges and text are the same. The post-processor's tokens are not added, but returned by
//! [`Tokenizer::surroundings`], as a template has already written them. Padding, truncation and dropout of
//! the file are ignored: lengths are up to the caller.

mod added;
#[cfg(feature = "library")]
mod charsmap;
mod config;
#[cfg(feature = "library")]
mod library;
#[cfg(not(feature = "library"))]
#[path = "hf/absent.rs"]
mod library;
mod surroundings;
mod vocabulary;

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use fulmar_core::{Error, ErrorKind, limits, open_regular};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use added::{Finder, Stretch, finders};
use config::Config;
use library::{Library, Rules, caught};
use surroundings::surroundings_of;
use vocabulary::Vocabulary;

use crate::byte_bpe::normal::Normal;
use crate::byte_bpe::{ByteBpe, alphabet};
use crate::tokenizer::check_text_length;
use crate::{AddedTokens, Encoding, Result, Tokenizer};

/// The texts of a tokenizer's files. Only `tokenizer` is required.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HfFiles {
    /// `tokenizer.json`.
    pub tokenizer: String,
    /// `tokenizer_config.json`: special tokens by name, more added tokens, chat templates.
    pub config: Option<String>,
    /// `special_tokens_map.json`, the older format, used if the configuration lists no added tokens.
    pub special_tokens_map: Option<String>,
    /// Chat templates by name, with precedence over those of the configuration: `chat_template.jinja` is the
    /// one called `default`.
    pub templates: Vec<(String, String)>,
}

/// A tokenizer from Hugging Face's files, of any family: BPE, WordPiece, Unigram, word level.
///
/// [`Tokenizer::encode_added`] returns the ids and ranges of `tokenizers` without adding special tokens.
/// [`Tokenizer::encode`] treats spelled added tokens as text; if the model itself would read a special token,
/// as Unigram does, the text is split so that its parts are read. Bytes or words without a token disappear or
/// become the unknown token, as the file specifies. Ids may have gaps.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{HfTokenizer, Tokenizer};
/// let tokenizer = HfTokenizer::from_json(r#"{
///     "added_tokens": [{"id": 3, "content": "<end>", "special": true}],
///     "pre_tokenizer": {"type": "WhitespaceSplit"},
///     "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "two": 1, "words": 2}, "unk_token": "<unk>"}
/// }"#)?;
/// let encoding = tokenizer.encode_added("two words<end>")?;
/// assert_eq!(encoding.ids, [1, 2, 3]);
/// assert_eq!(encoding.offsets, [[0, 3], [4, 9], [9, 14]]);
/// assert_eq!(tokenizer.encode("<end>")?.ids, [0]);
/// assert_eq!(tokenizer.decode(&[1, 2, 3], true)?, "two words");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct HfTokenizer {
    json: String,
    vocabulary: Vocabulary,
    finders: [Finder; 2],
    /// `true` if the file uses NFC and our own engine.
    is_nfc: bool,
    engine: Engine,
    surroundings: [Vec<u32>; 2],
    config: Config,
}

enum Engine {
    /// The byte-level family, with the bytes of the added tokens.
    Bytes { bpe: Box<ByteBpe>, added: HashMap<u32, Vec<u8>> },
    /// All others, with the names of added tokens for which decoding uses another one.
    Library { library: Box<Library>, written: HashMap<u32, String> },
}

impl HfTokenizer {
    /// Reads only the text of a `tokenizer.json`: special tokens have no names, and there is no chat
    /// template.
    ///
    /// # Errors
    /// `Malformed` if the text is not such a file; `Corrupt` if it is inconsistent; `LimitExceeded` past
    /// [`limits::TOKENIZER_FILE_BYTES_MAX`] bytes, past [`limits::VOCAB_SIZE_MAX`] ids, or if the file could
    /// make text arbitrarily long.
    pub fn from_json(tokenizer: &str) -> Result<Self> {
        Self::from_files(HfFiles { tokenizer: tokenizer.to_owned(), ..HfFiles::default() })
    }

    /// Reads the files of a model's folder: `tokenizer.json`, and if they exist `tokenizer_config.json`,
    /// `special_tokens_map.json`, `chat_template.jinja` and `additional_chat_templates/*.jinja`.
    ///
    /// # Errors
    /// `Io` if `tokenizer.json` does not exist or a file cannot be read; the errors of
    /// [`HfTokenizer::from_json`].
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let read = |name: &str| read_text(&folder.join(name));
        let tokenizer = read("tokenizer.json")?.ok_or_else(|| {
            Error::new(
                ErrorKind::Io,
                format!("{} must be there: got no such file", folder.join("tokenizer.json").display()),
            )
        })?;
        let mut templates = Vec::new();
        for (name, path) in named_templates(&folder.join("additional_chat_templates"))? {
            templates.extend(read_text(&path)?.map(|source| (name, source)));
        }
        templates.extend(read("chat_template.jinja")?.map(|source| ("default".to_owned(), source)));
        Self::from_files(HfFiles {
            tokenizer,
            config: read("tokenizer_config.json")?,
            special_tokens_map: read("special_tokens_map.json")?,
            templates,
        })
    }

    /// Reads the texts of files that are already in memory.
    ///
    /// # Errors
    /// The errors of [`HfTokenizer::from_json`].
    pub fn from_files(files: HfFiles) -> Result<Self> {
        let mut config = Config::read(files.config.as_deref(), files.special_tokens_map.as_deref())?;
        for (name, source) in &files.templates {
            config.set_template(name, source)?;
        }
        let mut file = Value::Object(parse("tokenizer.json", &files.tokenizer)?);
        let vocabulary = Vocabulary::read(&mut file, &config)?;
        let surroundings = surroundings_of(&file["post_processor"], vocabulary.size())?;
        let is_nfc = !file["normalizer"].is_null();
        let bpe = ByteBpe::from_tokenizer_json(&file)?.filter(|bpe| fits(bpe, &file, &vocabulary));
        let (engine, finders) = match bpe {
            Some(bpe) => {
                let finders = finders(vocabulary.added(), |content| Ok(content.to_owned()))?;
                (Engine::bytes(bpe, &vocabulary), finders)
            }
            None => caught(|| Engine::library(&mut file, &vocabulary))?,
        };
        Ok(Self { json: files.tokenizer, vocabulary, finders, is_nfc, engine, surroundings, config })
    }

    /// Returns whether our own engine reads this file; the crate `tokenizers` is about ten times slower.
    #[must_use]
    pub const fn is_byte_level(&self) -> bool {
        matches!(self.engine, Engine::Bytes { .. })
    }

    fn encode_bytes(&self, bpe: &ByteBpe, text: &str, added: AddedTokens, encoding: &mut Encoding) {
        let [raw, normal] = &self.finders;
        if added == AddedTokens::AsText || raw.is_empty() && normal.is_empty() {
            return bpe.encode_into(text, 0, &mut encoding.ids, &mut encoding.offsets);
        }
        for Stretch { id, start, end } in raw.split(text) {
            match id {
                Some(id) => encoding.push(id, start, end),
                None => self.encode_piece(bpe, &text[start..end], start, encoding),
            }
        }
    }

    /// Encodes a piece between two added tokens; its normal form is searched for others.
    fn encode_piece(&self, bpe: &ByteBpe, piece: &str, base: usize, encoding: &mut Encoding) {
        let [_, finder] = &self.finders;
        let normal = if self.is_nfc && !finder.is_empty() { Normal::of(piece) } else { None };
        let (text, base_in_text) = normal.as_ref().map_or((piece, base), |normal| (normal.text.as_str(), 0));
        let first = encoding.ids.len();
        for Stretch { id, start, end } in finder.split(text) {
            let place = base_in_text + start;
            match id {
                Some(id) => encoding.push(id, place, base_in_text + end),
                None => bpe.encode_into(&text[start..end], place, &mut encoding.ids, &mut encoding.offsets),
            }
        }
        if let Some(normal) = normal {
            for range in &mut encoding.offsets[first..] {
                *range = normal.original(*range).map(|place| place + base as u32);
            }
        }
    }

    fn encode_library(&self, library: &Library, text: &str, added: AddedTokens) -> Result<Encoding> {
        let mut encoding = Encoding::default();
        let is_forbidden = |id| added == AddedTokens::AsText && self.vocabulary.is_forbidden(id);
        let finders = (added == AddedTokens::AsIds).then(|| self.finders.each_ref());
        caught(|| library.encode_into(text, Rules { finders, is_forbidden: &is_forbidden }, &mut encoding))?;
        Ok(encoding)
    }
}

impl Tokenizer for HfTokenizer {
    fn vocab_size(&self) -> usize {
        self.vocabulary.size()
    }

    fn encode_into(&self, text: &str, added: AddedTokens, encoding: &mut Encoding) -> Result<()> {
        check_text_length(text.len())?;
        match &self.engine {
            Engine::Bytes { bpe, .. } => self.encode_bytes(bpe, text, added, encoding),
            Engine::Library { library, .. } => {
                let found = self.encode_library(library, text, added)?;
                encoding.ids.extend(found.ids);
                encoding.offsets.extend(found.offsets);
            }
        }
        Ok(())
    }

    /// Decodes as the file's decoder does. Bytes that are not UTF-8 become U+FFFD; ids without a token have
    /// no text.
    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(position) = ids.iter().position(|&id| id as usize >= self.vocab_size()) {
            let (id, size) = (ids[position], self.vocab_size());
            let detail = format!("ids[{position}] must be below the vocabulary size {size}: got {id}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let kept = ids.iter().copied().filter(|&id| !(skip_special && self.is_special(id)));
        match &self.engine {
            Engine::Bytes { bpe, added } => {
                let mut bytes = Vec::with_capacity(4 * ids.len());
                for id in kept {
                    let name = if self.vocabulary.is_added(id) { added.get(&id) } else { None };
                    bytes.extend_from_slice(name.map_or_else(|| bpe.decode_bytes(id), Vec::as_slice));
                }
                Ok(String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
            }
            Engine::Library { library, written } => {
                let name = |id| written.get(&id).map(String::as_str).or_else(|| self.vocabulary.token(id));
                let names: Vec<String> = kept.filter_map(name).map(str::to_owned).collect();
                caught(|| library.decode(names))
            }
        }
    }

    fn id_of(&self, token: &str) -> Option<u32> {
        self.vocabulary.id(token)
    }

    fn token_of(&self, id: u32) -> Option<String> {
        self.vocabulary.token(id).map(str::to_owned)
    }

    fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// Returns the text of `tokenizer.json`, without names of special tokens and chat templates.
    fn to_json(&self) -> String {
        self.json.clone()
    }

    fn surroundings(&self) -> [&[u32]; 2] {
        self.surroundings.each_ref().map(Vec::as_slice)
    }

    fn special_tokens(&self) -> &Map<String, Value> {
        &self.config.special_tokens
    }

    fn named_template(&self, name: &str) -> Option<&str> {
        self.config.template(name)
    }
}

impl Engine {
    fn bytes(bpe: ByteBpe, vocabulary: &Vocabulary) -> Self {
        let bytes_of =
            |content: &str| alphabet::bytes_of(content).unwrap_or_else(|| content.as_bytes().to_vec());
        let added = vocabulary.added().iter().map(|token| (token.id, bytes_of(&token.content))).collect();
        Self::Bytes { bpe: Box::new(bpe), added }
    }

    fn library(file: &mut Value, vocabulary: &Vocabulary) -> Result<(Self, [Finder; 2])> {
        let library = Box::new(Library::new(file)?);
        let finders = finders(vocabulary.added(), |content| library.normalized(content))?;
        let mut written = HashMap::new();
        for token in vocabulary.added().iter().filter(|token| token.normalized) {
            written.insert(token.id, library.normalized(&token.content)?);
        }
        Ok((Self::Library { library, written }, finders))
    }
}

/// Returns whether the added tokens need no feature of the crate: stripped spaces, normalised names, offsets
/// without spaces in a normalised text, or special tokens that the model itself would read in a text.
fn fits(bpe: &ByteBpe, file: &Value, vocabulary: &Vocabulary) -> bool {
    let is_plain = file["normalizer"].is_null();
    let processor = &file["post_processor"];
    let is_untrimmed = processor.is_null()
        || ["TemplateProcessing", "BertProcessing"].iter().any(|&kind| processor["type"] == kind)
        || processor["type"] == "ByteLevel" && processor["trim_offsets"] == false;
    let (mut ids, mut offsets) = (Vec::new(), Vec::new());
    vocabulary.added().iter().all(|token| {
        ids.clear();
        bpe.encode_into(&token.content, 0, &mut ids, &mut offsets);
        let is_read = ids.iter().any(|&id| vocabulary.is_forbidden(id));
        let takes_spaces = token.lstrip || token.rstrip || token.content.trim() != token.content;
        let is_as_written =
            is_plain || !token.normalized || is_untrimmed && Normal::of(&token.content).is_none();
        is_as_written && !takes_spaces && !is_read
    })
}

/// Parses the object in `text`; errors call the file `name`.
fn parse(name: &str, text: &str) -> Result<Map<String, Value>> {
    check_file_size(name, text.len() as u64)?;
    // serde_json itself refuses more than 128 levels.
    serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::Malformed, format!("{name} must hold a JSON object: got {error}"))
            .because(error)
    })
}

fn check_file_size(name: &str, num_bytes: u64) -> Result<()> {
    let max = limits::TOKENIZER_FILE_BYTES_MAX;
    if num_bytes > max as u64 {
        let detail = format!("{name} must be at most {max} bytes: got {num_bytes}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

/// Parses `value` as `T`; errors call it `name`.
fn json_of<T: DeserializeOwned>(name: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| {
        Error::new(ErrorKind::Malformed, format!("{name} must be of the documented form: got {error}"))
            .because(error)
    })
}

/// Takes `file[key]`; null if it is missing.
fn part(file: &mut Value, key: &str) -> Value {
    file.get_mut(key).map(Value::take).unwrap_or_default()
}

fn read_text(path: &Path) -> Result<Option<String>> {
    let shown = path.display().to_string();
    if !path.try_exists().map_err(|error| Error::from(error).at(&shown))? {
        return Ok(None);
    }
    let (file, num_bytes) = open_regular(path)?;
    check_file_size(&shown, num_bytes)?;
    // A file that grows while it is read is cut at the checked length.
    let text = std::io::read_to_string(file.take(num_bytes));
    text.map(Some).map_err(|error| Error::from(error).at(shown))
}

/// Returns the `*.jinja` files of `folder` by name, sorted.
fn named_templates(folder: &Path) -> Result<Vec<(String, std::path::PathBuf)>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let Some(name) = path.file_stem().and_then(std::ffi::OsStr::to_str)
        {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

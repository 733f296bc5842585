//! `manifest.json`: the files of a folder with their sizes and checksums, so that a damaged, missing or
//! foreign file is reported by name.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use fulmar_core::limits::MODEL_JSON_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result, open_regular, options_from_json};
use fulmar_tensor::FileBatch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the manifest in a folder.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The `format` of a manifest.
const FORMAT: &str = "fulmar manifest";

/// Bytes that a check reads at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The files of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    #[serde(rename = "version")]
    form: u32,
    files: BTreeMap<String, Entry>,
}

/// Size and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    bytes: u64,
    /// Eight hexadecimal digits.
    crc32: String,
}

impl Default for Manifest {
    fn default() -> Self {
        Self { format: FORMAT.to_owned(), form: 1, files: BTreeMap::new() }
    }
}

impl Manifest {
    /// Returns the manifest of a folder; `None` if it has none, or one of another program.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        let Some(bytes) = read_if_there(&path, MODEL_JSON_BYTES_MAX)? else { return Ok(None) };
        let place = |error: Error| error.at(path.display());
        let text = String::from_utf8(bytes).map_err(|_| place(corrupt("must be UTF-8".to_owned())))?;
        let value: Value = options_from_json("manifest", &text).map_err(place)?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Ok(None);
        }
        options_from_json("manifest", &text).map(Some).map_err(place)
    }

    /// Returns whether the manifest lists a file of this name.
    pub(crate) fn lists(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Returns the names of its files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Stages a file of `folder` and lists it.
    pub(crate) fn stage(
        &mut self,
        batch: &mut FileBatch,
        folder: &Path,
        name: &str,
        bytes: &[u8],
    ) -> Result<()> {
        batch.stage(folder.join(name), |writer| Ok(writer.write_all(bytes)?))?;
        let entry = Entry { bytes: bytes.len() as u64, crc32: digits(crc32fast::hash(bytes)) };
        self.files.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Stages the manifest itself, which [`FileBatch::commit`] renames before the others: an interrupted
    /// batch leaves a folder that is refused, not a mixture of old and new files.
    pub(crate) fn finish(&self, mut batch: FileBatch, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        batch.stage(folder.join(MANIFEST), |writer| Ok(writeln!(writer, "{text}")?))?;
        batch.commit()
    }

    /// Refuses a folder in which a listed file is missing or has another size.
    pub(crate) fn check_sizes(&self, folder: &Path) -> Result<()> {
        for (name, entry) in &self.files {
            let path = folder.join(name);
            let metadata = match std::fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(
                        corrupt(format!("{MANIFEST} lists this file, and it is missing")).at(path.display())
                    );
                }
                result => result.map_err(|error| Error::from(error).at(path.display()))?,
            };
            if metadata.is_file() && metadata.len() != entry.bytes {
                let detail = format!(
                    "must have the {} bytes that {MANIFEST} lists: got {}",
                    entry.bytes,
                    metadata.len()
                );
                return Err(corrupt(detail).at(path.display()));
            }
        }
        Ok(())
    }

    /// Refuses the file called `name` if it differs from the saved one. A file that is not listed passes.
    pub(crate) fn check(&self, folder: &Path, name: &str) -> Result<()> {
        let Some(entry) = self.files.get(name) else { return Ok(()) };
        let path = folder.join(name);
        let (mut file, _) = open_regular(&path)?;
        let (mut sum, mut chunk) = (crc32fast::Hasher::new(), vec![0; CHUNK_BYTES]);
        loop {
            let count = file.read(&mut chunk).map_err(|error| Error::from(error).at(path.display()))?;
            if count == 0 {
                break;
            }
            sum.update(&chunk[..count]);
        }
        let sum = digits(sum.finalize());
        if sum == entry.crc32 {
            return Ok(());
        }
        let detail = format!(
            "must have the checksum that {MANIFEST} lists ({}): got {sum}, so it was damaged or changed; remove {MANIFEST} to load it as it is",
            entry.crc32
        );
        Err(corrupt(detail).at(path.display()))
    }
}

/// Returns the bytes of a file of at most `bytes_max`; `None` if it does not exist.
pub(crate) fn read_if_there(path: &Path, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read_small(path, bytes_max).map(Some),
    }
}

/// Returns the bytes of a file of at most `bytes_max`.
pub(crate) fn read_small(path: &Path, bytes_max: usize) -> Result<Vec<u8>> {
    let (file, size) = open_regular(path)?;
    if size > bytes_max as u64 {
        let detail = format!("this file of a model must have at most {bytes_max} bytes: got {size}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail).at(path.display()));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    // Limits a file that grows while it is read.
    file.take(bytes_max as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::from(error).at(path.display()))?;
    Ok(bytes)
}

fn digits(sum: u32) -> String {
    format!("{sum:08x}")
}

fn corrupt(detail: String) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}

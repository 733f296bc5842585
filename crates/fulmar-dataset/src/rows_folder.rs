//! A folder of memory-mapped leaves that is written a part of the rows at a time, for data sets that do not fit in memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, TensorDict, memmap};
use serde_json::Value;

use crate::episodes::check_alike;
use crate::rows::{slice, texts};

/// Rows on their way to a folder, which is one of TorchRL once it is finished: the descriptions are written last.
pub(crate) struct RowsFolder {
    path: PathBuf,
    /// The first row, which the others are like.
    row: Option<TensorDict>,
    files: Vec<(Key, BufWriter<File>)>,
    texts: Vec<(Key, Vec<Value>)>,
    num_rows: usize,
}

impl RowsFolder {
    /// Makes the folder, which must not be there, and fills it by `body`. Returns the number of rows. After an error there is no
    /// folder.
    ///
    /// # Errors
    /// `Io` if the system refuses; `Empty` without rows; those of `body`.
    pub fn fill(path: &Path, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<usize> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(|error| at(error, path))?;
        fs::create_dir(path).map_err(|error| at(error, path))?;
        let mut folder =
            Self { path: path.to_owned(), row: None, files: Vec::new(), texts: Vec::new(), num_rows: 0 };
        let filled = body(&mut folder).and_then(|()| folder.finish());
        if filled.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(path);
        }
        filled
    }

    /// Returns the folder, for files of other names than the rows have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of rows.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Writes rows behind those that are there; of no rows the keys and the rows' form are checked alone.
    ///
    /// # Errors
    /// With the key, `UnknownName` or `ShapeMismatch` for rows that are not like the first; `Io`.
    pub fn append(&mut self, rows: &TensorDict) -> Result<()> {
        match &self.row {
            Some(row) => check_alike(row, rows)?,
            None if rows.batch_size() == [0] => return Ok(()),
            None => self.open(rows)?,
        }
        for (key, file) in &mut self.files {
            rows.tensor(key.clone())?.write_bytes(file)?;
        }
        for (key, all) in &mut self.texts {
            all.extend(texts(rows.entry(key.clone())?));
        }
        self.num_rows += rows.batch_size()[0];
        Ok(())
    }

    fn open(&mut self, rows: &TensorDict) -> Result<()> {
        let Entry::Dict(row) = slice(&rows.clone().into(), 0..1)? else { return Ok(()) };
        for key in row.leaf_keys() {
            if let Entry::NonTensor(_) = row.entry(key.clone())? {
                self.texts.push((key, Vec::new()));
                continue;
            }
            let path = self.path.join(memmap::leaf_path(&key));
            fs::create_dir_all(path.parent().unwrap_or(&self.path)).map_err(|error| at(error, &path))?;
            let file = File::create_new(&path).map_err(|error| at(error, &path))?;
            self.files.push((key, BufWriter::new(file)));
        }
        self.row = Some(row);
        Ok(())
    }

    fn finish(self) -> Result<usize> {
        let Some(row) = self.row else {
            return Err(Error::new(ErrorKind::Empty, "a data set must have rows: it has none"));
        };
        for (key, file) in self.files {
            let path = self.path.join(memmap::leaf_path(&key));
            let file = file.into_inner().map_err(|error| at(error.into_error(), &path))?;
            let is_empty = file.metadata().and_then(|about| file.sync_all().map(|()| about.len() == 0));
            if is_empty.map_err(|error| at(error, &path))? {
                // An empty file cannot be mapped.
                fs::remove_file(&path).map_err(|error| at(error, &path))?;
            }
        }
        let mut texts: Vec<_> = self.texts.into_iter().map(|(key, all)| (texts_path(&key), all)).collect();
        for (name, description) in memmap::outline(&row, &[self.num_rows])? {
            let at_name = texts.iter().position(|(path, _)| *path == name);
            let description = match at_name {
                Some(found) => with_texts(&description, texts.swap_remove(found).1),
                None => description,
            };
            write_file(&self.path.join(name), &description)?;
        }
        Ok(self.num_rows)
    }
}

/// Returns the path of the description of the texts at `key`.
fn texts_path(key: &Key) -> String {
    let leaf = memmap::leaf_path(key);
    format!("{}/meta.json", leaf.strip_suffix(".memmap").unwrap_or(&leaf))
}

fn with_texts(description: &str, all: Vec<Value>) -> String {
    // It was just written, so it is an object of JSON.
    let mut meta: Value = serde_json::from_str(description).unwrap_or_default();
    meta["data"] = Value::Array(all);
    meta.to_string()
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = File::create_new(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| at(error, path))
}

fn at(error: std::io::Error, path: &Path) -> Error {
    Error::from(error).at(path.display())
}

//! A folder of memory-mapped leaves that is written a part of the rows or a column at a time, for data sets that do not fit in memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict, memmap};
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
        in_new_folder(path, || {
            let mut folder =
                Self { path: path.to_owned(), row: None, files: Vec::new(), texts: Vec::new(), num_rows: 0 };
            body(&mut folder)?;
            folder.finish()
        })
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
            let file = create(&self.path.join(memmap::leaf_path(&key)))?;
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
        describe(&self.path, &row, self.num_rows, self.texts)?;
        Ok(self.num_rows)
    }
}

/// Whole columns on their way to a folder as [`RowsFolder`] makes it, from several threads. A file is synced while the next ones are read and
/// written.
pub(crate) struct ColumnsFolder<'a> {
    path: &'a Path,
    written: Sender<(PathBuf, File)>,
}

impl<'a> ColumnsFolder<'a> {
    /// Makes the folder, which must not be there, of `num_rows` rows; `body` puts the columns of `keys` and returns what
    /// [`ColumnsFolder::put`] returned. After an error there is no folder.
    ///
    /// # Errors
    /// `Io` if the system refuses; `Malformed` for a key that the format cannot hold; those of `body`.
    pub fn fill(
        path: &'a Path,
        num_rows: usize,
        keys: &[Key],
        body: impl FnOnce(&Self) -> Result<Vec<(Key, Entry)>>,
    ) -> Result<()> {
        in_new_folder(path, || {
            check_keys(keys)?;
            let (written, files) = mpsc::channel();
            let columns = Self { path, written };
            let leaves = thread::scope(|scope| {
                let syncing = thread::Builder::new().spawn_scoped(scope, || sync_all(files))?;
                let leaves = body(&columns);
                drop(columns);
                let synced = syncing.join().unwrap_or_else(|panic| resume_unwind(panic));
                leaves.and_then(|leaves| synced.map(|()| leaves))
            })?;
            let (mut row, mut all) = (TensorDict::new(&[1])?, Vec::new());
            for (key, leaf) in leaves {
                row.set(key.clone(), slice(&leaf, 0..1)?)?;
                if let Entry::NonTensor(_) = leaf {
                    all.push((key, texts(&leaf)));
                }
            }
            describe(path, &row, num_rows, all)
        })
    }

    /// Returns the folder, for files of other names than the columns have.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// Writes all rows of a column. Returns its first row, or all of its texts.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    pub fn put(&self, key: &Key, column: Entry) -> Result<Entry> {
        let Entry::Tensor(tensor) = &column else { return Ok(column) };
        if tensor.num_elements() > 0 {
            let path = self.path.join(memmap::leaf_path(key));
            let mut file = create(&path)?;
            tensor.write_bytes(&mut file).map_err(|error| error.at(path.display()))?;
            // A file that cannot be synced ends the thread that would receive this one, and is reported in the end.
            let _ = self.written.send((path, file));
        }
        Ok(tensor.slice(0, 0..1)?.copied().into())
    }
}

fn sync_all(files: Receiver<(PathBuf, File)>) -> Result<()> {
    files.into_iter().try_for_each(|(path, file)| file.sync_all().map_err(|error| at(error, &path)))
}

/// Refuses keys that the format cannot hold, before their rows are read.
fn check_keys(keys: &[Key]) -> Result<()> {
    let mut row = TensorDict::new(&[1])?;
    for key in keys {
        row.set(key.clone(), Tensor::zeros(Dtype::Bool, &[1])?)?;
    }
    memmap::outline(&row, &[1]).map(drop)
}

/// Makes a folder that must not be there, and fills it by `body`. After an error there is no folder.
fn in_new_folder<T>(path: &Path, body: impl FnOnce() -> Result<T>) -> Result<T> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(|error| at(error, path))?;
    fs::create_dir(path).map_err(|error| at(error, path))?;
    let filled = body();
    if filled.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(path);
    }
    filled
}

/// Writes the descriptions of `num_rows` rows like `row`, and the texts of their columns.
fn describe(path: &Path, row: &TensorDict, num_rows: usize, texts: Vec<(Key, Vec<Value>)>) -> Result<()> {
    let mut texts: Vec<_> = texts.into_iter().map(|(key, all)| (texts_path(&key), all)).collect();
    for (name, description) in memmap::outline(row, &[num_rows])? {
        let at_name = texts.iter().position(|(path, _)| *path == name);
        let description = match at_name {
            Some(found) => with_texts(&description, texts.swap_remove(found).1),
            None => description,
        };
        memmap::check_length(&name, description.len())?;
        let path = path.join(name);
        let mut file = create(&path)?;
        let written = file.write_all(description.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| at(error, &path))?;
    }
    memmap::sync_folders(path)
}

/// Creates a file and the folders that it is in.
fn create(path: &Path) -> Result<File> {
    let create = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        File::create_new(path)
    };
    create().map_err(|error| at(error, path))
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

fn at(error: std::io::Error, path: &Path) -> Error {
    Error::from(error).at(path.display())
}

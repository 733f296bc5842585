//! HDF5 files that are read by groups and data sets.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulmar_core::limits::{HDF5_EXPANSION_MAX, HDF5_OBJECTS_MAX, HDF5_SET_BYTES_MAX, TENSOR_DICT_DEPTH_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements, open_regular};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use hdf5_pure::{Dataset, DatatypeByteOrder, File, FormatError, Group, VlenStringReadOptions};
use serde_json::Value;

#[cfg(not(target_family = "wasm"))]
use super::chunks::{self, Source};
use super::datatype::{Elements, elements_of};
use super::{corrupt, named};

/// An open HDF5 file. A data set is read when it is asked for, so the file may be longer than the memory; threads may share the file.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_ted::{Hdf5File, write_hdf5};
/// let mut dict = TensorDict::new(&[])?;
/// dict.set(["infos", "qpos"], Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
/// let file = Hdf5File::from_bytes(write_hdf5(&dict)?)?;
/// let infos = file.root()?.group("infos")?;
/// assert_eq!(infos.data_sets(), ["qpos"]);
/// assert_eq!(infos.shape("qpos")?, [2]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct Hdf5File {
    file: File,
    /// The same file, for reads by several threads; none of bytes in memory.
    #[cfg(not(target_family = "wasm"))]
    opened: Option<std::fs::File>,
    name: Option<String>,
    left: Mutex<Budget>,
}

impl Hdf5File {
    /// Opens the file at `path` and reads its data sets from there.
    ///
    /// # Errors
    /// `Io` if the system refuses; `Corrupt` if it is not an HDF5 file, or shorter than its header states.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let opened = open_regular(path).and_then(|(mut opened, size_bytes)| {
            let mut begin = Vec::new();
            opened.by_ref().take(BEGIN_BYTES).read_to_end(&mut begin)?;
            check_begins(&begin, size_bytes)?;
            let file = Self::around(size_bytes, || File::open_streaming(path))?;
            #[cfg(not(target_family = "wasm"))]
            let file = Self { opened: Some(opened), ..file };
            Ok(file)
        });
        let name = path.display().to_string();
        opened.map(|file| file.with_name(&name)).map_err(|error| error.at(name))
    }

    /// Opens a file that is in memory.
    ///
    /// # Errors
    /// `Corrupt` as [`Hdf5File::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let size_bytes = bytes.len() as u64;
        check_begins(&bytes, size_bytes)?;
        Self::around(size_bytes, || File::from_bytes(bytes))
    }

    fn around(
        size_bytes: u64,
        open: impl FnOnce() -> std::result::Result<File, hdf5_pure::Error>,
    ) -> Result<Self> {
        let file = guarded(open)?;
        Ok(Self {
            file,
            #[cfg(not(target_family = "wasm"))]
            opened: None,
            name: None,
            left: Mutex::new(Budget::of(size_bytes, HDF5_OBJECTS_MAX)),
        })
    }

    /// Names the file, for [`Hdf5File::locate`].
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Returns `error` with the name of the file, if it has one, before its sentence.
    #[must_use]
    pub fn locate(&self, error: Error) -> Error {
        match &self.name {
            Some(name) => error.at(name),
            None => error,
        }
    }

    /// Returns the group at the root of the file.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be read.
    pub fn root(&self) -> Result<Hdf5Group<'_>> {
        let group = guarded(|| Ok(self.file.root()))?;
        Hdf5Group::of(group, 0, self)
    }

    #[cfg(not(target_family = "wasm"))]
    fn source(&self) -> Source<'_> {
        self.opened.as_ref().map_or_else(|| Source::Memory(self.file.as_bytes()), Source::File)
    }

    /// Locks the budget. A thread that panicked meanwhile leaves whole numbers.
    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn limited(self, num_objects: usize) -> Self {
        let left = Mutex::new(Budget::of(self.file.file_size(), num_objects));
        Self { left, ..self }
    }
}

/// A group of an [`Hdf5File`].
pub struct Hdf5Group<'a> {
    group: Group,
    data_sets: Vec<String>,
    groups: Vec<String>,
    depth: usize,
    file: &'a Hdf5File,
}

impl<'a> Hdf5Group<'a> {
    fn of(group: Group, depth: usize, file: &'a Hdf5File) -> Result<Self> {
        if depth >= TENSOR_DICT_DEPTH_MAX {
            let detail = format!("groups must be nested less than {TENSOR_DICT_DEPTH_MAX} deep: got {depth}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let (data_sets, groups) = guarded(|| Ok((group.datasets()?, group.groups()?)))?;
        file.budget().take_objects(data_sets.len() + groups.len())?;
        Ok(Self { group, data_sets, groups, depth, file })
    }

    /// Returns the names of the data sets, as the file orders them.
    #[must_use]
    pub fn data_sets(&self) -> &[String] {
        &self.data_sets
    }

    /// Returns the names of the groups, as the file orders them.
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Returns the group `name`.
    ///
    /// # Errors
    /// With the name, `UnknownName` if the group lacks it; `Corrupt` if it cannot be read; `LimitExceeded` if groups are nested
    /// deeper than [`TENSOR_DICT_DEPTH_MAX`], or past [`HDF5_OBJECTS_MAX`] groups and data sets in all.
    pub fn group(&self, name: &str) -> Result<Hdf5Group<'a>> {
        if !self.groups.iter().any(|known| known == name) {
            return Err(named(self.missing("a group", name), name));
        }
        let read = guarded(|| self.group.group(name));
        read.and_then(|group| Hdf5Group::of(group, self.depth + 1, self.file))
            .map_err(|error| named(error, name))
    }

    /// Returns the shape of the data set `name`, from its header alone.
    ///
    /// # Errors
    /// With the name, `UnknownName` if the group lacks it; `Corrupt` if its header cannot be read; `LimitExceeded` past
    /// [`HDF5_SET_BYTES_MAX`] bytes.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>> {
        self.data_set(name).and_then(|data| shape_of(&data)).map_err(|error| named(error, name))
    }

    /// Reads the data set `name`: a tensor of numbers or bools, or a [`NonTensor`] of a text or nested arrays of texts.
    ///
    /// # Errors
    /// With the name, `UnknownName` if the group lacks it; `Incompatible` for other elements, filters or layouts;
    /// `Corrupt` if its bytes are damaged, or all data sets that are not compressed would be longer than the file;
    /// `LimitExceeded` past [`HDF5_SET_BYTES_MAX`] bytes, or [`HDF5_EXPANSION_MAX`] bytes for each byte of the file.
    pub fn read(&self, name: &str) -> Result<Entry> {
        self.data_set(name).and_then(|data| self.entry(&data)).map_err(|error| named(error, name))
    }

    /// Reads all data sets, and those of all groups below, as a dictionary without batch dimensions.
    ///
    /// # Errors
    /// The errors of [`Hdf5Group::read`] and [`Hdf5Group::group`].
    pub fn to_dict(&self) -> Result<TensorDict> {
        let mut dict = TensorDict::new(&[])?;
        for name in &self.data_sets {
            dict.set(name.as_str(), self.read(name)?)?;
        }
        for name in &self.groups {
            let inner = self.group(name)?.to_dict().map_err(|error| named(error, name))?;
            dict.set(name.as_str(), inner)?;
        }
        Ok(dict)
    }

    fn data_set(&self, name: &str) -> Result<Dataset> {
        if !self.data_sets.iter().any(|known| known == name) {
            return Err(self.missing("a data set", name));
        }
        guarded(|| self.group.dataset(name))
    }

    fn missing(&self, kind: &str, name: &str) -> Error {
        let rule = if self.groups.iter().chain(&self.data_sets).any(|known| known == name) {
            format!("must be {kind}: it is not")
        } else {
            format!("must be {kind} of the file: there is no such name")
        };
        Error::new(ErrorKind::UnknownName, rule)
    }

    fn entry(&self, data: &Dataset) -> Result<Entry> {
        let shape = shape_of(data)?;
        match elements_of(&guarded(|| data.datatype())?)? {
            Elements::Numbers(dtype, order) => Ok(self.tensor(data, dtype, order, &shape)?.into()),
            Elements::Text => Ok(self.texts(data, &shape)?.into()),
        }
    }

    fn tensor(
        &self,
        data: &Dataset,
        dtype: Dtype,
        order: DatatypeByteOrder,
        shape: &[usize],
    ) -> Result<Tensor> {
        let size_bytes = num_elements(shape)?.saturating_mul(dtype.size_bytes());
        if size_bytes == 0 {
            return Tensor::zeros(dtype, shape);
        }
        self.file.budget().take_bytes(size_bytes as u64, shape, data.is_chunked())?;
        #[cfg(not(target_family = "wasm"))]
        if order == DatatypeByteOrder::LittleEndian
            && let Some(tensor) = self.inflated(data, dtype, shape)?
        {
            return Ok(tensor);
        }
        let mut bytes = guarded(|| data.read_raw())?;
        match order {
            DatatypeByteOrder::LittleEndian => {}
            DatatypeByteOrder::BigEndian => {
                bytes.chunks_exact_mut(dtype.size_bytes()).for_each(<[u8]>::reverse);
            }
            DatatypeByteOrder::Vax => {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    "elements must not be in the byte order of a VAX",
                ));
            }
        }
        Tensor::from_bytes(dtype, shape, &bytes)
    }

    /// Reads a data set of deflated chunks by all threads; `None` if it is not one, or damaged.
    #[cfg(not(target_family = "wasm"))]
    fn inflated(&self, data: &Dataset, dtype: Dtype, shape: &[usize]) -> Result<Option<Tensor>> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        let fill = |out: &mut [u8]| {
            let filled = || chunks::fill(data, shape, dtype.size_bytes(), self.file.source(), out);
            catch_unwind(AssertUnwindSafe(filled)).ok().flatten()
        };
        let filled = match dtype {
            Dtype::F64 => fill(bytemuck::cast_slice_mut(tensor.as_mut_slice::<f64>()?)),
            Dtype::F32 => fill(bytemuck::cast_slice_mut(tensor.as_mut_slice::<f32>()?)),
            Dtype::I64 => fill(bytemuck::cast_slice_mut(tensor.as_mut_slice::<i64>()?)),
            Dtype::I32 => fill(bytemuck::cast_slice_mut(tensor.as_mut_slice::<i32>()?)),
            Dtype::U8 => fill(tensor.as_mut_slice::<u8>()?),
            _ => {
                let mut bytes = Tensor::zeros(Dtype::U8, &[tensor.size_bytes()])?;
                let filled = fill(bytes.as_mut_slice::<u8>()?);
                if filled.is_some() {
                    tensor = Tensor::from_bytes(dtype, shape, bytes.as_slice::<u8>()?)?;
                }
                filled
            }
        };
        Ok(filled.map(|()| tensor))
    }

    fn texts(&self, data: &Dataset, shape: &[usize]) -> Result<NonTensor> {
        let len = num_elements(shape)?;
        let width = usize::try_from(guarded(|| data.element_size())?).unwrap_or(usize::MAX);
        self.file.budget().take_bytes(len.saturating_mul(width) as u64, shape, data.is_chunked())?;
        let payload = usize::try_from(self.file.budget().stored).unwrap_or(usize::MAX);
        let limits = VlenStringReadOptions::new().with_max_elements(len).with_max_payload_bytes(payload);
        let is_vlen = matches!(guarded(|| data.datatype())?, hdf5_pure::Datatype::VariableLength { .. });
        let texts = guarded(|| if is_vlen { data.read_vlen_strings(limits) } else { data.read_string() })?;
        let values = texts.into_iter().map(Value::String);
        match shape {
            [] => Ok(NonTensor::shared(values.into_iter().next().unwrap_or(Value::Null))),
            shape => Ok(NonTensor::shared(NonTensor::each(shape, values.collect())?.to_json())),
        }
    }
}

/// The bytes and objects that a file may still use.
struct Budget {
    stored: u64,
    inflated: u64,
    objects: usize,
}

impl Budget {
    fn of(size_bytes: u64, objects: usize) -> Self {
        Self { stored: size_bytes, inflated: size_bytes.saturating_mul(HDF5_EXPANSION_MAX), objects }
    }

    fn take_objects(&mut self, num_objects: usize) -> Result<()> {
        self.objects = self.objects.checked_sub(num_objects).ok_or_else(|| {
            let detail = format!(
                "a file must have at most {HDF5_OBJECTS_MAX} groups and data sets, each counted as often as it is reached"
            );
            Error::new(ErrorKind::LimitExceeded, detail)
        })?;
        Ok(())
    }

    fn take_bytes(&mut self, size_bytes: u64, shape: &[usize], is_chunked: bool) -> Result<()> {
        // No two data sets share bytes, so a small file cannot ask for much memory.
        if is_chunked {
            self.inflated = self.inflated.checked_sub(size_bytes).ok_or_else(|| {
                let detail = format!(
                    "compressed data sets must be together at most {HDF5_EXPANSION_MAX} times as long as the file: \
                     got one of shape {shape:?} beyond that"
                );
                Error::new(ErrorKind::LimitExceeded, detail)
            })?;
        } else {
            self.stored = self.stored.checked_sub(size_bytes).ok_or_else(|| {
                let detail = format!(
                    "data sets must be no longer together than the file: got one of shape {shape:?} beyond that"
                );
                Error::new(ErrorKind::Corrupt, detail)
            })?;
        }
        Ok(())
    }
}

/// The crate adds addresses of a damaged file without checks and may panic. All state that it changes is dropped
/// then.
fn guarded<T>(read: impl FnOnce() -> std::result::Result<T, hdf5_pure::Error>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(hdf5_pure::Error::Format(FormatError::InvalidLayoutVersion(NEW_LAYOUT)))) => {
            let detail = format!("the version of the data layout must be at most 4: got {NEW_LAYOUT}");
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
        Ok(Err(error)) => Err(corrupt(&error).because(error)),
        Err(_) => Err(corrupt(&"an address beyond the file")),
    }
}

/// The layout that HDF5 2 writes in its newest format.
const NEW_LAYOUT: u8 = 5;

const BEGIN_BYTES: u64 = 128;

/// Checks that the file begins with its superblock, states so, and has addresses of 8 bytes, as all common
/// writers do: the crate adds addresses unchecked.
fn check_begins(bytes: &[u8], size_bytes: u64) -> Result<()> {
    let (address_at, base_at, end_at) = match bytes.get(8) {
        Some(0) => (13, 24..32, 40..48),
        Some(1) => (13, 28..36, 44..52),
        Some(2 | 3) => (9, 12..20, 28..36),
        _ => return Err(corrupt(&"no superblock of version 0 to 3")),
    };
    let (address_bytes, base) = (bytes.get(address_at), bytes.get(base_at));
    if !bytes.starts_with(b"\x89HDF\r\n\x1a\n") || address_bytes != Some(&8) || base != Some(&[0; 8]) {
        return Err(corrupt(&"a superblock that is not for the beginning of a file"));
    }
    let end = bytes.get(end_at).and_then(|end| <[u8; 8]>::try_from(end).ok()).map(u64::from_le_bytes);
    match end {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(corrupt(&format!("{size_bytes} bytes of {}", end.unwrap_or_default()))),
    }
}

fn check_size(size_bytes: u64, shape: &[u64]) -> Result<()> {
    if size_bytes <= HDF5_SET_BYTES_MAX {
        return Ok(());
    }
    let detail = format!(
        "a data set must have at most {HDF5_SET_BYTES_MAX} bytes: got {size_bytes} of shape {shape:?}"
    );
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

fn shape_of(data: &Dataset) -> Result<Vec<usize>> {
    let shape = guarded(|| data.shape())?;
    let num_elements = shape.iter().fold(1_u64, |product, len| product.saturating_mul(*len));
    // Before lengths are narrowed, so that a platform of 32 bits refuses the same files for the same reason.
    check_size(num_elements.saturating_mul(guarded(|| data.element_size())?), &shape)?;
    let narrow = |len: &u64| {
        usize::try_from(*len).map_err(|error| {
            let detail = format!("a length must fit the memory of this platform: got {len}");
            Error::new(ErrorKind::LimitExceeded, detail).because(error)
        })
    };
    shape.iter().map(narrow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_data_sets_count_up_to_their_number() {
        let mut all = Budget::of(0, HDF5_OBJECTS_MAX);
        all.take_objects(HDF5_OBJECTS_MAX).unwrap();
        assert_eq!(all.take_objects(1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn a_data_set_has_bytes_up_to_a_limit() {
        check_size(HDF5_SET_BYTES_MAX, &[]).unwrap();
        assert_eq!(check_size(HDF5_SET_BYTES_MAX + 1, &[]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn compressed_sets_may_be_longer_than_the_file_up_to_a_limit() {
        let mut budget = Budget::of(10, 0);
        budget.take_bytes(10 * HDF5_EXPANSION_MAX, &[], true).unwrap();
        assert_eq!(budget.take_bytes(1, &[1], true).unwrap_err().kind(), ErrorKind::LimitExceeded);
        budget.take_bytes(10, &[], false).unwrap();
        assert_eq!(budget.take_bytes(1, &[1], false).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    #[cfg(not(target_family = "wasm"))]
    fn deflated_chunks_are_inflated_here_and_others_by_the_crate() {
        let is_inflated = |filter: fn(&mut hdf5_pure::DatasetBuilder) -> &mut hdf5_pure::DatasetBuilder| {
            let mut builder = hdf5_pure::FileBuilder::new();
            filter(
                builder
                    .create_dataset("x")
                    .with_i32_data(&[1, 2, 3, 4, 5, 6])
                    .with_shape(&[3, 2])
                    .with_chunks(&[2, 1]),
            );
            let file = Hdf5File::from_bytes(builder.finish().unwrap()).unwrap();
            let root = file.root().unwrap();
            let found = root.inflated(&root.data_set("x").unwrap(), Dtype::I32, &[3, 2]).unwrap();
            assert_eq!(
                root.read("x").unwrap(),
                Tensor::from_vec(&[3, 2], vec![1, 2, 3, 4, 5, 6]).unwrap().into()
            );
            found.is_some()
        };
        assert!(is_inflated(|data| data.with_deflate(4)));
        assert!(is_inflated(|data| data.with_deflate(4).with_shuffle()));
        assert!(!is_inflated(|data| data.with_deflate(4).with_fletcher32()));
        assert!(!is_inflated(|data| data));
    }
}

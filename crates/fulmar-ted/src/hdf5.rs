//! HDF5 files of dictionaries: groups are dictionaries, data sets are tensors.

#[cfg(not(target_family = "wasm"))]
mod chunks;
mod datatype;
mod file;

use std::collections::BTreeMap;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Tensor, TensorDict};
use hdf5_pure::{AttrValue, FileBuilder};
use serde_json::Value;

use self::datatype::datatype_of;
pub use self::file::{Hdf5File, Hdf5Group};

/// Reads a whole HDF5 file as a dictionary without batch dimensions. Supports numbers of our dtypes, bools as
/// h5py writes them, and texts, also compressed; ignores attributes. Copies.
///
/// # Errors
/// `Corrupt` if the bytes are not an HDF5 file; those of [`Hdf5Group::read`], with the key.
///
/// # Examples
/// ```
/// use fulmar_ted::{read_hdf5, write_hdf5};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut dict = TensorDict::new(&[])?;
/// dict.set(["traj_0", "done"], Tensor::from_vec(&[2, 1], vec![false, true])?)?;
/// assert_eq!(read_hdf5(&write_hdf5(&dict)?)?, dict);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_hdf5(bytes: &[u8]) -> Result<TensorDict> {
    Hdf5File::from_bytes(bytes.to_vec())?.root()?.to_dict()
}

/// Returns the bytes of an HDF5 file of `dict`: tensors become data sets, dictionaries become groups.
///
/// # Errors
/// `Incompatible`, with the key, for any other entry, or a dtype that HDF5 lacks; `Malformed` if a key is
/// empty, `.` or `..`, or contains a `/`, which separates groups.
pub fn write_hdf5(dict: &TensorDict) -> Result<Vec<u8>> {
    write(dict, &BTreeMap::new(), false)
}

/// Numbers by the name of an attribute, by the name of a group of the root.
pub type Hdf5Attributes = BTreeMap<String, Vec<(&'static str, i64)>>;

/// Returns the bytes of an HDF5 file of `dict` as [`write_hdf5`] does, with texts and lists of texts as data sets of texts, and
/// with attributes of the groups of the root.
///
/// # Errors
/// The errors of [`write_hdf5`]; `Incompatible`, with the key, for a text with a NUL character, at which h5py ends a text.
///
/// # Examples
/// ```
/// use fulmar_ted::{read_hdf5, write_hdf5_with_texts};
/// use fulmar_tensor::{NonTensor, TensorDict};
/// let mut dict = TensorDict::new(&[])?;
/// dict.set(["episode_0", "mission"], NonTensor::shared(serde_json::json!(["go", "stop"])))?;
/// let attributes = [("episode_0".to_owned(), vec![("id", 0)])].into();
/// assert_eq!(read_hdf5(&write_hdf5_with_texts(&dict, &attributes)?)?, dict);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn write_hdf5_with_texts(dict: &TensorDict, attributes: &Hdf5Attributes) -> Result<Vec<u8>> {
    write(dict, attributes, true)
}

fn write(dict: &TensorDict, attributes: &Hdf5Attributes, has_texts: bool) -> Result<Vec<u8>> {
    let mut builder = FileBuilder::new();
    for (key, entry) in dict.entries() {
        check_key(key)?;
        if let Entry::Dict(dict) = entry {
            let mut group = builder.create_group(key);
            for (name, number) in attributes.get(key).into_iter().flatten() {
                group.set_attr(name, AttrValue::I64(*number));
            }
            write_group(&mut group, dict, has_texts).map_err(|error| named(error, key))?;
            builder.add_group(group.finish());
        } else {
            put(builder.create_dataset(key), entry, has_texts).map_err(|error| named(error, key))?;
        }
    }
    builder.finish().map_err(|error| corrupt(&error).because(error))
}

fn write_group(group: &mut hdf5_pure::GroupBuilder, dict: &TensorDict, has_texts: bool) -> Result<()> {
    for (key, entry) in dict.entries() {
        check_key(key)?;
        if let Entry::Dict(dict) = entry {
            let mut inner = group.create_group(key);
            write_group(&mut inner, dict, has_texts).map_err(|error| named(error, key))?;
            group.add_group(inner.finish());
        } else {
            put(group.create_dataset(key), entry, has_texts).map_err(|error| named(error, key))?;
        }
    }
    Ok(())
}

fn put(data: &mut hdf5_pure::DatasetBuilder, entry: &Entry, has_texts: bool) -> Result<()> {
    match entry {
        Entry::Tensor(tensor) => put_numbers(data, tensor),
        Entry::NonTensor(values) if has_texts => put_texts(data, &values.to_json()),
        other => {
            let detail =
                format!("an entry must be a tensor or a dictionary: got one of kind {}", other.kind());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

fn put_numbers(data: &mut hdf5_pure::DatasetBuilder, tensor: &Tensor) -> Result<()> {
    let shape: Vec<_> = tensor.shape().iter().map(|len| *len as u64).collect();
    let count = tensor.num_elements() as u64;
    data.with_raw_data(datatype_of(tensor.dtype())?, tensor.to_bytes(), count).with_shape(&shape);
    Ok(())
}

fn put_texts(data: &mut hdf5_pure::DatasetBuilder, values: &Value) -> Result<()> {
    let (shape, values) = match values {
        Value::Array(values) => (vec![values.len() as u64], values.as_slice()),
        value => (Vec::new(), std::slice::from_ref(value)),
    };
    let texts = values.iter().map(text_of).collect::<Result<Vec<_>>>()?;
    data.with_vlen_strings(&texts).with_shape(&shape);
    Ok(())
}

fn text_of(value: &Value) -> Result<&str> {
    value.as_str().filter(|text| !text.contains('\0')).ok_or_else(|| {
        let detail = format!("a value must be a text without a NUL character: got {value}");
        Error::new(ErrorKind::Incompatible, detail)
    })
}

fn check_key(key: &str) -> Result<()> {
    if matches!(key, "" | "." | "..") || key.contains('/') {
        let detail = format!("key must be a name without \"/\": got {key:?}");
        return Err(Error::new(ErrorKind::Malformed, detail));
    }
    Ok(())
}

fn named(error: Error, key: &str) -> Error {
    error.at(format!("{key:?}"))
}

fn corrupt(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("must be an HDF5 file: got {error}"))
}

#[cfg(test)]
mod tests {
    use fulmar_core::Dtype;

    use super::*;

    #[test]
    fn groups_and_data_sets_count_up_to_their_number() {
        let mut dict = TensorDict::new(&[]).unwrap();
        dict.set(["a", "x"], Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
        dict.set("y", Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
        let bytes = write_hdf5(&dict).unwrap();
        let read = |objects| Hdf5File::from_bytes(bytes.clone()).unwrap().limited(objects).root()?.to_dict();
        assert_eq!(read(3).unwrap(), dict);
        assert_eq!(read(2).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}

//! HDF5 files of dictionaries: groups are dictionaries, data sets are tensors.

use std::panic::catch_unwind;

use fulmar_core::limits::{HDF5_OBJECTS_MAX, TENSOR_DICT_DEPTH_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Tensor, TensorDict};
use hdf5_pure::{Datatype, DatatypeByteOrder, EnumMember, File, FileBuilder, Group};

/// Reads a whole HDF5 file as a dictionary without batch dimensions. Supports numbers of our dtypes,
/// little-endian, and bools as h5py writes them, not compressed; ignores attributes. Copies.
///
/// # Errors
/// `Corrupt` if the bytes are not an HDF5 file or, with the key, if a data set cannot be read or all of them
/// would be longer than the file; `Incompatible`, with the key, for anything else in it; `LimitExceeded` if
/// groups are nested deeper than [`TENSOR_DICT_DEPTH_MAX`], or past [`HDF5_OBJECTS_MAX`] groups and data
/// sets.
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
    check_begins(bytes)?;
    // The crate adds addresses of a damaged file without checks and may panic. All state that it changes is
    // dropped then.
    catch_unwind(|| read_file(bytes)).unwrap_or_else(|_| Err(corrupt(&"an address beyond the file")))
}

fn read_file(bytes: &[u8]) -> Result<TensorDict> {
    let file = File::from_bytes(bytes.to_vec()).map_err(|error| corrupt(&error).because(error))?;
    // No two data sets share bytes, so a small file cannot ask for much memory. A group may be in several
    // others, at any depth.
    read_group(&file.root(), 0, &mut Budget { bytes: bytes.len(), objects: HDF5_OBJECTS_MAX })
}

/// The bytes and objects that a file may still use.
struct Budget {
    bytes: usize,
    objects: usize,
}

impl Budget {
    fn take_objects(&mut self, num_objects: usize) -> Result<()> {
        self.objects = self.objects.checked_sub(num_objects).ok_or_else(|| {
            let detail = format!(
                "a file must have at most {HDF5_OBJECTS_MAX} groups and data sets, each counted as often as it is reached"
            );
            Error::new(ErrorKind::LimitExceeded, detail)
        })?;
        Ok(())
    }

    fn take_bytes(&mut self, size_bytes: usize, shape: &[usize]) -> Result<()> {
        self.bytes = self.bytes.checked_sub(size_bytes).ok_or_else(|| {
            let detail = format!(
                "data sets must be no longer together than the file: got one of shape {shape:?} beyond that"
            );
            Error::new(ErrorKind::Corrupt, detail)
        })?;
        Ok(())
    }
}

/// Returns the bytes of an HDF5 file of `dict`: tensors become data sets, dictionaries become groups.
///
/// # Errors
/// `Incompatible`, with the key, for any other entry, or a dtype that HDF5 lacks; `Malformed` if a key is
/// empty, `.` or `..`, or contains a `/`, which separates groups.
pub fn write_hdf5(dict: &TensorDict) -> Result<Vec<u8>> {
    let mut builder = FileBuilder::new();
    for (key, entry) in dict.entries() {
        check_key(key)?;
        match entry {
            Entry::Tensor(tensor) => {
                put(builder.create_dataset(key), tensor).map_err(|error| named(error, key))?;
            }
            Entry::Dict(dict) => {
                let mut group = builder.create_group(key);
                write_group(&mut group, dict).map_err(|error| named(error, key))?;
                builder.add_group(group.finish());
            }
            _ => return Err(not_kept(key, entry)),
        }
    }
    builder.finish().map_err(|error| corrupt(&error).because(error))
}

/// Checks that the file begins with its superblock, states so, and has addresses of 8 bytes, as all common
/// writers do: the crate adds addresses unchecked.
fn check_begins(bytes: &[u8]) -> Result<()> {
    let places = match bytes.get(8) {
        Some(0) => (13, 24..32),
        Some(1) => (13, 28..36),
        Some(2 | 3) => (9, 12..20),
        _ => return Err(corrupt(&"no superblock of version 0 to 3")),
    };
    let (address_bytes, base) = (bytes.get(places.0), bytes.get(places.1));
    if !bytes.starts_with(b"\x89HDF\r\n\x1a\n") || address_bytes != Some(&8) || base != Some(&[0; 8]) {
        return Err(corrupt(&"a superblock that is not for the beginning of a file"));
    }
    Ok(())
}

fn read_group(group: &Group<'_>, depth: usize, left: &mut Budget) -> Result<TensorDict> {
    if depth >= TENSOR_DICT_DEPTH_MAX {
        let detail = format!("groups must be nested less than {TENSOR_DICT_DEPTH_MAX} deep: got {depth}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut dict = TensorDict::new(&[])?;
    let names = group.datasets().map_err(|error| corrupt(&error).because(error))?;
    left.take_objects(names.len())?;
    for name in names {
        let tensor = read_data(group, &name, left).map_err(|error| named(error, &name))?;
        dict.set(name.as_str(), tensor)?;
    }
    let names = group.groups().map_err(|error| corrupt(&error).because(error))?;
    left.take_objects(names.len())?;
    for name in names {
        let inner = group.group(&name).map_err(|error| corrupt(&error).because(error));
        let inner = inner
            .and_then(|inner| read_group(&inner, depth + 1, left))
            .map_err(|error| named(error, &name))?;
        dict.set(name.as_str(), inner)?;
    }
    Ok(dict)
}

fn read_data(group: &Group<'_>, name: &str, left: &mut Budget) -> Result<Tensor> {
    let data = group.dataset(name).map_err(|error| corrupt(&error).because(error))?;
    let shape = data.shape().map_err(|error| corrupt(&error).because(error))?;
    let narrow = |len: &u64| usize::try_from(*len).map_err(|_| corrupt(&format!("a length of {len}")));
    let shape = shape.iter().map(narrow).collect::<Result<Vec<_>>>()?;
    let dtype = dtype_of(&data.datatype().map_err(|error| corrupt(&error).because(error))?)?;
    let size_bytes = num_elements(&shape)?.saturating_mul(dtype.size_bytes());
    if size_bytes == 0 {
        return Tensor::zeros(dtype, &shape);
    }
    left.take_bytes(size_bytes, &shape)?;
    let bytes = data.read_raw().map_err(|error| corrupt(&error).because(error))?;
    Tensor::from_bytes(dtype, &shape, &bytes)
}

fn dtype_of(stored: &Datatype) -> Result<Dtype> {
    use DatatypeByteOrder::LittleEndian;
    match stored {
        Datatype::FloatingPoint { size: 8, byte_order: LittleEndian, .. } => Ok(Dtype::F64),
        Datatype::FloatingPoint { size: 4, byte_order: LittleEndian, .. } => Ok(Dtype::F32),
        Datatype::FloatingPoint { size: 2, byte_order: LittleEndian, mantissa_size: 10, .. } => {
            Ok(Dtype::F16)
        }
        Datatype::FixedPoint { size: 8, byte_order: LittleEndian, signed: true, .. } => Ok(Dtype::I64),
        Datatype::FixedPoint { size: 4, byte_order: LittleEndian, signed: true, .. } => Ok(Dtype::I32),
        Datatype::FixedPoint { size: 2, byte_order: LittleEndian, signed: true, .. } => Ok(Dtype::I16),
        Datatype::FixedPoint { size: 1, signed: true, .. } => Ok(Dtype::I8),
        Datatype::FixedPoint { size: 1, signed: false, .. } => Ok(Dtype::U8),
        Datatype::FixedPoint { size: 4, byte_order: LittleEndian, signed: false, .. } => Ok(Dtype::U32),
        Datatype::Enumeration { size: 1, members, .. } if is_bool(members) => Ok(Dtype::Bool),
        Datatype::Opaque { size, tag } => {
            numpy_dtype(tag).filter(|dtype| dtype.size_bytes() as u32 == *size).ok_or_else(|| foreign(stored))
        }
        other => Err(foreign(other)),
    }
}

fn foreign(stored: &Datatype) -> Error {
    let detail = format!("a data set must hold numbers or bools of a known dtype: got {stored:?}");
    Error::new(ErrorKind::Incompatible, detail)
}

/// h5py writes a single NumPy number as bytes with the name of its dtype, padded with zeros.
fn numpy_dtype(tag: &[u8]) -> Option<Dtype> {
    let name = std::str::from_utf8(tag).ok()?.trim_end_matches('\0').strip_prefix("NUMPY:")?;
    Some(match name {
        "<f8" => Dtype::F64,
        "<f4" => Dtype::F32,
        "<f2" => Dtype::F16,
        "<i8" => Dtype::I64,
        "<i4" => Dtype::I32,
        "<i2" => Dtype::I16,
        "|i1" => Dtype::I8,
        "|u1" => Dtype::U8,
        "<u4" => Dtype::U32,
        "|b1" => Dtype::Bool,
        _ => return None,
    })
}

/// h5py stores a bool as one byte with these two names.
fn is_bool(members: &[EnumMember]) -> bool {
    members.iter().all(|member| {
        (member.name == "FALSE" && member.value == [0]) || (member.name == "TRUE" && member.value == [1])
    })
}

fn write_group(group: &mut hdf5_pure::GroupBuilder, dict: &TensorDict) -> Result<()> {
    for (key, entry) in dict.entries() {
        check_key(key)?;
        match entry {
            Entry::Tensor(tensor) => {
                put(group.create_dataset(key), tensor).map_err(|error| named(error, key))?;
            }
            Entry::Dict(dict) => {
                let mut inner = group.create_group(key);
                write_group(&mut inner, dict).map_err(|error| named(error, key))?;
                group.add_group(inner.finish());
            }
            _ => return Err(not_kept(key, entry)),
        }
    }
    Ok(())
}

fn put(data: &mut hdf5_pure::DatasetBuilder, tensor: &Tensor) -> Result<()> {
    let shape: Vec<_> = tensor.shape().iter().map(|len| *len as u64).collect();
    let count = tensor.num_elements() as u64;
    data.with_raw_data(datatype_of(tensor.dtype())?, tensor.to_bytes(), count).with_shape(&shape);
    Ok(())
}

fn datatype_of(dtype: Dtype) -> Result<Datatype> {
    Ok(match dtype {
        Dtype::F64 => hdf5_pure::make_f64_type(),
        Dtype::F32 => hdf5_pure::make_f32_type(),
        Dtype::F16 => Datatype::FloatingPoint {
            size: 2,
            byte_order: DatatypeByteOrder::LittleEndian,
            bit_offset: 0,
            bit_precision: 16,
            exponent_location: 10,
            exponent_size: 5,
            mantissa_location: 0,
            mantissa_size: 10,
            exponent_bias: 15,
        },
        Dtype::I64 => hdf5_pure::make_i64_type(),
        Dtype::I32 => hdf5_pure::make_i32_type(),
        Dtype::I16 => hdf5_pure::make_i16_type(),
        Dtype::I8 => hdf5_pure::make_i8_type(),
        Dtype::U8 => hdf5_pure::make_u8_type(),
        Dtype::U32 => hdf5_pure::make_u32_type(),
        Dtype::Bool => {
            let member = |name: &str, value| EnumMember { name: name.to_owned(), value: vec![value] };
            Datatype::Enumeration {
                size: 1,
                base_type: Box::new(hdf5_pure::make_i8_type()),
                members: vec![member("FALSE", 0), member("TRUE", 1)],
            }
        }
        Dtype::Bf16 => {
            let detail = "a dtype must be one of HDF5: got bf16, which h5py cannot read";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
    })
}

fn check_key(key: &str) -> Result<()> {
    if matches!(key, "" | "." | "..") || key.contains('/') {
        let detail = format!("key must be a name without \"/\": got {key:?}");
        return Err(Error::new(ErrorKind::Malformed, detail));
    }
    Ok(())
}

fn not_kept(key: &str, entry: &Entry) -> Error {
    let detail = format!("an entry must be a tensor or a dictionary: got one of kind {}", entry.kind());
    named(Error::new(ErrorKind::Incompatible, detail), key)
}

fn named(error: Error, key: &str) -> Error {
    error.at(format!("{key:?}"))
}

fn corrupt(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("must be an HDF5 file: got {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_data_sets_count_up_to_their_number() {
        let mut dict = TensorDict::new(&[]).unwrap();
        dict.set(["a", "x"], Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
        dict.set("y", Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
        let bytes = write_hdf5(&dict).unwrap();
        let file = File::from_bytes(bytes.clone()).unwrap();
        let read = |objects| read_group(&file.root(), 0, &mut Budget { bytes: bytes.len(), objects });
        assert_eq!(read(3).unwrap(), dict);
        assert_eq!(read(2).unwrap_err().kind(), ErrorKind::LimitExceeded);
        let mut all = Budget { bytes: 0, objects: HDF5_OBJECTS_MAX };
        all.take_objects(HDF5_OBJECTS_MAX).unwrap();
        assert_eq!(all.take_objects(1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}

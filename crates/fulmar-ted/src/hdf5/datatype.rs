//! Types of elements: those of HDF5, and ours.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use hdf5_pure::{Datatype, DatatypeByteOrder, EnumMember, FloatingPointLayout};

/// Elements of a data set.
pub(super) enum Elements {
    /// Numbers or bools, and whether their bytes are in the other order.
    Numbers(Dtype, DatatypeByteOrder),
    Text,
}

pub(super) fn elements_of(stored: &Datatype) -> Result<Elements> {
    let numbers = |dtype: Option<Dtype>, order: DatatypeByteOrder| {
        dtype.map(|dtype| Elements::Numbers(dtype, order)).ok_or_else(|| foreign(stored))
    };
    match stored {
        Datatype::FloatingPoint { size, byte_order, layout } => numbers(float(*size, *layout), *byte_order),
        Datatype::FixedPoint { size, byte_order, layout } => {
            numbers(integer(*size, layout.signed), *byte_order)
        }
        Datatype::Enumeration { size: 1, members, .. } if is_bool(members) => {
            numbers(Some(Dtype::Bool), DatatypeByteOrder::LittleEndian)
        }
        Datatype::Opaque { size, tag } => {
            let dtype = numpy_dtype(tag).filter(|dtype| dtype.size_bytes() as u32 == *size);
            numbers(dtype, DatatypeByteOrder::LittleEndian)
        }
        Datatype::String { .. } | Datatype::VariableLength { is_string: true, .. } => Ok(Elements::Text),
        other => Err(foreign(other)),
    }
}

fn float(size: u32, layout: FloatingPointLayout) -> Option<Dtype> {
    match (size, layout.mantissa_size) {
        (8, 52) => Some(Dtype::F64),
        (4, 23) => Some(Dtype::F32),
        (2, 10) => Some(Dtype::F16),
        _ => None,
    }
}

fn integer(size: u32, signed: bool) -> Option<Dtype> {
    match (size, signed) {
        (8, true) => Some(Dtype::I64),
        (4, true) => Some(Dtype::I32),
        (2, true) => Some(Dtype::I16),
        (1, true) => Some(Dtype::I8),
        (1, false) => Some(Dtype::U8),
        (4, false) => Some(Dtype::U32),
        _ => None,
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

pub(super) fn datatype_of(dtype: Dtype) -> Result<Datatype> {
    Ok(match dtype {
        Dtype::F64 => hdf5_pure::make_f64_type(),
        Dtype::F32 => hdf5_pure::make_f32_type(),
        Dtype::F16 => Datatype::FloatingPoint {
            size: 2,
            byte_order: DatatypeByteOrder::LittleEndian,
            layout: FloatingPointLayout {
                bit_offset: 0,
                bit_precision: 16,
                exponent_location: 10,
                exponent_size: 5,
                mantissa_location: 0,
                mantissa_size: 10,
                exponent_bias: 15,
            },
        },
        Dtype::I64 => hdf5_pure::make_i64_type(),
        Dtype::I32 => hdf5_pure::make_i32_type(),
        Dtype::I16 => hdf5_pure::make_i16_type(),
        Dtype::I8 => hdf5_pure::make_i8_type(),
        Dtype::U8 => hdf5_pure::make_u8_type(),
        Dtype::U32 => hdf5_pure::make_u32_type(),
        Dtype::Bool => hdf5_pure::EnumTypeBuilder::with_base(hdf5_pure::make_i8_type())
            .raw_value("FALSE", &[0])
            .raw_value("TRUE", &[1])
            .build()
            .map_err(|error| Error::new(ErrorKind::Incompatible, error.to_string()))?,
        Dtype::Bf16 => {
            let detail = "a dtype must be one of HDF5: got bf16, which h5py cannot read";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
    })
}

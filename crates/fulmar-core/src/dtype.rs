//! Element types of tensors.

use crate::{Error, ErrorKind, Result, nearest_name};

/// The type of one tensor element. Names are the lower-case names of safetensors files and PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an IEEE 754 single.
    Bf16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 32-bit integer.
    U32,
    /// One byte, 0 or 1.
    Bool,
}

impl Dtype {
    /// All dtypes, in declaration order.
    pub const ALL: [Self; 11] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U8,
        Self::U32,
        Self::Bool,
    ];

    /// Returns the size of one element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Returns the lower-case name: `f32`, `bf16`, `bool`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::Bool => "bool",
        }
    }

    /// Returns the dtype called `name`.
    ///
    /// # Errors
    /// `UnknownName` if no dtype has that name.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(fulmar_core::Dtype::parse("bf16")?.size_bytes(), 2);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            let hint = nearest_name(name, &names).map(|nearest| format!("; did you mean '{nearest}'?"));
            let (names, hint) = (names.join(", "), hint.unwrap_or_default());
            Error::new(ErrorKind::UnknownName, format!("dtype must be one of {names}: got {name:?}{hint}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_and_others_are_refused() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::parse(dtype.name()), Ok(dtype));
        }
        assert_eq!(Dtype::parse("float").unwrap_err().kind(), ErrorKind::UnknownName);
        for (torch, ours) in [("float32", "f32"), ("torch.bfloat16", "bf16"), ("long", "i64"), ("F32", "f32")]
        {
            let error = Dtype::parse(torch).unwrap_err();
            assert!(error.detail().ends_with(&format!("did you mean '{ours}'?")), "{error}");
        }
    }
}

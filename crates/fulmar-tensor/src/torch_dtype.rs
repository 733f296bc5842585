//! PyTorch's names of dtypes, as in its files.

use fulmar_core::{Dtype, Error, ErrorKind, Result};

/// Returns PyTorch's name, such as `torch.float32`.
pub const fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "torch.float64",
        Dtype::F32 => "torch.float32",
        Dtype::F16 => "torch.float16",
        Dtype::Bf16 => "torch.bfloat16",
        Dtype::I64 => "torch.int64",
        Dtype::I32 => "torch.int32",
        Dtype::I16 => "torch.int16",
        Dtype::I8 => "torch.int8",
        Dtype::U8 => "torch.uint8",
        Dtype::U32 => "torch.uint32",
        Dtype::Bool => "torch.bool",
    }
}

/// Returns the dtype that PyTorch calls `name`.
///
/// # Errors
/// `UnknownName` for any other name, so for complex and quantised dtypes too.
pub fn from_torch_name(name: &str) -> Result<Dtype> {
    Dtype::ALL.into_iter().find(|dtype| torch_name(*dtype) == name).ok_or_else(|| {
        let names = Dtype::ALL.map(torch_name).join(", ");
        Error::new(ErrorKind::UnknownName, format!("dtype must be one of {names}: got {name:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_complex_numbers_are_refused() {
        for dtype in Dtype::ALL {
            assert_eq!(from_torch_name(torch_name(dtype)), Ok(dtype));
        }
        assert_eq!(from_torch_name("torch.complex64").unwrap_err().kind(), ErrorKind::UnknownName);
    }
}

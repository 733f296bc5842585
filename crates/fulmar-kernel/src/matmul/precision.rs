//! The precision of products.

use fulmar_core::{Error, ErrorKind, Result};

/// The precision of the operands of a product, as `torch.set_float32_matmul_precision` selects it. Sums are in single
/// precision either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatmulPrecision {
    /// Single precision.
    #[default]
    F32,
    /// bfloat16: each number of both operands is rounded to the nearest, ties to even, and to 0 below `2^-126`. Up to
    /// twice as fast on AMD's processors with AVX512-BF16. All others give the same bits; many rows take about twice as long
    /// there as in single precision, with Intel's AVX512-BF16 too.
    Bf16,
}

impl MatmulPrecision {
    /// All precisions.
    const ALL: [Self; 2] = [Self::F32, Self::Bf16];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// Returns the precision called `name`.
    ///
    /// # Errors
    /// `UnknownName` if no precision has that name.
    ///
    /// # Examples
    /// ```
    /// use fulmar_kernel::MatmulPrecision;
    /// assert_eq!(MatmulPrecision::parse("bf16")?, MatmulPrecision::Bf16);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let detail = format!("matmulPrecision must be one of {names}: got {name:?}");
            Error::new(ErrorKind::UnknownName, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precision_has_one_name_and_others_are_refused() {
        for precision in MatmulPrecision::ALL {
            assert_eq!(MatmulPrecision::parse(precision.name()), Ok(precision));
        }
        let refused = MatmulPrecision::parse("tf32").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::UnknownName);
        assert_eq!(refused.detail(), "matmulPrecision must be one of f32, bf16: got \"tf32\"");
    }
}

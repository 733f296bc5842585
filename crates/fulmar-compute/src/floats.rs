//! Views of floating-point elements of either stored width, and matrices of them.

use std::borrow::Cow;
use std::ops::RangeBounds;

use fulmar_core::Result;
use half::bf16;

use crate::{MatmulPrecision, Memory, Panels, View};

/// Borrowed elements in single precision or bfloat16.
///
/// # Examples
/// ```
/// use fulmar_compute::Floats;
/// use half::bf16;
/// let weights = [bf16::from_f32(1.5), bf16::ONE];
/// let stored = Floats::from(weights.as_slice());
/// assert_eq!(stored.slice(..1).to_f32().view().cpu(), [1.5]);
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Floats<'a> {
    /// Single precision.
    F32(View<'a, f32>),
    /// bfloat16.
    Bf16(View<'a, bf16>),
}

/// Elements in single precision: borrowed, or a copy of bfloat16 ones.
#[derive(Debug)]
pub enum Widened<'a> {
    /// Elements of the original.
    Borrowed(View<'a, f32>),
    /// A copy.
    Owned(Memory<f32>),
}

/// A borrowed row-major matrix, optionally read transposed.
#[derive(Debug, Clone, Copy)]
pub struct MatRef<'a>(Kind<'a>);

#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Stored(Stored<'a>),
    /// A packed weight `[outputs, inputs]`, transposed.
    Packed(&'a Panels),
}

/// Row-major elements `[rows, cols]`, read as they are or transposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub data: Floats<'a>,
    rows: usize,
    cols: usize,
    pub is_transposed: bool,
    /// The precision of products, if this is the right operand.
    pub precision: MatmulPrecision,
}

impl<'a> Floats<'a> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns a range of the elements.
    ///
    /// # Panics
    /// If the range ends past the last element.
    #[must_use]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(values.slice(range)),
            Self::Bf16(values) => Self::Bf16(values.slice(range)),
        }
    }

    /// Returns the numbers in single precision, which represents each exactly. If a GPU has too little memory for a copy,
    /// [`Compute::check`](crate::Compute::check) returns the error.
    #[must_use]
    pub fn to_f32(self) -> Widened<'a> {
        match self {
            Self::F32(values) => Widened::Borrowed(values),
            Self::Bf16(values) => {
                let compute = values.compute();
                let mut wide = Memory::default();
                compute.resize(&mut wide, values.len());
                compute.bf16_to_f32(values, &mut wide);
                Widened::Owned(wide)
            }
        }
    }

    /// Returns the numbers in single precision and main memory: borrowed if they are there, else copied.
    ///
    /// # Errors
    /// The errors of [`Compute::read`](crate::Compute::read).
    pub fn read(self) -> Result<Cow<'a, [f32]>> {
        match self.to_f32() {
            Widened::Borrowed(values) => values.read(),
            Widened::Owned(values) => Ok(Cow::Owned(values.view().read()?.into_owned())),
        }
    }

    /// Returns the elements in main memory.
    ///
    /// # Panics
    /// If they are on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu(self) -> fulmar_kernel::Floats<'a> {
        match self {
            Self::F32(values) => values.cpu().into(),
            Self::Bf16(values) => values.cpu().into(),
        }
    }
}

impl Widened<'_> {
    /// Returns the elements to read.
    #[must_use]
    pub fn view(&self) -> View<'_, f32> {
        match self {
            Self::Borrowed(values) => *values,
            Self::Owned(values) => values.view(),
        }
    }
}

impl<'a> From<&'a Widened<'_>> for View<'a, f32> {
    fn from(values: &'a Widened<'_>) -> Self {
        values.view()
    }
}

impl<'a> From<&'a [f32]> for Floats<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values.into())
    }
}

impl<'a> From<&'a [bf16]> for Floats<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Self::Bf16(values.into())
    }
}

impl<'a> MatRef<'a> {
    /// Returns the matrix whose row-major elements are `data`.
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` floats.
    #[must_use]
    pub fn new(data: impl Into<View<'a, f32>>, rows: usize, cols: usize) -> Self {
        Self::of(Floats::F32(data.into()), rows, cols)
    }

    /// Returns the matrix of elements of either type, as [`MatRef::new`].
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` floats.
    #[must_use]
    pub fn of(data: Floats<'a>, rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "data must hold {rows} x {cols} floats");
        let precision = MatmulPrecision::F32;
        Self(Kind::Stored(Stored { data, rows, cols, is_transposed: false, precision }))
    }

    /// Returns the packed weight `[outputs, inputs]` transposed, `[inputs, outputs]`, for products `x w^T`.
    #[must_use]
    pub const fn of_panels(panels: &'a Panels) -> Self {
        Self(Kind::Packed(panels))
    }

    /// Returns the same elements with rows and columns exchanged. Copies nothing.
    ///
    /// # Panics
    /// If the elements are packed.
    #[must_use]
    pub fn transposed(self) -> Self {
        let Kind::Stored(stored) = self.0 else { unreachable!("packed weights are read in one direction") };
        Self(Kind::Stored(Stored { is_transposed: !stored.is_transposed, ..stored }))
    }

    /// Returns the same elements as a right operand whose products have this precision. Packed weights keep the
    /// precision that they were packed for.
    #[must_use]
    pub const fn in_precision(self, precision: MatmulPrecision) -> Self {
        match self.0 {
            Kind::Stored(stored) => Self(Kind::Stored(Stored { precision, ..stored })),
            Kind::Packed(_) => self,
        }
    }

    /// Returns the matrix in main memory.
    ///
    /// # Panics
    /// If it is on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu(self) -> fulmar_kernel::MatRef<'a> {
        match self.0 {
            Kind::Stored(Stored { data, rows, cols, is_transposed, precision }) => {
                let matrix = fulmar_kernel::MatRef::of(data.cpu(), rows, cols).in_precision(precision);
                if is_transposed { matrix.transposed() } else { matrix }
            }
            Kind::Packed(panels) => panels.transposed(),
        }
    }

    /// Returns whether a product by this right operand rounds both on a GPU.
    pub(crate) const fn is_in_halves(self) -> bool {
        match self.0 {
            Kind::Stored(
                Stored { data: Floats::Bf16(_), .. } | Stored { precision: MatmulPrecision::Bf16, .. },
            ) => true,
            Kind::Stored(_) | Kind::Packed(_) => false,
        }
    }

    /// Returns the elements and their order, unless they are packed.
    pub(crate) const fn stored(self) -> Option<Stored<'a>> {
        match self.0 {
            Kind::Stored(stored) => Some(stored),
            Kind::Packed(_) => None,
        }
    }
}

impl Stored<'_> {
    /// Returns the numbers of rows and columns.
    pub(crate) const fn shape(&self) -> (usize, usize) {
        if self.is_transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }
}

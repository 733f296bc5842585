//! Floating-point elements of either stored width, views and matrices of them.

use std::borrow::Cow;
use std::ops::RangeBounds;

use fulmar_core::{Dtype, Result};
use fulmar_cuda::{Argument, Card};
use half::bf16;

use crate::{Compute, MatmulPrecision, Memory, PanelsView, Placed, RowNumbers, View, ViewMut, kept};

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

/// Borrowed elements to write, in single precision or bfloat16.
#[derive(Debug)]
pub enum FloatsMut<'a> {
    /// Single precision.
    F32(ViewMut<'a, f32>),
    /// bfloat16.
    Bf16(ViewMut<'a, bf16>),
}

/// Elements on a device in single precision or bfloat16.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, FloatMemory};
/// use fulmar_core::Dtype;
/// let keys = Compute::Cpu.zero_floats(Dtype::Bf16, 3)?;
/// assert_eq!((keys.dtype(), keys.len()), (Dtype::Bf16, 3));
/// assert_eq!(*keys.view().read()?, [0.0; 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum FloatMemory {
    /// Single precision.
    F32(Memory<f32>),
    /// bfloat16.
    Bf16(Memory<bf16>),
}

/// A borrowed row-major matrix, optionally read transposed.
#[derive(Debug, Clone, Copy)]
pub struct MatRef<'a>(Kind<'a>);

#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Stored(Stored<'a>),
    /// A packed weight `[outputs, inputs]`, transposed.
    Packed(PanelsView<'a>),
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

    /// [`View::place`] of the elements.
    #[must_use]
    pub fn place(self) -> u64 {
        match self {
            Self::F32(values) => values.place(),
            Self::Bf16(values) => values.place(),
        }
    }

    /// Returns the numbers in single precision, which represents each exactly. If a GPU has too little memory for a copy,
    /// [`Compute::check`](crate::Compute::check) returns the error.
    #[must_use]
    pub fn to_f32(self) -> Placed<'a, f32> {
        match self {
            Self::F32(values) => Placed::Borrowed(values),
            Self::Bf16(values) => {
                let (compute, len) = (values.compute(), values.len());
                let mut wide = Memory::default();
                match compute {
                    Compute::Cpu => compute.resize(&mut wide, len),
                    // Without zeros: all of it is written below.
                    Compute::Cuda(card) => {
                        wide = kept::run("bf16_to_f32", || card.room(len).map(Memory::Cuda));
                    }
                }
                compute.bf16_to_f32(values, &mut wide);
                Placed::Owned(wide)
            }
        }
    }

    /// Returns elements of single precision.
    ///
    /// # Panics
    /// If they are in bfloat16, which is a bug of the caller.
    #[must_use]
    pub fn f32(self) -> View<'a, f32> {
        match self {
            Self::F32(values) => values,
            Self::Bf16(_) => unreachable!("{}", IN_HALVES),
        }
    }

    /// Returns the numbers in single precision and main memory: borrowed if they are there, else copied.
    ///
    /// # Errors
    /// The errors of [`Compute::read`](crate::Compute::read).
    pub fn read(self) -> Result<Cow<'a, [f32]>> {
        match self.to_f32() {
            Placed::Borrowed(values) => values.read(),
            Placed::Owned(values) => Ok(Cow::Owned(values.view().read()?.into_owned())),
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

impl<'a> FloatsMut<'a> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns elements of single precision.
    ///
    /// # Panics
    /// If they are in bfloat16, which is a bug of the caller.
    #[must_use]
    pub fn f32(self) -> ViewMut<'a, f32> {
        match self {
            Self::F32(values) => values,
            Self::Bf16(_) => unreachable!("{}", IN_HALVES),
        }
    }

    /// Returns that one of two kernels that writes such elements, and these as its argument.
    pub(crate) fn written_by(
        self,
        card: Card,
        [wide, halves]: [&'static str; 2],
    ) -> Result<(&'static str, Argument)> {
        Ok(match self {
            Self::F32(values) => (wide, values.cuda(card)?.into()),
            Self::Bf16(values) => (halves, values.cuda(card)?.into()),
        })
    }
}

/// The reason why the CPU takes elements of one width.
const IN_HALVES: &str = "elements of this operation are in single precision on the CPU";

impl Compute {
    /// Resizes `memory` to `len` elements of `dtype` on this device, as [`Compute::resize`]. Drops elements of the other width.
    /// Each dtype but [`Dtype::Bf16`] is single precision.
    pub fn resize_as(self, memory: &mut FloatMemory, dtype: Dtype, len: usize) {
        match (memory, dtype) {
            (FloatMemory::F32(values), Dtype::F32) => self.resize(values, len),
            (FloatMemory::Bf16(values), Dtype::Bf16) => self.resize(values, len),
            (memory, _) => {
                *memory = FloatMemory::of(dtype);
                match memory {
                    FloatMemory::F32(values) => self.resize(values, len),
                    FloatMemory::Bf16(values) => self.resize(values, len),
                }
            }
        }
    }

    /// Returns `len` zeros in `dtype`, [`Dtype::Bf16`] or single precision.
    ///
    /// # Errors
    /// The errors of [`Compute::zeros`].
    pub fn zero_floats(self, dtype: Dtype, len: usize) -> Result<FloatMemory> {
        match dtype {
            Dtype::Bf16 => self.zeros(len).map(FloatMemory::Bf16),
            _ => self.zeros(len).map(FloatMemory::F32),
        }
    }

    /// Writes rows of `inner` elements over others, as [`Compute::put_rows`], or rounds them to bfloat16.
    ///
    /// # Panics
    /// If elements in bfloat16 are to become wider ones, which is a bug of the caller.
    pub fn put_float_rows(self, from: &FloatMemory, inner: usize, rows_n: &RowNumbers, to: &mut FloatMemory) {
        match (from, to) {
            (FloatMemory::F32(from), FloatMemory::F32(to)) => self.put_rows(from, inner, rows_n, to),
            (FloatMemory::Bf16(from), FloatMemory::Bf16(to)) => self.put_rows(from, inner, rows_n, to),
            (FloatMemory::F32(from), FloatMemory::Bf16(to)) => self.put_rounded_rows(from, inner, rows_n, to),
            _ => unreachable!("rows are written over rows that are no wider"),
        }
    }
}

impl FloatMemory {
    /// Returns no elements of `dtype`, [`Dtype::Bf16`] or single precision, on the CPU.
    #[must_use]
    pub fn of(dtype: Dtype) -> Self {
        if dtype == Dtype::Bf16 { Self::Bf16(Memory::default()) } else { Self::F32(Memory::default()) }
    }

    /// Returns the dtype of the elements.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::Bf16(_) => Dtype::Bf16,
        }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of allocated bytes.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::F32(values) => values.num_bytes(),
            Self::Bf16(values) => values.num_bytes(),
        }
    }

    /// Returns the handle that computes on the device of the elements.
    #[must_use]
    pub fn compute(&self) -> Compute {
        match self {
            Self::F32(values) => values.compute(),
            Self::Bf16(values) => values.compute(),
        }
    }

    /// Returns all elements to read.
    #[must_use]
    pub fn view(&self) -> Floats<'_> {
        match self {
            Self::F32(values) => Floats::F32(values.view()),
            Self::Bf16(values) => Floats::Bf16(values.view()),
        }
    }

    /// Returns all elements to write.
    #[must_use]
    pub fn view_mut(&mut self) -> FloatsMut<'_> {
        match self {
            Self::F32(values) => FloatsMut::F32(values.view_mut()),
            Self::Bf16(values) => FloatsMut::Bf16(values.view_mut()),
        }
    }

    /// Returns elements of single precision.
    ///
    /// # Panics
    /// If they are in bfloat16, which is a bug of the caller.
    #[must_use]
    pub fn f32(&self) -> &Memory<f32> {
        match self {
            Self::F32(values) => values,
            Self::Bf16(_) => unreachable!("{}", IN_HALVES),
        }
    }

    /// Returns elements of single precision to write or resize.
    ///
    /// # Panics
    /// If they are in bfloat16, which is a bug of the caller.
    #[must_use]
    pub fn f32_mut(&mut self) -> &mut Memory<f32> {
        match self {
            Self::F32(values) => values,
            Self::Bf16(_) => unreachable!("{}", IN_HALVES),
        }
    }
}

/// Empty, in single precision on the CPU.
impl Default for FloatMemory {
    fn default() -> Self {
        Self::of(Dtype::F32)
    }
}

/// Elements of single precision on the CPU, without a copy.
impl From<Vec<f32>> for FloatMemory {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values.into())
    }
}

/// Elements of single precision: a slice, a vector, an array, memory, a view.
impl<'a, S: ?Sized> From<&'a S> for Floats<'a>
where
    View<'a, f32>: From<&'a S>,
{
    fn from(values: &'a S) -> Self {
        Self::F32(values.into())
    }
}

/// Elements of single precision to write: a slice, a vector, an array, memory, a view.
impl<'a, S: ?Sized> From<&'a mut S> for FloatsMut<'a>
where
    ViewMut<'a, f32>: From<&'a mut S>,
{
    fn from(values: &'a mut S) -> Self {
        Self::F32(values.into())
    }
}

macro_rules! views_of_floats {
    ($($from:ty => $variant:ident of $view:ident;)*) => {
        $(impl<'a> From<$from> for $view<'a> {
            fn from(values: $from) -> Self {
                Self::$variant(values.into())
            }
        })*
    };
}

views_of_floats! {
    View<'a, f32> => F32 of Floats;
    View<'a, bf16> => Bf16 of Floats;
    &'a [bf16] => Bf16 of Floats;
    &'a Memory<bf16> => Bf16 of Floats;
    ViewMut<'a, f32> => F32 of FloatsMut;
    ViewMut<'a, bf16> => Bf16 of FloatsMut;
    &'a mut Memory<bf16> => Bf16 of FloatsMut;
}

impl<'a> From<&'a FloatMemory> for Floats<'a> {
    fn from(memory: &'a FloatMemory) -> Self {
        memory.view()
    }
}

impl<'a> From<&'a mut FloatMemory> for FloatsMut<'a> {
    fn from(memory: &'a mut FloatMemory) -> Self {
        memory.view_mut()
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
    pub const fn of_panels(panels: PanelsView<'a>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_dtype_is_dropped_when_it_is_resized() {
        let on = Compute::Cpu;
        let mut memory = FloatMemory::from(vec![1.0, -3.0]);
        on.resize_as(&mut memory, Dtype::F32, 3);
        assert_eq!((memory.f32().cpu(), memory.num_bytes() >= 12), (&[1.0, -3.0, 0.0][..], true));
        on.resize_as(&mut memory, Dtype::Bf16, 2);
        assert_eq!((memory.dtype(), memory.view_mut().len(), memory.is_empty()), (Dtype::Bf16, 2, false));
        assert_eq!(*memory.view().read().unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn rows_of_either_width_are_put_where_their_numbers_are() {
        let halves = |values: &[f32]| {
            FloatMemory::Bf16(values.iter().map(|value| bf16::from_f32(*value)).collect::<Vec<_>>().into())
        };
        let mut rows_n = RowNumbers::default();
        [2, 0].into_iter().for_each(|row| rows_n.push(row));
        for from in [FloatMemory::from(vec![1.0, 2.0, 3.0, 4.0]), halves(&[1.0, 2.0, 3.0, 4.0])] {
            let mut to = Compute::Cpu.zero_floats(from.dtype(), 6).unwrap();
            Compute::Cpu.put_float_rows(&from, 2, &rows_n, &mut to);
            assert_eq!(*to.view().read().unwrap(), [3.0, 4.0, 0.0, 0.0, 1.0, 2.0]);
        }
        let mut rounded = Compute::Cpu.zero_floats(Dtype::Bf16, 6).unwrap();
        Compute::Cpu.put_float_rows(&vec![1.001, 2.0, 3.0, 4.0].into(), 2, &rows_n, &mut rounded);
        assert_eq!(*rounded.view().read().unwrap(), [3.0, 4.0, 0.0, 0.0, 1.0, 2.0]);
    }
}

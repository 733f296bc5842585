//! Specs of one tensor: a shape, a dtype and the set of its values.

use fulmar_core::limits::SPEC_ELEMENTS_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng, num_elements};
use fulmar_tensor::Tensor;

use crate::discrete::{Class, Discrete, check_choices, check_exact};
use crate::number::{cast, floats, integers, is_whole, of_floats, of_integers, whole_range};
use crate::shape::Shape;
use crate::step::{Step, broadcasts, canonical, rows};

/// The spec of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    pub(crate) shape: Shape,
    pub(crate) dtype: Dtype,
    pub(crate) space: Space,
}

/// The values that a tensor may have. Tables are broadcast to the cells of a value and stored in their
/// smallest form.
#[derive(Debug, Clone, PartialEq)]
pub enum Space {
    Unbounded,
    /// Inclusive, in the dtype of the spec.
    Bounded {
        low: Tensor,
        high: Tensor,
    },
    Discrete(Discrete),
}

impl Leaf {
    /// # Errors
    /// `OutOfRange` if a bound is NaN, `low` is above `high` or a count is invalid; `ShapeMismatch` if a
    /// table or the last dimension does not match `shape`; `LimitExceeded` if `shape` has too many
    /// dimensions.
    pub(crate) fn new(shape: Shape, dtype: Dtype, space: Space) -> Result<Self> {
        num_elements(&shape.sizes())?;
        let mut leaf = Self { shape, dtype, space };
        match &leaf.space {
            Space::Unbounded => {}
            Space::Bounded { low, high } => {
                for table in [low, high] {
                    leaf.check_table("bounds", table, 0)?;
                }
                check_bounds(low, high)?;
            }
            Space::Discrete(discrete) => {
                check_choices(discrete)?;
                check_exact(discrete, leaf.dtype)?;
                leaf.check_width(discrete)?;
                leaf.check_table("nvec", &discrete.counts, 1)?;
                if let Some(mask) = &discrete.mask {
                    leaf.check_table("mask", mask, 1)?;
                }
            }
        }
        leaf.space = leaf.space.tables(canonical)?;
        Ok(leaf)
    }

    /// Checks that `value` matches this spec; the error names the violated rule.
    pub(crate) fn check(&self, value: &Tensor) -> Result<()> {
        self.check_shape(value)?;
        if value.dtype() != self.dtype {
            let detail = format!("dtype must be {}: got {}", self.dtype.name(), value.dtype().name());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        match &self.space {
            Space::Unbounded => match floats(value)?.iter().find(|x| x.is_nan()) {
                Some(_) => Err(Error::new(ErrorKind::NonFinite, "value must be a number: got NaN")),
                None => Ok(()),
            },
            Space::Bounded { low, high } if is_whole(self.dtype) => check_inside(
                &integers(value)?,
                &self.bounds(low, value, integers)?,
                &self.bounds(high, value, integers)?,
            ),
            Space::Bounded { low, high } => check_inside(
                &floats(value)?,
                &self.bounds(low, value, floats)?,
                &self.bounds(high, value, floats)?,
            ),
            Space::Discrete(discrete) => self.choices(discrete, value).map(|_| ()),
        }
    }

    /// Returns the value of this spec nearest to `value`, of any dtype.
    pub(crate) fn project(&self, value: &Tensor) -> Result<Tensor> {
        self.check_shape(value)?;
        match &self.space {
            Space::Unbounded if self.dtype == Dtype::Bool => cast(value, self.dtype),
            Space::Unbounded if is_whole(self.dtype) => {
                let (low, high) = whole_range(self.dtype);
                let values = rounded(value)?.into_iter().map(|x| x.clamp(low, high)).collect();
                of_integers(self.dtype, value.shape(), values)
            }
            Space::Unbounded => {
                let values = floats(value)?.into_iter().map(|x| if x.is_nan() { 0.0 } else { x }).collect();
                of_floats(self.dtype, value.shape(), values)
            }
            Space::Bounded { low, high } if is_whole(self.dtype) => {
                let (low, high) = (self.bounds(low, value, integers)?, self.bounds(high, value, integers)?);
                let bounds = low.into_iter().zip(high);
                let values =
                    rounded(value)?.into_iter().zip(bounds).map(|(x, (low, high))| x.clamp(low, high));
                of_integers(self.dtype, value.shape(), values.collect())
            }
            Space::Bounded { low, high } => {
                let (low, high) = (self.bounds(low, value, floats)?, self.bounds(high, value, floats)?);
                let bounds = low.into_iter().zip(high);
                let values = floats(value)?
                    .into_iter()
                    .zip(bounds)
                    .map(|(x, (low, high))| if x.is_nan() { middle(low, high) } else { x.clamp(low, high) });
                of_floats(self.dtype, value.shape(), values.collect())
            }
            Space::Discrete(discrete) => {
                let (values, width) = (floats(value)?, self.cell_width());
                let mut out = Vec::with_capacity(values.len());
                discrete.each(self.cells(value.shape()), |at, cell| {
                    let old = &values[at * width..][..width];
                    let choices = cell.read(old).unwrap_or_else(|_| cell.nearest(old));
                    cell.write(&choices, &mut out);
                    Ok(())
                })?;
                of_floats(self.dtype, value.shape(), out)
            }
        }
    }

    /// Draws a value: normal for unbounded floats, uniform between bounds and over discrete values. A float
    /// with one infinite bound is at an exponentially distributed distance from the other.
    pub(crate) fn rand(&self, rng: &mut Rng, batch: &[usize]) -> Result<Tensor> {
        let shape = self.made(batch)?;
        let len = num_elements(&shape)?;
        match &self.space {
            Space::Unbounded if is_whole(self.dtype) => {
                let (low, high) = whole_range(self.dtype);
                let values = (0..len).map(|_| between(rng, low, high)).collect::<Result<_>>()?;
                of_integers(self.dtype, &shape, values)
            }
            Space::Unbounded => of_floats(self.dtype, &shape, (0..len).map(|_| rng.normal()).collect()),
            Space::Bounded { low, high } if is_whole(self.dtype) => {
                let (low, high) = (spread(low, &shape, integers)?, spread(high, &shape, integers)?);
                let values = low.into_iter().zip(high).map(|(low, high)| between(rng, low, high));
                of_integers(self.dtype, &shape, values.collect::<Result<_>>()?)
            }
            Space::Bounded { low, high } => {
                let (low, high) = (spread(low, &shape, floats)?, spread(high, &shape, floats)?);
                let values = low.into_iter().zip(high).map(|(low, high)| inside(rng, low, high));
                of_floats(self.dtype, &shape, values.collect())
            }
            Space::Discrete(discrete) => {
                let mut out = Vec::with_capacity(len);
                discrete.each(self.cells(&shape), |_, cell| {
                    cell.write(&cell.draw(rng)?, &mut out);
                    Ok(())
                })?;
                of_floats(self.dtype, &shape, out)
            }
        }
    }

    /// Returns the same number everywhere.
    pub(crate) fn full(&self, batch: &[usize], number: i64) -> Result<Tensor> {
        let shape = self.made(batch)?;
        of_integers(self.dtype, &shape, vec![number; num_elements(&shape)?])
    }

    /// Returns the choices of every cell of `value`, which must match this spec.
    pub(crate) fn choices(&self, discrete: &Discrete, value: &Tensor) -> Result<Vec<Vec<usize>>> {
        let (values, width) = (floats(value)?, self.cell_width());
        let mut choices = Vec::new();
        discrete.each(self.cells(value.shape()), |at, cell| {
            let read = cell.read(&values[at * width..][..width]);
            choices.push(read.map_err(|rule| Error::new(ErrorKind::OutOfRange, format!("value {rule}")))?);
            Ok(())
        })?;
        Ok(choices)
    }

    /// Returns the spec after `step`.
    pub(crate) fn moved(&self, step: &Step) -> Result<Self> {
        let Some(step) = self.without_cell(step)? else { return Ok(self.clone()) };
        let cells = self.cell_shape();
        let mut dims = step.shape(&cells)?.dims().to_vec();
        dims.extend_from_slice(&self.shape.dims()[cells.rank()..]);
        let space = self.space.tables(|table, tail| step.table(&cells, table, tail))?;
        Ok(Self { shape: dims.into(), dtype: self.dtype, space })
    }

    /// Converts the spec to another dtype; bounds are rounded and saturate.
    pub(crate) fn to_dtype(&self, dtype: Dtype) -> Result<Self> {
        let space = match &self.space {
            Space::Bounded { low, high } => {
                Space::Bounded { low: cast(low, dtype)?, high: cast(high, dtype)? }
            }
            other => other.clone(),
        };
        Self::new(self.shape.clone(), dtype, space)
    }

    /// Returns the class, as it is named in JSON.
    pub(crate) const fn kind(&self) -> &'static str {
        match &self.space {
            Space::Unbounded => "Unbounded",
            Space::Bounded { .. } => "Bounded",
            Space::Discrete(discrete) => discrete.class.name(),
        }
    }

    /// Returns the dimensions of a value's `shape` that count cells.
    pub(crate) fn cells<'a>(&self, shape: &'a [usize]) -> &'a [usize] {
        &shape[..shape.len() - self.cell_rank()]
    }

    /// Returns the number of elements in one cell.
    pub(crate) fn cell_width(&self) -> usize {
        self.shape.sizes()[self.shape.rank() - self.cell_rank()..].iter().product()
    }

    /// Returns the shape of a value with `batch` before it.
    pub(crate) fn made(&self, batch: &[usize]) -> Result<Vec<usize>> {
        let shape = [batch, &self.shape.sizes()].concat();
        check_elements(num_elements(&shape)?)?;
        Ok(shape)
    }

    fn check_shape(&self, value: &Tensor) -> Result<()> {
        if self.shape.ends(value.shape()) {
            return Ok(());
        }
        let detail = format!("shape must end with {}: got {:?}", self.shape, value.shape());
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    }

    fn check_table(&self, name: &str, table: &Tensor, tail: usize) -> Result<()> {
        let cells = self.cell_shape();
        if broadcasts(table, &cells, tail) {
            return Ok(());
        }
        let detail =
            format!("{name} must be of a shape that can be broadcast to {cells}: got {:?}", table.shape());
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    }

    /// Checks that the last dimension has the length of a cell.
    fn check_width(&self, discrete: &Discrete) -> Result<()> {
        let want = if discrete.class.is_one_hot() {
            discrete.count_rows()?[..discrete.num_choices()].iter().sum()
        } else {
            discrete.num_choices()
        };
        if discrete.class.rank() == 0 || self.shape.dims().last() == Some(&Some(want)) {
            return Ok(());
        }
        let detail = format!("the last dimension of shape must be {want}: got {}", self.shape);
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    }

    /// Returns `step` restricted to the cells; `None` if it does not change them.
    fn without_cell(&self, step: &Step) -> Result<Option<Step>> {
        let (rank, cells) = (self.shape.rank(), self.shape.rank() - self.cell_rank());
        let refuse = || {
            let detail = format!("the last dimension of {} must stay as it is: got {step:?}", self.kind());
            Err(Error::new(ErrorKind::OutOfRange, detail))
        };
        // The step itself refuses a dimension out of range, with its own message.
        match step {
            Step::Unsqueeze(dim) if *dim > cells && *dim <= rank => refuse(),
            Step::Squeeze(dim)
            | Step::Select { dim, .. }
            | Step::Slice { dim, .. }
            | Step::Pick { dim, .. }
                if *dim >= cells && *dim < rank =>
            {
                refuse()
            }
            Step::Expand { rank: old, shape } | Step::Reshape { rank: old, shape }
                if *old > cells && *old == rank =>
            {
                let Some((last, front)) = shape.dims().split_last() else { return refuse() };
                if Some(last) != self.shape.dims().last() {
                    return refuse();
                }
                let shape = front.to_vec().into();
                Ok(Some(match step {
                    Step::Expand { .. } => Step::Expand { rank: cells, shape },
                    _ => Step::Reshape { rank: cells, shape },
                }))
            }
            other => Ok(Some(other.clone())),
        }
    }

    /// Returns the number of trailing dimensions that form one cell.
    pub(crate) fn cell_rank(&self) -> usize {
        match &self.space {
            Space::Discrete(discrete) => discrete.class.rank(),
            _ => 0,
        }
    }

    fn cell_shape(&self) -> Shape {
        self.shape.dims()[..self.shape.rank() - self.cell_rank()].to_vec().into()
    }

    fn bounds<T: Copy>(
        &self,
        table: &Tensor,
        value: &Tensor,
        read: fn(&Tensor) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        spread(table, value.shape(), read)
    }
}

impl Space {
    /// Maps every table of the space, given with its number of inner dimensions.
    fn tables(&self, map: impl Fn(&Tensor, usize) -> Result<Tensor>) -> Result<Self> {
        Ok(match self {
            Self::Unbounded => Self::Unbounded,
            Self::Bounded { low, high } => Self::Bounded { low: map(low, 0)?, high: map(high, 0)? },
            Self::Discrete(discrete) => Self::Discrete(Discrete {
                class: discrete.class,
                counts: map(&discrete.counts, 1)?,
                mask: discrete.mask.as_ref().map(|mask| map(mask, 1)).transpose()?,
            }),
        })
    }
}

/// Refuses values of more than [`SPEC_ELEMENTS_MAX`] elements.
pub(crate) fn check_elements(len: usize) -> Result<()> {
    if len <= SPEC_ELEMENTS_MAX {
        return Ok(());
    }
    let detail = format!("a value must have at most {SPEC_ELEMENTS_MAX} elements: got {len}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

fn check_bounds(low: &Tensor, high: &Tensor) -> Result<()> {
    let (long, short) = if low.rank() > high.rank() { (low, high) } else { (high, low) };
    let skip = long.rank() - short.rank();
    let mut shape = long.shape().to_vec();
    for (len, other) in shape[skip..].iter_mut().zip(short.shape()) {
        *len = if *len == 1 { *other } else { *len };
    }
    check_elements(num_elements(&shape)?)?;
    if is_whole(low.dtype()) {
        return check_ordered(&spread(low, &shape, integers)?, &spread(high, &shape, integers)?);
    }
    check_ordered(&spread(low, &shape, floats)?, &spread(high, &shape, floats)?)
}

/// Refuses NaN too, which is not ordered.
fn check_ordered<T: PartialOrd + std::fmt::Display>(low: &[T], high: &[T]) -> Result<()> {
    match low.iter().zip(high).find(|(low, high)| low.partial_cmp(high).is_none_or(std::cmp::Ordering::is_gt))
    {
        Some((low, high)) => {
            let detail = format!("low must be at most high: got {low} and {high}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
        None => Ok(()),
    }
}

fn check_inside<T: PartialOrd + std::fmt::Display>(values: &[T], low: &[T], high: &[T]) -> Result<()> {
    for ((value, low), high) in values.iter().zip(low).zip(high) {
        if !(value >= low && value <= high) {
            let detail = format!("value must be from {low} to {high}: got {value}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
    }
    Ok(())
}

/// Returns one bound for each element of a value of `shape`.
fn spread<T: Copy>(table: &Tensor, shape: &[usize], read: fn(&Tensor) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let table_values = read(table)?;
    Ok(rows(table, shape, 0).into_iter().map(|row| table_values[row]).collect())
}

/// Returns the nearest integers; exact for integers.
fn rounded(value: &Tensor) -> Result<Vec<i64>> {
    if is_whole(value.dtype()) {
        return integers(value);
    }
    Ok(floats(value)?.into_iter().map(|x| x.round_ties_even() as i64).collect())
}

/// Returns a uniform integer from `low` to `high`, both included.
fn between(rng: &mut Rng, low: i64, high: i64) -> Result<i64> {
    let span = high.wrapping_sub(low) as u64;
    let offset = if span == u64::MAX { rng.next_u64() } else { rng.below(span + 1)? };
    Ok(low.wrapping_add(offset as i64))
}

/// Returns a float between bounds, each of which may be infinite.
fn inside(rng: &mut Rng, low: f64, high: f64) -> f64 {
    let exponential = |rng: &mut Rng| -libm::log(1.0 - rng.uniform_f64());
    match (low.is_finite(), high.is_finite()) {
        _ if low == high => low,
        (true, true) => {
            let part = rng.uniform_f64();
            // This form neither overflows nor leaves the bounds.
            (low * (1.0 - part) + high * part).clamp(low, high)
        }
        (true, false) => low + exponential(rng),
        (false, true) => high - exponential(rng),
        (false, false) => rng.normal(),
    }
}

/// Returns the middle of the bounds, the finite one of them, or 0.
fn middle(low: f64, high: f64) -> f64 {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => low / 2.0 + high / 2.0,
        (true, false) => low,
        (false, true) => high,
        (false, false) => 0.0,
    }
}

/// Returns the counts of choices as a table.
pub(crate) fn counts_of(counts: &[usize]) -> Result<Tensor> {
    of_integers(
        Dtype::I64,
        &[counts.len()],
        counts.iter().map(|count| i64::try_from(*count).unwrap_or(i64::MAX)).collect(),
    )
}

/// Returns the class and choices of a discrete leaf.
pub(crate) fn discrete(class: Class, counts: Tensor, mask: Option<Tensor>) -> Space {
    Space::Discrete(Discrete { class, counts, mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_at_most_so_many_elements() {
        assert!(check_elements(SPEC_ELEMENTS_MAX).is_ok());
        assert_eq!(check_elements(SPEC_ELEMENTS_MAX + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}

//! Discrete domains: one cell of a value is a few choices, each encoded as an index or as a one-hot block.

use fulmar_core::limits::{SPEC_ELEMENTS_MAX, SPEC_VALUES_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng};
use fulmar_tensor::Tensor;

use crate::number::{exact_max, integers};
use crate::step::rows;

/// The encoding of a cell's choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// One index; the cell has no dimension.
    Categorical,
    /// 0 or 1 for each element. Enumeration treats the last dimension as one cell.
    Binary,
    /// One block with a single 1, along the last dimension.
    OneHot,
    /// One index for each choice, along the last dimension.
    MultiCategorical,
    /// One block for each choice, concatenated along the last dimension.
    MultiOneHot,
}

impl Class {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Categorical => "Categorical",
            Self::Binary => "Binary",
            Self::OneHot => "OneHot",
            Self::MultiCategorical => "MultiCategorical",
            Self::MultiOneHot => "MultiOneHot",
        }
    }

    /// Returns the number of trailing dimensions that form one cell.
    pub const fn rank(self) -> usize {
        !matches!(self, Self::Categorical | Self::Binary) as usize
    }

    pub const fn is_one_hot(self) -> bool {
        matches!(self, Self::OneHot | Self::MultiOneHot)
    }

    /// Returns the class of the same choices as indices.
    pub const fn indexed(self) -> Self {
        match self {
            Self::OneHot => Self::Categorical,
            Self::MultiOneHot => Self::MultiCategorical,
            other => other,
        }
    }

    /// Returns the class of the same choices as one-hot blocks.
    pub const fn one_hot(self) -> Self {
        match self {
            Self::Categorical | Self::Binary => Self::OneHot,
            Self::MultiCategorical => Self::MultiOneHot,
            other => other,
        }
    }
}

/// The choices of a discrete spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Discrete {
    pub class: Class,
    /// The number of values of each choice of a cell: 64-bit integers, broadcast over the cells.
    pub counts: Tensor,
    /// The allowed values, with all choices of a cell concatenated; broadcast over the cells.
    pub mask: Option<Tensor>,
}

/// The choices of one cell.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    pub class: Class,
    pub counts: &'a [usize],
    pub mask: Option<&'a [bool]>,
}

impl Discrete {
    /// Returns the number of choices in one cell.
    pub fn num_choices(&self) -> usize {
        self.counts.shape().last().copied().unwrap_or(1)
    }

    /// Runs `each` over the cells of a value whose batch is `sizes`.
    pub fn each(&self, sizes: &[usize], mut each: impl FnMut(usize, Cell<'_>) -> Result<()>) -> Result<()> {
        let counts = self.count_rows()?;
        let choices = self.num_choices();
        let mask = self.mask.as_ref().map(Tensor::to_vec::<bool>).transpose()?;
        let mask_len = self.mask.as_ref().and_then(|mask| mask.shape().last().copied()).unwrap_or(0);
        let mask_rows = self.mask.as_ref().map(|mask| rows(mask, sizes, 1));
        for (cell, row) in rows(&self.counts, sizes, 1).into_iter().enumerate() {
            let mask = mask
                .as_ref()
                .zip(mask_rows.as_ref())
                .map(|(mask, rows)| &mask[rows[cell] * mask_len..][..mask_len]);
            each(cell, Cell { class: self.class, counts: &counts[row * choices..][..choices], mask })?;
        }
        Ok(())
    }

    /// Returns the number of values of each choice, row-major.
    pub fn count_rows(&self) -> Result<Vec<usize>> {
        Ok(integers(&self.counts)?.into_iter().map(|count| usize::try_from(count).unwrap_or(0)).collect())
    }
}

impl Cell<'_> {
    /// Returns the choices in `cell`, or the violated rule.
    pub fn read(&self, cell: &[f64]) -> std::result::Result<Vec<usize>, String> {
        let mut start = 0;
        let mut from = 0;
        let mut choices = Vec::with_capacity(self.counts.len());
        for (choice, count) in self.counts.iter().enumerate() {
            let value = if self.class.is_one_hot() {
                let block = &cell[from..from + count];
                from += count;
                hot(block)
                    .ok_or_else(|| format!("must hold one 1 in each block of {count}: got {block:?}"))?
            } else {
                let value = cell[choice];
                let whole = value >= 0.0 && value < *count as f64 && value.trunc() == value;
                whole
                    .then_some(value as usize)
                    .ok_or_else(|| format!("must be an integer in 0..{count}: got {value}"))?
            };
            if self.mask.is_some_and(|mask| !mask[start + value]) {
                return Err(format!("must be a value that the mask allows: got {value}"));
            }
            choices.push(value);
            start += count;
        }
        Ok(choices)
    }

    /// Returns the allowed choices nearest to `cell`: the largest element of a block, the nearest index; ties
    /// by the first.
    pub fn nearest(&self, cell: &[f64]) -> Vec<usize> {
        let (mut start, mut from) = (0, 0);
        let mut choices = Vec::with_capacity(self.counts.len());
        for (choice, count) in self.counts.iter().enumerate() {
            if self.mask.is_none() && !self.class.is_one_hot() {
                let last = count.saturating_sub(1);
                choices.push((cell[choice].round_ties_even().max(0.0) as usize).min(last));
                continue;
            }
            let score = |value: &usize| {
                if self.class.is_one_hot() {
                    cell[from + value]
                } else {
                    -(*value as f64 - cell[choice].round_ties_even()).abs()
                }
            };
            let mut best = None;
            for value in (0..*count).filter(|value| self.mask.is_none_or(|mask| mask[start + value])) {
                let score = score(&value);
                let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
                if best.is_none_or(|(_, highest)| score > highest) {
                    best = Some((value, score));
                }
            }
            choices.push(best.map_or(0, |(value, _)| value));
            start += count;
            from += count;
        }
        choices
    }

    /// Draws every choice uniformly from the allowed values.
    pub fn draw(&self, rng: &mut Rng) -> Result<Vec<usize>> {
        let mut start = 0;
        let mut choices = Vec::with_capacity(self.counts.len());
        for count in self.counts {
            let value = match self.mask {
                None => rng.below(*count as u64)? as usize,
                Some(mask) => {
                    let allowed: Vec<usize> = (0..*count).filter(|value| mask[start + value]).collect();
                    allowed[rng.below(allowed.len() as u64)? as usize]
                }
            };
            choices.push(value);
            start += count;
        }
        Ok(choices)
    }

    /// Appends `choices` to `out`.
    pub fn write(&self, choices: &[usize], out: &mut Vec<f64>) {
        for (value, count) in choices.iter().zip(self.counts) {
            if self.class.is_one_hot() {
                out.extend((0..*count).map(|at| f64::from(u8::from(at == *value))));
            } else {
                out.push(*value as f64);
            }
        }
    }
}

/// Refuses invalid choices: counts of 0 or past [`SPEC_VALUES_MAX`], masks of another shape or without an
/// allowed value.
pub fn check_choices(discrete: &Discrete) -> Result<()> {
    let counts = integers(&discrete.counts)?;
    let refused = |count: &&i64| !(1..=SPEC_VALUES_MAX).contains(*count);
    if let Some(count) = counts.iter().find(refused) {
        let detail = format!("n must be an integer from 1 to {SPEC_VALUES_MAX}: got {count}");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if counts.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "nvec must hold at least one count: got 0"));
    }
    let totals: Vec<i64> = counts.chunks(discrete.num_choices()).map(sum).collect();
    if discrete.class.is_one_hot()
        && totals.iter().any(|total| *total != totals[0] || *total > SPEC_ELEMENTS_MAX as i64)
    {
        let detail =
            format!("blocks must be of one length in all cells, at most {SPEC_ELEMENTS_MAX}: got {totals:?}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let Some(mask) = &discrete.mask else { return Ok(()) };
    if counts.len() != discrete.num_choices() {
        let detail = "nvec must be one list for all cells where there is a mask: got nested lists";
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    if mask.dtype() != Dtype::Bool || mask.shape().last().map(|len| *len as i64) != Some(totals[0]) {
        let (dtype, shape) = (mask.dtype().name(), mask.shape());
        let detail = format!(
            "mask must be bools whose last dimension is {} long: got {dtype} of shape {shape:?}",
            totals[0]
        );
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let mask = mask.to_vec::<bool>()?;
    let mut at = mask.as_slice();
    for count in counts.iter().cycle() {
        if at.is_empty() {
            break;
        }
        let (block, rest) = at.split_at(*count as usize);
        if !block.contains(&true) {
            let detail = "mask must allow at least one value of each choice: got a block without one";
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        at = rest;
    }
    Ok(())
}

/// Refuses counts whose last index `dtype` would round.
pub fn check_exact(discrete: &Discrete, dtype: Dtype) -> Result<()> {
    // Blocks hold 0 and 1, which every dtype has.
    if discrete.class.is_one_hot() || discrete.class == Class::Binary {
        return Ok(());
    }
    let last = exact_max(dtype);
    match integers(&discrete.counts)?.into_iter().find(|count| *count - 1 > last) {
        Some(count) => {
            let detail = format!(
                "n must be at most {}, as {} holds no other integers exactly: got {count}",
                last + 1,
                dtype.name()
            );
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
        None => Ok(()),
    }
}

fn sum(counts: &[i64]) -> i64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Returns the position of the only 1 among zeros.
fn hot(block: &[f64]) -> Option<usize> {
    let at = block.iter().position(|value| *value == 1.0)?;
    block.iter().enumerate().all(|(index, value)| index == at || *value == 0.0).then_some(at)
}

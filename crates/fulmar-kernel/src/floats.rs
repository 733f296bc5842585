//! Weights in single precision, or in bfloat16 for half the memory. Sums use single precision either way.

use std::borrow::Cow;
use std::ops::Range;

use half::bf16;

use crate::parallel::for_rows;

/// Borrowed numbers of either type.
///
/// # Examples
/// ```
/// use fulmar_kernel::Floats;
/// let stored = Floats::from(&[half::bf16::ONE, half::bf16::ZERO][..]);
/// assert_eq!(stored.slice(0..1).to_f32(), [1.0].as_slice());
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Floats<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// bfloat16.
    Bf16(&'a [bf16]),
}

impl<'a> Floats<'a> {
    /// Returns the number of elements.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the elements of a range.
    ///
    /// # Panics
    /// If the range ends past the last element.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(&values[range]),
            Self::Bf16(values) => Self::Bf16(&values[range]),
        }
    }

    /// Returns the numbers in single precision, which represents each exactly: borrowed if they are, else
    /// copied.
    #[must_use]
    pub fn to_f32(self) -> Cow<'a, [f32]> {
        match self {
            Self::F32(values) => Cow::Borrowed(values),
            Self::Bf16(values) => {
                let mut wide = vec![0.0; values.len()];
                bf16_to_f32(values, &mut wide);
                Cow::Owned(wide)
            }
        }
    }

    /// Writes the numbers to `out` in single precision.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn copy_to(self, out: &mut [f32]) {
        match self {
            Self::F32(values) => out.copy_from_slice(values),
            Self::Bf16(values) => bf16_to_f32(values, out),
        }
    }
}

impl<'a> From<&'a [f32]> for Floats<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a [bf16]> for Floats<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Self::Bf16(values)
    }
}

/// Writes each number in single precision, which represents it exactly.
///
/// # Panics
/// If the lengths disagree.
pub fn bf16_to_f32(from: &[bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "lengths must agree");
    for_rows(to, 1, |first, to| {
        for (to, from) in to.iter_mut().zip(&from[first..]) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    });
}

/// Rounds each number to the nearest bfloat16, ties to even. Numbers above the largest become infinite.
///
/// # Panics
/// If the lengths disagree.
pub fn f32_to_bf16(from: &[f32], to: &mut [bf16]) {
    assert_eq!(from.len(), to.len(), "lengths must agree");
    for_rows(to, 1, |first, to| {
        for (to, from) in to.iter_mut().zip(&from[first..]) {
            *to = bf16::from_f32(*from);
        }
    });
}

/// Overwrites each number of `to` that does not round to its counterpart in `from`; the others stay.
///
/// # Panics
/// If the lengths disagree.
pub fn take_other_bf16(from: &[bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "lengths must agree");
    for_rows(to, 1, |first, to| {
        for (to, from) in to.iter_mut().zip(&from[first..]) {
            if bf16::from_f32(*to).to_bits() != from.to_bits() {
                *to = from.to_f32();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;

    #[test]
    fn what_is_widened_rounds_back_to_itself() {
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).filter(|value| !value.is_nan()).collect();
        let wide = Floats::from(&all[..]).to_f32();
        assert!(wide.iter().zip(&all).all(|(wide, value)| wide.to_bits() == value.to_f32().to_bits()));
        let mut back = vec![bf16::ZERO; all.len()];
        f32_to_bf16(&wide, &mut back);
        assert!(back.iter().zip(&all).all(|(back, value)| back.to_bits() == value.to_bits()));
    }

    #[test]
    fn a_number_rounds_to_the_nearest_and_halfway_to_the_even_one() {
        let values = [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 1.0 + 1.1 / 256.0, -0.0, f32::MAX];
        let mut rounded = [bf16::ZERO; 5];
        f32_to_bf16(&values, &mut rounded);
        assert_eq!(
            rounded.map(bf16::to_f32),
            [1.0, 1.0 + 1.0 / 64.0, 1.0 + 1.0 / 128.0, -0.0, f32::INFINITY]
        );
        for value in random(1, 1000) {
            let mut found = [bf16::ZERO];
            f32_to_bf16(&[value], &mut found);
            assert!((found[0].to_f32() - value).abs() <= value.abs() / 256.0, "{value}");
        }
    }

    #[test]
    fn only_what_does_not_round_to_the_other_is_taken() {
        let mut wide = [1.001, 1.001, -0.0];
        take_other_bf16(&[bf16::ONE, bf16::from_f32(2.0), bf16::ZERO], &mut wide);
        assert_eq!(wide.map(f32::to_bits), [1.001_f32, 2.0, 0.0].map(f32::to_bits));
    }

    #[test]
    fn a_slice_is_of_the_same_width() {
        let values = random(2, 5);
        assert_eq!(Floats::from(&values[..]).slice(1..3).to_f32(), &values[1..3]);
        let mut halves = vec![bf16::ZERO; 5];
        f32_to_bf16(&values, &mut halves);
        let part = Floats::from(&halves[..]).slice(4..5);
        assert_eq!((part.len(), part.is_empty()), (1, false));
        assert_eq!(part.to_f32()[0], halves[4].to_f32());
    }
}

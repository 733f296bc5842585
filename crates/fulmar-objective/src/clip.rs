//! The range of the ratio `r = p / p_old` outside which its gradient is 0.

use std::fmt;

use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

/// The clip range `[1 - low, 1 + high]`. In JSON a number (both sides) or a pair `[low, high]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// The lower distance, in `[0, 1)`.
    pub low: f64,
    /// The upper distance, at least 0.
    pub high: f64,
}

impl Default for Clip {
    fn default() -> Self {
        Self::symmetric(0.2)
    }
}

impl Clip {
    /// Returns a range with the same distance on both sides.
    #[must_use]
    pub const fn symmetric(epsilon: f64) -> Self {
        Self { low: epsilon, high: epsilon }
    }

    pub(crate) fn checked(self) -> Result<Self> {
        if !(0.0..1.0).contains(&self.low) {
            return Err(out_of_range("clipEpsilon low must be in [0, 1)", self.low));
        }
        if !(self.high.is_finite() && self.high >= 0.0) {
            return Err(out_of_range("clipEpsilon high must be a finite number >= 0", self.high));
        }
        Ok(self)
    }
}

/// Returns an `OutOfRange` error about one number.
pub(crate) fn out_of_range(rule: &str, value: f64) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("{rule}: got {value}"))
}

impl<'de> Deserialize<'de> for Clip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(ClipVisitor)
    }
}

struct ClipVisitor;

impl<'de> Visitor<'de> for ClipVisitor {
    type Value = Clip;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a pair [low, high]")
    }

    fn visit_f64<E>(self, epsilon: f64) -> std::result::Result<Clip, E> {
        Ok(Clip::symmetric(epsilon))
    }

    fn visit_i64<E>(self, epsilon: i64) -> std::result::Result<Clip, E> {
        Ok(Clip::symmetric(epsilon as f64))
    }

    fn visit_u64<E>(self, epsilon: u64) -> std::result::Result<Clip, E> {
        Ok(Clip::symmetric(epsilon as f64))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> std::result::Result<Clip, A::Error> {
        let mut side = |index| {
            pair.next_element()?.ok_or_else(|| serde::de::Error::invalid_length(index, &"a pair [low, high]"))
        };
        let clip = Clip { low: side(0)?, high: side(1)? };
        match pair.next_element::<f64>()? {
            None => Ok(clip),
            Some(_) => Err(serde::de::Error::invalid_length(3, &"a pair [low, high]")),
        }
    }
}

//! Padded rows as ragged sequences for a decoder. Padding is removed before the computation and comes back as
//! 0.

use fulmar_core::{Error, ErrorKind, Result};

use crate::packing::TokenBatch;

/// `B` rows of `width` tokens each, padded at the left, the right or both.
#[derive(Debug, Clone, Copy)]
pub struct PaddedTokenBatch<'a> {
    /// Token ids `[B, width]`; ids in padding are ignored.
    pub ids: &'a [u32],
    /// `[B, width]`: 1 for tokens, 0 for padding.
    pub attention_mask: &'a [u8],
    /// `[B, width]`: 1 where the log-prob of that token is wanted, else 0. Never padding, never a row's first token.
    pub mask: &'a [u8],
    /// `[B, width]`: the position of each token, as in [`TokenBatch::positions`]; counted from each row's
    /// first token if absent.
    pub positions: Option<&'a [u32]>,
    /// Number of tokens in a row, padding included.
    pub width: usize,
}

/// The tokens of a [`PaddedTokenBatch`] without its padding, and their places in it.
///
/// # Examples
/// ```
/// use fulmar_model::{PaddedTokenBatch, UnpaddedTokenBatch};
/// let padded = PaddedTokenBatch {
///     ids: &[0, 5, 6, 7, 8, 0],
///     attention_mask: &[0, 1, 1, 1, 1, 0],
///     mask: &[0, 0, 1, 0, 1, 0],
///     positions: None,
///     width: 3,
/// };
/// let unpadded = UnpaddedTokenBatch::new(&padded)?;
/// let batch = unpadded.batch();
/// assert_eq!((batch.ids, batch.offsets, batch.mask), (&[5, 6, 7, 8][..], &[0, 2, 4][..], &[0, 1, 0, 1][..]));
/// assert_eq!(unpadded.pad(&[0.0, -1.5, 0.0, -2.5])?, [0.0, 0.0, -1.5, 0.0, -2.5, 0.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpaddedTokenBatch {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
    positions: Option<Vec<u32>>,
    /// The place of each token in the padded rows.
    places: Vec<u32>,
    padded_len: usize,
}

impl UnpaddedTokenBatch {
    /// Removes the padding of `padded`.
    ///
    /// # Errors
    /// `Empty` without rows; `ShapeMismatch` if lengths disagree; `OutOfRange` for a mask that includes
    /// padding. [`TokenBatch::check`] refuses other invalid batches.
    pub fn new(padded: &PaddedTokenBatch<'_>) -> Result<Self> {
        padded.check()?;
        let mut batch = Self {
            ids: Vec::new(),
            offsets: vec![0],
            mask: Vec::new(),
            positions: padded.positions.map(|_| Vec::new()),
            places: Vec::new(),
            padded_len: padded.ids.len(),
        };
        for row in 0..padded.ids.len() / padded.width {
            let places = row * padded.width..(row + 1) * padded.width;
            for place in places.filter(|&place| padded.attention_mask[place] != 0) {
                batch.ids.push(padded.ids[place]);
                batch.mask.push(padded.mask[place]);
                batch.places.push(place as u32);
                if let (Some(all), Some(given)) = (&mut batch.positions, padded.positions) {
                    all.push(given[place]);
                }
            }
            batch.offsets.push(batch.ids.len() as u32);
        }
        Ok(batch)
    }

    /// Returns the sequences, one for each row.
    #[must_use]
    pub fn batch(&self) -> TokenBatch<'_> {
        let positions = self.positions.as_deref();
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions }
    }

    /// Returns one value a token as `[B, width]`, 0 in padding.
    ///
    /// # Errors
    /// `ShapeMismatch` for another number of values.
    pub fn pad(&self, values: &[f32]) -> Result<Vec<f32>> {
        check_len("values", values.len(), self.ids.len())?;
        let mut padded = vec![0.0; self.padded_len];
        for (place, value) in self.places.iter().zip(values) {
            padded[*place as usize] = *value;
        }
        Ok(padded)
    }

    /// Inverts [`UnpaddedTokenBatch::pad`]: returns one value a token from `[B, width]`.
    ///
    /// # Errors
    /// `ShapeMismatch` for another number of values.
    pub fn unpad(&self, padded: &[f32]) -> Result<Vec<f32>> {
        check_len("padded", padded.len(), self.padded_len)?;
        Ok(self.places.iter().map(|place| padded[*place as usize]).collect())
    }
}

impl PaddedTokenBatch<'_> {
    fn check(&self) -> Result<()> {
        let len = self.ids.len();
        if len == 0 || self.width == 0 {
            return Err(Error::new(ErrorKind::Empty, "ids must hold at least one row: got 0"));
        }
        if !len.is_multiple_of(self.width) || len > u32::MAX as usize {
            let detail = format!("ids must hold rows of {} tokens: got {len}", self.width);
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        check_len("attention_mask", self.attention_mask.len(), len)?;
        check_len("mask", self.mask.len(), len)?;
        check_len("positions", self.positions.map_or(len, <[u32]>::len), len)?;
        match (0..len).find(|&place| self.mask[place] != 0 && self.attention_mask[place] == 0) {
            None => Ok(()),
            Some(place) => {
                let detail = format!("mask must be 0 in padding: got {} at {place}", self.mask[place]);
                Err(Error::new(ErrorKind::OutOfRange, detail))
            }
        }
    }
}

fn check_len(name: &str, len: usize, expected: usize) -> Result<()> {
    if len == expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::ShapeMismatch, format!("{name} must hold {expected} values: got {len}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_on_either_side_and_whole_rows_of_it_are_left_out_and_come_back_as_zeros() {
        let attention_mask = [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0];
        let ids: Vec<u32> = (0..16).collect();
        let positions: Vec<u32> = (100..116).collect();
        let mask: Vec<u8> = (0..16).map(|place| u8::from([3, 5, 14].contains(&place))).collect();
        let padded = PaddedTokenBatch {
            ids: &ids,
            attention_mask: &attention_mask,
            mask: &mask,
            positions: Some(&positions),
            width: 4,
        };
        let unpadded = UnpaddedTokenBatch::new(&padded).unwrap();
        let batch = unpadded.batch();
        assert_eq!(batch.ids, [2, 3, 4, 5, 13, 14]);
        assert_eq!(batch.offsets, [0, 2, 4, 4, 6]);
        assert_eq!(batch.mask, [0, 1, 0, 1, 0, 1]);
        assert_eq!(batch.positions, Some(&[102, 103, 104, 105, 113, 114][..]));
        let values: Vec<f32> = (1..=6).map(|value| value as f32).collect();
        assert_eq!(unpadded.unpad(&unpadded.pad(&values).unwrap()).unwrap(), values);
        assert_eq!(unpadded.pad(&values[..5]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
        assert_eq!(unpadded.unpad(&values).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    }

    #[test]
    fn bad_rows_are_refused_with_the_argument() {
        let ok = PaddedTokenBatch {
            ids: &[1, 2, 3, 4],
            attention_mask: &[1, 1, 1, 0],
            mask: &[0, 1, 0, 0],
            positions: None,
            width: 2,
        };
        assert!(UnpaddedTokenBatch::new(&ok).is_ok());
        let cases = [
            (PaddedTokenBatch { ids: &[], ..ok }, ErrorKind::Empty),
            (PaddedTokenBatch { width: 0, ..ok }, ErrorKind::Empty),
            (PaddedTokenBatch { width: 3, ..ok }, ErrorKind::ShapeMismatch),
            (PaddedTokenBatch { mask: &[0, 1], ..ok }, ErrorKind::ShapeMismatch),
            (PaddedTokenBatch { attention_mask: &[1], ..ok }, ErrorKind::ShapeMismatch),
            (PaddedTokenBatch { positions: Some(&[1]), ..ok }, ErrorKind::ShapeMismatch),
            (PaddedTokenBatch { mask: &[0, 0, 0, 1], ..ok }, ErrorKind::OutOfRange),
        ];
        for (padded, kind) in cases {
            assert_eq!(UnpaddedTokenBatch::new(&padded).unwrap_err().kind(), kind);
        }
    }
}

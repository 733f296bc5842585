//! Golden rows of several sequences, as losses take them.

use crate::rows::lines;
use serde_json::Value;

/// Where each sequence of `[S, T]` begins once they stand one after another, and where the last ends.
pub fn offsets_of(value: &Value) -> Vec<u32> {
    let mut offsets = vec![0];
    for sequence in lines(value) {
        offsets.push(offsets[offsets.len() - 1] + lines(sequence).len() as u32);
    }
    offsets
}

/// A mask of numbers as one of bytes.
pub fn bits(values: &[f64]) -> Vec<u8> {
    values.iter().map(|&bit| bit as u8).collect()
}

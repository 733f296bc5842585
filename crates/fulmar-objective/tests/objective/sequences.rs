//! Golden rows of several sequences, in the layout of losses.

use crate::rows::lines;
use serde_json::Value;

/// Returns the start of each sequence of `[S, T]` once concatenated, and the end of the last.
pub fn offsets_of(value: &Value) -> Vec<u32> {
    let mut offsets = vec![0];
    for sequence in lines(value) {
        offsets.push(offsets[offsets.len() - 1] + lines(sequence).len() as u32);
    }
    offsets
}

/// Converts a mask of numbers to bytes.
pub fn bits(values: &[f64]) -> Vec<u8> {
    values.iter().map(|&bit| bit as u8).collect()
}

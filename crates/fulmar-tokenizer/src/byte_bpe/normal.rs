//! Normalisation to NFC with the mapping from each byte of the result to bytes of the original.
//!
//! Both the composition (Unicode 9) and the mapping follow Hugging Face's crate: a composed character maps to
//! the first character that it was composed of, the others map to nothing.

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Below this, every character is a starter that never changes.
const FIRST_CHANGING: u8 = 0xCC;

/// A text in NFC and, for each of its bytes, the byte range of its character in the original.
#[derive(Debug)]
pub struct Normal {
    /// The text in NFC.
    pub text: String,
    ranges: Vec<[u32; 2]>,
}

impl Normal {
    /// Returns the normal form of `text`; `None` if it certainly equals `text`.
    pub fn of(text: &str) -> Option<Self> {
        let is_low = text.bytes().all(|byte| byte < FIRST_CHANGING);
        if is_low || is_nfc_quick(text.chars()) == IsNormalized::Yes {
            return None;
        }
        let mut original = text.char_indices();
        let mut normal =
            Self { text: String::with_capacity(text.len()), ranges: Vec::with_capacity(text.len()) };
        let mut latest = [0, 0];
        let mut range = [0, 0];
        for (character, change) in text.nfc() {
            if change > 0 {
                range = latest;
            } else {
                for index in 0..=change.unsigned_abs() {
                    let Some((start, removed)) = original.next() else { break };
                    latest = [start as u32, (start + removed.len_utf8()) as u32];
                    if index == 0 {
                        range = latest;
                    }
                }
            }
            normal.text.push(character);
            normal.ranges.resize(normal.text.len(), range);
        }
        Some(normal)
    }

    /// Returns the bytes of the original for the bytes `[start, end)` of the normal text; `start < end`.
    pub fn original(&self, [start, end]: [u32; 2]) -> [u32; 2] {
        [self.ranges[start as usize][0], self.ranges[end as usize - 1][1]]
    }
}

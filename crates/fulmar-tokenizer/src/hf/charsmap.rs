//! Checks SentencePiece's table of replacements, `precompiled_charsmap`, before use.
//!
//! The crate that walks the table trusts every index in it, so a broken table would fail only when some text
//! reaches the broken entry. The walk below visits every entry that any text can reach.
//!
//! ```text
//! table = u32 bytes of trie | trie: u32 little-endian ... | replacements, each ended by a zero byte
//! unit  = bits 0-7 and 31 label | bit 8 has a leaf | bits 10-30, shifted left by 8 if bit 9, offset
//! child of the unit that arrived at place p, by byte b = unit[p ^ b], if its label is b
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fulmar_core::{Error, ErrorKind};

use crate::Result;

/// Returns the largest factor by which the table in this base64 text lengthens a text, at least 1.
///
/// # Errors
/// `Corrupt` if some text would make the walk leave the table.
pub fn check_charsmap(base64: &str) -> Result<f64> {
    let bytes = STANDARD.decode(base64).map_err(|_| corrupt("be base64"))?;
    let (size, rest) = bytes.split_first_chunk().ok_or_else(|| corrupt("hold the size of its trie"))?;
    let num_bytes = u32::from_le_bytes(*size) as usize / 4 * 4;
    let (trie, replacements) =
        rest.split_at_checked(num_bytes).ok_or_else(|| corrupt("hold its whole trie"))?;
    let units: Vec<u32> = trie.as_chunks().0.iter().map(|&unit| u32::from_le_bytes(unit)).collect();
    let replacements = std::str::from_utf8(replacements).map_err(|_| corrupt("replace by UTF-8"))?;
    growth(&units, replacements).ok_or_else(|| corrupt("lead to no place outside of it"))
}

fn growth(units: &[u32], replacements: &str) -> Option<f64> {
    let mut most: f64 = 1.0;
    let mut is_seen = vec![false; units.len()];
    let mut places = vec![(offset(*units.first()?), 0)];
    while let Some((place, depth)) = places.pop() {
        if std::mem::replace(is_seen.get_mut(place)?, true) {
            continue;
        }
        for byte in 1..=255_usize {
            let unit = *units.get(place ^ byte)?;
            if (unit & (1 << 31 | 0xFF)) as usize != byte {
                continue;
            }
            let child = place ^ byte ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let index = *units.get(child)? & ((1 << 31) - 1);
                let replacement = replacements.get(index as usize..)?.split('\0').next()?;
                most = most.max(replacement.len() as f64 / (depth + 1) as f64);
            }
            places.push((child, depth + 1));
        }
    }
    Some(most)
}

const fn offset(unit: u32) -> usize {
    (unit as usize >> 10) << ((unit as usize & 1 << 9) >> 6)
}

fn corrupt(rule: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("precompiled_charsmap must {rule}, and this one does not"))
}

//! Lengths in UTF-16, the unit of JavaScript.

/// Returns the length of `text` in UTF-16: every byte that begins a character is one unit, and a second one if the character has
/// four bytes.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_core::num_utf16_units("aß😀"), 4);
/// ```
#[must_use]
pub fn num_utf16_units(text: &str) -> usize {
    let units = |bytes: &[u8]| -> u8 {
        bytes.iter().map(|byte| u8::from(byte & 0xc0 != 0x80) + u8::from(*byte >= 0xf0)).sum()
    };
    // The sum of 64 bytes fits into one byte, so the compiler adds many at a time.
    let (blocks, rest) = text.as_bytes().as_chunks::<64>();
    blocks.iter().map(|block| usize::from(units(block))).sum::<usize>() + usize::from(units(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_utf16() {
        for piece in ["", "a", "\u{7f}\u{80}", "\u{7ff}\u{800}", "\u{ffff}", "\u{10000}\u{10ffff}", "aß日😀"]
        {
            for count in [1, 7, 40] {
                let text = piece.repeat(count);
                assert_eq!(num_utf16_units(&text), text.encode_utf16().count(), "{count} x {piece:?}");
            }
        }
    }
}

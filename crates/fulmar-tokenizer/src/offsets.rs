//! Positions in a text, counted in bytes, code points or UTF-16 code units.

use fulmar_core::{Error, ErrorKind};

use crate::Result;

/// The unit of [`crate::Encoding::offsets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OffsetUnit {
    /// Bytes of UTF-8, as Rust indexes strings.
    Bytes,
    /// Unicode scalars, as Python indexes strings.
    CodePoints,
    /// UTF-16 code units, as JavaScript indexes strings.
    Utf16,
}

impl OffsetUnit {
    /// Returns the unit called `name`: `"bytes"`, `"codePoints"` or `"utf16"`.
    ///
    /// # Errors
    /// `UnknownName` for any other name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "bytes" => Ok(Self::Bytes),
            "codePoints" => Ok(Self::CodePoints),
            "utf16" => Ok(Self::Utf16),
            _ => {
                let detail = format!("unit must be \"bytes\", \"codePoints\" or \"utf16\": got {name:?}");
                Err(Error::new(ErrorKind::UnknownName, detail))
            }
        }
    }

    /// Converts `offsets`, positions in `text` in bytes and in any order, to this unit. Time and memory are
    /// linear in the text, whatever the order of the offsets.
    ///
    /// # Errors
    /// `OutOfRange` if an offset is past the end of `text` or inside a character; `offsets` are unchanged
    /// then.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tokenizer::OffsetUnit;
    /// let mut offsets = [0, 1, 5, 7];
    /// OffsetUnit::Utf16.convert("a🐈é", &mut offsets)?;
    /// assert_eq!(offsets, [0, 1, 3, 4]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn convert(self, text: &str, offsets: &mut [u32]) -> Result<()> {
        if let Some(&offset) = offsets.iter().find(|&&offset| !text.is_char_boundary(offset as usize)) {
            let detail = format!("offsets must be places between characters of the text: got {offset}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        if self == Self::Bytes || text.is_ascii() {
            return Ok(());
        }
        let counts = self.counts(text);
        for offset in offsets {
            *offset = counts[*offset as usize];
        }
        Ok(())
    }

    /// Returns for each byte of `text`, and for its end, the number of units before it.
    fn counts(self, text: &str) -> Vec<u32> {
        let mut counts = Vec::with_capacity(text.len() + 1);
        let mut count = 0;
        for character in text.chars() {
            counts.resize(counts.len() + character.len_utf8(), count);
            count += if self == Self::Utf16 { character.len_utf16() as u32 } else { 1 };
        }
        counts.push(count);
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_known_by_name() {
        for (name, unit) in [
            ("bytes", OffsetUnit::Bytes),
            ("codePoints", OffsetUnit::CodePoints),
            ("utf16", OffsetUnit::Utf16),
        ] {
            assert_eq!(OffsetUnit::parse(name), Ok(unit));
        }
        assert_eq!(OffsetUnit::parse("utf8").unwrap_err().kind(), ErrorKind::UnknownName);
    }

    #[test]
    fn places_that_are_no_places_are_refused() {
        for (text, offset) in [("é", 1), ("a", 2), ("", 1), ("abc", 4)] {
            let mut offsets = [0, offset];
            let error = OffsetUnit::CodePoints.convert(text, &mut offsets).unwrap_err();
            assert_eq!((error.kind(), offsets), (ErrorKind::OutOfRange, [0, offset]));
        }
    }

    proptest! {
        #[test]
        fn every_place_is_counted_as_the_text_before_it(text in any::<String>(), backwards in any::<bool>()) {
            let mut places: Vec<u32> = text.char_indices().map(|(start, _)| start as u32).collect();
            places.push(text.len() as u32);
            if backwards { places.reverse(); }
            let before = |place: &u32| &text[..*place as usize];
            let mut points = places.clone();
            OffsetUnit::CodePoints.convert(&text, &mut points).unwrap();
            prop_assert_eq!(points, places.iter().map(|place| before(place).chars().count() as u32).collect::<Vec<_>>());
            let mut utf16 = places.clone();
            OffsetUnit::Utf16.convert(&text, &mut utf16).unwrap();
            prop_assert_eq!(utf16, places.iter().map(|place| before(place).encode_utf16().count() as u32).collect::<Vec<_>>());
        }
    }
}

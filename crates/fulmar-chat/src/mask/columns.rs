//! Rendered tokens as plain columns, the form in other languages.

use fulmar_core::{Error, ErrorKind};

use crate::{Origin, Rendered, Result};

/// The columns of a [`Rendered`], each `[T]`; masks hold 0 or 1, `origins` the codes of [`Origin`].
#[derive(Debug, Clone, Copy)]
pub struct RenderedColumns<'a> {
    /// Token ids.
    pub ids: &'a [u32],
    /// The message of each token.
    pub message_indices: &'a [i32],
    /// 1 if an assistant samples the token.
    pub sampled_mask: &'a [u8],
    /// 1 if the token is text of its message.
    pub is_content: &'a [u8],
    /// The code of its origin.
    pub origins: &'a [u8],
}

impl RenderedColumns<'_> {
    /// Reads the tokens in the columns.
    ///
    /// # Errors
    /// `ShapeMismatch` if lengths differ; `OutOfRange` for an unknown code of an origin.
    pub fn read(&self) -> Result<Rendered> {
        let num_ids = self.ids.len();
        let lengths = [
            ("messageIndices", self.message_indices.len()),
            ("sampledMask", self.sampled_mask.len()),
            ("isContent", self.is_content.len()),
            ("origins", self.origins.len()),
        ];
        if let Some((name, length)) = lengths.into_iter().find(|(_, length)| *length != num_ids) {
            let detail = format!("{name} must be as long as ids, {num_ids}: got {length}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let bits = |bytes: &[u8]| bytes.iter().map(|byte| *byte != 0).collect();
        Ok(Rendered {
            ids: self.ids.to_vec(),
            message_index: self.message_indices.to_vec(),
            sampled_mask: bits(self.sampled_mask),
            is_content: bits(self.is_content),
            origin: Origin::from_codes(self.origins)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_one_length_and_known_codes_are_read() {
        let columns = RenderedColumns {
            ids: &[7, 8],
            message_indices: &[0, -1],
            sampled_mask: &[0, 1],
            is_content: &[1, 0],
            origins: &[2, 6],
        };
        let rendered = columns.read().unwrap();
        assert_eq!(rendered.sampled_mask, [false, true]);
        assert_eq!(rendered.origin, [Origin::User, Origin::Sampled]);
        let short = RenderedColumns { origins: &[2], ..columns };
        assert_eq!(short.read().unwrap_err().kind(), ErrorKind::ShapeMismatch);
        let unknown = RenderedColumns { origins: &[2, 9], ..columns };
        assert_eq!(unknown.read().unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}

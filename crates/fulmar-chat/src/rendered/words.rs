//! Rendered tokens as one array: making an array in JavaScript costs more than filling it with a turn.

use crate::{Extension, Rendered};

impl Rendered {
    /// Returns everything in one list: `T`, 0, the ids, the message of each, and then as bytes, in the
    /// machine's order, `sampled_mask`, `is_content` and the code of each origin. Takes `11 * T + 8` bytes,
    /// rounded up to whole words.
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::{Origin, Rendered};
    /// let rendered = Rendered {
    ///     ids: vec![7],
    ///     message_index: vec![-1],
    ///     sampled_mask: vec![true],
    ///     is_content: vec![false],
    ///     origin: vec![Origin::Template],
    /// };
    /// let bytes = u32::from_ne_bytes([1, 0, Origin::Template.code(), 0]);
    /// assert_eq!(rendered.to_words(), [1, 0, 7, u32::MAX, bytes]);
    /// ```
    #[must_use]
    pub fn to_words(&self) -> Vec<u32> {
        let mut words = Vec::new();
        append(&mut words, self, 0);
        words
    }
}

impl Extension {
    /// Returns [`Rendered::to_words`] with [`Extension::num_kept`] in second place.
    #[must_use]
    pub fn to_words(&self) -> Vec<u32> {
        let mut words = Vec::new();
        self.append_words(&mut words);
        words
    }

    /// Appends [`Extension::to_words`] to `words`.
    pub(crate) fn append_words(&self, words: &mut Vec<u32>) {
        append(words, &self.rendered, self.num_kept as u32);
    }
}

fn append(words: &mut Vec<u32>, rendered: &Rendered, second: u32) {
    let num_ids = rendered.ids.len();
    words.reserve(2 + 2 * num_ids + (3 * num_ids).div_ceil(4));
    words.extend([num_ids as u32, second]);
    words.extend_from_slice(&rendered.ids);
    words.extend(rendered.message_index.iter().map(|&index| index.cast_unsigned()));
    let mut bytes = Vec::with_capacity(3 * num_ids + 3);
    bytes.extend(rendered.sampled_mask.iter().map(|&bit| u8::from(bit)));
    bytes.extend(rendered.is_content.iter().map(|&bit| u8::from(bit)));
    bytes.extend(rendered.origin.iter().map(|origin| origin.code()));
    bytes.resize((3 * num_ids).next_multiple_of(4), 0);
    words.extend(bytes.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)));
}

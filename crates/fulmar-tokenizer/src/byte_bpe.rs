//! Byte-level byte-pair encoding, the family of GPT-2, Llama 3, Qwen and SmolLM, without a regular-expression engine.
//!
//! Ids and offsets equal those of Hugging Face's `tokenizers` for every input. A text takes three steps:
//!
//! ```text
//! normal form   only where the file asks for NFC and the text is not plainly in it
//! split         text -> pieces, by hand what the file's pattern says                      (split.rs, class.rs)
//! piece         one look-up finds a piece that is one token                               (pieces.rs)
//!               else its bytes merge, neighbours of the lowest rank first                 (merge.rs)
//! ```

use std::collections::HashMap;

use serde_json::Value;

use crate::Result;

pub(crate) mod alphabet;
mod class;
mod json;
mod merge;
pub(crate) mod normal;
mod pieces;
mod split;

use json::Description;
use merge::{Merges, NO_TOKEN, Part};
use normal::Normal;
use pieces::Pieces;
use split::{Scan, Splitter};

/// A byte-level byte-pair encoder without added tokens: callers split the text at these first.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::ByteBpe;
/// let file = serde_json::json!({
///     "normalizer": null, "post_processor": null,
///     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
///     "decoder": {"type": "ByteLevel"},
///     "model": {
///         "type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4}, "merges": ["a b", "Ġ ab"],
///     },
/// });
/// let bpe = ByteBpe::from_tokenizer_json(&file)?.expect("the file is of the family");
/// let (mut ids, mut offsets) = (Vec::new(), Vec::new());
/// bpe.encode_into("aab ab", 0, &mut ids, &mut offsets);
/// assert_eq!(ids, [0, 3, 4]);
/// assert_eq!(offsets, [[0, 1], [1, 3], [3, 6]]);
/// assert_eq!(bpe.decode_bytes(4), b" ab");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ByteBpe {
    tokens: TokenBytes,
    pieces: Pieces,
    merges: Merges,
    outer: Option<Splitter>,
    splitter: Splitter,
    is_nfc: bool,
    trims: Vec<bool>,
}

impl ByteBpe {
    /// Returns the encoder of a parsed `tokenizer.json`; `None` if the file is not of this family, or uses an
    /// unsupported part, such as another pattern. Ignores truncation and padding.
    ///
    /// # Errors
    /// `Malformed` if the vocabulary or the merges break the format's rules; `LimitExceeded` if an id is not below
    /// [`fulmar_core::limits::VOCAB_SIZE_MAX`].
    pub fn from_tokenizer_json(file: &Value) -> Result<Option<Self>> {
        Ok(Description::read(file)?.map(Self::new))
    }

    /// Returns the encoder of a rank file: of neighbours that spell a token, those with the lowest id merge
    /// first, and a piece that is a token stays whole. All 256 bytes must be among `tokens`. `None` if
    /// `pattern` is unknown.
    pub(crate) fn from_ranks(tokens: &[(Vec<u8>, u32)], pattern: &str) -> Option<Self> {
        let splitter = Splitter::of_pattern(pattern)?;
        let id_of: HashMap<&[u8], u32> = tokens.iter().map(|(bytes, id)| (bytes.as_slice(), *id)).collect();
        let mut merges = Vec::new();
        for (bytes, id) in tokens {
            let halves = (1..bytes.len()).map(|middle| bytes.split_at(middle));
            merges.extend(
                halves.filter_map(|(left, right)| Some((*id_of.get(left)?, *id_of.get(right)?, *id, *id))),
            );
        }
        Some(Self::new(Description {
            tokens: tokens.iter().map(|(bytes, id)| (alphabet::text_of(bytes), *id)).collect(),
            merges,
            ignore_merges: true,
            outer: None,
            splitter,
            is_nfc: false,
            trims: Vec::new(),
        }))
    }

    /// Appends the ids of `text`, which is shorter than 4 GiB, and for each its range of bytes in `text`,
    /// shifted by `base`. Tokens that split a character cover all of it. Bytes without a token disappear.
    pub fn encode_into(&self, text: &str, base: usize, ids: &mut Vec<u32>, offsets: &mut Vec<[u32; 2]>) {
        let num_held = ids.len();
        // Prose has about a token for four bytes.
        ids.reserve(text.len() / 4);
        offsets.reserve(text.len() / 4);
        match if self.is_nfc { Normal::of(text) } else { None } {
            None => self.encode_normal(text, ids, offsets),
            Some(normal) => {
                let first = offsets.len();
                self.encode_normal(&normal.text, ids, offsets);
                for range in &mut offsets[first..] {
                    *range = normal.original(*range);
                }
            }
        }
        let first = offsets.len() - (ids.len() - num_held);
        for range in &mut offsets[first..] {
            *range = range.map(|position| position + base as u32);
        }
        for &keeps_first in &self.trims {
            self.trim(&ids[num_held..], &mut offsets[first..], base == 0, keeps_first);
        }
    }

    /// Returns the bytes of a token of the model's vocabulary; empty for other ids. Concatenated bytes need
    /// not be UTF-8.
    #[must_use]
    pub fn decode_bytes(&self, id: u32) -> &[u8] {
        self.tokens.get(id)
    }

    /// Returns the id of the token with exactly these bytes, if a piece of them becomes that token.
    pub(crate) fn id_of_bytes(&self, bytes: &[u8]) -> Option<u32> {
        self.pieces.find(bytes, 0, bytes.len(), |id| self.decode_bytes(id))
    }

    fn new(description: Description) -> Self {
        let Description { tokens, merges, ignore_merges, outer, splitter, is_nfc, trims } = description;
        let mut byte_ids = [NO_TOKEN; 256];
        let mut spelled = Vec::with_capacity(tokens.len());
        let mut held = TokenBytes::default();
        for (token, id) in &tokens {
            let bytes = alphabet::bytes_of(token);
            held.insert(*id, bytes.as_deref().unwrap_or(token.as_bytes()));
            match bytes.as_deref() {
                None | Some([]) => {}
                Some(&[byte]) => byte_ids[usize::from(byte)] = *id,
                Some(_) => spelled.push(*id),
            }
        }
        let merges = Merges::new(&merges, &byte_ids);
        let mut parts = Vec::new();
        let mut is_reached = |id: u32| {
            merges.apply_to_bytes(held.get(id), &mut parts) && matches!(parts[..], [only] if only.id == id)
        };
        spelled.retain(|&id| ignore_merges || is_reached(id));
        spelled.extend(byte_ids.iter().filter(|&&id| id != NO_TOKEN));
        let pieces = Pieces::new(spelled.iter().map(|&id| (held.get(id), id)));
        Self { tokens: held, pieces, merges, outer, splitter, is_nfc, trims }
    }

    fn encode_normal(&self, text: &str, ids: &mut Vec<u32>, offsets: &mut Vec<[u32; 2]>) {
        let mut pieces = PieceEncoder { bpe: self, text: text.as_bytes(), parts: Vec::new(), ids, offsets };
        let scan = Scan::new(text);
        let mut start = 0;
        while start < text.len() {
            let end = self.outer.map_or(text.len(), |outer| outer.piece_end(scan, start));
            let inner = scan.until(end);
            while start < end {
                let piece_end = self.splitter.piece_end(inner, start);
                pieces.encode(start, piece_end);
                start = piece_end;
            }
        }
    }

    /// Trims spaces at both ends of each token's range. A first token with one leading space keeps it if
    /// `keeps_first`.
    fn trim(&self, ids: &[u32], offsets: &mut [[u32; 2]], is_beginning: bool, keeps_first: bool) {
        for (index, (&id, [start, end])) in ids.iter().zip(offsets).enumerate() {
            let bytes = self.decode_bytes(id);
            let mut num_front = bytes.iter().take_while(|&&byte| byte == b' ').count() as u32;
            let num_back = bytes.iter().rev().take_while(|&&byte| byte == b' ').count() as u32;
            let is_first = *start == 0 || (is_beginning && index == 0);
            if is_first && keeps_first && num_front == 1 {
                num_front = 0;
            }
            *start = (*start + num_front).min(*end);
            if *end >= num_back {
                *end = (*end - num_back).max(*start);
            }
        }
    }
}

/// The bytes of all tokens, concatenated, with the range of each id.
#[derive(Debug, Default)]
struct TokenBytes {
    bytes: Vec<u8>,
    spans: Vec<[u32; 2]>,
}

impl TokenBytes {
    fn insert(&mut self, id: u32, bytes: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        self.spans.resize(self.spans.len().max(id as usize + 1), [0, 0]);
        self.spans[id as usize] = [start, self.bytes.len() as u32];
    }

    /// Returns the bytes of a token; empty if there is no such token.
    fn get(&self, id: u32) -> &[u8] {
        let [start, end] = self.spans.get(id as usize).copied().unwrap_or_default();
        &self.bytes[start as usize..end as usize]
    }
}

/// Splits `text` into pieces by GPT-2's pattern.
pub(crate) fn pieces_of_gpt2(text: &str) -> impl Iterator<Item = &str> {
    let scan = Scan::new(text);
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = if start < text.len() { Splitter::Gpt2.piece_end(scan, start) } else { return None };
        Some(&text[std::mem::replace(&mut start, end)..end])
    })
}

/// Encodes the pieces of one text in sequence.
struct PieceEncoder<'a> {
    bpe: &'a ByteBpe,
    text: &'a [u8],
    parts: Vec<Part>,
    ids: &'a mut Vec<u32>,
    offsets: &'a mut Vec<[u32; 2]>,
}

impl PieceEncoder<'_> {
    #[inline]
    fn encode(&mut self, start: usize, end: usize) {
        if let Some(id) = self.bpe.pieces.find(self.text, start, end, |id| self.bpe.decode_bytes(id)) {
            self.ids.push(id);
            self.offsets.push([start as u32, end as u32]);
        } else {
            self.encode_parts(start, end);
        }
    }

    fn encode_parts(&mut self, start: usize, end: usize) {
        if !self.bpe.merges.apply_to_bytes(&self.text[start..end], &mut self.parts) {
            return self.encode_gaps(start, end);
        }
        let mut first = start;
        for part in &self.parts {
            let last = first + part.length as usize - 1;
            self.ids.push(part.id);
            self.offsets.push(self.whole_characters(first, last));
            first = last + 1;
        }
    }

    /// Runs [`PieceEncoder::encode_parts`] for a piece with bytes without a token. These disappear and their
    /// neighbours merge; ranges are counted in the file's characters as if the missing ones were at the end
    /// of the piece. Hugging Face's crate does the same.
    fn encode_gaps(&mut self, start: usize, end: usize) {
        let bpe = self.bpe;
        let mut position_of_unit = Vec::with_capacity(2 * (end - start));
        self.parts.clear();
        for position in start..end {
            let byte = self.text[position];
            let num_units = alphabet::CHARACTERS[usize::from(byte)].len_utf8();
            position_of_unit.resize(position_of_unit.len() + num_units, position);
            let id = bpe.merges.byte_id(byte);
            if id != NO_TOKEN {
                self.parts.push(Part::new(id, num_units as u32));
            }
        }
        bpe.merges.apply(&mut self.parts);
        let mut unit = 0;
        for part in &self.parts {
            let end = unit + part.length as usize;
            self.ids.push(part.id);
            self.offsets.push(self.whole_characters(position_of_unit[unit], position_of_unit[end - 1]));
            unit = end;
        }
    }

    /// Returns the byte range of the characters from the one that contains byte `first` to the one that
    /// contains byte `last`.
    #[inline]
    fn whole_characters(&self, mut first: usize, last: usize) -> [u32; 2] {
        let is_inside = |position: usize| self.text.get(position).is_some_and(|byte| byte & 0xC0 == 0x80);
        while is_inside(first) {
            first -= 1;
        }
        let mut end = last + 1;
        while is_inside(end) {
            end += 1;
        }
        [first as u32, end as u32]
    }
}

//! Encodes many texts at once, on every processor.

use std::num::NonZero;

use fulmar_core::{Error, ErrorKind};

use crate::{AddedTokens, Encoding, Result, Tokenizer};

/// Fewest bytes of text that justify another thread.
const THREAD_BYTES_MIN: usize = 1 << 15;

/// The encodings of several texts, concatenated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodingBatch {
    /// The tokens of all texts; offsets count from the beginning of the token's own text.
    pub tokens: Encoding,
    /// Text `i` has the tokens `rows[i]..rows[i + 1]`.
    pub rows: Vec<u32>,
}

/// Encodes `texts` in order, as [`Tokenizer::encode_into`] does. Uses up to one thread a processor; only the
/// caller's if the texts are short or the target has no threads.
///
/// # Errors
/// The error of the first text that is refused, with its index; `LimitExceeded` if there are 2^32 tokens or
/// more.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{AddedTokens, CharTokenizer, CharTokenizerOptions, encode_batch};
/// let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
/// let batch = encode_batch(&tokenizer, &["ab", "", "c"], AddedTokens::AsText)?;
/// assert_eq!(batch.rows, [0, 2, 2, 3]);
/// assert_eq!(batch.tokens.offsets, [[0, 1], [1, 2], [0, 1]]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn encode_batch<T: AsRef<str> + Sync>(
    tokenizer: &dyn Tokenizer,
    texts: &[T],
    added: AddedTokens,
) -> Result<EncodingBatch> {
    let num_bytes: usize = texts.iter().map(|text| text.as_ref().len()).sum();
    let num_processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let num_threads = num_processors.min(texts.len()).min(num_bytes / THREAD_BYTES_MIN).max(1);
    let parts = shares(texts, num_bytes.div_ceil(num_threads));
    let mut batch = EncodingBatch { tokens: Encoding::default(), rows: vec![0] };
    let Some((&first, others)) = parts.split_first() else { return Ok(batch) };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            others.iter().map(|&part| scope.spawn(move || encode_part(tokenizer, part, added))).collect();
        batch.append(encode_part(tokenizer, first, added))?;
        for thread in running {
            // A panic of the thread continues in this one.
            batch.append(thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)))?;
        }
        Ok(batch)
    })
}

/// The tokens of some of the texts, the number for each, and the error that ended them early.
type Part = (Encoding, Vec<usize>, Result<()>);

fn encode_part<T: AsRef<str>>(tokenizer: &dyn Tokenizer, texts: &[T], added: AddedTokens) -> Part {
    let mut tokens = Encoding::default();
    let mut lengths = Vec::with_capacity(texts.len());
    for text in texts {
        let num_held = tokens.ids.len();
        if let Err(error) = tokenizer.encode_into(text.as_ref(), added, &mut tokens) {
            return (tokens, lengths, Err(error));
        }
        lengths.push(tokens.ids.len() - num_held);
    }
    (tokens, lengths, Ok(()))
}

impl EncodingBatch {
    fn append(&mut self, (tokens, lengths, outcome): Part) -> Result<()> {
        let mut end = self.tokens.ids.len();
        for length in lengths {
            end += length;
            let row = u32::try_from(end).map_err(|_| {
                Error::new(
                    ErrorKind::LimitExceeded,
                    "texts must have fewer than 2^32 tokens together, and these have more",
                )
            })?;
            self.rows.push(row);
        }
        self.tokens.ids.extend(tokens.ids);
        self.tokens.offsets.extend(tokens.offsets);
        let index = self.rows.len() - 1;
        outcome.map_err(|error| error.at(format!("texts[{index}]")))
    }
}

/// Splits `texts` into runs of at least `num_bytes` bytes each, except the last. Empty texts form no run: a
/// target without threads has room for one run.
fn shares<T: AsRef<str>>(texts: &[T], num_bytes: usize) -> Vec<&[T]> {
    let mut parts: Vec<&[T]> = Vec::new();
    let (mut start, mut held, mut last_start) = (0, 0, 0);
    for (index, text) in texts.iter().enumerate() {
        held += text.as_ref().len();
        if held >= num_bytes.max(1) {
            parts.push(&texts[start..=index]);
            (last_start, start, held) = (start, index + 1, 0);
        }
    }
    if held == 0 && parts.pop().is_some() {
        parts.push(&texts[last_start..]);
    } else if start < texts.len() {
        parts.push(&texts[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CharTokenizer, CharTokenizerOptions};

    #[test]
    fn a_batch_is_what_its_texts_are_one_by_one() {
        let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        let texts: Vec<String> = (0..97).map(|index| "ab<|im_end|>".repeat(index * 7 % 400)).collect();
        assert!(texts.iter().map(String::len).sum::<usize>() > 4 * THREAD_BYTES_MIN, "worth some threads");
        for added in [AddedTokens::AsText, AddedTokens::AsIds] {
            let batch = encode_batch(&tokenizer, &texts, added).unwrap();
            let mut alone = EncodingBatch { tokens: Encoding::default(), rows: vec![0] };
            for text in &texts {
                tokenizer.encode_into(text, added, &mut alone.tokens).unwrap();
                alone.rows.push(alone.tokens.ids.len() as u32);
            }
            assert_eq!(batch, alone);
        }
        assert_eq!(encode_batch::<&str>(&tokenizer, &[], AddedTokens::AsText).unwrap().rows, [0]);
        assert_eq!(encode_batch(&tokenizer, &["", ""], AddedTokens::AsText).unwrap().rows, [0, 0, 0]);
    }

    #[test]
    fn the_first_text_that_is_refused_is_named() {
        let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        let long = "a".repeat(2 * THREAD_BYTES_MIN);
        for texts in [["a", "b", "é", "猫"], [&long, &long, "é", &long]] {
            let error = encode_batch(&tokenizer, &texts, AddedTokens::AsText).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownText);
            assert!(error.detail().starts_with("texts[2]: "), "{error}");
        }
    }

    #[test]
    fn shares_hold_every_text_once_and_in_order() {
        let texts = ["aaaa", "", "b", "cc", "", "ddddd", ""];
        for num_bytes in 0..20 {
            assert_eq!(shares(&texts, num_bytes).concat(), texts, "{num_bytes}");
        }
        assert_eq!(shares(&["aa", "b", "c"], 2), [&["aa"][..], &["b", "c"]]);
        assert_eq!(shares(&["aa", "", ""], 2), [["aa", "", ""]], "one run for one processor");
        assert_eq!(shares(&["", ""], 0), [["", ""]]);
        assert!(shares::<&str>(&[], 0).is_empty());
    }
}

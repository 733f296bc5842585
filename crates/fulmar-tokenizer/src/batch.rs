//! Many texts at once, on every processor.

use std::num::NonZero;

use crate::{AddedTokens, Encoding, Result, Tokenizer};

/// Fewest bytes of text that a thread of its own is started for.
const THREAD_BYTES_MIN: usize = 1 << 15;

/// The encodings of `texts`, in order, as [`Tokenizer::encode_into`] gives them. Uses up to one thread a processor;
/// none beside the caller's where the texts are short or the target has no threads.
///
/// # Errors
/// That of the first text which is refused.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{AddedTokens, CharTokenizer, CharTokenizerOptions, encode_batch};
/// let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
/// let encodings = encode_batch(&tokenizer, &["ab", "", "c"], AddedTokens::AsText)?;
/// assert_eq!(encodings.iter().map(|encoding| encoding.ids.len()).collect::<Vec<_>>(), [2, 0, 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn encode_batch<T: AsRef<str> + Sync>(
    tokenizer: &dyn Tokenizer,
    texts: &[T],
    added: AddedTokens,
) -> Result<Vec<Encoding>> {
    let num_bytes: usize = texts.iter().map(|text| text.as_ref().len()).sum();
    let num_processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let num_threads = num_processors.min(texts.len()).min(num_bytes / THREAD_BYTES_MIN).max(1);
    let parts = shares(texts, num_bytes.div_ceil(num_threads));
    let encode = |part: &[T]| -> Result<Vec<Encoding>> {
        let encode_one = |text: &T| {
            let mut encoding = Encoding::default();
            tokenizer.encode_into(text.as_ref(), added, &mut encoding)?;
            Ok(encoding)
        };
        part.iter().map(encode_one).collect()
    };
    let Some((first, others)) = parts.split_first() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let running: Vec<_> = others.iter().map(|&part| scope.spawn(move || encode(part))).collect();
        let mut encodings = encode(first)?;
        for thread in running {
            // A panic of the thread goes on in this one.
            encodings.extend(thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))?);
        }
        Ok(encodings)
    })
}

/// `texts` in runs of about `num_bytes` bytes each.
fn shares<T: AsRef<str>>(texts: &[T], num_bytes: usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    let (mut start, mut held) = (0, 0);
    for (index, text) in texts.iter().enumerate() {
        held += text.as_ref().len();
        if held >= num_bytes.max(1) {
            parts.push(&texts[start..=index]);
            (start, held) = (index + 1, 0);
        }
    }
    if start < texts.len() {
        parts.push(&texts[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;

    use super::*;
    use crate::{CharTokenizer, CharTokenizerOptions};

    #[test]
    fn a_batch_is_what_its_texts_are_one_by_one() {
        let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        let texts: Vec<String> = (0..97).map(|index| "ab<|im_end|>".repeat(index * 7 % 400)).collect();
        assert!(texts.iter().map(String::len).sum::<usize>() > 4 * THREAD_BYTES_MIN, "worth some threads");
        for added in [AddedTokens::AsText, AddedTokens::AsIds] {
            let batch = encode_batch(&tokenizer, &texts, added).unwrap();
            for (text, encoding) in texts.iter().zip(&batch) {
                let mut alone = Encoding::default();
                tokenizer.encode_into(text, added, &mut alone).unwrap();
                assert_eq!(*encoding, alone);
            }
            assert_eq!(batch.len(), texts.len());
        }
        assert_eq!(encode_batch::<&str>(&tokenizer, &[], AddedTokens::AsText), Ok(Vec::new()));
        assert_eq!(encode_batch(&tokenizer, &["", ""], AddedTokens::AsText).unwrap().len(), 2);
    }

    #[test]
    fn the_first_text_that_is_refused_is_named() {
        let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        let error = encode_batch(&tokenizer, &["a", "é", "猫"], AddedTokens::AsText).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownText);
        assert!(error.detail().contains("'é'"), "{error}");
    }

    #[test]
    fn shares_hold_every_text_once_and_in_order() {
        let texts = ["aaaa", "", "b", "cc", "", "ddddd", ""];
        for num_bytes in 0..20 {
            assert_eq!(shares(&texts, num_bytes).concat(), texts, "{num_bytes}");
        }
        assert_eq!(shares(&["aa", "b", "c"], 2), [&["aa"][..], &["b", "c"]]);
    }
}

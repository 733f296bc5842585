//! A small trainer of byte-level byte-pair vocabularies, for tests and examples.

use std::collections::{BTreeMap, HashMap};

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::json;

use crate::Result;
use crate::byte_bpe::{alphabet, pieces_of_gpt2};

/// Returns the text of a `tokenizer.json` whose tokens are the 256 bytes, then up to `vocab_size - 256 -
/// special_tokens.len()` merges learned from `texts`, then the special tokens. It has GPT-2's pattern and no
/// normalizer, and Hugging Face's `tokenizers` reads it.
///
/// Each step merges the most frequent pair of neighbours; ties by the smaller left id, then the smaller right
/// id. Training ends early when no pair occurs twice. A step costs time linear in the total length of all
/// distinct pieces of `texts`.
///
/// # Errors
/// `OutOfRange` if `vocab_size` has no room for the bytes and the special tokens, or is beyond
/// [`limits::VOCAB_SIZE_MAX`]; `Malformed` if a special token is empty or occurs twice.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{ByteBpe, train_byte_bpe};
/// let file = train_byte_bpe(&["the cat", "the hat"], 261, &["<|end|>"])?;
/// let bpe = ByteBpe::from_tokenizer_json(&serde_json::from_str(&file).unwrap())?.unwrap();
/// let (mut ids, mut offsets) = (Vec::new(), Vec::new());
/// bpe.encode_into("the hat", 0, &mut ids, &mut offsets);
/// assert_eq!(offsets, [[0, 3], [3, 4], [4, 5], [5, 7]]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn train_byte_bpe(texts: &[&str], vocab_size: usize, special_tokens: &[&str]) -> Result<String> {
    check_vocab_size(vocab_size, special_tokens.len())?;
    check_special_tokens(special_tokens)?;
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut id_of: HashMap<Vec<u8>, u32> = tokens.iter().cloned().zip(0..).collect();
    let mut merges = Vec::new();
    let mut pieces = count_pieces(texts);
    while tokens.len() + special_tokens.len() < vocab_size {
        let Some((left, right)) = most_frequent_pair(&pieces) else { break };
        let merged = [tokens[left as usize].as_slice(), &tokens[right as usize]].concat();
        // Two pairs may spell the same token.
        let id = *id_of.entry(merged.clone()).or_insert(tokens.len() as u32);
        if id as usize == tokens.len() {
            tokens.push(merged);
        }
        merges.push(format!("{} {}", spell(&tokens, left), spell(&tokens, right)));
        pieces.iter_mut().for_each(|(ids, _)| merge_pair(ids, left, right, id));
    }
    Ok(write_file(&tokens, &merges, special_tokens))
}

fn check_vocab_size(vocab_size: usize, num_special: usize) -> Result<()> {
    let (min, max) = (256 + num_special, limits::VOCAB_SIZE_MAX);
    if !(min..=max).contains(&vocab_size) {
        let detail = format!("vocab_size must be in {min}..={max}: got {vocab_size}");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    Ok(())
}

fn check_special_tokens(special_tokens: &[&str]) -> Result<()> {
    for (index, token) in special_tokens.iter().enumerate() {
        if token.is_empty() || special_tokens[..index].contains(token) {
            let detail = format!("special_tokens must be names that differ: got {token:?} at {index}");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
    }
    Ok(())
}

/// Returns the distinct pieces of `texts` as byte ids with their counts, in byte order.
fn count_pieces(texts: &[&str]) -> Vec<(Vec<u32>, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for piece in texts.iter().flat_map(|text| pieces_of_gpt2(text)) {
        *counts.entry(piece).or_default() += 1;
    }
    counts.into_iter().map(|(piece, count)| (piece.bytes().map(u32::from).collect(), count)).collect()
}

/// Returns the most frequent pair of neighbours, if any occurs twice; ties by the smallest.
fn most_frequent_pair(pieces: &[(Vec<u32>, u64)]) -> Option<(u32, u32)> {
    let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
    for (ids, count) in pieces {
        for pair in ids.windows(2) {
            *counts.entry((pair[0], pair[1])).or_default() += count;
        }
    }
    let best = counts.into_iter().max_by_key(|&(pair, count)| (count, std::cmp::Reverse(pair)));
    best.filter(|(_, count)| *count >= 2).map(|(pair, _)| pair)
}

/// Replaces each `left right` by `merged`, from left to right.
fn merge_pair(ids: &mut Vec<u32>, left: u32, right: u32, merged: u32) {
    let mut kept = 0;
    let mut index = 0;
    while index < ids.len() {
        let is_pair = ids[index] == left && ids.get(index + 1) == Some(&right);
        ids[kept] = if is_pair { merged } else { ids[index] };
        index += 1 + usize::from(is_pair);
        kept += 1;
    }
    ids.truncate(kept);
}

fn spell(tokens: &[Vec<u8>], id: u32) -> String {
    alphabet::text_of(&tokens[id as usize])
}

fn write_file(tokens: &[Vec<u8>], merges: &[String], special_tokens: &[&str]) -> String {
    let vocabulary: serde_json::Map<_, _> =
        (0..tokens.len()).map(|id| (spell(tokens, id as u32), json!(id))).collect();
    let added: Vec<_> = special_tokens
        .iter()
        .enumerate()
        .map(|(index, token)| {
            json!({
                "id": tokens.len() + index, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        })
        .collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true,
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": byte_level, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges,
        },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merges_of(file: &str) -> Vec<String> {
        let file: serde_json::Value = serde_json::from_str(file).unwrap();
        file["model"]["merges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|merge| merge.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_most_frequent_pair_merges_first_and_the_smaller_of_equals() {
        let file = train_byte_bpe(&["abab cd", "cd"], 259, &[]).unwrap();
        assert_eq!(
            merges_of(&file),
            ["a b", "c d", "ab ab"][..2].iter().map(|&m| m.to_owned()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn training_ends_when_no_pair_occurs_twice() {
        let file = train_byte_bpe(&["abc"], 1000, &["<s>"]).unwrap();
        assert!(merges_of(&file).is_empty());
        let file: serde_json::Value = serde_json::from_str(&file).unwrap();
        assert_eq!(file["added_tokens"][0]["id"], 256);
    }

    #[test]
    fn sizes_and_names_are_checked() {
        let kind = |size, special: &[&str]| train_byte_bpe(&["a"], size, special).unwrap_err().kind();
        assert_eq!(kind(255, &[]), ErrorKind::OutOfRange);
        assert_eq!(kind(256, &["<s>"]), ErrorKind::OutOfRange);
        assert_eq!(kind(limits::VOCAB_SIZE_MAX + 1, &[]), ErrorKind::OutOfRange);
        assert_eq!(kind(300, &["<s>", "<s>"]), ErrorKind::Malformed);
        assert_eq!(kind(300, &[""]), ErrorKind::Malformed);
        assert!(train_byte_bpe(&["a"], 256, &[]).is_ok());
        assert!(train_byte_bpe(&["a"], limits::VOCAB_SIZE_MAX, &[]).is_ok());
    }
}

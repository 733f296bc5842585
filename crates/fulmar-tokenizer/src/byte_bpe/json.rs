//! Reads `tokenizer.json` if the file is of the byte-level family.

use std::collections::HashMap;

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::Value;

use super::alphabet;
use super::split::Splitter;
use crate::Result;

/// The checked content of a file of the family.
#[derive(Debug)]
pub struct Description {
    /// Every token of the model with its unique id.
    pub tokens: Vec<(String, u32)>,
    /// `(left, right, rank, merged)` of every merge.
    pub merges: Vec<(u32, u32, u32, u32)>,
    /// If true, pieces that are tokens are not merged.
    pub ignore_merges: bool,
    /// Splits the text before `splitter` does.
    pub outer: Option<Splitter>,
    /// Splits the text into pieces.
    pub splitter: Splitter,
    /// If true, text is normalised to NFC first.
    pub is_nfc: bool,
    /// For each entry, offsets exclude the spaces at both ends of a token once; the entry is `true` if the
    /// first token keeps its space.
    pub trims: Vec<bool>,
}

impl Description {
    /// Reads a file; `None` if it is not of the family, or uses an unsupported part.
    ///
    /// # Errors
    /// `Malformed` if the file breaks the format's own rules; `LimitExceeded` past [`limits::VOCAB_SIZE_MAX`].
    pub fn read(file: &Value) -> Result<Option<Self>> {
        let model = &file["model"];
        let (Some((outer, splitter)), Some(is_nfc), Some(trims)) = (
            splitters(&file["pre_tokenizer"]),
            normalizer(&file["normalizer"]),
            trims(&file["post_processor"]),
        ) else {
            return Ok(None);
        };
        if model["type"] != "BPE" || file["decoder"]["type"] != "ByteLevel" || !is_plain(model) {
            return Ok(None);
        }
        let tokens = read_vocabulary(&model["vocab"])?;
        if has_equal_ids(&tokens) || !(is_unknown_silent(model) || has_all_bytes(&tokens)) {
            return Ok(None);
        }
        let merges = read_merges(&model["merges"], &tokens)?;
        let ignore_merges = model["ignore_merges"] == true;
        Ok(Some(Self { tokens, merges, ignore_merges, outer, splitter, is_nfc, trims }))
    }
}

/// Returns whether the model has no randomness and no affixes on parts of words.
fn is_plain(model: &Value) -> bool {
    let is_absent = |name: &str| model[name].is_null() || model[name] == "";
    let has_dropout = model["dropout"].as_f64().is_some_and(|dropout| dropout != 0.0);
    !has_dropout && is_absent("continuing_subword_prefix") && is_absent("end_of_word_suffix")
}

/// Returns whether bytes without a token disappear, as they do unless there is a token for unknown text.
fn is_unknown_silent(model: &Value) -> bool {
    model["unk_token"].is_null() && model["byte_fallback"] != true
}

fn has_all_bytes(tokens: &[(String, u32)]) -> bool {
    let mut is_there = [false; 256];
    for (token, _) in tokens {
        if let Some(&[byte]) = alphabet::bytes_of(token).as_deref() {
            is_there[usize::from(byte)] = true;
        }
    }
    is_there.iter().all(|&is_there| is_there)
}

fn has_equal_ids(tokens: &[(String, u32)]) -> bool {
    let mut ids: Vec<u32> = tokens.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids.windows(2).any(|pair| pair[0] == pair[1])
}

fn normalizer(normalizer: &Value) -> Option<bool> {
    if normalizer.is_null() { Some(false) } else { (normalizer["type"] == "NFC").then_some(true) }
}

/// Returns the splitters of a pre-tokenizer that ends with the byte-level step: the outer one, if there are
/// two, and the inner.
fn splitters(pre_tokenizer: &Value) -> Option<(Option<Splitter>, Splitter)> {
    let single = std::slice::from_ref(pre_tokenizer);
    let steps =
        if pre_tokenizer["type"] == "Sequence" { pre_tokenizer["pretokenizers"].as_array()? } else { single };
    let (last, first) = steps.split_last()?;
    if last["type"] != "ByteLevel" || last["add_prefix_space"] != false {
        return None;
    }
    let mut splitters: Vec<Splitter> = first.iter().map(splitter).collect::<Option<_>>()?;
    if last["use_regex"] != false {
        splitters.push(Splitter::Gpt2);
    }
    match splitters[..] {
        [] => Some((None, Splitter::Whole)),
        [only] => Some((None, only)),
        [outer, inner] => Some((Some(outer), inner)),
        _ => None,
    }
}

fn splitter(step: &Value) -> Option<Splitter> {
    match step["type"].as_str()? {
        "Digits" => Some(Splitter::Digits { individual: step["individual_digits"] == true }),
        // The known patterns match every character, so the treatment of gaps does not matter.
        "Split" => {
            let is_kept =
                step["behavior"] == "Isolated" || (step["behavior"] == "Removed" && step["invert"] == true);
            is_kept.then(|| Splitter::of_pattern(step["pattern"]["Regex"].as_str()?)).flatten()
        }
        _ => None,
    }
}

/// Returns the post-processors that trim spaces from offsets, in order; `None` if one is unknown.
fn trims(post_processor: &Value) -> Option<Vec<bool>> {
    if post_processor.is_null() {
        return Some(Vec::new());
    }
    let keeps_first = post_processor["add_prefix_space"] != false;
    match post_processor["type"].as_str()? {
        "ByteLevel" | "RobertaProcessing" if post_processor["trim_offsets"] != false => {
            Some(vec![keeps_first])
        }
        "ByteLevel" | "RobertaProcessing" | "TemplateProcessing" | "BertProcessing" => Some(Vec::new()),
        "Sequence" => {
            let steps = post_processor["processors"].as_array()?;
            steps.iter().map(trims_of_step).collect::<Option<Vec<_>>>().map(|trims| trims.concat())
        }
        _ => None,
    }
}

/// Returns the trim of a step of a sequence, which must not be a sequence.
fn trims_of_step(step: &Value) -> Option<Vec<bool>> {
    if step["type"] == "Sequence" { None } else { trims(step) }
}

fn read_vocabulary(vocabulary: &Value) -> Result<Vec<(String, u32)>> {
    let entries =
        vocabulary.as_object().ok_or_else(|| malformed("model.vocab must be an object", vocabulary))?;
    let mut tokens = Vec::with_capacity(entries.len());
    for (token, id) in entries {
        let place = || format!("model.vocab[{token:?}]");
        let number = id.as_u64().ok_or_else(|| malformed("must be an id", id).at(place()))?;
        if number >= limits::VOCAB_SIZE_MAX as u64 {
            let detail = format!("must be below {}: got {number}", limits::VOCAB_SIZE_MAX);
            return Err(Error::new(ErrorKind::LimitExceeded, detail).at(place()));
        }
        tokens.push((token.clone(), number as u32));
    }
    Ok(tokens)
}

fn read_merges(merges: &Value, tokens: &[(String, u32)]) -> Result<Vec<(u32, u32, u32, u32)>> {
    let entries = merges.as_array().ok_or_else(|| malformed("model.merges must be an array", merges))?;
    let id_of: HashMap<&str, u32> = tokens.iter().map(|(token, id)| (token.as_str(), *id)).collect();
    let find = |token: &str, rank: usize| {
        let rule = "must be made of tokens of the vocabulary";
        id_of.get(token).copied().ok_or_else(|| malformed(rule, token).at(format!("model.merges[{rank}]")))
    };
    // A comment line in the file has no rank.
    let is_merge = |entry: &&Value| !entry.as_str().is_some_and(|text| text.starts_with("#version"));
    let mut merged = String::new();
    let mut read = Vec::with_capacity(entries.len());
    for (rank, entry) in entries.iter().filter(is_merge).enumerate() {
        let (left, right) = pair(entry).ok_or_else(|| {
            malformed("must be a pair of tokens", entry).at(format!("model.merges[{rank}]"))
        })?;
        merged.clear();
        merged.push_str(left);
        merged.push_str(right);
        read.push((find(left, rank)?, find(right, rank)?, rank as u32, find(&merged, rank)?));
    }
    Ok(read)
}

/// Parses `"left right"` or `["left", "right"]`.
fn pair(entry: &Value) -> Option<(&str, &str)> {
    match entry {
        Value::String(text) => text.split_once(' ').filter(|(_, right)| !right.contains(' ')),
        Value::Array(pair) if pair.len() == 2 => Some((pair[0].as_str()?, pair[1].as_str()?)),
        _ => None,
    }
}

fn malformed(rule: &str, value: impl std::fmt::Display) -> Error {
    let value: String = value.to_string().chars().take(80).collect();
    Error::new(ErrorKind::Malformed, format!("{rule}: got {value}"))
}

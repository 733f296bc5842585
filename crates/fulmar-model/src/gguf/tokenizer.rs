//! The tokenizer in a GGUF file, converted to the `tokenizer.json` that Hugging Face's library reads.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::gguf::File;
use serde_json::{Map, Value, json};

use super::{incompatible, text};

/// Kinds of tokens that are matched before a text is split: control tokens and user-defined ones.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Names of special tokens in `tokenizer_config.json`, and in a GGUF file.
const SPECIAL: [(&str, &str); 4] =
    [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")];

/// The tokenizer of a GGUF file with a byte-level BPE model, in the forms of Hugging Face's files.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufTokenizer {
    /// `tokenizer.json`: vocabulary, merges, added tokens, and the pre-tokenizer named by
    /// `tokenizer.ggml.pre` (`smollm`, `gpt-2`, `default`, `qwen2`, `llama-bpe`).
    pub tokenizer_json: String,
    /// `tokenizer_config.json`: the names of special tokens.
    pub config_json: String,
    /// `chat_template.jinja`, if the file has one.
    pub chat_template: Option<String>,
}

impl GgufTokenizer {
    /// Reads the tokenizer from the metadata.
    ///
    /// # Errors
    /// `Incompatible` if the file has another tokenizer model, an unsupported pre-tokenizer, or lacks a part;
    /// `OutOfRange` if a special token is not in the vocabulary.
    pub fn read(file: &File<'_>) -> Result<Self> {
        let chat_template = file.metadata.get("tokenizer.chat_template").and_then(Value::as_str);
        Ok(Self {
            tokenizer_json: tokenizer_json(file)?,
            config_json: config_json(file)?,
            chat_template: chat_template.map(str::to_owned),
        })
    }
}

fn config_json(file: &File<'_>) -> Result<String> {
    let tokens = list(&file.metadata, "tokenizer.ggml.tokens")?;
    let mut config = Map::new();
    for (ours, theirs) in SPECIAL {
        let key = format!("tokenizer.ggml.{theirs}_token_id");
        let Some(id) = file.metadata.get(&key) else {
            continue;
        };
        let token = id.as_u64().and_then(|id| tokens.get(usize::try_from(id).ok()?));
        let Some(token) = token else {
            let detail = format!("{key} must be below {}: got {id}", tokens.len());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        };
        config.insert(ours.to_owned(), token.clone());
    }
    Ok(Value::Object(config).to_string())
}

fn tokenizer_json(file: &File<'_>) -> Result<String> {
    let metadata = &file.metadata;
    let model = text(metadata, "tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(incompatible(format!(
            "tokenizer.ggml.model must be \"gpt2\" (byte-level BPE): got {model:?}"
        )));
    }
    let tokens = list(metadata, "tokenizer.ggml.tokens")?;
    let merges = list(metadata, "tokenizer.ggml.merges")?;
    let kinds = list(metadata, "tokenizer.ggml.token_type")?;
    let (mut vocab, mut added) = (Map::new(), Vec::new());
    for (id, token) in tokens.iter().enumerate() {
        let Some(content) = token.as_str() else {
            return Err(incompatible(format!("tokens must be texts: got {token} at {id}")));
        };
        vocab.insert(content.to_owned(), id.into());
        let kind = kinds.get(id).and_then(Value::as_u64);
        if matches!(kind, Some(CONTROL | USER_DEFINED)) {
            added.push(json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": kind == Some(CONTROL)
            }));
        }
    }
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts(text(metadata, "tokenizer.ggml.pre")?)?},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges
        }
    });
    Ok(tokenizer.to_string())
}

/// Returns the pre-tokenizers of a name.
fn cuts(pre: &str) -> Result<Value> {
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    match pre {
        "smollm" => Ok(json!([{"type": "Digits", "individual_digits": true}, bytes(true)])),
        "gpt-2" | "default" => Ok(json!([bytes(true)])),
        "qwen2" => Ok(json!([split(&pattern("\\p{N}")), bytes(false)])),
        "llama-bpe" => Ok(json!([split(&pattern("\\p{N}{1,3}")), bytes(false)])),
        _ => Err(incompatible(format!(
            "tokenizer.ggml.pre must be \"smollm\", \"gpt-2\", \"default\", \"qwen2\" or \"llama-bpe\": got {pre:?}"
        ))),
    }
}

/// Returns the splitting pattern of GPT-4's family of tokenizers, with `digits` as the pattern for runs of
/// digits.
fn pattern(digits: &str) -> String {
    format!(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{{L}}\\p{{N}}]?\\p{{L}}+|{digits}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    )
}

fn list<'a>(metadata: &'a Map<String, Value>, key: &str) -> Result<&'a [Value]> {
    match metadata.get(key) {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(incompatible(format!("a GGUF file must have the list {key}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_text(bytes: &mut Vec<u8>, text: &str) {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }

    /// Returns a file of a tokenizer with two letters, their merge and a control token.
    fn file(model: &str, pre: &str, end: u32) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend([0_u64.to_le_bytes(), 6_u64.to_le_bytes()].concat());
        for (key, value) in [("tokenizer.ggml.model", model), ("tokenizer.ggml.pre", pre)] {
            put_text(&mut bytes, key);
            bytes.extend(8_u32.to_le_bytes());
            put_text(&mut bytes, value);
        }
        for (key, values) in
            [("tokenizer.ggml.tokens", &["<|end|>", "a", "b", "ab"][..]), ("tokenizer.ggml.merges", &["a b"])]
        {
            put_text(&mut bytes, key);
            bytes.extend([9_u32.to_le_bytes(), 8_u32.to_le_bytes()].concat());
            bytes.extend((values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| put_text(&mut bytes, value));
        }
        put_text(&mut bytes, "tokenizer.ggml.token_type");
        bytes.extend([9_u32.to_le_bytes(), 5_u32.to_le_bytes()].concat());
        bytes.extend(4_u64.to_le_bytes());
        bytes.extend([3_i32, 1, 1, 1].iter().flat_map(|kind| kind.to_le_bytes()));
        put_text(&mut bytes, "tokenizer.ggml.eos_token_id");
        bytes.extend([4_u32.to_le_bytes(), end.to_le_bytes()].concat());
        bytes
    }

    #[test]
    fn vocabulary_merges_control_tokens_and_cuts_become_a_tokenizer() {
        let bytes = file("gpt2", "smollm", 0);
        let read = GgufTokenizer::read(&File::read(&bytes).unwrap()).unwrap();
        let json: Value = serde_json::from_str(&read.tokenizer_json).unwrap();
        assert_eq!((&*read.config_json, read.chat_template), (r#"{"eos_token":"<|end|>"}"#, None));
        assert_eq!(json["model"]["vocab"], json!({"<|end|>": 0, "a": 1, "b": 2, "ab": 3}));
        assert_eq!(json["model"]["merges"], json!(["a b"]));
        assert_eq!(json["added_tokens"][0]["content"], "<|end|>");
        assert_eq!(json["pre_tokenizer"]["pretokenizers"][0]["type"], "Digits");
    }

    #[test]
    fn a_special_token_that_is_none_is_refused() {
        let bytes = file("gpt2", "smollm", 4);
        let error = GgufTokenizer::read(&File::read(&bytes).unwrap()).unwrap_err();
        assert_eq!(error.detail(), "tokenizer.ggml.eos_token_id must be below 4: got 4");
    }

    #[test]
    fn other_models_and_cuts_are_refused_by_name() {
        let of = |model, pre| GgufTokenizer::read(&File::read(&file(model, pre, 0)).unwrap());
        assert!(of("gpt2", "qwen2").is_ok());
        assert!(of("llama", "default").unwrap_err().detail().starts_with("tokenizer.ggml.model must be"));
        assert!(of("gpt2", "tekken").unwrap_err().detail().starts_with("tokenizer.ggml.pre must be"));
    }
}

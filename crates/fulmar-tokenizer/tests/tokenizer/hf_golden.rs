//! [`HfTokenizer`] against rows from Hugging Face's Python packages; their HOW.md describes how to make them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::PathBuf;
use std::sync::Arc;

use fulmar_core::ErrorKind;
use fulmar_tokenizer::{DecodeStream, HfTokenizer, OffsetUnit, Tokenizer};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizer")
}

/// Returns every folder of rows, with its tokenizer.
fn tokenizers() -> Vec<(String, HfTokenizer)> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| folder().join(name).join("tokenizer.json").exists())
        .collect();
    names.sort();
    assert!(names.len() >= 2, "got only {names:?}");
    let read = |name: String| (HfTokenizer::from_folder(folder().join(&name)).unwrap(), name);
    names.into_iter().map(read).map(|(tokenizer, name)| (name, tokenizer)).collect()
}

fn rows(name: &str, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(name).join(file)).unwrap();
    let rows: Vec<Value> = text
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!rows.is_empty(), "{name}/{file} holds rows");
    rows
}

fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

#[test]
fn ids_and_offsets_and_text_are_equal() {
    for (name, tokenizer) in tokenizers() {
        for row in rows(&name, "encode.jsonl") {
            let text = row["text"].as_str().unwrap();
            let encoding = tokenizer.encode_added(text).unwrap();
            assert_eq!(encoding.ids, numbers(&row["ids"]), "{name}: {text:?}");
            let mut offsets = encoding.offsets.as_flattened().to_vec();
            OffsetUnit::CodePoints.convert(text, &mut offsets).unwrap();
            let expected: Vec<u32> = row["offsets"].as_array().unwrap().iter().flat_map(numbers).collect();
            assert_eq!(offsets, expected, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(&encoding.ids, false).unwrap(), row["decoded"], "{name}: {text:?}");
            let skipped = tokenizer.decode(&encoding.ids, true).unwrap();
            assert_eq!(skipped, row["decoded_skip_special"], "{name}: {text:?}");
        }
    }
}

#[test]
fn decoded_text_and_the_pieces_of_a_stream_are_equal() {
    for (name, tokenizer) in tokenizers() {
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(tokenizer);
        for row in rows(&name, "decode.jsonl") {
            let ids = numbers(&row["ids"]);
            let skip_special = row["skip_special_tokens"].as_bool().unwrap();
            let decoded = tokenizer.decode(&ids, skip_special).unwrap();
            assert_eq!(decoded, row["decoded"], "{name}: {ids:?}");
            let mut stream = DecodeStream::new(Arc::clone(&tokenizer), skip_special);
            let expected: Vec<&str> = row["stream_chunks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|piece| piece.as_str().unwrap_or(""))
                .collect();
            let mut pieces: Vec<String> = Vec::new();
            for &id in &ids[..expected.len()] {
                pieces.push(stream.push(id).unwrap());
            }
            assert_eq!(pieces, expected, "{name}: {ids:?}");
            let given = pieces.concat();
            if row["stream_error"].is_null() && decoded.starts_with(&given) {
                assert_eq!(given + &stream.finish().unwrap(), decoded, "{name}: {ids:?}");
            } else if row["stream_error"].is_null() {
                // Byte fallback replaces a whole run of bytes by U+FFFD when the last one makes it invalid.
                assert_eq!((name.as_str(), stream.finish().as_deref()), ("byte_fallback", Ok("")), "{ids:?}");
            } else {
                let error = stream.push(ids[expected.len()]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{name}: {ids:?}");
            }
        }
    }
}

//! Rows of `tests/golden/dataset`, and their comparison with dictionaries.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fulmar_tensor::{Entry, Tensor, TensorDict};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::golden_value::tensor;

/// Returns the path of a golden file.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/dataset").join(path)
}

/// Returns the rows of a topic.
pub fn rows_of(file: &str, topic: &str) -> Vec<Value> {
    let text = fs::read_to_string(golden(file)).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["topic"] == topic).collect()
}

/// Fails unless `dict` has exactly the keys, dtypes, shapes and values of `want`.
pub fn assert_rows(dict: &TensorDict, want: &Value, at: &str) {
    let wanted = want["k"].as_object().unwrap();
    for (name, _) in dict.entries() {
        assert!(wanted.contains_key(name), "{at}: {name} is not wanted");
    }
    for (name, want) in wanted {
        let at = format!("{at} {name}");
        match dict.get(name.as_str()) {
            Some(Entry::Dict(inner)) => assert_rows(inner, want, &at),
            Some(Entry::Tensor(found)) => assert_tensor(found, want, &at),
            Some(Entry::NonTensor(found)) => assert_eq!(found.to_json(), texts(want), "{at}"),
            other => panic!("{at}: got {other:?}"),
        }
    }
}

fn assert_tensor(found: &Tensor, want: &Value, at: &str) {
    let Some(hash) = want["sha256"].as_str() else {
        assert_eq!(found, &tensor(want), "{at}");
        return;
    };
    let shape: Vec<_> =
        want["s"].as_array().unwrap().iter().map(|len| len.as_u64().unwrap() as usize).collect();
    assert_eq!(found.shape(), shape, "{at}");
    let mut hex = String::new();
    Sha256::digest(found.to_bytes()).iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
    assert_eq!(hex, hash, "{at}");
}

/// Returns the texts of `$nt` and `$nts`, whose bytes are in hexadecimal.
fn texts(want: &Value) -> Value {
    match want.get("$nts").or_else(|| want.get("$nt")) {
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        Some(item) => text(item),
        None => want.clone(),
    }
}

fn text(item: &Value) -> Value {
    let Some(hex) = item["$hex"].as_str() else { return item.clone() };
    let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    Value::String(String::from_utf8(bytes.collect()).unwrap())
}

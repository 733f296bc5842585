//! Golden rows, naive twins and edge cases of the whole crate, in one program.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;

#[cfg(test)]
mod forests;
#[cfg(test)]
mod hashes;
#[cfg(test)]
mod maps;
#[cfg(test)]
mod scores;
#[cfg(test)]
mod searches;

use serde_json::Value;

/// Returns the rows of a golden file that have a topic.
pub fn rows(file: &str, topic: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/golden/tree/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let chosen: Vec<Value> = rows.into_iter().filter(|row| row["topic"] == topic).collect();
    assert!(!chosen.is_empty(), "{file} must have rows of {topic}");
    chosen
}

/// Returns whole numbers of a list.
pub fn integers<T: TryFrom<i64>>(value: &Value) -> Vec<T> {
    value.as_array().unwrap().iter().map(|one| T::try_from(one.as_i64().unwrap()).ok().unwrap()).collect()
}

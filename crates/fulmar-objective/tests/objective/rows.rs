//! Reading golden rows, and comparing with them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use serde_json::Value;

/// Returns the rows of `tests/golden/objective/<name>.jsonl` that `keep` accepts; there must be some.
pub fn rows(name: &str, keep: impl Fn(&Value) -> bool) -> Vec<Value> {
    let path = format!("{}/../../tests/golden/objective/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Value> = text
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(keep)
        .collect();
    assert!(!rows.is_empty(), "{name} must hold rows of this kind");
    rows
}

/// Returns a number, or one of the three strings for numbers that JSON lacks.
pub fn number(value: &Value) -> f64 {
    match value {
        Value::Bool(bit) => f64::from(u8::from(*bit)),
        Value::String(text) if text == "NaN" => f64::NAN,
        Value::String(text) if text == "Infinity" => f64::INFINITY,
        Value::String(text) if text == "-Infinity" => f64::NEG_INFINITY,
        other => other.as_f64().unwrap(),
    }
}

/// Returns all numbers of nested lists, in order.
pub fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        other => vec![number(other)],
    }
}

pub fn lines(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub fn assert_near(what: &str, got: f64, expected: f64, tolerance: f64) {
    let close = (got - expected).abs() <= tolerance * expected.abs().max(1.0);
    assert!(close, "{what}: got {got}, expected {expected}");
}

pub fn assert_all_near(what: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: {got:?} against {expected:?}");
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert_near(&format!("{what}[{index}]"), got, expected, tolerance);
    }
}

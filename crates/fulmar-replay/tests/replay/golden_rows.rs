//! Golden rows, and tests of random draws.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns all rows of `tests/golden/replay/<name>.jsonl`.
pub fn rows(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/golden/replay/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the rows of one topic; there must be `count`.
pub fn topic(name: &str, topic: &str, count: usize) -> Vec<Value> {
    let found: Vec<Value> = rows(name).into_iter().filter(|row| row["topic"] == topic).collect();
    assert_eq!(found.len(), count, "{name} must hold {count} rows of {topic}");
    found
}

/// Prints the number of rows of each topic that no test reads, and compares them with `expected`, so that
/// none is skipped unnoticed.
pub fn assert_unread(name: &str, read: &[&str], expected: &[(&str, usize)]) {
    let mut unread = BTreeMap::new();
    for row in rows(name) {
        let topic = row["topic"].as_str().unwrap().to_owned();
        if !read.contains(&topic.as_str()) {
            *unread.entry(topic).or_insert(0) += 1;
        }
    }
    println!("{name}: not built yet, by topic: {unread:?}");
    let expected: BTreeMap<String, usize> =
        expected.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect();
    assert_eq!(unread, expected);
}

/// Returns a number, or one of the three strings for numbers that JSON lacks.
pub fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) if text == "NaN" => f64::NAN,
        Value::String(text) if text == "Infinity" => f64::INFINITY,
        Value::String(text) if text == "-Infinity" => f64::NEG_INFINITY,
        other => other.as_f64().unwrap_or_else(|| panic!("{other} must be a number")),
    }
}

/// Returns the numbers of a list, of a tensor, or of one number.
pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().map(number).collect(),
        Value::Object(tensor) if tensor.contains_key("$t") => numbers(&tensor["d"]),
        other => vec![number(other)],
    }
}

/// Returns the whole numbers of a list, of a tensor, or of one number.
pub fn indices(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|number| number as usize).collect()
}

pub fn index(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} must be a count")) as usize
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn assert_close(what: &str, got: &[f64], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: {got:?} against {expected:?}");
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let close = (got - expected).abs() <= relative * expected.abs() + absolute;
        assert!(close, "{what}[{index}]: got {got}, expected {expected}");
    }
}

/// Returns a number that is written as a fraction.
pub fn fraction(value: &Value) -> f64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} must be a text"));
    let (over, under) = text.split_once('/').unwrap_or((text, "1"));
    over.parse::<f64>().unwrap() / under.parse::<f64>().unwrap()
}

/// Tests `draws` against `probabilities`: nothing impossible, and a chi-square below its 0.999 quantile.
/// Outcomes expected fewer than five times form one class.
pub fn assert_drawn(what: &str, draws: &[usize], probabilities: &[f64]) {
    let mut counts = vec![0.0; probabilities.len()];
    for &draw in draws {
        counts[draw] += 1.0;
    }
    let total: f64 = probabilities.iter().sum();
    let (mut chi_square, mut classes, mut rare) = (0.0, 0.0, (0.0, 0.0));
    for (&count, &probability) in counts.iter().zip(probabilities) {
        let expected = probability / total * draws.len() as f64;
        assert!(expected > 0.0 || count == 0.0, "{what}: something impossible was drawn {count} times");
        if expected >= 5.0 {
            chi_square += (count - expected) * (count - expected) / expected;
            classes += 1.0;
        } else {
            rare = (rare.0 + count, rare.1 + expected);
        }
    }
    if rare.1 >= 5.0 {
        chi_square += (rare.0 - rare.1) * (rare.0 - rare.1) / rare.1;
        classes += 1.0;
    }
    let freedom: f64 = classes - 1.0;
    if freedom > 0.0 {
        // Wilson and Hilferty's approximation of the quantile.
        let spread = 2.0 / (9.0 * freedom);
        let quantile = freedom * (1.0 - spread + 3.0902 * spread.sqrt()).powi(3);
        assert!(chi_square < quantile, "{what}: chi-square {chi_square} of {freedom} degrees, {counts:?}");
    }
}

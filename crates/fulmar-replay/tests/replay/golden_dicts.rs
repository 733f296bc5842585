//! Reading tensors and dictionaries of golden rows, and comparing them.

use fulmar_core::Dtype;
use fulmar_tensor::{Entry, Index, Key, Tensor, TensorDict};
use serde_json::Value;

use crate::golden_rows::{index, list, number};

pub fn dtype(name: &str) -> Dtype {
    match name {
        "float64" => Dtype::F64,
        "float32" => Dtype::F32,
        "int64" => Dtype::I64,
        "int32" => Dtype::I32,
        "uint8" => Dtype::U8,
        "bool" => Dtype::Bool,
        other => panic!("{other} is no dtype of these rows"),
    }
}

pub fn tensor(value: &Value) -> Tensor {
    let shape: Vec<usize> = list(&value["s"]).iter().map(index).collect();
    let numbers: Vec<f64> = list(&value["d"])
        .iter()
        .map(|item| item.as_bool().map_or_else(|| number(item), |flag| f64::from(u8::from(flag))))
        .collect();
    Tensor::from_vec(&shape, numbers).unwrap().to(dtype(value["$t"].as_str().unwrap())).unwrap()
}

pub fn dict(value: &Value) -> TensorDict {
    let batch: Vec<usize> = list(&value["$td"]).iter().map(index).collect();
    let mut dict = TensorDict::new(&batch).unwrap();
    for (name, leaf) in value["k"].as_object().unwrap() {
        let entry: Entry =
            if leaf.get("$td").is_some() { self::dict(leaf).into() } else { tensor(leaf).into() };
        dict.set(name.as_str(), entry).unwrap();
    }
    dict
}

/// Checks that `got` equals the row: stacks of rows are compared row by row.
pub fn assert_items(what: &str, got: &TensorDict, expected: &Value) {
    if let Some(items) = expected["items"].as_array().or_else(|| expected.as_array()) {
        assert_eq!(got.batch_size()[0], items.len(), "{what}");
        for (at, item) in items.iter().enumerate() {
            assert_subset(&format!("{what} row {at}"), &got.index(at).unwrap(), &dict(item));
        }
        return;
    }
    assert_dict(what, got, dict(expected));
}

/// Checks equal dictionaries except for row numbers: here all of a buffer's items have them, or none, and
/// with lanes they are whole coordinates. They have a separate test.
pub fn assert_dict(what: &str, got: &TensorDict, mut expected: TensorDict) {
    if got.batch_size() == [0] {
        // A buffer restored from an empty state has not seen its leaves yet.
        assert_eq!(expected.batch_size(), [0], "{what}");
        return;
    }
    let mut got = got.clone();
    got.remove("index").unwrap();
    expected.remove("index").unwrap();
    assert_eq!(got, expected, "{what}");
}

/// A stack shows the leaves that all its rows have: those must be equal.
fn assert_subset(what: &str, got: &TensorDict, expected: &TensorDict) {
    for key in got.leaf_keys() {
        if key == Key::from("index") {
            continue;
        }
        let want = expected.entry(key.clone()).unwrap_or_else(|error| panic!("{what} {key}: {error}"));
        assert_eq!(got.entry(key.clone()).unwrap(), want, "{what} {key}");
    }
}

/// Returns an index in the notation of the rows.
pub fn items_of_index(value: &Value) -> Vec<Index> {
    if let Some(items) = value["$tuple"].as_array() {
        return items.iter().flat_map(items_of_index).collect();
    }
    if let Some(bounds) = value["$slice"].as_array() {
        let step = bounds[2].as_u64().map_or(1, |step| step as usize);
        return vec![Index::Slice { start: bounds[0].as_i64(), stop: bounds[1].as_i64(), step }];
    }
    if value.get("$t").is_some() {
        return vec![Index::Pick(tensor(value))];
    }
    if let Some(items) = value.as_array() {
        return vec![Index::list(items.iter().map(|item| item.as_i64().unwrap()).collect())];
    }
    vec![Index::At(value.as_i64().unwrap_or_else(|| panic!("{value} is no index")))]
}

/// Returns a key in the notation of the rows, if it is one.
pub fn key(value: &Value) -> Option<Key> {
    let names = value["$tuple"].as_array().or_else(|| value.as_array());
    match names {
        Some(names) => {
            let names: Option<Vec<String>> =
                names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
            names.map(Key::from)
        }
        None => value.as_str().map(Key::from),
    }
}

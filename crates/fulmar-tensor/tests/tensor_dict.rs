//! Tensor dictionaries: equal to what tensordict 0.14.3 printed, and typed errors that name the key.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Dtype, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, NonTensor, Ragged, Tensor, TensorDict};
use serde_json::{Value, json};

fn shape(value: &Value) -> Vec<usize> {
    value
        .as_array()
        .map_or_else(Vec::new, |dims| dims.iter().map(|dim| dim.as_u64().unwrap() as usize).collect())
}

fn key(value: &Value) -> Key {
    match value.as_str() {
        Some(name) => name.into(),
        None => {
            let path = value.get("$tuple").unwrap_or(value).as_array().unwrap();
            path.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>().into()
        }
    }
}

fn tensor(value: &Value) -> Tensor {
    let numbers = value["d"].as_array().unwrap();
    let shape = shape(&value["s"]);
    match value["$t"].as_str().unwrap() {
        "float32" => Tensor::from_vec(&shape, numbers.iter().map(|x| x.as_f64().unwrap() as f32).collect()),
        "int64" => Tensor::from_vec(&shape, numbers.iter().map(|x| x.as_i64().unwrap()).collect()),
        "int32" => Tensor::from_vec(&shape, numbers.iter().map(|x| x.as_i64().unwrap() as i32).collect()),
        "bool" => Tensor::from_vec(&shape, numbers.iter().map(|x| x.as_bool().unwrap()).collect()),
        other => panic!("the golden rows hold no {other}"),
    }
    .unwrap()
}

fn entry(value: &Value, batch_size: &[usize]) -> Result<Entry> {
    if value.get("$t").is_some() {
        return Ok(tensor(value).into());
    }
    if let Some(values) = value.get("$nts") {
        return Ok(NonTensor::nested(&shape(&value["b"]), values.clone())?.into());
    }
    if let Some(entries) = value.get("$td") {
        return dict(
            value["k"].as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value)),
            &shape(entries),
        )
        .map(Entry::Dict);
    }
    if let Some(entries) = value.get("$dict") {
        let pairs = entries.as_array().unwrap().iter().map(|pair| (pair[0].as_str().unwrap(), &pair[1]));
        return dict(pairs, batch_size).map(Entry::Dict);
    }
    Ok(NonTensor::shared(value.get("$nt").unwrap_or(value).clone()).into())
}

fn dict<'a>(entries: impl Iterator<Item = (&'a str, &'a Value)>, batch_size: &[usize]) -> Result<TensorDict> {
    let mut dict = TensorDict::new(batch_size)?;
    for (name, value) in entries {
        dict.set(name, entry(value, batch_size)?)?;
    }
    Ok(dict)
}

fn input_of(row: &Value) -> TensorDict {
    match entry(&row["input"], &[]) {
        Ok(Entry::Dict(dict)) => dict,
        _ => TensorDict::new(&[]).unwrap(),
    }
}

fn some(entry: Option<Entry>) -> Result<Entry> {
    entry.ok_or_else(|| fulmar_core::Error::new(ErrorKind::UnknownName, "nothing to remove"))
}

fn indexed(dict: &TensorDict, index: &Value) -> Result<TensorDict> {
    if let Some(at) = index.as_u64() {
        return dict.index(at as usize);
    }
    if let Some(bounds) = index.get("$slice") {
        return dict.slice(bounds[0].as_u64().unwrap() as usize..bounds[1].as_u64().unwrap() as usize);
    }
    if let Some(bounds) = index.get("$range") {
        let bounds = shape(bounds);
        return dict.index_select(&(bounds[0]..bounds[1]).collect::<Vec<_>>());
    }
    dict.index_select(&shape(index.get("d").unwrap_or(index)))
}

fn items(row: &Value) -> Vec<TensorDict> {
    let items = row["args"]["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| if let Ok(Entry::Dict(dict)) = entry(item, &[]) { dict } else { panic!("{item}") })
        .collect()
}

/// What the row's operation gives, `None` if it gives back its input.
fn applied(row: &Value, input: &mut TensorDict) -> Result<Option<Entry>> {
    let args = &row["args"];
    let dim = args["dim"].as_u64().unwrap_or(0) as usize;
    let keys = || args["keys"].as_array().unwrap().iter().map(key).collect::<Vec<_>>();
    let twice = [input.clone(), input.clone()];
    let dict = match row["topic"].as_str().unwrap() {
        "construct" => return entry(&args["source"], &shape(&args["batch_size"])).map(Some),
        "getitem_key" => return input.entry(key(&args["key"])).cloned().map(Some),
        "set" => {
            let batch_size = input.batch_size().to_vec();
            input.set(key(&args["key"]), entry(&args["value"], &batch_size)?)?;
            return Ok(None);
        }
        "pop" => return some(input.remove(key(&args["key"]))).map(Some),
        "del" => return some(input.remove(key(&args["key"]))).map(|_| None),
        "select" => input.select(&keys()),
        "exclude" => Ok(input.exclude(&keys())),
        "index" => indexed(input, &args["index"]),
        "stack" => TensorDict::stack(&items(row), dim),
        "cat" => TensorDict::cat(&items(row), dim),
        "nontensor_stack" => TensorDict::stack(&twice, 0),
        "nontensor_cat" | "nontensorstack_cat" => TensorDict::cat(&twice, 0),
        "nontensor_gather_idx" => input.index_select(&[2, 0]),
        "nontensorstack_slice" => input.slice(1..3),
        other => panic!("no such topic: {other}"),
    };
    dict.map(|dict| Some(Entry::Dict(dict)))
}

fn check_row(row: &Value) {
    let id = &row["id"];
    let mut input = input_of(row);
    match row["topic"].as_str().unwrap() {
        "contains" => {
            assert_eq!(input.get(key(&row["args"]["key"])).is_some(), row["ok"], "{id}");
            return;
        }
        "keys" => {
            let nested = !row["args"]["kwargs"]["$dict"].as_array().unwrap().is_empty();
            let want: Vec<_> = row["ok"].as_array().unwrap().iter().map(key).collect();
            let top = || input.entries().map(|(name, _)| name.into()).collect();
            assert_eq!(if nested { input.nested_keys() } else { top() }, want, "{id}");
            return;
        }
        _ => {}
    }
    let before = input.clone();
    let result = applied(row, &mut input);
    if row.get("error").is_some() {
        assert!(result.is_err(), "{id} must fail");
        assert_eq!(input, before, "{id} must change nothing");
        return;
    }
    if row["ok"]["$same"] != true {
        assert_eq!(result.unwrap().unwrap(), entry(&row["ok"], &[]).unwrap(), "{id}");
    }
    if let Some(after) = row.get("input_after") {
        let Entry::Dict(after) = entry(after, &[]).unwrap() else { panic!("{id}") };
        assert_eq!((&input, input.nested_keys()), (&after, after.nested_keys()), "{id}");
    }
}

#[test]
fn every_golden_row_of_tensordict_agrees() {
    let rows = include_str!("../../../tests/golden/tensor/tensordict.jsonl");
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.iter().for_each(check_row);
    assert_eq!(rows.len(), 157);
}

fn single(value: i64) -> Tensor {
    Tensor::from_vec(&[], vec![value]).unwrap()
}

fn batch(ids: Vec<u32>, offsets: &[u32], texts: Value) -> TensorDict {
    let rows = offsets.len() - 1;
    let mut dict = TensorDict::new(&[rows]).unwrap();
    dict.set("ids", Ragged::new(Tensor::from_vec(&[ids.len()], ids).unwrap(), offsets).unwrap()).unwrap();
    dict.set(["meta", "text"], NonTensor::nested(&[rows], texts).unwrap()).unwrap();
    dict.set("task", NonTensor::shared(json!("sum"))).unwrap();
    dict
}

#[test]
fn ragged_and_text_entries_follow_the_rows() {
    let dict = batch(vec![1, 2, 3, 4, 5, 6], &[0, 1, 1, 4, 6], json!(["a", "b", "c", "d"]));
    let row = dict.index(2).unwrap();
    assert_eq!(row.batch_size(), [0; 0]);
    assert_eq!(row.tensor("ids").unwrap().to_vec::<u32>().unwrap(), [2, 3, 4]);
    assert_eq!(row.entry(["meta", "text"]).unwrap(), &Entry::NonTensor(NonTensor::shared(json!("c"))));

    let chosen = dict.index_select(&[3, 0]).unwrap();
    assert_eq!(chosen, batch(vec![5, 6, 1], &[0, 2, 3], json!(["d", "a"])));
    let ends = [dict.slice(0..1).unwrap(), dict.slice(1..4).unwrap()];
    assert_eq!(TensorDict::cat(&ends, 0).unwrap(), dict);
    assert_eq!(dict.slice(1..1).unwrap().ragged("ids").unwrap().num_rows(), 0);
    assert_eq!(dict.index_select(&[]).unwrap().ragged("ids").unwrap().offsets(), [0]);

    let error = TensorDict::stack(&ends.map(|part| part.index_select(&[0]).unwrap()), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().starts_with("\"ids\": "), "{error}");
}

#[test]
fn values_of_a_batch_with_two_dimensions_nest_as_it_does() {
    let values: Vec<_> = (0..24).map(|value| json!(value)).collect();
    let each = NonTensor::each(&[2, 3, 4], values).unwrap();
    assert_eq!(each.to_json()[1][2], json!([20, 21, 22, 23]));
    let mut dict = TensorDict::new(&[2, 3, 4]).unwrap();
    dict.set("v", each).unwrap();
    let moved = TensorDict::stack(&[dict.index(0).unwrap(), dict.index(1).unwrap()], 2).unwrap();
    let values = moved.non_tensor("v").unwrap();
    assert_eq!(values.to_json()[2][3], json!([11, 23]));
}

#[test]
fn cat_of_different_shared_values_keeps_each() {
    let shared = |text: &str| {
        let mut dict = TensorDict::new(&[2]).unwrap();
        dict.set("s", NonTensor::shared(json!(text))).unwrap();
        dict
    };
    let both = TensorDict::cat(&[shared("x"), shared("y")], 0).unwrap();
    let values = both.non_tensor("s").unwrap();
    assert_eq!(values.to_json(), json!(["x", "x", "y", "y"]));
}

#[test]
fn parts_that_do_not_join_are_named() {
    let with = |name: &str, tensor: Tensor| {
        let mut dict = TensorDict::new(&[]).unwrap();
        dict.set(["in", name], tensor).unwrap();
        dict
    };
    let refusal = |left: &TensorDict, right: &TensorDict| {
        let error = TensorDict::stack(&[left.clone(), right.clone()], 0).unwrap_err();
        (error.kind(), error.detail().to_owned())
    };
    let one = with("a", single(1));
    let (kind, detail) = refusal(&one, &with("a", Tensor::zeros(Dtype::I64, &[2]).unwrap()));
    assert_eq!(
        (kind, &*detail),
        (ErrorKind::ShapeMismatch, "\"in\": \"a\": parts must have one shape: got [] and [2]")
    );
    assert_eq!(refusal(&one, &with("a", Tensor::zeros(Dtype::F32, &[]).unwrap())).0, ErrorKind::Incompatible);
    let (kind, detail) = refusal(&one, &with("b", single(1)));
    assert!(
        kind == ErrorKind::UnknownName && detail.contains("\"in\": ") && detail.contains("\"a\""),
        "{detail}"
    );
    let mut text = TensorDict::new(&[]).unwrap();
    text.set(["in", "a"], NonTensor::shared(json!("x"))).unwrap();
    assert_eq!(refusal(&one, &text).0, ErrorKind::Incompatible);
    assert_eq!(refusal(&one, &TensorDict::new(&[1]).unwrap()).0, ErrorKind::ShapeMismatch);
    assert_eq!(TensorDict::stack(&[], 0).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(TensorDict::cat(&[], 0).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(TensorDict::stack(std::slice::from_ref(&one), 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(TensorDict::cat(&[one], 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    let (wide, narrow) = (TensorDict::new(&[2, 3]).unwrap(), TensorDict::new(&[2, 2]).unwrap());
    assert_eq!(
        TensorDict::cat(&[wide.clone(), narrow.clone()], 0).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
    assert_eq!(TensorDict::cat(&[wide, narrow], 1).unwrap().batch_size(), [2, 5]);
}

#[test]
fn entries_that_do_not_fit_are_typed_errors_with_key_and_shapes() {
    let mut dict = TensorDict::new(&[2]).unwrap();
    let refusal = |dict: &mut TensorDict, key: Key, entry: Entry| {
        let error = dict.set(key, entry).unwrap_err();
        (error.kind(), error.detail().to_owned())
    };
    let ragged = Ragged::new(Tensor::zeros(Dtype::U32, &[3]).unwrap(), &[0_u64, 1, 2, 3]).unwrap();
    let (kind, detail) = refusal(&mut dict, ["x", "r"].into(), ragged.into());
    assert_eq!(kind, ErrorKind::ShapeMismatch);
    assert_eq!(detail, r#"["x", "r"]: shape must begin with the batch size [2]: got [3]"#);
    assert_eq!(dict.num_entries(), 0, "a refused path leaves no dictionary behind");
    let three = NonTensor::each(&[3], vec![json!(1), json!(2), json!(3)]).unwrap();
    assert_eq!(refusal(&mut dict, "v".into(), three.into()).0, ErrorKind::ShapeMismatch);
    let mut inner = TensorDict::new(&[3]).unwrap();
    inner.set("z", Tensor::zeros(Dtype::U32, &[3]).unwrap()).unwrap();
    let (kind, detail) = refusal(&mut dict, "d".into(), inner.into());
    assert_eq!(
        (kind, &*detail),
        (ErrorKind::ShapeMismatch, r#""d": "z": shape must begin with the batch size [2]: got [3]"#)
    );
    assert_eq!(refusal(&mut dict, Vec::new().into(), single(1).into()).0, ErrorKind::Empty);

    dict.set("t", Tensor::zeros(Dtype::U32, &[2]).unwrap()).unwrap();
    let (kind, detail) = refusal(&mut dict, ["t", "below"].into(), single(1).into());
    assert!(kind == ErrorKind::Incompatible && detail.contains("\"t\" must be a dictionary"), "{detail}");
    assert_eq!(dict.dict("t").unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(dict.non_tensor("t").unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(dict.ragged("t").unwrap_err().kind(), ErrorKind::Incompatible);
    let error = dict.tensor(["t", "u"]).unwrap_err();
    assert_eq!(
        (error.kind(), error.detail()),
        (ErrorKind::UnknownName, r#"key must be one of "t": got ["t", "u"]"#)
    );
}

#[test]
fn the_depth_of_keys_and_of_nested_dictionaries_is_limited() {
    let path = |len: usize| Key::from(vec!["k".to_owned(); len]);
    let mut dict = TensorDict::new(&[]).unwrap();
    dict.set(path(TENSOR_DICT_DEPTH_MAX), single(1)).unwrap();
    assert_eq!(dict.leaf_keys(), [path(TENSOR_DICT_DEPTH_MAX)]);
    let mut other = TensorDict::new(&[]).unwrap();
    assert_eq!(
        other.set(path(TENSOR_DICT_DEPTH_MAX + 1), single(1)).unwrap_err().kind(),
        ErrorKind::LimitExceeded
    );
    assert_eq!(other.set("one more", dict).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

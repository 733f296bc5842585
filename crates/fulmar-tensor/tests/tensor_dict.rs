//! Tensor dictionaries: entries follow the batch, and typed errors name the key.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Dtype, ErrorKind};
use fulmar_tensor::{Entry, Key, NonTensor, Ragged, Tensor, TensorDict};
use serde_json::{Value, json};

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

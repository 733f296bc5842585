//! Tensor dictionaries: entries follow the batch, and typed errors name the key.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Dtype, ErrorKind};
use fulmar_tensor::{Entry, Index, Key, NonTensor, Operation, PadSequence, Ragged, Tensor, TensorDict};
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
    assert_eq!(dict.num_entries(), 0, "a refused path leaves no dictionary");
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
fn a_key_of_an_empty_dictionary_is_refused_without_an_empty_list_of_keys() {
    let error = TensorDict::new(&[2]).unwrap().entry(["next", "reward"]).unwrap_err();
    assert_eq!(
        (error.kind(), error.argument(), error.value()),
        (ErrorKind::UnknownName, Some("key"), Some(r#"["next", "reward"]"#))
    );
    assert_eq!(error.rule(), Some("must be one of the entries, and there are none"));
    let one = batch(vec![1], &[0, 1], json!(["a"])).entry("reward").unwrap_err();
    assert_eq!(one.rule(), Some(r#"must be one of "ids", ["meta", "text"], "task""#));
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

/// Two dimensions, a nested dictionary with one more, a value for each element and one for all.
fn grid() -> TensorDict {
    let mut dict = TensorDict::new(&[2, 3]).unwrap();
    dict.set("id", Tensor::from_vec(&[2, 3], vec![0_i64, 1, 2, 3, 4, 5]).unwrap()).unwrap();
    let mut inner = TensorDict::new(&[2, 3, 2]).unwrap();
    inner.set("x", Tensor::from_vec(&[2, 3, 2], (0..12_i64).collect()).unwrap()).unwrap();
    dict.set("in", inner).unwrap();
    dict.set("each", NonTensor::nested(&[2, 3], json!([["a", "b", "c"], ["d", "e", "f"]])).unwrap()).unwrap();
    dict.set("all", NonTensor::shared(json!("x"))).unwrap();
    dict
}

fn ints(dict: &TensorDict, key: impl Into<Key>) -> Vec<i64> {
    dict.tensor(key).unwrap().to_vec().unwrap()
}

#[test]
fn batch_operations_reach_nested_dictionaries_with_more_dimensions_and_values() {
    let turned = grid().transpose(0, 1).unwrap();
    assert_eq!((turned.batch_size(), ints(&turned, "id")), (&[3, 2][..], vec![0, 3, 1, 4, 2, 5]));
    let inner = turned.dict("in").unwrap();
    assert_eq!(
        (inner.batch_size(), ints(inner, "x")),
        (&[3, 2, 2][..], vec![0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11])
    );
    assert_eq!(turned.non_tensor("each").unwrap().to_json(), json!([["a", "d"], ["b", "e"], ["c", "f"]]));
    assert_eq!(turned.non_tensor("all").unwrap().to_json(), "x");
    let flat = grid().flatten(0, -1).unwrap();
    assert_eq!((flat.batch_size(), flat.dict("in").unwrap().batch_size()), (&[6][..], &[6, 2][..]));
    assert_eq!(flat.unflatten(0, &[2, -1]).unwrap(), grid());
    let parts = grid().unbind(-1).unwrap();
    assert_eq!(TensorDict::stack(&parts, 1).unwrap(), {
        let mut each = grid();
        each.set("all", NonTensor::each(&[2, 3], vec![json!("x"); 6]).unwrap()).unwrap();
        each
    });
    let whole = grid();
    assert!(whole.view(&[6]).unwrap().tensor("id").unwrap().shares_storage(whole.tensor("id").unwrap()));
    assert!(
        whole
            .at(&[Index::Ellipsis, 0.into()])
            .unwrap()
            .tensor("id")
            .unwrap()
            .shares_storage(whole.tensor("id").unwrap())
    );
}

#[test]
fn a_ragged_entry_keeps_one_batch_dimension() {
    let dict = batch(vec![1, 2, 3], &[0, 1, 3], json!(["a", "b"]));
    let error = dict.unsqueeze(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().starts_with("\"ids\": a ragged entry must keep one batch dimension"), "{error}");
    assert_eq!(dict.reshape(&[-1]).unwrap(), dict);
    assert_eq!(dict.split(1, 0).unwrap()[1].ragged("ids").unwrap().values().to_vec::<u32>().unwrap(), [2, 3]);
    assert_eq!(dict.pad(&[(0, 1)], 0.0).unwrap_err().kind(), ErrorKind::Incompatible);
    let mut whole = TensorDict::new(&[]).unwrap();
    whole.set("ids", dict.ragged("ids").unwrap().clone()).unwrap();
    assert_eq!(whole.unsqueeze(0).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(whole.reshape(&[]).unwrap(), whole);
}

#[test]
fn batch_arguments_that_do_not_fit_are_typed_errors() {
    let kind = |result: fulmar_core::Result<TensorDict>| result.unwrap_err().kind();
    assert_eq!(kind(grid().transpose(0, 2)), ErrorKind::OutOfRange);
    assert_eq!(kind(grid().transpose(0, isize::MIN)), ErrorKind::OutOfRange);
    assert_eq!(kind(grid().permute(&[0])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().permute(&[0, 0])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().reshape(&[-1, -1])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().reshape(&[-2, 3])), ErrorKind::OutOfRange);
    assert_eq!(kind(grid().reshape(&[4, -1])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().transpose(0, 1).unwrap().view(&[6])), ErrorKind::Incompatible);
    assert_eq!(kind(grid().flatten(1, 0)), ErrorKind::OutOfRange);
    assert_eq!(kind(grid().repeat(&[2])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().pad(&[(0, 0); 3], 0.0)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().at(&[Index::ALL, Index::ALL, 0.into()])), ErrorKind::OutOfRange);
    assert_eq!(kind(grid().gather(0, &single(0))), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().masked_select(&single(0))), ErrorKind::Incompatible);
    assert_eq!(kind(grid().masked_fill(&single(0), 0.0)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().unflatten_keys("")), ErrorKind::Empty);
    assert_eq!(grid().split(0, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(grid().chunk(0, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(grid().split_sizes(&[1, 2], 0).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(kind(grid().expand(&[3, 3])), ErrorKind::ShapeMismatch);
}

#[test]
fn a_part_is_written_into_every_entry_or_none() {
    let mut dict = grid();
    let mut part = grid().at(&[0.into()]).unwrap();
    part.set("id", Tensor::from_vec(&[3], vec![7_i64, 8, 9]).unwrap()).unwrap();
    part.set("new", Tensor::from_vec(&[3, 1], vec![1_u8, 2, 3]).unwrap()).unwrap();
    part.set(["fresh", "deep"], Tensor::from_vec(&[3], vec![4_u8, 5, 6]).unwrap()).unwrap();
    dict.set_at(&[1.into()], &part).unwrap();
    assert_eq!(ints(&dict, "id"), [0, 1, 2, 7, 8, 9]);
    assert_eq!(ints(&dict, ["in", "x"]), [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
    assert_eq!(dict.non_tensor("each").unwrap().to_json(), json!([["a", "b", "c"], ["a", "b", "c"]]));
    assert_eq!(dict.tensor("new").unwrap().to_vec::<u8>().unwrap(), [0, 0, 0, 1, 2, 3]);
    assert_eq!(dict.tensor(["fresh", "deep"]).unwrap().to_vec::<u8>().unwrap(), [0, 0, 0, 4, 5, 6]);

    let before = dict.clone();
    let refused = |dict: &mut TensorDict, name: &str, entry: Entry| {
        let mut part = grid().at(&[0.into()]).unwrap();
        part.set(name, entry).unwrap();
        let error = dict.set_at(&[0.into()], &part).unwrap_err();
        assert_eq!(*dict, before);
        error.kind()
    };
    let wide = Tensor::zeros(Dtype::I64, &[3, 2]).unwrap();
    assert_eq!(refused(&mut dict, "id", wide.into()), ErrorKind::ShapeMismatch);
    assert_eq!(
        refused(&mut dict, "id", Tensor::zeros(Dtype::F32, &[3]).unwrap().into()),
        ErrorKind::Incompatible
    );
    assert_eq!(refused(&mut dict, "id", NonTensor::shared(json!(1)).into()), ErrorKind::Incompatible);
    let rows = Ragged::new(Tensor::zeros(Dtype::U8, &[0]).unwrap(), &[0_u32; 4]).unwrap();
    assert_eq!(refused(&mut dict, "rows", rows.into()), ErrorKind::Incompatible);
    assert_eq!(dict.set_at(&[0.into(), 0.into()], &part).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    dict.lock();
    assert_eq!(
        refused(&mut dict, "later", Tensor::zeros(Dtype::U8, &[3]).unwrap().into()),
        ErrorKind::Closed
    );
    dict.set_at(&[0.into()], &part).unwrap();
    dict.unlock();
    assert!(!dict.is_locked() && dict.remove("new").unwrap().is_some());
}

#[test]
fn parts_of_different_lengths_are_padded_and_masked_over_all_their_dimensions() {
    let long = grid().select(&["id".into()]).unwrap();
    let parts = [long.clone(), long.slice(1..2).unwrap()];
    let batch =
        TensorDict::pad_sequence(&parts, &PadSequence { value: -1.0, mask: Some("masks"), dim: 0 }).unwrap();
    assert_eq!(ints(&batch, "id"), [0, 1, 2, 3, 4, 5, 3, 4, 5, -1, -1, -1]);
    let mask: Vec<_> = (0..12).map(|at| at < 9).collect();
    assert_eq!(batch.tensor(["masks", "id"]).unwrap().to_vec::<bool>().unwrap(), mask);
    assert_eq!(TensorDict::pad_sequence(&[], &PadSequence::default()).unwrap_err().kind(), ErrorKind::Empty);
    let scalar = TensorDict::new(&[]).unwrap();
    assert_eq!(
        TensorDict::pad_sequence(&[scalar], &PadSequence::default()).unwrap_err().kind(),
        ErrorKind::OutOfRange
    );
}

#[test]
fn lengths_of_a_later_dimension_are_padded_too() {
    let long = grid().select(&["id".into()]).unwrap();
    let short = long.at(&[Index::ALL, (0..1).into()]).unwrap();
    let options = PadSequence { dim: -1, value: -1.0, mask: Some("masks") };
    let batch = TensorDict::pad_sequence(&[short, long], &options).unwrap();
    assert_eq!(ints(&batch, "id"), [0, -1, -1, 3, -1, -1, 0, 1, 2, 3, 4, 5]);
    let mask = batch.tensor(["masks", "id"]).unwrap().at(&[0.into(), 1.into()]).unwrap();
    assert_eq!(mask.to_vec::<bool>().unwrap(), [true, false, false]);
}

#[test]
fn a_lock_holds_for_nested_dictionaries_and_for_no_part_that_was_made() {
    let mut dict = grid();
    dict.lock();
    let nested = dict.dict("in").unwrap().clone();
    assert!(nested.is_locked() && dict.set(["in", "new"], nested.clone()).is_err());
    let mut nested_only = dict.select(&["in".into()]).unwrap();
    nested_only.lock();
    let sized = nested_only.with_batch_size(&[]).unwrap();
    for made in [dict.select(&["in".into()]).unwrap(), dict.index(0).unwrap(), dict.exclude(&[]), sized] {
        assert!(!made.is_locked() && !made.dict("in").unwrap().is_locked());
    }
    let mut other = TensorDict::new(dict.batch_size()).unwrap();
    other.set("locked", nested).unwrap();
    assert!(!other.dict("locked").unwrap().is_locked());
    dict.unlock();
    assert!(!dict.dict("in").unwrap().is_locked());
}

#[test]
fn numbers_are_written_to_all_tensors_or_to_none() {
    let mut dict = grid();
    dict.set("flag", Tensor::zeros(Dtype::Bool, &[2, 3]).unwrap()).unwrap();
    dict.set("note", NonTensor::shared(json!("x"))).unwrap();
    dict.lock();
    dict.fill_at(&[0.into(), Index::list(vec![2, 0])], 7.0).unwrap();
    assert_eq!(ints(&dict, "id"), [7, 1, 7, 3, 4, 5]);
    let flags = dict.tensor("flag").unwrap().to_vec::<bool>().unwrap();
    assert_eq!(flags, [true, false, true, false, false, false]);
    assert!(dict.is_locked() && dict.non_tensor("note").unwrap().to_json() == "x");
    let before = dict.clone();
    assert_eq!(dict.fill_at(&[2.into()], 1.0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(dict.fill_at(&[], f64::NAN).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(dict, before);
}

#[test]
fn entries_are_written_over_those_that_exist_or_not_at_all() {
    let mut dict = grid();
    let mut other = TensorDict::new(&[2, 3]).unwrap();
    other.set("id", Tensor::zeros(Dtype::I64, &[2, 3]).unwrap()).unwrap();
    let mut unknown = other.clone();
    unknown.set("unknown", Tensor::zeros(Dtype::I64, &[2, 3]).unwrap()).unwrap();
    assert_eq!(dict.write_all(&unknown).unwrap_err().kind(), ErrorKind::UnknownName);
    assert_eq!(dict, grid());
    dict.lock();
    dict.write_all(&other).unwrap();
    assert_eq!(ints(&dict, "id"), [0; 6]);
}

#[test]
fn renaming_over_the_way_to_a_key_is_refused_whole() {
    let mut dict = grid();
    assert_eq!(dict.rename("all", ["id", "below"]).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(dict.rename_safe("all", "id").unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(dict, grid());
    dict.rename("in", ["in", "in"]).unwrap();
    assert_eq!(ints(&dict, ["in", "in", "x"]).len(), 12);
}

#[test]
fn operations_come_as_json() {
    let operated = |json: &str| {
        let operation: Operation = fulmar_core::options_from_json("operation", json)?;
        grid().operate(&operation)
    };
    let ids = |json: &str| ints(&operated(json).unwrap(), "id");
    assert_eq!(ids(r#"{"op":"at","index":[1,{"start":-2}]}"#), [4, 5]);
    assert_eq!(ids(r#"{"op":"at","index":["...",{"step":2}]}"#), [0, 2, 3, 5]);
    assert_eq!(ids(r#"{"op":"at","index":[null,[true,false]]}"#), [0, 1, 2]);
    assert_eq!(ids(r#"{"op":"at","index":[{"shape":[2],"at":[1,0]},[0,-1]]}"#), [3, 2]);
    assert_eq!(
        ids(r#"{"op":"at","index":[{"shape":[2,3],"mask":[true,false,false,false,false,true]}]}"#),
        [0, 5]
    );
    assert_eq!(ids(r#"{"op":"gather","dim":1,"shape":[2,1],"at":[2,-3]}"#), [2, 3]);
    assert_eq!(
        ids(r#"{"op":"maskedFill","mask":[true,false,false,false,false,true],"value":9}"#),
        [9, 1, 2, 3, 4, 9]
    );
    assert_eq!(ids(r#"{"op":"squeeze"}"#), [0, 1, 2, 3, 4, 5]);
    let kind = |json: &str| operated(json).unwrap_err().kind();
    assert_eq!(kind(r#"{"op":"at","index":[1.5]}"#), ErrorKind::Malformed);
    assert_eq!(kind(r#"{"op":"at","index":[{"shape":[3],"at":[1]}]}"#), ErrorKind::Malformed);
    assert_eq!(kind(r#"{"op":"turn"}"#), ErrorKind::UnknownName);
    assert_eq!(kind(r#"{"op":"pad","around":[],"value":0,"side":1}"#), ErrorKind::UnknownName);
}

//! Bad input gives a typed error that names the key, the rule and the value; limits hold at their bounds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::{SPEC_DEPTH_MAX, SPEC_ELEMENTS_MAX, SPEC_VALUES_MAX, TENSOR_RANK_MAX};
use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_spec::{At, Choice, Composite, Shape, TensorSpec};
use fulmar_tensor::{Entry, Tensor, TensorDict};
use serde_json::json;

fn kind<T: std::fmt::Debug>(result: fulmar_spec::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_leaf_that_is_wrong_is_named_with_its_rule_and_value() {
    let mut inner = Composite::new([]).unwrap();
    inner.set(["next", "reward"], TensorSpec::bounded(0.0, 1.0, [2], Dtype::F32).unwrap()).unwrap();
    let spec = TensorSpec::from(inner);
    let with = |tensor: Tensor| {
        let mut dict = TensorDict::new(&[]).unwrap();
        dict.set(["next", "reward"], tensor).unwrap();
        spec.check(&dict.into()).unwrap_err()
    };
    let error = with(Tensor::from_vec(&[2], vec![0.5_f32, 7.0]).unwrap());
    assert_eq!(error.detail(), r#""next": "reward": value must be from 0 to 1: got 7"#);
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
    assert_eq!(with(Tensor::from_vec(&[3], vec![0.5_f32; 3]).unwrap()).kind(), ErrorKind::ShapeMismatch);
    assert_eq!(with(Tensor::from_vec(&[2], vec![0_i64; 2]).unwrap()).kind(), ErrorKind::Incompatible);
    let mut dict = TensorDict::new(&[]).unwrap();
    dict.set(["next", "reward"], Tensor::from_vec(&[2], vec![0.5_f32; 2]).unwrap()).unwrap();
    assert_eq!(spec.check_strict(&dict.clone().into()), Ok(()));
    dict.set(["next", "done"], Tensor::from_vec(&[1], vec![true]).unwrap()).unwrap();
    assert_eq!(spec.check(&dict.clone().into()), Ok(()));
    let error = spec.check_strict(&dict.into()).unwrap_err();
    assert_eq!(
        (error.kind(), error.detail()),
        (ErrorKind::UnknownName, r#""next": value must have no key "done": got one"#)
    );
    let error = spec.check(&TensorDict::new(&[]).unwrap().into()).unwrap_err();
    assert_eq!(
        (error.kind(), error.detail()),
        (ErrorKind::UnknownName, r#"value must have the key "next": got no keys"#)
    );
}

#[test]
fn stacks_of_dictionaries_are_checked_strictly_spec_by_spec() {
    let of = |n| {
        let mut composite = Composite::new([]).unwrap();
        composite.set("a", TensorSpec::categorical(n, [], Dtype::I64).unwrap()).unwrap();
        TensorSpec::from(composite)
    };
    let spec = TensorSpec::stack(&[of(3), of(4)], 0).unwrap();
    let mut dict = TensorDict::new(&[2]).unwrap();
    dict.set("a", Tensor::from_vec(&[2], vec![2_i64, 3]).unwrap()).unwrap();
    assert_eq!(spec.check_strict(&dict.clone().into()), Ok(()));
    dict.set("b", Tensor::from_vec(&[2], vec![0_i64; 2]).unwrap()).unwrap();
    assert_eq!(kind(spec.check_strict(&dict.clone().into())), ErrorKind::UnknownName);
    dict.set("a", Tensor::from_vec(&[2], vec![3_i64, 3]).unwrap()).unwrap();
    let error = spec.check(&dict.into()).unwrap_err();
    assert_eq!(error.detail(), r#"at index 0 of the stack: "a": value must be an integer in 0..3: got 3"#);
}

#[test]
fn a_locked_dictionary_can_be_projected_and_keeps_what_the_spec_does_not_name() {
    let mut composite = Composite::new([]).unwrap();
    composite.set(["n", "a"], TensorSpec::categorical(3, [], Dtype::I64).unwrap()).unwrap();
    composite.set("any", None).unwrap();
    let spec = TensorSpec::from(composite);
    let mut inner = TensorDict::new(&[]).unwrap();
    inner.set("a", Tensor::from_vec(&[], vec![9_i64]).unwrap()).unwrap();
    inner.lock();
    let mut dict = TensorDict::new(&[]).unwrap();
    dict.set("n", inner).unwrap();
    dict.set("extra", Tensor::from_vec(&[], vec![7_u8]).unwrap()).unwrap();
    dict.lock();
    let Entry::Dict(projected) = spec.project(&dict.into()).unwrap() else { unreachable!() };
    assert_eq!(projected.tensor(["n", "a"]).unwrap().to_vec::<i64>().unwrap(), [2]);
    assert_eq!(projected.tensor("extra").unwrap().to_vec::<u8>().unwrap(), [7]);
}

#[test]
fn nan_is_in_no_domain_and_is_projected_to_the_middle() {
    let nan = |dtype| -> Entry {
        let value = Tensor::from_vec(&[1], vec![f64::NAN]).unwrap();
        if dtype == Dtype::F64 {
            value.into()
        } else {
            Tensor::from_vec(&[1], vec![f32::NAN]).unwrap().into()
        }
    };
    let unbounded = TensorSpec::unbounded([1], Dtype::F64).unwrap();
    assert_eq!(kind(unbounded.check(&nan(Dtype::F64))), ErrorKind::NonFinite);
    let spec = TensorSpec::bounded(-1.0, 3.0, [1], Dtype::F32).unwrap();
    assert!(!spec.contains(&nan(Dtype::F32)));
    assert_eq!(
        spec.project(&nan(Dtype::F32)).unwrap(),
        Tensor::from_vec(&[1], vec![1.0_f32]).unwrap().into()
    );
    for bounds in [(f64::NAN, 1.0), (0.0, f64::NAN), (2.0, 1.0)] {
        assert_eq!(kind(TensorSpec::bounded(bounds.0, bounds.1, [1], Dtype::F32)), ErrorKind::OutOfRange);
    }
}

#[test]
fn integers_past_2_to_the_53_are_compared_exactly() {
    let top = (1_i64 << 53) + 1;
    let bound = |x: i64| Tensor::from_vec(&[], vec![x]).unwrap();
    let spec = TensorSpec::bounded_by(&bound(0), &bound(top), [], Dtype::I64).unwrap();
    assert!(spec.contains(&bound(top).into()) && !spec.contains(&bound(top + 1).into()));
    assert_eq!(spec.project(&bound(top + 1).into()).unwrap(), bound(top).into());
}

#[test]
fn bounds_past_2_to_the_53_are_ordered_exactly() {
    let bound = |x: i64| Tensor::from_vec(&[], vec![x]).unwrap();
    let top = 1_i64 << 53;
    assert_eq!(
        kind(TensorSpec::bounded_by(&bound(top + 1), &bound(top), [], Dtype::I64)),
        ErrorKind::OutOfRange
    );
}

#[test]
fn specs_of_no_elements_have_values_of_none() {
    let none = TensorSpec::from_json(r#"{"type":"Bounded","shape":[0],"low":[0],"high":[]}"#).unwrap();
    assert!(none.contains(&none.rand(&mut Rng::new(1), &[3]).unwrap()));
    let long = TensorSpec::binary([usize::MAX / 2, 0], Dtype::I8).unwrap();
    let value = long.rand(&mut Rng::new(1), &[]).unwrap();
    assert!(long.contains(&value));
    assert_eq!(kind(long.decode(&value)), ErrorKind::LimitExceeded);
    let nested = TensorSpec::from_json(r#"{"type":"MultiCategorical","nvec":[[1,2],[3,4]]}"#).unwrap();
    let none = nested.at(&[At::Range(0..0)]).unwrap();
    assert_eq!(none.shape(), [0, 2].into());
    assert!(none.contains(&none.rand(&mut Rng::new(1), &[3]).unwrap()));
    assert_eq!(kind(none.to_one_hot_spec()), ErrorKind::Empty);
    let mut masked = TensorSpec::categorical(3, [2], Dtype::I64).unwrap();
    let flags = vec![true, false, false, false, true, true];
    masked.update_mask(Some(Tensor::from_vec(&[2, 3], flags).unwrap())).unwrap();
    let none = masked.at(&[At::Indices(Vec::new())]).unwrap();
    assert!(none.contains(&none.zero(&[2]).unwrap()));
}

#[test]
fn projection_rounds_and_clamps_indices() {
    let spec = TensorSpec::categorical(10, [7], Dtype::I64).unwrap();
    let want: Entry = Tensor::from_vec(&[7], vec![0_i64, 0, 0, 1, 9, 9, 9]).unwrap().into();
    let whole = Tensor::from_vec(&[7], vec![-100_i64, -1, 0, 1, 9, 10, 100]).unwrap();
    assert_eq!(spec.project(&whole.into()).unwrap(), want);
    let floats = Tensor::from_vec(&[7], vec![-100.0_f32, -1.0, 0.0, 1.0, 9.0, 10.0, 100.0]).unwrap();
    assert_eq!(spec.project(&floats.into()).unwrap(), want);
}

#[test]
fn a_one_hot_is_projected_to_its_largest_element_and_the_first_of_equals() {
    let spec = TensorSpec::one_hot(3, [3], Dtype::F32).unwrap();
    let tensor = |values: [f32; 3]| Entry::from(Tensor::from_vec(&[3], values.to_vec()).unwrap());
    assert_eq!(spec.project(&tensor([0.2, 0.7, 0.7])).unwrap(), tensor([0.0, 1.0, 0.0]));
    assert_eq!(spec.project(&tensor([-3.0, -2.0, -9.0])).unwrap(), tensor([0.0, 1.0, 0.0]));
}

#[test]
fn masks_are_checked_and_complements_refuse_each_others_draws() {
    let flags = Tensor::from_vec(&[4], vec![true, false, false, true]).unwrap();
    let complement = Tensor::from_vec(&[4], vec![false, true, true, false]).unwrap();
    let mut spec = TensorSpec::categorical(4, [], Dtype::I64).unwrap();
    spec.update_mask(Some(flags.clone())).unwrap();
    let value = spec.rand(&mut Rng::new(1), &[50]).unwrap();
    assert!(spec.contains(&value));
    assert_eq!(spec.mask(), Some(&flags));
    spec.update_mask(Some(complement)).unwrap();
    assert!(!spec.contains(&value));
    let Entry::Tensor(projected) = spec.project(&value).unwrap() else { unreachable!() };
    let Entry::Tensor(value) = value else { unreachable!() };
    assert!(projected.to_f32_vec().iter().zip(value.to_f32_vec()).all(|(new, old)| *new != old));
    for (mask, want) in [
        (Tensor::from_vec(&[4], vec![false; 4]).unwrap(), ErrorKind::Empty),
        (Tensor::from_vec(&[3], vec![true; 3]).unwrap(), ErrorKind::ShapeMismatch),
        (Tensor::from_vec(&[4], vec![1_u8; 4]).unwrap(), ErrorKind::ShapeMismatch),
        (Tensor::from_vec(&[2, 4], vec![true; 8]).unwrap(), ErrorKind::ShapeMismatch),
    ] {
        assert_eq!(kind(spec.update_mask(Some(mask))), want);
    }
    let mut endless = TensorSpec::unbounded([2], Dtype::F32).unwrap();
    assert_eq!(kind(endless.update_mask(None)), ErrorKind::Incompatible);
    assert_eq!(kind(TensorSpec::binary([2], Dtype::I8).unwrap().update_mask(None)), ErrorKind::Incompatible);
}

#[test]
fn structure_refuses_what_does_not_fit() {
    let spec = TensorSpec::from_json(r#"{"type":"Unbounded","shape":[-1,1,2]}"#).unwrap();
    assert_eq!(
        spec.expand(Shape::from_signed(&[3, -1, 4, 2]).unwrap()).unwrap().shape().to_string(),
        "[3, -1, 4, 2]"
    );
    assert_eq!(kind(spec.expand([3, 3, 1, 2])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(spec.at(&[At::Range(0..1)])), ErrorKind::OutOfRange);
    assert_eq!(kind(spec.at(&[At::Indices(vec![0])])), ErrorKind::OutOfRange);
    assert_eq!(kind(spec.at(&[At::Ellipsis, At::Ellipsis])), ErrorKind::OutOfRange);
    assert_eq!(kind(spec.unbind(0)), ErrorKind::OutOfRange);
    let one_hot = TensorSpec::one_hot(4, [3, 4], Dtype::Bool).unwrap();
    for index in [
        vec![At::Index(5)],
        vec![At::Index(0), At::Index(1)],
        vec![At::Indices((0..10).collect())],
        vec![At::Range(2..9)],
    ] {
        assert_eq!(kind(one_hot.at(&index)), ErrorKind::OutOfRange, "{index:?}");
    }
    assert_eq!(kind(one_hot.unsqueeze(2)), ErrorKind::OutOfRange);
    assert_eq!(kind(one_hot.reshape([4, 3])), ErrorKind::OutOfRange);
    assert_eq!(kind(one_hot.squeeze(0)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(Shape::from_signed(&[2, -2])), ErrorKind::OutOfRange);
}

#[test]
fn dictionaries_name_what_they_refuse() {
    let mut composite = Composite::new([2]).unwrap();
    let leaf = || TensorSpec::unbounded([2, 3], Dtype::F32).unwrap();
    for name in ["shape", "device", "dtype", "space"] {
        assert_eq!(kind(composite.set(name, leaf())), ErrorKind::OutOfRange);
    }
    assert_eq!(
        kind(composite.set("a", TensorSpec::unbounded([3], Dtype::F32).unwrap())),
        ErrorKind::ShapeMismatch
    );
    assert_eq!(kind(composite.set(Vec::new(), leaf())), ErrorKind::Empty);
    composite.set("a", leaf()).unwrap();
    assert_eq!(kind(composite.set(["a", "b"], leaf())), ErrorKind::Incompatible);
    assert_eq!(composite.leaf_keys().len(), 1, "after an error nothing has changed");
    assert!(composite.remove("a") && !composite.remove("a"));
}

#[test]
fn choices_and_stacks_are_of_one_class_dtype_and_rank() {
    let leaf = |shape: &[usize], dtype| TensorSpec::unbounded(shape, dtype).unwrap();
    let categorical = TensorSpec::categorical(2, [1], Dtype::F32).unwrap();
    assert_eq!(kind(Choice::of_specs(Vec::new())), ErrorKind::Empty);
    assert_eq!(kind(Choice::of_values([], Vec::new())), ErrorKind::Empty);
    assert_eq!(
        kind(Choice::of_specs(vec![leaf(&[1], Dtype::F32), categorical.clone()])),
        ErrorKind::Incompatible
    );
    assert_eq!(
        kind(Choice::of_specs(vec![leaf(&[1], Dtype::F32), leaf(&[1], Dtype::F64)])),
        ErrorKind::Incompatible
    );
    assert_eq!(
        kind(Choice::of_specs(vec![leaf(&[1], Dtype::F32), leaf(&[2], Dtype::F32)])),
        ErrorKind::ShapeMismatch
    );
    assert_eq!(kind(TensorSpec::stack(&[], 0)), ErrorKind::Empty);
    assert_eq!(kind(TensorSpec::stack(&[leaf(&[1], Dtype::F32), categorical], 0)), ErrorKind::Incompatible);
    assert_eq!(
        kind(TensorSpec::stack(&[leaf(&[2], Dtype::F32), leaf(&[2, 2], Dtype::F32)], 0)),
        ErrorKind::ShapeMismatch
    );
    assert_eq!(
        kind(TensorSpec::stack(&[leaf(&[2], Dtype::F32), leaf(&[3], Dtype::F32)], 2)),
        ErrorKind::OutOfRange
    );
}

#[test]
fn json_that_is_no_spec_is_refused() {
    let parse = |json: &str| kind(TensorSpec::from_json(json));
    assert_eq!(parse(r#"{"type":"Gaussian"}"#), ErrorKind::UnknownName);
    assert_eq!(parse(r#"{"type":"Unbounded","shapes":[2]}"#), ErrorKind::UnknownName);
    assert_eq!(parse(r#"{"type":"Categorical","n":0}"#), ErrorKind::OutOfRange);
    assert_eq!(parse(r#"{"type":"OneHot","n":3,"shape":[2]}"#), ErrorKind::ShapeMismatch);
    assert_eq!(parse(r#"{"type":"MultiCategorical","nvec":[]}"#), ErrorKind::Empty);
    assert_eq!(parse(r#"{"type":"MultiCategorical","nvec":[[1],[2,3]]}"#), ErrorKind::Malformed);
    assert_eq!(parse(r#"{"type":"Bounded","low":0,"high":1}"#), ErrorKind::ShapeMismatch);
    assert_eq!(parse(r#"{"type":"Bounded","low":"NaN","high":1,"shape":[1]}"#), ErrorKind::OutOfRange);
    assert_eq!(parse(r#"{"type":"Bounded","low":[0,1],"high":[1,2,3]}"#), ErrorKind::ShapeMismatch);
    assert_eq!(parse(r#"{"type":"Binary"}"#), ErrorKind::ShapeMismatch);
    assert_eq!(parse(r#"{"type":"Choice"}"#), ErrorKind::Malformed);
    assert_eq!(parse(r#"{"type":"OneHot","n":3,"shape":[]}"#), ErrorKind::ShapeMismatch);
    assert_eq!(
        parse(r#"{"type":"Bounded","shape":[1],"low":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]],"high":1}"#),
        ErrorKind::LimitExceeded
    );
    assert_eq!(parse("["), ErrorKind::Malformed);
}

#[test]
fn encoding_refuses_other_shapes_and_values() {
    let spec = TensorSpec::unbounded([10], Dtype::F32).unwrap();
    let rows = json!(vec![vec![0.5; 10]; 3]);
    assert_eq!(kind(spec.encode(&rows)), ErrorKind::ShapeMismatch);
    assert!(spec.expand([3, 10]).unwrap().encode(&rows).is_ok());
    let action = TensorSpec::categorical(10, [], Dtype::I64).unwrap();
    assert_eq!(kind(action.encode(&json!(11))), ErrorKind::OutOfRange);
    assert_eq!(kind(action.encode(&json!(0.5))), ErrorKind::OutOfRange);
    assert_eq!(kind(action.encode(&json!("x"))), ErrorKind::Malformed);
    assert_eq!(kind(action.encode(&json!([[1], 2]))), ErrorKind::Malformed);
}

#[test]
fn specs_nest_so_deep_and_no_deeper() {
    let mut spec = TensorSpec::unbounded([], Dtype::F32).unwrap();
    for _ in 1..SPEC_DEPTH_MAX {
        let mut outer = Composite::new([]).unwrap();
        outer.set("a", spec).unwrap();
        spec = outer.into();
    }
    let json = spec.to_json().to_string();
    assert_eq!(TensorSpec::from_json(&json).unwrap(), spec);
    assert_eq!(kind(Composite::new([]).unwrap().set("a", spec.clone())), ErrorKind::LimitExceeded);
    assert_eq!(kind(Choice::of_specs(vec![spec])), ErrorKind::LimitExceeded);
    assert_eq!(
        kind(TensorSpec::from_json(&format!(r#"{{"type":"Stacked","dim":0,"specs":[{json}]}}"#))),
        ErrorKind::LimitExceeded
    );
    let path = |names| vec!["k".to_owned(); names];
    assert_eq!(Composite::new([]).unwrap().set(path(SPEC_DEPTH_MAX), None), Ok(()));
    assert_eq!(
        kind(Composite::new([]).unwrap().set(path(SPEC_DEPTH_MAX + 1), None)),
        ErrorKind::LimitExceeded
    );
}

#[test]
fn values_have_so_many_elements_and_no_more() {
    let spec = TensorSpec::unbounded([2], Dtype::U8).unwrap();
    assert_eq!(kind(spec.zero(&[SPEC_ELEMENTS_MAX / 2 + 1])), ErrorKind::LimitExceeded);
    assert_eq!(kind(spec.rand(&mut Rng::new(1), &[usize::MAX])), ErrorKind::LimitExceeded);
    let huge = TensorSpec::unbounded([usize::MAX / 4], Dtype::U8).unwrap();
    assert_eq!(huge.at(&[At::Range(1..3)]).unwrap().shape(), [2].into());
    assert_eq!(kind(huge.unbind(0)), ErrorKind::LimitExceeded);
    let wide = TensorSpec::multi_categorical(&[1 << 15, 1 << 15], [2], Dtype::I64).unwrap();
    assert_eq!(wide.cardinality().unwrap(), Some(1 << 30));
    assert_eq!(kind(wide.enumerate(false)), ErrorKind::LimitExceeded);
    let mut both = Composite::new([]).unwrap();
    for name in ["a", "b"] {
        both.set([name, "n"], TensorSpec::categorical(1 << 14, [1, 2, 8], Dtype::I16).unwrap()).unwrap();
    }
    assert_eq!(kind(TensorSpec::from(both).enumerate(false)), ErrorKind::LimitExceeded);
    let actions = TensorSpec::one_hot(1 << 28, [3, 1 << 28], Dtype::Bool).unwrap();
    assert_eq!(kind(actions.encode(&json!([1, 2, 3]))), ErrorKind::LimitExceeded);
    assert_eq!(TensorSpec::binary([127], Dtype::I8).unwrap().cardinality().unwrap(), Some(1 << 127));
    assert_eq!(kind(TensorSpec::binary([128], Dtype::I8).unwrap().cardinality()), ErrorKind::LimitExceeded);
}

#[test]
fn a_choice_has_so_many_values_and_no_more() {
    let most = usize::try_from(SPEC_VALUES_MAX).unwrap();
    let spec = TensorSpec::categorical(most, [], Dtype::I64).unwrap();
    assert!(spec.contains(&spec.rand(&mut Rng::new(5), &[100]).unwrap()));
    assert_eq!(kind(TensorSpec::categorical(most + 1, [], Dtype::I64)), ErrorKind::OutOfRange);
    assert_eq!(kind(TensorSpec::categorical(0, [], Dtype::I64)), ErrorKind::OutOfRange);
    let longest = TensorSpec::one_hot(SPEC_ELEMENTS_MAX, [SPEC_ELEMENTS_MAX], Dtype::Bool);
    assert_eq!(longest.unwrap().cardinality().unwrap(), Some(SPEC_ELEMENTS_MAX as u128));
    assert_eq!(
        kind(TensorSpec::one_hot(SPEC_ELEMENTS_MAX + 1, [SPEC_ELEMENTS_MAX + 1], Dtype::Bool)),
        ErrorKind::LimitExceeded
    );
}

#[test]
fn a_dtype_holds_every_value_of_a_choice_exactly() {
    let most = [
        (Dtype::Bool, 2),
        (Dtype::U8, 256),
        (Dtype::I8, 128),
        (Dtype::I16, 1 << 15),
        (Dtype::Bf16, (1 << 8) + 1),
        (Dtype::F16, (1 << 11) + 1),
        (Dtype::F32, (1 << 24) + 1),
        (Dtype::I32, 1 << 31),
        (Dtype::U32, 1 << 32),
        (Dtype::F64, 1 << 53),
    ];
    for (dtype, n) in most {
        let spec = TensorSpec::categorical(n, [], dtype).unwrap();
        assert!(spec.contains(&spec.rand(&mut Rng::new(5), &[100]).unwrap()));
        assert_eq!(
            spec.kind(),
            TensorSpec::multi_categorical(&[1, n], [2], dtype).map(|_| "Categorical").unwrap()
        );
        if n < 1 << 53 {
            assert_eq!(kind(TensorSpec::categorical(n + 1, [], dtype)), ErrorKind::OutOfRange, "{dtype:?}");
            assert_eq!(kind(TensorSpec::multi_categorical(&[1, n + 1], [2], dtype)), ErrorKind::OutOfRange);
            let wide = TensorSpec::categorical(n + 1, [], Dtype::I64).unwrap();
            assert_eq!(kind(wide.to_dtype(dtype)), ErrorKind::OutOfRange);
        }
    }
    let error = TensorSpec::categorical(300, [], Dtype::U8).unwrap_err();
    assert_eq!(error.detail(), "n must be at most 256, as u8 holds no other integers exactly: got 300");
    // One-hot blocks contain only 0 and 1.
    assert!(TensorSpec::one_hot(300, [300], Dtype::U8).unwrap().to_dtype(Dtype::Bool).is_ok());
}

#[test]
fn operations_as_data_refuse_what_is_not_there() {
    let spec = TensorSpec::unbounded(Shape::from_signed(&[2, -1]).unwrap(), Dtype::F32).unwrap();
    let operate = |json: serde_json::Value| {
        fulmar_core::options_from_json("operation", &json.to_string())
            .and_then(|operation| spec.operate(&operation))
    };
    assert_eq!(operate(json!({ "op": "unsqueeze", "dim": -1 })).unwrap().shape().rank(), 3);
    assert_eq!(operate(json!({ "op": "at", "index": ["...", -1, {}] })).unwrap().shape().rank(), 1);
    for (json, want) in [
        (json!({ "op": "unsqueeze", "dim": -4 }), ErrorKind::OutOfRange),
        (json!({ "op": "squeeze", "dim": i64::MIN }), ErrorKind::OutOfRange),
        (json!({ "op": "at", "index": [0, -1] }), ErrorKind::OutOfRange),
        (json!({ "op": "at", "index": [0, { "stop": 1 }] }), ErrorKind::OutOfRange),
        (json!({ "op": "at", "index": [[0], [1]] }), ErrorKind::Incompatible),
        (json!({ "op": "at", "index": [[true]] }), ErrorKind::ShapeMismatch),
        (json!({ "op": "at", "index": [{ "shape": [1, 1], "at": [0] }] }), ErrorKind::ShapeMismatch),
        (json!({ "op": "refineNames", "names": [] }), ErrorKind::Incompatible),
        (json!({ "op": "empty" }), ErrorKind::Incompatible),
        (json!({ "op": "turn" }), ErrorKind::UnknownName),
    ] {
        assert_eq!(kind(operate(json.clone())), want, "{json}");
    }
    let huge = TensorSpec::unbounded([usize::MAX / 8], Dtype::U8).unwrap();
    let every_second = fulmar_core::options_from_json(
        "operation",
        &json!({ "op": "at", "index": [{ "step": 2 }] }).to_string(),
    );
    assert_eq!(kind(huge.operate(&every_second.unwrap())), ErrorKind::LimitExceeded);
}

/// Copying the dictionary for each key would not finish here.
#[test]
fn a_dictionary_of_many_keys_is_built_key_by_key() {
    let bit = TensorSpec::binary([1], Dtype::Bool).unwrap();
    let mut spec = Composite::new([]).unwrap();
    for at in 0..100_000 {
        spec.set(["inner", &format!("k{at}")], bit.clone()).unwrap();
    }
    assert_eq!(spec.leaf_keys().len(), 100_000);
    assert_eq!(kind(spec.set(["inner", "k0", "x"], None)), ErrorKind::Incompatible);
    assert_eq!(kind(spec.set(["new", "device"], None)), ErrorKind::OutOfRange);
    assert!(!spec.has("new"), "an error changes nothing");
}

#[test]
fn names_of_dimensions_differ_and_are_as_many() {
    let name = |name: &str| Some(name.to_owned());
    let mut spec = Composite::new([2, 3]).unwrap();
    assert_eq!(kind(spec.set_names(vec![name("a")])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(spec.set_names(vec![name("a"), name("a")])), ErrorKind::OutOfRange);
    spec.set_names(vec![name("a"), None]).unwrap();
    assert_eq!(kind(spec.refine_names(&[name("b"), None])), ErrorKind::Incompatible);
    assert_eq!(kind(spec.refine_names(&[name("..."), name("..."), name("...")])), ErrorKind::OutOfRange);
    assert_eq!(spec.names(), Some(&[name("a"), None][..]), "an error changes nothing");
}

#[test]
fn specs_have_so_many_dimensions_and_no_more() {
    let spec = TensorSpec::unbounded([1; TENSOR_RANK_MAX], Dtype::F32).unwrap();
    assert_eq!(kind(spec.unsqueeze(0)), ErrorKind::LimitExceeded);
    assert_eq!(kind(TensorSpec::unbounded([1; TENSOR_RANK_MAX + 1], Dtype::F32)), ErrorKind::LimitExceeded);
}

#[test]
fn long_dimensions_beside_empty_ones_cost_nothing() {
    for dims in [[i64::MAX, 0], [0, i64::MAX], [1 << 60, 0]] {
        let form = serde_json::json!({ "type": "Bounded", "shape": dims, "low": [], "high": -1 }).to_string();
        let Ok(spec) = TensorSpec::from_json(&form) else { continue };
        assert_eq!(spec.flatten(0, 1).unwrap().shape().sizes(), [0]);
        assert_eq!(spec.flatten(0, 0).unwrap(), spec);
        let Entry::Tensor(zero) = spec.zero(&[]).unwrap() else { unreachable!() };
        assert_eq!(zero.num_elements(), 0);
    }
    let of = |low: f64| TensorSpec::bounded(low, 1.0, [1 << 31, 0], Dtype::F32).unwrap();
    let stacked = TensorSpec::stack(&[of(0.0), of(-1.0)], 2).unwrap();
    let Ok(Entry::Tensor(drawn)) = stacked.rand(&mut Rng::new(1), &[]) else { unreachable!() };
    assert_eq!(drawn.shape(), [1 << 31, 0, 2]);
    let of = |n: usize| {
        let mut composite = Composite::new([1 << 40]).unwrap();
        composite.set("a", TensorSpec::categorical(n, [1 << 40, 0], Dtype::I64).unwrap()).unwrap();
        TensorSpec::from(composite)
    };
    let stacked = TensorSpec::stack(&[of(2), of(3)], 1).unwrap();
    let mut dict = TensorDict::new(&[1 << 40, 2]).unwrap();
    dict.set("a", Tensor::zeros(Dtype::I64, &[1 << 40, 2, 0]).unwrap()).unwrap();
    assert_eq!(stacked.check(&dict.into()), Ok(()));
}

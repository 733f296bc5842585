//! Functions of every leaf, sums and selection.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::TENSOR_DICT_DEPTH_MAX;
use fulmar_core::{Dtype, Error, ErrorKind};
use fulmar_tensor::{ApplyOptions, Key, NonTensor, Ragged, Tensor, TensorDict};
use proptest::prelude::*;
use serde_json::{Value, json};

fn batch() -> TensorDict {
    let mut dict = TensorDict::new(&[2]).unwrap();
    dict.set("reward", Tensor::from_vec_f32(&[2], vec![0.5, 2.0]).unwrap()).unwrap();
    dict.set(["in", "id"], Tensor::from_vec(&[2, 2], vec![1_i64, 2, 3, 4]).unwrap()).unwrap();
    dict
}

#[test]
fn functions_see_keys_and_may_change_leading_dimensions() {
    let options = ApplyOptions { batch_size: Some(&[1]), ..Default::default() };
    let named = batch().apply_named(
        &|key, tensor| {
            let len = if key.path().len() == 2 { tensor.shape()[1] } else { 1 };
            tensor.slice(0, 0..1)?.reshape(&[1, len]).map(Some)
        },
        &options,
    );
    let named = named.unwrap().unwrap();
    assert_eq!((named.batch_size(), named.dict("in").unwrap().batch_size()), (&[1][..], &[1][..]));
    let error = batch().apply_named(&|_, tensor| tensor.slice(0, 0..1).map(Some), &ApplyOptions::default());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let failing = |_: &Key, _: &Tensor| Err(Error::new(ErrorKind::Empty, "mine"));
    assert_eq!(batch().apply_named(&failing, &ApplyOptions::default()).unwrap_err().detail(), "mine");
}

#[test]
fn what_is_dropped_goes_with_its_dictionary_unless_that_is_to_stay() {
    let drop_nested = |key: &Key, tensor: &Tensor| Ok((key.path().len() == 1).then(|| tensor.clone()));
    let keys = |options: &ApplyOptions<'_>| {
        batch().apply_named(&drop_nested, options).unwrap().unwrap().nested_keys()
    };
    assert_eq!(keys(&ApplyOptions::default()), [Key::from("reward")]);
    let kept = ApplyOptions { keep_empty: true, ..Default::default() };
    assert_eq!(keys(&kept), [Key::from("reward"), Key::from("in")]);
    assert!(batch().apply_named(&|_, _| Ok(None), &ApplyOptions::default()).unwrap().is_none());
    let none = TensorDict::new(&[2]).unwrap();
    assert_eq!(none.apply_named(&|_, _| Ok(None), &ApplyOptions::default()).unwrap(), Some(none));
}

#[test]
fn the_sum_of_no_floats_is_0_and_not_minus_0() {
    for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for (shape, dim) in [(vec![0], 0), (vec![2, 0], 1)] {
            let empty = Tensor::zeros(dtype, &shape).unwrap();
            let sums = [empty.sum().unwrap(), empty.sum_dim(dim).unwrap()];
            for sum in sums.iter().flat_map(Tensor::to_f32_vec) {
                assert_eq!(sum.to_bits(), 0.0_f32.to_bits(), "{dtype:?}");
            }
        }
    }
}

#[test]
fn sums_of_integers_are_wide_and_refuse_to_overflow() {
    let full = Tensor::from_vec(&[2], vec![i64::MAX, 1]).unwrap();
    assert_eq!(full.sum().unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(full.sum_dim(1).unwrap_err().kind(), ErrorKind::OutOfRange);
    let large = Tensor::from_vec(&[2], vec![(1_i64 << 53) + 1, 2]).unwrap();
    assert_eq!(large.sum().unwrap().as_slice::<i64>().unwrap(), [(1_i64 << 53) + 3]);
    assert_eq!(Tensor::zeros(Dtype::F32, &[0, 2]).unwrap().sum_dim(0).unwrap().as_f32().unwrap(), [0.0, 0.0]);
    assert_eq!(Tensor::zeros(Dtype::Bool, &[0, 2]).unwrap().sum_dim(1).unwrap().shape(), [0]);
    let mut dict = batch();
    dict.set("rows", Ragged::new(Tensor::zeros(Dtype::U8, &[0]).unwrap(), &[0_u32; 3]).unwrap()).unwrap();
    let error = dict.sum(Some(0)).unwrap_err();
    assert_eq!((error.kind(), error.detail().starts_with("\"rows\"")), (ErrorKind::Incompatible, true));
    dict.set("rows", NonTensor::shared(json!("x"))).unwrap();
    assert_eq!(dict.sum(None).unwrap().non_tensor("rows").unwrap().to_json(), "x");
    assert_eq!(dict.sum(Some(1)).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_choice_needs_two_dictionaries_of_one_form() {
    let mask = Tensor::from_vec(&[2], vec![false, true]).unwrap();
    let chosen = batch().where_else(&mask, &batch().zeros_like().unwrap()).unwrap();
    assert_eq!(chosen.tensor(["in", "id"]).unwrap().as_slice::<i64>().unwrap(), [0, 0, 3, 4]);
    assert_eq!(chosen.nested_keys(), batch().nested_keys());
    let kind = |mask: &Tensor, other: &TensorDict| batch().where_else(mask, other).unwrap_err().kind();
    assert_eq!(kind(&Tensor::zeros(Dtype::Bool, &[3]).unwrap(), &batch()), ErrorKind::ShapeMismatch);
    assert_eq!(kind(&mask, &batch().unsqueeze(0).unwrap()), ErrorKind::ShapeMismatch);
    assert_eq!(kind(&mask, &batch().exclude(&["reward".into()])), ErrorKind::UnknownName);
    assert_eq!(kind(&mask, &batch().to(Dtype::F64).unwrap()), ErrorKind::Incompatible);
    let mut wide = batch();
    wide.set("reward", Tensor::zeros(Dtype::F32, &[2, 3]).unwrap()).unwrap();
    assert_eq!(kind(&mask, &wide), ErrorKind::ShapeMismatch);
    let (yes, no) = (Tensor::scalar(Dtype::Bool, 1.0).unwrap(), Tensor::scalar(Dtype::Bool, 0.0).unwrap());
    let (left, right) = (batch().index(0).unwrap(), batch().index(1).unwrap());
    assert_eq!(left.where_else(&yes, &right).unwrap(), left);
    assert_eq!(left.where_else(&no, &right).unwrap(), right);
}

#[test]
fn keys_are_nested_no_deeper_than_dictionaries() {
    let lists = |depth: usize| (0..depth).fold(json!("a"), |inner, _| json!([inner]));
    assert_eq!(Key::unravel(&lists(TENSOR_DICT_DEPTH_MAX)).unwrap(), Key::from("a"));
    let kind = |value: &Value| Key::unravel(value).unwrap_err().kind();
    assert_eq!(kind(&lists(TENSOR_DICT_DEPTH_MAX + 1)), ErrorKind::LimitExceeded);
    assert!(Key::unravel(&json!(vec!["a"; TENSOR_DICT_DEPTH_MAX])).is_ok());
    assert_eq!(kind(&json!(vec!["a"; TENSOR_DICT_DEPTH_MAX + 1])), ErrorKind::LimitExceeded);
    assert_eq!(kind(&json!({ "a": 1 })), ErrorKind::Malformed);
}

proptest! {
    #[test]
    fn sums_along_a_dimension_are_those_of_its_slices(
        (shape, dim) in proptest::collection::vec(0_usize..4, 1..4).prop_flat_map(|shape| {
            let rank = shape.len();
            (Just(shape), 0..rank)
        })
    ) {
        let count = shape.iter().product::<usize>() as i32;
        let tensor = Tensor::from_vec(&shape, (0..count).collect::<Vec<i32>>()).unwrap();
        let mut want = vec![0_i64; tensor.sum_dim(dim).unwrap().num_elements()];
        for at in 0..shape[dim] {
            let part = tensor.select(dim, at).unwrap().to_vec::<i32>().unwrap();
            want.iter_mut().zip(part).for_each(|(sum, element)| *sum += i64::from(element));
        }
        prop_assert_eq!(tensor.sum_dim(dim).unwrap().to_vec::<i64>().unwrap(), want);
    }
}

//! Lazy stacks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{Dtype, ErrorKind, Result};
use fulmar_tensor::{Index, LazyStack, NonTensor, Ragged, Stacked, Tensor, TensorDict};
use proptest::prelude::*;
use serde_json::json;

fn numbered(shape: &[usize], from: i64) -> TensorDict {
    let count = shape.iter().product::<usize>() as i64;
    let mut dict = TensorDict::new(shape).unwrap();
    dict.set("id", Tensor::from_vec(shape, (from..from + count).collect()).unwrap()).unwrap();
    dict
}

fn ragged() -> LazyStack {
    LazyStack::new(vec![numbered(&[2], 0), numbered(&[3], 10)], 0).unwrap()
}

#[test]
fn dimensions_count_from_the_end_too() {
    let parts = || vec![numbered(&[2], 0), numbered(&[2], 10)];
    assert_eq!(LazyStack::new(parts(), -1).unwrap().dim(), 1);
    assert_eq!(LazyStack::new(parts(), -2).unwrap().dim(), 0);
    for dim in [2, -3] {
        assert_eq!(LazyStack::new(parts(), dim).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}

#[test]
fn what_cannot_be_put_leaves_every_part_as_it_was() {
    let mut stack = ragged();
    let refused = |stack: &mut LazyStack, result: Result<()>| {
        assert_eq!(*stack, ragged());
        result.unwrap_err().kind()
    };
    // The first part would accept it, the second not.
    let result = stack.set("new", Tensor::zeros(Dtype::U8, &[2, 2]).unwrap());
    assert_eq!(refused(&mut stack, result), ErrorKind::ShapeMismatch);
    let result = stack.set("new", Tensor::zeros(Dtype::U8, &[3, 2]).unwrap());
    assert_eq!(refused(&mut stack, result), ErrorKind::ShapeMismatch);
    let result = stack.set_part(2, &numbered(&[3], 0));
    assert_eq!(refused(&mut stack, result), ErrorKind::OutOfRange);
    let result = stack.set_part(1, &numbered(&[2], 0));
    assert_eq!(refused(&mut stack, result), ErrorKind::ShapeMismatch);
    let result = stack.insert(3, numbered(&[3], 0));
    assert_eq!(refused(&mut stack, result), ErrorKind::OutOfRange);
    let result = stack.push(numbered(&[3, 1], 0));
    assert_eq!(refused(&mut stack, result), ErrorKind::ShapeMismatch);
}

#[test]
fn entries_of_all_kinds_are_dealt_to_the_parts() {
    let mut stack = LazyStack::new(vec![TensorDict::new(&[]).unwrap(); 2], 0).unwrap();
    let rows = Ragged::new(Tensor::from_vec(&[3], vec![1_u8, 2, 3]).unwrap(), &[0_u32, 1, 3]).unwrap();
    stack.set("rows", rows.clone()).unwrap();
    stack.set("both", NonTensor::shared(json!("x"))).unwrap();
    stack.set("each", NonTensor::each(&[2], vec![json!("a"), json!("b")]).unwrap()).unwrap();
    stack.set("in", numbered(&[2], 7)).unwrap();
    assert_eq!(stack.ragged("rows").unwrap(), rows);
    let second = &stack.parts()[1];
    assert_eq!(second.non_tensor("both").unwrap().to_json(), "x");
    assert_eq!(second.non_tensor("each").unwrap().to_json(), "b");
    assert_eq!(second.tensor(["in", "id"]).unwrap().as_slice::<i64>().unwrap(), [8]);
}

#[test]
fn stacks_join_only_along_one_dimension_and_part_by_part() {
    let other = LazyStack::new(vec![numbered(&[2], 0), numbered(&[2], 0)], 1).unwrap();
    assert_eq!(LazyStack::cat(&[ragged(), other]).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(LazyStack::cat(&[]).unwrap_err().kind(), ErrorKind::Empty);
    let three = LazyStack::cat(&[ragged(), LazyStack::new(vec![numbered(&[1], 0)], 0).unwrap()]).unwrap();
    assert_eq!(three.parts().len(), 3);
    assert_eq!(LazyStack::stack(&[ragged(), three]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(LazyStack::stack(&[ragged(), ragged()]).unwrap().batch_size(), [Some(2), Some(2), None]);
}

#[test]
fn what_picks_across_parts_needs_them_to_be_one_dictionary() {
    let mask = Tensor::from_vec(&[2, 3], vec![true; 6]).unwrap();
    let error = ragged().at(&[mask.clone().into()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    let same = LazyStack::new(vec![numbered(&[3], 0), numbered(&[3], 3)], 0).unwrap();
    let Stacked::Dict(all) = same.at(&[mask.into()]).unwrap() else { unreachable!() };
    assert_eq!(all.tensor("id").unwrap().as_slice::<i64>().unwrap(), [0, 1, 2, 3, 4, 5]);
}

fn items() -> impl Strategy<Value = Vec<Index>> {
    let item = prop_oneof![
        (-2_i64..2).prop_map(Index::At),
        (0_i64..2, 1_i64..3).prop_map(|(start, len)| Index::from(start..start + len)),
        Just(Index::NewAxis),
        Just(Index::ALL),
        proptest::collection::vec(0_i64..2, 0..3).prop_map(Index::list),
        Just(Index::Pick(Tensor::from_vec(&[1, 2], vec![1_i64, 0]).unwrap())),
        Just(Index::Ellipsis),
    ];
    proptest::collection::vec(item, 0..4)
}

proptest! {
    #[test]
    fn parts_of_a_stack_are_those_of_the_dictionary_that_it_stands_for(index in items(), dim in 0_isize..3) {
        let stack = LazyStack::new(vec![numbered(&[2, 2], 0), numbered(&[2, 2], 4)], dim).unwrap();
        let dense = stack.dense().unwrap();
        match (stack.at(&index), dense.at(&index)) {
            (Ok(Stacked::Dict(got)), Ok(want)) => prop_assert_eq!(got, want),
            (Ok(Stacked::Lazy(got)), Ok(want)) => prop_assert_eq!(got.dense().unwrap(), want),
            (got, want) => prop_assert_eq!(got.map_err(|error| error.kind()).err(), want.map_err(|error| error.kind()).err()),
        }
    }
}

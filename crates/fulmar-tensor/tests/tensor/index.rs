//! Indexing and reshaping against naive counting, element by element.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::{TENSOR_EXPANDED_MAX, TENSOR_RANK_MAX};
use fulmar_core::{Dtype, ErrorKind};
use fulmar_tensor::{Index, Ragged, Tensor, TensorDict};
use proptest::collection::vec;
use proptest::prelude::*;

/// Consecutive numbers, so that an element identifies its source.
fn numbered(shape: &[usize]) -> Tensor {
    Tensor::from_vec(shape, (0..shape.iter().product::<usize>() as i64).collect()).unwrap()
}

/// Returns a view with gaps and another order, and its dense copy.
fn with_gaps(shape: &[usize]) -> Tensor {
    let wide: Vec<_> = shape.iter().rev().map(|len| len + 2).collect();
    let mut view = numbered(&wide);
    for (dim, len) in shape.iter().rev().enumerate() {
        view = view.slice(dim, 1..len + 1).unwrap();
    }
    view.permute(&(0..shape.len()).rev().collect::<Vec<_>>()).unwrap()
}

/// Returns all coordinates of `shape`, row-major.
fn coordinates(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |all, len| {
        all.iter().flat_map(|before| (0..*len).map(move |at| [&before[..], &[at]].concat())).collect()
    })
}

fn element(tensor: &Tensor, at: &[usize]) -> i64 {
    let one = at.iter().fold(tensor.clone(), |part, at| part.select(0, *at).unwrap());
    one.to_vec::<i64>().unwrap()[0]
}

/// The naive effect of one item on one dimension.
#[derive(Debug, Clone)]
enum Item {
    At(i64),
    Slice(i64, i64, usize),
    List(Vec<i64>),
    New,
}

impl Item {
    fn index(&self) -> Index {
        match self {
            Self::At(at) => (*at).into(),
            Self::Slice(start, stop, step) => {
                Index::Slice { start: Some(*start), stop: Some(*stop), step: *step }
            }
            Self::List(at) => Index::list(at.clone()),
            Self::New => Index::NewAxis,
        }
    }
}

fn from_start(at: i64, len: usize) -> i64 {
    if at < 0 { at + len as i64 } else { at }
}

/// Returns the positions of one dimension that a slice visits, by walking.
fn walked(start: i64, stop: i64, step: usize, len: usize) -> Vec<usize> {
    let stop = from_start(stop, len).min(len as i64);
    let mut at = from_start(start, len).max(0);
    let mut visited = Vec::new();
    while at < stop {
        visited.push(at as usize);
        at += step as i64;
    }
    visited
}

fn item(len: usize) -> BoxedStrategy<Item> {
    let end = len as i64;
    let slices = (-end - 2..end + 3, -end - 2..end + 3, 1..4_usize);
    let slice = slices.prop_map(|(start, stop, step)| Item::Slice(start, stop, step)).boxed();
    if len == 0 {
        return slice;
    }
    let at = (-end..end).prop_map(Item::At);
    prop_oneof![at, slice, vec(-end..end, 0..4).prop_map(Item::List)].boxed()
}

fn shape_and_items() -> impl Strategy<Value = (Vec<usize>, Vec<Item>)> {
    vec(0..4_usize, 1..4)
        .prop_flat_map(|shape| {
            let items: Vec<_> = shape.iter().map(|len| (any::<bool>(), item(*len))).collect();
            (Just(shape), items, 0..4_usize)
        })
        .prop_map(|(shape, items, taken)| {
            let with_new = |(new, item)| if new { vec![Item::New, item] } else { vec![item] };
            (shape, items.into_iter().take(taken).flat_map(with_new).collect())
        })
}

/// Returns the index of at most one list, naively: each item gives the positions that it reads; an item
/// without a result dimension reads one.
fn naive(tensor: &Tensor, items: &[Item]) -> (Vec<usize>, Vec<i64>) {
    let mut read: Vec<Vec<usize>> = Vec::new();
    let mut shape = Vec::new();
    for item in items {
        let len = tensor.shape().get(read.len()).copied().unwrap_or(1);
        match item {
            Item::At(at) => read.push(vec![from_start(*at, len) as usize]),
            Item::Slice(start, stop, step) => {
                read.push(walked(*start, *stop, *step, len));
                shape.push(read[read.len() - 1].len());
            }
            Item::List(at) => {
                read.push(at.iter().map(|at| from_start(*at, len) as usize).collect());
                shape.push(at.len());
            }
            Item::New => shape.push(1),
        }
    }
    for len in &tensor.shape()[read.len()..] {
        read.push((0..*len).collect());
        shape.push(*len);
    }
    let lengths: Vec<_> = read.iter().map(Vec::len).collect();
    let places = coordinates(&lengths);
    let values = places.iter().map(|at| {
        let from: Vec<_> = at.iter().zip(&read).map(|(at, read)| read[*at]).collect();
        element(tensor, &from)
    });
    (shape, values.collect())
}

fn one_list_at_most(items: &[Item]) -> bool {
    items.iter().filter(|item| matches!(item, Item::List(_))).count() <= 1
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_reads_what_walking_reads((shape, items) in shape_and_items().prop_filter("one list", |(_, items)| one_list_at_most(items))) {
        let index: Vec<_> = items.iter().map(Item::index).collect();
        for tensor in [numbered(&shape), with_gaps(&shape)] {
            let part = tensor.at(&index).unwrap();
            prop_assert_eq!((part.shape().to_vec(), part.to_vec::<i64>().unwrap()), naive(&tensor, &items));
            let copies = items.iter().any(|item| matches!(item, Item::List(_)));
            prop_assert_eq!(part.shares_storage(&tensor), !copies);
        }
    }

    #[test]
    fn writing_at_an_index_changes_what_reading_there_reads_and_nothing_else((shape, items) in shape_and_items()) {
        let index: Vec<_> = items.iter().map(Item::index).collect();
        let before = with_gaps(&shape);
        let Ok(chosen) = before.at(&index) else { return Ok(()) };
        let mut after = before.clone();
        let fresh = Tensor::from_vec(&[], vec![-1_i64]).unwrap();
        after.set_at(&index, &fresh).unwrap();
        let touched = chosen.to_vec::<i64>().unwrap();
        let want: Vec<_> = before.to_vec::<i64>().unwrap().into_iter().map(|x| if touched.contains(&x) { -1 } else { x }).collect();
        prop_assert_eq!(after.to_vec::<i64>().unwrap(), want);
        prop_assert!(!before.to_vec::<i64>().unwrap().contains(&-1), "a reader saw the write");
    }

    #[test]
    fn what_is_written_at_an_index_of_different_places_is_read_back(
        rows in Just((0..6_i64).collect::<Vec<_>>()).prop_shuffle(), take in 0..6_usize, column in 0..3_i64,
    ) {
        let index = [Index::list(rows[..take].to_vec()), Index::ALL, column.into()];
        let mut tensor = numbered(&[6, 2, 3]);
        let value = Tensor::from_vec(&[take, 2], (100..100 + 2 * take as i64).collect()).unwrap();
        tensor.set_at(&index, &value).unwrap();
        prop_assert_eq!(tensor.at(&index).unwrap(), value);
    }

    #[test]
    fn lists_are_read_together(rows in vec(0..3_i64, 4), columns in vec(-4..4_i64, 4), deep in 0..2_i64) {
        let cube = numbered(&[3, 2, 4]);
        let want: Vec<_> = rows.iter().zip(&columns).map(|(row, column)| {
            element(&cube, &[*row as usize, deep as usize, from_start(*column, 4) as usize])
        }).collect();
        // As in PyTorch and unlike NumPy, an integer between two lists is applied before them.
        let part = cube.at(&[Index::list(rows.clone()), deep.into(), Index::list(columns.clone())]).unwrap();
        prop_assert_eq!(part.to_vec::<i64>().unwrap(), want);
        // Separate picks come first.
        let apart = cube.at(&[Index::list(rows), Index::ALL, Index::list(columns)]).unwrap();
        prop_assert_eq!(apart.shape(), &[4, 2]);
        prop_assert_eq!(apart.select(1, deep as usize).unwrap(), part);
    }

    #[test]
    fn a_mask_reads_where_it_is_true(mask in vec(any::<bool>(), 6)) {
        let tensor = numbered(&[2, 3, 2]);
        let part = tensor.at(&[Tensor::from_vec(&[2, 3], mask.clone()).unwrap().into()]).unwrap();
        let want: Vec<i64> = (0..6).filter(|at| mask[*at as usize]).flat_map(|at| [2 * at, 2 * at + 1]).collect();
        prop_assert_eq!((part.shape(), part.to_vec::<i64>().unwrap()), (&[want.len() / 2, 2][..], want));
    }

    #[test]
    fn reshape_keeps_the_order_and_view_shares_or_refuses(
        (shape, order) in vec(1..4_usize, 1..4).prop_flat_map(|shape| {
            let order: Vec<_> = (0..shape.len()).collect();
            (Just(shape), Just(order).prop_shuffle())
        }),
        split in 1..4_usize,
    ) {
        let tensor = numbered(&shape).permute(&order).unwrap();
        let len = tensor.num_elements();
        let mut targets = vec![vec![len], vec![1, len, 1]];
        if len.is_multiple_of(split) {
            targets.extend([vec![split, len / split], vec![len / split, 1, split]]);
        }
        for target in targets {
            let reshaped = tensor.reshape(&target).unwrap();
            prop_assert_eq!(reshaped.to_vec::<i64>().unwrap(), tensor.to_vec::<i64>().unwrap());
            match tensor.view(&target) {
                Ok(view) => prop_assert!(view.shares_storage(&tensor) && view == reshaped),
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Incompatible);
                    prop_assert!(!reshaped.shares_storage(&tensor));
                }
            }
        }
    }

    #[test]
    fn gather_reads_what_its_index_names_in_one_dimension(
        (shape, dim, index_shape, picks) in (1..4_usize, 1..4_usize, 1..4_usize, 0..3_usize).prop_flat_map(|(a, b, c, dim)| {
            let shape = vec![a, b, c];
            let within: Vec<_> = (0..3).map(|at| if at == dim { 0..5 } else { 0..shape[at] + 1 }).collect();
            let end = shape[dim] as i64;
            (Just(shape), Just(dim), within).prop_flat_map(move |(shape, dim, index_shape)| {
                let count = index_shape.iter().product::<usize>();
                (Just(shape), Just(dim), Just(index_shape), vec(-end..end, count))
            })
        }),
    ) {
        let mut dict = TensorDict::new(&shape).unwrap();
        dict.set("id", numbered(&shape)).unwrap();
        let index = Tensor::from_vec(&index_shape, picks.clone()).unwrap();
        let gathered = dict.gather(dim as isize - 3, &index).unwrap();
        let want: Vec<_> = coordinates(&index_shape).into_iter().zip(picks).map(|(mut at, pick)| {
            at[dim] = from_start(pick, shape[dim]) as usize;
            element(&numbered(&shape), &at)
        }).collect();
        prop_assert_eq!(gathered.batch_size(), &index_shape);
        prop_assert_eq!(gathered.tensor("id").unwrap().to_vec::<i64>().unwrap(), want);
    }

    #[test]
    fn padding_stands_around_the_elements(shape in vec(0..3_usize, 1..3), around in vec((0..3_usize, 0..3_usize), 0..3)) {
        let around = &around[..around.len().min(shape.len())];
        let padded = numbered(&shape).pad(around, -1.0).unwrap();
        let want: Vec<_> = coordinates(padded.shape()).iter().map(|at| {
            let inner: Option<Vec<_>> = at.iter().enumerate().map(|(dim, at)| {
                let before = around.get(dim).map_or(0, |(before, _)| *before);
                at.checked_sub(before).filter(|at| *at < shape[dim])
            }).collect();
            inner.map_or(-1, |inner| element(&numbered(&shape), &inner))
        }).collect();
        let longer: Vec<_> = shape.iter().enumerate().map(|(dim, len)| len + around.get(dim).map_or(0, |(before, after)| before + after)).collect();
        prop_assert_eq!((padded.shape(), padded.to_vec::<i64>().unwrap()), (&longer[..], want));
    }

    #[test]
    fn repeat_reads_modulo(shape in vec(0..3_usize, 1..3), counts in vec(0..3_usize, 2)) {
        let tensor = numbered(&shape);
        let repeated = tensor.repeat(&counts[..shape.len()]).unwrap();
        let want: Vec<_> = coordinates(repeated.shape()).iter().map(|at| {
            element(&tensor, &at.iter().zip(&shape).map(|(at, len)| at % len).collect::<Vec<_>>())
        }).collect();
        prop_assert_eq!(repeated.to_vec::<i64>().unwrap(), want);
    }

    #[test]
    fn a_dictionary_moves_ragged_rows_and_values_as_it_moves_tensors(at in vec(-3..3_i64, 0..5), start in 0..3_i64) {
        let mut dict = TensorDict::new(&[3]).unwrap();
        dict.set("id", numbered(&[3])).unwrap();
        dict.set("ids", Ragged::new(Tensor::from_vec(&[3], vec![1_i64, 2, 2]).unwrap(), &[0_u32, 0, 1, 3]).unwrap()).unwrap();
        for index in [vec![Index::list(at)], vec![(start..3).into()], vec![Index::Ellipsis]] {
            let part = dict.at(&index).unwrap();
            let rows: Vec<_> = part.tensor("id").unwrap().to_vec::<i64>().unwrap();
            let ragged = part.ragged("ids").unwrap();
            prop_assert_eq!(ragged.num_rows(), rows.len());
            for (row, from) in rows.iter().enumerate() {
                prop_assert_eq!(ragged.row(row).unwrap().to_vec::<i64>().unwrap(), vec![*from; *from as usize]);
            }
        }
    }
}

fn refusal(index: &[Index]) -> (ErrorKind, String) {
    let error = numbered(&[2, 3]).at(index).unwrap_err();
    (error.kind(), error.detail().to_owned())
}

#[test]
fn an_index_that_does_not_fit_is_a_typed_error_with_rule_and_value() {
    let (kind, detail) = refusal(&[2.into()]);
    assert_eq!(
        (kind, &*detail),
        (ErrorKind::OutOfRange, "index must be in -2..2, both ends of the dimension: got 2")
    );
    assert_eq!(refusal(&[i64::MIN.into()]).0, ErrorKind::OutOfRange);
    assert_eq!(refusal(&[Index::list(vec![0, -3])]).0, ErrorKind::OutOfRange);
    let (kind, detail) = refusal(&[0.into(), 0.into(), 0.into()]);
    assert_eq!((kind, &*detail), (ErrorKind::OutOfRange, "index must take up at most 2 dimensions: got 3"));
    assert_eq!(refusal(&[Index::Ellipsis, Index::Ellipsis]).0, ErrorKind::Incompatible);
    assert_eq!(refusal(&[Index::Slice { start: None, stop: None, step: 0 }]).0, ErrorKind::OutOfRange);
    assert_eq!(refusal(&[Tensor::from_vec(&[3], vec![true; 3]).unwrap().into()]).0, ErrorKind::ShapeMismatch);
    assert_eq!(refusal(&[Tensor::from_vec(&[], vec![true]).unwrap().into()]).0, ErrorKind::ShapeMismatch);
    assert_eq!(refusal(&[Tensor::zeros(Dtype::F32, &[1]).unwrap().into()]).0, ErrorKind::Incompatible);
    assert_eq!(refusal(&[Index::list(vec![0, 1]), Index::list(vec![0, 1, 0])]).0, ErrorKind::ShapeMismatch);
    assert!(numbered(&[1]).at(&vec![Index::NewAxis; TENSOR_RANK_MAX - 1]).is_ok());
    assert_eq!(
        numbered(&[1]).at(&vec![Index::NewAxis; TENSOR_RANK_MAX]).unwrap_err().kind(),
        ErrorKind::LimitExceeded
    );
}

#[test]
fn a_write_that_does_not_fit_changes_nothing() {
    let mut rows = numbered(&[2, 3]);
    let wide = numbered(&[4]);
    assert_eq!(rows.set_at(&[0.into()], &wide).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let single = Tensor::zeros(Dtype::F32, &[]).unwrap();
    assert_eq!(rows.set_at(&[0.into()], &single).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(rows.set_at(&[5.into()], &numbered(&[3])).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(rows, numbered(&[2, 3]));
}

#[test]
fn an_expanded_tensor_shows_only_so_many_elements() {
    let one = numbered(&[1]);
    assert_eq!(one.expand(&[TENSOR_EXPANDED_MAX]).unwrap().shape(), [TENSOR_EXPANDED_MAX]);
    assert_eq!(one.expand(&[TENSOR_EXPANDED_MAX + 1]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(numbered(&[2]).expand(&[3]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(numbered(&[2]).expand(&[]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn integer_tensors_of_every_width_are_positions() {
    let row = Tensor::from_vec(&[3], vec![10_i64, 11, 12]).unwrap();
    let picks = [
        Tensor::from_vec(&[2], vec![2_u8, 0]),
        Tensor::from_vec(&[2], vec![2_u32, 0]),
        Tensor::from_vec(&[2], vec![-1_i8, 0]),
        Tensor::from_vec(&[2], vec![-1_i16, 0]),
        Tensor::from_vec(&[2], vec![-1_i32, 0]),
    ];
    for pick in picks {
        assert_eq!(row.at(&[pick.unwrap().into()]).unwrap().to_vec::<i64>().unwrap(), [12, 10]);
    }
}

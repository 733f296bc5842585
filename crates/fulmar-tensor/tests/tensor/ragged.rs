//! Ragged tensors against plain vectors of rows.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_tensor::{PadSide, Ragged, Tensor};

type Rows = Vec<Vec<i32>>;

/// Rows of pairs, so that a row of `n` steps holds `2 n` numbers.
fn random_rows(rng: &mut Rng) -> Rows {
    let mut below = |bound: u64| rng.below(bound).unwrap() as usize;
    let num_rows = below(6);
    (0..num_rows).map(|_| (0..2 * below(5)).map(|_| below(100) as i32).collect()).collect()
}

fn ragged_of(rows: &Rows) -> Ragged {
    let mut offsets = vec![0_u32];
    offsets.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u32 / 2;
        Some(*end)
    }));
    let flat = rows.concat();
    Ragged::new(Tensor::from_vec(&[flat.len() / 2, 2], flat).unwrap(), &offsets).unwrap()
}

fn rows_of(ragged: &Ragged) -> Rows {
    (0..ragged.num_rows()).map(|row| ragged.row(row).unwrap().to_vec().unwrap()).collect()
}

#[test]
fn every_operation_equals_that_on_a_vector_of_rows() {
    let mut rng = Rng::new(2).stream("ragged");
    for _ in 0..1000 {
        let rows = random_rows(&mut rng);
        let ragged = ragged_of(&rows);
        assert_eq!(rows_of(&ragged), rows);

        let start = rng.below(rows.len() as u64 + 1).unwrap() as usize;
        let end = start + rng.below((rows.len() - start) as u64 + 1).unwrap() as usize;
        let part = ragged.slice(start..end).unwrap();
        assert_eq!((rows_of(&part), part.offsets()[0]), (rows[start..end].to_vec(), 0));

        let joined = Ragged::cat(&[ragged.clone(), part.clone()]).unwrap();
        assert_eq!(rows_of(&joined), [&rows[..], &rows[start..end]].concat());

        let indices: Vec<_> = if rows.is_empty() {
            vec![]
        } else {
            (0..3).map(|_| rng.below(rows.len() as u64).unwrap() as usize).collect()
        };
        let picked: Rows = indices.iter().map(|index| rows[*index].clone()).collect();
        assert_eq!(rows_of(&ragged.index_select(&indices).unwrap()), picked);
        check_padded(&ragged, &rows, PadSide::Left);
        check_padded(&part, &rows[start..end], PadSide::Right);
    }
}

fn check_padded(ragged: &Ragged, rows: &[Vec<i32>], side: PadSide) {
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let padded = ragged.to_padded(side, -1.0).unwrap();
    assert_eq!(padded.shape(), [rows.len(), longest / 2, 2]);
    for (index, row) in rows.iter().enumerate() {
        let filler = vec![-1; longest - row.len()];
        let want = if side == PadSide::Left { [filler, row.clone()] } else { [row.clone(), filler] }.concat();
        assert_eq!(padded.select(0, index).unwrap().to_vec::<i32>().unwrap(), want);
    }
}

#[test]
fn a_slice_and_a_row_share_the_elements() {
    let ragged = ragged_of(&vec![vec![1, 2], vec![3, 4]]);
    assert!(ragged.row(1).unwrap().shares_storage(ragged.values()));
    assert!(ragged.slice(1..2).unwrap().values().shares_storage(ragged.values()));
    assert_eq!(ragged.slice(1..2).unwrap(), ragged_of(&vec![vec![3, 4]]));
}

#[test]
fn offsets_that_do_not_describe_rows_are_typed_errors() {
    let kind = |offsets: &[u64]| {
        let values = Tensor::zeros(Dtype::U32, &[4]).unwrap();
        Ragged::new(values, offsets).map(|ragged| ragged.num_rows()).map_err(|error| error.kind())
    };
    assert_eq!(kind(&[0, 1, 1, 4]), Ok(3));
    assert_eq!(kind(&[]), Err(ErrorKind::Empty));
    assert_eq!(kind(&[0]), Err(ErrorKind::ShapeMismatch));
    assert_eq!(kind(&[1, 4]), Err(ErrorKind::ShapeMismatch));
    assert_eq!(kind(&[0, 5]), Err(ErrorKind::ShapeMismatch));
    assert_eq!(kind(&[0, 3, 2, 4]), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(&[0, u64::MAX, 4]), Err(ErrorKind::OutOfRange));
    let scalar = Tensor::zeros(Dtype::U32, &[]).unwrap();
    assert_eq!(Ragged::new(scalar, &[0_u32]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let empty = Tensor::zeros(Dtype::U32, &[0]).unwrap();
    assert_eq!(Ragged::new(empty, &[0_u32]).unwrap().num_rows(), 0);
}

#[test]
fn rows_and_fills_that_do_not_exist_are_typed_errors() {
    let ragged = ragged_of(&vec![vec![1, 2], vec![]]);
    assert_eq!(ragged.row(2).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(ragged.slice(1..3).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(ragged.index_select(&[0, 2]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(Ragged::from_rows(&[]).unwrap_err().kind(), ErrorKind::Empty);
    let error = ragged.to_padded(PadSide::Left, 0.5).unwrap_err();
    assert_eq!(
        (error.kind(), error.detail()),
        (ErrorKind::OutOfRange, "fill must be a value of i32: got 0.5")
    );
    assert_eq!(PadSide::parse("middle").unwrap_err().kind(), ErrorKind::UnknownName);
    assert_eq!((PadSide::parse("left"), PadSide::parse("right")), (Ok(PadSide::Left), Ok(PadSide::Right)));
}

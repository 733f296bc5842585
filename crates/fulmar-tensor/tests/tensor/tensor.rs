//! Tensors against a naive model: a shape and a function from index to element.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::limits::TENSOR_RANK_MAX;
use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_tensor::{Element, Tensor, bf16, f16};

/// An array as plain nested indexing sees it.
#[derive(Clone, Debug, PartialEq)]
struct Naive {
    shape: Vec<usize>,
    values: Vec<i32>,
}

impl Naive {
    fn new(shape: &[usize]) -> Self {
        let len = shape.iter().product::<usize>();
        Self { shape: shape.to_vec(), values: (0..len as i32).collect() }
    }

    /// Returns the array of `shape` whose element at each index is that of `self` at the index that `edit`
    /// makes of it.
    fn map(&self, shape: Vec<usize>, edit: impl Fn(&mut Vec<usize>)) -> Self {
        let at = |flat| {
            let mut index = unravel(flat, &shape);
            edit(&mut index);
            self.at(&index)
        };
        let values = (0..shape.iter().product()).map(at).collect();
        Self { shape, values }
    }

    fn with_len(&self, dim: usize, len: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[dim] = len;
        shape
    }

    fn at(&self, index: &[usize]) -> i32 {
        self.values[index.iter().zip(&self.shape).fold(0, |flat, (index, dim)| flat * dim + index)]
    }
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for dim in (0..shape.len()).rev() {
        index[dim] = flat % shape[dim];
        flat /= shape[dim];
    }
    index
}

fn random_step(tensor: &Tensor, naive: &Naive, rng: &mut Rng) -> (Tensor, Naive) {
    let mut below = |bound: usize| rng.below(bound as u64).unwrap() as usize;
    let mut shape = naive.shape.clone();
    let dim = below(shape.len());
    let len = shape[dim];
    match below(5) {
        0 => {
            let other = below(shape.len());
            shape.swap(dim, other);
            (tensor.transpose(dim, other).unwrap(), naive.map(shape, |index| index.swap(dim, other)))
        }
        1 => {
            let start = below(len + 1);
            let end = start + below(len - start + 1);
            let shape = naive.with_len(dim, end - start);
            (tensor.slice(dim, start..end).unwrap(), naive.map(shape, |index| index[dim] += start))
        }
        2 if len > 0 && shape.len() > 1 => {
            let at = below(len);
            shape.remove(dim);
            (tensor.select(dim, at).unwrap(), naive.map(shape, |index| index.insert(dim, at)))
        }
        3 if len > 0 => {
            let picks: Vec<_> = (0..below(4)).map(|_| below(len)).collect();
            let shape = naive.with_len(dim, picks.len());
            (
                tensor.index_select(dim, &picks).unwrap(),
                naive.map(shape, |index| index[dim] = picks[index[dim]]),
            )
        }
        _ => {
            shape.rotate_left(dim);
            (tensor.reshape(&shape).unwrap(), Naive { shape, values: naive.values.clone() })
        }
    }
}

#[test]
fn any_chain_of_views_equals_plain_indexing() {
    let mut rng = Rng::new(1).stream("views");
    for round in 0..2000 {
        let shape = [[2, 3, 4, 2], [1, 5, 1, 3], [4, 1, 2, 2]][round % 3];
        let mut naive = Naive::new(&shape);
        let mut tensor = Tensor::from_slice(&shape, &naive.values).unwrap();
        for _ in 0..6 {
            (tensor, naive) = random_step(&tensor, &naive, &mut rng);
            assert_eq!(
                (tensor.shape(), tensor.to_vec::<i32>().unwrap()),
                (&*naive.shape, naive.values.clone())
            );
            if tensor.is_contiguous() {
                assert_eq!(tensor.as_slice::<i32>().unwrap(), naive.values);
            }
            let again = Tensor::from_bytes(Dtype::I32, tensor.shape(), &tensor.to_bytes()).unwrap();
            assert_eq!(again, tensor);
        }
    }
}

#[test]
fn cat_and_stack_undo_slice_and_select_along_every_dimension() {
    let values: Vec<i64> = (0..24).collect();
    let whole = Tensor::from_vec(&[2, 3, 4], values).unwrap().transpose(0, 2).unwrap();
    for dim in 0..3 {
        let len = whole.shape()[dim];
        let ends = [
            whole.slice(dim, 0..1).unwrap(),
            whole.slice(dim, 1..1).unwrap(),
            whole.slice(dim, 1..len).unwrap(),
        ];
        assert_eq!(Tensor::cat(&ends, dim).unwrap(), whole);
        let parts: Vec<_> = (0..len).map(|index| whole.select(dim, index).unwrap()).collect();
        assert_eq!(Tensor::stack(&parts, dim).unwrap(), whole);
    }
}

fn round_trip<T: Element>(values: &[T]) {
    let tensor = Tensor::from_slice(&[values.len()], values).unwrap();
    assert_eq!(tensor.dtype(), T::DTYPE);
    assert_eq!(tensor.to_vec::<T>().unwrap(), values);
    assert_eq!(Tensor::from_bytes(T::DTYPE, tensor.shape(), &tensor.to_bytes()).unwrap(), tensor);
    let zeros = Tensor::zeros(T::DTYPE, &[2, 2]).unwrap();
    assert_eq!(zeros.as_slice::<T>().unwrap(), [T::default(); 4]);
    assert_eq!(zeros.size_bytes(), 4 * T::DTYPE.size_bytes());
}

#[test]
fn every_dtype_goes_in_and_comes_out() {
    round_trip(&[f64::MIN, 0.5]);
    round_trip(&[f32::MAX, -0.5]);
    round_trip(&[f16::MAX, f16::ONE]);
    round_trip(&[bf16::MAX, bf16::ONE]);
    round_trip(&[i64::MIN, 1]);
    round_trip(&[i32::MIN, 1]);
    round_trip(&[i16::MIN, 1]);
    round_trip(&[i8::MIN, 1]);
    round_trip(&[u8::MAX, 1]);
    round_trip(&[u32::MAX, 1]);
    round_trip(&[true, false]);
}

#[test]
fn views_share_and_writes_copy_what_is_shared() {
    let original = Tensor::from_vec_f32(&[2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    let mut row = original.select(0, 1).unwrap();
    assert!(row.shares_storage(&original));
    row.as_mut_slice::<f32>().unwrap()[0] = 9.0;
    assert!(!row.shares_storage(&original));
    assert_eq!(original.as_f32().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(row.as_f32().unwrap(), [9.0, 4.0]);

    let address = row.as_f32().unwrap().as_ptr();
    row.as_mut_slice::<f32>().unwrap()[1] = 8.0;
    assert_eq!(row.as_f32().unwrap().as_ptr(), address, "an owner writes in place");

    let mut column = original.select(1, 0).unwrap();
    drop(original);
    column.as_mut_slice::<f32>().unwrap()[1] = 7.0;
    assert_eq!(column.as_f32().unwrap(), [1.0, 7.0], "a view with gaps becomes dense");
}

#[test]
fn an_empty_view_at_any_offset_is_an_empty_slice() {
    let empty = Tensor::from_vec(&[2, 2], vec![1_u8, 2, 3, 4]).unwrap().slice(0, 2..2).unwrap();
    let mut far = empty.reshape(&[0, 1000]).unwrap().select(1, 999).unwrap();
    assert!(far.as_slice::<u8>().unwrap().is_empty() && far.as_mut_slice::<u8>().unwrap().is_empty());
    assert_eq!(far.index_select(0, &[]).unwrap().shape(), [0]);
}

#[test]
fn equality_is_of_dtype_shape_and_elements() {
    let one = |values: [f32; 2]| Tensor::from_slice(&[2], &values).unwrap();
    assert_eq!(one([0.0, 1.0]), one([-0.0, 1.0]));
    assert_ne!(one([0.0, 1.0]), one([0.0, 2.0]));
    assert_ne!(one([f32::NAN, 1.0]), one([f32::NAN, 1.0]));
    assert_ne!(one([0.0, 1.0]), one([0.0, 1.0]).reshape(&[1, 2]).unwrap());
    assert_ne!(one([0.0, 0.0]), Tensor::zeros(Dtype::I32, &[2]).unwrap());
}

#[test]
fn singles_of_every_dtype() {
    let bits = Tensor::from_bits(Dtype::F16, &[2], &[0x3C00, 0xC000]).unwrap();
    assert_eq!(bits.to_f32_vec(), [1.0, -2.0]);
    assert_eq!(Tensor::from_vec(&[2], vec![true, false]).unwrap().to_f32_vec(), [1.0, 0.0]);
    assert_eq!(Tensor::from_vec(&[1], vec![16_777_217_i64]).unwrap().to_f32_vec(), [16_777_216.0]);
}

#[test]
fn wrong_dtypes_shapes_and_indices_are_typed_errors() {
    let tensor = Tensor::from_vec(&[2, 3], vec![0_i32; 6]).unwrap();
    let kind = |result: fulmar_core::Result<Tensor>| result.unwrap_err().kind();
    assert_eq!(kind(Tensor::from_vec(&[2, 2], vec![0_i32; 6])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(Tensor::from_bytes(Dtype::I32, &[2], &[0; 7])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(Tensor::from_bytes(Dtype::Bool, &[1], &[2])), ErrorKind::Corrupt);
    assert_eq!(kind(Tensor::from_bits(Dtype::I16, &[1], &[0])), ErrorKind::Incompatible);
    assert_eq!(kind(tensor.reshape(&[4])), ErrorKind::ShapeMismatch);
    assert_eq!(kind(tensor.select(2, 0)), ErrorKind::OutOfRange);
    assert_eq!(kind(tensor.select(1, 3)), ErrorKind::OutOfRange);
    assert_eq!(kind(tensor.slice(1, 1..4)), ErrorKind::OutOfRange);
    assert_eq!(kind(tensor.slice(1, std::ops::Range { start: 2, end: 1 })), ErrorKind::OutOfRange);
    assert_eq!(kind(tensor.transpose(0, 2)), ErrorKind::OutOfRange);
    assert_eq!(kind(tensor.unsqueeze(3)), ErrorKind::OutOfRange);
    assert_eq!(kind(tensor.index_select(0, &[0, 2])), ErrorKind::OutOfRange);
    let error = tensor.as_f32().unwrap_err();
    assert_eq!((error.kind(), error.detail()), (ErrorKind::Incompatible, "dtype must be f32: got i32"));
    assert_eq!(
        tensor.transpose(0, 1).unwrap().as_slice::<i32>().unwrap_err().kind(),
        ErrorKind::Incompatible
    );
}

#[test]
fn parts_that_do_not_join_are_typed_errors() {
    let kind = |result: fulmar_core::Result<Tensor>| result.unwrap_err().kind();
    let row = Tensor::from_vec(&[2], vec![0_i32; 2]).unwrap();
    let long = Tensor::from_vec(&[3], vec![0_i32; 3]).unwrap();
    let float = Tensor::from_vec_f32(&[2], vec![0.0; 2]).unwrap();
    assert_eq!(kind(Tensor::stack(&[], 0)), ErrorKind::Empty);
    assert_eq!(kind(Tensor::cat(&[], 0)), ErrorKind::Empty);
    assert_eq!(kind(Tensor::stack(&[row.clone(), long.clone()], 0)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(Tensor::stack(&[row.clone(), float.clone()], 0)), ErrorKind::Incompatible);
    assert_eq!(kind(Tensor::cat(&[row.clone(), float], 0)), ErrorKind::Incompatible);
    assert_eq!(kind(Tensor::cat(&[row.clone(), row.unsqueeze(0).unwrap()], 0)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(Tensor::cat(std::slice::from_ref(&row), 1)), ErrorKind::OutOfRange);
    assert_eq!(kind(Tensor::stack(&[row], 2)), ErrorKind::OutOfRange);
}

#[test]
fn the_rank_is_limited() {
    let widest = Tensor::from_vec(&[1; TENSOR_RANK_MAX], vec![1_u8]).unwrap();
    assert_eq!(widest.unsqueeze(0).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(Tensor::stack(&[widest], 0).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let one_more = Tensor::from_vec(&[1; TENSOR_RANK_MAX + 1], vec![1_u8]);
    assert_eq!(one_more.unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(Tensor::zeros(Dtype::F32, &[usize::MAX / 4]).unwrap_err().kind(), ErrorKind::OutOfMemory);
}

#[test]
fn numbers_go_to_every_dtype_that_can_hold_them_and_to_no_other() {
    let source = Tensor::from_vec(&[4], vec![0_i64, 1, 100, 127]).unwrap();
    let every = [
        Dtype::F64,
        Dtype::F32,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::I64,
        Dtype::I32,
        Dtype::I16,
        Dtype::I8,
        Dtype::U8,
        Dtype::U32,
    ];
    for dtype in every {
        let there = source.to(dtype).unwrap();
        assert_eq!((there.dtype(), there.to(Dtype::I64).unwrap()), (dtype, source.clone()));
    }
    assert_eq!(source.to(Dtype::Bool).unwrap().to_vec::<bool>().unwrap(), [false, true, true, true]);
    assert!(source.to(Dtype::I64).unwrap().shares_storage(&source));
    let kind = |values: Vec<f64>, dtype: Dtype| {
        Tensor::from_vec(&[values.len()], values).unwrap().to(dtype).map_err(|error| error.kind())
    };
    assert_eq!(kind(vec![f64::NAN], Dtype::I32), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(vec![128.0], Dtype::I8), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(vec![-1.0], Dtype::U32), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(vec![-0.9], Dtype::U8).unwrap().to_vec::<u8>().unwrap(), [0]);
    assert!(kind(vec![f64::NAN], Dtype::Bf16).unwrap().to_f32_vec()[0].is_nan());
}

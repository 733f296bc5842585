//! Tests of hashes: torchrl's rows, canonical floats, numbers of hashes and their limits.

use std::sync::Arc;

use fulmar_core::limits::MAP_KEYS_MAX;
use fulmar_core::{Dtype, ErrorKind};
use fulmar_tensor::{Key, Tensor, TensorDict, f16};
use fulmar_tree::{
    BinaryToDecimal, BinaryToDecimalOptions, HashToInt, ProjectionOptions, QueryModule, QueryOptions,
    RandomProjectionHash, RowHash, SipHash, SipHashOptions,
};
use serde_json::Value;

use crate::golden_value::{dict, tensor};
use crate::{integers, rows};

fn as_upstream() -> SipHash {
    SipHash::new(SipHashOptions { compatible: true, ..Default::default() })
}

#[test]
fn sip_hashes_are_those_of_python() {
    for row in rows("mcts", "SipHash") {
        let hashes = as_upstream().hash_rows(&tensor(&row["input"]), 1).unwrap();
        assert_eq!(hashes, integers::<i64>(&row["ok"]["d"]), "{}", row["id"]);
    }
}

#[test]
fn floats_that_are_equal_have_one_hash_unless_the_hash_is_compatible() {
    fn pairs(dtype: Dtype) -> Tensor {
        Tensor::from_vec(&[4, 1], vec![0.0_f64, -0.0, f64::NAN, -f64::NAN]).unwrap().to(dtype).unwrap()
    }
    for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let hashes = SipHash::default().hash_rows(&pairs(dtype), 1).unwrap();
        assert_eq!((hashes[0], hashes[2]), (hashes[1], hashes[3]), "{dtype:?}");
        assert_ne!(hashes[0], hashes[2], "{dtype:?}");
    }
    let hashes = as_upstream().hash_rows(&pairs(Dtype::F32), 1).unwrap();
    assert_ne!(hashes[0], hashes[1]);
    let smallest = Tensor::from_vec(&[2, 1], vec![f16::from_bits(1), f16::from_bits(0x8001)]).unwrap();
    let hashes = SipHash::default().hash_rows(&smallest, 1).unwrap();
    assert_ne!(hashes[0], hashes[1], "numbers beside 0 stay apart");
}

#[test]
fn a_key_changes_all_hashes() {
    let rows = Tensor::from_vec(&[64], (0..64_i64).collect()).unwrap();
    let keyed = SipHash::new(SipHashOptions { key: [1, 2], compatible: false });
    let (one, other) = (SipHash::default().hash_rows(&rows, 1).unwrap(), keyed.hash_rows(&rows, 1).unwrap());
    assert!(one.iter().zip(&other).all(|(one, other)| one != other));
}

#[test]
fn hashes_fill_their_range_evenly() {
    let rows = Tensor::from_vec(&[16_000], (0..16_000_i64).collect()).unwrap();
    for shift in [0, 17, 60] {
        let mut counts = [0_f64; 16];
        for hash in SipHash::default().hash_rows(&rows, 1).unwrap() {
            counts[(hash >> shift & 15) as usize] += 1.0;
        }
        let chi_square: f64 = counts.iter().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
        assert!(
            chi_square < 37.7,
            "15 degrees of freedom, p = 0.001: got {chi_square} for bits from {shift}"
        );
    }
}

#[test]
fn projections_with_a_given_matrix_have_upstream_s_hashes() {
    let given = rows("trees", "RandomProjectionHash").into_iter().filter(|row| row["matrix"]["d"].is_array());
    let mut count = 0;
    for row in given {
        let dtype = row["dtype_cast"].as_str().unwrap().replace("bfloat", "bf").replace("float", "f");
        let options = ProjectionOptions { dtype, ..Default::default() };
        let hash = RandomProjectionHash::with_matrix(&tensor(&row["matrix"]), options).unwrap();
        let hashes = hash.hash_rows(&tensor(&row["input"]), 1).unwrap();
        assert_eq!(hashes, integers::<i64>(&row["ok"]["d"]), "{}", row["id"]);
        count += 1;
    }
    assert!(count >= 3);
}

#[test]
fn a_drawn_matrix_has_upstream_s_shape_and_distribution_and_depends_on_the_seed() {
    for row in rows("mcts", "RandomProjectionHash") {
        let Some(num_features) = row["in_features"].as_u64() else { continue };
        let input = Tensor::from_vec(
            &[5, num_features as usize],
            (0..5 * num_features).map(|at| at as f32).collect(),
        )
        .unwrap();
        let hash = RandomProjectionHash::new(&ProjectionOptions::default()).unwrap();
        let hashes = hash.hash_rows(&input, 1).unwrap();
        assert_eq!(hash.hash_rows(&input, 1).unwrap(), hashes);
        assert_eq!(hashes.iter().collect::<std::collections::HashSet<_>>().len(), 5);
        let matrix = hash.matrix().unwrap();
        assert_eq!(matrix.shape(), integers::<usize>(&row["transform_shape"]));
        assert_eq!(matrix.dtype(), Dtype::Bf16);
        let other = RandomProjectionHash::new(&ProjectionOptions { seed: 1, ..Default::default() }).unwrap();
        assert_ne!(other.hash_rows(&input, 1).unwrap(), hashes);
    }
    let hash = RandomProjectionHash::new(&ProjectionOptions::default()).unwrap();
    hash.hash_rows(&Tensor::zeros(Dtype::F32, &[1, 4000]).unwrap(), 1).unwrap();
    let numbers = hash.matrix().unwrap().to_f32_vec();
    let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
    let square = numbers.iter().map(|one| one * one).sum::<f32>() / numbers.len() as f32;
    assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "mean {mean}, square {square}");
}

#[test]
fn a_projection_of_other_features_or_dtypes_is_refused() {
    let hash = RandomProjectionHash::new(&ProjectionOptions::default()).unwrap();
    hash.hash_rows(&Tensor::zeros(Dtype::F32, &[1, 4]).unwrap(), 1).unwrap();
    let kind = |result: fulmar_core::Result<Vec<i64>>| result.unwrap_err().kind();
    assert_eq!(
        kind(hash.hash_rows(&Tensor::zeros(Dtype::F32, &[1, 5]).unwrap(), 1)),
        ErrorKind::ShapeMismatch
    );
    assert_eq!(kind(hash.hash_rows(&Tensor::zeros(Dtype::F32, &[4]).unwrap(), 1)), ErrorKind::ShapeMismatch);
    let made = |num_components, dtype: &str| {
        let options = ProjectionOptions { num_components, dtype: dtype.to_owned(), ..Default::default() };
        RandomProjectionHash::new(&options).unwrap_err().kind()
    };
    assert_eq!(made(0, "f32"), ErrorKind::OutOfRange);
    assert_eq!(made(4, "i64"), ErrorKind::Incompatible);
}

#[test]
fn binary_digits_are_read_as_upstream_reads_them() {
    for row in rows("mcts", "BinaryToDecimal") {
        let options = BinaryToDecimalOptions {
            num_bits: row["num_bits"].as_u64().unwrap() as usize,
            convert_to_binary: row["convert_to_binary"] == true,
        };
        let got = BinaryToDecimal::new(options).unwrap().forward(&tensor(&row["input"]));
        if row.get("ok").is_some() {
            assert_eq!(got.unwrap(), tensor(&row["ok"]), "{}", row["id"]);
        } else {
            assert_eq!(got.unwrap_err().kind(), ErrorKind::ShapeMismatch, "{}", row["id"]);
        }
    }
    let kind = |num_bits| {
        BinaryToDecimal::new(BinaryToDecimalOptions { num_bits, convert_to_binary: false })
            .err()
            .map(|error| error.kind())
    };
    assert_eq!(
        (kind(0), kind(62), kind(63)),
        (Some(ErrorKind::OutOfRange), None, Some(ErrorKind::OutOfRange))
    );
    let read = BinaryToDecimal::new(BinaryToDecimalOptions { num_bits: 1, convert_to_binary: true }).unwrap();
    let error = read.forward(&Tensor::from_vec(&[1], vec![f32::NAN]).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NonFinite);
}

#[test]
fn hashes_get_upstream_s_numbers() {
    let all = [rows("mcts", "HashToInt"), rows("trees", "HashToInt")].concat();
    for row in all {
        let mut ids = HashToInt::default();
        for op in row["ops"].as_array().unwrap() {
            let hashes: Vec<i64> = integers(&op["keys"]);
            let got = if op["extend"] == true { ids.extend(&hashes).unwrap() } else { ids.lookup(&hashes) };
            assert_eq!(got, integers::<i64>(&op["ok"]["d"]), "{}", row["id"]);
            let restored = HashToInt::from_hashes(ids.hashes(), MAP_KEYS_MAX).unwrap();
            assert_eq!(restored.lookup(&hashes), ids.lookup(&hashes), "the state comes back");
        }
    }
}

#[test]
fn numbers_of_hashes_end_at_their_limit_and_nothing_changes_past_it() {
    let mut ids = HashToInt::new(2).unwrap();
    assert_eq!(ids.extend(&[7, 8]).unwrap(), [0, 1]);
    assert_eq!(ids.extend(&[9, 7]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!((ids.len(), ids.lookup(&[9, 8])), (2, vec![2, 1]));
    assert_eq!(HashToInt::from_hashes(&[3, 3], 5).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(HashToInt::from_hashes(&[3, 4], 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert!(HashToInt::new(MAP_KEYS_MAX).is_ok());
    assert_eq!(HashToInt::new(MAP_KEYS_MAX + 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(HashToInt::new(0).unwrap_err().kind(), ErrorKind::OutOfRange);
}

fn key(value: &Value) -> Key {
    match value.as_str() {
        Some(name) => name.into(),
        None => Key::unravel(value).unwrap(),
    }
}

#[test]
fn a_query_gives_upstream_s_hashes_and_numbers_for_a_batch_of_any_shape() {
    for row in [rows("mcts", "QueryModule"), rows("trees", "QueryModule")].concat() {
        let in_keys: Vec<Key> = row["in_keys"].as_array().unwrap().iter().map(key).collect();
        let hashes = in_keys.iter().map(|_| Arc::new(as_upstream()) as Arc<dyn RowHash>).collect();
        let options = QueryOptions { hashes, ..Default::default() };
        let mut query = QueryModule::new(in_keys.clone(), options).unwrap();
        for op in row["ops"].as_array().unwrap() {
            let input = dict(&op["input"]);
            let got = query.clone().forward(&input, op["extend"] == true);
            if op.get("ok").is_none() {
                // Upstream takes one batch dimension only.
                let is_missing = in_keys.iter().any(|key| input.get(key.clone()).is_none());
                assert_eq!(got.is_err(), is_missing, "{}", row["id"]);
                if !is_missing && op["extend"] == true {
                    // It numbers the hashes of the first dimension before it fails.
                    let first =
                        input.select(&in_keys).unwrap().with_batch_size(&input.batch_size()[..1]).unwrap();
                    query.forward(&first, true).unwrap();
                }
                continue;
            }
            query.forward(&input, op["extend"] == true).unwrap();
            let got = got.unwrap();
            for pair in op["ok"]["$dict"].as_array().unwrap() {
                let key = if pair[0].as_str().unwrap().starts_with('i') { "_index" } else { "_hash" };
                assert_eq!(got.tensor(key).unwrap(), &tensor(&pair[1]), "{}", row["id"]);
            }
        }
    }
}

#[test]
fn a_query_of_two_batch_dimensions_is_that_of_its_rows() {
    let numbers: Vec<f32> = (0..12).map(|at| (at % 5) as f32).collect();
    let query = QueryModule::new(vec!["a".into(), "b".into()], QueryOptions::default()).unwrap();
    let mut flat = TensorDict::new(&[6]).unwrap();
    flat.set("a", Tensor::from_vec(&[6, 2], numbers.clone()).unwrap()).unwrap();
    flat.set("b", Tensor::from_vec(&[6], vec![0_i64, 1, 0, 1, 0, 1]).unwrap()).unwrap();
    let grid = flat.reshape(&[2, 3]).unwrap();
    assert_eq!(query.hash(&grid).unwrap(), query.hash(&flat).unwrap());
    let mut numbered = query.clone();
    assert_eq!(numbered.forward(&grid, true).unwrap().tensor("_index").unwrap().shape(), [2, 3]);
}

#[test]
fn a_query_without_keys_or_with_other_hashes_is_refused() {
    assert_eq!(QueryModule::new(Vec::new(), QueryOptions::default()).err().unwrap().kind(), ErrorKind::Empty);
    let hashes: Vec<Arc<dyn RowHash>> = vec![Arc::new(SipHash::default())];
    let options = QueryOptions { hashes, ..Default::default() };
    let error = QueryModule::new(vec!["a".into(), "b".into()], options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
}

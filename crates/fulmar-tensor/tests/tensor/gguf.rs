//! GGUF files: blocks against the `gguf` package, and corrupt files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::ErrorKind;
use fulmar_core::limits::{GGUF_DEPTH_MAX, GGUF_TENSORS_MAX, TENSOR_RANK_MAX};
use fulmar_tensor::gguf::File;
use proptest::prelude::*;
use serde_json::Value;

/// The bytes of a file, in order.
#[derive(Clone)]
struct Writer(Vec<u8>);

impl Writer {
    fn new(num_tensors: u64, num_keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(num_tensors).u64(num_keys)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(mut self, text: &str) -> Self {
        self = self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }

    fn info(self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let start = self.text(name).u32(shape.len() as u32);
        shape.iter().fold(start, |writer, len| writer.u64(*len)).u32(kind).u64(offset)
    }

    fn data(mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(32), 0);
        self.0.extend(bytes);
        self.0
    }
}

fn kind_of(bytes: &[u8]) -> ErrorKind {
    File::read(bytes).unwrap_err().kind()
}

#[test]
fn every_kind_of_block_decodes_to_the_bit_as_in_the_golden_rows() {
    let rows = include_str!("../../../../tests/golden/tensor/gguf_blocks.jsonl");
    let mut kinds = std::collections::BTreeSet::new();
    for row in rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let hex = row["hex"].as_str().unwrap();
        let block: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let values: Vec<f32> = serde_json::from_value(row["values_f32"].clone()).unwrap();
        let id = row["type_id"].as_u64().unwrap() as u32;
        // Two rows of one block each: the second shows where a block ends.
        let shape = [values.len() as u64, 2];
        let file = Writer::new(1, 0).info("w", &shape, id, 0).data(&[&*block, &*block].concat());
        let tensor = File::read(&file).unwrap().tensor("w").unwrap();
        assert_eq!(tensor.shape(), [2, values.len()]);
        let bits: Vec<u32> = tensor.as_f32().unwrap().iter().map(|x| x.to_bits()).collect();
        let expected: Vec<u32> = values.iter().chain(&values).map(|x| x.to_bits()).collect();
        assert_eq!(bits, expected, "{}", row["name"]);
        kinds.insert(id);
    }
    assert_eq!(Vec::from_iter(kinds), [0, 1, 2, 3, 6, 7, 8, 14, 30]);
}

#[test]
fn metadata_of_every_type_keeps_its_value() {
    let mut writer = Writer::new(0, 4).text("text").u32(8).text("ü");
    writer = writer.text("big").u32(10).u64(u64::MAX);
    writer = writer.text("list").u32(9).u32(4).u64(2).u32(7).u32(8);
    writer = writer.text("flag").u32(7);
    writer.0.push(1);
    let file = writer.data(&[]);
    let metadata = serde_json::json!({"text": "ü", "big": u64::MAX, "list": [7, 8], "flag": true});
    assert_eq!(Value::Object(File::read(&file).unwrap().metadata), metadata);
}

#[test]
fn what_breaks_a_rule_is_refused_by_name() {
    let one = |shape: &[u64], kind, offset| Writer::new(1, 0).info("w", shape, kind, offset).data(&[0; 64]);
    assert!(File::read(&one(&[16], 0, 0)).is_ok());
    let cases = [
        (one(&[17], 0, 0), ErrorKind::Corrupt, "w: a tensor must end within the file: got 17 elements at 0"),
        (one(&[8], 0, 33), ErrorKind::Corrupt, "w: offset must be a multiple of 32: got 33"),
        (one(&[33], 8, 0), ErrorKind::Corrupt, "w: rows must be a multiple of 32 long: got 33"),
        (one(&[u64::MAX, u64::MAX], 0, 0), ErrorKind::LimitExceeded, ""),
        (one(&[1], 99, 0), ErrorKind::UnknownName, ""),
        (one(&[8], 0, u64::MAX - 31), ErrorKind::Corrupt, ""),
        (b"GGML\x03\0\0\0".to_vec(), ErrorKind::Corrupt, "a GGUF file must begin with \"GGUF\""),
        (b"GGUF\x04\0\0\0".to_vec(), ErrorKind::Incompatible, "version must be 2 or 3: got 4"),
        (
            Writer::new(2, 0).info("w", &[1], 0, 0).info("w", &[1], 0, 0).data(&[0; 4]),
            ErrorKind::Corrupt,
            "tensors must differ in name: got \"w\" twice",
        ),
        (
            Writer::new(0, 1).text("list").u32(9).u32(0).u64(u64::MAX >> 1).data(&[]),
            ErrorKind::Corrupt,
            "list: an array must end within the file: got 9223372036854775807 values",
        ),
    ];
    for (bytes, kind, detail) in cases {
        let error = File::read(&bytes).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(detail.is_empty() || error.detail() == detail, "{error}");
    }
}

#[test]
fn limits_hold_at_the_bound_and_not_past_it() {
    let rank = |rank| Writer::new(1, 0).info("w", &vec![1; rank], 0, 0).data(&[0; 4]);
    assert!(File::read(&rank(TENSOR_RANK_MAX)).is_ok());
    assert_eq!(kind_of(&rank(TENSOR_RANK_MAX + 1)), ErrorKind::LimitExceeded);

    let deep = |depth: usize| {
        let nested = (1..depth).fold(Writer::new(0, 1).text("k").u32(9), |writer, _| writer.u32(9).u64(1));
        nested.u32(0).u64(0).data(&[])
    };
    assert!(File::read(&deep(GGUF_DEPTH_MAX)).is_ok());
    assert_eq!(kind_of(&deep(GGUF_DEPTH_MAX + 1)), ErrorKind::LimitExceeded);

    let most = GGUF_TENSORS_MAX as u64;
    let many = (0..most).fold(Writer::new(most, 0), |w, at| w.info(&at.to_string(), &[0], 0, 0));
    assert_eq!(File::read(&many.data(&[])).unwrap().names().count(), GGUF_TENSORS_MAX);
    assert_eq!(kind_of(&Writer::new(most + 1, 0).0), ErrorKind::LimitExceeded);
    assert_eq!(kind_of(&Writer::new(0, most + 1).0), ErrorKind::LimitExceeded);
}

proptest! {
    #[test]
    fn damaged_files_are_read_or_refused(at in 0_usize..90_000, byte: u8, cut in 0_usize..90_000) {
        let mut bytes = include_bytes!("../../../../tests/golden/model/gguf_llama/tiny.gguf").to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut % bytes.len());
        if let Ok(file) = File::read(&bytes) {
            for name in file.names() {
                file.tensor(name).unwrap();
            }
        }
    }
}

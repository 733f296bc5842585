//! Safetensors: equal to the format's own crate on good files, a typed error on bad ones.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::HashMap;

use fulmar_core::limits::{SAFETENSORS_HEADER_BYTES_MAX, TENSOR_RANK_MAX};
use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_tensor::safetensors::{File, load_file, read, save_file, write};
use fulmar_tensor::{Tensor, bf16, f16};

/// One tensor of every dtype, among them a scalar, an empty one and a view with gaps.
fn samples() -> Vec<(&'static str, Tensor)> {
    let matrix = Tensor::from_vec_f32(&[2, 3], vec![1.0, -2.5, f32::MIN_POSITIVE, 4.0, 5.0, -0.0]).unwrap();
    vec![
        ("layers.0.weight", matrix.transpose(0, 1).unwrap()),
        ("bias", Tensor::from_vec(&[2], vec![1.5_f64, -1.0]).unwrap()),
        ("half", Tensor::from_vec(&[3], [1.0, 2.0, 3.0].map(f16::from_f32).to_vec()).unwrap()),
        ("brain", Tensor::from_vec(&[1], vec![bf16::from_f32(0.5)]).unwrap()),
        ("step", Tensor::from_vec(&[], vec![i64::MIN]).unwrap()),
        ("i32", Tensor::from_vec(&[2], vec![-7_i32, 7]).unwrap()),
        ("i16", Tensor::from_vec(&[1, 1], vec![-9_i16]).unwrap()),
        ("i8", Tensor::from_vec(&[3], vec![-1_i8, 0, 1]).unwrap()),
        ("u8", Tensor::from_vec(&[0, 4], Vec::<u8>::new()).unwrap()),
        ("u32", Tensor::from_vec(&[2], vec![u32::MAX, 0]).unwrap()),
        ("mask \"é\"", Tensor::from_vec(&[5], vec![true, false, true, true, false]).unwrap()),
    ]
}

fn file_bytes() -> Vec<u8> {
    let samples = samples();
    write(samples.iter().map(|(name, tensor)| (*name, tensor)), &[("format", "pt")]).unwrap()
}

fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn refusal(header: &str, data: &[u8]) -> (ErrorKind, String) {
    let error = read(&with_header(header, data)).unwrap_err();
    (error.kind(), error.detail().to_owned())
}

struct Reference<'a>(&'a Tensor, Vec<u8>);

impl safetensors::View for Reference<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        use safetensors::Dtype as Theirs;
        match self.0.dtype() {
            Dtype::F64 => Theirs::F64,
            Dtype::F32 => Theirs::F32,
            Dtype::F16 => Theirs::F16,
            Dtype::Bf16 => Theirs::BF16,
            Dtype::I64 => Theirs::I64,
            Dtype::I32 => Theirs::I32,
            Dtype::I16 => Theirs::I16,
            Dtype::I8 => Theirs::I8,
            Dtype::U8 => Theirs::U8,
            Dtype::U32 => Theirs::U32,
            Dtype::Bool => Theirs::BOOL,
        }
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.1).into()
    }

    fn data_len(&self) -> usize {
        self.1.len()
    }
}

#[test]
fn the_bytes_are_those_of_the_formats_own_crate() {
    let samples = samples();
    let theirs = samples.iter().map(|(name, tensor)| (*name, Reference(tensor, tensor.to_bytes())));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    assert_eq!(file_bytes(), safetensors::serialize(theirs, Some(metadata)).unwrap());
}

#[test]
fn every_dtype_comes_back_with_shape_and_elements() {
    let file = read(&file_bytes()).unwrap();
    assert_eq!(file.to_bytes().unwrap(), file_bytes());
    assert_eq!(file.metadata.into_iter().collect::<Vec<_>>(), [("format".to_owned(), "pt".to_owned())]);
    assert_eq!(file.tensors.len(), 11);
    for (name, tensor) in samples() {
        assert_eq!(file.tensors[name], tensor, "{name}");
    }
}

#[test]
fn the_same_tensors_in_another_order_give_the_same_bytes() {
    let samples = samples();
    let metadata = [("b", "2"), ("a", "1"), ("c", "3")];
    let forward = write(samples.iter().map(|(name, tensor)| (*name, tensor)), &metadata).unwrap();
    let backward = write(
        samples.iter().rev().map(|(name, tensor)| (*name, tensor)),
        &[metadata[2], metadata[0], metadata[1]],
    )
    .unwrap();
    assert_eq!(forward, backward);
}

#[test]
fn nothing_at_all_is_a_valid_file() {
    assert_eq!(read(&write([], &[]).unwrap()).unwrap(), File::default());
}

#[test]
fn a_name_twice_is_refused_when_writing_and_when_reading() {
    let tensor = Tensor::from_vec(&[1], vec![1_u8]).unwrap();
    assert_eq!(write([("a", &tensor), ("a", &tensor)], &[]).unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(write([("__metadata__", &tensor)], &[]).unwrap_err().kind(), ErrorKind::Malformed);
    let entry = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    let (kind, detail) = refusal(&format!(r#"{{"a":{entry},"a":{entry}}}"#), &[1]);
    assert!(kind == ErrorKind::Corrupt && detail.contains("\"a\" must come once"), "{detail}");
    let (kind, detail) = refusal(r#"{"__metadata__":{"k":"1","k":"2"}}"#, &[]);
    assert!(kind == ErrorKind::Corrupt && detail.contains("\"k\" must come once"), "{detail}");
    assert_eq!(refusal(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]).0, ErrorKind::Corrupt);
}

#[test]
fn overlaps_gaps_and_offsets_out_of_range_name_the_tensor() {
    let pair = |left: [u64; 2], right: [u64; 2]| {
        format!(
            r#"{{"left":{{"dtype":"U8","shape":[{}],"data_offsets":{left:?}}},"right":{{"dtype":"U8","shape":[{}],"data_offsets":{right:?}}}}}"#,
            left[1].wrapping_sub(left[0]),
            right[1].wrapping_sub(right[0]),
        )
    };
    assert!(read(&with_header(&pair([0, 2], [2, 4]), &[0; 4])).is_ok());
    let bad = [
        ([0, 3], [2, 4]),
        ([0, 1], [2, 4]),
        ([0, 2], [2, 5]),
        ([0, 2], [4, 2]),
        ([1, 2], [2, 4]),
        ([0, 2], [2, u64::MAX]),
    ];
    for (left, right) in bad {
        let (kind, detail) = refusal(&pair(left, right), &[0; 4]);
        assert_eq!(kind, ErrorKind::Corrupt);
        assert!(detail.contains("tensor \"left\"") || detail.contains("tensor \"right\""), "{detail}");
    }
    let (kind, detail) = refusal(&pair([0, 1], [1, 3]), &[0; 4]);
    assert_eq!(
        (kind, &*detail),
        (ErrorKind::Corrupt, "the tensors must fill the 4 bytes of data: got 3 bytes")
    );
}

#[test]
fn a_length_that_is_not_that_of_the_shape_names_the_tensor() {
    let entry = |shape: &str| format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":[0,8]}}}}"#);
    assert!(read(&with_header(&entry("[2]"), &[0; 8])).is_ok());
    let (kind, detail) = refusal(&entry("[3]"), &[0; 8]);
    assert_eq!(
        (kind, &*detail),
        (ErrorKind::Corrupt, "tensor \"w\": data must have the bytes of shape [3]: got 8")
    );
    let (kind, detail) = refusal(&entry("[4294967296, 4294967296, 4]"), &[0; 8]);
    assert!(kind == ErrorKind::LimitExceeded && detail.contains("tensor \"w\""), "{detail}");
    assert_eq!(refusal(&entry("[4611686018427387904]"), &[0; 8]).0, ErrorKind::Corrupt);
    assert_eq!(refusal(&entry("[-2]"), &[0; 8]).0, ErrorKind::Corrupt);
    assert_eq!(refusal(&entry("[2.0]"), &[0; 8]).0, ErrorKind::Corrupt);
}

#[test]
fn the_rank_is_limited() {
    let entry = |rank: usize| {
        let shape = vec!["1"; rank].join(",");
        format!(r#"{{"deep":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]}}}}"#)
    };
    assert_eq!(
        read(&with_header(&entry(TENSOR_RANK_MAX), &[3])).unwrap().tensors["deep"].rank(),
        TENSOR_RANK_MAX
    );
    let (kind, detail) = refusal(&entry(TENSOR_RANK_MAX + 1), &[3]);
    assert!(kind == ErrorKind::LimitExceeded && detail.contains("tensor \"deep\""), "{detail}");
}

#[test]
fn the_header_length_is_limited_before_memory_is_taken() {
    let claim = |length: usize| read(&(length as u64).to_le_bytes()).unwrap_err().kind();
    assert_eq!(claim(SAFETENSORS_HEADER_BYTES_MAX), ErrorKind::Corrupt, "allowed, but the file is shorter");
    assert_eq!(claim(SAFETENSORS_HEADER_BYTES_MAX + 1), ErrorKind::LimitExceeded);
    assert_eq!(claim(usize::MAX), ErrorKind::LimitExceeded);
    assert_eq!(read(&[0; 7]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn unknown_dtypes_and_foreign_json_are_typed_errors() {
    let (kind, detail) = refusal(r#"{"w":{"dtype":"F9","shape":[1],"data_offsets":[0,1]}}"#, &[0]);
    assert!(
        kind == ErrorKind::UnknownName && detail.starts_with("tensor \"w\": dtype must be one of"),
        "{detail}"
    );
    let (kind, detail) = refusal(r#"{"w":{"dtype":"F32","shape":[1]}}"#, &[]);
    assert!(
        kind == ErrorKind::Corrupt && detail.contains("tensor \"w\"") && detail.contains("data_offsets"),
        "{detail}"
    );
    let nested = "[".repeat(100_000);
    for header in ["", "null", "[]", "{", "{\"w\":1}", "{\"__metadata__\":{\"a\":1}}", "{} x", &nested] {
        assert_eq!(refusal(header, &[]).0, ErrorKind::Corrupt, "{header:.20}");
    }
    let (kind, detail) = refusal(r#"{"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}"#, &[1, 2]);
    assert_eq!((kind, &*detail), (ErrorKind::Corrupt, "tensor \"m\": a bool must be 0 or 1: got 2"));
}

#[test]
fn a_tensor_of_a_dtype_that_is_not_here_leaves_the_others_readable_and_is_refused_by_name() {
    let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
        "w":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[4,10]},
        "u":{"dtype":"U16","shape":[1],"data_offsets":[10,12]},
        "z":{"dtype":"U8","shape":[2],"data_offsets":[12,14]}}"#;
    let data: Vec<u8> = 1.0_f32.to_le_bytes().into_iter().chain(0..10).collect();
    let file = read(&with_header(header, &data)).unwrap();
    assert_eq!(file.tensors.keys().collect::<Vec<_>>(), ["a", "z"]);
    assert_eq!(file.tensor("a").unwrap().to_f32_vec(), [1.0]);
    assert_eq!(file.tensor("z").unwrap().to_vec::<u8>().unwrap(), [8, 9]);
    for (name, dtype) in [("w", "F8_E4M3"), ("u", "U16")] {
        let error = file.tensor(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.detail().contains(name) && error.detail().ends_with(&format!("got {dtype}")),
            "{error}"
        );
    }
    // Writing the file back would lose the other tensors.
    assert_eq!(file.to_bytes().unwrap_err().kind(), ErrorKind::Unavailable);
    let short = r#"{"w":{"dtype":"U64","shape":[2],"data_offsets":[0,15]}}"#;
    assert_eq!(read(&with_header(short, &[0; 15])).unwrap_err().kind(), ErrorKind::Corrupt);
    let path = std::env::temp_dir().join(format!("fulmar-foreign-dtype-{}", std::process::id()));
    std::fs::write(&path, with_header(header, &data)).unwrap();
    assert_eq!(load_file(&path).unwrap(), file);
    std::fs::remove_file(path).unwrap();
}

/// 20,000 damaged files: an error, or tensors that their own bytes can hold; and never accepted where the format's own
/// crate refuses.
#[test]
fn damaged_files_give_an_error_or_a_valid_file() {
    let original = file_bytes();
    let header_end = 8 + u64::from_le_bytes(original[..8].try_into().unwrap()) as usize;
    let mut rng = Rng::new(20).stream("damage");
    let memory_before = peak_memory_kib();
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut bytes = original.clone();
        match round % 4 {
            0 => bytes.truncate(rng.below(original.len() as u64).unwrap() as usize),
            1 => flip(&mut bytes, 1, &mut rng),
            2 => flip(&mut bytes[..header_end], 1 + round / 4 % 8, &mut rng),
            _ => overwrite_digit(&mut bytes[8..header_end], &mut rng),
        }
        match read(&bytes) {
            Ok(file) => {
                accepted += 1;
                assert!(
                    safetensors::SafeTensors::deserialize(&bytes).is_ok(),
                    "the format's own crate refuses it"
                );
                let held: usize = file.tensors.values().map(|tensor| tensor.to_bytes().len()).sum();
                assert!(held < original.len());
            }
            Err(error) => {
                refused += 1;
                let typed = [ErrorKind::Corrupt, ErrorKind::LimitExceeded, ErrorKind::UnknownName];
                assert!(typed.contains(&error.kind()), "{error}");
            }
        }
    }
    assert!(peak_memory_kib() - memory_before < 64 << 10, "memory grew by more than 64 MiB");
    assert!(accepted > 1000 && refused > 10_000, "{accepted} accepted, {refused} refused");
}

/// Returns the peak memory of this process; 0 if the system does not report it.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

fn flip(bytes: &mut [u8], count: usize, rng: &mut Rng) {
    for _ in 0..count {
        let bit = rng.below(bytes.len() as u64 * 8).unwrap() as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Keeps the JSON valid and changes one number in it.
fn overwrite_digit(header: &mut [u8], rng: &mut Rng) {
    let digits: Vec<_> = (0..header.len()).filter(|at| header[*at].is_ascii_digit()).collect();
    header[digits[rng.below(digits.len() as u64).unwrap() as usize]] = b'0' + rng.below(10).unwrap() as u8;
}

#[test]
fn a_saved_file_is_the_written_bytes_and_loads_again() {
    let path = std::env::temp_dir().join(format!("fulmar-save-{}.safetensors", std::process::id()));
    let samples = samples();
    let named = || samples.iter().map(|(name, tensor)| (*name, tensor));
    save_file(&path, named(), &[("format", "pt")]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), file_bytes());
    assert_eq!(load_file(&path).unwrap(), read(&file_bytes()).unwrap());

    let twice = named().chain(named());
    assert_eq!(save_file(&path, twice, &[]).unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(std::fs::read(&path).unwrap(), file_bytes(), "a refused save leaves the old file");

    std::fs::write(&path, &file_bytes()[..300]).unwrap();
    let error = load_file(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.detail().contains(".safetensors: "), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(load_file(&path).unwrap_err().kind(), ErrorKind::Io);
}

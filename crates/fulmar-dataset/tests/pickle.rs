//! Pickles of a writer of the test's own, read back; pickles that are refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod pickle_writer;

use fulmar_core::limits::{PICKLE_DEPTH_MAX, PICKLE_VALUES_MAX};
use fulmar_core::{Dtype, ErrorKind};
use fulmar_dataset::{Pickle, PickleItem};
use proptest::prelude::*;

use self::pickle_writer::{Plain, write};

/// Fails unless `found` is `want`.
fn assert_same(found: PickleItem<'_>, want: &Plain) {
    match want {
        Plain::None => assert!(found.is_none()),
        Plain::Bool(value) => assert_eq!(found.as_bool(), Some(*value)),
        Plain::Int(value) => assert_eq!(found.as_int(), Some(*value)),
        Plain::Float(value) => assert_eq!(found.as_float().map(f64::to_bits), Some(value.to_bits())),
        Plain::Text(value) => assert_eq!(found.as_text(), Some(value.as_str())),
        Plain::Bytes(value) => assert_eq!(found.as_bytes(), Some(&value[..])),
        Plain::List(items) | Plain::Tuple(items) => {
            assert_eq!(found.kind(), if matches!(want, Plain::List(_)) { "list" } else { "tuple" });
            assert_eq!(found.items().unwrap().len(), items.len());
            found.items().unwrap().zip(items).for_each(|(found, want)| assert_same(found, want));
        }
        Plain::Dict(entries) => {
            let found = found.entries().unwrap();
            let last: std::collections::HashMap<_, _> =
                entries.iter().map(|(key, value)| (key, value)).collect();
            assert_eq!(found.len(), last.len());
            last.into_iter().for_each(|(key, want)| assert_same(found[key.as_str()], want));
        }
        Plain::Array(_, shape, bytes) => {
            let tensor = found.to_tensor().unwrap().unwrap();
            assert_eq!((tensor.shape(), tensor.to_bytes()), (&shape[..], bytes.clone()));
        }
        Plain::Object(value) => assert_same(found.items().unwrap().next().unwrap(), value),
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let leaf = prop_oneof![
        Just(Plain::None),
        any::<bool>().prop_map(Plain::Bool),
        any::<i64>().prop_map(Plain::Int),
        (0_i64..70_000).prop_map(Plain::Int),
        any::<f64>().prop_map(|value| Plain::Float(if value.is_nan() { 0.5 } else { value })),
        any::<String>().prop_map(Plain::Text),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Plain::Bytes),
        (1_usize..4, 0_usize..4).prop_flat_map(|(rows, width)| {
            proptest::collection::vec(any::<u8>(), rows * width * 4)
                .prop_map(move |bytes| Plain::Array("<i4", vec![rows, width], bytes))
        }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Plain::List),
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Plain::Tuple),
            proptest::collection::vec((any::<String>(), inner.clone()), 0..6).prop_map(Plain::Dict),
            inner.prop_map(|value| Plain::Object(Box::new(value))),
        ]
    })
}

proptest! {
    #[test]
    fn written_values_are_read_back(value in plain(), protocol in 0_u8..6) {
        let bytes = write(&value, protocol);
        assert_same(Pickle::read(&bytes).unwrap().root(), &value);
    }

    #[test]
    fn a_pickle_that_is_cut_is_refused(value in plain(), protocol in 0_u8..6, end in 0.0..1.0_f64) {
        let bytes = write(&value, protocol);
        let end = (end * bytes.len() as f64) as usize;
        let error = Pickle::read(&bytes[..end]).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error);
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(pickle) = Pickle::read(&bytes) {
            let _ = pickle.root().to_tensor();
        }
    }

    #[test]
    fn a_damaged_pickle_is_refused_or_read(
        value in plain(),
        protocol in 0_u8..6,
        changes in proptest::collection::vec((0.0..1.0_f64, any::<u8>()), 1..6),
    ) {
        let mut bytes = write(&value, protocol);
        let len = bytes.len() as f64;
        changes.iter().for_each(|(at, byte)| bytes[(at * len) as usize] = *byte);
        if let Ok(pickle) = Pickle::read(&bytes) {
            let _ = (pickle.root().to_tensor(), pickle.root().entries().map(|entries| entries.len()));
        }
    }
}

fn refused(bytes: &[u8]) -> (ErrorKind, String) {
    let error = Pickle::read(bytes).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn globals_that_do_not_make_arrays_are_refused_by_name() {
    let calls: [&[u8]; 4] = [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02cos\nsystem\n.",
        b"(ios\nsystem\n.",
    ];
    for (at, bytes) in calls.into_iter().enumerate() {
        let (kind, text) = refused(bytes);
        assert_eq!(kind, ErrorKind::Forbidden, "{text}");
        assert!(at == 3 || text.contains("\"os.system\""), "{text}");
    }
    for name in ["numpy.core.multiarray\nscalar", "numpy\nload", "_codecs\ndecode", "numpy.ndarray\ntofile"] {
        assert_eq!(refused(format!("c{name}\n.").as_bytes()).0, ErrorKind::Forbidden, "{name}");
    }
    let long = format!("c{}\nx\n.", "a".repeat(10_000));
    assert!(refused(long.as_bytes()).1.len() < 300);
}

#[test]
fn objects_sets_and_references_are_refused() {
    let pickles: [&[u8]; 7] =
        [b"Pid\n.", b"NQ.", b"\x82\x01.", b"\x8f.", b"cnumpy\nndarray\n)\x81.", b"\x97.", b"NNb."];
    for bytes in pickles {
        let (kind, text) = refused(bytes);
        assert!(matches!(kind, ErrorKind::Forbidden | ErrorKind::Corrupt), "{text}");
    }
    assert_eq!(refused(b"cnumpy\nndarray\n)\x81.").0, ErrorKind::Forbidden);
}

#[test]
fn stacks_and_memos_that_lack_a_value_are_corrupt() {
    let pickles: [&[u8]; 18] = [
        b".", b"0.", b"1.", b"2.", b"a.", b"Na.", b"NNa.", b"(Na.", b"}(Nu.", b"}(NNe.", b"g7\n.", b"h\x01.",
        b"q\x01.", b"\x85.", b"t.", b"R.", b"NNR.", b"\xff.",
    ];
    for bytes in pickles {
        assert_eq!(refused(bytes).0, ErrorKind::Corrupt, "{bytes:?}");
    }
}

#[test]
fn values_inside_each_other_end_at_the_limit() {
    let nested = |count: usize| [&b"]".repeat(count + 1)[..], &b"a".repeat(count), b"."].concat();
    assert!(Pickle::read(&nested(PICKLE_DEPTH_MAX)).is_ok());
    assert_eq!(refused(&nested(PICKLE_DEPTH_MAX + 1)).0, ErrorKind::LimitExceeded);
    assert_eq!(refused(&nested(100_000)).0, ErrorKind::LimitExceeded);
}

#[test]
fn a_list_inside_itself_is_refused() {
    assert_eq!(refused(b"]q\x00h\x00a.").0, ErrorKind::Corrupt);
    assert_eq!(refused(b"]q\x00]q\x01h\x00ah\x01a.").0, ErrorKind::Corrupt);
}

#[test]
fn shared_values_count_each_time() {
    // Each list has the one before it ten times: 10^7 values in 400 bytes.
    let tenfold = |times: usize| {
        let mut bytes = b"]q\x00".to_vec();
        for at in 1..=times {
            bytes.extend(b"](");
            (0..10).for_each(|_| bytes.extend([b'h', (at - 1) as u8]));
            bytes.extend([b'e', b'q', at as u8]);
        }
        bytes.push(b'.');
        bytes
    };
    assert!(Pickle::read(&tenfold(6)).is_ok());
    assert_eq!(refused(&tenfold(7)).0, ErrorKind::LimitExceeded);
}

#[test]
fn the_number_of_values_ends_at_the_limit() {
    let count = |count: usize| [&b"N0".repeat(count - 1)[..], b"N."].concat();
    assert!(Pickle::read(&count(PICKLE_VALUES_MAX)).is_ok());
    assert_eq!(refused(&count(PICKLE_VALUES_MAX + 1)).0, ErrorKind::LimitExceeded);
    // Copies of one position on the stack are counted too.
    let copies = [&b"N"[..], &b"2".repeat(PICKLE_VALUES_MAX), b"."].concat();
    assert_eq!(refused(&copies).0, ErrorKind::LimitExceeded);
}

#[test]
fn lengths_beyond_the_input_are_refused_before_memory_is_taken() {
    for bytes in [
        &b"\x80\x04\x8d\x00\x00\x00\x00\x01\x00\x00\x00abc."[..],
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        b"B\xff\xff\xff\xff.",
        b"X\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\x7f.",
    ] {
        assert_eq!(refused(bytes).0, ErrorKind::Corrupt);
    }
}

#[test]
fn integers_of_more_than_64_bits_are_refused() {
    let long = |bytes: &[u8]| [&[0x8a, bytes.len() as u8][..], bytes, b"."].concat();
    let read = |bytes: &[u8]| Pickle::read(bytes).map(|pickle| pickle.root().as_int());
    assert_eq!(read(&long(&[])).unwrap(), Some(0));
    assert_eq!(read(&long(&[0xff])).unwrap(), Some(-1));
    assert_eq!(read(&long(&[0xff; 12])).unwrap(), Some(-1));
    assert_eq!(read(&long(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0])).unwrap(), Some(i64::MAX));
    assert_eq!(
        refused(&long(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0])).0,
        ErrorKind::Incompatible
    );
    assert_eq!(refused(b"L99999999999999999999L\n.").0, ErrorKind::Incompatible);
}

#[test]
fn arrays_have_as_many_bytes_as_their_shape() {
    let read = |dtype, shape: &[usize], bytes: &[u8]| {
        let bytes = write(&Plain::Array(dtype, shape.to_vec(), bytes.to_vec()), 4);
        Pickle::read(&bytes)?.root().to_tensor()
    };
    let error = read("<f4", &[2, 3], &[0; 23]).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("24 bytes: got 23"), "{error}");
    let error = read("<f8", &[1_000_000_000_000, 1 << 40], &[0; 8]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::LimitExceeded), "{error}");
    assert_eq!(read("|b1", &[1], &[2]).unwrap_err().kind(), ErrorKind::Corrupt);
    for dtype in ["<c8", "<u8", "<U3", "|V4", "<M8"] {
        assert_eq!(read(dtype, &[1], &[0; 8]).unwrap_err().kind(), ErrorKind::Incompatible, "{dtype}");
    }
    assert_eq!(read("<f4", &[1; 65], &[0; 4]).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn arrays_of_another_order_become_row_major_and_little_endian() {
    let big = write(&Plain::Array(">i2", vec![2], vec![1, 2, 3, 4]), 2);
    let tensor = Pickle::read(&big).unwrap().root().to_tensor().unwrap().unwrap();
    assert_eq!((tensor.dtype(), tensor.to_vec::<i16>().unwrap()), (Dtype::I16, vec![0x0102, 0x0304]));
    // The same array with the columns of [[1, 3], [2, 4]] one behind the other.
    let mut fortran = write(&Plain::Array("|u1", vec![2, 2], vec![1, 2, 3, 4]), 5);
    let order = fortran.len() - 4;
    assert_eq!(fortran[order], b'C');
    fortran[order] = b'F';
    let tensor = Pickle::read(&fortran).unwrap().root().to_tensor().unwrap().unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [1, 3, 2, 4]);
}

#[test]
fn a_text_that_is_encoded_many_times_is_copied_once() {
    // 1 MB of text, encoded 100,000 times, would be 100 GB.
    let mut bytes = b"(".to_vec();
    bytes.extend(write(&Plain::Text("a".repeat(1 << 20)), 2)[2..].strip_suffix(b".").unwrap());
    bytes.extend(b"q\x00c_codecs\nencode\nq\x01X\x06\x00\x00\x00latin1q\x02");
    (0..100_000).for_each(|_| bytes.extend(b"h\x01h\x00h\x02\x86R"));
    bytes.extend(b"l.");
    assert_eq!(Pickle::read(&bytes).unwrap().root().items().unwrap().len(), 100_003);
}

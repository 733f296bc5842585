//! Arrays of `.npy` and `.npz` against a writer, with bytes changed, and with headers of false lengths.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use fulmar_core::{Dtype, ErrorKind};
use fulmar_dataset::{Npz, read_npy, read_npy_gz, read_npz};
use fulmar_tensor::Tensor;
use proptest::prelude::*;

/// An array with any header.
pub fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}

fn header(descr: &str, fortran: bool, shape: &[usize]) -> String {
    let order = if fortran { "True" } else { "False" };
    let lens: String = shape.iter().map(|len| format!("{len}, ")).collect();
    format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({lens}), }}\n")
}

/// An archive of members, each stored or deflated, as the format has it.
pub fn zip(members: &[(&str, Vec<u8>, bool)]) -> Vec<u8> {
    let (mut bytes, mut list) = (Vec::new(), Vec::new());
    for (name, content, deflated) in members {
        let packed = if *deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        } else {
            content.clone()
        };
        let mut about = vec![20, 0, 0, 0];
        about.extend(if *deflated { [8, 0] } else { [0, 0] });
        about.extend([0; 4]);
        about.extend(crc32fast::hash(content).to_le_bytes());
        about.extend(u32::try_from(packed.len()).unwrap().to_le_bytes());
        about.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        about.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        about.extend([0, 0]);
        let offset = u32::try_from(bytes.len()).unwrap();
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&about);
        bytes.extend(name.as_bytes());
        bytes.extend(packed);
        list.extend(b"PK\x01\x02\x14\x00");
        list.extend(&about);
        list.extend([0; 10]);
        list.extend(offset.to_le_bytes());
        list.extend(name.as_bytes());
    }
    let (count, start) = (u16::try_from(members.len()).unwrap(), u32::try_from(bytes.len()).unwrap());
    bytes.extend(&list);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(u32::try_from(list.len()).unwrap().to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn headers_of_false_lengths_are_refused_before_memory_is_taken() {
    let refuse = |header: &str, kind: ErrorKind, part: &str| {
        let error = read_npy(&npy(header, &[])[..]).unwrap_err();
        assert!(error.kind() == kind && error.detail().contains(part), "{header}: {error}");
    };
    refuse(&header("<f8", false, &[1_000_000_000_000]), ErrorKind::LimitExceeded, "8000000000000");
    refuse(&header("<f8", false, &[usize::MAX, usize::MAX]), ErrorKind::LimitExceeded, "shape");
    refuse(&header("<f8", false, &[1 << 32]), ErrorKind::Corrupt, "34359738368 bytes: got 0");
    refuse(&header("|O", false, &[1]), ErrorKind::Incompatible, "|O");
    refuse(&header("<c8", false, &[1]), ErrorKind::Incompatible, "<c8");
    refuse(&header("<U3", false, &[1]), ErrorKind::Incompatible, "<U3");
    refuse(&header("!f4", false, &[1]), ErrorKind::Corrupt, "byte order");
    refuse(
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        ErrorKind::Incompatible,
        "numbers",
    );
    refuse("{'descr': '<f4', 'shape': (1,)}", ErrorKind::Corrupt, "fortran_order");
    refuse("{'descr': '<f4', 'fortran_order': 3, 'shape': (1,)}", ErrorKind::Corrupt, "True or False");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", ErrorKind::Corrupt, "\"-1\"");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': 3}", ErrorKind::Corrupt, "brackets");
    let endless = b"\x93NUMPY\x02\x00\xff\xff\xff\xff";
    assert_eq!(read_npy(&endless[..]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(read_npy(&b"\x93NUMPY\x09\x00"[..]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_bomb_stops_at_what_the_header_states() {
    let mut bytes = npy(&header("|u1", false, &[4]), &[1; 4]);
    bytes.extend(vec![0; 1 << 26]);
    let error = read_npy_gz(&gzip(&bytes)[..]).unwrap_err();
    assert_eq!(error.detail(), "an array must have 4 bytes: got 5 or more");
    let error = read_npz(&zip(&[("a.npy", bytes, true)])).unwrap_err();
    assert!(error.detail().contains("4 bytes: got 5 or more"), "{error}");
}

#[test]
fn archives_keep_names_inside_and_once() {
    let array = npy(&header("|u1", false, &[1]), &[1]);
    let refuse = |names: &[&str], kind: ErrorKind| {
        let members: Vec<_> = names.iter().map(|name| (*name, array.clone(), false)).collect();
        let error = read_npz(&zip(&members)).unwrap_err();
        assert!(error.kind() == kind && error.detail().contains(names[names.len() - 1]), "{error}");
    };
    refuse(&["../a.npy"], ErrorKind::Forbidden);
    refuse(&["a/../../b.npy"], ErrorKind::Forbidden);
    refuse(&["/a.npy"], ErrorKind::Forbidden);
    refuse(&["c:a.npy"], ErrorKind::Forbidden);
    refuse(&["a.npy", "a.npy"], ErrorKind::Corrupt);
    refuse(&["a.txt"], ErrorKind::Malformed);
    let bytes = zip(&[("a.npy", array, false)]);
    let mut npz = Npz::from_bytes(&bytes).unwrap();
    assert_eq!(npz.names(), ["a"]);
    assert_eq!(npz.read("b").unwrap_err().kind(), ErrorKind::UnknownName);
    assert_eq!(Npz::from_bytes(b"PK").map(|_| ()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn wrong_checksums_are_refused() {
    let array = npy(&header("|u1", false, &[8]), &[7; 8]);
    let mut bytes = zip(&[("a.npy", array.clone(), false)]);
    let at = bytes.windows(8).position(|window| window == [7; 8]).unwrap();
    bytes[at] = 8;
    assert!(read_npz(&bytes).unwrap_err().detail().contains("\"a\": a member must have the checksum"));
    let mut bytes = gzip(&array);
    let at = bytes.len() - 8;
    bytes[at] ^= 1;
    assert_eq!(read_npy_gz(&bytes[..]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_list_that_differs_from_the_members_is_refused() {
    let array = npy(&header("|u1", false, &[8]), &[7; 8]);
    for deflated in [false, true] {
        let whole = zip(&[("a.npy", array.clone(), deflated), ("b.npy", array.clone(), deflated)]);
        let central = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        // Of the first member ahead of its bytes, and in the list: the method, the checksum, both sizes, a letter of the name.
        for at in [8, 14, 18, 22, 30, central + 10, central + 16, central + 20, central + 24, central + 46] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let error = read_npz(&bytes).unwrap_err();
            assert!(
                [ErrorKind::Corrupt, ErrorKind::Incompatible].contains(&error.kind()),
                "byte {at}: {error}"
            );
        }
        // Sizes that agree, and are not those of the array.
        let mut bytes = whole.clone();
        bytes[22] += 1;
        bytes[central + 24] += 1;
        assert_eq!(read_npz(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(read_npz(&whole).is_ok());
    }
    // A list that names the first member a second time, at the place of the second.
    let mut bytes = zip(&[("a.npy", array.clone(), false), ("b.npy", array, false)]);
    let lists: Vec<usize> =
        (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect();
    let first: Vec<u8> = bytes[lists[0] + 42..lists[0] + 46].to_vec();
    bytes[lists[1] + 42..lists[1] + 46].copy_from_slice(&first);
    let error = read_npz(&bytes).unwrap_err();
    assert!(error.to_string().contains("must be as it is listed"), "{error}");
}

/// A dtype with its text, and the bytes of an element of it made from a number.
const KINDS: [(&str, usize, Dtype); 10] = [
    ("u1", 1, Dtype::U8),
    ("u4", 4, Dtype::U32),
    ("i1", 1, Dtype::I8),
    ("i2", 2, Dtype::I16),
    ("i4", 4, Dtype::I32),
    ("i8", 8, Dtype::I64),
    ("f2", 2, Dtype::F16),
    ("f4", 4, Dtype::F32),
    ("f8", 8, Dtype::F64),
    ("b1", 1, Dtype::Bool),
];

proptest! {
    #[test]
    fn what_a_writer_writes_is_read(
        which in 0_usize..10, shape in proptest::collection::vec(0_usize..4, 0..4), seed in any::<[u8; 8]>(),
        (big, fortran, deflated) in any::<(bool, bool, bool)>(),
    ) {
        let (kind, width, dtype) = KINDS[which];
        let len: usize = shape.iter().product();
        // Small numbers, so that no float is a NaN and bools are 0 and 1.
        let element = |at: usize| (0..width).map(|byte| (seed[(at + byte) % 8]) & 1).collect::<Vec<u8>>();
        let little: Vec<u8> = (0..len).flat_map(element).collect();
        // The place in memory of each element in C order, the slow way.
        let place = |at: usize| {
            if !fortran { return at }
            let (mut rest, mut index) = (at, vec![0; shape.len()]);
            for dim in (0..shape.len()).rev() { index[dim] = rest % shape[dim]; rest /= shape[dim]; }
            index.iter().zip(&shape).rev().fold(0, |at, (index, len)| at * len + index)
        };
        let mut stored = vec![0; little.len()];
        for at in 0..len {
            let mut bytes = little[at * width..(at + 1) * width].to_vec();
            if big { bytes.reverse() }
            stored[place(at) * width..][..width].copy_from_slice(&bytes);
        }
        let order = if big { '>' } else { '<' };
        let bytes = npy(&header(&format!("{order}{kind}"), fortran, &shape), &stored);
        let want = Tensor::from_bytes(dtype, &shape, &little).unwrap();
        prop_assert_eq!(&read_npy(&bytes[..]).unwrap(), &want);
        prop_assert_eq!(&read_npy_gz(&gzip(&bytes)[..]).unwrap(), &want);
        let dict = read_npz(&zip(&[("x.npy", bytes.clone(), deflated), ("y.npy", bytes, !deflated)])).unwrap();
        prop_assert_eq!(dict.tensor("x").unwrap(), &want);
        prop_assert_eq!(dict.tensor("y").unwrap(), &want);
    }

    #[test]
    fn changed_bytes_are_refused_or_read(
        changes in proptest::collection::vec((0.0..1.0_f64, any::<u8>()), 1..6), end in 0.0..1.5_f64, deflated in any::<bool>(),
    ) {
        let array = npy(&header("<i4", false, &[3, 2]), &[1; 24]);
        for mut bytes in [array.clone(), gzip(&array), zip(&[("a.npy", array, deflated)])] {
            for (at, value) in &changes {
                let len = bytes.len() as f64;
                bytes[(at * len) as usize] = *value;
            }
            bytes.truncate((end * bytes.len() as f64) as usize);
            let _ = read_npy(&bytes[..]);
            let _ = read_npy_gz(&bytes[..]);
            let _ = read_npz(&bytes);
        }
    }
}

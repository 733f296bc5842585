//! Archives of Gen-DGRL: those of torchrl's rows, those of a writer of the test's own, damaged ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod golden_rows;
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;
mod pickle_writer;
mod tar_writer;

use std::fs::{self, File};
use std::path::PathBuf;

use fulmar_core::ErrorKind;
use fulmar_core::limits::{MEMBER_BYTES_MAX, XZ_MEMORY_KIB_MAX};
use fulmar_dataset::{GenDgrlOptions, convert_gen_dgrl, read_gen_dgrl};
use fulmar_tensor::{TensorDict, memmap};
use proptest::prelude::*;
use serde_json::Value;

use self::golden_rows::{assert_rows, golden, rows_of};
use self::pickle_writer::{Plain, write_object_file};
use self::tar_writer::{tar, tar_of_kind, xz};

fn read(path: &str, num_rows_max: usize) -> fulmar_dataset::Result<TensorDict> {
    read_gen_dgrl(File::open(golden(path)).unwrap(), num_rows_max)
}

fn nominal(row: &Value) -> usize {
    row["options"]["nominal_length"].as_u64().unwrap() as usize
}

/// A folder that is not there.
fn new_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-gen-dgrl-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

#[test]
fn archives_become_the_rows_of_torchrl() {
    let rows = rows_of("datasets.jsonl", "GenDGRL");
    let loading: Vec<_> = rows.iter().filter(|row| row["ok"].is_object()).collect();
    assert_eq!(loading.len(), 4);
    for row in &loading {
        // torchrl leaves zeros behind the last step of an archive that is shorter than its nominal length.
        let is_padded = nominal(row) == 36;
        let want = if is_padded { loading[0] } else { row };
        let steps = read(row["source"].as_str().unwrap(), nominal(row)).unwrap();
        assert_rows(&steps, &want["ok"]["all"], row["id"].as_str().unwrap());
        let folder = new_folder(row["id"].as_str().unwrap());
        let options = GenDgrlOptions { num_rows_max: nominal(row), ..GenDgrlOptions::default() };
        let source = golden(row["source"].as_str().unwrap());
        assert_eq!(convert_gen_dgrl(source, &folder, options).unwrap(), steps.batch_size()[0]);
        assert_eq!(memmap::load(&folder).unwrap(), steps);
        for file in want["ok"]["files"].as_array().unwrap() {
            let (name, len) = (file[0].as_str().unwrap(), file[1].as_u64().unwrap());
            let found = fs::metadata(folder.join(name)).unwrap().len();
            assert!(name.ends_with(".json") || found == len, "{name} has {found} bytes, not {len}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn trajectories_are_split_side_by_side() {
    let source =
        "raw/web/dl.fbaipublicfiles.com/DGRL/Procgen/Datasets/Compressed/100k/level_1/expert/bigfish.tar.xz";
    let folder = new_folder("split");
    let options = GenDgrlOptions { split_trajs: true, ..GenDgrlOptions::default() };
    convert_gen_dgrl(golden(source), &folder, options).unwrap();
    let split = memmap::load(&folder).unwrap();
    assert_eq!(split.batch_size(), [4, 12]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn broken_archives_are_typed_errors() {
    let rows = rows_of("broken.jsonl", "GenDGRL");
    assert_eq!(rows.len(), 17);
    for row in &rows {
        let (path, must) = (row["files"][0].as_str().unwrap(), row["must"].as_str().unwrap());
        let folder = new_folder("broken");
        let converted = convert_gen_dgrl(golden(path), &folder, GenDgrlOptions::default());
        match (must, converted) {
            ("loads", Ok(num_rows)) => assert_loads(&memmap::load(&folder).unwrap(), num_rows, row),
            ("passed over or refused, never followed", Ok(_)) => {}
            (_, Ok(_)) => panic!("{path}: must be {must}"),
            ("loads", Err(error)) => panic!("{path}: {error}"),
            (_, Err(error)) => {
                let text = error.to_string();
                assert!(text.contains(path), "{text}");
                assert!(!folder.exists(), "{path} left a folder");
                assert!(!must.contains("member") || text.contains("member \"b/"), "{text}");
                assert!(
                    !must.contains("and key")
                        || text.contains("\"dones\"")
                        || text.contains("\"observations\""),
                    "{text}"
                );
                let kind = match row["case"].as_str().unwrap() {
                    "no dones" => ErrorKind::UnknownName,
                    "observations not one longer" => ErrorKind::ShapeMismatch,
                    "a plain array" => ErrorKind::Incompatible,
                    "a pickle that calls os.getenv" | "a member named ../evil.npy" => ErrorKind::Forbidden,
                    "no member" => ErrorKind::Empty,
                    _ => ErrorKind::Corrupt,
                };
                assert_eq!(error.kind(), kind, "{text}");
            }
        }
        let _ = fs::remove_dir_all(folder);
    }
    let evil = read("broken/gen_dgrl/evil.tar.xz", 9).unwrap_err().to_string();
    assert!(evil.contains("\"os.getenv\""), "{evil}");
}

/// torchrl allocated six rows and left zeros behind those that are there.
fn assert_loads(steps: &TensorDict, num_rows: usize, row: &Value) {
    let actions = steps.tensor("action").unwrap().to_vec::<i64>().unwrap();
    let want: Vec<i64> = serde_json::from_value(row["ok"]["k"]["action"]["d"].clone()).unwrap();
    assert_eq!(actions, want[..num_rows]);
    let observation = steps.tensor(["next", "observation"]).unwrap().to_vec::<u8>().unwrap();
    let want: Vec<u8> =
        serde_json::from_value(row["ok"]["k"]["next"]["k"]["observation"]["d"].clone()).unwrap();
    assert_eq!(observation, want[..observation.len()]);
    assert!(want[observation.len()..].iter().all(|value| *value == 0));
}

/// Episodes of one number a step.
#[derive(Debug, Clone)]
struct Episode {
    observations: Vec<u8>,
    actions: Vec<i32>,
    dones: Vec<bool>,
}

fn episode() -> impl Strategy<Value = Episode> {
    (0_usize..6).prop_flat_map(|len| {
        let observations = proptest::collection::vec(any::<u8>(), len + 1);
        let actions = proptest::collection::vec(any::<i32>(), len);
        (observations, actions, proptest::collection::vec(any::<bool>(), len))
            .prop_map(|(observations, actions, dones)| Episode { observations, actions, dones })
    })
}

fn member(episode: &Episode, protocol: u8) -> Vec<u8> {
    let len = episode.actions.len();
    let rewards: Vec<f32> = episode.actions.iter().map(|action| *action as f32).collect();
    let array = |dtype, shape: &[usize], bytes| Plain::Array(dtype, shape.to_vec(), bytes);
    let value = Plain::dict([
        ("observations", array("|u1", &[len + 1, 1, 1], episode.observations.clone())),
        (
            "actions",
            array("<i4", &[len], episode.actions.iter().flat_map(|value| value.to_le_bytes()).collect()),
        ),
        ("rewards", array(">f4", &[len], rewards.iter().flat_map(|value| value.to_be_bytes()).collect())),
        ("dones", array("|b1", &[len], episode.dones.iter().map(|done| u8::from(*done)).collect())),
    ]);
    write_object_file(&value, protocol)
}

proptest! {
    #[test]
    fn an_archive_becomes_the_same_rows_one_by_one(
        episodes in proptest::collection::vec(episode(), 1..6),
        protocol in 0_u8..6,
        num_rows_max in 1_usize..30,
    ) {
        let members: Vec<_> = (0..).zip(&episodes).map(|(at, one)| (format!("x/{at}.npy"), member(one, protocol))).collect();
        let mut want = Vec::new();
        for one in &episodes {
            for (at, (action, done)) in one.actions.iter().zip(&one.dones).enumerate() {
                want.push((one.observations[at], one.observations[at + 1], *action, *action as f32, *done));
            }
        }
        want.truncate(num_rows_max);
        let read = read_gen_dgrl(&xz(&tar(&members))[..], num_rows_max);
        if want.is_empty() {
            prop_assert_eq!(read.unwrap_err().kind(), ErrorKind::Empty);
            return Ok(());
        }
        let steps = read.unwrap();
        let column = |key: fulmar_tensor::Key| steps.tensor(key).unwrap().clone();
        let (now, next) = (column("observation".into()).to_vec::<u8>().unwrap(), column(["next", "observation"].into()).to_vec::<u8>().unwrap());
        let actions = column("action".into()).to_vec::<i32>().unwrap();
        let rewards = column(["next", "reward"].into()).to_vec::<f32>().unwrap();
        let done = column(["next", "done"].into()).to_vec::<bool>().unwrap();
        prop_assert_eq!(steps.batch_size(), [want.len()]);
        for (row, want) in want.into_iter().enumerate() {
            prop_assert_eq!((now[row], next[row], actions[row], rewards[row], done[row]), want);
        }
    }

    #[test]
    fn a_damaged_archive_is_refused_or_read(changes in proptest::collection::vec((0.0..1.0_f64, any::<u8>()), 0..6), end in 0.3..1.3_f64) {
        let mut bytes = fs::read(golden("broken/gen_dgrl/good.tar.xz")).unwrap();
        let len = bytes.len() as f64;
        changes.iter().for_each(|(at, byte)| bytes[(at * len) as usize] = *byte);
        bytes.truncate((end * len) as usize);
        if let Ok(steps) = read_gen_dgrl(&bytes[..], 100) {
            prop_assert!(steps.batch_size()[0] > 0);
        }
    }

    #[test]
    fn a_damaged_tar_is_refused_or_read(changes in proptest::collection::vec((0.0..0.2_f64, any::<u8>()), 0..6)) {
        let one = Episode { observations: vec![1, 2], actions: vec![3], dones: vec![true] };
        let mut bytes = tar(&[("0.npy".to_owned(), member(&one, 4)), ("1.npy".to_owned(), member(&one, 5))]);
        let len = bytes.len() as f64;
        changes.iter().for_each(|(at, byte)| bytes[(at * len) as usize] = *byte);
        if let Ok(steps) = read_gen_dgrl(&xz(&bytes)[..], 100) {
            prop_assert!(steps.batch_size()[0] > 0);
        }
    }
}

fn refused(archive: &[u8]) -> (ErrorKind, String) {
    let error = read_gen_dgrl(archive, 100).unwrap_err();
    (error.kind(), error.to_string())
}

fn good_member() -> Vec<u8> {
    member(&Episode { observations: vec![1, 2], actions: vec![3], dones: vec![true] }, 4)
}

#[test]
fn names_that_lead_out_of_the_archive_are_refused() {
    for name in ["../x.npy", "/x.npy", "a/../../x.npy", "..", "a\\..\\x.npy"] {
        let bytes = xz(&tar_of_kind(name, b'0', &good_member()));
        assert_eq!(refused(&bytes).0, ErrorKind::Forbidden, "{name}");
    }
    assert!(read_gen_dgrl(&xz(&tar_of_kind("a/..x.npy", b'0', &good_member()))[..], 9).is_ok());
}

#[test]
fn links_folders_and_devices_are_passed_over() {
    for kind in *b"123456Lxg" {
        let bytes = xz(&tar_of_kind("a.npy", kind, &good_member()));
        assert_eq!(refused(&bytes).0, ErrorKind::Empty, "{}", char::from(kind));
    }
}

#[test]
fn a_member_beyond_the_limit_is_refused_before_it_is_read() {
    let mut bytes = tar_of_kind("a.npy", b'0', &good_member());
    tar_writer::set_size(&mut bytes, MEMBER_BYTES_MAX + 1);
    assert_eq!(refused(&xz(&bytes)).0, ErrorKind::LimitExceeded);
    tar_writer::set_size(&mut bytes, MEMBER_BYTES_MAX);
    let (kind, text) = refused(&xz(&bytes));
    assert!(kind == ErrorKind::Corrupt && text.contains("1073741824 bytes"), "{text}");
}

#[test]
fn rows_that_are_not_like_the_first_are_refused() {
    let wide = Plain::dict([
        ("observations", Plain::Array("|u1", vec![2, 2, 1], vec![0; 4])),
        ("actions", Plain::Array("<i4", vec![1], vec![0; 4])),
        ("rewards", Plain::Array("<f4", vec![1], vec![0; 4])),
        ("dones", Plain::Array("|b1", vec![1], vec![0])),
    ]);
    let members = [("0.npy".to_owned(), good_member()), ("1.npy".to_owned(), write_object_file(&wide, 4))];
    let bytes = xz(&tar(&members));
    let (kind, text) = refused(&bytes);
    assert!(
        kind == ErrorKind::ShapeMismatch && text.contains("1.npy") && text.contains("observation"),
        "{text}"
    );
    let (source, folder) = (new_folder("source"), new_folder("unlike"));
    fs::write(&source, bytes).unwrap();
    let error = convert_gen_dgrl(&source, &folder, GenDgrlOptions::default()).unwrap_err();
    assert_eq!((error.kind(), folder.exists()), (ErrorKind::ShapeMismatch, false));
    fs::create_dir(&folder).unwrap();
    assert_eq!(
        convert_gen_dgrl(&source, &folder, GenDgrlOptions::default()).unwrap_err().kind(),
        ErrorKind::Io
    );
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(source).unwrap();
}

#[test]
fn an_archive_that_asks_for_too_much_memory_is_refused() {
    // The byte of the dictionary in the header of the block, and its checksum.
    let good = xz(&tar(&[("0.npy".to_owned(), good_member())]));
    let with_dictionary = |size: u8| {
        let mut bytes = good.clone();
        assert_eq!(bytes[14..16], [0x21, 1]);
        bytes[16] = size;
        let checksum = tar_writer::crc32(&bytes[12..20]);
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    };
    assert!((64 << 10..128 << 10).contains(&XZ_MEMORY_KIB_MAX));
    assert!(read_gen_dgrl(&with_dictionary(28)[..], 9).is_ok(), "64 MiB");
    assert_eq!(refused(&with_dictionary(30)).0, ErrorKind::LimitExceeded, "128 MiB");
    assert_eq!(refused(&with_dictionary(40)).0, ErrorKind::LimitExceeded, "4 GiB");
}

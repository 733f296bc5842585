//! Rows of folders of which long columns stay in their files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::PathBuf;

use fulmar_core::ErrorKind;
use fulmar_dataset::FolderStorage;
use fulmar_replay::{Storage as _, check_storage_reads};
use fulmar_tensor::{NonTensor, Tensor, TensorDict, memmap};
use proptest::prelude::*;
use serde_json::Value;

/// A folder that is not there.
fn new_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-folder-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

/// Rows with columns of several lengths, nested and of names that are escaped, and with texts.
fn steps(num_rows: usize, width: usize) -> TensorDict {
    let mut dict = TensorDict::new(&[num_rows]).unwrap();
    let numbers = |count: usize| (0..count).map(|at| at as f32).collect::<Vec<_>>();
    let image = (0..num_rows * width * 2).map(|at| at as u8).collect::<Vec<_>>();
    dict.set("pixels", Tensor::from_vec(&[num_rows, 2, width], image.clone()).unwrap()).unwrap();
    dict.set(["next", "a/b %"], Tensor::from_vec(&[num_rows, 2, width], image).unwrap()).unwrap();
    dict.set(["next", "reward"], Tensor::from_vec(&[num_rows], numbers(num_rows)).unwrap()).unwrap();
    let flags = (0..num_rows).map(|row| row % 3 == 0).collect::<Vec<_>>();
    dict.set("done", Tensor::from_vec(&[num_rows, 1], flags).unwrap()).unwrap();
    let texts = (0..num_rows).map(|row| Value::from(format!("{row}"))).collect();
    dict.set("text", NonTensor::each(&[num_rows], texts).unwrap()).unwrap();
    dict
}

#[test]
fn a_folder_is_read_as_a_storage_must_be() {
    let (folder, want) = (new_folder("suite"), steps(5, 3));
    memmap::save(&folder, &want).unwrap();
    for column_bytes_max in [0, 5, 20, u64::MAX] {
        let mut storage = FolderStorage::open(&folder, column_bytes_max).unwrap();
        check_storage_reads(&mut storage, &want).unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_those_of_the_whole_in_memory(
        num_rows in 1_usize..20,
        width in 1_usize..5,
        column_bytes_max in 0_u64..200,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let (folder, want) = (new_folder("any"), steps(num_rows, width));
        memmap::save(&folder, &want).unwrap();
        let rows: Vec<_> = picks.iter().map(|pick| pick.index(num_rows)).collect();
        let storage = FolderStorage::open(&folder, column_bytes_max).unwrap();
        prop_assert_eq!(storage.get(&rows).unwrap(), want.index_select(&rows).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn trajectories_are_rows() {
    let folder = new_folder("trajectories");
    let mut want = TensorDict::new(&[2, 3]).unwrap();
    want.set("pixels", Tensor::from_vec(&[2, 3, 2], (0..12_u8).collect()).unwrap()).unwrap();
    want.set("mask", Tensor::from_vec(&[2, 3], vec![true; 6]).unwrap()).unwrap();
    memmap::save(&folder, &want).unwrap();
    let storage = FolderStorage::open(&folder, 8).unwrap();
    assert_eq!(storage.get(&[1, 0, 1]).unwrap(), want.index_select(&[1, 0, 1]).unwrap());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_that_are_not_as_described_are_refused_by_name() {
    let folder = new_folder("damaged");
    memmap::save(&folder, &steps(4, 2)).unwrap();
    let pixels = folder.join("pixels.memmap");
    let kind = || {
        let error = FolderStorage::open(&folder, 4).unwrap_err();
        assert!(error.to_string().contains("pixels"), "{error}");
        error.kind()
    };
    fs::write(&pixels, [0; 15]).unwrap();
    assert_eq!(kind(), ErrorKind::Corrupt);
    fs::remove_file(&pixels).unwrap();
    assert_eq!(kind(), ErrorKind::Io);
    fs::write(&pixels, [0; 16]).unwrap();
    let storage = FolderStorage::open(&folder, 4).unwrap();
    fs::OpenOptions::new().write(true).open(&pixels).unwrap().set_len(4).unwrap();
    let error = storage.get(&[3]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("pixels.memmap"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}

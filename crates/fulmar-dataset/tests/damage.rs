//! Files with bytes changed and cut off: an error or rows, never a panic.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use fulmar_dataset::{
    D4rlOptions, MinariMetadata, read_arff, read_d4rl, read_minari, read_npz, read_roboset,
};
use fulmar_ted::Hdf5File;
use proptest::prelude::*;

fn golden(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/dataset").join(path)).unwrap()
}

/// Returns `bytes` with each byte at a share of their length changed, without those behind `end`.
fn damaged(mut bytes: Vec<u8>, changes: &[(f64, u8)], end: f64) -> Vec<u8> {
    let len = bytes.len() as f64;
    for (at, value) in changes {
        bytes[(at * len) as usize] = *value;
    }
    bytes.truncate((end * len).ceil() as usize);
    bytes
}

fn changes() -> impl Strategy<Value = (Vec<(f64, u8)>, f64)> {
    let end = prop_oneof![4 => Just(1.0), 1 => 0.0..1.0];
    (proptest::collection::vec((0.0..1.0_f64, any::<u8>()), 0..8), end)
}

proptest! {
    #[test]
    fn a_damaged_d4rl_file_is_refused_or_read((changes, end) in changes(), which in 0_usize..3) {
        let file = ["broken/d4rl/good.hdf5", "broken/d4rl/layout_5.hdf5", "broken/d4rl/group.hdf5"][which];
        let bytes = damaged(golden(file), &changes, end);
        if let Ok(read) = Hdf5File::from_bytes(bytes).and_then(|file| read_d4rl(&file, D4rlOptions::default())) {
            prop_assert!(read.steps.batch_size()[0] > 0);
        }
    }

    #[test]
    fn a_damaged_minari_file_is_refused_or_read((changes, end) in changes()) {
        let metadata = golden("broken/minari/good/x-v0/data/metadata.json");
        let metadata = MinariMetadata::parse(std::str::from_utf8(&metadata).unwrap()).unwrap();
        let bytes = damaged(golden("broken/minari/good/x-v0/data/main_data.hdf5"), &changes, end);
        if let Ok(steps) = Hdf5File::from_bytes(bytes).and_then(|file| read_minari(&file, &metadata)) {
            prop_assert_eq!(steps.batch_size(), [93]);
        }
    }

    #[test]
    fn a_damaged_roboset_file_is_refused_or_read((changes, end) in changes()) {
        let bytes = damaged(golden("broken/roboset/good.hdf5"), &changes, end);
        if let Ok(steps) = Hdf5File::from_bytes(bytes).and_then(|file| read_roboset(&[file])) {
            prop_assert!(steps.batch_size()[0] > 0);
        }
    }

    #[test]
    fn a_damaged_archive_of_arrays_is_refused_or_read((changes, end) in changes()) {
        let _ = read_npz(&damaged(golden("broken/vd4rl/good.npz"), &changes, end));
    }

    #[test]
    fn a_damaged_arff_file_is_refused_or_read((changes, end) in changes(), which in 0_usize..3) {
        let file = ["good", "sparse", "escaped"][which];
        let bytes = damaged(golden(&format!("broken/openml/{file}.arff")), &changes, end);
        if let Ok(columns) = read_arff(&bytes[..]) {
            let lens: Vec<_> = columns.iter().map(|column| column.values.len()).collect();
            prop_assert!(lens.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }

    #[test]
    fn damaged_metadata_is_refused_or_read(text in "[\\PC\"\\\\{}:,]{0,60}", at in 0_usize..1000) {
        let good = String::from_utf8(golden("broken/minari/good/x-v0/data/metadata.json")).unwrap();
        let _ = MinariMetadata::parse(&text);
        let mut mixed = good.clone();
        if mixed.is_char_boundary(at) {
            mixed.insert_str(at, &text);
        }
        let _ = MinariMetadata::parse(&mixed);
    }
}

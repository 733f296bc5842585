//! Files of D4RL, RoboSet and V-D4RL, and of Minari with metadata of any numbers.

use fulmar::dataset::{
    D4rlOptions, LengthPolicy, MinariMetadata, count_episodes, read_d4rl, read_minari, read_roboset,
    read_vd4rl, split_trials, write_minari,
};
use fulmar::ted::Hdf5File;

use super::SEPARATOR;

/// Checks that accepted input has rows, and that episodes that are written again are read as the same rows.
///
/// The metadata of Minari are before the separator, if there is one; then the file is one of Minari too.
pub fn run(data: &[u8]) {
    let (metadata, bytes) = parts(data);
    for lengths in [LengthPolicy::Error, LengthPolicy::Shortest] {
        if let Ok(read) = read_vd4rl(bytes, lengths) {
            let is_cut = read.num_cut > 0;
            assert!(!is_cut || lengths == LengthPolicy::Shortest, "a file is cut only where that is allowed");
            assert!(read.split().is_ok(), "steps of V-D4RL can be split");
        }
    }
    let Ok(file) = Hdf5File::from_bytes(bytes.to_vec()) else { return };
    for split_trajs in [false, true] {
        if let Ok(read) = read_d4rl(&file, D4rlOptions { split_trajs, ..D4rlOptions::default() }) {
            assert!(read.steps.batch_size()[0] > 0, "a file of D4RL must have steps");
        }
    }
    let files = [file];
    if let Ok(steps) = read_roboset(&files) {
        assert!(steps.batch_size()[0] > 0, "trials must have steps");
        assert!(split_trials(&steps).is_ok(), "trials can be split");
    }
    let [file] = files;
    let Some(metadata) = metadata.and_then(|text| MinariMetadata::parse(text).ok()) else { return };
    let Ok(steps) = read_minari(&file, &metadata) else { return };
    assert_eq!(steps.batch_size(), [metadata.total_steps], "the steps are those that the metadata state");
    if let (Ok(written), Ok(count)) = (write_minari(&steps), count_episodes(&steps)) {
        assert!(count <= metadata.total_episodes, "episodes without steps alone are lost");
        assert!(Hdf5File::from_bytes(written).is_ok(), "a written file can be opened");
    }
}

/// The text before the separator, and the bytes behind it.
fn parts(data: &[u8]) -> (Option<&str>, &[u8]) {
    let separator = SEPARATOR.as_bytes();
    match data.windows(separator.len()).position(|window| window == separator) {
        Some(at) => (std::str::from_utf8(&data[..at]).ok(), &data[at + separator.len()..]),
        None => (None, data),
    }
}

//! Files of D4RL, and of Minari with metadata of any numbers; archives of Gen-DGRL and Open X-Embodiment, and pickles; tables of OpenML; arrays of NumPy.

use fulmar::dataset::{
    D4rlOptions, MinariMetadata, Pickle, count_episodes, read_arff, read_d4rl, read_gen_dgrl, read_minari,
    read_npy, read_npz, read_openx, write_minari,
};
use fulmar::ted::Hdf5File;

use super::SEPARATOR;

/// Checks that accepted input has rows, and that episodes that are written again are read as the same rows.
///
/// The metadata of Minari are before the separator, if there is one; then the file is one of Minari too.
pub fn run(data: &[u8]) {
    pickled(data);
    if let Ok(columns) = read_arff(data) {
        let lens: Vec<_> = columns.iter().map(|column| column.values.len()).collect();
        assert!(lens.windows(2).all(|pair| pair[0] == pair[1]), "all columns have a value in each row");
    }
    let _ = read_npy(data);
    let _ = read_npz(data);
    let (metadata, bytes) = parts(data);
    let Ok(file) = Hdf5File::from_bytes(bytes.to_vec()) else { return };
    for split_trajs in [false, true] {
        if let Ok(read) = read_d4rl(&file, D4rlOptions { split_trajs, ..D4rlOptions::default() }) {
            assert!(read.steps.batch_size()[0] > 0, "a file of D4RL must have steps");
        }
    }
    let Some(metadata) = metadata.and_then(|text| MinariMetadata::parse(text).ok()) else { return };
    let Ok(steps) = read_minari(&file, &metadata) else { return };
    assert_eq!(steps.batch_size(), [metadata.total_steps], "the steps are those that the metadata state");
    if let (Ok(written), Ok(count)) = (write_minari(&steps), count_episodes(&steps)) {
        assert!(count <= metadata.total_episodes, "episodes without steps alone are lost");
        assert!(Hdf5File::from_bytes(written).is_ok(), "a written file can be opened");
    }
}

/// Most steps of an archive that are read.
const NUM_STEPS_MAX: usize = 1000;

/// Checks that accepted archives have steps, and that an accepted pickle can be walked.
fn pickled(data: &[u8]) {
    if let Ok(pickle) = Pickle::read(data) {
        let _ = (pickle.root().to_tensor(), pickle.root().items().map(Iterator::count));
    }
    if let Ok(steps) = read_gen_dgrl(data, NUM_STEPS_MAX) {
        assert!((1..=NUM_STEPS_MAX).contains(&steps.batch_size()[0]), "an archive must have steps");
    }
    let mut count = 0;
    let read = read_openx(data, 0, |steps| {
        count += 1;
        assert!(steps.batch_size()[0] > 0, "an episode must have steps");
        Ok(())
    });
    assert!(read.is_err() || read == Ok(count), "the episodes are those that were visited");
}

/// The text before the separator, and the bytes behind it.
fn parts(data: &[u8]) -> (Option<&str>, &[u8]) {
    let separator = SEPARATOR.as_bytes();
    match data.windows(separator.len()).position(|window| window == separator) {
        Some(at) => (std::str::from_utf8(&data[..at]).ok(), &data[at + separator.len()..]),
        None => (None, data),
    }
}

//! HDF5 files, and the trajectories that they may hold.

use fulmar::ted::{TedKeys, hdf5_combine, nested_to_ted, read_hdf5, write_hdf5};

/// Checks that accepted input can be written and read again, and is refused or a ring of steps.
pub fn run(data: &[u8]) {
    let Ok(dict) = read_hdf5(data) else { return };
    if let Ok(written) = write_hdf5(&dict) {
        let again = read_hdf5(&written).and_then(|dict| write_hdf5(&dict));
        assert_eq!(again.as_ref(), Ok(&written), "bytes bring it back");
    }
    if let Ok(nested) = hdf5_combine(&dict, &TedKeys::default())
        && let Ok((steps, ring)) = nested_to_ted(&nested, &TedKeys::default())
    {
        assert!(ring.cursor <= steps.batch_size()[0], "a ring must be inside its steps");
    }
}

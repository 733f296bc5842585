//! Arrays of NumPy, in archives or compressed too, and tables of OpenML.

use fulmar::dataset::{read_arff, read_npy, read_npy_gz, read_npz};

/// Checks that the columns of an accepted table have equally many values, and that an array in memory is the one of a stream.
pub fn run(data: &[u8]) {
    if let Ok(columns) = read_arff(data) {
        let lens: Vec<_> = columns.iter().map(|column| column.values.len()).collect();
        assert!(lens.windows(2).all(|pair| pair[0] == pair[1]), "all columns have a value in each row");
    }
    let _ = (read_npy(data), read_npy_gz(data), read_npz(data));
}

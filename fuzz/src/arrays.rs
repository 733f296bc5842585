//! Arrays of NumPy, in archives or compressed too, and tables of OpenML.

use fulmar::dataset::{OpenmlOptions, read_arff, read_npy, read_npy_gz, read_npz, read_openml};

/// Checks that the columns of an accepted table have equally many values, and that an array in memory is the one of a stream.
pub fn run(data: &[u8]) {
    if let Ok(columns) = read_arff(data) {
        let lens: Vec<_> = columns.iter().map(|column| column.values.len()).collect();
        assert!(lens.windows(2).all(|pair| pair[0] == pair[1]), "all columns have a value in each row");
        let target = columns.last().map(|column| column.name.clone()).unwrap_or_default();
        for id in ["magic", "mushroom_onehot"] {
            let options = OpenmlOptions { target: target.clone(), ignored: Vec::new() };
            if let Ok(table) = read_openml(id, columns.clone(), &options) {
                assert_eq!(table.batch_size(), [lens[0]], "a table has the rows of its file");
            }
        }
    }
    let _ = (read_npy(data), read_npy_gz(data), read_npz(data));
}

// The face of `fulmar-dataset`, once for Node and for WebAssembly: each includes this table into its own `dataset.rs`,
// see `bindings/faces/tensor.rs`. Files are passed as bytes with a name for messages, options as JSON.

use fulmar::core::{Result as CoreResult, options_from_json};
use fulmar::dataset::{self, D4rlOptions, MinariMetadata};
use fulmar::ted::Hdf5File;

face! {
    /// The content of a D4RL file.
    ColumnsFile(dataset::D4rl)
    make {
        /// Reads a whole file.
        fn read as read(bytes: &[u8], name: String, options: String) {
            Hdf5File::from_bytes(bytes.to_vec()).map_err(|error| error.at(&name)).and_then(|file| {
                let options = options_from_json::<D4rlOptions>("options", &options)?;
                dataset::read_d4rl(&file.with_name(&name), options)
            })
        }
    }
    call {
        /// Returns the transitions.
        fn steps as steps() -> (TensorDict) { |file| CoreResult::Ok(file.steps.clone()) }
        /// Returns the metadata.
        fn metadata as metadata() -> (TensorDict) { |file| CoreResult::Ok(file.metadata.clone()) }
    }
}

face! {
    /// The content of a Minari data set.
    EpisodesFile(dataset::Minari)
    make {
        /// Reads a `main_data.hdf5` and the text of its `metadata.json`.
        fn read as read(bytes: &[u8], name: String, metadata: String) {
            Hdf5File::from_bytes(bytes.to_vec()).map_err(|error| error.at(&name)).and_then(|file| {
                let metadata = MinariMetadata::parse(&metadata).map_err(|error| error.at("metadata"))?;
                let steps = dataset::read_minari(&file.with_name(&name), &metadata)?;
                Ok(dataset::Minari { steps, metadata })
            })
        }
    }
    call {
        /// Returns the steps.
        fn steps as steps() -> (TensorDict) { |file| CoreResult::Ok(file.steps.clone()) }
        /// Returns the metadata as JSON.
        fn metadata as metadata() -> (String) { |file| CoreResult::Ok(file.metadata.to_json().to_string()) }
    }
}

face! {
    /// The steps of a Minari data set that is written.
    EpisodesWriter(tensor::TensorDict)
    make {
        /// Takes the steps.
        fn of as of(steps: &TensorDict) { steps.share() }
    }
    call {
        /// Returns the bytes of a `main_data.hdf5`.
        fn bytes as bytes() -> (Uint8Array) { |steps| dataset::write_minari(steps) }
        /// Returns the number of episodes.
        fn num_episodes as numEpisodes() -> (f64) {
            |steps| dataset::count_episodes(steps).map(|count| count as f64)
        }
    }
}

face! {
    /// The arrays of an `.npz` archive.
    ArraysFile(tensor::TensorDict)
    make {
        /// Reads a whole archive.
        fn read as read(bytes: &[u8], name: String) {
            dataset::read_npz(bytes).map_err(|error| error.at(&name))
        }
    }
    call {
        /// Returns the arrays by their names.
        fn arrays as arrays() -> (TensorDict) { |arrays| CoreResult::Ok(arrays.clone()) }
    }
}

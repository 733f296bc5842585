// The face of `fulmar-ted`, once for Node and for WebAssembly: each includes this table into its own `ted.rs`, see
// `bindings/faces/tensor.rs`. The position of a ring is passed as JSON, an HDF5 file as bytes.

use fulmar::core::{Result as CoreResult, options_from_json};
use fulmar::ted::{
    self, flat_to_ted, hdf5_combine, hdf5_split, nested_to_ted, read_hdf5, ted_to_flat, ted_to_nested, write_hdf5,
};

face! {
    /// The keys of steps that are not observations, and of the ring's position in a converted dictionary.
    TedKeys(ted::TedKeys)
    make {
        /// Makes one from options.
        fn create as create(options: String) { options_from_json::<ted::TedKeys>("options", &options) }
    }
    call {
        /// Returns the flat form of steps.
        fn flat as flat(steps: &TensorDict, ring: String) -> (TensorDict) {
            steps = steps.share()? => |keys| ted_to_flat(&steps, options_from_json("ring", &ring)?, keys)
        }
        /// Returns the nested form of steps.
        fn nested as nested(steps: &TensorDict, ring: String) -> (TensorDict) {
            steps = steps.share()? => |keys| ted_to_nested(&steps, options_from_json("ring", &ring)?, keys)
        }
        /// Returns the steps of a flat form.
        fn steps_of_flat as stepsOfFlat(flat: &TensorDict) -> (TensorDict) {
            flat = flat.share()? => |keys| Ok(flat_to_ted(&flat, keys)?.0)
        }
        /// Returns the steps of a nested form.
        fn steps_of_nested as stepsOfNested(nested: &TensorDict) -> (TensorDict) {
            nested = nested.share()? => |keys| Ok(nested_to_ted(&nested, keys)?.0)
        }
        /// Returns the nested form with a dictionary for each trajectory.
        fn split as split(nested: &TensorDict) -> (TensorDict) {
            nested = nested.share()? => |keys| hdf5_split(&nested, keys)
        }
        /// Returns the nested form of a dictionary for each trajectory.
        fn combine as combine(split: &TensorDict) -> (TensorDict) {
            split = split.share()? => |keys| hdf5_combine(&split, keys)
        }
    }
}

face! {
    /// The content of an HDF5 file.
    Hdf5File(tensor::TensorDict)
    make {
        /// Reads a whole file.
        fn read as read(bytes: &[u8]) { read_hdf5(bytes) }
        /// Makes a file of a dictionary.
        fn of as of(dict: &TensorDict) { dict.share() }
    }
    call {
        /// Returns the dictionary.
        fn dict as dict() -> (TensorDict) { |dict| CoreResult::Ok(dict.clone()) }
        /// Returns the bytes of the file.
        fn bytes as bytes() -> (Uint8Array) { |dict| write_hdf5(dict) }
    }
}

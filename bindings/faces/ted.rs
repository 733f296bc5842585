// The face of `fulmar-ted`, once for Node and for WebAssembly: each includes this table into its own `ted.rs`, see
// `bindings/faces/tensor.rs`. Where a ring stands crosses as JSON, HDF5 files as bytes.

use fulmar::core::{Result as CoreResult, options_from_json};
use fulmar::ted::{
    self, flat_to_ted, hdf5_combine, hdf5_split, nested_to_ted, read_hdf5, ted_to_flat, ted_to_nested, write_hdf5,
};

face! {
    /// Which entries of steps are no observations, and where a converted dictionary says where its ring stood.
    TedKeys(ted::TedKeys)
    make {
        /// As options say.
        fn create as create(options: String) { options_from_json::<ted::TedKeys>("options", &options) }
    }
    call {
        /// The flat form of steps.
        fn flat as flat(steps: &TensorDict, ring: String) -> (TensorDict) {
            steps = steps.share()? => |keys| ted_to_flat(&steps, options_from_json("ring", &ring)?, keys)
        }
        /// The nested form of steps.
        fn nested as nested(steps: &TensorDict, ring: String) -> (TensorDict) {
            steps = steps.share()? => |keys| ted_to_nested(&steps, options_from_json("ring", &ring)?, keys)
        }
        /// The steps of a flat form.
        fn steps_of_flat as stepsOfFlat(flat: &TensorDict) -> (TensorDict) {
            flat = flat.share()? => |keys| Ok(flat_to_ted(&flat, keys)?.0)
        }
        /// The steps of a nested form.
        fn steps_of_nested as stepsOfNested(nested: &TensorDict) -> (TensorDict) {
            nested = nested.share()? => |keys| Ok(nested_to_ted(&nested, keys)?.0)
        }
        /// The nested form with a dictionary for each trajectory.
        fn split as split(nested: &TensorDict) -> (TensorDict) {
            nested = nested.share()? => |keys| hdf5_split(&nested, keys)
        }
        /// The nested form of a dictionary for each trajectory.
        fn combine as combine(split: &TensorDict) -> (TensorDict) {
            split = split.share()? => |keys| hdf5_combine(&split, keys)
        }
    }
}

face! {
    /// What an HDF5 file holds.
    Hdf5File(tensor::TensorDict)
    make {
        /// Reads a whole file.
        fn read as read(bytes: &[u8]) { read_hdf5(bytes) }
        /// A file of a dictionary.
        fn of as of(dict: &TensorDict) { dict.share() }
    }
    call {
        /// The dictionary.
        fn dict as dict() -> (TensorDict) { |dict| CoreResult::Ok(dict.clone()) }
        /// The bytes of the file.
        fn bytes as bytes() -> (Uint8Array) { |dict| write_hdf5(dict) }
    }
}

// The face of `fulmar-transform`, once for Node and for WebAssembly: each includes this table into its own `transform.rs`,
// see `bindings/faces/tensor.rs`. A transform crosses as the JSON of a list that holds it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar::core::{Result as CoreResult, integer_from_f64, options_from_json};
use fulmar::tensor;
use fulmar::transform::{Compose, SplitOptions, Transform, split_trajectories, split_trajectories_ragged};

face! {
    /// Transforms that run one after another.
    Transforms(Shared)
    make {
        /// Reads the transforms from a JSON array.
        fn create as create(transforms: String) { Compose::from_json(&transforms).map(Shared::new) }
    }
    call {
        /// Appends transforms; they share their state with the appended object.
        fn push as push(other: &Transforms) -> (()) {
            other = other.share()? => |transforms| {
                transforms.lock().push(other);
                CoreResult::Ok(())
            }
        }
        /// Applies the transforms to a batch that is read.
        fn forward as forward(dict: &TensorDict) -> (TensorDict) {
            dict = dict.share()? => |transforms| transforms.forward(dict)
        }
        /// Applies the inverse transforms to rows that are written; returns null if all rows are held back.
        fn inverse as inverse(dict: &TensorDict) -> (Option<TensorDict>) {
            dict = dict.share()? => |transforms| Ok(transforms.inverse(dict)?.map(TensorDict::from))
        }
        /// Returns the rows that were held back.
        fn flush as flush() -> (Option<TensorDict>) {
            |transforms| Ok(transforms.flush()?.map(TensorDict::from))
        }
        /// Clears the state.
        fn clear as clear() -> (()) {
            |transforms| {
                transforms.clear();
                CoreResult::Ok(())
            }
        }
        /// Returns the state.
        fn state as state() -> (TensorDict) { |transforms| transforms.state() }
        /// Restores a state.
        fn load_state as loadState(state: &TensorDict) -> (()) {
            state = state.share()? => |transforms| transforms.load_state(&state)
        }
        /// Sets the version of the policy.
        fn set_policy_version as setPolicyVersion(version: f64) -> (()) {
            |transforms| {
                transforms.set_policy_version(integer_from_f64("version", version)? as i64);
                CoreResult::Ok(())
            }
        }
    }
}

face! {
    /// Splits steps into trajectories.
    TrajectorySplit(SplitOptions)
    make {
        /// Makes one from options.
        fn create as create(options: String) { options_from_json::<SplitOptions>("options", &options) }
    }
    call {
        /// Returns the trajectories padded with zeros.
        fn padded as padded(dict: &TensorDict) -> (TensorDict) {
            dict = dict.share()? => |options| split_trajectories(&dict, options)
        }
        /// Returns the trajectories as rows.
        fn ragged as ragged(dict: &TensorDict) -> (TensorDict) {
            dict = dict.share()? => |options| split_trajectories_ragged(&dict, options)
        }
    }
}

/// Transforms that several objects share.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Compose>>);

impl Shared {
    fn new(transforms: Compose) -> Self {
        Self(Arc::new(Mutex::new(transforms)))
    }

    fn lock(&self) -> MutexGuard<'_, Compose> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transform for Shared {
    fn forward(&mut self, dict: tensor::TensorDict) -> CoreResult<tensor::TensorDict> {
        self.lock().forward(dict)
    }

    fn inverse(&mut self, dict: tensor::TensorDict) -> CoreResult<Option<tensor::TensorDict>> {
        self.lock().inverse(dict)
    }

    fn flush(&mut self) -> CoreResult<Option<tensor::TensorDict>> {
        self.lock().flush()
    }

    fn clear(&mut self) {
        self.lock().clear();
    }

    fn state(&self) -> CoreResult<tensor::TensorDict> {
        self.lock().state()
    }

    fn load_state(&mut self, state: &tensor::TensorDict) -> CoreResult<()> {
        self.lock().load_state(state)
    }

    fn set_policy_version(&mut self, version: i64) {
        self.lock().set_policy_version(version);
    }
}

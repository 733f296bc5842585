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
        /// The transforms that a JSON array describes.
        fn create as create(transforms: String) { Compose::from_json(&transforms).map(Shared::new) }
    }
    call {
        /// Appends others, which stay what they are: both names stand for one state.
        fn push as push(other: &Transforms) -> (()) {
            other = other.share()? => |transforms| {
                transforms.lock().push(other);
                CoreResult::Ok(())
            }
        }
        /// What a reader gets for a batch.
        fn forward as forward(dict: &TensorDict) -> (TensorDict) {
            dict = dict.share()? => |transforms| transforms.forward(dict)
        }
        /// What is stored for rows; nothing if all of them are held back.
        fn inverse as inverse(dict: &TensorDict) -> (Option<TensorDict>) {
            dict = dict.share()? => |transforms| Ok(transforms.inverse(dict)?.map(TensorDict::from))
        }
        /// What was held back.
        fn flush as flush() -> (Option<TensorDict>) {
            |transforms| Ok(transforms.flush()?.map(TensorDict::from))
        }
        /// Forgets what was held back.
        fn clear as clear() -> (()) {
            |transforms| {
                transforms.clear();
                CoreResult::Ok(())
            }
        }
        /// What must be kept to go on.
        fn state as state() -> (TensorDict) { |transforms| transforms.state() }
        /// Goes on where a state was taken.
        fn load_state as loadState(state: &TensorDict) -> (()) {
            state = state.share()? => |transforms| transforms.load_state(&state)
        }
        /// Says which version of the policy is in use.
        fn set_policy_version as setPolicyVersion(version: f64) -> (()) {
            |transforms| {
                transforms.set_policy_version(integer_from_f64("version", version)? as i64);
                CoreResult::Ok(())
            }
        }
    }
}

face! {
    /// How steps are cut into trajectories.
    TrajectorySplit(SplitOptions)
    make {
        /// As options say.
        fn create as create(options: String) { options_from_json::<SplitOptions>("options", &options) }
    }
    call {
        /// The trajectories with zeros behind shorter ones.
        fn padded as padded(dict: &TensorDict) -> (TensorDict) {
            dict = dict.share()? => |options| split_trajectories(&dict, options)
        }
        /// The trajectories as rows.
        fn ragged as ragged(dict: &TensorDict) -> (TensorDict) {
            dict = dict.share()? => |options| split_trajectories_ragged(&dict, options)
        }
    }
}

/// Transforms that several objects stand for.
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

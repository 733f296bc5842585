//! Transforms of tensor dictionaries, which a replay buffer applies when rows are written and when they are
//! read.
//!
//! A [`Transform`] has two directions: [`Transform::inverse`] runs before rows are stored,
//! [`Transform::forward`] on every batch that is read. [`Compose`] runs several of them and is made from
//! JSON. Time is the last batch dimension, in which the steps of one trajectory are adjacent.
//!
//! ```
//! use fulmar_tensor::{Tensor, TensorDict};
//! use fulmar_transform::{Compose, Transform};
//! let mut transforms = Compose::from_json(r#"[
//!     { "type": "RewardScaling", "inKeys": [["reward"]], "loc": 0.0, "scale": 0.5 },
//!     { "type": "RenameTransform", "inKeys": [["reward"]], "outKeys": [["score"]] }
//! ]"#)?;
//! let mut batch = TensorDict::new(&[2])?;
//! batch.set("reward", Tensor::from_vec(&[2], vec![2.0_f32, 4.0])?)?;
//! assert_eq!(transforms.forward(batch)?.tensor("score")?.as_f32()?, [1.0, 2.0]);
//! # Ok::<(), fulmar_core::Error>(())
//! ```

mod action_chunk;
mod burn_in;
mod cat_frames;
mod compose;
mod crop;
mod image;
mod multi_step;
mod multi_step_transform;
mod next_state;
mod number;
mod observation;
mod policy_age;
mod random_crop;
mod rename;
mod resize;
mod reward;
mod reward_to_go;
mod select;
mod split_trajectories;
mod time;
mod transform;

pub use action_chunk::ActionChunkTransform;
pub use burn_in::BurnInTransform;
pub use cat_frames::{CatFrames, FramePadding};
pub use compose::Compose;
pub use crop::CenterCrop;
pub use fulmar_core::Result;
pub use image::{GrayScale, ToTensorImage};
pub use multi_step::MultiStep;
pub use multi_step_transform::MultiStepTransform;
pub use next_state::NextStateReconstructor;
pub use observation::{CatTensors, DoubleToFloat, FlattenObservation, UnsqueezeTransform};
pub use policy_age::PolicyAgeFilter;
pub use random_crop::RandomCropTensorDict;
pub use rename::RenameTransform;
pub use resize::{Interpolation, Resize};
pub use reward::{BinarizeReward, RewardClipping, RewardScaling, SignTransform};
pub use reward_to_go::{DensifyReward, Reward2GoTransform};
pub use select::{ExcludeTransform, SelectTransform};
pub use split_trajectories::{SplitOptions, split_trajectories, split_trajectories_ragged};
pub use transform::Transform;

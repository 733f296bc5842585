//! Sequences of transforms, and their JSON form.

use fulmar_core::limits::TRANSFORMS_MAX;
use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use fulmar_tensor::TensorDict;
use serde::Deserialize;

use crate::action_chunk::ActionChunkTransform;
use crate::cat_frames::CatFrames;
use crate::crop::CenterCrop;
use crate::image::{GrayScale, ToTensorImage};
use crate::multi_step::MultiStep;
use crate::multi_step_transform::MultiStepTransform;
use crate::next_state::NextStateReconstructor;
use crate::observation::{CatTensors, DoubleToFloat, FlattenObservation, UnsqueezeTransform};
use crate::policy_age::PolicyAgeFilter;
use crate::random_crop::RandomCropTensorDict;
use crate::rename::RenameTransform;
use crate::resize::Resize;
use crate::reward::{BinarizeReward, RewardClipping, RewardScaling, SignTransform};
use crate::reward_to_go::{DensifyReward, Reward2GoTransform};
use crate::select::{ExcludeTransform, SelectTransform};
use crate::time::joined;
use crate::transform::Transform;

/// Transforms that run in sequence: in order for batches, in reverse for written rows.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{Compose, Transform};
/// let mut transforms = Compose::from_json(r#"[{ "type": "ExcludeTransform", "keys": [["next", "obs"]] }]"#)?;
/// let mut batch = TensorDict::new(&[1])?;
/// batch.set(["next", "obs"], Tensor::from_vec(&[1], vec![1_u8])?)?;
/// assert!(transforms.forward(batch)?.get(["next", "obs"]).is_none());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Default)]
pub struct Compose {
    transforms: Vec<Box<dyn Transform>>,
}

impl Compose {
    /// Parses transforms from a JSON array: `type` is the name of the class, the other keys are its options.
    ///
    /// # Errors
    /// `UnknownName` for an unknown type or option; `Malformed` if the text does not have that form;
    /// `LimitExceeded` if there are more than [`TRANSFORMS_MAX`]; the errors of the transforms.
    pub fn from_json(json: &str) -> Result<Self> {
        let forms: Vec<Form> = options_from_json("transforms", json)?;
        if forms.len() > TRANSFORMS_MAX {
            let detail = format!("transforms must be at most {TRANSFORMS_MAX}: got {}", forms.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let built = forms
            .into_iter()
            .enumerate()
            .map(|(index, form)| form.built().map_err(|error| error.at(format!("transforms[{index}]"))));
        Ok(Self { transforms: built.collect::<Result<_>>()? })
    }

    /// Returns the number of transforms.
    #[must_use]
    pub fn len(&self) -> usize {
        self.transforms.len()
    }

    /// Returns whether there are no transforms.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.transforms.is_empty()
    }

    /// Adds a transform at the end: last for batches, first for rows.
    pub fn push(&mut self, transform: impl Transform + 'static) {
        self.transforms.push(Box::new(transform));
    }

    /// Adds a transform before the one at `index`.
    ///
    /// # Errors
    /// `OutOfRange` if there are fewer transforms.
    pub fn insert(&mut self, index: usize, transform: impl Transform + 'static) -> Result<()> {
        if index > self.len() {
            let detail = format!("index must be at most {}, their number: got {index}", self.len());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.transforms.insert(index, Box::new(transform));
        Ok(())
    }
}

impl Transform for Compose {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        self.transforms.iter_mut().try_fold(dict, |dict, transform| transform.forward(dict))
    }

    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        let mut reversed = self.transforms.iter_mut().rev();
        reversed.try_fold(Some(dict), |dict, transform| match dict {
            Some(dict) => transform.inverse(dict),
            None => Ok(None),
        })
    }

    /// Rows released by one transform pass through the transforms after it.
    fn flush(&mut self) -> Result<Option<TensorDict>> {
        let mut reversed = self.transforms.iter_mut().rev();
        reversed.try_fold(None, |dict: Option<TensorDict>, transform| {
            let passed = dict.map_or(Ok(None), |dict| transform.inverse(dict))?;
            joined(passed, transform.flush()?)
        })
    }

    fn clear(&mut self) {
        self.transforms.iter_mut().for_each(|transform| transform.clear());
    }

    fn state(&self) -> Result<TensorDict> {
        let mut all = TensorDict::new(&[])?;
        for (index, transform) in self.transforms.iter().enumerate() {
            let state = transform.state()?;
            if !state.is_empty() {
                all.set(index.to_string().as_str(), state)?;
            }
        }
        Ok(all)
    }

    fn load_state(&mut self, state: &TensorDict) -> Result<()> {
        let before = self.state()?;
        let loaded = self.load_each(state);
        if loaded.is_err() {
            self.load_each(&before)?;
        }
        loaded
    }

    fn set_policy_version(&mut self, version: i64) {
        self.transforms.iter_mut().for_each(|transform| transform.set_policy_version(version));
    }
}

impl Compose {
    fn load_each(&mut self, state: &TensorDict) -> Result<()> {
        let known: Vec<_> = (0..self.len()).map(|index| index.to_string()).collect();
        if let Some((name, _)) = state.entries().find(|(name, _)| !known.iter().any(|known| known == name)) {
            let detail = format!("state must be of {} transforms: got one of transform {name}", self.len());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let nothing = TensorDict::new(&[])?;
        for (name, transform) in known.iter().zip(&mut self.transforms) {
            let own = if state.get(name.as_str()).is_some() { state.dict(name.as_str())? } else { &nothing };
            transform.load_state(own).map_err(|error| error.at(format!("transforms[{name}]")))?;
        }
        Ok(())
    }
}

macro_rules! forms {
    ($($name:ident),* $(,)?) => {
        /// A transform in its JSON form.
        #[derive(Deserialize)]
        #[serde(tag = "type")]
        enum Form {
            $($name($name),)*
        }

        impl Form {
            fn built(self) -> Result<Box<dyn Transform>> {
                Ok(match self {
                    $(Self::$name(options) => Box::new(options.checked()?),)*
                })
            }
        }
    };
}

forms! {
    ActionChunkTransform, BinarizeReward, CatFrames, CatTensors, CenterCrop, DensifyReward, DoubleToFloat, ExcludeTransform,
    FlattenObservation, GrayScale, MultiStep, MultiStepTransform, NextStateReconstructor, PolicyAgeFilter, RandomCropTensorDict,
    RenameTransform, Resize, Reward2GoTransform, RewardClipping, RewardScaling, SelectTransform, SignTransform, ToTensorImage,
    UnsqueezeTransform,
}

//! Transforms of rewards. All read the tensors at `inKeys`, by default `reward`, and write the results to
//! `outKeys`, by default in place.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};
use serde::Deserialize;

use crate::number::{check_out_keys, finite, mapped, replaced};
use crate::transform::Transform;

fn reward() -> Vec<Key> {
    vec!["reward".into()]
}

/// `scale * reward + loc`.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{RewardScaling, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("reward", Tensor::from_vec(&[], vec![4.0_f32])?)?;
/// let mut scaling = RewardScaling { loc: 1.0, scale: 0.5, in_keys: vec!["reward".into()], out_keys: vec![] };
/// assert_eq!(scaling.forward(batch)?.tensor("reward")?.to_f32_vec(), [3.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RewardScaling {
    /// The summand.
    pub loc: f64,
    /// The factor.
    pub scale: f64,
    /// The keys of the tensors.
    #[serde(default = "reward")]
    pub in_keys: Vec<Key>,
    /// The keys of the results.
    #[serde(default)]
    pub out_keys: Vec<Key>,
}

impl RewardScaling {
    pub(crate) fn checked(self) -> Result<Self> {
        finite("loc", self.loc)?;
        finite("scale", self.scale)?;
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }
}

impl Transform for RewardScaling {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let scaled = |reward: f64| self.scale * reward + self.loc;
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| mapped(tensor, scaled))
    }
}

/// Clamps the reward to bounds; NaN stays.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{RewardClipping, Transform};
/// let mut batch = TensorDict::new(&[2])?;
/// batch.set("reward", Tensor::from_vec(&[2], vec![4.0_f32, -0.5])?)?;
/// let clipped = RewardClipping::default().forward(batch)?;
/// assert_eq!(clipped.tensor("reward")?.to_f32_vec(), [1.0, -0.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RewardClipping {
    /// The lower bound. Defaults to -1.
    pub clamp_min: f64,
    /// The upper bound. Defaults to 1.
    pub clamp_max: f64,
    /// The keys of the tensors.
    pub in_keys: Vec<Key>,
    /// The keys of the results.
    pub out_keys: Vec<Key>,
}

impl Default for RewardClipping {
    fn default() -> Self {
        Self { clamp_min: -1.0, clamp_max: 1.0, in_keys: reward(), out_keys: vec![] }
    }
}

impl RewardClipping {
    pub(crate) fn checked(self) -> Result<Self> {
        finite("clampMin", self.clamp_min)?;
        finite("clampMax", self.clamp_max)?;
        if self.clamp_min > self.clamp_max {
            let detail = format!("clampMin must be <= clampMax = {}: got {}", self.clamp_max, self.clamp_min);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }
}

impl Transform for RewardClipping {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let (low, high) = (self.clamp_min, self.clamp_max);
        let clipped = |reward: f64| {
            if reward < low {
                low
            } else if reward > high {
                high
            } else {
                reward
            }
        };
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| mapped(tensor, clipped))
    }
}

macro_rules! keyed {
    ($(#[$meta:meta])* $name:ident, $keys:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct $name {
            /// The keys of the tensors.
            pub in_keys: Vec<Key>,
            /// The keys of the results.
            pub out_keys: Vec<Key>,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { in_keys: $keys, out_keys: vec![] }
            }
        }

        impl $name {
            pub(crate) fn checked(self) -> Result<Self> {
                check_out_keys(&self.in_keys, &self.out_keys)?;
                Ok(self)
            }
        }
    };
}

keyed! {
    /// 1 if the reward is greater than 0, else 0, as `i8`.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// use fulmar_transform::{BinarizeReward, Transform};
    /// let mut batch = TensorDict::new(&[2])?;
    /// batch.set("reward", Tensor::from_vec(&[2], vec![4.0_f32, -0.5])?)?;
    /// let binary = BinarizeReward::default().forward(batch)?;
    /// assert_eq!(binary.tensor("reward")?.to_vec::<i8>()?, [1, 0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    BinarizeReward, reward()
}

impl Transform for BinarizeReward {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let positive = |reward: f64| f64::from(u8::from(reward > 0.0));
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| mapped(tensor, positive)?.to(Dtype::I8))
    }
}

keyed! {
    /// -1, 0 or 1 if the reward is negative, neither or positive.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// use fulmar_transform::{SignTransform, Transform};
    /// let mut batch = TensorDict::new(&[2])?;
    /// batch.set("reward", Tensor::from_vec(&[2], vec![4.0_f32, -0.5])?)?;
    /// let signs = SignTransform::default().forward(batch)?;
    /// assert_eq!(signs.tensor("reward")?.to_f32_vec(), [1.0, -1.0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    SignTransform, reward()
}

impl Transform for SignTransform {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let sign = |reward: f64| f64::from(i8::from(reward > 0.0) - i8::from(reward < 0.0));
        replaced(dict, &self.in_keys, &self.out_keys, |tensor| mapped(tensor, sign))
    }
}

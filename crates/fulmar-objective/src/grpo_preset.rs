//! Presets of the GRPO family: each is a set of options, which other given options override.

use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::GrpoOptions;

/// The losses in the table of [`GrpoLoss`](crate::GrpoLoss)'s module, with the bounds of their papers.
///
/// # Examples
/// ```
/// use fulmar_objective::{Clip, GrpoOptions, GrpoPreset, RatioLevel};
/// let gspo = GrpoPreset::Gspo.options()?;
/// assert_eq!((gspo.ratio, gspo.clip_epsilon), (RatioLevel::Sequence, Clip { low: 3e-4, high: 4e-4 }));
/// let wide = GrpoOptions::from_json("GRPOLoss", r#"{"preset": "gspo", "clipEpsilon": 0.2}"#)?;
/// assert_eq!(wide, GrpoOptions { clip_epsilon: Clip::symmetric(0.2), ..gspo });
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GrpoPreset {
    /// The mean over sequences, <https://arxiv.org/abs/2402.03300>.
    Grpo,
    /// The mean over the tokens of a batch (TRL's name).
    Bnpo,
    /// A wider upper side, the mean over tokens, <https://arxiv.org/abs/2503.14476>.
    Dapo,
    /// Equal weight for tokens of long and short answers, <https://arxiv.org/abs/2503.20783>; requires
    /// `normalization`, a fixed length.
    DrGrpo,
    /// The ratio of a sequence, <https://arxiv.org/abs/2507.18071>.
    Gspo,
    /// The same with the gradient of each token alone.
    GspoToken,
    /// No token loses its gradient, <https://arxiv.org/abs/2506.13585>; a cap of 5, <https://arxiv.org/abs/2510.13786>.
    Cispo,
    /// A soft gate, <https://arxiv.org/abs/2511.20347>.
    Sapo,
    /// The ratio of a sequence, weighted by its length, <https://arxiv.org/abs/2602.05261>.
    Luspo,
    /// A weight of the sequence that vanishes far from 1, <https://arxiv.org/abs/2602.10693>.
    Vespo,
    /// The geometric mean of individually clipped ratios, <https://arxiv.org/abs/2507.20673>.
    Gmpo,
    /// The answer as one action, <https://arxiv.org/abs/2402.14740>; its advantages are rewards minus the
    /// mean of the others in the group.
    Rloo,
    /// torchtitan's GRPO: the log-ratio is clamped to +-10, beyond which a token has no gradient but still
    /// counts. Its DAPO is the same with `clip_epsilon` 0.2 and 0.28.
    Torchtitan,
}

impl GrpoPreset {
    /// Returns the options of this loss.
    ///
    /// # Errors
    /// `Empty` for [`GrpoPreset::DrGrpo`], which needs a length.
    pub fn options(self) -> Result<GrpoOptions> {
        self.with(Map::new(), "preset")
    }

    /// Returns its options in JSON.
    const fn choices(self) -> &'static str {
        match self {
            Self::Grpo => r#"{"normalization": "sequenceMean"}"#,
            Self::Bnpo | Self::DrGrpo => "{}",
            Self::Dapo => r#"{"clipEpsilon": [0.2, 0.28]}"#,
            Self::Gspo => {
                r#"{"ratio": "sequence", "clipEpsilon": [3e-4, 4e-4], "normalization": "sequenceMean"}"#
            }
            Self::GspoToken => {
                r#"{"ratio": "sequenceToken", "clipEpsilon": [3e-4, 4e-4], "normalization": "sequenceMean"}"#
            }
            Self::Cispo => r#"{"surrogate": {"cispo": {"cap": 5}}}"#,
            Self::Sapo => {
                r#"{"surrogate": {"sapo": {"tauPositive": 1, "tauNegative": 1.05}}, "normalization": "sequenceMean"}"#
            }
            Self::Luspo => {
                r#"{"ratio": "sequence", "clipEpsilon": [2e-3, 2.5e-3], "normalization": {"fixedLength": 1}}"#
            }
            Self::Vespo => {
                r#"{"surrogate": {"vespo": {"positive": {"k": 2, "lambda": 3}, "negative": {"k": 3, "lambda": 2}}}}"#
            }
            Self::Gmpo => r#"{"surrogate": "gmpo", "clipEpsilon": 0.4, "normalization": "sequenceMean"}"#,
            Self::Rloo => r#"{"ratio": "sequenceProduct", "normalization": "sequenceMean"}"#,
            Self::Torchtitan => r#"{"logRatioMax": 10, "clampLogRatio": true}"#,
        }
    }

    fn with(self, given: Map<String, Value>, place: &str) -> Result<GrpoOptions> {
        if self == Self::DrGrpo && !given.contains_key("normalization") {
            let detail =
                "normalization must be given with the preset drGrpo, as { fixedLength }: the longest answer";
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        let mut options: Map<String, Value> = options_from_json(place, self.choices())?;
        options.extend(given);
        options_from_json(place, &Value::Object(options).to_string())
    }
}

impl GrpoOptions {
    /// Parses options from JSON. `preset` may name a [`GrpoPreset`], which the other members override. Errors
    /// call the text `place`.
    ///
    /// # Errors
    /// `UnknownName` for an unknown preset, member or choice; `Malformed` for values of another type; `Empty` for `drGrpo` without a
    /// normalization. Ranges are checked by [`GrpoLoss::new`](crate::GrpoLoss::new).
    pub fn from_json(place: &str, json: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Named {
            preset: Option<GrpoPreset>,
            #[serde(flatten)]
            given: Map<String, Value>,
        }
        let Named { preset, given } = options_from_json(place, json)?;
        match preset {
            Some(preset) => preset.with(given, place),
            None => options_from_json(place, json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GrpoLoss, Normalization, Surrogate};

    const ALL: [GrpoPreset; 13] = [
        GrpoPreset::Grpo,
        GrpoPreset::Bnpo,
        GrpoPreset::Dapo,
        GrpoPreset::DrGrpo,
        GrpoPreset::Gspo,
        GrpoPreset::GspoToken,
        GrpoPreset::Cispo,
        GrpoPreset::Sapo,
        GrpoPreset::Luspo,
        GrpoPreset::Vespo,
        GrpoPreset::Gmpo,
        GrpoPreset::Rloo,
        GrpoPreset::Torchtitan,
    ];

    #[test]
    fn every_preset_is_a_loss_of_its_own() {
        let mut seen: Vec<GrpoOptions> = vec![];
        for preset in ALL {
            let given = match preset {
                GrpoPreset::DrGrpo => {
                    Map::from_iter([("normalization".to_owned(), serde_json::json!({"fixedLength": 8}))])
                }
                _ => Map::new(),
            };
            let options = preset.with(given, "preset").unwrap();
            GrpoLoss::new(options.clone()).unwrap();
            assert!(!seen.contains(&options), "{preset:?}");
            seen.push(options);
        }
    }

    #[test]
    fn what_is_given_replaces_what_the_preset_chose() {
        let from = |json| GrpoOptions::from_json("GRPOLoss", json);
        let cispo = from(
            r#"{"preset": "cispo", "surrogate": {"cispo": {"cap": 1.28}}, "normalization": {"globalTokens": 64}}"#,
        );
        let cispo = cispo.unwrap();
        assert_eq!(cispo.surrogate, Surrogate::Cispo { cap: 1.28 });
        assert_eq!(cispo.normalization, Normalization::GlobalTokens(64.0));
        assert_eq!(from("{}").unwrap(), GrpoOptions::default());
        assert_eq!(from(r#"{"preset": "drGrpo"}"#).unwrap_err().kind(), ErrorKind::Empty);
        assert_eq!(GrpoPreset::DrGrpo.options().unwrap_err().kind(), ErrorKind::Empty);
        assert_eq!(from(r#"{"preset": "ppo"}"#).unwrap_err().kind(), ErrorKind::UnknownName);
        assert_eq!(from(r#"{"preset": "grpo", "clip": 1}"#).unwrap_err().kind(), ErrorKind::UnknownName);
        assert_eq!(from(r#"{"clip": 1}"#).unwrap_err().kind(), ErrorKind::UnknownName);
        assert_eq!(from(r#"{"preset": 3}"#).unwrap_err().kind(), ErrorKind::Malformed);
        assert_eq!(from("[]").unwrap_err().kind(), ErrorKind::Malformed);
    }
}

//! Rotary parameters in the formats of `config.json`.

use std::f64::consts::TAU;

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Rotary parameters, as `rope_parameters` of transformers 5 and, without the base, as `rope_scaling` before it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RopeParameters {
    /// Base of the angles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// Kind of scaling: `default` (none) or `llama3`.
    #[serde(default, alias = "type", skip_serializing_if = "Option::is_none")]
    pub rope_type: Option<String>,
    /// Divides the frequencies of long waves, >= 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Waves longer than the original context divided by this are slowed by `factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_freq_factor: Option<f64>,
    /// Waves shorter than the original context divided by this are unchanged; > `low_freq_factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_freq_factor: Option<f64>,
    /// Number of positions of the original training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<f64>,
}

/// The scaling of the frequencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RopeScaling {
    None,
    /// Llama 3.1's (<https://arxiv.org/abs/2407.21783>).
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original_positions: f64,
    },
}

impl RopeParameters {
    /// # Errors
    /// `Incompatible` for an unsupported kind; `OutOfRange`, naming the field, for a missing or impossible
    /// one.
    pub(crate) fn scaling(&self) -> Result<RopeScaling> {
        match self.rope_type.as_deref() {
            None | Some("default") => Ok(RopeScaling::None),
            Some("llama3") => {
                let high = required("high_freq_factor", self.high_freq_factor, 0.0)?;
                let low = required("low_freq_factor", self.low_freq_factor, 0.0)?;
                if low >= high {
                    let detail = format!("low_freq_factor must be < high_freq_factor ({high}): got {low}");
                    return Err(Error::new(ErrorKind::OutOfRange, detail));
                }
                Ok(RopeScaling::Llama3 {
                    factor: required("factor", self.factor, 1.0)?,
                    low,
                    high,
                    original_positions: required(
                        "original_max_position_embeddings",
                        self.original_max_position_embeddings,
                        1.0,
                    )?,
                })
            }
            Some(kind) => {
                let detail = format!("rope_type must be \"default\" or \"llama3\": got {kind:?}");
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    }
}

fn required(name: &str, value: Option<f64>, min: f64) -> Result<f64> {
    match value {
        Some(value) if value.is_finite() && value >= min => Ok(value),
        _ => {
            let got = value.map_or_else(|| "it is missing".to_owned(), |value| format!("got {value}"));
            let detail = format!("{name} of a llama3 rope must be a number >= {min}: {got}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}

impl RopeScaling {
    /// Returns a frequency, in radians a position, after scaling.
    pub(crate) fn scale(self, frequency: f64) -> f64 {
        let Self::Llama3 { factor, low, high, original_positions } = self else { return frequency };
        // The number of whole waves in the original context decides.
        let waves = original_positions * frequency / TAU;
        let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
        frequency * (kept + (1.0 - kept) / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llama3() -> RopeParameters {
        RopeParameters {
            rope_type: Some("llama3".into()),
            factor: Some(8.0),
            low_freq_factor: Some(1.0),
            high_freq_factor: Some(4.0),
            original_max_position_embeddings: Some(8192.0),
            ..RopeParameters::default()
        }
    }

    #[test]
    fn short_waves_stay_long_ones_are_slowed_and_those_between_partly() {
        let scaling = llama3().scaling().unwrap();
        let wave = |length: f64| TAU / length;
        assert_eq!(scaling.scale(wave(2048.0)), wave(2048.0));
        assert_eq!(scaling.scale(wave(8192.0)), wave(8192.0) / 8.0);
        assert_eq!(scaling.scale(wave(1e6)), wave(1e6) / 8.0);
        // Two waves in the original context: a third of the way from slowed to unchanged.
        let between = scaling.scale(wave(4096.0)) / wave(4096.0);
        assert!((between - (1.0 / 3.0 + 2.0 / 3.0 / 8.0)).abs() < 1e-12);
    }

    #[test]
    fn what_is_missing_or_impossible_is_refused_by_name() {
        type Spoil = fn(&mut RopeParameters);
        let cases: [(Spoil, &str); 5] = [
            (|rope| rope.factor = None, "factor of a llama3 rope must be a number >= 1: it is missing"),
            (|rope| rope.factor = Some(0.5), "factor of a llama3 rope must be a number >= 1: got 0.5"),
            (
                |rope| rope.low_freq_factor = Some(4.0),
                "low_freq_factor must be < high_freq_factor (4): got 4",
            ),
            (
                |rope| rope.high_freq_factor = Some(f64::NAN),
                "high_freq_factor of a llama3 rope must be a number >= 0: got NaN",
            ),
            (
                |rope| rope.rope_type = Some("yarn".into()),
                "rope_type must be \"default\" or \"llama3\": got \"yarn\"",
            ),
        ];
        for (spoil, detail) in cases {
            let mut rope = llama3();
            spoil(&mut rope);
            assert_eq!(rope.scaling().unwrap_err().detail(), detail);
        }
    }
}

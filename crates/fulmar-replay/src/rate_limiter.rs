//! Limits the number of samples for each insert, as in reverb.
//!
//! ```text
//! diff             = inserts * samples_per_insert - samples
//! sample k  allowed if inserts - deletes >= min_size and diff - k >= min_diff
//! insert k  allowed if inserts + k - deletes <= min_size or diff + k * samples_per_insert <= max_diff
//! ```
//!
//! This is a state machine without time: waiting is up to the caller.

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The rule of a rate limiter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum RateLimiterOptions {
    /// Allows samples once there are enough items.
    MinSize {
        /// The number of items.
        min_size: u64,
    },
    /// Keeps samples and inserts in a ratio, `error` around `samples_per_insert * min_size`.
    SampleToInsertRatio {
        /// Samples for each insert, above 0.
        samples_per_insert: f64,
        /// Number of items before the first sample, at least 1.
        min_size: u64,
        /// The allowed deviation in samples, on both sides together at least `2 * max(1,
        /// samples_per_insert)`.
        error: f64,
    },
    /// Each item is drawn once: at most `size` items wait.
    Queue {
        /// The maximum number of waiting items, at least 1.
        size: u64,
    },
}

/// Counts inserts, samples and deletes, and decides which of them are allowed.
///
/// # Examples
/// ```
/// use fulmar_replay::{RateLimiter, RateLimiterOptions};
/// let mut limiter = RateLimiter::new(RateLimiterOptions::MinSize { min_size: 2 })?;
/// limiter.insert(1)?;
/// let refused = limiter.sample(1).unwrap_err();
/// assert_eq!(refused.detail(), "items must be >= 2 to sample: got 1");
/// limiter.insert(1)?;
/// limiter.sample(1)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimiter {
    options: RateLimiterOptions,
    samples_per_insert: f64,
    min_size: u64,
    /// Absent without a bound, as JSON has no infinity.
    min_diff: Option<f64>,
    max_diff: Option<f64>,
    inserts: u64,
    samples: u64,
    deletes: u64,
}

impl RateLimiter {
    /// Returns a limiter with counts of 0.
    ///
    /// # Errors
    /// `OutOfRange` if a number is outside its range, so that no operation would ever be allowed.
    pub fn new(options: RateLimiterOptions) -> Result<Self> {
        let (samples_per_insert, min_size, min_diff, max_diff) = match options {
            RateLimiterOptions::MinSize { min_size } => (1.0, min_size, None, None),
            RateLimiterOptions::Queue { size } => (1.0, 1, Some(0.0), Some(size as f64)),
            RateLimiterOptions::SampleToInsertRatio { samples_per_insert, min_size, error } => {
                let middle = samples_per_insert * min_size as f64;
                (samples_per_insert, min_size, Some(middle - error), Some(middle + error))
            }
        };
        let narrow = match (min_diff, max_diff) {
            (Some(min), Some(max)) if !matches!(options, RateLimiterOptions::Queue { .. }) => {
                let range = max - min;
                range.is_nan() || range < 2.0 * samples_per_insert.max(1.0)
            }
            (_, max) => max == Some(0.0),
        };
        if min_size == 0 || !(samples_per_insert > 0.0 && samples_per_insert.is_finite()) || narrow {
            let detail = format!("rate limiter must let something be done: got {options:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (inserts, samples, deletes) = (0, 0, 0);
        Ok(Self { options, samples_per_insert, min_size, min_diff, max_diff, inserts, samples, deletes })
    }

    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &RateLimiterOptions {
        &self.options
    }

    /// Returns the counts of inserts, samples and deletes.
    #[must_use]
    pub const fn counts(&self) -> [u64; 3] {
        [self.inserts, self.samples, self.deletes]
    }

    /// Checks that `count` samples are allowed now.
    ///
    /// # Errors
    /// `OutOfRange`, with the reason, if they are not.
    pub fn check_sample(&self, count: u64) -> Result<()> {
        let size = self.inserts.saturating_sub(self.deletes);
        if size < self.min_size {
            let detail = format!("items must be >= {} to sample: got {size}", self.min_size);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let after = self.diff() - count as f64;
        match self.min_diff {
            Some(min) if after < min => {
                let detail =
                    format!("inserts must be ahead of samples by >= {min} after sampling: got {after}");
                Err(Error::new(ErrorKind::OutOfRange, detail))
            }
            _ => Ok(()),
        }
    }

    /// Checks that `count` inserts are allowed now.
    ///
    /// # Errors
    /// `OutOfRange`, with the reason, if they are not.
    pub fn check_insert(&self, count: u64) -> Result<()> {
        if self.inserts.saturating_add(count).saturating_sub(self.deletes) <= self.min_size {
            return Ok(());
        }
        let after = self.diff() + count as f64 * self.samples_per_insert;
        match self.max_diff {
            Some(max) if after > max => {
                let detail =
                    format!("inserts must be ahead of samples by <= {max} after inserting: got {after}");
                Err(Error::new(ErrorKind::OutOfRange, detail))
            }
            _ => Ok(()),
        }
    }

    /// Counts `count` samples, if they are allowed.
    ///
    /// # Errors
    /// The errors of [`RateLimiter::check_sample`].
    pub fn sample(&mut self, count: u64) -> Result<()> {
        self.check_sample(count)?;
        self.samples = self.samples.saturating_add(count);
        Ok(())
    }

    /// Counts `count` inserts, if they are allowed.
    ///
    /// # Errors
    /// The errors of [`RateLimiter::check_insert`].
    pub fn insert(&mut self, count: u64) -> Result<()> {
        self.check_insert(count)?;
        self.inserts = self.inserts.saturating_add(count);
        Ok(())
    }

    /// Counts `count` removed items.
    ///
    /// # Errors
    /// `OutOfRange` if there are fewer.
    pub fn delete(&mut self, count: u64) -> Result<()> {
        let size = self.inserts.saturating_sub(self.deletes);
        if count > size {
            let detail = format!("items that leave must be <= {size}, those there are: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.deletes += count;
        Ok(())
    }

    fn diff(&self) -> f64 {
        self.inserts as f64 * self.samples_per_insert - self.samples as f64
    }
}

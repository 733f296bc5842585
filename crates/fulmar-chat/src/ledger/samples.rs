//! Training samples: the root-to-leaf paths of a ledger.

use fulmar_core::{Error, ErrorKind};

use super::{Ledger, check_num_tokens};
use crate::{Origin, Result};

/// All samples of one ledger: flat columns of shape `[T]`, split at `offsets`. `S` samples, `T` tokens in
/// all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// Sample `s` has the tokens `offsets[s]..offsets[s + 1]`. Shape `[S + 1]`.
    pub offsets: Vec<u32>,
    /// Token ids.
    pub ids: Vec<u32>,
    /// `true` if the token is trained in this sample.
    pub mask: Vec<bool>,
    /// Log-probability at temperature 1; 0 off the mask.
    pub log_probs: Vec<f32>,
    /// Log-probability under the sampling distribution; 0 off the mask.
    pub sampled_log_probs: Vec<f32>,
    /// The oldest weights that may have sampled the token; 0 off the mask.
    pub versions: Vec<u32>,
    /// The turn that opens each sample. Shape `[S]`.
    pub turn_ids: Vec<u32>,
    /// The oldest weights of any trained token. Shape `[S]`.
    pub min_policy_versions: Vec<u32>,
    /// The newest weights of any trained token. Shape `[S]`.
    pub max_policy_versions: Vec<u32>,
}

/// One sample of [`Samples`]: parallel columns of its tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRef<'a> {
    /// The turn that opens its branch.
    pub turn_id: u32,
    /// Token ids.
    pub ids: &'a [u32],
    /// See [`Samples::mask`].
    pub mask: &'a [bool],
    /// See [`Samples::log_probs`].
    pub log_probs: &'a [f32],
    /// See [`Samples::sampled_log_probs`].
    pub sampled_log_probs: &'a [f32],
    /// See [`Samples::versions`].
    pub versions: &'a [u32],
    /// The oldest weights of any trained token.
    pub min_policy_version: u32,
    /// The newest weights of any trained token.
    pub max_policy_version: u32,
}

impl Samples {
    /// Returns the number of samples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.turn_ids.len()
    }

    /// Returns whether nothing was sampled.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.turn_ids.is_empty()
    }

    /// Returns sample `index`; `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<SampleRef<'_>> {
        let range = *self.offsets.get(index)? as usize..*self.offsets.get(index + 1)? as usize;
        Some(SampleRef {
            turn_id: self.turn_ids[index],
            ids: &self.ids[range.clone()],
            mask: &self.mask[range.clone()],
            log_probs: &self.log_probs[range.clone()],
            sampled_log_probs: &self.sampled_log_probs[range.clone()],
            versions: &self.versions[range],
            min_policy_version: self.min_policy_versions[index],
            max_policy_version: self.max_policy_versions[index],
        })
    }

    /// Returns the rollout's advantage on every trained token, 0 elsewhere. Shape `[T]`.
    ///
    /// # Errors
    /// `Empty` if there is no advantage; `NonFinite` if it is a NaN or an infinity.
    pub fn advantages(&self, advantage: Option<f32>) -> Result<Vec<f32>> {
        let missing =
            || Error::new(ErrorKind::Empty, "advantage must be set before training, and it has not been set");
        let advantage = advantage.ok_or_else(missing)?;
        if !advantage.is_finite() {
            return Err(Error::new(
                ErrorKind::NonFinite,
                format!("advantage must be finite: got {advantage}"),
            ));
        }
        Ok(self.mask.iter().map(|&trained| if trained { advantage } else { 0.0 }).collect())
    }

    fn push(&mut self, id: u32, trained: Option<(f32, f32, u32)>) {
        let (log_prob, sampled_log_prob, version) = trained.unwrap_or_default();
        self.ids.push(id);
        self.mask.push(trained.is_some());
        self.log_probs.push(log_prob);
        self.sampled_log_probs.push(sampled_log_prob);
        self.versions.push(version);
    }

    /// Drops the tokens after the last finished sample.
    fn drop_open(&mut self) {
        let end = self.offsets.last().map_or(0, |&end| end as usize);
        self.ids.truncate(end);
        self.mask.truncate(end);
        self.log_probs.truncate(end);
        self.sampled_log_probs.truncate(end);
        self.versions.truncate(end);
    }
}

/// The first turn and the oldest and newest weights of a path's trained tokens.
struct Trained {
    turn: usize,
    min: u32,
    max: u32,
}

impl Ledger {
    /// Returns the root-to-leaf paths with trained tokens, in the order of their branches. A sampled token
    /// that an earlier path trains is context in later ones, so each is trained exactly once. Costs the
    /// length of all paths.
    ///
    /// # Errors
    /// `LimitExceeded` if the paths together have more than [`fulmar_core::limits::LEDGER_TOKENS_MAX`] tokens.
    pub fn samples(&self) -> Result<Samples> {
        let leaves: Vec<usize> = (0..self.branches.len()).filter(|&branch| self.is_leaf(branch)).collect();
        let lengths = leaves.iter().map(|&branch| self.branches[branch].len);
        check_num_tokens(lengths.fold(0, usize::saturating_add))?;
        let mut samples = Samples { offsets: vec![0], ..Samples::default() };
        let mut is_trained = vec![false; self.ids.len()];
        for branch in leaves {
            match self.push_path(branch, &mut samples, &mut is_trained) {
                None => samples.drop_open(),
                Some(Trained { turn, min, max }) => {
                    samples.offsets.push(samples.ids.len() as u32);
                    samples.turn_ids.push(turn as u32);
                    samples.min_policy_versions.push(min);
                    samples.max_policy_versions.push(max);
                }
            }
        }
        Ok(samples)
    }

    /// Returns whether no other branch continues from the end of this one.
    fn is_leaf(&self, branch: usize) -> bool {
        let end = Some(self.branches[branch].len);
        let position = |&child: &usize| self.branches[child].fork.map(|fork| fork.position);
        !self.branches[branch].children.iter().any(|child| position(child) == end)
    }

    fn push_path(&self, branch: usize, samples: &mut Samples, is_trained: &mut [bool]) -> Option<Trained> {
        let mut trained: Option<Trained> = None;
        for run in self.path(branch) {
            let segment = &self.segments[run.segment];
            let version = segment.policy_version.filter(|_| segment.origin == Origin::Sampled);
            for (k, is_trained) in is_trained.iter_mut().enumerate().skip(run.start).take(run.len) {
                let Some(version) = version.filter(|_| !*is_trained) else {
                    samples.push(self.ids[k], None);
                    continue;
                };
                *is_trained = true;
                let at = segment.sampled_start + (k - segment.start);
                samples
                    .push(self.ids[k], Some((self.log_probs[at], self.sampled_log_probs[at], version.min)));
                let all =
                    trained.get_or_insert(Trained { turn: segment.turn, min: version.min, max: version.max });
                (all.min, all.max) = (all.min.min(version.min), all.max.max(version.max));
            }
        }
        trained
    }
}

//! Rollouts of a policy over prompts, with a reward at the end and a penalty for leaving a reference at each token.
//!
//! ```text
//! reward_bt = clip(score(answer_b) - score(label_b)) at the last token - kl_coef * (log p(token_bt) - log p_ref(token_bt))
//! ```
//! B prompts, N steps, L tokens of a row, W = L + N. D. Ziegler and others, <https://arxiv.org/abs/1909.08593>

use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng};
use fulmar_tensor::{Tensor, TensorDict};

use super::fields::{check_dtype, check_shape};
use super::prompt_data::PromptData;
use super::rollout_steps::{Answer, Rewards, Size, steps_of};

/// Id of GPT-2's end of text.
const END_ID: u32 = 50_256;

/// Most divergences that wait for [`RolloutFromModel::take_divergences`]; the oldest are dropped.
const DIVERGENCES_MAX: usize = 1 << 16;

/// Options of [`RolloutFromModel`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RolloutOptions {
    /// Tokens of an answer, from 1. 50 by default.
    pub max_new_tokens: usize,
    /// Largest reward of an answer, above 0. 10 by default.
    pub score_clip: f32,
    /// Factor of the penalty, from 0. 0.1 by default.
    pub kl_coef: f32,
    /// Id that ends an answer, and pads. 50256 by default.
    pub end_id: u32,
    /// Fixes all draws. 0 by default.
    pub seed: u64,
}

impl Default for RolloutOptions {
    fn default() -> Self {
        Self { max_new_tokens: 50, score_clip: 10.0, kl_coef: 0.1, end_id: END_ID, seed: 0 }
    }
}

/// A draw of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutDraw {
    /// Most tokens of the answer.
    pub max_new_tokens: usize,
    /// Id that ends it; the answer has it as its last one.
    pub end_id: u32,
    /// Fixes the draw.
    pub seed: u64,
}

/// A drawn answer.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnAnswer {
    /// Ids of the answer, with its end if it has one.
    pub ids: Vec<u32>,
    /// Log-probabilities of the ids under the policy.
    pub log_probs: Vec<f32>,
    /// Log-probabilities of the ids under the distribution that drew them.
    pub sampled_log_probs: Vec<f32>,
}

/// Answers of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedRows {
    /// Prompts with their answers, `i64` `[B, W]`, padded on the right.
    pub tokens: Tensor,
    /// Log-probabilities of the drawn tokens under the distribution that drew them, `f32` `[B, N, 1]`; 0 behind the end.
    pub log_probs: Tensor,
    /// Log-probabilities under the policy minus those under the reference, `f32` `[B, N]`; 0 behind the end.
    pub log_ratio: Tensor,
}

/// TorchRL's rollouts of prompts. A row of a batch is a trajectory of N steps: step `t` has the prompt with the first `t` drawn tokens at
/// `input_ids`, the next one at `action`, and what came of it below `next`.
///
/// `model` draws an answer to a prompt; `ref_model` gives the log-probabilities of the ids of a text from a position on; `reward_model` scores whole
/// texts, ids without their ends.
///
/// # Examples
/// ```
/// use fulmar_dataset::{DrawnAnswer, PromptData, RolloutDraw, RolloutFromModel, RolloutOptions};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut dict = TensorDict::new(&[1])?;
/// dict.set("input_ids", Tensor::from_vec(&[1, 3], vec![1_i64, 2, 3])?)?;
/// dict.set("attention_mask", Tensor::from_vec(&[1, 3], vec![1_i64; 3])?)?;
/// dict.set("prompt_rindex", Tensor::from_vec(&[1], vec![2_i64])?)?; // the third token is the label
/// let prompts = PromptData::from_dict(&dict)?;
///
/// let model = |_: &[u32], draw: &RolloutDraw| {
///     let log_probs = vec![-0.5; 2];
///     Ok(DrawnAnswer { ids: vec![4, draw.end_id], sampled_log_probs: log_probs.clone(), log_probs })
/// };
/// let ref_model = |ids: &[u32], start: usize| Ok(vec![-1.0; ids.len() - start]);
/// let reward_model = |texts: &[Vec<u32>]| Ok(texts.iter().map(|ids| ids.iter().sum::<u32>() as f32).collect());
/// let options = RolloutOptions { max_new_tokens: 3, kl_coef: 0.5, end_id: 0, ..Default::default() };
/// let mut rollouts = RolloutFromModel::new(model, ref_model, reward_model, options)?;
/// let steps = rollouts.rollout_from_data(&prompts)?;
/// assert_eq!(steps.batch_size(), [1, 3]);
/// assert_eq!(steps.tensor(["next", "reward"])?.to_f32_vec(), [-0.25, 0.75, 0.0]); // 7 - 6 at the end
/// assert_eq!(rollouts.take_divergences(), [0.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct RolloutFromModel<M, R, S> {
    model: M,
    ref_model: R,
    reward_model: S,
    options: RolloutOptions,
    draws: Rng,
    num_draws: u64,
    divergences: Vec<f64>,
}

impl<M, R, S> RolloutFromModel<M, R, S>
where
    M: FnMut(&[u32], &RolloutDraw) -> Result<DrawnAnswer>,
    R: FnMut(&[u32], usize) -> Result<Vec<f32>>,
    S: FnMut(&[Vec<u32>]) -> Result<Vec<f32>>,
{
    /// Makes rollouts of a policy, its reference and a reward model.
    ///
    /// # Errors
    /// `OutOfRange` for a number outside its range.
    pub fn new(model: M, ref_model: R, reward_model: S, options: RolloutOptions) -> Result<Self> {
        let RolloutOptions { max_new_tokens, score_clip, seed, .. } = options;
        if max_new_tokens == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "max_new_tokens must be at least 1: got 0"));
        }
        if !(score_clip.is_finite() && score_clip > 0.0) {
            let detail = format!("score_clip must be finite and above 0: got {score_clip}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let draws = Rng::new(seed).stream("RolloutFromModel");
        let mut rollouts =
            Self { model, ref_model, reward_model, options, draws, num_draws: 0, divergences: Vec::new() };
        rollouts.set_kl_coef(options.kl_coef)?;
        Ok(rollouts)
    }

    /// Returns the factor of the penalty.
    #[must_use]
    pub fn kl_coef(&self) -> f32 {
        self.options.kl_coef
    }

    /// Sets the factor of the penalty, such as that of `AdaptiveKlController::update` over [`RolloutFromModel::take_divergences`].
    ///
    /// # Errors
    /// `OutOfRange` unless it is finite and from 0.
    pub fn set_kl_coef(&mut self, kl_coef: f32) -> Result<()> {
        if !(kl_coef.is_finite() && kl_coef >= 0.0) {
            let detail = format!("kl_coef must be finite and from 0: got {kl_coef}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.options.kl_coef = kl_coef;
        Ok(())
    }

    /// Returns the mean divergence of each rollout since the last call, in nats a drawn token.
    pub fn take_divergences(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.divergences)
    }

    /// Draws an answer for each prompt and computes the rewards, `[B, N]`: `action`, `input_ids`, `attention_mask`, `sample_log_prob`, and below
    /// `next` `input_ids`, `attention_mask`, `done`, `terminated`, `reward`, `reward_raw` and `reward_kl`.
    ///
    /// # Errors
    /// `Empty` for a prompt without tokens; `ShapeMismatch`, `OutOfRange` or `Incompatible` for a batch of another form; `LimitExceeded` for
    /// more than 2^27 ids; `UserCode` for answers and scores of other numbers than asked for; `NonFinite` for a token without
    /// log-probability, and for scores; those of the models.
    pub fn rollout_from_data(&mut self, batch: &PromptData) -> Result<TensorDict> {
        let generated = self.generate(batch)?;
        self.create_rollout_td(batch, &generated)
    }

    /// Draws an answer for each prompt, and scores it under both policies.
    ///
    /// # Errors
    /// As [`RolloutFromModel::rollout_from_data`].
    pub fn generate(&mut self, batch: &PromptData) -> Result<GeneratedRows> {
        let RolloutOptions { max_new_tokens: steps, end_id, .. } = self.options;
        let (prompts, _) = texts_of(batch)?;
        let width = batch.width()?.saturating_add(steps);
        let size = Size { rows: prompts.len(), steps, width }.checked()?;
        let mut tokens = vec![i64::from(end_id); size.rows * width];
        let mut log_probs = vec![0.0; size.rows * steps];
        let mut log_ratio = log_probs.clone();
        for (row, prompt) in prompts.iter().enumerate() {
            let (answer, ratio) = self.answer(prompt).map_err(|error| error.at(format!("prompt {row}")))?;
            let ids = prompt.iter().chain(&answer.ids).map(|id| i64::from(*id));
            tokens[row * width..].iter_mut().zip(ids).for_each(|(place, id)| *place = id);
            log_probs[row * steps..][..ratio.len()].copy_from_slice(&answer.sampled_log_probs);
            log_ratio[row * steps..][..ratio.len()].copy_from_slice(&ratio);
        }
        Ok(GeneratedRows {
            tokens: Tensor::from_vec(&[size.rows, width], tokens)?,
            log_probs: Tensor::from_vec(&[size.rows, steps, 1], log_probs)?,
            log_ratio: Tensor::from_vec(&[size.rows, steps], log_ratio)?,
        })
    }

    /// Makes the steps of answers, and their rewards.
    ///
    /// # Errors
    /// As [`RolloutFromModel::rollout_from_data`].
    pub fn create_rollout_td(&mut self, batch: &PromptData, generated: &GeneratedRows) -> Result<TensorDict> {
        let RolloutOptions { max_new_tokens: steps, end_id, score_clip, kl_coef, .. } = self.options;
        let (prompts, labelled) = texts_of(batch)?;
        let rows = prompts.len();
        let width = generated.tokens.shape().get(1).copied().unwrap_or(0);
        check_dtype("tokens", &generated.tokens, Dtype::I64)?;
        check_shape("tokens", &generated.tokens, &[rows, width])?;
        check_shape("log_probs", &generated.log_probs, &[rows, steps, 1])?;
        check_shape("log_ratio", &generated.log_ratio, &[rows, steps])?;
        let size = Size { rows, steps, width }.checked()?;
        let tokens = generated.tokens.to_vec::<i64>()?;
        let answers: Vec<_> = prompts
            .iter()
            .enumerate()
            .map(|(row, prompt)| answer_of(&tokens[row * width..][..width], prompt.len(), steps, end_id))
            .collect::<Result<_>>()?;
        let texts: Vec<_> =
            answers.iter().map(|answer| u32s(&answer.ids[..answer.length])).collect::<Result<_>>()?;
        let (scores, labels) = (self.scored(&texts)?, self.scored(&labelled)?);
        let gains: Vec<_> = scores
            .iter()
            .zip(&labels)
            .map(|(score, label)| (score - label).clamp(-score_clip, score_clip))
            .collect();
        let log_ratio = generated.log_ratio.to_f32_vec();
        self.note(&answers, &log_ratio, steps);
        let rewards = Rewards::of(&answers, &gains, &log_ratio, kl_coef);
        steps_of(&answers, size, end_id, &generated.log_probs, rewards)
    }

    /// Draws an answer, and returns it with its log-ratio.
    fn answer(&mut self, prompt: &[u32]) -> Result<(DrawnAnswer, Vec<f32>)> {
        let RolloutOptions { max_new_tokens, end_id, .. } = self.options;
        self.num_draws += 1;
        let seed = self.draws.at(&[self.num_draws]).below(1 << 31)?;
        let answer = (self.model)(prompt, &RolloutDraw { max_new_tokens, end_id, seed })?;
        let count = answer.ids.len();
        if count > max_new_tokens
            || [&answer.log_probs, &answer.sampled_log_probs].iter().any(|of| of.len() != count)
        {
            let (one, two) = (answer.log_probs.len(), answer.sampled_log_probs.len());
            let detail = format!(
                "model must give at most {max_new_tokens} ids with as many log-probabilities: got {count}, {one} and {two}"
            );
            return Err(Error::new(ErrorKind::UserCode, detail));
        }
        let other = (self.ref_model)(&[prompt, &answer.ids].concat(), prompt.len())?;
        if other.len() != count {
            let detail = format!("ref_model must give {count} log-probabilities: got {}", other.len());
            return Err(Error::new(ErrorKind::UserCode, detail));
        }
        let ratio: Vec<_> = answer.log_probs.iter().zip(&other).map(|(own, other)| own - other).collect();
        match ratio.iter().position(|ratio| !ratio.is_finite()) {
            None => Ok((answer, ratio)),
            Some(at) => {
                let detail = format!(
                    "token {at} must have log-probabilities under both policies: got {} and {}",
                    answer.log_probs[at], other[at]
                );
                Err(Error::new(ErrorKind::NonFinite, detail))
            }
        }
    }

    fn scored(&mut self, texts: &[Vec<u32>]) -> Result<Vec<f32>> {
        let scores = (self.reward_model)(texts)?;
        if scores.len() != texts.len() {
            let detail = format!("reward_model must give {} numbers: got {}", texts.len(), scores.len());
            return Err(Error::new(ErrorKind::UserCode, detail));
        }
        match scores.iter().find(|score| !score.is_finite()) {
            None => Ok(scores),
            Some(score) => {
                let detail = format!("reward_model must give finite numbers: got {score}");
                Err(Error::new(ErrorKind::NonFinite, detail))
            }
        }
    }

    /// Keeps the mean divergence of the drawn tokens.
    fn note(&mut self, answers: &[Answer], log_ratio: &[f32], steps: usize) {
        let drawn = answers.iter().enumerate().map(|(row, answer)| &log_ratio[row * steps..][..=answer.last]);
        let (mut sum, mut count) = (0.0, 0.0);
        for ratio in drawn.flatten() {
            sum += f64::from(*ratio);
            count += 1.0;
        }
        if count > 0.0 {
            self.divergences.push(sum / count);
        }
        if self.divergences.len() > DIVERGENCES_MAX {
            self.divergences.remove(0);
        }
    }
}

type Rows = Vec<Vec<u32>>;

/// Returns the prompts of a batch, and the whole texts without padding.
fn texts_of(batch: &PromptData) -> Result<(Rows, Rows)> {
    let (width, ends) = (batch.width()?, batch.prompt_ends()?);
    let (ids, mask) = (batch.input_ids.to_vec::<i64>()?, batch.attention_mask.to_vec::<i64>()?);
    let mut prompts = Vec::with_capacity(ends.len());
    let mut whole = Vec::with_capacity(ends.len());
    for (row, end) in ends.into_iter().enumerate() {
        let (ids, mask) = (&ids[row * width..][..width], &mask[row * width..][..width]);
        if end == 0 {
            let detail = format!("prompt {row} must have tokens before prompt_rindex: it has none");
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        prompts.push(u32s(&ids[..end])?);
        let kept: Vec<_> = ids.iter().zip(mask).filter(|(_, mask)| **mask != 0).map(|(id, _)| *id).collect();
        whole.push(u32s(&kept)?);
    }
    Ok((prompts, whole))
}

fn answer_of(ids: &[i64], start: usize, steps: usize, end_id: u32) -> Result<Answer> {
    if start + steps > ids.len() {
        let detail = format!("tokens must have {} in each row: got {}", start + steps, ids.len());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let end = ids[start..].iter().position(|id| *id == i64::from(end_id)).map_or(ids.len(), |at| start + at);
    let length = end.min(start + steps);
    Ok(Answer { ids: ids.to_vec(), start, length, last: (length - start).min(steps - 1) })
}

fn u32s(ids: &[i64]) -> Result<Vec<u32>> {
    let one = |id: &i64| {
        u32::try_from(*id).map_err(|_| {
            Error::new(ErrorKind::OutOfRange, format!("ids must be from 0 and below 2^32: got {id}"))
        })
    };
    ids.iter().map(one).collect()
}

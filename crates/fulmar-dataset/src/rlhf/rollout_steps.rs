//! Steps of answers to prompts as a dictionary, with their rewards. B prompts, N steps, W tokens of a row.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};

/// Most ids of the steps of one rollout: each step has the whole row.
const ROLLOUT_IDS_MAX: usize = 1 << 27;

/// A prompt with its answer.
pub(super) struct Answer {
    /// `[W]`, padded.
    pub ids: Vec<i64>,
    /// Number of tokens of the prompt.
    pub start: usize,
    /// Number of tokens without the end.
    pub length: usize,
    /// Step that draws the last token.
    pub last: usize,
}

/// Rewards of steps, `[B, N]`.
pub(super) struct Rewards {
    total: Vec<f32>,
    raw: Vec<f32>,
    kl: Vec<f32>,
}

impl Rewards {
    /// Gains at the ends of answers, less the penalty of the log-ratio at each step.
    pub fn of(answers: &[Answer], gains: &[f32], log_ratio: &[f32], kl_coef: f32) -> Self {
        let steps = log_ratio.len() / answers.len().max(1);
        let kl: Vec<_> = log_ratio.iter().map(|ratio| -kl_coef * ratio).collect();
        let mut raw = vec![0.0; kl.len()];
        for (row, (answer, gain)) in answers.iter().zip(gains).enumerate() {
            raw[row * steps + answer.last] = *gain;
        }
        let total = kl.iter().zip(&raw).map(|(kl, raw)| kl + raw).collect();
        Self { total, raw, kl }
    }
}

/// The size of the steps of a rollout.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub rows: usize,
    pub steps: usize,
    pub width: usize,
}

impl Size {
    /// Refuses more than [`ROLLOUT_IDS_MAX`] ids.
    pub fn checked(self) -> Result<Self> {
        let Self { rows, steps, width } = self;
        let count = rows.checked_mul(steps).and_then(|count| count.checked_mul(width));
        if count.is_some_and(|count| count <= ROLLOUT_IDS_MAX) {
            return Ok(self);
        }
        let detail = format!(
            "a rollout must have at most {ROLLOUT_IDS_MAX} ids: got {rows} rows of {steps} steps of {width}"
        );
        Err(Error::new(ErrorKind::LimitExceeded, detail))
    }
}

/// Returns the dictionary of the steps.
pub(super) fn steps_of(
    answers: &[Answer],
    size: Size,
    end_id: u32,
    log_probs: &Tensor,
    rewards: Rewards,
) -> Result<TensorDict> {
    let Size { rows, steps, .. } = size;
    let flags = |at: &dyn Fn(&Answer) -> bool| {
        let mut values = vec![false; rows * steps];
        for (row, answer) in answers.iter().enumerate().filter(|(_, answer)| at(answer)) {
            values[row * steps + answer.last] = true;
        }
        Tensor::from_vec(&[rows, steps, 1], values)
    };
    let mut next = TensorDict::new(&[rows, steps])?;
    set_seen(&mut next, answers, 1, size, end_id)?;
    next.set("done", flags(&|_| true)?)?;
    // An answer that ends with the last step is cut off, as in TorchRL.
    next.set("terminated", flags(&|answer| answer.last + 1 < steps)?)?;
    for (name, values) in [("reward", rewards.total), ("reward_raw", rewards.raw), ("reward_kl", rewards.kl)]
    {
        next.set(name, Tensor::from_vec(&[rows, steps, 1], values)?)?;
    }
    let actions = answers.iter().flat_map(|answer| &answer.ids[answer.start..answer.start + steps]);
    let mut dict = TensorDict::new(&[rows, steps])?;
    dict.set("action", Tensor::from_vec(&[rows, steps], actions.copied().collect())?)?;
    set_seen(&mut dict, answers, 0, size, end_id)?;
    dict.set("sample_log_prob", log_probs.clone())?;
    dict.set("next", next)?;
    Ok(dict)
}

/// Sets the tokens that each step sees, `[B, N, W]`, or those behind `shift` more steps.
fn set_seen(
    dict: &mut TensorDict,
    answers: &[Answer],
    shift: usize,
    Size { rows, steps, width }: Size,
    end_id: u32,
) -> Result<()> {
    let mut ids = vec![i64::from(end_id); rows * steps * width];
    let mut mask = vec![false; ids.len()];
    for (row, answer) in answers.iter().enumerate() {
        for step in 0..steps {
            let at = (row * steps + step) * width;
            let seen = answer.start + step + shift;
            ids[at..at + seen].copy_from_slice(&answer.ids[..seen]);
            mask[at..at + seen.min(answer.length)].fill(true);
        }
    }
    dict.set("input_ids", Tensor::from_vec(&[rows, steps, width], ids)?)?;
    dict.set("attention_mask", Tensor::from_vec(&[rows, steps, width], mask)?)
}

//! Logits as they are drawn from: with bias and penalties, and without the tokens that may not be drawn.

use std::borrow::Cow;
use std::collections::HashMap;

use fulmar_core::{Error, ErrorKind, Result};

use super::{DrawContext, DrawOptions};
use crate::batch::check_len;

/// Tokens of one word of a mask.
const WORD: usize = u32::BITS as usize;

/// The mask that lets `ids` through, out of `vocab_size` tokens: see [`DrawContext::allowed`].
///
/// # Errors
/// `OutOfRange` for an id that is not below `vocab_size`; `LimitExceeded` for one of more than
/// [`VOCAB_SIZE_MAX`](fulmar_core::limits::VOCAB_SIZE_MAX) tokens.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_objective::token_mask(33, &[0, 2, 32])?, [0b101, 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn token_mask(vocab_size: usize, ids: &[u32]) -> Result<Vec<u32>> {
    let max = fulmar_core::limits::VOCAB_SIZE_MAX;
    if vocab_size > max {
        let detail = format!("vocabSize must be at most {max}: got {vocab_size}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut words = vec![0; vocab_size.div_ceil(WORD)];
    for (index, &id) in ids.iter().enumerate() {
        let id = check_id(|| format!("ids[{index}]"), id, vocab_size)?;
        words[id / WORD] |= 1 << (id % WORD);
    }
    Ok(words)
}

/// The logits to draw from, `-inf` for a token that may not be drawn; the very same slice where nothing changes them.
pub(super) fn scores<'a>(
    logits: &'a [f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
) -> Result<Cow<'a, [f32]>> {
    let mut scores = Cow::Borrowed(logits);
    for &(id, bias) in &options.logit_bias {
        let id = check_id(|| "logitBias".to_owned(), id, logits.len())?;
        let scores = scores.to_mut();
        scores[id] = bounded(f64::from(scores[id]) + bias);
    }
    penalize(&mut scores, options, context)?;
    for (index, &id) in options.banned_ids.iter().enumerate() {
        let id = check_id(|| format!("bannedIds[{index}]"), id, logits.len())?;
        scores.to_mut()[id] = f32::NEG_INFINITY;
    }
    if let Some(allowed) = context.allowed {
        check_len("allowed", allowed.len(), "words of 32 tokens", logits.len().div_ceil(WORD))?;
        for (scores, word) in scores.to_mut().chunks_mut(WORD).zip(allowed) {
            for (bit, score) in scores.iter_mut().enumerate() {
                *score = if word >> bit & 1 == 1 { *score } else { f32::NEG_INFINITY };
            }
        }
    }
    let can_be_drawn = matches!(scores, Cow::Borrowed(_)) || scores.iter().any(|score| score.is_finite());
    if can_be_drawn {
        return Ok(scores);
    }
    Err(Error::new(ErrorKind::Empty, "allowed and bannedIds must leave at least one token: got none"))
}

fn penalize(scores: &mut Cow<'_, [f32]>, options: &DrawOptions, context: &DrawContext<'_>) -> Result<()> {
    for (name, ids) in [("promptIds", context.prompt_ids), ("outputIds", context.output_ids)] {
        for (index, &id) in ids.iter().enumerate() {
            check_id(|| format!("{name}[{index}]"), id, scores.len())?;
        }
    }
    let repetition = options.repetition_penalty as f32;
    let (presence, frequency) = (options.presence_penalty as f32, options.frequency_penalty as f32);
    if (repetition, presence, frequency) == (1.0, 0.0, 0.0) {
        return Ok(());
    }
    let mut num_drawn_of: HashMap<u32, u32> = context.prompt_ids.iter().map(|&id| (id, 0)).collect();
    for &id in context.output_ids {
        *num_drawn_of.entry(id).or_default() += 1;
    }
    for (id, num_drawn) in num_drawn_of {
        let score = scores[id as usize];
        let repeated = if score < 0.0 { score * repetition } else { score / repetition };
        let counted = repeated - frequency * num_drawn as f32;
        let penalized = counted - if num_drawn > 0 { presence } else { 0.0 };
        scores.to_mut()[id as usize] = bounded(f64::from(penalized));
    }
    Ok(())
}

/// A bias or a penalty neither bans a token nor makes it certain: `-inf` stands for what may not be drawn.
fn bounded(score: f64) -> f32 {
    score.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

fn check_id(name: impl Fn() -> String, id: u32, vocab_size: usize) -> Result<usize> {
    if (id as usize) < vocab_size {
        return Ok(id as usize);
    }
    let detail = format!("{} must be below the vocabulary's size {vocab_size}: got {id}", name());
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

//! The logits that are drawn from: with bias and penalties, and without banned tokens.

use std::borrow::Cow;
use std::collections::HashMap;

use fulmar_core::{Error, ErrorKind, Result};

use super::{DrawContext, DrawOptions};
use crate::batch::check_len;

/// Tokens of one word of a mask.
const WORD: usize = u32::BITS as usize;

/// Returns the mask that allows `ids` out of `vocab_size` tokens, see [`DrawContext::allowed`].
///
/// # Errors
/// `OutOfRange` for an id that is not below `vocab_size`; `LimitExceeded` for a mask of more than
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

/// The changes of logits by options and a context, as ids and numbers.
pub(super) struct Changes<'a> {
    /// Biases of ids, in the order in which they are added.
    pub biases: Vec<(u32, f64)>,
    /// Tokens with penalties, and how often each was drawn.
    pub seen: Vec<(u32, u32)>,
    /// Their penalties: repetition, frequency, presence.
    pub penalties: [f32; 3],
    pub banned: Vec<u32>,
    pub allowed: Option<&'a [u32]>,
}

impl<'a> Changes<'a> {
    /// Lists the changes of logits of `vocab_size` tokens.
    pub(super) fn of(options: &DrawOptions, context: &DrawContext<'a>, vocab_size: usize) -> Result<Self> {
        for &(id, _) in &options.logit_bias {
            check_id(|| "logitBias".to_owned(), id, vocab_size)?;
        }
        let context = Tokens::checked(context, vocab_size)?;
        let mut biases = options.logit_bias.clone();
        for (index, (ids, bias)) in options.sequence_bias.iter().enumerate() {
            check_ids(|| format!("the ids of sequenceBias[{index}]"), ids, vocab_size)?;
            biases.extend(context.next_of(ids).map(|last| (last, *bias)));
        }
        let mut banned = Vec::new();
        context.each_repeat(options.no_repeat_ngram_size, |id| banned.push(id));
        for (index, ids) in options.bad_words_ids.iter().enumerate() {
            check_ids(|| format!("badWordsIds[{index}]"), ids, vocab_size)?;
            banned.extend(context.next_of(ids));
        }
        check_ids(|| "bannedIds".to_owned(), &options.banned_ids, vocab_size)?;
        banned.extend(&options.banned_ids);
        if let Some(allowed) = context.allowed {
            check_len("allowed", allowed.len(), "words of 32 tokens", vocab_size.div_ceil(WORD))?;
        }
        let penalties = [options.repetition_penalty, options.frequency_penalty, options.presence_penalty]
            .map(|penalty| penalty as f32);
        let seen = if penalties == [1.0, 0.0, 0.0] { Vec::new() } else { context.counts() };
        Ok(Self { biases, seen, penalties, banned, allowed: context.allowed })
    }

    /// Returns the scores to draw from, `-inf` for a banned token; the same slice if nothing changes them.
    pub(super) fn scores<'l>(&self, logits: &'l [f32]) -> Result<Cow<'l, [f32]>> {
        let mut scores = Cow::Borrowed(logits);
        for &(id, bias) in &self.biases {
            add(scores.to_mut(), id as usize, bias);
        }
        for &(id, num_drawn) in &self.seen {
            self.penalize(&mut scores.to_mut()[id as usize], num_drawn);
        }
        for &id in &self.banned {
            scores.to_mut()[id as usize] = f32::NEG_INFINITY;
        }
        if let Some(allowed) = self.allowed {
            for (scores, word) in scores.to_mut().chunks_mut(WORD).zip(allowed) {
                for (bit, score) in scores.iter_mut().enumerate() {
                    *score = if word >> bit & 1 == 1 { *score } else { f32::NEG_INFINITY };
                }
            }
        }
        let can_be_drawn = matches!(scores, Cow::Borrowed(_)) || scores.iter().any(|score| score.is_finite());
        if can_be_drawn { Ok(scores) } else { Err(nothing_left()) }
    }

    fn penalize(&self, score: &mut f32, num_drawn: u32) {
        if *score == f32::NEG_INFINITY {
            return;
        }
        let [repetition, frequency, presence] = self.penalties;
        let repeated = if *score < 0.0 { *score * repetition } else { *score / repetition };
        let counted = repeated - frequency * num_drawn as f32;
        *score = bounded(f64::from(counted - if num_drawn > 0 { presence } else { 0.0 }));
    }
}

/// Returns the error for options that allow no token.
pub(super) fn nothing_left() -> Error {
    let detail = "allowed, bannedIds, badWordsIds and noRepeatNgramSize together must leave at least one token that may be drawn";
    Error::new(ErrorKind::Empty, detail)
}

/// The tokens so far: the prompt, then the drawn tokens.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    prompt: &'a [u32],
    drawn: &'a [u32],
    allowed: Option<&'a [u32]>,
}

impl<'a> Tokens<'a> {
    fn checked(context: &DrawContext<'a>, vocab_size: usize) -> Result<Self> {
        let DrawContext { prompt_ids: prompt, output_ids: drawn, allowed } = *context;
        check_ids(|| "promptIds".to_owned(), prompt, vocab_size)?;
        check_ids(|| "outputIds".to_owned(), drawn, vocab_size)?;
        Ok(Self { prompt, drawn, allowed })
    }

    fn len(self) -> usize {
        self.prompt.len() + self.drawn.len()
    }

    fn at(self, place: usize) -> u32 {
        match place.checked_sub(self.prompt.len()) {
            None => self.prompt[place],
            Some(place) => self.drawn[place],
        }
    }

    /// Returns whether the tokens from `place` on are `ids`.
    fn are(self, place: usize, ids: impl Iterator<Item = u32>) -> bool {
        ids.zip(place..).all(|(id, place)| self.at(place) == id)
    }

    /// Returns the last of `ids` if the tokens end with the others.
    fn next_of(self, ids: &[u32]) -> Option<u32> {
        let (last, before) = ids.split_last()?;
        let start = self.len().checked_sub(before.len())?;
        self.are(start, before.iter().copied()).then_some(*last)
    }

    /// Returns each token once, with the number of times that it was drawn.
    fn counts(self) -> Vec<(u32, u32)> {
        let mut num_drawn_of: HashMap<u32, u32> = self.prompt.iter().map(|&id| (id, 0)).collect();
        for &id in self.drawn {
            *num_drawn_of.entry(id).or_default() += 1;
        }
        num_drawn_of.into_iter().collect()
    }

    /// Calls `visit` with each token that would repeat an n-gram of length `size`.
    fn each_repeat(self, size: usize, mut visit: impl FnMut(u32)) {
        if size == 0 || self.len() < size {
            return;
        }
        let suffix = self.len() + 1 - size;
        for start in 0..=self.len() - size {
            if self.are(start, (suffix..self.len()).map(|place| self.at(place))) {
                visit(self.at(start + size - 1));
            }
        }
    }
}

/// Adds a bias to a score, unless its token is never drawn.
fn add(scores: &mut [f32], id: usize, bias: f64) {
    if scores[id] > f32::NEG_INFINITY {
        scores[id] = bounded(f64::from(scores[id]) + bias);
    }
}

/// Clamps a score: a bias or a penalty neither bans a token nor makes it certain; `-inf` is for banned
/// tokens.
fn bounded(score: f64) -> f32 {
    score.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

fn check_ids(name: impl Fn() -> String, ids: &[u32], vocab_size: usize) -> Result<()> {
    match ids.iter().position(|&id| id as usize >= vocab_size) {
        None => Ok(()),
        Some(index) => check_id(|| format!("{}[{index}]", name()), ids[index], vocab_size).map(drop),
    }
}

fn check_id(name: impl Fn() -> String, id: u32, vocab_size: usize) -> Result<usize> {
    if (id as usize) < vocab_size {
        return Ok(id as usize);
    }
    let detail = format!("{} must be below the vocabulary's size {vocab_size}: got {id}", name());
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

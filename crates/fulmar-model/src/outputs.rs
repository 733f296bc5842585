//! Drawn tokens and finished requests of an engine.

use fulmar_objective::Draw;

/// A drawn token.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The id of its request.
    pub request: u64,
    /// The token.
    pub id: u32,
    /// Its log-prob under the model itself (temperature 1).
    pub log_prob: f32,
    /// Its log-prob under the distribution it was drawn from.
    pub sampled_log_prob: f32,
    /// [`Decoder::version`](crate::Decoder::version) of the weights that it was drawn under.
    pub version: u64,
    /// The likeliest ids at its position with their log-probs, as many as the request asked for.
    pub top_log_probs: Vec<(u32, f32)>,
}

impl SampledToken {
    pub(crate) fn new(request: u64, draw: Draw, version: u64, top_log_probs: Vec<(u32, f32)>) -> Self {
        let Draw { id, log_prob, sampled_log_prob, .. } = draw;
        Self { request, id, log_prob, sampled_log_prob, version, top_log_probs }
    }
}

/// The reason why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop id was drawn; it is the last of the ids.
    Stop,
    /// `max_tokens` were drawn.
    Length,
    /// The request was aborted.
    Abort,
    /// The model's logits for it were not finite.
    NonFinite,
    /// Its options allowed no token.
    NoToken,
}

/// The drawn part of one sequence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    /// Drawn ids, the stop id included.
    pub ids: Vec<u32>,
    /// The model's own log-prob (temperature 1) of each id, with the bits of [`Decoder::forward`](crate::Decoder::forward).
    pub log_prob: Vec<f32>,
    /// Log-prob of each id under the distribution it was drawn from.
    pub sampled_log_prob: Vec<f32>,
    /// [`Decoder::version`](crate::Decoder::version) of the weights that each id was drawn under.
    pub versions: Vec<u64>,
    /// For each id, the likeliest ids at its position with their log-probs, the likeliest first.
    pub top_log_probs: Vec<Vec<(u32, f32)>>,
    /// The reason why it ended, or `None` while it runs.
    pub finish_reason: Option<FinishReason>,
}

impl Generated {
    /// Adds a token to the sequence.
    pub fn push(&mut self, token: SampledToken) {
        self.ids.push(token.id);
        self.log_prob.push(token.log_prob);
        self.sampled_log_prob.push(token.sampled_log_prob);
        self.versions.push(token.version);
        self.top_log_probs.push(token.top_log_probs);
    }
}

/// The results of an engine since the last call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outputs {
    /// Drawn tokens; the tokens of one request are in order.
    pub tokens: Vec<SampledToken>,
    /// The finished requests, with the reason.
    pub finished: Vec<(u64, FinishReason)>,
    /// Number of preemptions for want of pages since the engine was made.
    pub num_preemptions: u64,
    /// Number of speculative tokens since the engine was made.
    pub num_draft_tokens: u64,
    /// Number of them that were drawn.
    pub num_accepted_tokens: u64,
}

/// [`Outputs`] in flat arrays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlatOutputs {
    /// `[T]`: the request of each token.
    pub requests: Vec<f64>,
    /// `[T]`: the ids.
    pub ids: Vec<u32>,
    /// `[T]`: log-probs under the model.
    pub log_prob: Vec<f32>,
    /// `[T]`: log-probs under the distribution drawn from.
    pub sampled_log_prob: Vec<f32>,
    /// `[T]`: versions of the weights.
    pub versions: Vec<f64>,
    /// `[T + 1]`: bounds of each token's likeliest ids.
    pub top_offsets: Vec<u32>,
    /// The likeliest ids of all tokens.
    pub top_ids: Vec<u32>,
    /// Their log-probs.
    pub top_log_prob: Vec<f32>,
    /// `[F]`: the finished requests.
    pub finished: Vec<f64>,
    /// `[F]`: 1 for [`FinishReason::Stop`], 2 for [`FinishReason::Length`], 0 for [`FinishReason::Abort`], 3 for
    /// [`FinishReason::NonFinite`], 4 for [`FinishReason::NoToken`].
    pub finish: Vec<u8>,
    /// [`Outputs::num_draft_tokens`].
    pub num_draft_tokens: f64,
    /// [`Outputs::num_accepted_tokens`].
    pub num_accepted_tokens: f64,
}

impl From<Outputs> for FlatOutputs {
    fn from(outputs: Outputs) -> Self {
        let mut flat = Self {
            top_offsets: vec![0],
            num_draft_tokens: outputs.num_draft_tokens as f64,
            num_accepted_tokens: outputs.num_accepted_tokens as f64,
            ..Self::default()
        };
        for token in outputs.tokens {
            flat.requests.push(token.request as f64);
            flat.ids.push(token.id);
            flat.log_prob.push(token.log_prob);
            flat.sampled_log_prob.push(token.sampled_log_prob);
            flat.versions.push(token.version as f64);
            let (ids, log_probs): (Vec<u32>, Vec<f32>) = token.top_log_probs.into_iter().unzip();
            flat.top_ids.extend(ids);
            flat.top_log_prob.extend(log_probs);
            flat.top_offsets.push(flat.top_ids.len() as u32);
        }
        for (request, reason) in outputs.finished {
            flat.finished.push(request as f64);
            flat.finish.push(match reason {
                FinishReason::Abort => 0,
                FinishReason::Stop => 1,
                FinishReason::Length => 2,
                FinishReason::NonFinite => 3,
                FinishReason::NoToken => 4,
            });
        }
        flat
    }
}

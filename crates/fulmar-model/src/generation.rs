//! Sequences for a list of requests, from one engine.

use std::collections::HashMap;

use fulmar_core::{Error, ErrorKind, Result};

use crate::decoder::Decoder;
use crate::engine::Engine;
use crate::engine_options::EngineOptions;
use crate::outputs::{FinishReason, Generated};
use crate::request::{Request, SamplingParams};

/// Draws a sequence for each request, all in one new [`Engine`].
///
/// # Errors
/// `Empty` without a request, or if options allow no token; the errors of [`Engine::add`], with the request's
/// number; the errors of [`Engine::steps`]; `NonFinite`, with the request's number, if the model's logits for
/// it are not finite.
///
/// # Examples
/// ```
/// use fulmar_model::{Decoder, DecoderConfig, Request, SamplingParams, generate};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "qwen2", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let decoder = Decoder::new(config, 42)?;
/// let params = SamplingParams { max_tokens: 5, ..Default::default() };
/// let found = generate(&decoder, &[Request { prompt_ids: &[1, 2, 3], seed: 7 }], &params)?;
/// assert_eq!(found[0].ids.len(), 5);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn generate(
    decoder: &Decoder,
    requests: &[Request<'_>],
    params: &SamplingParams,
) -> Result<Vec<Generated>> {
    if requests.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "requests must hold at least one request: got 0"));
    }
    let mut engine = Engine::new(decoder.config(), EngineOptions::default())?;
    let mut index_of = HashMap::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let id = engine.add(request, params).map_err(|error| error.at(format!("request {index}")))?;
        index_of.insert(id, index);
    }
    while engine.steps(decoder, 1)? > 0 {}
    let mut generated = vec![Generated::default(); requests.len()];
    let outputs = engine.take_outputs();
    for token in outputs.tokens {
        generated[index_of[&token.request]].push(token);
    }
    for (request, reason) in outputs.finished {
        let index = index_of[&request];
        if reason == FinishReason::NonFinite {
            let drawn = generated[index].ids.len();
            let detail = format!("logits must be finite: one is not, after {drawn} drawn tokens");
            return Err(Error::new(ErrorKind::NonFinite, detail).at(format!("request {index}")));
        }
        if reason == FinishReason::NoToken {
            let drawn = generated[index].ids.len();
            let detail = format!(
                "the options must leave at least one token to draw: 0 are left after {drawn} drawn tokens"
            );
            return Err(Error::new(ErrorKind::Empty, detail).at(format!("request {index}")));
        }
        generated[index].finish_reason = Some(reason);
    }
    Ok(generated)
}

//! The face of `fulmar-chat`: messages, renderers and the ledger.

#![expect(clippy::too_many_arguments, reason = "a turn of a ledger is seven columns and options")]

use std::sync::Arc;

use fulmar::chat;
use fulmar::core::{index_from_f64, options_from_json};
use serde_json::json;
use wasm_bindgen::prelude::*;

mod conversations;
#[cfg(feature = "whole")]
mod history;
mod mask;

use crate::error::{Result, guard};
use crate::tokenizer::Tokenizer;

fn bytes(mask: &[bool]) -> Vec<u8> {
    mask.iter().map(|&bit| u8::from(bit)).collect()
}

/// Returns the words of an extension, or the name of a refusal.
fn bridged(bridge: &chat::Bridge) -> JsValue {
    match bridge {
        chat::Bridge::Extended(extension) => js_sys::Uint32Array::from(&extension.to_words()[..]).into(),
        chat::Bridge::Declined(refusal) => refusal.name().into(),
    }
}

/// Reads `num_packed` messages, or JSON.
fn read_messages(messages: &str, num_packed: Option<f64>) -> fulmar::core::Result<chat::History> {
    match num_packed {
        Some(num_packed) => chat::History::from_packed(messages, index_from_f64("num_packed", num_packed)?),
        None => chat::History::from_json(messages),
    }
}

fn render_options(add_generation_prompt: bool, tools: &str) -> fulmar::core::Result<chat::RenderOptions> {
    Ok(chat::RenderOptions { add_generation_prompt, tools: chat::Tools::from_json(tools)? })
}

/// Texts of `fulmar_chat::RenderedTexts`.
#[wasm_bindgen(getter_with_clone)]
pub struct RenderedTexts {
    pub text: String,
    pub ends: Vec<u32>,
}

/// Any `fulmar_chat::Renderer`.
#[wasm_bindgen]
pub struct Renderer {
    inner: Arc<dyn chat::Renderer>,
}

#[wasm_bindgen]
impl Renderer {
    /// Makes the renderer of a configuration; it shares the tokenizer.
    #[wasm_bindgen(constructor)]
    pub fn new(tokenizer: &Tokenizer, config: &str) -> Result<Self> {
        let tokenizer = Arc::clone(&tokenizer.inner);
        guard(|| {
            Ok(Self {
                inner: chat::create_renderer(tokenizer, &options_from_json("config", config)?)?.into(),
            })
        })
    }

    /// Returns the tokens of a conversation, see `Rendered::to_words`.
    pub fn render(
        &self,
        messages: &str,
        num_packed: Option<f64>,
        add_generation_prompt: bool,
        tools: &str,
    ) -> Result<Vec<u32>> {
        guard(move || {
            let history = read_messages(messages, num_packed)?;
            let options = render_options(add_generation_prompt, tools)?;
            Ok(self.inner.render(history.chat()?, &options)?.to_words())
        })
    }

    /// Returns the text of a conversation.
    #[wasm_bindgen(js_name = renderText)]
    pub fn render_text(
        &self,
        messages: &str,
        num_packed: Option<f64>,
        add_generation_prompt: bool,
        tools: &str,
    ) -> Result<String> {
        guard(move || {
            let history = read_messages(messages, num_packed)?;
            self.inner.render_text(history.chat()?, &render_options(add_generation_prompt, tools)?)
        })
    }

    /// Returns the texts of packed conversations, see `fulmar_chat::render_texts`.
    #[wasm_bindgen(js_name = renderTexts)]
    pub fn render_texts(&self, packed: &str, num_records: f64) -> Result<RenderedTexts> {
        guard(|| {
            let num_records = index_from_f64("num_records", num_records)?;
            let texts = chat::render_texts(&*self.inner, packed, num_records)?;
            Ok(RenderedTexts { text: texts.text, ends: texts.ends })
        })
    }

    /// Returns the tokens that the next prompt adds, see `Extension::to_words`, or the name of a refusal.
    #[wasm_bindgen(unchecked_return_type = "Uint32Array | string")]
    pub fn bridge(
        &self,
        prompt: &[u32],
        completion: &[u32],
        messages: &str,
        num_packed: Option<f64>,
        tools: &str,
    ) -> Result<JsValue> {
        guard(move || {
            let history = read_messages(messages, num_packed)?;
            let tools = chat::Tools::from_json(tools)?;
            Ok(bridged(&self.inner.bridge(prompt, completion, history.chat()?, &tools)?))
        })
    }

    /// Parses a completion, see `Parsed::to_text`.
    pub fn parse(&self, ids: &[u32], prompt: Option<Vec<u32>>, tools: &str) -> Result<String> {
        guard(|| {
            let options = chat::ParseOptions { prompt_ids: prompt, tools: chat::Tools::from_json(tools)? };
            Ok(self.inner.parse(ids, &options)?.to_text())
        })
    }

    /// Returns the constant properties, as JSON.
    pub fn facts(&self) -> Result<String> {
        guard(|| Ok(json!(self.inner.facts()).to_string()))
    }
}

/// Samples, flat: `offsets` is `[S + 1]`, the last three are `[S]`, the rest `[T]`. Without an advantage `advantages` is missing.
#[wasm_bindgen(getter_with_clone)]
pub struct Samples {
    pub offsets: Vec<u32>,
    pub ids: Vec<u32>,
    pub mask: Vec<u8>,
    #[wasm_bindgen(js_name = logProbs)]
    pub log_probs: Vec<f32>,
    #[wasm_bindgen(js_name = sampledLogProbs)]
    pub sampled_log_probs: Vec<f32>,
    pub versions: Vec<u32>,
    pub advantages: Vec<f32>,
    #[wasm_bindgen(js_name = turnIds)]
    pub turn_ids: Vec<u32>,
    #[wasm_bindgen(js_name = minPolicyVersions)]
    pub min_policy_versions: Vec<u32>,
    #[wasm_bindgen(js_name = maxPolicyVersions)]
    pub max_policy_versions: Vec<u32>,
}

impl Samples {
    fn new(samples: chat::Samples, advantages: Vec<f32>) -> Self {
        Self {
            mask: bytes(&samples.mask),
            offsets: samples.offsets,
            ids: samples.ids,
            log_probs: samples.log_probs,
            sampled_log_probs: samples.sampled_log_probs,
            versions: samples.versions,
            advantages,
            turn_ids: samples.turn_ids,
            min_policy_versions: samples.min_policy_versions,
            max_policy_versions: samples.max_policy_versions,
        }
    }
}

/// The ledger of `fulmar_chat::Ledger`.
#[wasm_bindgen]
pub struct Ledger {
    inner: chat::Ledger,
}

impl From<chat::Ledger> for Ledger {
    fn from(inner: chat::Ledger) -> Self {
        Self { inner }
    }
}

#[wasm_bindgen]
impl Ledger {
    /// Returns an empty ledger.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(chat::Ledger::default().into()))
    }

    /// Reads the JSON form.
    #[wasm_bindgen(js_name = fromJson)]
    pub fn from_json(text: &str) -> Result<Self> {
        guard(|| Ok(chat::Ledger::from_json(text)?.into()))
    }

    /// Returns the JSON form.
    #[wasm_bindgen(js_name = toJson)]
    pub fn to_json(&self) -> Result<String> {
        guard(|| Ok(self.inner.to_json()))
    }

    /// Reads the binary form.
    #[wasm_bindgen(js_name = fromBytes)]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        guard(|| Ok(chat::Ledger::from_bytes(bytes)?.into()))
    }

    /// Returns the binary form.
    #[wasm_bindgen(js_name = toBytes)]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        guard(|| Ok(self.inner.to_bytes()))
    }

    /// Records one turn; where it was put, as JSON.
    #[wasm_bindgen(js_name = recordTurn)]
    pub fn record_turn(
        &mut self,
        prompt_ids: &[u32],
        completion_ids: &[u32],
        log_probs: &[f32],
        sampled_log_probs: &[f32],
        versions: Option<Vec<u32>>,
        origins: Option<Vec<u8>>,
        message_indices: Option<Vec<i32>>,
        options: &str,
    ) -> Result<String> {
        guard(move || {
            let columns = chat::TurnColumns {
                prompt_ids,
                completion_ids,
                log_probs,
                sampled_log_probs,
                versions: versions.as_deref(),
                origins: origins.as_deref(),
                message_indices: message_indices.as_deref(),
            };
            let options = options_from_json("turn", options)?;
            Ok(json!(self.inner.record_columns(&columns, &options)?).to_string())
        })
    }

    /// Returns the number of stored tokens.
    #[wasm_bindgen(js_name = numTokens)]
    pub fn num_tokens(&self) -> Result<f64> {
        guard(|| Ok(self.inner.num_tokens() as f64))
    }

    /// Returns the number of recorded turns.
    #[wasm_bindgen(js_name = numTurns)]
    pub fn num_turns(&self) -> Result<f64> {
        guard(|| Ok(self.inner.num_turns() as f64))
    }

    /// Returns the tokens of the last turn's path.
    #[wasm_bindgen(js_name = pathIds)]
    pub fn path_ids(&self) -> Result<Vec<u32>> {
        guard(|| Ok(self.inner.path_ids()))
    }

    /// Returns the samples without advantages.
    pub fn samples(&self) -> Result<Samples> {
        guard(|| Ok(Samples::new(self.inner.samples()?, Vec::new())))
    }

    /// Returns the samples with the rollout's advantage.
    #[wasm_bindgen(js_name = trainingSamples)]
    pub fn training_samples(&self, advantage: Option<f64>) -> Result<Samples> {
        guard(|| {
            let samples = self.inner.samples()?;
            let advantages = samples.advantages(advantage.map(|advantage| advantage as f32))?;
            Ok(Samples::new(samples, advantages))
        })
    }
}

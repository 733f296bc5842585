//! The face of `fulmar-chat`: messages, renderers and the ledger.

#![expect(clippy::too_many_arguments, reason = "a turn of a ledger is seven columns and options")]

use std::sync::Arc;

use fulmar::chat;
use fulmar::core::{Error, ErrorKind, index_from_f64, options_from_json};
use napi::Env;
use napi::bindgen_prelude::{Either, Float32Array, Uint8Array, Uint32Array, Uint32ArraySlice, Utf16String};
use napi_derive::napi;
use serde_json::json;

mod conversations;
mod history;

use crate::error::{Result, coded, guard};
use crate::memory;
use crate::slot::Slot;
use crate::text::{JsText, js_text, rust_text};
use crate::tokenizer::Tokenizer;

fn bytes(mask: &[bool]) -> Uint8Array {
    mask.iter().map(|&bit| u8::from(bit)).collect::<Vec<_>>().into()
}

/// Returns a copy of `words` in JavaScript's memory. Transferring Rust's memory needs a finaliser, which costs more than copying a few
/// words.
fn copied<'env>(env: &'env Env, words: &[u32]) -> Result<Uint32ArraySlice<'env>> {
    Uint32ArraySlice::copy_from(env, words).map_err(|error| {
        let detail = format!("out of memory: JavaScript has no room for {} ids", words.len());
        coded(env, &Error::new(ErrorKind::OutOfMemory, detail).because(error))
    })
}

/// Returns the words of an extension, or the name of a refusal.
fn bridged<'env>(env: &'env Env, bridge: &chat::Bridge) -> Result<Either<Uint32ArraySlice<'env>, String>> {
    match bridge {
        chat::Bridge::Extended(extension) => Ok(Either::A(copied(env, &extension.to_words())?)),
        chat::Bridge::Declined(refusal) => Ok(Either::B(refusal.name().to_owned())),
    }
}

/// Reads `num_packed` messages, or JSON.
fn read_messages(messages: &Utf16String, num_packed: Option<f64>) -> fulmar::core::Result<chat::History> {
    let text = rust_text(messages);
    match num_packed {
        Some(num_packed) => chat::History::from_packed(&text, index_from_f64("num_packed", num_packed)?),
        None => chat::History::from_json(&text),
    }
}

fn render_options(add_generation_prompt: bool, tools: &str) -> fulmar::core::Result<chat::RenderOptions> {
    Ok(chat::RenderOptions { add_generation_prompt, tools: chat::Tools::from_json(tools)? })
}

/// Texts of `fulmar_chat::RenderedTexts`.
#[napi(object, object_from_js = false)]
pub struct RenderedTexts {
    #[napi(ts_type = "string")]
    pub text: JsText,
    #[napi(ts_type = "Uint32Array")]
    pub ends: memory::Uint32Array,
}

/// Any `fulmar_chat::Renderer`.
#[napi]
pub struct Renderer {
    inner: Slot<Arc<dyn chat::Renderer>>,
}

#[napi]
impl Renderer {
    /// Makes the renderer of a configuration; it shares the tokenizer.
    #[napi(constructor)]
    pub fn new(tokenizer: &Tokenizer, config: String) -> Result<Self> {
        guard(|| {
            let config = options_from_json("config", &config)?;
            let renderer = chat::create_renderer(tokenizer.share()?, &config)?;
            Ok(Self { inner: Slot::new("renderer", renderer.into()) })
        })
    }

    /// Returns the tokens of a conversation, see `Rendered::to_words`.
    #[napi]
    pub fn render(
        &self,
        messages: Utf16String,
        num_packed: Option<f64>,
        add_generation_prompt: bool,
        tools: String,
    ) -> Result<Uint32Array> {
        guard(|| {
            let history = read_messages(&messages, num_packed)?;
            let options = render_options(add_generation_prompt, &tools)?;
            self.inner.with(|renderer| Ok(renderer.render(history.chat()?, &options)?.to_words().into()))
        })
    }

    /// Returns the text of a conversation.
    #[napi(ts_return_type = "string")]
    pub fn render_text(
        &self,
        messages: Utf16String,
        num_packed: Option<f64>,
        add_generation_prompt: bool,
        tools: String,
    ) -> Result<JsText> {
        guard(|| {
            let history = read_messages(&messages, num_packed)?;
            let options = render_options(add_generation_prompt, &tools)?;
            self.inner.with(|renderer| Ok(js_text(renderer.render_text(history.chat()?, &options)?)))
        })
    }

    /// Returns the texts of packed conversations, see `fulmar_chat::render_texts`.
    #[napi]
    pub fn render_texts(&self, packed: Utf16String, num_records: f64) -> Result<RenderedTexts> {
        guard(|| {
            let (packed, num_records) = (rust_text(&packed), index_from_f64("num_records", num_records)?);
            let texts = self.inner.with(|renderer| chat::render_texts(&**renderer, &packed, num_records))?;
            Ok(RenderedTexts { text: js_text(texts.text), ends: texts.ends.into() })
        })
    }

    /// Returns the tokens that the next prompt adds, see `Extension::to_words`, or the name of a refusal.
    #[napi]
    pub fn bridge<'env>(
        &self,
        env: &'env Env,
        prompt: &[u32],
        completion: &[u32],
        messages: Utf16String,
        num_packed: Option<f64>,
        tools: String,
    ) -> Result<Either<Uint32ArraySlice<'env>, String>> {
        let bridge = guard(|| {
            let history = read_messages(&messages, num_packed)?;
            let tools = chat::Tools::from_json(&tools)?;
            self.inner.with(|renderer| renderer.bridge(prompt, completion, history.chat()?, &tools))
        })?;
        bridged(env, &bridge)
    }

    /// Parses a completion, see `Parsed::to_text`.
    #[napi(ts_return_type = "string")]
    pub fn parse(&self, ids: &[u32], prompt: Option<&[u32]>, tools: String) -> Result<JsText> {
        guard(|| {
            let tools = chat::Tools::from_json(&tools)?;
            let options = chat::ParseOptions { prompt_ids: prompt.map(<[u32]>::to_vec), tools };
            self.inner.with(|renderer| Ok(js_text(renderer.parse(ids, &options)?.to_text())))
        })
    }

    /// Returns the constant properties, as JSON.
    #[napi]
    pub fn facts(&self) -> Result<String> {
        guard(|| self.inner.with(|renderer| Ok(json!(renderer.facts()).to_string())))
    }

    /// Drops the renderer.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// Samples, flat: `offsets` is `[S + 1]`, the last three are `[S]`, the rest `[T]`. Without an advantage `advantages` is missing.
#[napi(object)]
pub struct Samples {
    pub offsets: Uint32Array,
    pub ids: Uint32Array,
    pub mask: Uint8Array,
    pub log_probs: Float32Array,
    pub sampled_log_probs: Float32Array,
    pub versions: Uint32Array,
    pub advantages: Float32Array,
    pub turn_ids: Uint32Array,
    pub min_policy_versions: Uint32Array,
    pub max_policy_versions: Uint32Array,
}

impl Samples {
    fn new(samples: chat::Samples, advantages: Vec<f32>) -> Self {
        Self {
            mask: bytes(&samples.mask),
            offsets: samples.offsets.into(),
            ids: samples.ids.into(),
            log_probs: samples.log_probs.into(),
            sampled_log_probs: samples.sampled_log_probs.into(),
            versions: samples.versions.into(),
            advantages: advantages.into(),
            turn_ids: samples.turn_ids.into(),
            min_policy_versions: samples.min_policy_versions.into(),
            max_policy_versions: samples.max_policy_versions.into(),
        }
    }
}

/// The ledger of `fulmar_chat::Ledger`.
#[napi]
pub struct Ledger {
    inner: Slot<chat::Ledger>,
}

impl From<chat::Ledger> for Ledger {
    fn from(ledger: chat::Ledger) -> Self {
        Self { inner: Slot::new("Ledger", ledger) }
    }
}

#[napi]
impl Ledger {
    /// Returns an empty ledger.
    #[napi(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(chat::Ledger::default().into()))
    }

    /// Reads the JSON form.
    #[napi(factory)]
    pub fn from_json(text: String) -> Result<Self> {
        guard(|| Ok(chat::Ledger::from_json(&text)?.into()))
    }

    /// Returns the JSON form.
    #[napi]
    pub fn to_json(&self) -> Result<String> {
        guard(|| self.inner.with(|ledger| Ok(ledger.to_json())))
    }

    /// Reads the binary form.
    #[napi(factory)]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        guard(|| Ok(chat::Ledger::from_bytes(bytes)?.into()))
    }

    /// Returns the binary form.
    #[napi]
    pub fn to_bytes(&self) -> Result<Uint8Array> {
        guard(|| self.inner.with(|ledger| Ok(ledger.to_bytes().into())))
    }

    /// Records one turn; returns its place, as JSON. Arguments are positional: napi reads an object of arrays ten times as slowly.
    #[napi]
    pub fn record_turn(
        &self,
        prompt_ids: &[u32],
        completion_ids: &[u32],
        log_probs: &[f32],
        sampled_log_probs: &[f32],
        versions: Option<&[u32]>,
        origins: Option<&[u8]>,
        message_indices: Option<&[i32]>,
        options: String,
    ) -> Result<String> {
        let columns = chat::TurnColumns {
            prompt_ids,
            completion_ids,
            log_probs,
            sampled_log_probs,
            versions,
            origins,
            message_indices,
        };
        guard(|| {
            let options = options_from_json("turn", &options)?;
            self.inner.with(|ledger| Ok(json!(ledger.record_columns(&columns, &options)?).to_string()))
        })
    }

    /// Returns the number of stored tokens.
    #[napi]
    pub fn num_tokens(&self) -> Result<f64> {
        guard(|| self.inner.with(|ledger| Ok(ledger.num_tokens() as f64)))
    }

    /// Returns the number of recorded turns.
    #[napi]
    pub fn num_turns(&self) -> Result<f64> {
        guard(|| self.inner.with(|ledger| Ok(ledger.num_turns() as f64)))
    }

    /// Returns the tokens of the last turn's path.
    #[napi]
    pub fn path_ids(&self) -> Result<Uint32Array> {
        guard(|| self.inner.with(|ledger| Ok(ledger.path_ids().into())))
    }

    /// Returns the samples without advantages.
    #[napi]
    pub fn samples(&self) -> Result<Samples> {
        guard(|| self.inner.with(|ledger| Ok(Samples::new(ledger.samples()?, Vec::new()))))
    }

    /// Returns the samples with the rollout's advantage.
    #[napi]
    pub fn training_samples(&self, advantage: Option<f64>) -> Result<Samples> {
        guard(|| {
            let samples = self.inner.with(|ledger| ledger.samples())?;
            let advantages = samples.advantages(advantage.map(|advantage| advantage as f32))?;
            Ok(Samples::new(samples, advantages))
        })
    }

    /// Drops the ledger.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

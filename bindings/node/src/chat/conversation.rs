//! Conversations that grow turn by turn.

use fulmar::chat;
use fulmar::core::exact_options_from_json;
use napi::Env;
use napi::bindgen_prelude::{Either, Uint32Array, Uint32ArraySlice, Utf16String};
use napi_derive::napi;

use super::{Renderer, bridged, read_messages};
use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::text::{JsText, js_text};

/// The conversation of `fulmar_chat::Conversation`.
#[napi]
pub struct Conversation {
    inner: Slot<chat::Conversation>,
}

#[napi]
impl Conversation {
    /// Makes a conversation without tokens; it shares the renderer.
    #[napi(constructor)]
    pub fn new(renderer: &Renderer, tools: String) -> Result<Self> {
        guard(|| {
            let tools = exact_options_from_json("tools", &tools)?;
            let renderer = renderer.inner.with(|renderer| Ok(renderer.clone()))?;
            Ok(Self { inner: Slot::new("Conversation", chat::Conversation::new(renderer, tools)) })
        })
    }

    /// Replaces the prompt, see `Rendered::to_words`.
    #[napi]
    pub fn start(&self, messages: Utf16String, num_packed: Option<f64>) -> Result<Uint32Array> {
        guard(|| {
            let history = read_messages(&messages, num_packed)?;
            self.inner.with(|conversation| Ok(conversation.start(history.chat()?)?.to_words().into()))
        })
    }

    /// Parses a completion of the prompt, see `Parsed::to_text`.
    #[napi(ts_return_type = "string")]
    pub fn parse(&self, completion: &[u32]) -> Result<JsText> {
        guard(|| self.inner.with(|conversation| Ok(js_text(conversation.parse(completion)?.to_text()))))
    }

    /// Extends the prompt, see `Extension::to_words`, or returns the name of a refusal.
    #[napi]
    pub fn extend<'env>(
        &self,
        env: &'env Env,
        completion: &[u32],
        messages: Utf16String,
        num_packed: Option<f64>,
    ) -> Result<Either<Uint32ArraySlice<'env>, String>> {
        let bridge = guard(|| {
            let history = read_messages(&messages, num_packed)?;
            self.inner.with(|conversation| conversation.extend(completion, history.chat()?))
        })?;
        bridged(env, &bridge)
    }

    /// Drops the tokens.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

//! Conversations that grow turn by turn.

use fulmar::chat;
use fulmar::core::{exact_options_from_json, index_from_f64};
use napi::bindgen_prelude::{Uint32Array, Utf16String};
use napi_derive::napi;

use super::{Ledger, Renderer, read_messages};
use crate::error::{Result, guard};
use crate::memory;
use crate::slot::Slot;
use crate::text::{JsText, js_text, rust_text};

/// Answers of `fulmar_chat::Answers`.
#[napi(object, object_from_js = false)]
pub struct Answers {
    #[napi(ts_type = "Uint32Array")]
    pub words: memory::Uint32Array,
    #[napi(ts_type = "string")]
    pub text: JsText,
}

/// The conversations of `fulmar_chat::Conversations`.
#[napi]
pub struct Conversations {
    inner: Slot<chat::Conversations>,
}

#[napi]
impl Conversations {
    /// Makes no conversations of a renderer, which they share.
    #[napi(constructor)]
    pub fn new(renderer: &Renderer) -> Result<Self> {
        guard(|| {
            let renderer = renderer.inner.with(|renderer| Ok(renderer.clone()))?;
            Ok(Self { inner: Slot::new("Conversations", chat::Conversations::new(renderer)) })
        })
    }

    /// Opens a conversation without tokens; returns its key.
    #[napi]
    pub fn open(&self, tools: String) -> Result<u32> {
        guard(|| {
            let tools = exact_options_from_json("tools", &tools)?;
            self.inner.with(|conversations| conversations.open(tools))
        })
    }

    /// Closes a conversation.
    #[napi]
    pub fn close(&self, key: u32) -> Result<()> {
        guard(|| {
            self.inner.with(|conversations| {
                conversations.close(key);
                Ok(())
            })
        })
    }

    /// Replaces the prompt, see `Rendered::to_words`.
    #[napi]
    pub fn start(&self, key: u32, messages: Utf16String, num_packed: Option<f64>) -> Result<Uint32Array> {
        guard(|| {
            let history = read_messages(&messages, num_packed)?;
            self.inner
                .with(|conversations| Ok(conversations.get(key)?.start(history.chat()?)?.to_words().into()))
        })
    }

    /// Runs steps, see `fulmar_chat::Conversations::run`.
    #[napi]
    pub fn run(
        &self,
        steps: &[u32],
        floats: &[f32],
        packed: Utf16String,
        num_records: f64,
    ) -> Result<Answers> {
        guard(|| {
            let (packed, num_records) = (rust_text(&packed), index_from_f64("num_records", num_records)?);
            let run = |conversations: &mut chat::Conversations| {
                conversations.run(steps, floats, &packed, num_records)
            };
            let answers = self.inner.with(run)?;
            Ok(Answers { words: answers.words.into(), text: js_text(answers.text) })
        })
    }

    /// Returns the ledger of a conversation, which begins an empty one.
    #[napi]
    pub fn take_ledger(&self, key: u32) -> Result<Ledger> {
        guard(|| self.inner.with(|conversations| Ok(conversations.get(key)?.take_ledger().into())))
    }

    /// Drops all conversations.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

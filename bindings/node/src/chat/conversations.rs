//! Conversations that grow turn by turn.

use fulmar::chat;
use fulmar::core::index_from_f64;
use napi::bindgen_prelude::{Uint32Array, Utf16String};
use napi_derive::napi;

use super::{Ledger, Renderer, read_messages};
use crate::error::{Result, guard};
use crate::memory;
use crate::slot::Slot;
use crate::text::{JsText, js_text, rust_text};

/// Answers of `fulmar_chat::Answers`; without `words` if these are where the steps were.
#[napi(object, object_from_js = false)]
pub struct Answers {
    #[napi(ts_type = "Uint32Array")]
    pub words: Option<memory::Uint32Array>,
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
            let tools = chat::Tools::from_json(&tools)?;
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

    /// Runs the steps in the first `num_words` of `words`, see `fulmar_chat::Conversations::run`. The words of the answers take
    /// their place, after their number, if they fit: making an array here costs more than in JavaScript.
    #[napi]
    pub fn run(
        &self,
        #[napi(ts_arg_type = "Uint32Array")] words: memory::Words<'_>,
        num_words: f64,
        floats: Option<&[f32]>,
        packed: Utf16String,
        num_records: f64,
    ) -> Result<Answers> {
        let memory::Words(words) = words;
        guard(|| {
            let num_words = index_from_f64("num_words", num_words)?.min(words.len());
            let (packed, num_records) = (rust_text(&packed), index_from_f64("num_records", num_records)?);
            let floats = floats.unwrap_or_default();
            let run = |conversations: &mut chat::Conversations| {
                conversations.run(&words[..num_words], floats, &packed, num_records)
            };
            let answers = self.inner.with(run)?;
            let words = write_words(words, answers.words).map(Into::into);
            Ok(Answers { words, text: js_text(answers.text) })
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

/// Writes the number of `words` and these to `place`; returns them if they do not fit.
fn write_words(place: &mut [u32], words: Vec<u32>) -> Option<Vec<u32>> {
    match place.split_first_mut() {
        Some((count, rest)) if rest.len() >= words.len() => {
            *count = words.len() as u32;
            rest[..words.len()].copy_from_slice(&words);
            None
        }
        _ => Some(words),
    }
}

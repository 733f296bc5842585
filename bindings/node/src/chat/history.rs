//! Histories: messages in the core, through templates and back.

use fulmar::chat;
use fulmar::core::{exact_options_from_json, index_from_f64, indices_from_f64, options_from_json};
use napi::bindgen_prelude::{Int32Array, Uint8Array, Uint32Array, Utf16String};
use napi_derive::napi;
use serde_json::json;

use super::{bytes, read_messages};
use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::template::Template;
use crate::text::{JsText, js_text};
use crate::tokenizer::Tokenizer;

/// Returns a piece of content, checked.
#[napi]
pub fn content_base(piece: String) -> Result<String> {
    guard(|| Ok(json!(options_from_json::<chat::ContentBase>("content", &piece)?).to_string()))
}

/// Ids of conversations, concatenated. `offsets` is `[S + 1]`, the others `[T]`; the mask is empty unless
/// it was requested.
#[napi(object)]
pub struct EncodedChats {
    pub offsets: Uint32Array,
    pub ids: Uint32Array,
    pub assistant_mask: Uint8Array,
}

/// Messages of `fulmar_chat::History`.
#[napi]
pub struct History {
    inner: Slot<chat::History>,
}

impl From<chat::History> for History {
    fn from(history: chat::History) -> Self {
        Self { inner: Slot::new("History", history) }
    }
}

#[napi]
impl History {
    /// Reads so many packed messages, or JSON.
    #[napi(constructor)]
    pub fn new(messages: Utf16String, num_packed: Option<f64>) -> Result<Self> {
        guard(|| Ok(read_messages(&messages, num_packed)?.into()))
    }

    /// Returns the messages of a rendered text.
    #[napi(factory)]
    pub fn from_text(text: String, template: Option<String>, eos_token: Option<String>) -> Result<Self> {
        guard(|| {
            let format = chat::TextFormat::choose(template.as_deref(), &text)?;
            Ok(chat::from_text(&text, format, eos_token.as_deref())?.into())
        })
    }

    /// Returns the example of a shape.
    #[napi(factory)]
    pub fn zero(shape: &[f64]) -> Result<Self> {
        guard(|| {
            let shape = indices_from_f64("shape", shape)?.into_iter().map(Some).collect();
            Ok(chat::HistorySpec { shape }.zero()?.into())
        })
    }

    /// Returns the length of each dimension, -1 where rows differ.
    #[napi]
    pub fn shape(&self) -> Result<Int32Array> {
        guard(|| self.inner.with(|history| Ok(history.lengths().into())))
    }

    /// Returns the dictionaries as JSON.
    #[napi]
    pub fn to_json(&self) -> Result<String> {
        guard(|| self.inner.with(|history| Ok(history.to_json())))
    }

    /// Returns a history with the same messages.
    #[napi]
    pub fn copy(&self) -> Result<Self> {
        guard(|| self.inner.with(|history| Ok(history.clone().into())))
    }

    /// Returns a part of the first dimension.
    #[napi]
    pub fn at(&self, index: f64) -> Result<Self> {
        guard(|| {
            let at = index_from_f64("index", index)?.cast_signed();
            self.inner.with(|history| Ok(history.at(at)?.into()))
        })
    }

    /// Returns a range of the first dimension.
    #[napi]
    pub fn slice(&self, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let (start, end) = (index_from_f64("start", start)?, index_from_f64("end", end)?);
            self.inner.with(|history| Ok(history.slice(start, end)?.into()))
        })
    }

    /// Returns a view with a new dimension of length 1.
    #[napi]
    pub fn unsqueeze(&self, dim: f64) -> Result<Self> {
        guard(|| {
            let dim = index_from_f64("dim", dim)?.cast_signed();
            self.inner.with(|history| Ok(history.unsqueeze(dim)?.into()))
        })
    }

    /// Returns the padded view.
    #[napi]
    pub fn padded(&self) -> Result<Self> {
        guard(|| self.inner.with(|history| Ok(history.padded().into())))
    }

    /// Returns the history without padding.
    #[napi]
    pub fn unpadded(&self) -> Result<Self> {
        guard(|| self.inner.with(|history| Ok(history.unpadded().into())))
    }

    /// Adds one part, in place.
    #[napi]
    pub fn append(&self, dim: f64, item: &History) -> Result<()> {
        guard(|| {
            let (dim, item) =
                (index_from_f64("dim", dim)?.cast_signed(), item.inner.with(|item| Ok(item.clone()))?);
            self.inner.with(|history| history.append_at(dim, &item))
        })
    }

    /// Joins parts, in place.
    #[napi]
    pub fn extend(&self, dim: f64, items: &History) -> Result<()> {
        guard(|| {
            let (dim, items) =
                (index_from_f64("dim", dim)?.cast_signed(), items.inner.with(|items| Ok(items.clone()))?);
            self.inner.with(|history| history.extend_at(dim, items))
        })
    }

    /// Returns the text of each conversation.
    #[napi(ts_return_type = "string[]")]
    pub fn render(&self, template: &Template, options: String) -> Result<Vec<JsText>> {
        guard(|| {
            let options = exact_options_from_json("options", &options)?;
            let template = template.inner.with(|template| Ok(template.clone()))?;
            let history = self.inner.with(|history| Ok(history.clone()))?;
            let chats = history.apply_chat_template(&template, None, &options)?;
            Ok(chats.into_iter().map(|chat| js_text(chat.text)).collect())
        })
    }

    /// Returns the ids of each conversation, and its mask.
    #[napi]
    pub fn encode(
        &self,
        template: &Template,
        tokenizer: &Tokenizer,
        options: String,
    ) -> Result<EncodedChats> {
        guard(|| {
            let options = exact_options_from_json("options", &options)?;
            let template = template.inner.with(|template| Ok(template.clone()))?;
            let history = self.inner.with(|history| Ok(history.clone()))?;
            let chats = history.apply_chat_template(&template, Some(&*tokenizer.share()?), &options)?;
            let chats = chat::EncodedChats::new(&chats)?;
            Ok(EncodedChats {
                offsets: chats.offsets.into(),
                ids: chats.ids.into(),
                assistant_mask: bytes(&chats.assistant_mask),
            })
        })
    }

    /// Drops the messages.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// Token ids and where they came from; every column is `[T]`.
#[napi(object)]
pub struct Rendered {
    pub ids: Uint32Array,
    pub message_indices: Int32Array,
    pub sampled_mask: Uint8Array,
    pub is_content: Uint8Array,
    pub origins: Uint8Array,
}

/// Masks by origin, each `[T]`.
#[napi(object)]
pub struct TokenMasks {
    pub assistant: Uint8Array,
    pub sampled: Uint8Array,
    pub end_of_turn: Uint8Array,
}

/// Returns the masks of rendered tokens.
#[napi]
pub fn token_masks(rendered: Rendered, stop_ids: &[u32], options: String) -> Result<TokenMasks> {
    guard(|| {
        let columns = chat::RenderedColumns {
            ids: &rendered.ids,
            message_indices: &rendered.message_indices,
            sampled_mask: &rendered.sampled_mask,
            is_content: &rendered.is_content,
            origins: &rendered.origins,
        };
        let masks = chat::token_masks(&columns.read()?, stop_ids, &options_from_json("options", &options)?)?;
        Ok(TokenMasks {
            assistant: bytes(&masks.assistant),
            sampled: bytes(&masks.sampled),
            end_of_turn: bytes(&masks.end_of_turn),
        })
    })
}

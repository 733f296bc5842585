//! Histories: messages in the core, through templates and back.

use std::cell::RefCell;

use fulmar::chat;
use fulmar::core::{exact_options_from_json, index_from_f64, indices_from_f64, options_from_json};
use serde_json::json;
use wasm_bindgen::prelude::*;

use super::{bytes, read_messages};
use crate::error::{Result, guard};
use crate::template::Template;
use crate::tokenizer::Tokenizer;

/// Returns a piece of content, checked.
#[wasm_bindgen(js_name = contentBase)]
pub fn content_base(piece: &str) -> Result<String> {
    guard(|| Ok(json!(options_from_json::<chat::ContentBase>("content", piece)?).to_string()))
}

/// Ids of conversations, concatenated. `offsets` is `[S + 1]`, the others `[T]`; the mask is empty unless
/// it was requested.
#[wasm_bindgen(getter_with_clone)]
pub struct EncodedChats {
    pub offsets: Vec<u32>,
    pub ids: Vec<u32>,
    #[wasm_bindgen(js_name = assistantMask)]
    pub assistant_mask: Vec<u8>,
}

/// Messages of `fulmar_chat::History`.
#[wasm_bindgen]
pub struct History {
    inner: RefCell<chat::History>,
}

impl From<chat::History> for History {
    fn from(history: chat::History) -> Self {
        Self { inner: RefCell::new(history) }
    }
}

#[wasm_bindgen]
impl History {
    /// Reads so many packed messages, or JSON.
    #[wasm_bindgen(constructor)]
    pub fn new(messages: &str, num_packed: Option<f64>) -> Result<Self> {
        guard(|| Ok(read_messages(messages, num_packed)?.into()))
    }

    /// Returns the messages of a rendered text.
    #[wasm_bindgen(js_name = fromText)]
    pub fn from_text(text: &str, template: Option<String>, eos_token: Option<String>) -> Result<Self> {
        guard(move || {
            let format = chat::TextFormat::choose(template.as_deref(), text)?;
            Ok(chat::from_text(text, format, eos_token.as_deref())?.into())
        })
    }

    /// Returns the example of a shape.
    pub fn zero(shape: &[f64]) -> Result<Self> {
        guard(|| {
            let shape = indices_from_f64("shape", shape)?.into_iter().map(Some).collect();
            Ok(chat::HistorySpec { shape }.zero()?.into())
        })
    }

    /// Returns the length of each dimension, -1 where rows differ.
    pub fn shape(&self) -> Result<Vec<i32>> {
        guard(|| Ok(self.inner.borrow().lengths()))
    }

    /// Returns the dictionaries as JSON.
    #[wasm_bindgen(js_name = toJson)]
    pub fn to_json(&self) -> Result<String> {
        guard(|| Ok(self.inner.borrow().to_json()))
    }

    /// Returns a history with the same messages.
    pub fn copy(&self) -> Result<Self> {
        guard(|| Ok(self.inner.borrow().clone().into()))
    }

    /// Returns a part of the first dimension.
    pub fn at(&self, index: f64) -> Result<Self> {
        guard(|| Ok(self.inner.borrow().at(index_from_f64("index", index)?.cast_signed())?.into()))
    }

    /// Returns a range of the first dimension.
    pub fn slice(&self, start: f64, end: f64) -> Result<Self> {
        guard(|| {
            let (start, end) = (index_from_f64("start", start)?, index_from_f64("end", end)?);
            Ok(self.inner.borrow().slice(start, end)?.into())
        })
    }

    /// Returns a view with a new dimension of length 1.
    pub fn unsqueeze(&self, dim: f64) -> Result<Self> {
        guard(|| Ok(self.inner.borrow().unsqueeze(index_from_f64("dim", dim)?.cast_signed())?.into()))
    }

    /// Returns the padded view.
    pub fn padded(&self) -> Result<Self> {
        guard(|| Ok(self.inner.borrow().padded().into()))
    }

    /// Returns the history without padding.
    pub fn unpadded(&self) -> Result<Self> {
        guard(|| Ok(self.inner.borrow().unpadded().into()))
    }

    /// Adds one part, in place.
    pub fn append(&self, dim: f64, item: &History) -> Result<()> {
        guard(|| {
            let item = item.inner.borrow().clone();
            self.inner.borrow_mut().append_at(index_from_f64("dim", dim)?.cast_signed(), &item)
        })
    }

    /// Joins parts, in place.
    pub fn extend(&self, dim: f64, items: &History) -> Result<()> {
        guard(|| {
            let items = items.inner.borrow().clone();
            self.inner.borrow_mut().extend_at(index_from_f64("dim", dim)?.cast_signed(), items)
        })
    }

    /// Returns the text of each conversation.
    pub fn render(&self, template: &Template, options: &str) -> Result<Vec<String>> {
        guard(|| {
            let options = exact_options_from_json("options", options)?;
            let chats = self.inner.borrow().apply_chat_template(&template.inner, None, &options)?;
            Ok(chats.into_iter().map(|chat| chat.text).collect())
        })
    }

    /// Returns the ids of each conversation, and its mask.
    pub fn encode(&self, template: &Template, tokenizer: &Tokenizer, options: &str) -> Result<EncodedChats> {
        guard(|| {
            let options = exact_options_from_json("options", options)?;
            let tokenizer = Some(&*tokenizer.inner);
            let chats = self.inner.borrow().apply_chat_template(&template.inner, tokenizer, &options)?;
            let chats = chat::EncodedChats::new(&chats)?;
            Ok(EncodedChats {
                offsets: chats.offsets,
                ids: chats.ids,
                assistant_mask: bytes(&chats.assistant_mask),
            })
        })
    }
}

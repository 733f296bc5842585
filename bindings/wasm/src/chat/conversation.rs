//! Conversations that grow turn by turn.

use std::cell::RefCell;
use std::sync::Arc;

use fulmar::chat;
use fulmar::core::exact_options_from_json;
use wasm_bindgen::prelude::*;

use super::{Renderer, bridged, read_messages};
use crate::error::{Result, guard};

/// The conversation of `fulmar_chat::Conversation`.
#[wasm_bindgen]
pub struct Conversation {
    inner: RefCell<chat::Conversation>,
}

#[wasm_bindgen]
impl Conversation {
    /// Makes a conversation without tokens; it shares the renderer.
    #[wasm_bindgen(constructor)]
    pub fn new(renderer: &Renderer, tools: &str) -> Result<Self> {
        guard(|| {
            let tools = exact_options_from_json("tools", tools)?;
            let conversation = chat::Conversation::new(Arc::clone(&renderer.inner), tools);
            Ok(Self { inner: RefCell::new(conversation) })
        })
    }

    /// Replaces the prompt, see `Rendered::to_words`.
    pub fn start(&self, messages: &str, num_packed: Option<f64>) -> Result<Vec<u32>> {
        guard(|| {
            let history = read_messages(messages, num_packed)?;
            Ok(self.inner.borrow_mut().start(history.chat()?)?.to_words())
        })
    }

    /// Parses a completion of the prompt, see `Parsed::to_text`.
    pub fn parse(&self, completion: &[u32]) -> Result<String> {
        guard(|| Ok(self.inner.borrow().parse(completion)?.to_text()))
    }

    /// Extends the prompt, see `Extension::to_words`, or returns the name of a refusal.
    #[wasm_bindgen(unchecked_return_type = "Uint32Array | string")]
    pub fn extend(&self, completion: &[u32], messages: &str, num_packed: Option<f64>) -> Result<JsValue> {
        guard(|| {
            let history = read_messages(messages, num_packed)?;
            Ok(bridged(&self.inner.borrow_mut().extend(completion, history.chat()?)?))
        })
    }
}

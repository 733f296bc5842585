//! Conversations that grow turn by turn.

use std::cell::RefCell;
use std::sync::Arc;

use fulmar::chat;
use fulmar::core::index_from_f64;
use js_sys::Uint32Array;
use wasm_bindgen::prelude::*;

use super::{Ledger, Renderer, read_messages};
use crate::error::{Result, guard};

crate::face::record! {
    /// Answers of `fulmar_chat::Answers`.
    Answers as "Answers" {
        words as words: Option<Uint32Array>,
        text as text: String,
    }
}

/// The conversations of `fulmar_chat::Conversations`.
#[wasm_bindgen]
pub struct Conversations {
    inner: RefCell<chat::Conversations>,
}

#[wasm_bindgen]
impl Conversations {
    /// Makes no conversations of a renderer, which they share.
    #[wasm_bindgen(constructor)]
    pub fn new(renderer: &Renderer) -> Result<Self> {
        guard(|| {
            let conversations = chat::Conversations::new(Arc::clone(&renderer.inner));
            Ok(Self { inner: RefCell::new(conversations) })
        })
    }

    /// Opens a conversation without tokens; returns its key.
    pub fn open(&self, tools: &str) -> Result<u32> {
        guard(|| self.inner.borrow_mut().open(chat::Tools::from_json(tools)?))
    }

    /// Closes a conversation.
    pub fn close(&self, key: u32) -> Result<()> {
        guard(|| {
            self.inner.borrow_mut().close(key);
            Ok(())
        })
    }

    /// Replaces the prompt, see `Rendered::to_words`.
    pub fn start(&self, key: u32, messages: &str, num_packed: Option<f64>) -> Result<Vec<u32>> {
        guard(|| {
            let history = read_messages(messages, num_packed)?;
            Ok(self.inner.borrow_mut().get(key)?.start(history.chat()?)?.to_words())
        })
    }

    /// Runs the steps in the first `num_words` of `words`, see `fulmar_chat::Conversations::run`.
    pub fn run(
        &self,
        words: &Uint32Array,
        num_words: f64,
        floats: Option<Vec<f32>>,
        packed: &str,
        num_records: f64,
    ) -> Result<Answers> {
        guard(move || {
            let steps = words.subarray(0, index_from_f64("num_words", num_words)? as u32).to_vec();
            let num_records = index_from_f64("num_records", num_records)?;
            let answers = self.inner.borrow_mut().run(
                &steps,
                floats.as_deref().unwrap_or_default(),
                packed,
                num_records,
            )?;
            Ok(Answers { words: Some(Uint32Array::from(&answers.words[..])), text: answers.text })
        })
    }

    /// Returns the ledger of a conversation, which begins an empty one.
    #[wasm_bindgen(js_name = takeLedger)]
    pub fn take_ledger(&self, key: u32) -> Result<Ledger> {
        guard(|| Ok(self.inner.borrow_mut().get(key)?.take_ledger().into()))
    }
}

//! Histories: messages as JSON texts, through templates and back.

use fulmar::chat;
use fulmar::core::{index_from_f64, options_from_json};
use serde_json::json;
use wasm_bindgen::prelude::*;

use super::bytes;
use crate::error::{Result, guard};
use crate::template::Template;
use crate::tokenizer::Tokenizer;

/// The JSON texts of messages, in lists nested as they come.
#[wasm_bindgen(js_name = readMessages)]
pub fn read_messages(messages: &str) -> Result<String> {
    guard(|| Ok(chat::History::from_json(messages)?.to_texts().to_string()))
}

/// Refuses too many messages for one conversation.
#[wasm_bindgen(js_name = checkNumMessages)]
pub fn check_num_messages(num_messages: f64) -> Result<()> {
    guard(|| chat::check_num_messages(index_from_f64("messages", num_messages)?))
}

/// A piece of content, checked.
#[wasm_bindgen(js_name = contentBase)]
pub fn content_base(piece: &str) -> Result<String> {
    guard(|| Ok(json!(options_from_json::<chat::ContentBase>("content", piece)?).to_string()))
}

/// The messages of a rendered text, as JSON.
#[wasm_bindgen(js_name = messagesFromText)]
pub fn messages_from_text(text: &str, template: Option<String>, eos_token: Option<String>) -> Result<String> {
    guard(move || {
        let format = chat::TextFormat::choose(template.as_deref(), text)?;
        Ok(chat::from_text(text, format, eos_token.as_deref())?.to_texts().to_string())
    })
}

/// The text of one conversation.
#[wasm_bindgen(js_name = renderChat)]
pub fn render_chat(template: &Template, messages: &str, options: &str) -> Result<String> {
    guard(|| {
        let (history, options) =
            (chat::History::from_json(messages)?, options_from_json("options", options)?);
        Ok(chat::apply_chat_template(&template.inner, None, history.chat()?, &options)?.text)
    })
}

/// A text and its ids; the masks are `[T]`, or empty where none was asked for.
#[wasm_bindgen(getter_with_clone)]
pub struct TemplatedChat {
    pub text: String,
    pub ids: Vec<u32>,
    #[wasm_bindgen(js_name = assistantMask)]
    pub assistant_mask: Vec<u8>,
    #[wasm_bindgen(js_name = endOfTurnMask)]
    pub end_of_turn_mask: Vec<u8>,
}

/// One conversation through a template and a tokenizer.
#[wasm_bindgen(js_name = applyChatTemplate)]
pub fn apply_chat_template(
    template: &Template,
    tokenizer: &Tokenizer,
    messages: &str,
    options: &str,
) -> Result<TemplatedChat> {
    guard(|| {
        let (history, options) =
            (chat::History::from_json(messages)?, options_from_json("options", options)?);
        let tokenizer = Some(&*tokenizer.inner);
        let chat = chat::apply_chat_template(&template.inner, tokenizer, history.chat()?, &options)?;
        let masks = chat.masks.unwrap_or_default();
        Ok(TemplatedChat {
            text: chat.text,
            ids: chat.ids,
            assistant_mask: bytes(&masks.assistant),
            end_of_turn_mask: bytes(&masks.end_of_turn),
        })
    })
}

/// Masks by origin, each `[T]`.
#[wasm_bindgen(getter_with_clone)]
pub struct TokenMasks {
    pub assistant: Vec<u8>,
    pub sampled: Vec<u8>,
    #[wasm_bindgen(js_name = endOfTurn)]
    pub end_of_turn: Vec<u8>,
}

#[wasm_bindgen]
extern "C" {
    /// What `render` gave, as a plain object.
    pub type RenderedObject;
    #[wasm_bindgen(method, getter)]
    fn ids(this: &RenderedObject) -> Vec<u32>;
    #[wasm_bindgen(method, getter, js_name = messageIndices)]
    fn message_indices(this: &RenderedObject) -> Vec<i32>;
    #[wasm_bindgen(method, getter, js_name = sampledMask)]
    fn sampled_mask(this: &RenderedObject) -> Vec<u8>;
    #[wasm_bindgen(method, getter, js_name = isContent)]
    fn is_content(this: &RenderedObject) -> Vec<u8>;
    #[wasm_bindgen(method, getter)]
    fn origins(this: &RenderedObject) -> Vec<u8>;
}

/// The masks of rendered tokens.
#[wasm_bindgen(js_name = tokenMasks)]
pub fn token_masks(rendered: &RenderedObject, stop_ids: &[u32], options: &str) -> Result<TokenMasks> {
    guard(|| {
        let columns = chat::RenderedColumns {
            ids: &rendered.ids(),
            message_indices: &rendered.message_indices(),
            sampled_mask: &rendered.sampled_mask(),
            is_content: &rendered.is_content(),
            origins: &rendered.origins(),
        };
        let masks = chat::token_masks(&columns.read()?, stop_ids, &options_from_json("options", options)?)?;
        Ok(TokenMasks {
            assistant: bytes(&masks.assistant),
            sampled: bytes(&masks.sampled),
            end_of_turn: bytes(&masks.end_of_turn),
        })
    })
}

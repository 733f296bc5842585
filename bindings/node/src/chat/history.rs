//! Histories: messages as JSON texts, through templates and back.

use fulmar::chat;
use fulmar::core::{index_from_f64, options_from_json};
use napi::bindgen_prelude::{Uint8Array, Uint32Array};
use napi_derive::napi;
use serde_json::json;

use super::{Rendered, bytes};
use crate::error::{Result, guard};
use crate::template::Template;
use crate::tokenizer::Tokenizer;

/// The JSON texts of messages, in lists nested as they come.
#[napi]
pub fn read_messages(messages: String) -> Result<String> {
    guard(|| Ok(chat::History::from_json(&messages)?.to_texts().to_string()))
}

/// Refuses too many messages for one conversation.
#[napi]
pub fn check_num_messages(num_messages: f64) -> Result<()> {
    guard(|| chat::check_num_messages(index_from_f64("messages", num_messages)?))
}

/// A piece of content, checked.
#[napi]
pub fn content_base(piece: String) -> Result<String> {
    guard(|| Ok(json!(options_from_json::<chat::ContentBase>("content", &piece)?).to_string()))
}

/// The messages of a rendered text, as JSON.
#[napi]
pub fn messages_from_text(
    text: String,
    template: Option<String>,
    eos_token: Option<String>,
) -> Result<String> {
    guard(|| {
        let format = chat::TextFormat::choose(template.as_deref(), &text)?;
        Ok(chat::from_text(&text, format, eos_token.as_deref())?.to_texts().to_string())
    })
}

/// The text of one conversation.
#[napi]
pub fn render_chat(template: &Template, messages: String, options: String) -> Result<String> {
    guard(|| {
        let (history, options) =
            (chat::History::from_json(&messages)?, options_from_json("options", &options)?);
        let render = |template: &mut _| chat::apply_chat_template(template, None, history.chat()?, &options);
        Ok(template.inner.with(render)?.text)
    })
}

/// A text and its ids; the masks are `[T]`, or empty where none was asked for.
#[napi(object)]
pub struct TemplatedChat {
    pub text: String,
    pub ids: Uint32Array,
    pub assistant_mask: Uint8Array,
    pub end_of_turn_mask: Uint8Array,
}

/// One conversation through a template and a tokenizer.
#[napi]
pub fn apply_chat_template(
    template: &Template,
    tokenizer: &Tokenizer,
    messages: String,
    options: String,
) -> Result<TemplatedChat> {
    guard(|| {
        let (history, options) =
            (chat::History::from_json(&messages)?, options_from_json("options", &options)?);
        let tokenizer = tokenizer.share()?;
        let render = |template: &mut _| {
            chat::apply_chat_template(template, Some(&*tokenizer), history.chat()?, &options)
        };
        let chat = template.inner.with(render)?;
        let masks = chat.masks.unwrap_or_default();
        Ok(TemplatedChat {
            text: chat.text,
            ids: chat.ids.into(),
            assistant_mask: bytes(&masks.assistant),
            end_of_turn_mask: bytes(&masks.end_of_turn),
        })
    })
}

/// Masks by origin, each `[T]`.
#[napi(object)]
pub struct TokenMasks {
    pub assistant: Uint8Array,
    pub sampled: Uint8Array,
    pub end_of_turn: Uint8Array,
}

/// The masks of rendered tokens.
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

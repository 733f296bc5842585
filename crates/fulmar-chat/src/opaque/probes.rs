//! Messages that a template is tried with.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::provenance::{disguised_list, disguised_message, is_visible};
use super::{PROBE, ROLES, THOUGHT};
use crate::family::{Table, split_reasoning};
use crate::message_view::{MessageView, origin_of};
use crate::script::Scaffold;
use crate::{Message, Origin, PrefixStability, Result, ThinkingRetention};

/// Returns a conversation that `new_messages` may follow: a question and a turn with reasoning, text and, if
/// tool answers follow, calls.
pub(super) fn probes(new_messages: &[Message]) -> Result<Vec<Message>> {
    let mut turn = json!({ "role": "assistant", "content": PROBE, "reasoning_content": THOUGHT });
    let answers =
        new_messages.iter().take_while(|message| origin_of(&ROLES, message.role()) == Some(Origin::Tool));
    let calls: Vec<Value> = answers
        .map(|answer| {
            let text = |key: &str| answer.value(key).and_then(Value::as_str);
            json!({
                "id": text("tool_call_id").unwrap_or("call00000"),
                "type": "function",
                "function": { "name": text("name").unwrap_or(PROBE), "arguments": { PROBE: PROBE } },
            })
        })
        .collect();
    if !calls.is_empty() {
        turn["tool_calls"] = calls.into();
    }
    Ok(vec![Message::new("user", PROBE)?, Message::from_value(turn)?])
}

/// Returns whether a message holds calls of tools or a tool's answer.
pub(super) fn has_tool_part(view: &MessageView<'_>) -> bool {
    !view.calls.is_empty() || view.is_tool() && is_visible(&view.text)
}

/// Returns the fields of a message with other calls, or with another answer of a tool.
pub(super) fn with_other_tool_part(view: &MessageView<'_>) -> Map<String, Value> {
    if view.is_tool() {
        return disguised_message(view.message.fields());
    }
    let mut fields = view.message.fields().clone();
    if let Some(Value::Array(calls)) = fields.get_mut("tool_calls") {
        *calls = disguised_list(calls);
    }
    fields
}

pub(super) fn left_out(rule: &str, what: &str) -> Error {
    let detail = format!(
        "{rule}: the template has no form for {what} and writes nothing, so the model would not see them"
    );
    Error::new(ErrorKind::Incompatible, detail)
}

/// Returns the message with its reasoning in a separate field, if an assistant's content has some.
pub(super) fn with_reasoning_apart(message: &Message) -> Result<Message> {
    let content = message.value("content").and_then(Value::as_str).filter(|text| text.contains("</think>"));
    let is_assistant = origin_of(&ROLES, message.role()) == Some(Origin::Assistant);
    let Some(content) = content.filter(|_| is_assistant && message.reasoning().is_none()) else {
        return Ok(message.clone());
    };
    let (reasoning, content) = split_reasoning(None, content);
    let mut fields = message.fields().clone();
    fields.insert("content".to_owned(), content.into());
    fields.insert("reasoning_content".to_owned(), reasoning.into());
    Message::from_value(Value::Object(fields))
}

/// Returns the constants for parsing a completion without a family: all of it is content.
pub(super) fn table(tokenizer: Arc<dyn Tokenizer>) -> Table {
    Table {
        tokenizer,
        roles: &ROLES,
        stop_ids: Vec::new(),
        close: Scaffold::default(),
        separator: Scaffold::default(),
        retention: ThinkingRetention::Template,
        stability: PrefixStability::Unknown,
        reasoning: None,
        calls: None,
        has_tools: true,
        fixes_system: false,
        trims_content: true,
    }
}

pub(super) fn check_not_empty(messages: &[Message]) -> Result<()> {
    if messages.is_empty() {
        return Err(Error::new(
            ErrorKind::Empty,
            "messages must hold at least one message, but the list is empty",
        ));
    }
    Ok(())
}

//! transformers' preparation of messages before rendering, and of the text after it.

use fulmar_core::{Error, ErrorKind, Result};
use minijinja::value::Value;
use serde_json::{Map, Value as Json};

use crate::method::text::strip;
use crate::template::ContinueFinalMessage;
use crate::value::{Dict, List, entries, from_json};

/// The names of a message's reasoning; templates read the first.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The tag after the text to continue while the template renders, as in transformers.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Returns the messages in the form for templates.
///
/// # Errors
/// `LimitExceeded` if a message is nested too deep.
pub fn messages(messages: &[&Map<String, Json>], continuation: Option<&Continuation>) -> Result<Value> {
    let mut values = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let is_last = at + 1 == messages.len();
        let fields = aliased(message, entries(message)?);
        let fields = match continuation {
            Some(continuation) if is_last => continuation.mark(fields)?,
            _ => fields,
        };
        values.push(Value::from_object(Dict::new(fields)?));
    }
    Ok(Value::from_object(List::new(values)?))
}

/// Removes nulls, and sets both `thinking` and `reasoning_content` to the reasoning if any field holds it.
fn aliased(message: &Map<String, Json>, fields: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let mut fields: Vec<_> = fields.into_iter().filter(|(_, value)| !value.is_none()).collect();
    let Some(reasoning) =
        REASONING_FIELDS.iter().find(|name| message.get(**name).is_some_and(|value| !value.is_null()))
    else {
        return fields;
    };
    let find =
        |fields: &[(Value, Value)], name: &str| fields.iter().position(|(key, _)| key.as_str() == Some(name));
    let Some(reasoning) = find(&fields, reasoning).map(|at| fields[at].1.clone()) else { return fields };
    match find(&fields, "reasoning_content") {
        Some(at) => fields[at].1 = reasoning.clone(),
        None => fields.push((Value::from("reasoning_content"), reasoning.clone())),
    }
    // The copy comes first, with the message's own `thinking` if it has one.
    let thinking = find(&fields, "thinking").map_or(reasoning, |at| fields.remove(at).1);
    fields.insert(0, (Value::from("thinking"), thinking));
    fields
}

/// A final message that the model continues: the text must end inside it.
pub struct Continuation {
    fields: Vec<String>,
    words: String,
}

impl Continuation {
    /// Returns the text to continue in `messages`; `None` without one.
    ///
    /// # Errors
    /// `Incompatible` where transformers refuses: with a generation prompt, without messages, for a field
    /// that the final message lacks or that `source` never names, and for a message without text.
    pub fn new(
        which: &ContinueFinalMessage,
        messages: &[&Map<String, Json>],
        add_generation_prompt: bool,
        source: &str,
    ) -> Result<Option<Self>> {
        let field = match which {
            ContinueFinalMessage::No => return Ok(None),
            ContinueFinalMessage::Yes => "content",
            ContinueFinalMessage::Field(field) => field,
        };
        let refuse =
            |rule: &str| Err(Error::new(ErrorKind::Incompatible, format!("continue_final_message {rule}")));
        if add_generation_prompt {
            return refuse("must be false if add_generation_prompt is true");
        }
        let Some(last) = messages.last() else { return refuse("must have a final message: got no messages") };
        let entries = aliased(last, entries(last)?);
        let value_of =
            |name: &str| entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value);
        let Some(value) = value_of(field) else {
            return refuse(&format!("must name a field of the final message: got {field:?}, which it lacks"));
        };
        let mut fields = vec![field.to_owned()];
        if REASONING_FIELDS.contains(&field) {
            fields = REASONING_FIELDS
                .iter()
                .filter(|name| value_of(name) == Some(value))
                .map(|&name| name.to_owned())
                .collect();
        }
        if !fields.iter().any(|field| source.contains(field.as_str())) {
            return refuse(&format!("must name a field that the template reads: got {field:?}"));
        }
        match words_of(last.get(field).or_else(|| reasoning_of(last))) {
            Some(words) => Ok(Some(Self { fields, words })),
            None => refuse("must have text to continue in the final message"),
        }
    }

    /// Returns the final message with the tag after the text to continue.
    fn mark(&self, fields: Vec<(Value, Value)>) -> Result<Vec<(Value, Value)>> {
        let mark = |(key, value): (Value, Value)| {
            let is_continued = key.as_str().is_some_and(|key| self.fields.iter().any(|field| field == key));
            if !is_continued {
                return Ok((key, value));
            }
            let marked = match value.as_str() {
                Some(text) => Value::from(format!("{text}{TAG}")),
                None => mark_last_text(&value)?,
            };
            Ok((key, marked))
        };
        fields.into_iter().map(mark).collect()
    }

    /// Returns the rendered text up to the end of the text to continue.
    ///
    /// # Errors
    /// `Incompatible` if the template omitted or changed it.
    pub fn cut(&self, mut text: String) -> Result<String> {
        let tag = TAG.trim_end();
        let at = text.rfind(tag).filter(|_| text.contains(strip(&self.words, None, true, true)));
        let Some(at) = at else {
            let detail = "continue_final_message must find the final message in the rendered text: got a template that changes it";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        let keeps_space = text[at..].starts_with(TAG);
        text.truncate(at);
        if !keeps_space {
            text.truncate(strip(&text, None, false, true).len());
        }
        Ok(text)
    }
}

fn reasoning_of(message: &Map<String, Json>) -> Option<&Json> {
    REASONING_FIELDS.iter().filter_map(|name| message.get(*name)).find(|value| !value.is_null())
}

/// Returns the text of a field: the field itself, or its last part that has text.
fn words_of(value: Option<&Json>) -> Option<String> {
    match value? {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => {
            parts.iter().rev().find_map(|part| part.get("text")?.as_str().map(str::to_owned))
        }
        _ => None,
    }
}

/// Returns a list of parts with the tag after its last text.
fn mark_last_text(parts: &Value) -> Result<Value> {
    let mut items: Vec<Value> = parts.try_iter().map(Iterator::collect).unwrap_or_default();
    let text_of = |part: &Value| part.get_attr("text").ok().and_then(|text| text.as_str().map(str::to_owned));
    if let Some(part) = items.iter_mut().rev().find(|part| text_of(part).is_some()) {
        let marked = Value::from(format!("{}{TAG}", text_of(part).unwrap_or_default()));
        let keys: Vec<Value> = part.try_iter().map(Iterator::collect).unwrap_or_default();
        let entry = |key: Value| {
            let value = if key.as_str() == Some("text") {
                marked.clone()
            } else {
                part.get_item(&key).unwrap_or_default()
            };
            (key, value)
        };
        *part = Value::from_object(Dict::new(keys.into_iter().map(entry).collect())?);
    }
    Ok(Value::from_object(List::new(items)?))
}

/// Returns a JSON list as a template value; none if it is absent.
///
/// # Errors
/// `LimitExceeded` if an item is nested too deep.
pub fn list(items: Option<&[Json]>) -> Result<Value> {
    match items {
        None => Ok(Value::from(())),
        Some(items) => {
            Ok(Value::from_object(List::new(items.iter().map(from_json).collect::<Result<_>>()?)?))
        }
    }
}

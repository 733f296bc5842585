//! The configuration files of a tokenizer: names of special tokens, more added tokens, chat templates.

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::{Map, Value};

use super::added::AddedToken;
use super::json_of;
use crate::Result;

/// The names of special tokens that any model may have.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The parsed `tokenizer_config.json` and its companions.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Special tokens by their name in templates, such as `eos_token`.
    pub special_tokens: Map<String, Value>,
    /// Every special token, including those without a name.
    pub special_contents: Vec<String>,
    /// Tokens that may be missing in `tokenizer.json`.
    pub added_tokens: Vec<AddedToken>,
    /// Chat templates by name.
    pub templates: Vec<(String, String)>,
}

impl Config {
    /// Reads the text of `tokenizer_config.json`, and of `special_tokens_map.json` if the former is
    /// incomplete.
    pub fn read(config: Option<&str>, special_tokens_map: Option<&str>) -> Result<Self> {
        let mut file = object("tokenizer_config.json", config)?;
        if !file.contains_key("added_tokens_decoder") {
            file.extend(object("special_tokens_map.json", special_tokens_map)?);
        }
        let mut read = Self::default();
        read.take_special_tokens(&file)?;
        read.take_added_tokens(&file)?;
        read.take_templates(file.get("chat_template"))?;
        Ok(read)
    }

    /// Adds a template, or replaces the one of that name.
    pub fn set_template(&mut self, name: &str, source: &str) -> Result<()> {
        let (num_bytes, max) = (source.len(), limits::TEMPLATE_SOURCE_BYTES_MAX);
        if num_bytes > max {
            let detail = format!("chat_template {name:?} must be at most {max} bytes: got {num_bytes}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        self.templates.retain(|(held, _)| held != name);
        self.templates.push((name.to_owned(), source.to_owned()));
        Ok(())
    }

    /// Returns the source of the template called `name`.
    pub fn template(&self, name: &str) -> Option<&str> {
        self.templates.iter().find(|(held, _)| held == name).map(|(_, source)| source.as_str())
    }

    fn take_special_tokens(&mut self, file: &Map<String, Value>) -> Result<()> {
        for (name, value) in file {
            let is_listed = NAMES.contains(&name.as_str());
            if let Some(content) = content_of(value).filter(|_| is_listed || name.ends_with("_token")) {
                self.name_special(name, content);
            } else if is_listed && !value.is_null() {
                return Err(malformed(name, "a token", value));
            }
        }
        for key in ["extra_special_tokens", "additional_special_tokens"] {
            match file.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(tokens)) => {
                    for token in tokens {
                        let content =
                            content_of(token).ok_or_else(|| malformed(key, "a list of tokens", token))?;
                        self.special_contents.push(content.to_owned());
                    }
                }
                Some(Value::Object(tokens)) => {
                    for (name, token) in tokens {
                        let content = content_of(token).ok_or_else(|| malformed(name, "a token", token))?;
                        self.name_special(name, content);
                    }
                }
                Some(other) => return Err(malformed(key, "a list of tokens", other)),
            }
        }
        Ok(())
    }

    fn name_special(&mut self, name: &str, content: &str) {
        self.special_tokens.insert(name.to_owned(), Value::from(content));
        self.special_contents.push(content.to_owned());
    }

    fn take_added_tokens(&mut self, file: &Map<String, Value>) -> Result<()> {
        let Some(tokens) = file.get("added_tokens_decoder").and_then(Value::as_object) else { return Ok(()) };
        for (id, token) in tokens {
            let id = id
                .parse()
                .map_err(|_| malformed("added_tokens_decoder", "tokens by id", &id.as_str().into()))?;
            let read: AddedToken = json_of("added_tokens_decoder", token.clone())?;
            self.added_tokens.push(AddedToken { id, ..read });
        }
        Ok(())
    }

    fn take_templates(&mut self, value: Option<&Value>) -> Result<()> {
        match value {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(source)) => self.set_template("default", source),
            Some(Value::Object(named)) => named.iter().try_for_each(|(name, source)| match source.as_str() {
                Some(source) => self.set_template(name, source),
                None => Err(malformed("chat_template", "text by name", source)),
            }),
            Some(Value::Array(list)) => list.iter().try_for_each(|entry| {
                let field = |key: &str| entry.get(key).and_then(Value::as_str);
                match (field("name"), field("template")) {
                    (Some(name), Some(source)) => self.set_template(name, source),
                    _ => Err(malformed("chat_template", "a list of {name, template}", entry)),
                }
            }),
            Some(other) => Err(malformed("chat_template", "text or a list of {name, template}", other)),
        }
    }
}

fn object(name: &str, text: Option<&str>) -> Result<Map<String, Value>> {
    text.map_or_else(|| Ok(Map::new()), |text| super::parse(name, text))
}

/// Returns the text of a token, written as text or as an object with `content`.
fn content_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn malformed(name: &str, rule: &str, value: &Value) -> Error {
    let shown: String = value.to_string().chars().take(80).collect();
    Error::new(ErrorKind::Malformed, format!("{name} must be {rule}: got {shown}"))
}

//! Names and ids of all tokens: the model's and the added ones.

use std::collections::{HashMap, HashSet};

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::Value;

use super::added::AddedToken;
use super::config::Config;
use super::{json_of, part};
use crate::Result;

/// Flags of an id.
const ADDED: u8 = 1;
const SPECIAL: u8 = 2;
const UNKNOWN: u8 = 4;

/// The tokens of a file by id and by name. Ids may have gaps.
#[derive(Debug, Default)]
pub struct Vocabulary {
    tokens: Vec<Option<Box<str>>>,
    ids: HashMap<Box<str>, u32>,
    marks: Vec<u8>,
    added: Vec<AddedToken>,
    index_of_added: HashMap<u32, usize>,
}

impl Vocabulary {
    /// Reads `model.vocab` and takes `added_tokens` from `file`; `config` may have more.
    pub fn read(file: &mut Value, config: &Config) -> Result<Self> {
        let mut vocabulary = Self::default();
        vocabulary.read_model(&file["model"])?;
        let mut added: Vec<AddedToken> = match part(file, "added_tokens") {
            Value::Null => Vec::new(),
            listed => json_of("added_tokens", listed)?,
        };
        let mut listed: HashSet<String> = added.iter().map(|token| token.content.clone()).collect();
        for token in &config.added_tokens {
            if listed.insert(token.content.clone()) {
                added.push(token.clone());
            }
        }
        for content in &config.special_contents {
            if let Some(id) = vocabulary.id(content).filter(|_| listed.insert(content.clone())) {
                added.push(AddedToken::special(id, content));
            }
        }
        added
            .into_iter()
            .filter(|token| !token.content.is_empty())
            .try_for_each(|token| vocabulary.add(token))?;
        vocabulary.mark_unknown(&file["model"]);
        Ok(vocabulary)
    }

    /// Returns the largest id + 1.
    pub const fn size(&self) -> usize {
        self.tokens.len()
    }

    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)?.as_deref()
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Returns the added tokens with their ids.
    pub fn added(&self) -> &[AddedToken] {
        &self.added
    }

    pub fn is_added(&self, id: u32) -> bool {
        self.has_mark(id, ADDED)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.has_mark(id, SPECIAL)
    }

    /// Returns whether text must not become `id`: a special token other than the one for unknown text.
    pub fn is_forbidden(&self, id: u32) -> bool {
        self.is_special(id) && !self.has_mark(id, UNKNOWN)
    }

    fn has_mark(&self, id: u32, mark: u8) -> bool {
        self.marks.get(id as usize).is_some_and(|marks| marks & mark != 0)
    }

    fn read_model(&mut self, model: &Value) -> Result<()> {
        match &model["vocab"] {
            Value::Object(ids) => ids.iter().try_for_each(|(token, id)| match id.as_u64() {
                Some(id) => self.set(token, id),
                None => Err(malformed("model.vocab must map tokens to ids", id)),
            }),
            Value::Array(scored) => {
                scored.iter().enumerate().try_for_each(|(id, entry)| match entry[0].as_str() {
                    Some(token) => self.set(token, id as u64),
                    None => Err(malformed("model.vocab must list tokens with scores", entry)),
                })
            }
            other => Err(malformed("model.vocab must map tokens to ids or list tokens with scores", other)),
        }
    }

    /// Adds a token with the model's id of the same name, else the requested id, or the next one if that is
    /// taken.
    fn add(&mut self, mut token: AddedToken) -> Result<()> {
        token.id = match self.id(&token.content) {
            Some(id) => id,
            None if self.token(token.id).is_none() => token.id,
            None => self.size() as u32,
        };
        self.set(&token.content, u64::from(token.id))?;
        let marks = ADDED | if token.special { SPECIAL } else { 0 };
        self.marks[token.id as usize] = marks;
        let index = *self.index_of_added.entry(token.id).or_insert(self.added.len());
        match self.added.get_mut(index) {
            Some(held) => *held = token,
            None => self.added.push(token),
        }
        Ok(())
    }

    fn set(&mut self, token: &str, id: u64) -> Result<()> {
        let max = limits::VOCAB_SIZE_MAX;
        if id >= max as u64 {
            let detail = format!("ids of tokenizer.json must be below {max}: got {id} for {token:?}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let index = id as usize;
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, None);
            self.marks.resize(index + 1, 0);
        }
        self.tokens[index] = Some(token.into());
        self.ids.insert(token.into(), id as u32);
        Ok(())
    }

    fn mark_unknown(&mut self, model: &Value) {
        let by_name = model["unk_token"].as_str().and_then(|token| self.id(token));
        let by_id = model["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok());
        if let Some(marks) = by_name.or(by_id).and_then(|id| self.marks.get_mut(id as usize)) {
            *marks |= UNKNOWN;
        }
    }
}

fn malformed(rule: &str, value: &Value) -> Error {
    let shown: String = value.to_string().chars().take(80).collect();
    Error::new(ErrorKind::Malformed, format!("{rule}: got {shown}"))
}

//! Replaces the crate `tokenizers` in builds without the feature `library`: files of other families are refused.

use fulmar_core::{Error, ErrorKind};
use serde_json::Value;

use super::added::Finder;
use crate::{Encoding, Result};

/// No value.
pub enum Library {}

/// As in builds with the crate.
#[expect(dead_code, reason = "nothing reads it here")]
pub struct Rules<'a> {
    pub finders: Option<[&'a Finder; 2]>,
    pub is_forbidden: &'a dyn Fn(u32) -> bool,
}

impl Library {
    pub fn new(file: &Value) -> Result<Self> {
        let kind = file["model"]["type"].as_str().unwrap_or("no type");
        let detail = format!(
            "tokenizer.json must be of the byte-level BPE family in this build: got a model of {kind:?} with other parts; use the whole build of fulmar"
        );
        Err(Error::new(ErrorKind::Unavailable, detail))
    }

    pub fn normalized(&self, _: &str) -> Result<String> {
        match *self {}
    }

    pub fn encode_into(&self, _: &str, _: Rules<'_>, _: &mut Encoding) -> Result<()> {
        match *self {}
    }

    pub fn decode(&self, _: Vec<String>) -> Result<String> {
        match *self {}
    }
}

pub fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    body()
}

//! The face of `fulmar-tokenizer`.

use std::sync::Arc;

use fulmar::core::{integer_from_f64, options_from_json};
use fulmar::tokenizer::{self, Tokenizer};
use napi::bindgen_prelude::Uint32Array;
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::slot::Slot;

/// Token ids `[T]` and their places in the text, `[T, 2]`.
#[napi(object)]
pub struct Encoding {
    pub ids: Uint32Array,
    pub offsets: Uint32Array,
}

/// The tokenizer of `fulmar_tokenizer::CharTokenizer`.
#[napi]
pub struct CharTokenizer {
    inner: Slot<Arc<tokenizer::CharTokenizer>>,
}

impl From<tokenizer::CharTokenizer> for CharTokenizer {
    fn from(tokenizer: tokenizer::CharTokenizer) -> Self {
        Self { inner: Slot::new("CharTokenizer", Arc::new(tokenizer)) }
    }
}

impl CharTokenizer {
    /// Another owner of the tokenizer.
    pub fn share(&self) -> fulmar::core::Result<Arc<tokenizer::CharTokenizer>> {
        self.inner.with(|tokenizer| Ok(Arc::clone(tokenizer)))
    }
}

#[napi]
impl CharTokenizer {
    /// The tokenizer of these options.
    #[napi(constructor)]
    pub fn new(options: String) -> Result<Self> {
        guard(|| Ok(tokenizer::CharTokenizer::new(options_from_json("options", &options)?)?.into()))
    }

    /// Reads the JSON form.
    #[napi(factory)]
    pub fn from_json(text: String) -> Result<Self> {
        guard(|| Ok(tokenizer::CharTokenizer::from_json(&text)?.into()))
    }

    /// The JSON form.
    #[napi]
    pub fn to_json(&self) -> Result<String> {
        guard(|| Ok(self.share()?.to_json()))
    }

    /// How many ids there are.
    #[napi]
    pub fn vocab_size(&self) -> Result<u32> {
        guard(|| Ok(self.share()?.vocab_size() as u32))
    }

    /// The ids of a text.
    #[napi]
    pub fn encode(&self, text: String) -> Result<Encoding> {
        guard(|| {
            let tokenizer::Encoding { ids, offsets } = self.share()?.encode(&text)?;
            Ok(Encoding { ids: ids.into(), offsets: offsets.into_flattened().into() })
        })
    }

    /// The text of ids.
    #[napi]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        guard(|| self.share()?.decode(ids, skip_special))
    }

    /// The id of a token.
    #[napi]
    pub fn id_of(&self, token: String) -> Result<Option<u32>> {
        guard(|| Ok(self.share()?.id_of(&token)))
    }

    /// The name of an id.
    #[napi]
    pub fn token_of(&self, id: f64) -> Result<Option<String>> {
        guard(|| {
            let id = u32::try_from(integer_from_f64("id", id)?).ok();
            Ok(self.share()?.token_of(id.unwrap_or(u32::MAX)))
        })
    }

    /// Whether an id is special.
    #[napi]
    pub fn is_special(&self, id: f64) -> Result<bool> {
        guard(|| {
            let id = u32::try_from(integer_from_f64("id", id)?).ok();
            Ok(self.share()?.is_special(id.unwrap_or(u32::MAX)))
        })
    }

    /// Drops the tokenizer.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

//! The face of `fulmar-tokenizer`.

use std::sync::Arc;

use fulmar::core::{integer_from_f64, options_from_json};
use fulmar::tokenizer::{self, CharTokenizer};
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

/// Any `fulmar_tokenizer::Tokenizer`.
#[napi]
pub struct Tokenizer {
    inner: Slot<Arc<dyn tokenizer::Tokenizer>>,
}

impl Tokenizer {
    fn own(tokenizer: impl tokenizer::Tokenizer + 'static) -> Self {
        Self { inner: Slot::new("tokenizer", Arc::new(tokenizer)) }
    }

    /// Another owner of the tokenizer.
    pub fn share(&self) -> fulmar::core::Result<Arc<dyn tokenizer::Tokenizer>> {
        self.inner.with(|tokenizer| Ok(Arc::clone(tokenizer)))
    }
}

#[napi]
impl Tokenizer {
    /// A `CharTokenizer` of these options.
    #[napi(factory)]
    pub fn characters(options: String) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::new(options_from_json("options", &options)?)?)))
    }

    /// Reads the JSON form of a `CharTokenizer`.
    #[napi(factory)]
    pub fn characters_from_json(text: String) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::from_json(&text)?)))
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

    /// The ids of a text; `added`: markers that it spells become ids.
    #[napi]
    pub fn encode(&self, text: String, added: bool) -> Result<Encoding> {
        guard(|| {
            let tokenizer = self.share()?;
            let encoding = if added { tokenizer.encode_added(&text) } else { tokenizer.encode(&text) };
            let tokenizer::Encoding { ids, offsets } = encoding?;
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

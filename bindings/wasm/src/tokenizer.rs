//! The face of `fulmar-tokenizer`.

use std::sync::Arc;

use fulmar::core::{integer_from_f64, options_from_json};
use fulmar::tokenizer::{self, Tokenizer};
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// Token ids `[T]` and their places in the text, `[T, 2]`.
#[wasm_bindgen(getter_with_clone)]
pub struct Encoding {
    pub ids: Vec<u32>,
    pub offsets: Vec<u32>,
}

/// The tokenizer of `fulmar_tokenizer::CharTokenizer`.
#[wasm_bindgen]
pub struct CharTokenizer {
    pub(crate) inner: Arc<tokenizer::CharTokenizer>,
}

impl From<tokenizer::CharTokenizer> for CharTokenizer {
    fn from(tokenizer: tokenizer::CharTokenizer) -> Self {
        Self { inner: Arc::new(tokenizer) }
    }
}

#[wasm_bindgen]
impl CharTokenizer {
    /// The tokenizer of these options.
    #[wasm_bindgen(constructor)]
    pub fn new(options: &str) -> Result<Self> {
        guard(|| Ok(tokenizer::CharTokenizer::new(options_from_json("options", options)?)?.into()))
    }

    /// Reads the JSON form.
    #[wasm_bindgen(js_name = fromJson)]
    pub fn from_json(text: &str) -> Result<Self> {
        guard(|| Ok(tokenizer::CharTokenizer::from_json(text)?.into()))
    }

    /// The JSON form.
    #[wasm_bindgen(js_name = toJson)]
    pub fn to_json(&self) -> Result<String> {
        guard(|| Ok(self.inner.to_json()))
    }

    /// How many ids there are.
    #[wasm_bindgen(js_name = vocabSize)]
    pub fn vocab_size(&self) -> Result<u32> {
        guard(|| Ok(self.inner.vocab_size() as u32))
    }

    /// The ids of a text.
    pub fn encode(&self, text: &str) -> Result<Encoding> {
        guard(|| {
            let tokenizer::Encoding { ids, offsets } = self.inner.encode(text)?;
            Ok(Encoding { ids, offsets: offsets.into_flattened() })
        })
    }

    /// The text of ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        guard(|| self.inner.decode(ids, skip_special))
    }

    /// The id of a token.
    #[wasm_bindgen(js_name = idOf)]
    pub fn id_of(&self, token: &str) -> Result<Option<u32>> {
        guard(|| Ok(self.inner.id_of(token)))
    }

    /// The name of an id.
    #[wasm_bindgen(js_name = tokenOf)]
    pub fn token_of(&self, id: f64) -> Result<Option<String>> {
        guard(|| {
            let id = u32::try_from(integer_from_f64("id", id)?).ok();
            Ok(self.inner.token_of(id.unwrap_or(u32::MAX)))
        })
    }

    /// Whether an id is special.
    #[wasm_bindgen(js_name = isSpecial)]
    pub fn is_special(&self, id: f64) -> Result<bool> {
        guard(|| {
            let id = u32::try_from(integer_from_f64("id", id)?).ok();
            Ok(self.inner.is_special(id.unwrap_or(u32::MAX)))
        })
    }
}

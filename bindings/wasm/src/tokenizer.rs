//! The face of `fulmar-tokenizer`.

use std::sync::Arc;

use fulmar::core::{integer_from_f64, options_from_json};
use fulmar::tokenizer::{self, CharTokenizer};
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// Token ids `[T]` and their places in the text, `[T, 2]`.
#[wasm_bindgen(getter_with_clone)]
pub struct Encoding {
    pub ids: Vec<u32>,
    pub offsets: Vec<u32>,
}

/// Any `fulmar_tokenizer::Tokenizer`.
#[wasm_bindgen]
pub struct Tokenizer {
    pub(crate) inner: Arc<dyn tokenizer::Tokenizer>,
}

impl Tokenizer {
    fn own(tokenizer: impl tokenizer::Tokenizer + 'static) -> Self {
        Self { inner: Arc::new(tokenizer) }
    }
}

#[wasm_bindgen]
impl Tokenizer {
    /// A `CharTokenizer` of these options.
    pub fn characters(options: &str) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::new(options_from_json("options", options)?)?)))
    }

    /// Reads the JSON form of a `CharTokenizer`.
    #[wasm_bindgen(js_name = charactersFromJson)]
    pub fn characters_from_json(text: &str) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::from_json(text)?)))
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

    /// The ids of a text; `added`: markers that it spells become ids.
    pub fn encode(&self, text: &str, added: bool) -> Result<Encoding> {
        guard(|| {
            let encoding = if added { self.inner.encode_added(text) } else { self.inner.encode(text) };
            let tokenizer::Encoding { ids, offsets } = encoding?;
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

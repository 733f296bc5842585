//! The face of `fulmar-tokenizer`.

use std::sync::Arc;

use fulmar::core::{id_from_f64, index_from_f64, options_from_json};
use fulmar::tokenizer::{self, CharTokenizer, HfFiles, HfTokenizer, OffsetUnit, TiktokenTokenizer};
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// Token ids `[T]` and their places in the text, `[T, 2]`.
#[wasm_bindgen(getter_with_clone)]
pub struct Encoding {
    pub ids: Vec<u32>,
    pub offsets: Vec<u32>,
}

/// Concatenated encodings of many texts: text `i` has the tokens `rows[i]..rows[i + 1]`.
#[wasm_bindgen(getter_with_clone)]
pub struct EncodingBatch {
    pub ids: Vec<u32>,
    pub offsets: Vec<u32>,
    pub rows: Vec<u32>,
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
    /// Returns a `CharTokenizer` of these options.
    pub fn characters(options: &str) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::new(options_from_json("options", options)?)?)))
    }

    /// Reads the JSON form of a `CharTokenizer`.
    #[wasm_bindgen(js_name = charactersFromJson)]
    pub fn characters_from_json(text: &str) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::from_json(text)?)))
    }

    /// Reads an `HfTokenizer` from a `tokenizer.json` and, as JSON, the other files of its folder.
    #[wasm_bindgen(js_name = huggingFace)]
    pub fn hugging_face(tokenizer: String, files: &str) -> Result<Self> {
        guard(|| {
            let files: HfFiles = options_from_json("files", files)?;
            Ok(Self::own(HfTokenizer::from_files(HfFiles { tokenizer, ..files })?))
        })
    }

    /// Reads a `TiktokenTokenizer` from a file of ranks and, as JSON, `[name, id]` of its special tokens.
    pub fn tiktoken(ranks: &[u8], pattern: &str, special: &str) -> Result<Self> {
        guard(|| {
            let special: Vec<_> = options_from_json("specialTokens", special)?;
            Ok(Self::own(TiktokenTokenizer::new(ranks, pattern, special)?))
        })
    }

    /// Reads the JSON form of a `TiktokenTokenizer`.
    #[wasm_bindgen(js_name = tiktokenFromJson)]
    pub fn tiktoken_from_json(text: &str) -> Result<Self> {
        guard(|| Ok(Self::own(TiktokenTokenizer::from_json(text)?)))
    }

    /// Trains a byte-level BPE with `train_byte_bpe`; returns its `tokenizer.json`.
    #[wasm_bindgen(js_name = trainByteBpe)]
    pub fn train_byte_bpe(texts: Vec<String>, vocab_size: f64, special: Vec<String>) -> Result<String> {
        guard(move || {
            let [texts, special] =
                [&texts, &special].map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
            tokenizer::train_byte_bpe(&texts, index_from_f64("vocabSize", vocab_size)?, &special)
        })
    }

    /// Converts offsets to another unit.
    #[wasm_bindgen(js_name = offsetsIn)]
    pub fn offsets_in(text: &str, mut offsets: Vec<u32>, unit: &str) -> Result<Vec<u32>> {
        guard(|| {
            OffsetUnit::parse(unit)?.convert(text, &mut offsets)?;
            Ok(offsets)
        })
    }

    /// Returns the special tokens by name, as JSON.
    #[wasm_bindgen(js_name = specialTokens)]
    pub fn special_tokens(&self) -> Result<String> {
        guard(|| Ok(serde_json::json!(self.inner.special_tokens()).to_string()))
    }

    /// Returns the ids before and after a text, as JSON.
    pub fn surroundings(&self) -> Result<String> {
        guard(|| Ok(serde_json::json!(self.inner.surroundings()).to_string()))
    }

    /// Returns the source of the chat template of that name.
    #[wasm_bindgen(js_name = chatTemplate)]
    pub fn chat_template(&self, name: &str) -> Result<Option<String>> {
        guard(|| Ok(self.inner.named_template(name).map(str::to_owned)))
    }

    /// Returns the ids of many texts.
    #[wasm_bindgen(js_name = encodeBatch)]
    pub fn encode_batch(&self, texts: Vec<String>, added: bool) -> Result<EncodingBatch> {
        guard(move || {
            let batch = tokenizer::encode_batch(&*self.inner, &texts, added.into())?;
            let tokenizer::Encoding { ids, offsets } = batch.tokens;
            Ok(EncodingBatch { ids, offsets: offsets.into_flattened(), rows: batch.rows })
        })
    }

    /// Returns the JSON form.
    #[wasm_bindgen(js_name = toJson)]
    pub fn to_json(&self) -> Result<String> {
        guard(|| Ok(self.inner.to_json()))
    }

    /// Returns the number of ids.
    #[wasm_bindgen(js_name = vocabSize)]
    pub fn vocab_size(&self) -> Result<u32> {
        guard(|| Ok(self.inner.vocab_size() as u32))
    }

    /// Returns the ids of a text; with `added`, markers in the text become their ids.
    pub fn encode(&self, text: &str, added: bool) -> Result<Encoding> {
        guard(|| {
            let mut encoding = tokenizer::Encoding::default();
            self.inner.encode_into(text, added.into(), &mut encoding)?;
            let tokenizer::Encoding { ids, offsets } = encoding;
            Ok(Encoding { ids, offsets: offsets.into_flattened() })
        })
    }

    /// Returns the text of ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        guard(|| self.inner.decode(ids, skip_special))
    }

    /// Returns the id of a token.
    #[wasm_bindgen(js_name = idOf)]
    pub fn id_of(&self, token: &str) -> Result<Option<u32>> {
        guard(|| Ok(self.inner.id_of(token)))
    }

    /// Returns the name of an id.
    #[wasm_bindgen(js_name = tokenOf)]
    pub fn token_of(&self, id: f64) -> Result<Option<String>> {
        guard(|| Ok(self.inner.token_of(id_from_f64("id", id)?)))
    }

    /// Returns whether an id is special.
    #[wasm_bindgen(js_name = isSpecial)]
    pub fn is_special(&self, id: f64) -> Result<bool> {
        guard(|| Ok(self.inner.is_special(id_from_f64("id", id)?)))
    }
}

/// Decodes one token at a time.
#[wasm_bindgen]
pub struct DecodeStream {
    inner: tokenizer::DecodeStream,
}

#[wasm_bindgen]
impl DecodeStream {
    /// Returns an empty stream.
    #[wasm_bindgen(constructor)]
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Result<Self> {
        guard(|| Ok(Self { inner: tokenizer::DecodeStream::new(Arc::clone(&tokenizer.inner), skip_special) }))
    }

    /// Returns the text that an id completes.
    pub fn push(&mut self, id: f64) -> Result<String> {
        guard(|| self.inner.push(id_from_f64("id", id)?))
    }

    /// Returns the text that is still held back.
    pub fn finish(&mut self) -> Result<String> {
        guard(|| self.inner.finish())
    }
}

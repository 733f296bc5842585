//! The face of `fulmar-tokenizer`.

use std::sync::Arc;

use fulmar::core::{id_from_f64, index_from_f64, options_from_json};
use fulmar::tokenizer::{self, CharTokenizer, HfFiles, HfTokenizer, OffsetUnit, TiktokenTokenizer};
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

/// Concatenated encodings of many texts: text `i` has the tokens `rows[i]..rows[i + 1]`.
#[napi(object)]
pub struct EncodingBatch {
    pub ids: Uint32Array,
    pub offsets: Uint32Array,
    pub rows: Uint32Array,
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

    /// Returns another owner of the tokenizer.
    pub fn share(&self) -> fulmar::core::Result<Arc<dyn tokenizer::Tokenizer>> {
        self.inner.with(|tokenizer| Ok(Arc::clone(tokenizer)))
    }
}

#[napi]
impl Tokenizer {
    /// Returns a `CharTokenizer` of these options.
    #[napi(factory)]
    pub fn characters(options: String) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::new(options_from_json("options", &options)?)?)))
    }

    /// Reads the JSON form of a `CharTokenizer`.
    #[napi(factory)]
    pub fn characters_from_json(text: String) -> Result<Self> {
        guard(|| Ok(Self::own(CharTokenizer::from_json(&text)?)))
    }

    /// Reads an `HfTokenizer` from a `tokenizer.json` and, as JSON, the other files of its folder.
    #[napi(factory)]
    pub fn hugging_face(tokenizer: String, files: String) -> Result<Self> {
        guard(|| {
            let files: HfFiles = options_from_json("files", &files)?;
            Ok(Self::own(HfTokenizer::from_files(HfFiles { tokenizer, ..files })?))
        })
    }

    /// Reads a `TiktokenTokenizer` from a file of ranks and, as JSON, `[name, id]` of its special tokens.
    #[napi(factory)]
    pub fn tiktoken(ranks: &[u8], pattern: String, special: String) -> Result<Self> {
        guard(|| {
            let special: Vec<_> = options_from_json("specialTokens", &special)?;
            Ok(Self::own(TiktokenTokenizer::new(ranks, &pattern, special)?))
        })
    }

    /// Reads the JSON form of a `TiktokenTokenizer`.
    #[napi(factory)]
    pub fn tiktoken_from_json(text: String) -> Result<Self> {
        guard(|| Ok(Self::own(TiktokenTokenizer::from_json(&text)?)))
    }

    /// Trains a byte-level BPE with `train_byte_bpe`; returns its `tokenizer.json`.
    #[napi]
    pub fn train_byte_bpe(texts: Vec<String>, vocab_size: f64, special: Vec<String>) -> Result<String> {
        guard(|| {
            let [texts, special] =
                [&texts, &special].map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
            tokenizer::train_byte_bpe(&texts, index_from_f64("vocabSize", vocab_size)?, &special)
        })
    }

    /// Converts offsets to another unit.
    #[napi]
    pub fn offsets_in(text: String, offsets: Uint32Array, unit: String) -> Result<Uint32Array> {
        guard(|| {
            let mut offsets = offsets.to_vec();
            OffsetUnit::parse(&unit)?.convert(&text, &mut offsets)?;
            Ok(offsets.into())
        })
    }

    /// Returns the special tokens by name, as JSON.
    #[napi]
    pub fn special_tokens(&self) -> Result<String> {
        guard(|| Ok(serde_json::json!(self.share()?.special_tokens()).to_string()))
    }

    /// Returns the ids before and after a text, as JSON.
    #[napi]
    pub fn surroundings(&self) -> Result<String> {
        guard(|| Ok(serde_json::json!(self.share()?.surroundings()).to_string()))
    }

    /// Returns the source of the chat template of that name.
    #[napi]
    pub fn chat_template(&self, name: String) -> Result<Option<String>> {
        guard(|| Ok(self.share()?.named_template(&name).map(str::to_owned)))
    }

    /// Returns the ids of many texts.
    #[napi]
    pub fn encode_batch(&self, texts: Vec<String>, added: bool) -> Result<EncodingBatch> {
        guard(|| {
            let batch = tokenizer::encode_batch(&*self.share()?, &texts, added.into())?;
            let tokenizer::Encoding { ids, offsets } = batch.tokens;
            Ok(EncodingBatch {
                ids: ids.into(),
                offsets: offsets.into_flattened().into(),
                rows: batch.rows.into(),
            })
        })
    }

    /// Returns the JSON form.
    #[napi]
    pub fn to_json(&self) -> Result<String> {
        guard(|| Ok(self.share()?.to_json()))
    }

    /// Returns the number of ids.
    #[napi]
    pub fn vocab_size(&self) -> Result<u32> {
        guard(|| Ok(self.share()?.vocab_size() as u32))
    }

    /// Returns the ids of a text; with `added`, markers in the text become their ids.
    #[napi]
    pub fn encode(&self, text: String, added: bool) -> Result<Encoding> {
        guard(|| {
            let tokenizer = self.share()?;
            let mut encoding = tokenizer::Encoding::default();
            tokenizer.encode_into(&text, added.into(), &mut encoding)?;
            let tokenizer::Encoding { ids, offsets } = encoding;
            Ok(Encoding { ids: ids.into(), offsets: offsets.into_flattened().into() })
        })
    }

    /// Returns the text of ids.
    #[napi]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        guard(|| self.share()?.decode(ids, skip_special))
    }

    /// Returns the id of a token.
    #[napi]
    pub fn id_of(&self, token: String) -> Result<Option<u32>> {
        guard(|| Ok(self.share()?.id_of(&token)))
    }

    /// Returns the name of an id.
    #[napi]
    pub fn token_of(&self, id: f64) -> Result<Option<String>> {
        guard(|| Ok(self.share()?.token_of(id_from_f64("id", id)?)))
    }

    /// Returns whether an id is special.
    #[napi]
    pub fn is_special(&self, id: f64) -> Result<bool> {
        guard(|| Ok(self.share()?.is_special(id_from_f64("id", id)?)))
    }

    /// Drops the tokenizer.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// Decodes one token at a time.
#[napi]
pub struct DecodeStream {
    inner: Slot<tokenizer::DecodeStream>,
}

#[napi]
impl DecodeStream {
    /// Returns an empty stream.
    #[napi(constructor)]
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Result<Self> {
        guard(|| {
            let stream = tokenizer::DecodeStream::new(tokenizer.share()?, skip_special);
            Ok(Self { inner: Slot::new("stream", stream) })
        })
    }

    /// Returns the text that an id completes.
    #[napi]
    pub fn push(&self, id: f64) -> Result<String> {
        guard(|| self.inner.with(|stream| stream.push(id_from_f64("id", id)?)))
    }

    /// Returns the text that is still held back.
    #[napi]
    pub fn finish(&self) -> Result<String> {
        guard(|| self.inner.with(tokenizer::DecodeStream::finish))
    }

    /// Drops the stream.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

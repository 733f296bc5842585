//! Converts text to token ids and back, with one trait.
//!
//! [`Tokenizer::encode`] never makes an added token from text: `<|im_end|>` typed by a user is ten ordinary
//! characters. Code that builds prompts adds such tokens by id, so no message can close its own frame; only
//! the output of a template, which contains markers by name, uses [`Tokenizer::encode_added`].

mod batch;
mod byte_bpe;
mod char_tokenizer;
mod check;
mod decode_stream;
mod hf;
mod offsets;
mod tiktoken;
mod tokenizer;
mod train;

pub use batch::{EncodingBatch, encode_batch};
pub use byte_bpe::ByteBpe;
pub use char_tokenizer::{CharTokenizer, CharTokenizerOptions};
pub use check::check_tokenizer;
pub use decode_stream::DecodeStream;
pub use fulmar_core::Result;
pub use hf::{HfFiles, HfTokenizer};
pub use offsets::OffsetUnit;
pub use tiktoken::TiktokenTokenizer;
pub use tokenizer::{AddedTokens, Encoding, Tokenizer};
pub use train::train_byte_bpe;

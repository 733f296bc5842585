//! Tokenizers against golden rows and edge cases, in one program.

mod byte_bpe;
mod byte_bpe_golden;
mod hf;
mod hf_golden;

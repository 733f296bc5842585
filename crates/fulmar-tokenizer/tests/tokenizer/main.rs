//! Tokenizers against golden rows and edges, in one program.

mod byte_bpe;
mod byte_bpe_golden;
mod hf;
mod hf_golden;

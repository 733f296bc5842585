//! Hostile input, one function per target: any bytes in, no panic, no hang, no broken invariant.
//!
//! `cargo fuzz run <target>` calls a function without end. The ordinary test suite compiles this library too, as a
//! module of `crates/fulmar/tests/fuzz.rs`, and feeds it the corpora and some thousand seeded mutations of them.

pub mod archive;
pub mod arrays;
pub mod consolidated;
pub mod dataset;
pub mod gguf;
pub mod hdf5;
pub mod ledger;
pub mod messages;
pub mod parser;
pub mod pickled;
pub mod renderer;
pub mod store;
pub mod template;
pub mod tokenizer;

/// The separator of the two parts of a target's input.
pub const SEPARATOR: &str = "\n=====\n";

/// The two parts of `text`; the second is `otherwise` where there is no separator.
fn halves<'a>(text: &'a str, otherwise: &'a str) -> (&'a str, &'a str) {
    text.split_once(SEPARATOR).unwrap_or((text, otherwise))
}

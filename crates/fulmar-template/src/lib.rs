//! Chat templates: Jinja as rendered by transformers, with the spans of the assistant's text.
//!
//! [`Template`] compiles a source once and renders conversations with it. The engine is minijinja; Python's
//! behaviour as seen through Jinja (printed values, methods, errors) is implemented here.

#![expect(clippy::needless_pass_by_value, reason = "the engine hands its functions owned arguments")]

mod arguments;
mod builtin;
mod clock;
mod compare;
mod conversation;
mod environment;
mod failure;
mod filter;
mod global;
mod input;
mod integer;
mod json;
mod meter;
mod method;
mod namespace;
mod operator;
mod output;
mod prepare;
mod print;
mod printf;
mod registry;
mod span;
mod template;
mod test;
mod value;

pub use clock::CivilTime;
pub use registry::{Selected, Selection, TemplateEntry, TemplateQuery, TemplateRegistry};
pub use template::{ContinueFinalMessage, Limits, RenderedText, Template, TemplateInput};

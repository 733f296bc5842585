//! Templates: built-in ones, limits and spans, in one program.

mod bombs;
mod builtin;
mod expressions;
mod limits;
mod registry;
mod spans;

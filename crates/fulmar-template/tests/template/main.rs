//! Templates: built-in ones, limits and spans, in one program.

mod builtin;
mod limits;
mod registry;
mod spans;

//! Stores, their rows and hostile files, in one program.

mod hostile;
mod links;
mod rows;
mod store;

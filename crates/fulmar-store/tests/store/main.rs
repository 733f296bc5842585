//! Stores, their rows and hostile files, in one program.

mod hostile;
mod rows;
mod store;

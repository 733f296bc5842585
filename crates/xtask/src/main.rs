//! Build and check program.
fn main() {}

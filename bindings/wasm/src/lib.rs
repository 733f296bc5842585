//! The WebAssembly face.

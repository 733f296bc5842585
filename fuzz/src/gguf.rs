//! GGUF files: metadata and blocks.

use fulmar::tensor::gguf::File;

/// What is read has tensors that can all be decoded.
pub fn run(data: &[u8]) {
    let Ok(file) = File::read(data) else { return };
    for name in file.names() {
        assert!(file.tensor(name).is_ok(), "every tensor was checked");
    }
}

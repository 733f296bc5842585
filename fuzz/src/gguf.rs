//! GGUF files: metadata and blocks.

use fulmar::tensor::gguf::File;

/// Checks that all tensors of accepted input can be decoded.
pub fn run(data: &[u8]) {
    let Ok(file) = File::read(data) else { return };
    for name in file.names() {
        assert!(file.tensor(name).is_ok(), "every tensor was checked");
    }
}

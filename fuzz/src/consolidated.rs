//! Consolidated files: raw bytes, and descriptions with a valid length after them.

use fulmar::tensor::consolidated;

/// Checks that accepted input can be written and read again.
pub fn run(data: &[u8]) {
    for bytes in [data.to_vec(), measured(data)] {
        if let Ok(dict) = consolidated::read(&bytes)
            && let Ok(written) = consolidated::write(&dict)
        {
            // NaN equals nothing, so bytes are compared.
            let again = consolidated::read(&written).and_then(|dict| consolidated::write(&dict));
            assert_eq!(again.as_ref(), Ok(&written), "bytes bring it back");
        }
    }
}

/// `data` without its length, and the length that reaches to its first brace.
fn measured(data: &[u8]) -> Vec<u8> {
    let held = &data[..data.len().saturating_sub(8)];
    let start = held.iter().position(|byte| *byte == b'{').unwrap_or(held.len());
    [held, &((held.len() - start) as i64).to_le_bytes()].concat()
}

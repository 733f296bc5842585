//! The stamp of compiled kernels: a hash of every file of `kernels/`, the compiler's flags among them. The build script and `cargo
//! xtask kernels` both include this file.

use std::fs;
use std::io::Result;
use std::path::Path;

/// Returns the stamp of the kernels in `folder`: 16 hexadecimal digits. Names and contents count; dates and the line ends of Windows
/// do not.
pub fn stamp(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut text = fs::read(&path)?;
        text.retain(|byte| *byte != b'\r');
        let length = (text.len() as u64).to_le_bytes();
        // FNV-1a: it keeps accidents apart, not attackers.
        for byte in name.into_bytes().into_iter().chain(length).chain(text) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

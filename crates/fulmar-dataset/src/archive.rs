//! Members of `.tar` and `.tar.xz` archives, one in memory at a time. Their names are for messages alone and never become
//! paths; links and folders are passed over.

use std::io::{self, Read};

use fulmar_core::limits::{ARCHIVE_MEMBERS_MAX, MEMBER_BYTES_MAX, XZ_MEMORY_KIB_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use lzma_rust2::XzReader;
use tar::{Archive, Entry};

/// Calls `body` with the name and the bytes of each file of a `.tar.xz`, until it returns false.
///
/// # Errors
/// The errors of [`each_file`]; `LimitExceeded` for an archive that needs more than [`XZ_MEMORY_KIB_MAX`].
pub(crate) fn each_file_of_xz(
    reader: impl Read,
    body: impl FnMut(&str, &[u8]) -> Result<bool>,
) -> Result<()> {
    let mut unpacked = XzReader::new_mem_limit(reader, true, XZ_MEMORY_KIB_MAX);
    if each_file(&mut unpacked, body)? {
        // The checksums are behind the last member.
        let rest = io::copy(&mut unpacked.take(MEMBER_BYTES_MAX + 1), &mut io::sink()).map_err(unreadable)?;
        if rest > MEMBER_BYTES_MAX {
            return Err(too_long("the end of the archive", rest));
        }
    }
    Ok(())
}

/// Calls `body` with the name and the bytes of each file of a `.tar`, until it returns false. Returns true at the end of the archive.
///
/// # Errors
/// `Corrupt` for bytes that are not a whole archive; `Forbidden` for a name that leads out of the archive; `LimitExceeded` for
/// more than [`ARCHIVE_MEMBERS_MAX`] members, or one of more than [`MEMBER_BYTES_MAX`] bytes; those of `body`, with the member.
pub(crate) fn each_file(
    reader: impl Read,
    mut body: impl FnMut(&str, &[u8]) -> Result<bool>,
) -> Result<bool> {
    visit(reader, |_, name, bytes| body(name, bytes))
}

/// Calls `body` with the bytes of the first file of a `.tar`. Returns its answer, and where the next member begins; `None` at the end.
///
/// # Errors
/// The errors of [`each_file`].
pub(crate) fn next_file<T>(
    reader: impl Read,
    body: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<Option<(T, u64)>> {
    let (mut body, mut answer) = (Some(body), None);
    visit(reader, |end, _, bytes| {
        if let Some(body) = body.take() {
            answer = Some((body(bytes)?, end));
        }
        Ok(false)
    })?;
    Ok(answer)
}

/// Visits files: where the next member begins, the name, the bytes.
fn visit(reader: impl Read, mut body: impl FnMut(u64, &str, &[u8]) -> Result<bool>) -> Result<bool> {
    let mut archive = Archive::new(reader);
    // Raw entries: long names of extensions, which would be read into memory whole, stay members that are passed over.
    for (number, entry) in archive.entries().map_err(unreadable)?.raw(true).enumerate() {
        let mut entry = entry.map_err(unreadable)?;
        if number >= ARCHIVE_MEMBERS_MAX {
            let detail = format!(
                "an archive must have at most {ARCHIVE_MEMBERS_MAX} members: got {} or more",
                number + 1
            );
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let located = |error: Error| error.at(format!("member {name:?}"));
        check_name(&name).map_err(located)?;
        let bytes = bytes_of(&mut entry).map_err(located)?;
        let end = entry.raw_file_position() + entry.size().next_multiple_of(BLOCK_BYTES);
        if !body(end, &name, &bytes).map_err(located)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Members begin at multiples of it.
const BLOCK_BYTES: u64 = 512;

/// Refuses names that a program which unpacks would write elsewhere.
fn check_name(name: &str) -> Result<()> {
    let is_inside = !name.starts_with(['/', '\\']) && name.split(['/', '\\']).all(|part| part != "..");
    if is_inside {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Forbidden, "a name must not lead out of the archive: it does"))
}

fn bytes_of(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>> {
    let size = entry.size();
    if size > MEMBER_BYTES_MAX {
        return Err(too_long("a member", size));
    }
    // The vector grows with what is read, not with what the header states.
    let mut bytes = Vec::new();
    entry.take(size).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 != size {
        let detail = format!("a member must have the {size} bytes of its header: got {}", bytes.len());
        return Err(Error::new(ErrorKind::Corrupt, detail));
    }
    Ok(bytes)
}

fn too_long(what: &str, got: u64) -> Error {
    let detail = format!("{what} must have at most {MEMBER_BYTES_MAX} bytes: got {got}");
    Error::new(ErrorKind::LimitExceeded, detail)
}

/// Tells damaged bytes from a system that does not read.
fn unreadable(error: io::Error) -> Error {
    let (kind, rule) = match error.kind() {
        // The decoder's word for a dictionary beyond the bound that it was given.
        io::ErrorKind::OutOfMemory => (ErrorKind::LimitExceeded, "need less memory"),
        io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::Unsupported
        | io::ErrorKind::Other => (ErrorKind::Corrupt, "be whole"),
        _ => return error.into(),
    };
    Error::new(kind, format!("an archive must {rule}: got {error}")).because(error)
}

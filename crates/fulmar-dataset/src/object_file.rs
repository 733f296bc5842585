//! `.npy` files of one pickled object.

use fulmar_core::{Error, ErrorKind, Result};

use crate::pickle::{Pickle, PickleItem};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads the object of an `.npy` file that `numpy.save` made of a value which is not an array, or of a plain pickle.
///
/// # Errors
/// `Corrupt` for a header that is not whole; `Incompatible` for an array of numbers, or of other than one object; those of
/// [`Pickle::read`] and of `body`.
pub(crate) fn read_object_file<T>(bytes: &[u8], body: impl FnOnce(PickleItem<'_>) -> Result<T>) -> Result<T> {
    if !bytes.starts_with(MAGIC) {
        return body(Pickle::read(bytes)?.root());
    }
    let (header, data) = split_header(bytes)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "an .npy file must have a whole header: it has not"))?;
    if !header.contains("'|O'") {
        let shown: String = header.trim_end().chars().take(100).collect();
        let detail = format!("an .npy file must have one object, a dictionary: got {shown}");
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let pickle = Pickle::read(data)?;
    let objects = pickle.root().items().filter(|objects| objects.len() == 1);
    match objects.and_then(|mut objects| objects.next()) {
        Some(object) => body(object),
        None => Err(Error::new(ErrorKind::Incompatible, "an .npy file must have one object: it has others")),
    }
}

/// Splits a file behind its header, whose length has two bytes in version 1 and four in later ones.
fn split_header(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = bytes.get(MAGIC.len()..)?.split_first_chunk::<2>()?;
    let (len, rest) = match version[0] {
        1 => {
            rest.split_first_chunk::<2>().map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest))?
        }
        2 | 3 => {
            let (len, rest) = rest.split_first_chunk::<4>()?;
            (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
        }
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

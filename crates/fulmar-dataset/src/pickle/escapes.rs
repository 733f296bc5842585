//! Texts of protocol 0, which have escapes.

/// Returns the text of Python's `raw-unicode-escape`: `\u` and `\U` with digits are characters, other bytes are those of Latin-1.
/// `None` for digits that are not a character.
pub(super) fn raw_unicode(bytes: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let num_digits = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => {
                text.push(char::from(*first));
                rest = behind;
                continue;
            }
        };
        text.push(char::from_u32(hex(rest.get(2..2 + num_digits)?)?)?);
        rest = &rest[2 + num_digits..];
    }
    Some(text)
}

/// Returns the bytes of a quoted literal of Python 2. `None` without quotes, or for an escape that there is not.
pub(super) fn quoted(literal: &[u8]) -> Option<Vec<u8>> {
    let (quote, inner) = match literal {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => (*first, inner),
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [first, behind @ ..] = rest {
        let (byte, taken) = match rest {
            [b'\\', b'x', ..] => (u8::try_from(hex(rest.get(2..4)?)?).ok()?, 4),
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b'r', ..] => (b'\r', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', escaped @ (b'\\' | b'\'' | b'"'), ..] => (*escaped, 2),
            [b'\\', ..] => return None,
            _ if *first == quote => return None,
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = if taken == 1 { behind } else { &rest[taken..] };
    }
    Some(bytes)
}

fn hex(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_characters() {
        assert_eq!(raw_unicode(b"a\\u0041\\U0001f600\xe9").as_deref(), Some("aA\u{1f600}\u{e9}"));
        assert_eq!(raw_unicode(b"a\\n").as_deref(), Some("a\\n"));
        for broken in [&b"\\u004"[..], b"\\u00g0", b"\\ud800", b"\\U00110000", b"\\u+041"] {
            assert_eq!(raw_unicode(broken), None);
        }
    }

    #[test]
    fn literals_of_python_2_become_bytes() {
        assert_eq!(quoted(br#"'a\x00\n\t\r\\\'"'"#).as_deref(), Some(&b"a\0\n\t\r\\'\""[..]));
        assert_eq!(quoted(br#""it's""#).as_deref(), Some(&b"it's"[..]));
        for broken in [&b""[..], b"'", b"a", b"'a", b"'a\"", b"'\\q'", b"'\\x0'", b"'a'b'"] {
            assert_eq!(quoted(broken), None, "{broken:?}");
        }
    }
}

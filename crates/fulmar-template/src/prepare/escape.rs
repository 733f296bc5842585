//! Escapes in string literals: Python's, rewritten for the engine.

use fulmar_core::{Error, ErrorKind, Result};

/// Writes `quoted`, a string literal with its quotes, for the engine.
///
/// # Errors
/// `Malformed` for an escape that Python refuses or that names no character.
pub fn write_text(out: &mut String, quoted: &str) -> Result<()> {
    if !quoted.contains('\\') {
        out.push_str(quoted);
        return Ok(());
    }
    out.push('"');
    for c in decode(&quoted[1..quoted.len() - 1])?.chars() {
        match c {
            // A literal line end would be counted as a line of the template.
            '\n' => out.push_str("\\n"),
            '"' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(())
}

fn decode(text: &str) -> Result<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        decoded.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let name = escape.chars().next().unwrap_or('\\');
        let (length, c) = match name {
            '\n' => (1, None),
            '\\' | '\'' | '"' => (1, Some(name)),
            'a' => (1, Some('\x07')),
            'b' => (1, Some('\x08')),
            'f' => (1, Some('\x0c')),
            'n' => (1, Some('\n')),
            'r' => (1, Some('\r')),
            't' => (1, Some('\t')),
            'v' => (1, Some('\x0b')),
            'x' => (3, Some(code_point(escape, 1, 2, 16)?)),
            'u' => (5, Some(code_point(escape, 1, 4, 16)?)),
            'U' => (9, Some(code_point(escape, 1, 8, 16)?)),
            '0'..='7' => {
                let length = escape.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                (length, Some(code_point(escape, 0, length, 8)?))
            }
            // Python keeps unknown escapes.
            _ => (0, Some('\\')),
        };
        decoded.extend(c);
        rest = &escape[length..];
    }
    decoded.push_str(rest);
    Ok(decoded)
}

fn code_point(escape: &str, start: usize, length: usize, radix: u32) -> Result<char> {
    let digits = escape
        .get(start..start + length)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok());
    code.and_then(char::from_u32).ok_or_else(|| {
        let shown: String = escape.chars().take(start + length).collect();
        Error::new(ErrorKind::Malformed, format!("an escape must name a character: got \\{shown}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(quoted: &str) -> Result<String> {
        let mut out = String::new();
        write_text(&mut out, quoted).map(|()| out)
    }

    #[test]
    fn escapes_are_those_of_python() {
        assert_eq!(
            written(r"'\x41\u00e9\U0001F600\101\n\d\/\'\\'").unwrap(),
            "\"A\u{e9}\u{1F600}A\\n\\\\d\\\\/'\\\\\""
        );
        assert_eq!(written("'plain \"quotes\"'").unwrap(), "'plain \"quotes\"'");
        for quoted in [r"'\x4'", r"'\ud83d'", r"'\U00110000'", r"'\u12'"] {
            assert_eq!(written(quoted).unwrap_err().kind(), ErrorKind::Malformed, "{quoted}");
        }
    }
}

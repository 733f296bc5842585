//! Names of files and folders for keys, escaped as tensordict does.

use std::fmt::Write;

/// Escapes `key` as a portable file name with `%XX`. Different keys give different names.
pub fn file_name(key: &str) -> String {
    match key {
        // These are no valid file names; `%` itself is escaped, so alone it can represent the empty key.
        "" => "%".to_owned(),
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => key.chars().fold(String::with_capacity(key.len()), |mut name, letter| {
            if matches!(letter, '/' | '<' | '>' | ':' | '"' | '|' | '?' | '*' | '\\' | ' ' | '%')
                || letter.is_ascii_control()
            {
                // Writing to a string cannot fail.
                let _ = write!(name, "%{:02X}", u32::from(letter));
            } else {
                name.push(letter);
            }
            name
        }),
    }
}

/// Returns the key that [`file_name`] escaped; other names are left as they are.
pub fn key_of(name: &str) -> String {
    let mut parts = if name == "%" { "" } else { name }.split('%');
    let mut key = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let letter = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match letter.zip(part.get(2..)) {
            Some((letter, rest)) => {
                key.push(char::from(letter));
                key.push_str(rest);
            }
            None => {
                key.push('%');
                key.push_str(part);
            }
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_tensordict() {
        let pairs = [
            ("a/b", "a%2Fb"),
            ("c:d", "c%3Ad"),
            ("..", "%2E%2E"),
            (".", "%2E"),
            ("...", "..."),
            ("%", "%25"),
            ("", "%"),
            ("sp ace", "sp%20ace"),
            ("q?*", "q%3F%2A"),
            ("a.b", "a.b"),
            ("con", "con"),
            ("\n\\", "%0A%5C"),
        ];
        for (key, name) in pairs {
            assert_eq!(file_name(key), name);
            assert_eq!(key_of(name), key);
        }
    }
}

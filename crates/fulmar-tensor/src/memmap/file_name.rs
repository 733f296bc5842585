//! From keys to the names of files and folders, as tensordict escapes them.

use std::fmt::Write;

/// `key` with `%XX` in place of what a file name cannot hold everywhere. Different keys give different names.
pub fn file_name(key: &str) -> String {
    match key {
        // Those would be no names of files; `%` itself is escaped, so alone it can stand for the empty key.
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
        }
    }
}

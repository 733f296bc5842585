//! Language: a count, for each room, of phrases that plain English avoids. It may only fall: `cargo xtask
//! tidy` lowers the record.

use std::collections::BTreeMap;

use super::config::Config;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

/// Checks that no room has more phrases than `tidy.toml` allows.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for (room, places) in places(tree) {
        let allowed = config.language.get(&room).copied().unwrap_or_default();
        if places.len() > allowed {
            let count = places.len();
            // Which phrase is new is unknown, so all are listed.
            found.extend(places.into_iter().map(|(source, at, phrase)| {
                let message = format!(
                    "`{phrase}`: {room} has {count} phrases of this kind and may have {allowed}; reword one"
                );
                source.finding(at, "language", phrase, message)
            }));
        }
    }
    found
}

/// Returns the text of `tidy.toml` with lower counts, if any is lower now.
pub fn lowered(tree: &Tree, config: &Config) -> Option<String> {
    let places = places(tree);
    let mut text = tree.get("tidy.toml")?.text.clone();
    for (room, allowed) in &config.language {
        let count = places.get(room).map_or(0, Vec::len);
        let line = |count: usize| format!("\"{room}\" = {count}\n");
        if count < *allowed {
            text = text.replace(&line(*allowed), &if count == 0 { String::new() } else { line(count) });
        }
    }
    (text != tree.get("tidy.toml")?.text).then_some(text)
}

/// Returns room -> the file, the place and the text of each phrase.
fn places(tree: &Tree) -> BTreeMap<String, Vec<(&Source, usize, &str)>> {
    let mut rooms: BTreeMap<String, Vec<_>> = BTreeMap::new();
    // This file contains the phrases, and old entries of the changelog stay as they are.
    let is_left =
        |source: &&Source| !source.path.ends_with("tidy/language.rs") && source.path != "CHANGELOG.md";
    for source in tree.sources.values().filter(is_left) {
        let phrases = phrases(source);
        if !phrases.is_empty() {
            let found = phrases.into_iter().map(|(at, phrase)| (source, at, phrase));
            rooms.entry(room(&source.path)).or_default().extend(found);
        }
    }
    rooms
}

/// Returns the room of a file: `crates/fulmar-chat`, `ts/src/chat`, `docs`; `pages` for files in the
/// root.
fn room(path: &str) -> String {
    let parts: Vec<_> = path.split('/').collect();
    let depth = match parts[..] {
        [_] => return "pages".to_owned(),
        ["ts", _, _, _, ..] => 3,
        ["crates" | "bindings" | "ts", ..] => 2,
        _ => 1,
    };
    parts[..depth].join("/")
}

/// Returns the phrases: openers of doc comments, words in comments and pages, and ends of error messages.
fn phrases(source: &Source) -> Vec<(usize, &str)> {
    let words = pattern!(
        r"(?i)\b(who|whom|nobody|somebody|everybody|anybody|everyone|anyone|someone|told|knows|knew|learnt|mends?|buries|(?:go|goes|going|went|gone) on|(?:is|are) none|no number|lies?|lying|stands?|stood|beside|sa(?:y|ys|id) so)\b"
    );
    let ends = pattern!(r#"\bgot (none|others|less)\b[^"'`\n]{0,3}["'`]"#);
    let openers = pattern!(r"^\s*(?:///|//!|/\*\*|\*) (What|Whether|Where|Which|Why|How|Those of|Who)\b");
    let throws = pattern!(r"@throws \{FulmarError\} (What|Those of)\b");
    let is_page = source.path.ends_with(".md");
    let is_code = source.is_rust() || source.is_script();
    let (mut found, mut at, mut before) = (Vec::new(), 0, "");
    for line in source.text.split_inclusive('\n') {
        let start = line.trim_start();
        let code = source.code[at..at + line.len()].trim_end().len();
        let begins_doc = match start.get(..3) {
            Some(slashes @ ("///" | "//!")) => !before.starts_with(slashes),
            Some("/**") => true,
            _ => before.trim_end() == "/**",
        };
        let patterns = [
            (words, is_page || (is_code && code < line.trim_end().len()), if is_page { 0 } else { code }),
            (openers, is_code && begins_doc, 0),
            (throws, is_code && line.contains("@throws"), 0),
            (ends, line.contains("got "), 0),
        ];
        for (pattern, _, from) in patterns.into_iter().filter(|(_, is_here, _)| *is_here) {
            let phrases = pattern.captures_iter(&line[from..]).filter_map(|phrase| phrase.get(1));
            found.extend(phrases.map(|phrase| (at + from + phrase.start(), phrase.as_str())));
        }
        at += line.len();
        before = start;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    const PATH: &str = "crates/fulmar-x/src/a.rs";

    fn found(path: &str, text: &str) -> Vec<String> {
        found_by(check, "", &[(path, text)]).into_iter().map(|(_, item)| item).collect()
    }

    #[test]
    fn openers_words_of_comments_and_ends_of_errors_are_counted() {
        assert_eq!(
            found(PATH, "//! What it is.\n\nfn a() {}\n\n/// Where it is.\n/// How, too.\n"),
            ["What", "Where"]
        );
        assert_eq!(
            found("ts/src/x/a.ts", "/** Whether it is. */\n/**\n * Those of b.\n */\n"),
            ["Whether", "Those of"]
        );
        assert_eq!(found(PATH, "let who = 1; // who\n"), ["who"]);
        assert_eq!(found(PATH, "format!(\"must hold a row: got none\")\n"), ["none"]);
        assert_eq!(found("docs/a.md", "It knows nobody.\n"), ["knows", "nobody"]);
        assert_eq!(
            found("docs/a.md", "It lies beside what stands there, and says so.\n"),
            ["lies", "beside", "stands", "says so"]
        );
    }

    #[test]
    fn persons_and_idioms_in_any_tense_are_counted() {
        assert_eq!(
            found("docs/a.md", "Everybody was told, went on and learnt.\n"),
            ["Everybody", "told", "went on", "learnt"]
        );
        assert_eq!(found("docs/a.md", "No one-hot depends on the gone only.\n"), Vec::<String>::new());
        assert_eq!(
            found("ts/src/x/a.ts", "/** Which row. @throws {FulmarError} What `b` throws. */\n"),
            ["Which", "What"]
        );
        assert_eq!(found(PATH, "/// Why it failed.\n"), ["Why"]);
    }

    #[test]
    fn a_count_may_fall_and_not_rise() {
        let config = |count: usize| format!("[language]\n\"crates/fulmar-x\" = {count}\n");
        let (one, two) = ("// who\n", "// who\n// who\n");
        assert_eq!(found_by(check, &config(1), &[(PATH, one)]), []);
        assert_eq!(found_by(check, &config(1), &[(PATH, two)]).len(), 2);
        let lowered = |count: usize, text: &str| {
            let tree = Tree::from_files([(PATH, text), ("tidy.toml", &config(count))]);
            lowered(&tree, &Config::parse(&config(count)).unwrap())
        };
        assert_eq!(lowered(2, two), None);
        assert_eq!(lowered(2, one), Some(config(1)));
        assert_eq!(lowered(2, ""), Some("[language]\n".to_owned()));
    }
}

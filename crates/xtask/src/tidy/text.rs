//! The text of files: white space, characters, notes to ourselves, paths of one machine.

use super::Finding;
use super::config::Config;
use super::mask::Class;
use super::source::{Language, Source};
use super::tree::Tree;

/// Folders that exist on the machine of whoever wrote the line, and on no other.
const MACHINE_FOLDERS: [&str; 3] = ["/work/", "/root/", "/home/"];

/// Checks every text file of the tree.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    tree.sources().flat_map(|source| lines(source).into_iter().chain(odd_characters(source))).collect()
}

fn finding(source: &Source, line: usize, rule: &'static str, message: String) -> Finding {
    Finding { path: source.path.clone(), line, rule, item: String::new(), message }
}

fn lines(source: &Source) -> Vec<Finding> {
    let bans_tabs = source.language != Language::Other || source.path.ends_with(".md");
    let is_rule_itself = source.path.ends_with("tidy/text.rs");
    let mut found = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut push = |rule, message: String| found.push(finding(source, index + 1, rule, message));
        if line.ends_with([' ', '\t']) {
            push("trailing-space", "space at the end of the line; delete it".to_owned());
        }
        if bans_tabs && line.contains('\t') {
            push("tab", "a tab; write spaces, or \\t in a text".to_owned());
        }
        if !is_rule_itself && has_bare_note(line) {
            push("todo", "a TODO without an issue; write `TODO(#12)` or do it now".to_owned());
        }
        if let Some(folder) =
            MACHINE_FOLDERS.iter().find(|folder| !is_rule_itself && names_folder(line, folder))
        {
            push(
                "machine-path",
                format!("names {folder} of one machine; make the path relative to the repository"),
            );
        }
    }
    found
}

/// `TODO` and its sisters must name an issue: `TODO(#12)`.
fn has_bare_note(line: &str) -> bool {
    ["TODO", "FIXME", "XXX"].iter().any(|note| {
        line.match_indices(note).any(|(at, _)| {
            let is_part =
                |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            let before = at.checked_sub(1).and_then(|before| line.as_bytes().get(before));
            let after = &line[at + note.len()..];
            !is_part(before) && !is_part(after.as_bytes().first()) && !after.starts_with("(#")
        })
    })
}

/// `/work/x` is a folder of a machine, `target/work/x` and `https://a.b/work/x` are not.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().last();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-*}~)".contains(before))
    })
}

/// Characters beyond ASCII belong to docs, comments and tests: in code an escape says which one is meant.
fn odd_characters(source: &Source) -> Vec<Finding> {
    if source.language == Language::Other {
        return Vec::new();
    }
    let odd = source.text.char_indices().filter(|(at, character)| {
        !character.is_ascii()
            && matches!(source.class[*at], Class::Code | Class::Text)
            && !source.is_test(*at)
    });
    let mut found: Vec<Finding> = Vec::new();
    for (at, character) in odd {
        let line = source.line_of(at);
        if found.last().is_none_or(|last| last.line != line) {
            let escape = character.escape_unicode();
            let message = format!("`{character}` in code; write the escape {escape} so that it can be read");
            found.push(finding(source, line, "non-ascii", message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Tree::from_files([(path, text)]), &Config::default())
            .into_iter()
            .map(|finding| finding.rule)
            .collect()
    }

    #[test]
    fn white_space_is_plain() {
        assert_eq!(rules("a.md", "a \n"), ["trailing-space"]);
        assert_eq!(rules("a.rs", "\tfn a() {}\n"), ["tab"]);
        assert_eq!(rules("a.json", "\t{}\n"), [] as [&str; 0]);
    }

    #[test]
    fn a_note_names_its_issue() {
        assert_eq!(rules("a.rs", "// TODO: later\n"), ["todo"]);
        assert_eq!(rules("a.rs", "// TODO(#12): later\nconst TODOS: u8 = 1;\n"), [] as [&str; 0]);
    }

    #[test]
    fn paths_of_one_machine_are_refused() {
        assert_eq!(rules("a.md", "run /work/x\n"), ["machine-path"]);
        assert_eq!(rules("a.md", "see https://a.b/work/x and build/work/x\n"), [] as [&str; 0]);
    }

    #[test]
    fn characters_beyond_ascii_stand_in_docs_and_tests_only() {
        assert_eq!(rules("a.rs", "const A: &str = \"é\";\n"), ["non-ascii"]);
        assert_eq!(
            rules("a.rs", "/// é\n// é\n#[cfg(test)]\nmod tests { const A: &str = \"é\"; }\n"),
            [] as [&str; 0]
        );
        assert_eq!(rules("ts/test/a/a.test.ts", "'é'\n"), [] as [&str; 0]);
        assert_eq!(rules("a.md", "é\n"), [] as [&str; 0]);
    }
}

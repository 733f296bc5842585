//! Text of files: white space, characters, TODO notes, paths of one machine.

use super::config::Config;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

/// Checks every text file of the tree.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    // This file contains the patterns.
    let sources = tree.sources.values().filter(|source| !source.path.ends_with("tidy/text.rs"));
    sources.flat_map(|source| lines(source).into_iter().chain(odd_characters(source))).collect()
}

fn lines(source: &Source) -> Vec<Finding> {
    let bans_tabs = source.is_rust() || source.is_script() || source.path.ends_with(".md");
    let note = pattern!(r"\b(?:TODO|FIXME|XXX)\b(?:[^(]|\([^#]|$)");
    // Not `target/work/x` and `https://a.b/work/x`.
    let folder = pattern!(r"(?:^|[^\w.*}~)-])/(?:work|root|home)/");
    let (mut found, mut at) = (Vec::new(), 0);
    for line in source.text.split_inclusive('\n') {
        let text = line.trim_end_matches('\n');
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let rules = [
            ("trailing-space", text.ends_with([' ', '\t']), "space at the end of the line; delete it"),
            ("tab", bans_tabs && text.contains('\t'), "a tab; write spaces, or \\t in a text"),
            (
                "todo",
                has(&["TODO", "FIXME", "XXX"]) && note.is_match(text),
                "a note without an issue; write `TODO(#12)` or do it now",
            ),
            (
                "machine-path",
                has(&["/work/", "/root/", "/home/"]) && folder.is_match(text),
                "a folder of one machine; make the path relative",
            ),
        ];
        let broken = rules.into_iter().filter(|(_, is_broken, _)| *is_broken);
        found.extend(broken.map(|(rule, _, message)| source.finding(at, rule, "", message.to_owned())));
        at += line.len();
    }
    found
}

/// Finds characters beyond ASCII in code, where an escape is clearer; docs, comments and tests may have
/// them.
fn odd_characters(source: &Source) -> Vec<Finding> {
    if source.code.is_ascii() || !(source.is_rust() || source.is_script()) {
        return Vec::new();
    }
    let odd = pattern!(r"[^\x00-\x7f]").find_iter(&source.code).filter(|odd| !source.is_test(odd.start()));
    let escape = |odd: &str| odd.escape_unicode().to_string();
    odd.map(|odd| {
        source.finding(odd.start(), "non-ascii", "", format!("write the escape {}", escape(odd.as_str())))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    #[test]
    fn text_is_plain() {
        for (path, text, expected) in [
            ("a.md", "a \n", Some("trailing-space")),
            ("a.rs", "\tfn a() {}\n", Some("tab")),
            ("a.json", "\t{}\n", None),
            ("a.rs", "// TODO: later\n", Some("todo")),
            ("a.rs", "// TODO(#12): later\nconst TODOS: u8 = 1;\n", None),
            ("a.md", "run /work/x\n", Some("machine-path")),
            ("a.md", "see https://a.b/work/x and build/work/x\n", None),
            ("a.rs", "const A: &str = \"é\";\n", Some("non-ascii")),
            ("a.rs", "/// é\n// é\n#[cfg(test)]\nmod tests { const A: &str = \"é\"; }\n", None),
            ("ts/test/a/a.test.ts", "'é'\n", None),
            ("a.md", "é\n", None),
        ] {
            let found = found_by(check, "", &[(path, text)]);
            assert!(found.iter().map(|(rule, _)| *rule).eq(expected), "{path}: {text}");
        }
    }
}

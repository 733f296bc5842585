//! Names of files, types, functions and tests. Rustc and biome check their case, knip finds files without
//! imports.

use super::config::Config;
use super::tree::{Source, Tree, is_test_path};
use super::{Finding, pattern};

/// Checks file names, type names, function prefixes and subjects of tests.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let mut found: Vec<_> = tree.paths.iter().filter_map(|path| empty_file_name(path)).collect();
    for source in tree.sources.values() {
        found.extend(empty_names(source));
        found.extend(without_subject(tree, source));
    }
    found
}

fn empty_file_name(path: &str) -> Option<Finding> {
    let empty = pattern!(
        r"(?i)(?:^|/)(?:new[-_][^/.]*|(?:[^/.]*[-_])?(util|utils|helper|helpers|common|misc|manager|base|impl|v2|old|legacy)(?:[-_][^/.]*)?)\.[^/]*$"
    );
    let is_data = path.starts_with("tests/golden/") || path.starts_with("benches/record/");
    (empty.is_match(path) && !is_data).then(|| Finding {
        path: path.to_owned(),
        line: 0,
        rule: "name",
        item: String::new(),
        message: "the name is too general; name the file after its main noun".to_owned(),
    })
}

fn empty_names(source: &Source) -> Vec<Finding> {
    let (types, functions) = match (source.is_rust(), source.is_script()) {
        (true, _) => (
            pattern!(r"\b(?:struct|enum|trait|type) (\w*(?:Impl|V2|Manager|Helper|Utils?))\b"),
            source.path.starts_with("crates/").then(|| pattern!(r"\bfn ((?:get_|do_)\w+)")),
        ),
        (_, true) => (pattern!(r"\b(?:class|interface|type) (\w*(?:Impl|V2|Manager|Helper|Utils?))\b"), None),
        _ => return Vec::new(),
    };
    let patterns = [Some((types, "its suffix is too general; name what the type is"))];
    let functions = functions.map(|functions| (functions, "drop the prefix; the verb or the noun is enough"));
    let both = patterns.into_iter().chain([functions]).flatten();
    let found =
        both.flat_map(|(names, fix)| names.captures_iter(&source.code).map(move |found| (found, fix)));
    found
        .filter_map(|(found, fix)| {
            let name = found.get(1)?;
            Some(source.finding(name.start(), "name", name.as_str(), format!("`{}`: {fix}", name.as_str())))
        })
        .collect()
}

/// Returns a finding unless a test file is named after the file it tests or its first line is a comment.
fn without_subject(tree: &Tree, source: &Source) -> Option<Finding> {
    let path = &source.path;
    let is_noted = ["//", "/*"].iter().any(|note| source.text.trim_start().starts_with(note));
    if !is_test_path(path) || is_noted || !(source.is_rust() || source.is_script()) {
        return None;
    }
    let subject = if let Some(rest) = path.strip_prefix("ts/test/") {
        let (stem, _) = rest.split_once(".test")?;
        let (folder, last) = stem.rsplit_once('/').unwrap_or(("", stem));
        format!("ts/src/{}", if folder == last { folder } else { stem })
    } else {
        let (folder, name) =
            path.split_once("/tests/").filter(|(folder, _)| folder.starts_with("crates/"))?;
        format!("{folder}/src/{}", name.trim_end_matches(".rs"))
    };
    let files = [".ts", ".rs", "/index.ts"].map(|end| format!("{subject}{end}"));
    let message =
        format!("tests no file {subject}; name it after one, or write what it tests in a comment on top");
    (!files.iter().any(|file| tree.paths.contains(file))).then(|| source.whole("subject", "", message))
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(&'static str, String)> {
        found_by(check, "", &[(path, text), ("ts/src/x/a.ts", ""), ("crates/x/src/a.rs", "")])
    }

    #[test]
    fn empty_words_name_nothing() {
        for stem in ["utils", "chat_helpers", "new_ledger", "ledger_v2", "base", "base_case"] {
            assert_eq!(rules(&format!("crates/x/src/{stem}.rs"), ""), [("name", String::new())], "{stem}");
        }
        assert!(
            ["database", "renew", "a"]
                .iter()
                .all(|stem| rules(&format!("crates/x/src/{stem}.rs"), "").is_empty())
        );
        let name = |name: &str| vec![("name", name.to_owned())];
        assert_eq!(rules("a.rs", &format!("struct {};\n", "LedgerImpl")), name("LedgerImpl"));
        assert_eq!(rules("a.ts", "class TaskManager {}\nclass Task {}\n"), name("TaskManager"));
        assert_eq!(
            rules("crates/x/src/b.rs", &format!("fn {}() {{}}\nfn done() {{}}\n", "get_a")),
            name("get_a")
        );
    }

    #[test]
    fn a_test_file_has_a_subject() {
        for path in ["ts/test/x/b.test.ts", "crates/x/tests/b.rs"] {
            assert_eq!(rules(path, ""), [("subject", String::new())]);
            assert_eq!(rules(path, "// A run from start to end.\n"), []);
        }
        assert!(["ts/test/x/a.test.ts", "crates/x/tests/a.rs"].iter().all(|path| rules(path, "").is_empty()));
    }
}

//! Names: of files, of types, of tests; and files that nobody asks for.

use std::collections::BTreeSet;

use super::Finding;
use super::config::Config;
use super::function::functions;
use super::manifest::entries;
use super::source::{Language, Source, is_test_path};
use super::tree::Tree;
use super::typescript::{ROOT, imports, resolve};

/// Words that say nothing about what a file holds.
const EMPTY_WORDS: [&str; 12] = [
    "util", "utils", "helper", "helpers", "common", "misc", "manager", "base", "impl", "v2", "old", "legacy",
];
/// Ends of type names that say nothing about the type.
const EMPTY_ENDS: [&str; 6] = ["Impl", "V2", "Manager", "Helper", "Util", "Utils"];

/// Checks file names, type names, function prefixes, subjects of tests and files that nothing imports.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let mut found: Vec<_> = tree.paths().filter_map(file_name).collect();
    for source in tree.sources() {
        found.extend(type_names(source));
        found.extend(function_names(source));
    }
    found.extend(unimported(tree));
    found.extend(tree.sources().filter_map(|source| without_subject(tree, source)));
    found
}

fn file_name(path: &str) -> Option<Finding> {
    let name = path.rsplit('/').next()?;
    let (stem, end) = name.split_once('.').filter(|(stem, _)| !stem.is_empty())?;
    if path.starts_with("tests/golden/") || path.starts_with("benches/record/") {
        return None;
    }
    let finding =
        |rule, message| Finding { path: path.to_owned(), line: 0, rule, item: stem.to_owned(), message };
    let words: Vec<_> = stem.split(['-', '_']).collect();
    let empty = words.iter().find(|word| EMPTY_WORDS.contains(&word.to_lowercase().as_str()));
    if let Some(word) = empty.or_else(|| (words.len() > 1 && words[0] == "new").then_some(&"new")) {
        return Some(finding(
            "name",
            format!("`{word}` names nothing; name the file after the one noun it holds"),
        ));
    }
    let lower = |joint: char| {
        stem.chars().all(|character| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || character == joint
        })
    };
    match end.rsplit('.').next()? {
        "rs" if !lower('_') => Some(finding("case", "a Rust file is snake_case; rename it".to_owned())),
        "ts" | "mts" | "js" | "mjs" if !lower('-') => {
            Some(finding("case", "a TypeScript file is kebab-case; rename it".to_owned()))
        }
        _ => None,
    }
}

fn type_names(source: &Source) -> Vec<Finding> {
    let keywords: &[&str] = match source.language {
        Language::Rust => &["struct", "enum", "trait", "type"],
        Language::TypeScript => &["class", "interface", "type"],
        Language::Other => &[],
    };
    let declared = keywords
        .iter()
        .flat_map(|keyword| source.words(keyword).filter_map(|at| source.next_code(at + keyword.len())));
    let empty = declared.filter_map(|at| {
        let name = source.name_at(at);
        let end = EMPTY_ENDS.iter().find(|end| name.ends_with(**end))?;
        Some(Finding {
            path: source.path.clone(),
            line: source.line_of(at),
            rule: "name",
            item: name.to_owned(),
            message: format!("`{name}`: `{end}` names nothing; say what the type is"),
        })
    });
    empty.collect()
}

fn function_names(source: &Source) -> Vec<Finding> {
    if source.language != Language::Rust || !source.path.starts_with("crates/") {
        return Vec::new();
    }
    let empty = functions(source).into_iter().filter_map(|function| {
        let prefix = ["get_", "do_"].into_iter().find(|prefix| function.name.starts_with(prefix))?;
        Some(Finding {
            path: source.path.clone(),
            line: source.line_of(function.at),
            rule: "name",
            message: format!("`{}`: drop `{prefix}`, the verb or the noun says it", function.name),
            item: function.name,
        })
    });
    empty.collect()
}

fn unimported(tree: &Tree) -> Vec<Finding> {
    let mut imported: BTreeSet<String> = super::manifest::named_sources(tree);
    imported.extend(entries(tree));
    for source in tree.under(ROOT, "") {
        imported.extend(
            imports(source).iter().filter_map(|import| resolve(tree, &source.path, import.specifier)),
        );
    }
    let dead = tree
        .under(ROOT, ".ts")
        .filter(|source| !imported.contains(&source.path) && !source.path.ends_with(".d.ts"));
    dead.map(|source| Finding {
        path: source.path.clone(),
        line: 0,
        rule: "unimported",
        item: String::new(),
        message: "no source file imports it; export it from its room's index.ts, or delete it".to_owned(),
    })
    .collect()
}

/// A test file is named after what it tests, or its first line says what that is.
fn without_subject(tree: &Tree, source: &Source) -> Option<Finding> {
    let opens_with_note =
        source.text.trim_start().starts_with("//") || source.text.trim_start().starts_with("/*");
    if !is_test_path(&source.path) || opens_with_note {
        return None;
    }
    let subjects = if let Some(rest) = source.path.strip_prefix("ts/test/") {
        let (stem, _) = rest.split_once(".test")?;
        let last = stem.rsplit('/').next()?;
        let folder = stem.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut subjects = vec![format!("{ROOT}{stem}.ts"), format!("{ROOT}{stem}/index.ts")];
        if folder == last {
            subjects.push(format!("{ROOT}{folder}/index.ts"));
        }
        subjects
    } else {
        let (folder, name) =
            source.path.split_once("/tests/").filter(|(folder, _)| folder.starts_with("crates/"))?;
        vec![format!("{folder}/src/{name}")]
    };
    if subjects.iter().any(|subject| tree.has(subject)) {
        return None;
    }
    let message =
        format!("tests no file {}; name it after one, or say what it tests in a comment on top", subjects[0]);
    Some(Finding { path: source.path.clone(), line: 1, rule: "subject", item: String::new(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let found = check(&Tree::from_files(files.iter().copied()), &Config::default());
        found.into_iter().map(|finding| (finding.rule, finding.item)).collect()
    }

    #[test]
    fn empty_words_name_no_file() {
        for stem in ["utils", "chat_helpers", "new_ledger", "ledger_v2", "base"] {
            assert_eq!(rules(&[(&format!("crates/x/src/{stem}.rs"), "")]), [("name", stem.to_owned())]);
        }
        assert_eq!(rules(&[("crates/x/src/database.rs", ""), ("crates/x/src/renew.rs", "")]), []);
    }

    #[test]
    fn files_are_in_the_case_of_their_language() {
        assert_eq!(rules(&[("crates/x/src/aB.rs", "")]), [("case", "aB".to_owned())]);
        assert_eq!(rules(&[("examples/a_b.ts", "")]), [("case", "a_b".to_owned())]);
        assert_eq!(rules(&[("examples/01-a.test-d.ts", ""), ("README.md", ""), (".gitignore", "")]), []);
    }

    #[test]
    fn empty_ends_name_no_type() {
        assert_eq!(rules(&[("a.rs", "struct LedgerImpl;\n")]), [("name", "LedgerImpl".to_owned())]);
        assert_eq!(
            rules(&[("a.ts", "class TaskManager {}\nclass Task {}\n")]),
            [("name", "TaskManager".to_owned())]
        );
    }

    #[test]
    fn functions_drop_get_and_do() {
        assert_eq!(
            rules(&[("crates/x/src/a.rs", "fn get_a() {}\nfn done() {}\n")]),
            [("name", "get_a".to_owned())]
        );
    }

    #[test]
    fn a_source_file_nothing_imports_is_dead() {
        let index = ("ts/src/index.ts", "export * from './x/a.js'\n");
        let a = ("ts/src/x/a.ts", "new Worker(new URL('./worker.js', import.meta.url))\n");
        assert_eq!(
            rules(&[index, a, ("ts/src/x/worker.ts", ""), ("ts/src/x/b.ts", "")]),
            [("unimported", String::new())]
        );
    }

    #[test]
    fn a_test_file_has_a_subject() {
        let index = ("ts/src/index.ts", "export * from './x/a.js'\n");
        let a = ("ts/src/x/a.ts", "");
        assert_eq!(rules(&[index, a, ("ts/test/x/a.test.ts", "")]), []);
        assert_eq!(rules(&[index, a, ("ts/test/x/b.test.ts", "")]), [("subject", String::new())]);
        assert_eq!(rules(&[index, a, ("ts/test/x/b.test.ts", "// A run from start to end.\n")]), []);
        assert_eq!(rules(&[("crates/x/tests/a.rs", "")]), [("subject", String::new())]);
        assert_eq!(rules(&[("crates/x/tests/a.rs", ""), ("crates/x/src/a.rs", "")]), []);
    }
}

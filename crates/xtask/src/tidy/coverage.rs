//! What a test must reach: every kind of error, every limit; and where golden data comes from.

use std::collections::BTreeSet;

use super::Finding;
use super::config::Config;
use super::mask::Class;
use super::source::Source;
use super::tree::Tree;

const ERROR: &str = "crates/fulmar-core/src/error.rs";
const LIMITS: &str = "crates/fulmar-core/src/limits.rs";
const TYPESCRIPT_ERROR: &str = "ts/src/core/error.ts";
const GOLDEN: &str = "tests/golden/";

/// Checks that kinds and limits are tested, that TypeScript knows every code, and that golden data says its origin.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(source) = tree.get(ERROR) {
        found.extend(untested_kinds(tree, source));
        found.extend(code_mismatches(tree, source, config));
    }
    if let Some(source) = tree.get(LIMITS) {
        found.extend(untested_limits(tree, source));
    }
    found.extend(golden_without_origin(tree));
    found
}

/// (variant, code, where the code is written), from the arms `Self::Variant => "CODE"`.
fn kinds(source: &Source) -> Vec<(&str, &str, usize)> {
    let arms = source.code.match_indices("Self::").filter_map(|(at, _)| {
        let name = source.name_at(at + "Self::".len());
        let arrow = source.next_code(at + "Self::".len() + name.len())?;
        let quote = source.code[arrow..].strip_prefix("=>").and_then(|_| source.next_code(arrow + 2))?;
        (source.code.as_bytes()[quote] == b'"').then(|| (name, source.quoted_at(quote), at))
    });
    arms.collect()
}

fn untested_kinds(tree: &Tree, source: &Source) -> Vec<Finding> {
    let tests: Vec<&str> = tree.sources().filter(|test| test.path != ERROR).flat_map(Source::tests).collect();
    let untested = kinds(source).into_iter().filter(|(variant, code, _)| {
        let by_kind = format!("ErrorKind::{variant}");
        !tests.iter().any(|test| has_word(test, &by_kind) || has_word(test, code))
    });
    untested
        .map(|(variant, code, at)| Finding {
            path: ERROR.to_owned(),
            line: source.line_of(at),
            rule: "untested-kind",
            item: variant.to_owned(),
            message: format!(
                "no test produces ErrorKind::{variant} ({code}); test it where it is raised, or delete it"
            ),
        })
        .collect()
}

fn untested_limits(tree: &Tree, source: &Source) -> Vec<Finding> {
    let tests: Vec<&str> =
        tree.sources().filter(|test| test.path != LIMITS).flat_map(Source::tests).collect();
    let constants = source.words("const").filter_map(|at| Some((source.next_code(at + "const".len())?, at)));
    let named = constants.map(|(name, at)| (source.name_at(name), at)).filter(|(name, _)| *name != "fn");
    named
        .filter(|(name, _)| !tests.iter().any(|test| has_word(test, name)))
        .map(|(name, at)| Finding {
            path: LIMITS.to_owned(),
            line: source.line_of(at),
            rule: "untested-limit",
            item: name.to_owned(),
            message: format!(
                "no test reaches {name}; test at the bound and one past it where it is used, or delete it"
            ),
        })
        .collect()
}

/// The codes of Rust and the union of TypeScript must be the same, less what only TypeScript raises.
fn code_mismatches(tree: &Tree, rust: &Source, config: &Config) -> Vec<Finding> {
    let Some(typescript) = tree.get(TYPESCRIPT_ERROR) else { return Vec::new() };
    let codes: BTreeSet<_> = kinds(rust).into_iter().map(|(_, code, _)| code).collect();
    let own: BTreeSet<_> = config.typescript.own_codes.iter().map(String::as_str).collect();
    let known = constants_in_quotes(typescript);
    let finding = |path: &str, line, code: &str, message| Finding {
        path: path.to_owned(),
        line,
        rule: "codes",
        item: code.to_owned(),
        message,
    };
    let missing = codes.iter().filter(|code| !known.iter().any(|(name, _)| name == *code)).map(|code| {
        let message = format!("ErrorKind has the code {code}, the union here has not; add it");
        finding(TYPESCRIPT_ERROR, 0, code, message)
    });
    let extra =
        known.iter().filter(|(code, _)| !codes.contains(code) && !own.contains(code)).map(|(code, at)| {
            let message =
                format!("no ErrorKind has the code {code}; delete it, or list it in own_codes of tidy.toml");
            finding(TYPESCRIPT_ERROR, typescript.line_of(*at), code, message)
        });
    missing.chain(extra).collect()
}

/// Texts of the form `SHAPE_MISMATCH` in code, each once, with the place of the first.
fn constants_in_quotes(source: &Source) -> Vec<(&str, usize)> {
    let mut seen = BTreeSet::new();
    let quotes = source
        .code
        .match_indices('\'')
        .map(|(at, _)| at)
        .filter(|&at| source.class.get(at + 1) == Some(&Class::Text));
    let texts = quotes.map(|at| (source.quoted_at(at), at));
    let constants = texts.filter(|(text, _)| {
        text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    });
    constants.filter(|(text, _)| seen.insert(*text)).collect()
}

fn golden_without_origin(tree: &Tree) -> Vec<Finding> {
    let folders = tree.folders(GOLDEN).into_iter().map(|name| format!("{GOLDEN}{name}/"));
    let silent = folders.filter(|folder| !tree.has(&format!("{folder}HOW.md")));
    silent
        .map(|folder| Finding {
            path: folder,
            line: 0,
            rule: "golden-how",
            item: String::new(),
            message: "has no HOW.md; say which program made the data, its version and the command".to_owned(),
        })
        .collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = text.as_bytes();
    text.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_part(before) && !is_part(bytes.get(at + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: &str = "fn code() { match self { Self::Io => \"IO\", Self::Empty => \"EMPTY\" } }\n";

    fn items(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let config = Config::parse("[typescript]\nown_codes = ['ABORTED']\n").unwrap();
        let found = check(&Tree::from_files(files.iter().copied()), &config);
        found.into_iter().map(|finding| (finding.rule, finding.item)).collect()
    }

    #[test]
    fn a_kind_that_no_test_names_is_refused() {
        let rust = (
            "crates/x/src/a.rs",
            "#[cfg(test)]\nmod tests { fn a() { ErrorKind::Io; ErrorKind::EmptyRow; } }\n",
        );
        assert_eq!(items(&[(ERROR, KINDS), rust]), [("untested-kind", "Empty".to_owned())]);
        assert_eq!(items(&[(ERROR, KINDS), rust, ("ts/test/a.test.ts", "'EMPTY'\n")]), []);
    }

    #[test]
    fn a_kind_that_only_code_names_is_untested() {
        let rust = ("crates/x/src/a.rs", "fn a() { ErrorKind::Io; ErrorKind::Empty; }\n");
        assert_eq!(items(&[(ERROR, KINDS), rust]).len(), 2);
    }

    #[test]
    fn a_limit_that_no_test_reaches_is_refused() {
        let limits = (LIMITS, "/// A.\npub const A_MAX: usize = 1;\n/// B.\npub const B_MAX: usize = 1;\n");
        let tests = ("crates/x/tests/a.rs", "//! A.\nuse limits::A_MAX;\n");
        assert_eq!(items(&[limits, tests]), [("untested-limit", "B_MAX".to_owned())]);
    }

    #[test]
    fn both_languages_know_the_same_codes() {
        let tests = ("crates/x/tests/a.rs", "//! A.\nErrorKind::Io ErrorKind::Empty\n");
        let union = |codes: &str| {
            [(ERROR, KINDS.to_owned()), (tests.0, tests.1.to_owned()), (TYPESCRIPT_ERROR, codes.to_owned())]
        };
        let check = |codes: &str| {
            let files = union(codes);
            items(&files.iter().map(|(path, text)| (*path, text.as_str())).collect::<Vec<_>>())
        };
        assert_eq!(check("type Code = 'IO' | 'EMPTY' | 'ABORTED'\n"), []);
        assert_eq!(check("type Code = 'IO' // 'EMPTY'\n"), [("codes", "EMPTY".to_owned())]);
        assert_eq!(check("type Code = 'IO' | 'EMPTY' | 'TYPO'\n"), [("codes", "TYPO".to_owned())]);
    }

    #[test]
    fn golden_data_says_where_it_comes_from() {
        assert_eq!(items(&[("tests/golden/a/rows.json", "")]).len(), 1);
        assert_eq!(items(&[("tests/golden/a/rows.json", ""), ("tests/golden/a/HOW.md", "")]), []);
    }
}

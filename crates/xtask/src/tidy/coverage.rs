//! Coverage by tests: of every error kind and every limit; and the origin of golden data.

use std::collections::BTreeSet;

use super::config::Config;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

const ERROR: &str = "crates/fulmar-core/src/error.rs";
const LIMITS: &str = "crates/fulmar-core/src/limits.rs";
const TYPESCRIPT_ERROR: &str = "ts/src/core/error.ts";
const GOLDEN: &str = "tests/golden/";

/// Checks that kinds and limits are tested, that TypeScript has every code, and that golden data has a
/// HOW.md.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(source) = tree.get(ERROR) {
        found.extend(untested_kinds(tree, source));
        found.extend(code_mismatches(tree, source, config));
    }
    found.extend(tree.get(LIMITS).into_iter().flat_map(|source| untested_limits(tree, source)));
    found.extend(golden_without_origin(tree));
    found
}

/// Returns (place, variant, code), from the arms `Self::Variant => "CODE"`.
fn kinds(source: &Source) -> impl Iterator<Item = (usize, &str, &str)> {
    let arms = pattern!(r#"Self::(\w+) => "(\w+)""#).captures_iter(&source.code);
    arms.filter_map(|arm| Some((arm.get(0)?.start(), arm.get(1)?.as_str(), arm.get(2)?.as_str())))
}

/// Returns every word of the tests outside `path`.
fn tested_words<'a>(tree: &'a Tree, path: &str) -> BTreeSet<&'a str> {
    let tests = tree.sources.values().filter(|source| source.path != path).map(Source::tests);
    tests
        .flat_map(|tests| pattern!(r"(?:\bErrorKind::)?\b\w+").find_iter(tests))
        .map(|word| word.as_str())
        .collect()
}

fn untested_kinds(tree: &Tree, source: &Source) -> Vec<Finding> {
    let tested = tested_words(tree, ERROR);
    let is_tested = |variant: &str, code: &str| {
        tested.contains(format!("ErrorKind::{variant}").as_str()) || tested.contains(code)
    };
    let untested = kinds(source).filter(|(_, variant, code)| !is_tested(variant, code));
    untested
        .map(|(at, variant, code)| {
            let fix = "test it where it is raised, or delete it";
            source.finding(
                at,
                "untested-kind",
                variant,
                format!("no test produces ErrorKind::{variant} ({code}); {fix}"),
            )
        })
        .collect()
}

fn untested_limits(tree: &Tree, source: &Source) -> Vec<Finding> {
    let tested = tested_words(tree, LIMITS);
    let constants =
        pattern!(r"\bconst (\w+):").captures_iter(&source.code).filter_map(|constant| constant.get(1));
    let untested = constants.filter(|name| !tested.contains(name.as_str()));
    let fix = "test at the bound and one past it where it is used, or delete it";
    untested
        .map(|name| {
            source.finding(
                name.start(),
                "untested-limit",
                name.as_str(),
                format!("no test reaches {}; {fix}", name.as_str()),
            )
        })
        .collect()
}

/// Compares the codes of Rust with those of TypeScript, without those that only TypeScript raises.
fn code_mismatches(tree: &Tree, rust: &Source, config: &Config) -> Vec<Finding> {
    let Some(typescript) = tree.get(TYPESCRIPT_ERROR) else { return Vec::new() };
    let codes: BTreeSet<&str> = kinds(rust).map(|(_, _, code)| code).collect();
    let known: BTreeSet<&str> = pattern!("'([A-Z_]{2,})'")
        .captures_iter(&typescript.code)
        .filter_map(|code| Some(code.get(1)?.as_str()))
        .collect();
    let own: BTreeSet<&str> = config.typescript.own_codes.iter().map(String::as_str).collect();
    let missing =
        codes.difference(&known).map(|code| (*code, "is a code of ErrorKind and not of TypeScript; add it"));
    let extra = known.difference(&codes).filter(|code| !own.contains(*code));
    let extra =
        extra.map(|code| (*code, "is no code of ErrorKind; delete it, or list it in own_codes of tidy.toml"));
    missing
        .chain(extra)
        .map(|(code, what)| typescript.whole("codes", code, format!("{code} {what}")))
        .collect()
}

fn golden_without_origin(tree: &Tree) -> Vec<Finding> {
    let folders = tree.folders(GOLDEN).into_iter().map(|name| format!("{GOLDEN}{name}/"));
    let silent = folders.filter(|folder| !tree.paths.contains(&format!("{folder}HOW.md")));
    let message = "has no HOW.md; write which program made the data, its version and the command";
    silent
        .map(|path| Finding {
            path,
            line: 0,
            rule: "golden-how",
            item: String::new(),
            message: message.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    const KINDS: (&str, &str) =
        (ERROR, "fn code() { match self { Self::Io => \"IO\", Self::Empty => \"EMPTY\" } }\n");

    fn items(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        found_by(check, "[typescript]\nown_codes = ['ABORTED']\n", files)
    }

    #[test]
    fn a_test_names_every_kind_and_every_limit() {
        let rust = (
            "crates/x/src/a.rs",
            "ErrorKind::Empty\n#[cfg(test)]\nmod tests { ErrorKind::Io; ErrorKind::EmptyRow; }\n",
        );
        assert_eq!(items(&[KINDS, rust]), [("untested-kind", "Empty".to_owned())]);
        assert_eq!(items(&[KINDS, rust, ("ts/test/a.test.ts", "'EMPTY'\n")]), []);
        let limits = (LIMITS, "pub const A_MAX: usize = 1;\npub const B_MAX: usize = 1;\n");
        let tests = ("crates/x/tests/a.rs", "use limits::A_MAX;\n");
        assert_eq!(items(&[limits, tests]), [("untested-limit", "B_MAX".to_owned())]);
    }

    #[test]
    fn both_languages_know_the_same_codes() {
        let tests = ("crates/x/tests/a.rs", "ErrorKind::Io ErrorKind::Empty\n");
        let check = |codes: &str| items(&[KINDS, tests, (TYPESCRIPT_ERROR, codes)]);
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

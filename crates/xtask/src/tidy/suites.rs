//! Suites: each implementation of a trait that has a `check_*` suite runs that suite in a test.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

/// Checks every `impl Trait for Type` outside tests whose trait has a public suite `check_trait`.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let rust = || tree.under("crates/", ".rs");
    let traits: BTreeSet<&str> = rust()
        .flat_map(|source| pattern!(r"\btrait (\w+)").captures_iter(&source.code))
        .filter_map(|found| Some(found.get(1)?.as_str()))
        .collect();
    let mut suites = BTreeMap::new();
    for source in rust() {
        for suite in pattern!(r"(?m)^pub fn (check_(\w+))").captures_iter(&source.code) {
            let name: String =
                suite[2].split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            let at = suite.get(0).map_or(0, |whole| whole.start());
            if traits.contains(name.as_str()) && !source.is_test(at) {
                suites.insert(name, suite[1].to_owned());
            }
        }
    }
    let mut found = Vec::new();
    for source in rust() {
        for implementation in pattern!(r"\bimpl (\w+) for (\w+)\s*\{").captures_iter(&source.code) {
            let (at, implementor) =
                (implementation.get(0).map_or(0, |whole| whole.start()), &implementation[2]);
            let Some(suite) = suites.get(&implementation[1]).filter(|_| !source.is_test(at)) else {
                continue;
            };
            let runs = |test: &Source| test.tests().contains(suite) && test.tests().contains(implementor);
            if !rust().any(runs) {
                let message = format!("{implementor} must run {suite} in a test; call it there");
                found.push(source.finding(at, "suite", implementor, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    #[test]
    fn an_implementation_runs_the_suite_of_its_trait() {
        let rules = |path: &str, text: &str, test: &str| {
            let suite = "pub trait TokenSink {}\npub fn check_token_sink(sink: &dyn TokenSink) {}\npub trait Free {}\n";
            let files =
                [("crates/fulmar-x/src/lib.rs", suite), (path, text), ("crates/fulmar-x/tests/a.rs", test)];
            found_by(check, "", &files).len()
        };
        let (path, code) = ("crates/fulmar-x/src/file.rs", "impl TokenSink for File {\n}\n");
        assert_eq!(rules(path, code, ""), 1);
        assert_eq!(rules(path, code, "fn a() { check_token_sink(&File); }\n"), 0);
        assert_eq!(rules(path, "impl Free for File {\n}\n", ""), 0);
        assert_eq!(rules("crates/fulmar-x/tests/naive.rs", code, ""), 0);
    }
}

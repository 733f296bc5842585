//! `cargo xtask tidy`: the rules of this repository that no other tool can check. `docs/building.md` lists the tools that check the others.
//!
//! The tree is read once ([`Tree`]), each rule returns [`Finding`]s, and `tidy.toml` lists the exceptions with their reasons. An exception
//! without a finding is itself a finding.

use std::fmt;
use std::path::Path;

mod config;
mod coverage;
mod defaults;
mod docs;
mod floors;
mod language;
mod links;
mod mirrors;
mod names;
mod size;
mod suites;
mod text;
mod tree;

use config::Config;
use tree::Tree;

/// A regular expression, compiled once. Its classes are ASCII: Unicode classes take ten times as long.
macro_rules! pattern {
    ($text:expr) => {{
        static PATTERN: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
            regex::Regex::new(&$text.replace(r"\b", r"(?-u:\b)").replace(r"\w", "[0-9A-Za-z_]")).unwrap()
        });
        &*PATTERN
    }};
}
use pattern;

/// One violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The path of the file, relative to the root, with `/`.
    pub path: String,
    /// The line, counted from 1; 0 for the whole file.
    pub line: usize,
    /// The rule's name in `tidy.toml`.
    pub rule: &'static str,
    /// The function, name or import; empty for the whole file.
    pub item: String,
    /// The problem, and after a semicolon the remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, message, .. } = self;
        match line {
            0 => write!(f, "{path}: [{rule}] {message}"),
            _ => write!(f, "{path}:{line}: [{rule}] {message}"),
        }
    }
}

/// Checks the repository at `root`, and lowers the counts of `tidy.toml` for rooms that have fewer banned
/// phrases now.
///
/// # Errors
/// The findings; or a message if a file cannot be read or written or `tidy.toml` is invalid.
pub fn check(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root).map_err(|error| format!("tidy: {}: {error}\n", root.display()))?;
    let found = findings(&tree)?;
    if !found.is_empty() {
        let lines: Vec<_> = found.iter().map(Finding::to_string).collect();
        return Err(format!("{}\ntidy: {} findings\n", lines.join("\n"), lines.len()));
    }
    match language::lowered(&tree, &config(&tree)?) {
        Some(text) => {
            std::fs::write(root.join("tidy.toml"), text).map_err(|error| format!("tidy.toml: {error}\n"))
        }
        None => Ok(()),
    }
}

fn config(tree: &Tree) -> Result<Config, String> {
    Config::parse(tree.get("tidy.toml").map_or("", |source| &source.text))
}

/// Returns the findings of all rules in `tree`, sorted by place, before exceptions are applied.
fn findings(tree: &Tree) -> Result<Vec<Finding>, String> {
    type Rule = fn(&Tree, &Config) -> Vec<Finding>;
    const RULES: [Rule; 11] = [
        size::check,
        floors::check,
        mirrors::check,
        defaults::check,
        docs::check,
        names::check,
        coverage::check,
        suites::check,
        links::check,
        text::check,
        language::check,
    ];
    let config = config(tree)?;
    let mut found = config.without_exceptions(RULES.iter().flat_map(|rule| rule(tree, &config)).collect());
    found.sort();
    Ok(found)
}

/// Returns (rule, item) of every finding of `rule` in a tree of these files.
#[cfg(test)]
fn found_by(
    rule: fn(&Tree, &Config) -> Vec<Finding>,
    config: &str,
    files: &[(&str, &str)],
) -> Vec<(&'static str, String)> {
    let (tree, config) = (Tree::from_files(files.iter().copied()), Config::parse(config).unwrap());
    rule(&tree, &config).into_iter().map(|finding| (finding.rule, finding.item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let tree = Tree::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))).unwrap();
        assert_eq!(findings(&tree).unwrap(), []);
    }

    #[test]
    fn a_finding_names_file_line_rule_and_fix() {
        let finding =
            Tree::from_files([("a.rs", "\n\t")]).sources["a.rs"].finding(1, "tab", "", "a tab".into());
        assert_eq!(finding.to_string(), "a.rs:2: [tab] a tab");
        assert_eq!(Finding { line: 0, ..finding }.to_string(), "a.rs: [tab] a tab");
    }
}

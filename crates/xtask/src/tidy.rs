//! `cargo xtask tidy`: what a reviewer would say every time, said by a program.
//!
//! The tree is read once ([`Tree`]), each rule family looks at it and returns [`Finding`]s, and `tidy.toml` lists the
//! exceptions with their reasons. An exception that no finding needs any more is itself a finding.

use std::fmt;
use std::path::Path;

mod bindings;
mod config;
mod coverage;
mod defaults;
mod docs;
mod floors;
mod function;
mod links;
mod manifest;
mod mask;
mod mirrors;
mod names;
mod size;
mod source;
mod suites;
mod text;
mod tree;
mod typescript;

use config::Config;
use tree::Tree;

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root, with `/`.
    pub path: String,
    /// Counted from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// The rule's name, as `tidy.toml` writes it.
    pub rule: &'static str,
    /// The function, name or import that is meant; empty where the file is.
    pub item: String,
    /// What is wrong, and after a semicolon how to mend it.
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

/// The outcome of one check of the tree.
#[derive(Debug)]
pub struct Report {
    findings: Vec<Finding>,
    figures: String,
}

impl Report {
    /// Whether nothing has to be mended.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.figures)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        match self.findings.len() {
            0 => writeln!(f, "tidy: clean"),
            1 => writeln!(f, "tidy: 1 finding"),
            count => writeln!(f, "tidy: {count} findings"),
        }
    }
}

/// Checks the repository at `root` against every rule and the exceptions of its `tidy.toml`.
///
/// # Errors
/// A sentence if a file cannot be read or `tidy.toml` breaks its form.
pub fn check(root: &Path) -> Result<Report, String> {
    let tree = Tree::read(root).map_err(|error| format!("tidy: {}: {error}", root.display()))?;
    let config = Config::parse(tree.get("tidy.toml").map_or("", |source| &source.text))?;
    Ok(Report {
        findings: findings(&tree, &config),
        figures: size::figures(&tree) + &bindings::figures(&tree),
    })
}

/// What every rule finds in `tree`, less the exceptions of `config`, sorted by place.
fn findings(tree: &Tree, config: &Config) -> Vec<Finding> {
    type Rule = fn(&Tree, &Config) -> Vec<Finding>;
    const RULES: [Rule; 12] = [
        size::check,
        floors::check,
        mirrors::check,
        defaults::check,
        docs::check,
        names::check,
        coverage::check,
        suites::check,
        manifest::check,
        links::check,
        text::check,
        bindings::check,
    ];
    let mut found: Vec<_> = RULES.iter().flat_map(|rule| rule(tree, config)).collect();
    found = config.without_exceptions(found);
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let report = check(Path::new(root)).unwrap();
        assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn a_finding_names_file_line_rule_and_fix() {
        let finding = Finding {
            path: "a.rs".into(),
            line: 3,
            rule: "tab",
            item: String::new(),
            message: "a tab; write spaces".into(),
        };
        assert_eq!(finding.to_string(), "a.rs:3: [tab] a tab; write spaces");
        assert_eq!(Finding { line: 0, ..finding }.to_string(), "a.rs: [tab] a tab; write spaces");
    }
}

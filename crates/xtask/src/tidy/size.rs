//! Files and functions that nobody can hold in their head.

use std::fmt::Write;

use super::Finding;
use super::config::Config;
use super::function::{Function, functions};
use super::source::{Language, Source};
use super::tree::Tree;

/// Lines of a file above which it needs a reason.
const FILE_LINES_MAX: usize = 900;
/// Lines of a function above which it needs a reason.
const FUNCTION_LINES_MAX: usize = 120;
/// How many of the longest are printed.
const NUM_PRINTED: usize = 10;

/// Refuses files and functions over the limits.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let code = tree.sources().filter(|source| source.language != Language::Other);
    code.flat_map(|source| long_file(source).into_iter().chain(long_functions(source))).collect()
}

fn long_file(source: &Source) -> Option<Finding> {
    let lines = source.num_lines();
    let message = format!(
        "{lines} lines, the limit is {FILE_LINES_MAX}; split it by noun or give the reason in tidy.toml"
    );
    let finding =
        Finding { path: source.path.clone(), line: 0, rule: "long-file", item: String::new(), message };
    (lines > FILE_LINES_MAX).then_some(finding)
}

fn long_functions(source: &Source) -> Vec<Finding> {
    let long =
        functions(source).into_iter().filter(|function| function.num_lines(source) > FUNCTION_LINES_MAX);
    long.map(|function| {
        let lines = function.num_lines(source);
        let fix = "split it or give the reason in tidy.toml";
        let message =
            format!("`{}` has {lines} lines, the limit is {FUNCTION_LINES_MAX}; {fix}", function.name);
        let line = source.line_of(function.at);
        Finding { path: source.path.clone(), line, rule: "long-function", item: function.name, message }
    })
    .collect()
}

/// The ten longest files and functions beside the aims, as a table.
pub fn figures(tree: &Tree) -> String {
    let code = || tree.sources().filter(|source| source.language != Language::Other);
    let mut files: Vec<_> = code().map(|source| (source.num_lines(), source.path.clone())).collect();
    let place = |source: &Source, function: Function| {
        let place = format!("{}:{} {}", source.path, source.line_of(function.at), function.name);
        (function.num_lines(source), place)
    };
    let mut lengths: Vec<_> = code()
        .flat_map(|source| functions(source).into_iter().map(|function| place(source, function)))
        .collect();
    table("files", "aim 450, tests 900", &mut files) + &table("functions", "aim 30", &mut lengths)
}

fn table(what: &str, aim: &str, rows: &mut [(usize, String)]) -> String {
    rows.sort_by(|a, b| b.cmp(a));
    let share = |percent: usize| rows.get(rows.len() * (100 - percent) / 100).map_or(0, |row| row.0);
    let mut text =
        format!("longest {what} ({aim}; of {}: p50 {}, p90 {})\n", rows.len(), share(50), share(90));
    for (lines, name) in rows.iter().take(NUM_PRINTED) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{lines:>6}  {name}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: String) -> Vec<(&'static str, String)> {
        let found = check(&Tree::from_files([(path, text)]), &Config::default());
        found.into_iter().map(|finding| (finding.rule, finding.item)).collect()
    }

    #[test]
    fn a_file_may_have_900_lines_and_not_901() {
        assert_eq!(rules("a.rs", "//\n".repeat(900)), []);
        assert_eq!(rules("a.rs", "//\n".repeat(901)), [("long-file", String::new())]);
    }

    #[test]
    fn a_function_may_have_120_lines_and_not_121() {
        assert_eq!(rules("a.ts", format!("function f() {{\n{}}}\n", "\n".repeat(118))), []);
        let long = format!("function f() {{\n{}}}\n", "\n".repeat(119));
        assert_eq!(rules("a.ts", long), [("long-function", "f".to_owned())]);
    }

    #[test]
    fn the_table_shows_the_longest_first() {
        let tree = Tree::from_files([("a.rs", "fn a() {}\n"), ("b.rs", "fn b() {\n}\n")]);
        let text = figures(&tree);
        assert!(text.contains("     2  b.rs\n     1  a.rs\n"), "{text}");
        assert!(text.contains("     2  b.rs:1 b\n     1  a.rs:1 a\n"), "{text}");
    }
}

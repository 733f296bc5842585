//! Files of Rust that are too long to read at once, and bindings with more code than conversions need.
//! Clippy and biome check functions.

use super::Finding;
use super::config::Config;
use super::tree::{Source, Tree};

/// The maximum number of lines of a file; biome has the same limit.
const FILE_LINES_MAX: usize = 900;
/// The maximum number of lines of the bindings, in percent of those of the crates.
const SHARE_MAX_PERCENT: usize = 16;

pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let long = tree.under("", ".rs").filter(|source| num_lines(source) > FILE_LINES_MAX);
    let mut found: Vec<_> = long
        .map(|source| {
            let message =
                format!("{} lines, the limit is {FILE_LINES_MAX}; split it by noun", num_lines(source));
            source.whole("long-file", "", message)
        })
        .collect();
    let count = |folder: &str| tree.under(folder, ".rs").map(num_lines).sum::<usize>();
    let (bindings, crates) = (count("bindings/"), count("crates/fulmar"));
    if let Some(source) =
        tree.under("bindings/", ".rs").next().filter(|_| bindings * 100 > crates * SHARE_MAX_PERCENT)
    {
        let message = format!(
            "bindings have {bindings} lines for {crates} of crates, the limit is {SHARE_MAX_PERCENT} %; move decisions to the crates"
        );
        found.push(source.whole("thin-binding", "share", message));
    }
    found
}

fn num_lines(source: &Source) -> usize {
    source.text.lines().count()
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    #[test]
    fn a_file_may_have_900_lines_and_bindings_16_percent_of_the_crates() {
        let rules = |lines: usize, binding: usize| {
            let (file, binding) = ("//\n".repeat(lines), "//\n".repeat(binding));
            found_by(check, "", &[("crates/fulmar/src/a.rs", &file), ("bindings/node/src/a.rs", &binding)])
        };
        assert_eq!(rules(900, 144), []);
        assert_eq!(rules(901, 144), [("long-file", String::new())]);
        assert_eq!(rules(900, 145), [("thin-binding", "share".to_owned())]);
    }
}

//! Bindings are thin: convert, call, convert.

use super::Finding;
use super::config::Config;
use super::function::functions;
use super::source::Source;
use super::tree::Tree;

/// Lines of a function of a binding above which it decides something.
const FUNCTION_LINES_MAX: usize = 30;
/// The share of the crates' lines that is the aim for the bindings, in percent.
const SHARE_AIM_PERCENT: usize = 10;
/// The share above which they are refused, in percent: two faces of a young core; it falls as the crates grow.
const SHARE_MAX_PERCENT: usize = 16;

/// Refuses long functions in bindings, and bindings that are long beside the crates.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.under("bindings/", ".rs") {
        let long =
            functions(source).into_iter().filter(|function| function.num_lines(source) > FUNCTION_LINES_MAX);
        found.extend(long.map(|function| Finding {
            path: source.path.clone(),
            line: source.line_of(function.at),
            rule: "thin-binding",
            message: format!(
                "`{}` has {} lines, the limit of a binding is {FUNCTION_LINES_MAX}; move its decisions to the crate",
                function.name,
                function.num_lines(source)
            ),
            item: function.name,
        }));
    }
    let (bindings, crates) = lines(tree);
    if bindings * 100 > crates * SHARE_MAX_PERCENT && crates > 0 {
        found.push(Finding {
            path: "bindings/".to_owned(),
            line: 0,
            rule: "thin-binding",
            item: "share".to_owned(),
            message: format!(
                "{bindings} lines beside {crates} of the crates, the limit is {SHARE_MAX_PERCENT} %; move decisions to the crates"
            ),
        });
    }
    found
}

/// The share of the bindings as one line.
pub fn figures(tree: &Tree) -> String {
    let (bindings, crates) = lines(tree);
    let percent = 100.0 * bindings as f64 / crates.max(1) as f64;
    format!(
        "bindings / crates: {bindings} / {crates} lines of Rust = {percent:.1} % (aim {SHARE_AIM_PERCENT} %)\n"
    )
}

/// Lines of Rust in the bindings and in the library's crates.
fn lines(tree: &Tree) -> (usize, usize) {
    let count = |folder: &str| tree.under(folder, ".rs").map(Source::num_lines).sum();
    (count("bindings/"), count("crates/fulmar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(binding: String, crate_lines: usize) -> Vec<String> {
        let tree = Tree::from_files([
            ("bindings/node/src/a.rs", binding),
            ("crates/fulmar-a/src/lib.rs", "//\n".repeat(crate_lines)),
        ]);
        check(&tree, &Config::default()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn a_binding_function_may_have_30_lines_and_not_31() {
        assert!(rules(format!("fn a() {{\n{}}}\n", "\n".repeat(28)), 1000).is_empty());
        assert_eq!(rules(format!("fn a() {{\n{}}}\n", "\n".repeat(29)), 1000), ["a"]);
    }

    #[test]
    fn bindings_may_have_16_percent_of_the_lines_and_not_more() {
        assert!(rules("//\n".repeat(16), 100).is_empty());
        assert_eq!(rules("//\n".repeat(17), 100), ["share"]);
    }

    #[test]
    fn the_share_is_printed() {
        let tree = Tree::from_files([
            ("bindings/node/src/a.rs", "//\n"),
            ("crates/fulmar-a/src/lib.rs", "//\n//\n"),
        ]);
        assert!(figures(&tree).contains("1 / 2 lines of Rust = 50.0 %"));
    }
}

//! Defaults: what a TypeScript option documents with `@default` is what the Rust option struct holds.

use super::Finding;
use super::config::Config;
use super::function::functions;
use super::mask::is_word_byte;
use super::source::Source;
use super::tree::Tree;
use super::typescript::{ROOT, room};

/// Compares numbers: a documented one must stand in some `fn default()` of the room's crate, if the field does.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.under(ROOT, ".ts") {
        let Some(folder) = room(&source.path).map(|room| format!("crates/fulmar-{room}/src/")) else {
            continue;
        };
        for (field, documented, at) in documented(source) {
            let held: Vec<f64> =
                tree.under(&folder, ".rs").flat_map(|rust| held(rust, &snake(field))).collect();
            if held.is_empty() || held.contains(&documented) {
                continue;
            }
            found.push(Finding {
                path: source.path.clone(),
                line: source.line_of(at),
                rule: "default",
                item: field.to_owned(),
                message: format!(
                    "`{field}` documents the default {documented}, the crate has {held:?}; correct the doc"
                ),
            });
        }
    }
    found
}

/// (option, number, place) for every `@default <number>` whose comment stands before an optional field.
fn documented(source: &Source) -> impl Iterator<Item = (&str, f64, usize)> {
    source.text.match_indices("@default ").filter_map(|(at, tag)| {
        let rest = &source.text[at + tag.len()..];
        let number = rest.split(|character: char| character.is_whitespace()).next().and_then(number)?;
        let field = rest.split_once("*/")?.1.trim_start();
        let field = field.strip_prefix("readonly ").unwrap_or(field);
        let end = field.bytes().position(|byte| !is_word_byte(byte))?;
        field[end..].starts_with("?:").then_some((&field[..end], number, at))
    })
}

/// The numbers that the bodies of `fn default()` give to `field`.
fn held(source: &Source, field: &str) -> Vec<f64> {
    let bodies = functions(source)
        .into_iter()
        .filter(|function| function.name == "default" && !source.is_test(function.at));
    let mut found = Vec::new();
    for body in bodies.filter_map(|function| Some(&source.code[function.at..function.end?])) {
        for (at, _) in body.match_indices(field) {
            let whole = at > 0 && !is_word_byte(body.as_bytes()[at - 1]);
            let value = body[at + field.len()..].strip_prefix(':').filter(|_| whole);
            let value = value.and_then(|value| value.split([',', '}', '\n']).next());
            found.extend(value.and_then(|value| number(value.trim())));
        }
    }
    found
}

fn number(text: &str) -> Option<f64> {
    let plain = text.trim_end_matches(['.', ',', ';']).replace('_', "");
    plain.starts_with(|first: char| first.is_ascii_digit() || first == '-').then(|| plain.parse().ok())?
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(default: &str) -> Vec<String> {
        let rust = "impl Default for O {\n    fn default() -> Self {\n        Self { std_floor: 1e-3, epsilon: EPSILON }\n    }\n}\n";
        let doc = format!(
            "export interface O {{\n  /** The least. @default {default} */\n  readonly stdFloor?: number\n}}\n"
        );
        let tree = Tree::from_files([("crates/fulmar-x/src/o.rs", rust), ("ts/src/x/o.ts", doc.as_str())]);
        check(&tree, &Config::default()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn a_documented_default_is_the_one_that_rust_holds() {
        assert!(items("0.001").is_empty());
        assert!(items("1e-3").is_empty());
        assert_eq!(items("1e-4"), ["stdFloor"]);
    }

    #[test]
    fn a_default_in_words_and_a_field_without_a_number_are_not_compared() {
        assert!(items("off").is_empty());
        let rust = ("crates/fulmar-x/src/o.rs", "fn default() -> O { O { epsilon: EPSILON } }\n");
        let doc = ("ts/src/x/o.ts", "/** @default 2 */\nreadonly epsilon?: number\n");
        assert!(check(&Tree::from_files([rust, doc]), &Config::default()).is_empty());
    }
}

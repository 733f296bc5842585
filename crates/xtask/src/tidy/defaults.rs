//! Defaults: the number of a `@default` in TypeScript equals the one in the option struct of Rust.

use std::collections::BTreeMap;

use super::config::Config;
use super::floors::{ROOT, room};
use super::tree::Tree;
use super::{Finding, pattern};

/// Checks that a documented number is in a `fn default()` of the room's crate, if that crate has the
/// field.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let documented = pattern!(r"@default ([-0-9][^\s*]*)(?:[^*]|\*[^/])*\*/\s*(?:readonly )?(\w+)\?:");
    let mut rooms = BTreeMap::new();
    let mut found = Vec::new();
    for source in tree.under(ROOT, ".ts") {
        let Some(room) = room(&source.path) else { continue };
        let held = rooms.entry(room).or_insert_with(|| held(tree, room));
        for option in documented.captures_iter(&source.text) {
            let (Some(value), field) = (number(&option[1]), &option[2]) else { continue };
            let numbers = held.get(&snake(field)).map_or(&[][..], Vec::as_slice);
            if !numbers.is_empty() && !numbers.contains(&value) {
                let message = format!("`{field}` documents the default {value}, the crate has {numbers:?}");
                let at = option.get(0).map_or(0, |option| option.start());
                found.push(source.finding(at, "default", field, message));
            }
        }
    }
    found
}

/// Returns field -> the numbers that the bodies of `fn default()` assign to it, in the crate of a room.
fn held(tree: &Tree, room: &str) -> BTreeMap<String, Vec<f64>> {
    let body = pattern!(r"(?s)\n    fn default\(\) -> [^\n]*\n(.*?)\n    \}");
    let given = pattern!(r"\b(\w+): ([-0-9][^,}\s]*)");
    let mut held: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for source in tree.under(&format!("crates/fulmar-{room}/src/"), ".rs") {
        let code = &source.code[..source.text.len() - source.tests().len()];
        let bodies = body.captures_iter(code).filter_map(|found| found.get(1));
        for field in bodies.flat_map(|body| given.captures_iter(body.as_str())) {
            held.entry(field[1].to_owned()).or_default().extend(number(&field[2]));
        }
    }
    held
}

fn number(text: &str) -> Option<f64> {
    text.trim_end_matches(['.', ',', ';']).replace('_', "").parse().ok()
}

fn snake(name: &str) -> String {
    pattern!("[A-Z]")
        .replace_all(name, |found: &regex::Captures<'_>| format!("_{}", found[0].to_lowercase()))
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    #[test]
    fn a_documented_default_is_the_one_of_rust() {
        let rust = "impl Default for O {\n    fn default() -> Self {\n        Self { std_floor: 1e-3, epsilon: EPSILON }\n    }\n}\n";
        let items = |field: &str, default: &str| {
            let doc = format!("  /** The least. @default {default} */\n  readonly {field}?: number\n");
            found_by(check, "", &[("crates/fulmar-x/src/o.rs", rust), ("ts/src/x/o.ts", &doc)])
        };
        assert!(["0.001", "1e-3.", "off"].iter().all(|default| items("stdFloor", default).is_empty()));
        assert_eq!(items("stdFloor", "1e-4"), [("default", "stdFloor".to_owned())]);
        assert_eq!(items("epsilon", "2"), [], "a field without a number is not compared");
    }
}

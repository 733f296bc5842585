//! What the package promises: entry points that exist, examples that are listed, figures that a record backs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Finding;
use super::config::Config;
use super::tree::Tree;
use super::typescript::{ROOT, room};

const PACKAGE: &str = "package.json";
const EXAMPLES: &str = "examples/";
const RECORDS: &str = "benches/record/";

/// Checks `package.json`, `examples/README.md` and the figures of `README.md`.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let mut found = unresolved_entries(tree);
    found.extend(unlisted_examples(tree));
    found.extend(unbacked_figures(tree));
    found
}

/// The TypeScript sources behind `exports` of `package.json`, whether they exist or not.
fn exported_sources(tree: &Tree) -> Vec<String> {
    targets(tree, &["exports"]).iter().filter_map(|target| source_of(target)).collect()
}

/// The files from which users reach the library: those that `package.json` exports, else `ts/src/index.ts`.
pub fn entries(tree: &Tree) -> Vec<String> {
    let mut entries: Vec<_> = exported_sources(tree).into_iter().filter(|path| tree.has(path)).collect();
    entries.push(format!("{ROOT}index.ts"));
    entries.retain(|path| room(path).is_none_or(|room| room != "native") && path.starts_with(ROOT));
    entries.sort();
    entries.dedup();
    entries
}

/// The TypeScript sources that `package.json` names anywhere in `exports`, `imports` and `bin`.
pub fn named_sources(tree: &Tree) -> BTreeSet<String> {
    targets(tree, &["exports", "imports", "bin"]).iter().filter_map(|target| source_of(target)).collect()
}

fn targets(tree: &Tree, fields: &[&str]) -> Vec<String> {
    let package = tree.get(PACKAGE).and_then(|source| serde_json::from_str::<Value>(&source.text).ok());
    let mut found = Vec::new();
    for value in fields.iter().filter_map(|field| package.as_ref()?.get(field)) {
        texts(value, &mut found);
    }
    found
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        _ => {}
    }
}

/// `./dist/chat/index.js` and its `.d.ts` are compiled from `ts/src/chat/index.ts`.
fn source_of(target: &str) -> Option<String> {
    let built = target.trim_start_matches("./").strip_prefix("dist/")?;
    let built = built.strip_prefix("src/").unwrap_or(built);
    let stem = [".d.ts", ".js"].iter().find_map(|end| built.strip_suffix(end))?;
    Some(format!("{ROOT}{stem}.ts"))
}

fn unresolved_entries(tree: &Tree) -> Vec<Finding> {
    let Some(package) = tree.get(PACKAGE) else { return Vec::new() };
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for target in targets(tree, &["exports", "imports", "bin"]) {
        let written = target.trim_start_matches("./");
        let is_pattern = written.contains('*');
        let source = source_of(&target);
        let missing = match &source {
            Some(source) => !tree.has(source),
            None => !tree.is_built(written) && target.starts_with("./") && !tree.has(written),
        };
        if missing && !is_pattern && seen.insert(source.clone().unwrap_or_else(|| target.clone())) {
            let line =
                package.text.lines().position(|line| line.contains(&target)).map_or(0, |line| line + 1);
            let wanted = source.unwrap_or_else(|| written.to_owned());
            found.push(Finding {
                path: PACKAGE.to_owned(),
                line,
                rule: "entry",
                message: format!("{target} has no source {wanted}; write it or delete the entry"),
                item: target,
            });
        }
    }
    found
}

fn unlisted_examples(tree: &Tree) -> Vec<Finding> {
    let list = tree.get("examples/README.md").map_or("", |source| source.text.as_str());
    let programs = tree.paths().filter_map(|path| {
        let name = path.strip_prefix(EXAMPLES).or_else(|| path.strip_prefix("crates/fulmar/examples/"))?;
        let name = name.split('/').next()?;
        let is_program = path.ends_with(".ts") || path.ends_with(".rs") || path.ends_with(".js");
        (is_program && !list.contains(name)).then_some((path, name))
    });
    let mut seen = BTreeSet::new();
    let unlisted = programs.filter(|(_, name)| seen.insert(*name));
    unlisted
        .map(|(path, name)| Finding {
            path: path.to_owned(),
            line: 0,
            rule: "example-list",
            item: name.to_owned(),
            message: format!("examples/README.md does not list {name}; add a line that says what it shows"),
        })
        .collect()
}

/// A row of a table that cites a record cites the newest one, and it is there.
fn unbacked_figures(tree: &Tree) -> Vec<Finding> {
    let Some(readme) = tree.get("README.md") else { return Vec::new() };
    let rows = readme.text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let cited = rows.flat_map(|(index, line)| records_in(line).map(move |record| (index + 1, record)));
    let stale = cited.filter_map(|(line, record)| {
        let newest = newest_beside(tree, &record);
        let message = if !tree.has(&record) {
            format!("cites {record}, which is not there; run the bench and commit its record")
        } else if newest.as_ref().is_some_and(|newest| *newest != record) {
            format!("cites {record}, and {} is newer; take the figures of the newer record", newest?)
        } else {
            return None;
        };
        Some(Finding { path: "README.md".to_owned(), line, rule: "figure", item: record, message })
    });
    stale.collect()
}

fn records_in(line: &str) -> impl Iterator<Item = String> {
    line.match_indices(RECORDS).filter_map(|(at, _)| {
        let rest = &line[at..];
        let end = rest.find(".json")?;
        Some(rest[..end + ".json".len()].to_owned())
    })
}

/// Records are named by their date, after a subject: the last of the same subject in the folder is the newest.
fn newest_beside(tree: &Tree, record: &str) -> Option<String> {
    let subject = |path: &str| {
        let stem = path.strip_suffix(".json").unwrap_or(path);
        stem.trim_end_matches(|character: char| !character.is_alphabetic()).to_owned()
    };
    let own = subject(record);
    tree.paths().filter(|path| path.starts_with(RECORDS) && subject(path) == own).max().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let found = check(&Tree::from_files(files.iter().copied()), &Config::default());
        found.into_iter().map(|finding| (finding.rule, finding.item)).collect()
    }

    #[test]
    fn an_entry_point_is_compiled_from_a_source() {
        let package = r##"{ "exports": { ".": { "types": "./dist/index.d.ts", "default": "./dist/index.js" } },
            "imports": { "#backend": { "node": "./dist/native/node.js" } } }"##;
        let files = [(PACKAGE, package), ("ts/src/index.ts", "")];
        assert_eq!(rules(&files), [("entry", "./dist/native/node.js".to_owned())]);
        let tree = Tree::from_files(files);
        assert_eq!(exported_sources(&tree), ["ts/src/index.ts", "ts/src/index.ts"]);
        assert!(named_sources(&tree).contains("ts/src/native/node.ts"));
    }

    #[test]
    fn an_example_is_listed() {
        let example = ("examples/01-a.ts", "");
        assert_eq!(rules(&[example]), [("example-list", "01-a.ts".to_owned())]);
        assert_eq!(rules(&[example, ("examples/README.md", "- `01-a.ts`: a\n")]), []);
        assert_eq!(rules(&[("crates/fulmar/examples/b.rs", "")]), [("example-list", "b.rs".to_owned())]);
    }

    #[test]
    fn a_figure_cites_the_newest_record() {
        let readme = |record: &str| format!("| step | 1 | [x]({record}) |\n");
        let old = "benches/record/epyc/grpo-2026-01-01.json";
        let new = "benches/record/epyc/grpo-2026-02-01.json";
        let other = "benches/record/epyc/boundary-2026-03-01.json";
        let check = |record: &str, records: &[&str]| {
            let readme = readme(record);
            let mut files = vec![("README.md", readme.as_str())];
            files.extend(records.iter().map(|record| (*record, "{}")));
            rules(&files)
        };
        assert_eq!(check(old, &[]), [("figure", old.to_owned())]);
        assert_eq!(check(old, &[old, other]), []);
        assert_eq!(check(old, &[old, new]), [("figure", old.to_owned())]);
        assert_eq!(check(new, &[old, new]), []);
    }
}

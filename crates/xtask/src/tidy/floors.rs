//! Floors: a module imports only from lower floors, in Rust and in TypeScript.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::config::Config;
use super::source::Source;
use super::tree::Tree;
use super::typescript::{ROOT, imports, join, room};

/// The only room that may reach the compiled backends.
const NATIVE: &str = "native";

/// Checks the dependencies of the crates and the imports of `ts/src`, `examples` and `benches`.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let mut found = rust(tree, &config.rust.floors);
    for source in tree.under(ROOT, ".ts") {
        found.extend(imports(source).iter().filter_map(|import| {
            let message = typescript(&source.path, import.specifier, config)?;
            Some(finding(source, source.line_of(import.at), import.specifier.to_owned(), message))
        }));
    }
    for source in tree.under("examples/", ".ts").chain(tree.under("benches/", ".ts")) {
        let inside =
            |specifier: &str| join(&source.path, specifier).is_some_and(|path| path.starts_with(ROOT));
        found.extend(imports(source).iter().filter(|import| inside(import.specifier)).map(|import| {
            let message =
                format!("imports {}; import the package 'fulmar' as its users do", import.specifier);
            finding(source, source.line_of(import.at), import.specifier.to_owned(), message)
        }));
    }
    found
}

fn finding(source: &Source, line: usize, item: String, message: String) -> Finding {
    Finding { path: source.path.clone(), line, rule: "floor", item, message }
}

fn rust(tree: &Tree, floors: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let manifests = tree.sources().filter(|source| {
        let parts: Vec<_> = source.path.split('/').collect();
        matches!(parts[..], ["crates" | "bindings", _, "Cargo.toml"])
    });
    let checked = manifests.map(|source| match manifest(&source.text) {
        Ok((name, dependencies)) => crate_edges(source, &name, dependencies, floors),
        Err(message) => vec![finding(source, 0, String::new(), message)],
    });
    checked.flatten().collect()
}

/// What is wrong with the dependencies of one crate. The bindings and the check programs stand above every floor.
fn crate_edges(
    source: &Source,
    name: &str,
    dependencies: Vec<String>,
    floors: &BTreeMap<String, Vec<String>>,
) -> Vec<Finding> {
    if !floors.contains_key(name) {
        let message = format!("crate {name} stands on no floor; add it to [rust.floors] in tidy.toml");
        let homeless = is_ours(name) && source.path.starts_with("crates/");
        return if homeless { vec![finding(source, 1, name.to_owned(), message)] } else { Vec::new() };
    }
    let allowed = below(name, floors);
    let wrong = dependencies.into_iter().filter(|other| is_ours(other) && !allowed.contains(other.as_str()));
    wrong
        .map(|dependency| {
            let line = source.text.lines().position(|line| line.trim_start().starts_with(&dependency));
            let fix =
                "move what both need to a lower floor, or change the floors in ARCHITECTURE.md and tidy.toml";
            let message = format!("{name} may not depend on {dependency}; {fix}");
            finding(source, line.map_or(0, |line| line + 1), dependency, message)
        })
        .collect()
}

fn is_ours(name: &str) -> bool {
    name == "fulmar" || name.starts_with("fulmar-")
}

/// The name of a package and all it depends on, for tests and builds too.
fn manifest(text: &str) -> Result<(String, Vec<String>), String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| format!("is not TOML: {error}"))?;
    let name = table.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default();
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets =
        table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    let owners = targets.filter_map(toml::Value::as_table).chain([&table]);
    let names =
        owners.flat_map(|owner| sections.iter().filter_map(|section| owner.get(*section)?.as_table()));
    let names: BTreeSet<_> = names.flat_map(toml::Table::keys).cloned().collect();
    Ok((name.to_owned(), names.into_iter().filter(|dependency| dependency != name).collect()))
}

/// Every crate that `name` may depend on, those of its own dependencies included.
fn below<'a>(name: &str, floors: &'a BTreeMap<String, Vec<String>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = floors.get(name).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(floors.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// What is wrong with the import of `specifier` in the file `path`, if anything is.
fn typescript(path: &str, specifier: &str, config: &Config) -> Option<String> {
    let from = room(path);
    if specifier == "fulmar" || specifier.starts_with("fulmar/") {
        return Some(format!("imports the package itself; import the file behind '{specifier}'"));
    }
    let target = join(path, specifier);
    let outside = target
        .as_deref()
        .is_some_and(|target| !target.starts_with(ROOT) && !target.ends_with("package.json"));
    let backend = outside || specifier.starts_with('#') || specifier.ends_with(".node");
    if backend {
        let message =
            format!("imports '{specifier}'; only ts/src/native reaches the backends, import from there");
        return (from != Some(NATIVE)).then_some(message);
    }
    // The files right below ts/src are the roof and import every room.
    let (target, from) = (target?, from?);
    match room(&target) {
        None => {
            Some(format!("imports '{specifier}', the roof of the package; import the room that declares it"))
        }
        Some(to) if to == from => None,
        Some(to) => edge(from, to, config),
    }
}

/// What is wrong with the room `from` importing the room `to`, if anything is.
fn edge(from: &str, to: &str, config: &Config) -> Option<String> {
    let floor = |room: &str| config.typescript.floors.get(room).copied();
    let (Some(own), Some(other)) = (floor(from), floor(to)) else {
        let homeless = if floor(from).is_none() { from } else { to };
        return Some(format!(
            "room {homeless} stands on no floor; add it to [typescript.floors] in tidy.toml"
        ));
    };
    match other.cmp(&own) {
        Ordering::Less => None,
        Ordering::Equal => {
            let named =
                config.typescript.sideways.get(from).is_some_and(|rooms| rooms.iter().any(|room| room == to));
            let fix = "move what both need down, or name the edge in [typescript.sideways] of tidy.toml";
            (!named).then(|| format!("{from} and {to} share floor {own}; {fix}"))
        }
        Ordering::Greater => Some(format!(
            "{from} is on floor {own} and may not import {to} on floor {other}; move what it needs to {from} or below"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[rust.floors]\nfulmar-core = []\nfulmar-kernel = ['fulmar-core']\n\
        fulmar-objective = ['fulmar-kernel']\nfulmar-chat = ['fulmar-core']\n\
        [typescript.floors]\nnative = 7\ncore = 8\ntokenizer = 9\nchat = 9\nenv = 10\n\
        [typescript.sideways]\nchat = ['tokenizer']\n";

    #[track_caller]
    fn items(path: &str, text: &str) -> Vec<String> {
        let found = check(&Tree::from_files([(path, text)]), &Config::parse(CONFIG).unwrap());
        assert!(found.iter().all(|finding| finding.rule == "floor"));
        found.into_iter().map(|finding| finding.item).collect()
    }

    fn manifest_text(name: &str, dependency: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[dependencies]\n{dependency} = {{ workspace = true }}\n")
    }

    #[test]
    fn a_crate_may_depend_on_every_floor_below_it() {
        let text = manifest_text("fulmar-objective", "fulmar-core");
        assert!(items("crates/fulmar-objective/Cargo.toml", &text).is_empty());
    }

    #[test]
    fn a_crate_may_not_depend_sideways_or_upward() {
        let text = manifest_text("fulmar-kernel", "fulmar-chat");
        assert_eq!(items("crates/fulmar-kernel/Cargo.toml", &text), ["fulmar-chat"]);
        let text = text.replace("[dependencies]", "[target.'cfg(unix)'.dev-dependencies]");
        assert_eq!(items("crates/fulmar-kernel/Cargo.toml", &text), ["fulmar-chat"]);
    }

    #[test]
    fn a_crate_without_a_floor_is_refused_and_a_binding_is_the_roof() {
        let text = manifest_text("fulmar-new", "fulmar-core");
        assert_eq!(items("crates/fulmar-new/Cargo.toml", &text), ["fulmar-new"]);
        let text = manifest_text("fulmar-node", "fulmar-chat");
        assert!(items("bindings/node/Cargo.toml", &text).is_empty());
    }

    #[test]
    fn a_finding_in_a_manifest_names_the_line() {
        let tree = Tree::from_files([(
            "crates/fulmar-kernel/Cargo.toml",
            manifest_text("fulmar-kernel", "fulmar-chat"),
        )]);
        assert_eq!(check(&tree, &Config::parse(CONFIG).unwrap())[0].line, 4);
    }

    #[test]
    fn a_room_imports_downward_and_along_named_edges() {
        for import in ["../core/index.js", "./history.js", "../tokenizer/index.js", "node:fs"] {
            assert!(
                items("ts/src/chat/ledger.ts", &format!("import {{ a }} from '{import}'\n")).is_empty(),
                "{import}"
            );
        }
    }

    #[test]
    fn a_room_imports_nothing_sideways_upward_or_from_the_roof() {
        for (path, import) in [
            ("ts/src/tokenizer/index.ts", "../chat/index.js"),
            ("ts/src/core/error.ts", "../env/index.js"),
            ("ts/src/env/env.ts", "../index.js"),
            ("ts/src/env/env.ts", "fulmar"),
            ("ts/src/env/env.ts", "../unknown/index.js"),
        ] {
            assert_eq!(items(path, &format!("import type {{ a }} from '{import}'\n")), [import]);
        }
    }

    #[test]
    fn only_native_reaches_the_backends() {
        for import in ["#backend", "../../../bindings/node/index.js"] {
            let text = format!("import {{ a }} from '{import}'\n");
            assert_eq!(items("ts/src/core/error.ts", &text), [import]);
            assert!(items("ts/src/native/index.ts", &text).is_empty());
        }
    }

    #[test]
    fn examples_import_the_package() {
        assert_eq!(
            items("examples/a.ts", "import { a } from '../ts/src/index.js'\n"),
            ["../ts/src/index.js"]
        );
        assert!(items("examples/a.ts", "import { a } from 'fulmar'\n").is_empty());
    }
}

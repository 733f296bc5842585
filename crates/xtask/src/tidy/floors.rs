//! Layers: a module imports only from lower layers, in Rust and in TypeScript.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::links::join;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

/// The root of the library's TypeScript.
pub const ROOT: &str = "ts/src/";

/// Checks the dependencies of the crates and the imports of `ts/src`, `examples` and `benches`.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let manifests = tree.under("crates/", "/Cargo.toml").chain(tree.under("bindings/", "/Cargo.toml"));
    let mut found: Vec<_> = manifests.flat_map(|source| crate_edges(source, &config.rust.floors)).collect();
    let specifier = pattern!(r#"\b(?:from|import|import\(|URL\()\s*['"]([^'"\n]+)['"]"#);
    for source in
        ["ts/src/", "examples/", "benches/"].into_iter().flat_map(|folder| tree.under(folder, ".ts"))
    {
        for import in specifier.captures_iter(&source.code).filter_map(|found| found.get(1)) {
            if let Some(message) = wrong_import(&source.path, import.as_str(), config) {
                found.push(source.finding(import.start(), "floor", import.as_str(), message));
            }
        }
    }
    found
}

/// Returns the forbidden dependencies of one crate. The bindings and the check programs may depend on all
/// crates.
fn crate_edges(source: &Source, floors: &BTreeMap<String, Vec<String>>) -> Vec<Finding> {
    let table: toml::Table = match toml::from_str(&source.text) {
        Ok(table) => table,
        Err(error) => return vec![source.whole("floor", "", format!("is not TOML: {error}"))],
    };
    let is_ours = |name: &str| name == "fulmar" || name.starts_with("fulmar-");
    let name = table.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default();
    if !floors.contains_key(name) {
        let message = format!("crate {name} has no floor; add it to [rust.floors] in tidy.toml");
        let is_homeless = is_ours(name) && source.path.starts_with("crates/");
        return is_homeless.then(|| source.whole("floor", name, message)).into_iter().collect();
    }
    let allowed = below(name, floors);
    let wrong =
        dependencies(&table).filter(|other| is_ours(other) && *other != name && !allowed.contains(other));
    wrong
        .map(|other| {
            let at = source.text.find(&format!("\n{other}")).map_or(0, |at| at + 1);
            let fix =
                "move what both need to a lower floor, or change the floors in ARCHITECTURE.md and tidy.toml";
            source.finding(at, "floor", other, format!("{name} may not depend on {other}; {fix}"))
        })
        .collect()
}

/// Returns all dependencies of a package, for tests, builds and single targets too.
fn dependencies(table: &toml::Table) -> impl Iterator<Item = &str> {
    let targets =
        table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    let owners = targets.filter_map(toml::Value::as_table).chain([table]);
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables =
        owners.flat_map(move |owner| sections.map(|name| owner.get(name).and_then(toml::Value::as_table)));
    tables.flatten().flat_map(|table| table.keys().map(String::as_str))
}

/// Returns every crate that `name` may depend on, with the dependencies of its dependencies.
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

/// Returns the room of a file: `chat` for `ts/src/chat/ledger.ts`, `None` for files directly in `ts/src`
/// and outside it.
pub fn room(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.split_once('/').map(|(room, _)| room)
}

fn wrong_import(path: &str, specifier: &str, config: &Config) -> Option<String> {
    let target = join(path, specifier);
    let inside = target.as_deref().is_some_and(|target| target.starts_with(ROOT));
    if !path.starts_with(ROOT) {
        return inside.then(|| format!("imports {specifier}; import the package 'fulmar' as its users do"));
    }
    if specifier == "fulmar" || specifier.starts_with("fulmar/") {
        return Some(format!(
            "imports the package itself; import the file of ts/src in place of '{specifier}'"
        ));
    }
    let outside = target.as_deref().is_some_and(|target| !inside && !target.ends_with("package.json"));
    let from = room(path);
    if outside || specifier.starts_with('#') || specifier.ends_with(".node") {
        let message = format!("imports '{specifier}'; only ts/src/native may, import from there");
        return (from != Some("native")).then_some(message);
    }
    // The files directly in ts/src may import every room.
    let (target, from) = (target?, from?);
    match room(&target) {
        None => {
            Some(format!("imports '{specifier}', the roof of the package; import the room that declares it"))
        }
        Some(to) if to == from => None,
        Some(to) => wrong_edge(from, to, config),
    }
}

fn wrong_edge(from: &str, to: &str, config: &Config) -> Option<String> {
    let floor = |room: &str| config.typescript.floors.get(room).copied();
    let (Some(own), Some(other)) = (floor(from), floor(to)) else {
        let homeless = if floor(from).is_none() { from } else { to };
        return Some(format!("room {homeless} has no floor; add it to [typescript.floors] in tidy.toml"));
    };
    let is_named =
        || config.typescript.sideways.get(from).is_some_and(|rooms| rooms.iter().any(|room| room == to));
    let fix = "move what both need down, or name the edge in [typescript.sideways] of tidy.toml";
    match other.cmp(&own) {
        Ordering::Less => None,
        Ordering::Equal => (!is_named()).then(|| format!("{from} and {to} share floor {own}; {fix}")),
        Ordering::Greater => {
            Some(format!("{from} is on floor {own} and may not import {to} on floor {other}; {fix}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    const CONFIG: &str = "[rust.floors]\nfulmar-core = []\nfulmar-kernel = ['fulmar-core']\n\
        fulmar-objective = ['fulmar-kernel']\nfulmar-chat = ['fulmar-core']\n\
        [typescript.floors]\nnative = 7\ncore = 8\ntokenizer = 9\nchat = 9\nenv = 10\n\
        [typescript.sideways]\nchat = ['tokenizer']\n";

    fn items(path: &str, text: &str) -> Vec<String> {
        found_by(check, CONFIG, &[(path, text)]).into_iter().map(|(_, item)| item).collect()
    }

    #[test]
    fn a_crate_depends_on_floors_below_it_and_on_no_other() {
        for (name, section, dependency, expected) in [
            ("fulmar-objective", "dependencies", "fulmar-core", None),
            ("fulmar-kernel", "dependencies", "fulmar-chat", Some("fulmar-chat")),
            ("fulmar-kernel", "target.'cfg(unix)'.dev-dependencies", "fulmar-chat", Some("fulmar-chat")),
            ("fulmar-new", "dependencies", "fulmar-core", Some("fulmar-new")),
        ] {
            let text = format!("[package]\nname = '{name}'\n[{section}]\n{dependency}.workspace = true\n");
            assert!(items(&format!("crates/{name}/Cargo.toml"), &text).iter().eq(&expected), "{name}");
        }
        let binding = "[package]\nname = 'fulmar-node'\n[dependencies]\nfulmar-chat.workspace = true\n";
        assert!(items("bindings/node/Cargo.toml", binding).is_empty());
    }

    #[test]
    fn a_room_imports_downward_and_along_named_edges_and_from_nowhere_else() {
        for (path, import, is_wrong) in [
            ("ts/src/chat/ledger.ts", "../core/index.js", false),
            ("ts/src/chat/ledger.ts", "./history.js", false),
            ("ts/src/chat/ledger.ts", "../tokenizer/index.js", false),
            ("ts/src/chat/ledger.ts", "node:fs", false),
            ("ts/src/tokenizer/index.ts", "../chat/index.js", true),
            ("ts/src/core/error.ts", "../env/index.js", true),
            ("ts/src/env/env.ts", "../index.js", true),
            ("ts/src/env/env.ts", "fulmar", true),
            ("ts/src/env/env.ts", "../unknown/index.js", true),
            ("ts/src/core/error.ts", "#backend", true),
            ("ts/src/core/error.ts", "../../../bindings/node/index.js", true),
            ("ts/src/native/index.ts", "#backend", false),
            ("ts/src/native/index.ts", "../../../bindings/node/index.js", false),
            ("examples/a.ts", "../ts/src/index.js", true),
            ("examples/a.ts", "fulmar", false),
        ] {
            for text in
                ["import type { a } from 'X'", "const a = await import('X')", "new URL('X', import.meta.url)"]
            {
                let found = items(path, &text.replace('X', import));
                assert!(found.iter().eq(is_wrong.then_some(import)), "{path} {import}");
            }
        }
        assert!(items("ts/src/core/error.ts", " * import { a } from '../env/index.js'\n").is_empty());
    }
}

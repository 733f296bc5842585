//! Mirrors: crate `fulmar-chat` <-> `bindings/{node,wasm}/src/chat.rs` <-> `ts/src/chat/` <-> `ts/test/chat/`.

use std::collections::BTreeSet;

use super::Finding;
use super::config::Config;
use super::floors::ROOT;
use super::tree::Source;
use super::tree::Tree;

/// The bindings, by folder.
const BINDINGS: [&str; 2] = ["bindings/node/src/", "bindings/wasm/src/"];

/// Checks that every mirrored crate with content has all its mirrors, and that every mirror has a crate.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let mirrored = mirrored_crates(tree, config);
    let mut found = Vec::new();
    for name in &mirrored {
        let missing = sides(name).into_iter().filter(|(side, _)| !is_there(tree, side));
        found.extend(missing.map(|(side, fix)| Finding {
            path: format!("crates/fulmar-{name}/src/lib.rs"),
            line: 0,
            rule: "mirror",
            item: side.clone(),
            message: format!("fulmar-{name} is not mirrored by {side}; {fix}"),
        }));
    }
    for folder in BINDINGS {
        let files =
            tree.under(folder, ".rs").filter_map(|source| Some((source, binding_name(source, folder)?)));
        let orphans = files.filter(|(_, name)| {
            !mirrored.contains(*name) && !config.rust.binding_support.iter().any(|support| support == name)
        });
        let fix = "name the file after its crate, or list it in binding_support";
        found.extend(orphans.map(|(source, name)| {
            source.whole("mirror", name, format!("there is no mirrored crate fulmar-{name}; {fix}"))
        }));
    }
    found
}

/// Returns the short names of the crates with content that users of TypeScript see.
fn mirrored_crates<'a>(tree: &'a Tree, config: &Config) -> BTreeSet<&'a str> {
    let crates =
        tree.folders("crates/").into_iter().filter_map(|name| Some((name, name.strip_prefix("fulmar-")?)));
    let shown =
        crates.filter(|(name, _)| !config.rust.unmirrored.iter().any(|unmirrored| unmirrored == name));
    shown.filter(|(name, _)| holds_something(tree, name)).map(|(_, short)| short).collect()
}

fn holds_something(tree: &Tree, name: &str) -> bool {
    let root = tree.get(&format!("crates/{name}/src/lib.rs"));
    root.is_some_and(|source| !source.code.trim().is_empty())
}

/// Returns the places where the crate `name` must have a mirror, each with a remedy.
fn sides(name: &str) -> [(String, &'static str); 4] {
    [
        (format!("bindings/node/src/{name}.rs"), "add the napi face"),
        (format!("bindings/wasm/src/{name}.rs"), "add the wasm-bindgen face"),
        (format!("{ROOT}{name}/index.ts"), "add the TypeScript face"),
        (format!("ts/test/{name}/"), "add the tests of its TypeScript face"),
    ]
}

/// Returns whether `side` is a file or a folder of the tree.
fn is_there(tree: &Tree, side: &str) -> bool {
    let folder = side.strip_suffix(".rs").map_or_else(|| side.to_owned(), |stem| format!("{stem}/"));
    tree.paths.contains(side)
        || (folder.ends_with('/') && tree.paths.iter().any(|path| path.starts_with(&folder)))
}

fn binding_name<'a>(source: &'a Source, folder: &str) -> Option<&'a str> {
    let rest = source.path.strip_prefix(folder)?;
    Some(rest.split_once('/').map_or_else(|| rest.strip_suffix(".rs").unwrap_or(rest), |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    const FULL: [&str; 5] = [
        "crates/fulmar-chat/src/lib.rs",
        "bindings/node/src/chat.rs",
        "bindings/wasm/src/chat.rs",
        "ts/src/chat/index.ts",
        "ts/test/chat/ledger.test.ts",
    ];

    fn items(paths: &[&str]) -> Vec<String> {
        let config = "[rust]\nunmirrored = ['fulmar-kernel']\nbinding_support = ['lib', 'error']\n";
        let files: Vec<_> = paths.iter().map(|path| (*path, "pub mod a;\n")).collect();
        found_by(check, config, &files).into_iter().map(|(_, item)| item).collect()
    }

    #[test]
    fn a_full_mirror_is_fine() {
        assert!(items(&FULL).is_empty());
    }

    #[test]
    fn each_missing_side_is_named() {
        for (index, missing) in FULL.iter().enumerate().skip(1) {
            let mut paths = FULL.to_vec();
            paths.remove(index);
            let side = items(&paths);
            assert!(side.len() == 1 && missing.starts_with(&side[0]), "{missing}: {side:?}");
        }
    }

    #[test]
    fn a_binding_without_a_crate_is_refused_unless_it_is_support() {
        assert_eq!(items(&["bindings/node/src/replay.rs"]), ["replay"]);
        assert!(items(&["bindings/node/src/error.rs", "bindings/wasm/src/lib.rs"]).is_empty());
    }

    #[test]
    fn kernels_and_empty_crates_need_no_mirror() {
        assert!(items(&["crates/fulmar-kernel/src/lib.rs"]).is_empty());
        assert!(found_by(check, "", &[("crates/fulmar-chat/src/lib.rs", "//! Nothing yet.\n")]).is_empty());
    }
}

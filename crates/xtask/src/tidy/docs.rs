//! Docs: every export of TypeScript has a doc comment, a public function or class also an example, which
//! another stage runs; and places of `unsafe`. Rustc and clippy check the docs of Rust, TypeDoc and rustdoc
//! the links.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::floors::ROOT;
use super::links::join;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let public = public_names(tree);
    let typescript = tree.under(ROOT, ".ts").filter(|source| !source.path.ends_with(".d.ts"));
    let rust = tree.under("", ".rs").filter(|source| !source.path.contains("/xtask"));
    let undocumented = typescript.flat_map(|source| undocumented(source, &public));
    undocumented.chain(rust.flat_map(|source| misplaced_unsafe(source, config))).collect()
}

/// Returns (file, name) of everything that users can import.
fn public_names(tree: &Tree) -> BTreeSet<(String, &str)> {
    let file = |from: &Source, stem: &str| Some(format!("{}.ts", join(&from.path, stem)?));
    // The files that `exports` of `package.json` names.
    let entries = || tree.under("ts/src/entry/", ".ts").chain(tree.get("ts/src/index.ts"));
    let mut lists: Vec<String> = entries().map(|entry| entry.path.clone()).collect();
    for source in entries() {
        let stars = pattern!(r"export \* from '(.*)\.js'").captures_iter(&source.code);
        lists.extend(stars.filter_map(|star| file(source, &star[1])));
    }
    let mut names = BTreeSet::new();
    for source in lists.iter().filter_map(|list| tree.get(list)) {
        for list in pattern!(r"export (?:type )?\{([^}]*)\} from '(.*)\.js'").captures_iter(&source.code) {
            let (Some(declared), Some(words)) = (file(source, &list[2]), list.get(1)) else { continue };
            let words = pattern!(r"\w+").find_iter(words.as_str());
            names.extend(words.map(|word| (declared.clone(), word.as_str())));
        }
    }
    names
}

/// Returns the exports without docs. One documented signature is enough for all overloads of a name.
fn undocumented(source: &Source, public: &BTreeSet<(String, &str)>) -> Vec<Finding> {
    let declaration = pattern!(
        r"(?m)^export (?:declare |abstract |async )*(function|class|const|let|interface|type|enum)\*? (\w+)(.*)"
    );
    // Name -> (place, whether a call makes something, docs)
    let mut exports: BTreeMap<&str, (usize, bool, String)> = BTreeMap::new();
    for found in declaration.captures_iter(&source.code) {
        let (Some(whole), Some(name)) = (found.get(0), found.get(2)) else { continue };
        let is_arrow = pattern!(r"= (?:async )?(?:\(|\w+ =>|function|<)").is_match(&found[3]);
        let is_callable = matches!(&found[1], "function" | "class") || (&found[1] == "const" && is_arrow);
        let entry = exports.entry(name.as_str()).or_insert((whole.start(), is_callable, String::new()));
        entry.2 += doc_before(source, whole.start());
    }
    let missing = exports.into_iter().filter_map(|(name, (at, is_callable, docs))| {
        if !docs.contains(|character: char| character.is_alphabetic()) {
            let message = format!("`{name}` has no doc; write one sentence in `/** */` above it");
            return Some(source.finding(at, "doc", name, message));
        }
        let message =
            format!("`{name}` is public and has no @example; add one with an assertion (it is executed)");
        let needs_example =
            is_callable && public.contains(&(source.path.clone(), name)) && !docs.contains("@example");
        needs_example.then(|| source.finding(at, "example", name, message))
    });
    missing.collect()
}

/// Returns the JSDoc directly before the byte `at`; a lint comment may be between.
fn doc_before(source: &Source, at: usize) -> &str {
    let mut above = source.text[..at].trim_end();
    while let Some(line) = above.rfind('\n').filter(|line| above[line + 1..].starts_with("//")) {
        above = above[..line].trim_end();
    }
    let start = above
        .rfind("/**")
        .filter(|start| above.ends_with("*/") && !above[*start..above.len() - 2].contains("*/"));
    start.map_or("", |start| &above[start..])
}

fn misplaced_unsafe(source: &Source, config: &Config) -> Vec<Finding> {
    let is_here =
        |place: &String| *place == source.path || (place.ends_with('/') && source.path.starts_with(place));
    if config.rust.unsafe_in.iter().any(is_here) {
        return Vec::new();
    }
    let message = "`unsafe` is for the files that tidy.toml lists; write it safely or move it there";
    let places = pattern!(r"\bunsafe (?:\{|fn|impl|extern|trait)").find_iter(&source.code);
    places.map(|found| source.finding(found.start(), "unsafe", "", message.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    fn typescript(text: &str) -> Vec<(&'static str, String)> {
        let index = ("ts/src/index.ts", "export * from './x/index.js'\n");
        let room = ("ts/src/x/index.ts", "export { a, type A } from './x.js'\n");
        found_by(check, "", &[index, room, ("ts/src/x/x.ts", text)])
    }

    #[test]
    fn an_export_has_a_doc_and_a_public_function_an_example() {
        assert_eq!(typescript("export interface A {}\n"), [("doc", "A".to_owned())]);
        assert_eq!(typescript("/** A. */\nexport interface A {}\n"), []);
        assert_eq!(typescript("/** A. */\n// biome-ignore lint: b\nexport type A = 1\n"), []);
        assert_eq!(typescript("/** A. */\nexport function a() {}\n"), [("example", "a".to_owned())]);
        assert_eq!(typescript("/** A. */\nexport const a = () => 1\n"), [("example", "a".to_owned())]);
        assert_eq!(typescript("/** A.\n * @example\n */\nexport async function a() {}\n"), []);
        assert_eq!(typescript("/** B, which no user can import. */\nexport function b() {}\n"), []);
        assert_eq!(
            typescript("/** A.\n * @example\n */\nexport function a(x: 1): 1\nexport function a() {}\n"),
            []
        );
    }

    #[test]
    fn unsafe_is_in_its_places() {
        let config = "[rust]\nunsafe_in = ['crates/fulmar-kernel/src/lanes/']\n";
        let text = "fn a() {\n    // unsafe {\n    let b = unsafe { c() };\n}\n";
        let found = |path| found_by(check, config, &[(path, text)]).len();
        assert_eq!(
            [found("crates/fulmar-kernel/src/lanes/avx2.rs"), found("crates/fulmar-kernel/src/softmax.rs")],
            [0, 1]
        );
    }
}

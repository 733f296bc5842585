//! What a TypeScript file imports and exports, read from its code without a compiler.

use std::collections::{BTreeMap, BTreeSet};

use super::mask::Class;
use super::source::Source;
use super::tree::Tree;

/// The root of the library's TypeScript.
pub const ROOT: &str = "ts/src/";

/// A module named by an `import`, an `export ... from` or a worker's `new URL('./x.js', ...)`.
#[derive(Debug)]
pub struct Import<'a> {
    pub specifier: &'a str,
    pub at: usize,
}

/// What kind of thing an `export` declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Function,
    Class,
    Value,
    Type,
}

/// A declaration that a file exports.
#[derive(Debug)]
pub struct Export<'a> {
    pub name: &'a str,
    pub kind: Kind,
    /// Where the word `export` stands.
    pub at: usize,
}

/// Every module that `source` names, in order.
pub fn imports(source: &Source) -> Vec<Import<'_>> {
    let bytes = source.code.as_bytes();
    let mut found: Vec<_> = ["from", "import", "URL"]
        .iter()
        .flat_map(|word| source.words(word).map(move |at| (word, at)))
        .filter_map(|(word, at)| {
            let mut at = source.next_code(at + word.len())?;
            if bytes[at] == b'(' && *word != "from" {
                at = source.next_code(at + 1)?;
            }
            let quoted = matches!(bytes[at], b'\'' | b'"');
            quoted.then(|| Import { specifier: source.quoted_at(at), at })
        })
        .collect();
    found.sort_by_key(|import| import.at);
    found
}

/// The file in `tree` that `specifier` means in the file `from`; `None` for packages and for files that are not there.
pub fn resolve(tree: &Tree, from: &str, specifier: &str) -> Option<String> {
    let path = join(from, specifier)?;
    let stem = [".js", ".mjs", ".ts"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(&path);
    let candidates = [format!("{stem}.ts"), path.clone(), format!("{stem}.mts"), format!("{path}/index.ts")];
    candidates.into_iter().find(|candidate| tree.has(candidate))
}

/// The path that the relative `specifier` means in the file `from`, whether a file is there or not.
pub fn join(from: &str, specifier: &str) -> Option<String> {
    if !specifier.starts_with('.') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The room of a file: `chat` for `ts/src/chat/ledger.ts`, `None` for files right below `ts/src` and elsewhere.
pub fn room(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)?.split_once('/').map(|(room, _)| room)
}

/// The declarations that `source` exports under their own name, in order.
pub fn exports(source: &Source) -> Vec<Export<'_>> {
    source.words("export").filter_map(|at| declaration(source, at)).collect()
}

fn declaration(source: &Source, export: usize) -> Option<Export<'_>> {
    const MODIFIERS: [&str; 4] = ["declare", "abstract", "async", "default"];
    let mut at = source.next_code(export + "export".len())?;
    while MODIFIERS.contains(&source.name_at(at)) {
        at = source.next_code(at + source.name_at(at).len())?;
    }
    let word = source.name_at(at);
    let mut next = source.next_code(at + word.len())?;
    if word == "function" && source.code.as_bytes()[next] == b'*' {
        next = source.next_code(next + 1)?;
    }
    let name = source.name_at(next);
    let kind = match word {
        "function" => Kind::Function,
        "class" => Kind::Class,
        "interface" | "type" => Kind::Type,
        "const" | "let" | "enum" if is_arrow(source, next + name.len()) => Kind::Function,
        "const" | "let" | "enum" => Kind::Value,
        _ => return None,
    };
    (!name.is_empty()).then_some(Export { name, kind, at: export })
}

/// Whether the constant whose name ends at `after` is given a function.
fn is_arrow(source: &Source, after: usize) -> bool {
    let rest = source.code[after..].trim_start();
    let Some(value) = rest.strip_prefix('=') else { return false };
    let value = value.trim_start();
    let value = value.strip_prefix("async").map_or(value, str::trim_start);
    if !value.starts_with(['(', '<']) {
        return false;
    }
    let line_end = value.find("\n\n").unwrap_or(value.len());
    value[..line_end].contains("=>")
}

/// Names that a file hands on from other modules.
#[derive(Debug, Default)]
struct HandedOn<'a> {
    /// (name there, name here, specifier)
    named: Vec<(&'a str, &'a str, &'a str)>,
    stars: Vec<&'a str>,
}

fn handed_on(source: &Source) -> HandedOn<'_> {
    let mut found = HandedOn::default();
    for export in source.words("export") {
        let Some(mut at) = source.next_code(export + "export".len()) else { continue };
        if source.name_at(at) == "type" {
            at = source.next_code(at + "type".len()).unwrap_or(at);
        }
        let end = match source.code.as_bytes()[at] {
            b'{' => source.closing(at),
            b'*' => Some(at),
            _ => None,
        };
        let Some(end) = end else { continue };
        let Some(specifier) = specifier_after(source, end + 1) else { continue };
        if source.code.as_bytes()[at] == b'*' {
            found.stars.push(specifier);
            continue;
        }
        for item in source.code[at + 1..end].split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let item = item.strip_prefix("type ").unwrap_or(item).trim();
            let (there, here) = item.split_once(" as ").unwrap_or((item, item));
            found.named.push((there.trim(), here.trim(), specifier));
        }
    }
    found
}

fn specifier_after(source: &Source, at: usize) -> Option<&str> {
    let from = source.next_code(at)?;
    if source.name_at(from) != "from" {
        return None;
    }
    let quote = source.next_code(from + "from".len())?;
    Some(source.quoted_at(quote))
}

/// The declarations that users reach from the entry points `entries`: path -> names.
pub fn public_names<'a>(tree: &'a Tree, entries: &[String]) -> BTreeMap<String, BTreeSet<&'a str>> {
    let mut public: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    // (file, the name wanted of it; `None` for all of them)
    let mut wanted: Vec<(String, Option<&str>)> = entries.iter().map(|entry| (entry.clone(), None)).collect();
    while let Some((path, name)) = wanted.pop() {
        let Some(source) = tree.get(&path).filter(|_| seen.insert((path.clone(), name))) else { continue };
        let is_wanted = |candidate: &str| name.is_none_or(|name| name == candidate);
        let declared =
            exports(source).into_iter().map(|export| export.name).filter(|declared| is_wanted(declared));
        public.entry(path.clone()).or_default().extend(declared);
        let handed = handed_on(source);
        for (there, _, specifier) in handed.named.into_iter().filter(|(_, here, _)| is_wanted(here)) {
            wanted.extend(resolve(tree, &path, specifier).map(|file| (file, Some(there))));
        }
        wanted.extend(
            handed.stars.iter().filter_map(|specifier| Some((resolve(tree, &path, specifier)?, name))),
        );
    }
    public
}

/// The JSDoc that stands right before the byte `at`.
pub fn doc_before(source: &Source, at: usize) -> Option<&str> {
    let mut end = source.text[..at].trim_end().len();
    // A note to the linter may stand between the doc and its declaration.
    while end > 0 && source.class[end - 1] == Class::Comment {
        end = source.class[..end].iter().rposition(|class| *class != Class::Comment)?;
        end = source.text[..end].trim_end().len();
    }
    if end == 0 || source.class[end - 1] != Class::Doc {
        return None;
    }
    let start =
        source.class[..end].iter().rposition(|class| *class != Class::Doc).map_or(0, |before| before + 1);
    // Two comments may touch: only the last one is meant.
    let start = source.text[start..end].rfind("/**").map_or(start, |inside| start + inside);
    Some(&source.text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_every_form_are_found() {
        let text = "import { a } from './a.js'\nimport type { B } from \"../b/index.js\"\nimport './c.js'\n\
            export * from './d.js'\nconst e = await import('./e.js')\nnew URL('./f.js', import.meta.url)\n// from './g.js'\n";
        let source = Source::new("ts/src/x/y.ts", text);
        let found: Vec<_> = imports(&source).iter().map(|import| import.specifier).collect();
        assert_eq!(found, ["./a.js", "../b/index.js", "./c.js", "./d.js", "./e.js", "./f.js"]);
    }

    #[test]
    fn exports_know_their_kind() {
        let text = "export async function a() {}\nexport abstract class B {}\nexport const c = 1\n\
            export const d = (x: number) => x\nexport interface E {}\nexport type F = 1\nexport { g } from './g.js'\n";
        let source = Source::new("ts/src/x/y.ts", text);
        let found: Vec<_> = exports(&source).iter().map(|export| (export.name, export.kind)).collect();
        let expected = [
            ("a", Kind::Function),
            ("B", Kind::Class),
            ("c", Kind::Value),
            ("d", Kind::Function),
            ("E", Kind::Type),
            ("F", Kind::Type),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn public_names_are_those_reached_from_the_entry() {
        let tree = Tree::from_files([
            ("ts/src/index.ts", "export { a as z } from './x/index.js'\nexport * from './y.js'\n"),
            ("ts/src/x/index.ts", "export * from './x.js'\n"),
            ("ts/src/x/x.ts", "export function a() {}\nexport function hidden() {}\n"),
            ("ts/src/y.ts", "export const b = 1\n"),
        ]);
        let public = public_names(&tree, &["ts/src/index.ts".to_owned()]);
        let names: Vec<_> = public.values().flatten().copied().collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_doc_belongs_to_what_follows_it() {
        let text =
            "/** One. */\n/** Two. */\n// lint: x\nexport const a = Array.from('./q')\nexport const b = 2\n";
        let source = Source::new("a.ts", text);
        assert!(imports(&source).is_empty());
        let at = |name: &str| {
            exports(&source).iter().find(|export| export.name == name).map(|export| export.at).unwrap()
        };
        assert_eq!(doc_before(&source, at("a")), Some("/** Two. */"));
        assert_eq!(doc_before(&source, at("b")), None);
    }
}

//! Docs: public TypeScript has JSDoc and an executed example, fallible Rust says its errors, `unsafe` says why.

use super::Finding;
use super::config::Config;
use super::function::{Function, functions};
use super::manifest::entries;
use super::source::{Language, Source};
use super::tree::Tree;
use super::typescript::{Export, Kind, ROOT, doc_before, exports, public_names};

/// Lines above an `unsafe` in which its `SAFETY:` is looked for.
const SAFETY_REACH_LINES: usize = 12;

/// Checks docs of exports, `# Errors` sections, and the place and the reason of every `unsafe`.
pub fn check(tree: &Tree, config: &Config) -> Vec<Finding> {
    let public = public_names(tree, &entries(tree));
    let mut found = Vec::new();
    for source in tree.under(ROOT, ".ts").filter(|source| !source.path.ends_with(".d.ts")) {
        let names = public.get(&source.path);
        let is_public = |export: &Export| names.is_some_and(|names| names.contains(export.name));
        found.extend(
            exports(source).iter().filter_map(|export| undocumented(source, export, is_public(export))),
        );
    }
    let rust =
        tree.sources().filter(|source| source.language == Language::Rust && !source.path.contains("/xtask/"));
    for source in rust {
        if source.path.starts_with("crates/") && is_exposed(tree, &source.path) {
            found.extend(functions(source).iter().filter_map(|function| silent_failure(source, function)));
        }
        found.extend(source.words("unsafe").flat_map(|at| unsafe_use(source, at, config)));
    }
    found
}

/// Whether users of the crate can name what the file declares: it is a public module, or its names are handed on.
fn is_exposed(tree: &Tree, path: &str) -> bool {
    let Some((root, inside)) = path.split_once("/src/") else { return false };
    let module = inside.strip_suffix("/mod.rs").or_else(|| inside.strip_suffix(".rs")).unwrap_or(inside);
    if module == "lib" {
        return true;
    }
    let name = module.rsplit('/').next().unwrap_or(module);
    let folder = format!("{root}/src/");
    tree.under(&folder, ".rs").any(|source| {
        let public = source
            .words("pub")
            .filter_map(|at| source.code[at..].split([';', '{']).next().map(|head| (at, head)));
        let hands_on = |(at, head): (usize, &str)| {
            let statement = source.code[at..].split(';').next().unwrap_or(head);
            let names =
                |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
            match head[3..].trim_start().split(' ').next() {
                Some("use") => names(statement),
                Some("mod") => names(head),
                _ => false,
            }
        };
        public.into_iter().any(hands_on)
    })
}

/// An overload may leave the doc to another signature of the same name.
fn undocumented(source: &Source, export: &Export, public: bool) -> Option<Finding> {
    let same = || exports(source).into_iter().filter(|other| other.name == export.name);
    let first = same().next()?;
    let docs: String = same().filter_map(|other| doc_before(source, other.at)).collect();
    let name = export.name;
    let finding = |rule, message| {
        let line = source.line_of(export.at);
        Some(Finding { path: source.path.clone(), line, rule, item: name.to_owned(), message })
    };
    if first.at != export.at {
        return None;
    }
    if !docs.contains(|character: char| character.is_alphabetic()) {
        return finding("doc", format!("`{name}` has no doc; write one sentence in `/** */` above it"));
    }
    let needs_example = public && matches!(export.kind, Kind::Function | Kind::Class);
    if needs_example && !docs.contains("@example") {
        let message =
            format!("`{name}` is public and has no @example; add one with an assertion (it is executed)");
        return finding("example", message);
    }
    None
}

fn silent_failure(source: &Source, function: &Function) -> Option<Finding> {
    let signature = &source.code[function.signature.clone()];
    let result = signature.rsplit_once("->").map_or("", |(_, result)| result);
    let result = result.split(" where ").next().unwrap_or(result);
    let fails = result.trim_start().starts_with("Result<") || result.contains("::Result<");
    if !function.public
        || !fails
        || source.is_test(function.at)
        || doc_above(source, function.at).contains("# Errors")
    {
        return None;
    }
    let message =
        format!("`{}` returns a Result and has no `# Errors`; say which kinds and when", function.name);
    let line = source.line_of(function.at);
    Some(Finding {
        path: source.path.clone(),
        line,
        rule: "errors-section",
        item: function.name.clone(),
        message,
    })
}

/// The doc and plain comments, with the attributes between them, right above the line of `at`.
fn doc_above(source: &Source, at: usize) -> String {
    let above: Vec<_> = source.text[..source.line_start(at)].lines().collect();
    let attached = above.iter().rev().take_while(|line| !ends_an_item(line));
    attached.copied().collect::<Vec<_>>().join("\n")
}

fn ends_an_item(line: &str) -> bool {
    let line = line.trim();
    let is_note = line.starts_with("//") || line.starts_with('#') || line.ends_with(")]");
    !is_note && (line.is_empty() || line.ends_with([';', '}', '{', ',']))
}

fn unsafe_use(source: &Source, at: usize, config: &Config) -> Vec<Finding> {
    let rest = source.code[at + "unsafe".len()..].trim_start();
    let finding = |message: String| Finding {
        path: source.path.clone(),
        line: source.line_of(at),
        rule: "unsafe",
        item: String::new(),
        message,
    };
    let allowed =
        |place: &String| *place == source.path || (place.ends_with('/') && source.path.starts_with(place));
    let mut found = Vec::new();
    if !config.rust.unsafe_in.iter().any(allowed) {
        let places = config.rust.unsafe_in.join(", ");
        found.push(finding(format!("`unsafe` may stand only in {places}; write it safely or move it there")));
    }
    let is_function = ["fn ", "extern "].iter().any(|word| rest.starts_with(word));
    if is_function && !doc_above(source, at).contains("# Safety") && !has_safety_note(source, at) {
        found.push(finding(
            "an `unsafe fn` has no `# Safety` section; say what the caller must hold".to_owned(),
        ));
    }
    if rest.starts_with(['{', 'i']) && !has_safety_note(source, at) {
        found.push(finding(
            "an `unsafe` has no `// SAFETY:` above it; write the fact it relies on".to_owned(),
        ));
    }
    found
}

fn has_safety_note(source: &Source, at: usize) -> bool {
    let until_line_end = source.text[at..].lines().next().map_or(at, |rest| at + rest.len());
    let above: Vec<_> = source.text[..until_line_end].lines().rev().take(SAFETY_REACH_LINES).collect();
    let attached =
        above.iter().enumerate().take_while(|(index, line)| *index == 0 || !line.trim().is_empty());
    attached.into_iter().any(|(_, line)| line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let config = Config::parse("[rust]\nunsafe_in = ['crates/fulmar-kernel/src/lanes/']\n").unwrap();
        let tree = Tree::from_files(files.iter().copied());
        check(&tree, &config).into_iter().map(|finding| (finding.rule, finding.item)).collect()
    }

    fn typescript(text: &str) -> Vec<(&'static str, String)> {
        rules(&[("ts/src/index.ts", "export * from './x/x.js'\n"), ("ts/src/x/x.ts", text)])
    }

    #[test]
    fn an_export_needs_a_doc_and_a_public_function_an_example() {
        assert_eq!(typescript("export interface A {}\n"), [("doc", "A".to_owned())]);
        assert_eq!(typescript("/** A. */\nexport interface A {}\n"), []);
        assert_eq!(typescript("/** A. */\nexport function a() {}\n"), [("example", "a".to_owned())]);
        assert_eq!(typescript("/** A.\n * @example\n */\nexport function a() {}\n"), []);
    }

    #[test]
    fn an_export_that_no_user_reaches_needs_no_example() {
        assert_eq!(rules(&[("ts/src/x/x.ts", "/** A. */\nexport function a() {}\n")]), []);
    }

    #[test]
    fn one_overload_carries_the_doc() {
        let text = "/** A.\n * @example\n */\nexport function a(x: 1): 1\nexport function a(x: 2): 2\nexport function a() {}\n";
        assert_eq!(typescript(text), []);
    }

    #[test]
    fn a_fallible_public_function_says_its_errors() {
        let rust = |text: &str| rules(&[("crates/fulmar-x/src/lib.rs", text)]);
        let expected = [("errors-section", "a".to_owned())];
        assert_eq!(rust("/// A.\npub fn a() -> Result<u32> {\n}\n"), expected);
        assert_eq!(
            rust("/// A.\n///\n/// # Errors\n/// `Io`.\n#[must_use]\npub fn a() -> io::Result<()> {\n}\n"),
            []
        );
        assert_eq!(rust("pub(crate) fn a() -> Result<u32> {\n}\nfn b() -> Result<()> {}\n"), []);
        assert_eq!(rust("pub fn a(f: impl Fn() -> Result<()>) -> u32 {\n}\n"), []);
        assert_eq!(
            rust("/// # Errors\n/// Never.\npub fn z() -> Result<()> {\n}\npub fn a() -> Result<()> {}\n"),
            expected
        );
        assert_eq!(rust("#[cfg(test)]\nmod tests {\n    pub fn a() -> Result<()> {}\n}\n"), []);
    }

    #[test]
    fn a_module_that_users_cannot_name_owes_them_no_errors_section() {
        let count = |root: &str| {
            let header = ("crates/fulmar-x/src/header.rs", "pub fn a() -> Result<u32> {\n}\n");
            rules(&[("crates/fulmar-x/src/lib.rs", root), header]).len()
        };
        assert_eq!(count("mod header;\nuse header::a;\n"), 0);
        assert_eq!(count("mod header;\npub use header::a;\n"), 1);
        assert_eq!(count("mod header;\npub use self::{b, header::a};\n"), 1);
        assert_eq!(count("pub mod header;\n"), 1);
    }

    #[test]
    fn unsafe_stands_in_its_places_with_its_reason() {
        let note = "fn a() {\n    // SAFETY: the slice holds eight lanes.\n    let b =\n        unsafe { c() };\n}\n";
        assert_eq!(rules(&[("crates/fulmar-kernel/src/lanes/avx2.rs", note)]), []);
        assert_eq!(rules(&[("crates/fulmar-kernel/src/softmax.rs", note)]).len(), 1);
        let bare = note.replace("SAFETY:", "");
        assert_eq!(rules(&[("crates/fulmar-kernel/src/lanes/avx2.rs", &bare)]).len(), 1);
    }

    #[test]
    fn an_unsafe_function_says_what_its_caller_must_hold() {
        let path = "crates/fulmar-kernel/src/lanes/avx2.rs";
        assert_eq!(rules(&[(path, "/// A.\npub unsafe fn a() {}\n")]).len(), 1);
        assert_eq!(
            rules(&[(path, "/// # Safety\n/// AVX2 is there.\n#[inline]\npub unsafe fn a() {}\n")]),
            []
        );
    }
}

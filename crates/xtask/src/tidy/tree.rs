//! The files of the repository, read once for all rules, with comments and tests separated from code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use super::{Finding, pattern};

/// Folders that are never part of the tree.
const FOREIGN: [&str; 3] = [".git", "node_modules", "target"];
/// Extensions of the files whose text the rules read.
const READ: [&str; 13] =
    ["gitignore", "rs", "ts", "mts", "js", "mjs", "md", "toml", "json", "yml", "sh", "capnp", "html"];
/// Data made by other programs: listed, not read.
const DATA: &str = "tests/golden/";

/// Every path of the repository, and the text of source files and pages.
#[derive(Debug, Default)]
pub struct Tree {
    pub paths: BTreeSet<String>,
    pub sources: BTreeMap<String, Source>,
}

/// A text file.
#[derive(Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
    /// The text with spaces in place of comments, of the same number of bytes and lines. Only Rust,
    /// TypeScript and JavaScript have comments here.
    pub code: String,
    /// The first byte of the tests, which come last in a file of Rust.
    tests_from: usize,
}

impl Tree {
    /// Reads the folder `root` without what its `.gitignore` names (lines `/folder/` and `*.end` are
    /// understood).
    ///
    /// # Errors
    /// The error of the operating system for a folder or a file that cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let ignore = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let (mut files, mut paths, mut folders) = (Vec::new(), BTreeSet::new(), vec![String::new()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                if kind.is_dir()
                    && !FOREIGN.contains(&name.as_str())
                    && !ignores(&ignore, &format!("{path}/"))
                {
                    folders.push(path);
                } else if kind.is_file() && !ignores(&ignore, &path) {
                    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
                    if READ.contains(&end) && !path.starts_with(DATA) && name != "package-lock.json" {
                        files.push((path.clone(), fs::read_to_string(root.join(&path))?));
                    }
                    paths.insert(path);
                }
            }
        }
        let mut tree = Self::from_files(files);
        tree.paths.append(&mut paths);
        Ok(tree)
    }

    /// Returns a tree of the given paths and texts.
    pub fn from_files(files: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let files = files.into_iter().map(|(path, text)| Source::new(path.into(), text.into()));
        let mut sources: BTreeMap<_, _> = files.map(|source| (source.path.clone(), source)).collect();
        let declared = pattern!(r"#\[cfg\([^\n]*\btest\b[^\n]*\)\]\n(?:#[^\n]*\n)*mod (\w+);");
        let tests: Vec<String> = sources
            .values()
            .flat_map(|source| {
                let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let stem = source.path.strip_suffix(".rs").unwrap_or(folder);
                let names = declared.captures_iter(&source.code).map(|found| found[1].to_owned());
                names.flat_map(move |name| [format!("{folder}/{name}.rs"), format!("{stem}/{name}.rs")])
            })
            .collect();
        for path in tests {
            sources.entry(path).and_modify(|source| source.tests_from = 0);
        }
        Self { paths: sources.keys().cloned().collect(), sources }
    }

    pub fn get(&self, path: &str) -> Option<&Source> {
        self.sources.get(path)
    }

    /// Returns the text files below `folder` (with its last `/`) whose path ends in `end`.
    pub fn under<'a>(&'a self, folder: &'a str, end: &'a str) -> impl Iterator<Item = &'a Source> {
        let inside =
            self.sources.range(folder.to_owned()..).take_while(move |(path, _)| path.starts_with(folder));
        inside.map(|(_, source)| source).filter(move |source| source.path.ends_with(end))
    }

    /// Returns whether the repository has a file or a folder at `path`; ignored paths count, as they are
    /// built.
    pub fn holds(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let ignore = self.get(".gitignore").map_or("", |source| source.text.as_str());
        let parts = folder.match_indices('/').map(|(at, _)| &folder[..=at]);
        self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|found| found.starts_with(&folder))
            || parts.into_iter().any(|part| ignores(ignore, part))
            || ignores(ignore, path)
    }

    /// Returns the names of the folders directly below `folder` (with its last `/`).
    pub fn folders(&self, folder: &str) -> BTreeSet<&str> {
        self.paths.iter().filter_map(|path| Some(path.strip_prefix(folder)?.split_once('/')?.0)).collect()
    }
}

/// Returns whether the lines of a `.gitignore` name `path`, a folder with a last `/`.
fn ignores(lines: &str, path: &str) -> bool {
    lines.lines().any(|line| match line.strip_prefix('*') {
        Some(end) => path.ends_with(end),
        None => line.trim_start_matches('/') == path,
    })
}

impl Source {
    fn new(path: String, text: String) -> Self {
        let is_rust = path.ends_with(".rs");
        let code = if is_rust || is_script(&path) { without_comments(&text, is_rust) } else { text.clone() };
        let attribute = pattern!(r"(?m)^#\[cfg\([^\n]*\btest\b[^\n]*\)\]\n(?:#[^\n]*\n)*(?:pub )?mod \w+ \{");
        let tests_from =
            match attribute.find(&code).filter(|found| is_rust && !found.as_str().contains("not(test")) {
                _ if is_test_path(&path) => 0,
                Some(found) => found.start(),
                None => text.len(),
            };
        Self { path, text, code, tests_from }
    }

    pub fn tests(&self) -> &str {
        &self.text[self.tests_from..]
    }

    pub fn is_test(&self, at: usize) -> bool {
        at >= self.tests_from
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_script(&self) -> bool {
        is_script(&self.path)
    }

    /// Returns a finding at the byte `at`.
    pub fn finding(&self, at: usize, rule: &'static str, item: &str, message: String) -> Finding {
        let line = self.text[..at].matches('\n').count() + 1;
        Finding { path: self.path.clone(), line, rule, item: item.to_owned(), message }
    }

    /// Returns a finding about the file as a whole.
    pub fn whole(&self, rule: &'static str, item: &str, message: String) -> Finding {
        Finding { line: 0, ..self.finding(0, rule, item, message) }
    }
}

/// Returns whether `path` contains only tests or benches.
pub fn is_test_path(path: &str) -> bool {
    let within = |name: &str| path.starts_with(&name[1..]) || path.contains(name);
    within("/tests/") || within("/test/") || within("/benches/") || path.contains(".test.")
}

fn is_script(path: &str) -> bool {
    [".ts", ".mts", ".js", ".mjs"].iter().any(|end| path.ends_with(end))
}

/// Replaces comments by spaces: lines that begin with `//`, in TypeScript also with `/*` or `* `, and the
/// rest of a line after ` // `.
fn without_comments(text: &str, is_rust: bool) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        let is_block =
            !is_rust && (start.starts_with("/*") || start.starts_with("* ") || start.trim_end() == "*");
        let end = match line.find(" // ") {
            _ if start.starts_with("//") || is_block || start.starts_with("*/") => 0,
            Some(at) => at,
            None => line.trim_end_matches('\n').len(),
        };
        code.push_str(&line[..end]);
        code.extend(line[end..].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_on_disk_is_read_without_what_git_ignores() {
        let root = std::env::temp_dir().join(format!("fulmar-tidy-{}", std::process::id()));
        let files = [
            ".gitignore",
            "a.rs",
            "b/c.node",
            "b/c.png",
            "dist/d.rs",
            "b/target/e.rs",
            "tests/golden/f.json",
        ];
        for path in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), "/dist/\n*.node\n").unwrap();
        }
        let tree = Tree::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let tree = tree.unwrap();
        assert!(tree.paths.iter().eq([".gitignore", "a.rs", "b/c.png", "tests/golden/f.json"]));
        assert!(tree.sources.keys().eq([".gitignore", "a.rs"]));
        assert!(
            tree.holds("dist/x.js") && tree.holds("x.node") && tree.holds("b") && !tree.holds("src/dist.js")
        );
    }

    #[test]
    fn comments_are_blanked_and_tests_told_apart() {
        let source =
            Source::new("a.rs".into(), "/// é\nlet a = *b; // c\n#[cfg(test)]\nmod tests {\n}\n".into());
        assert_eq!(source.code, "      \nlet a = *b;     \n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(source.tests(), "#[cfg(test)]\nmod tests {\n}\n");
        let script = Source::new("a.ts".into(), "/**\n * a\n */\nb()\n".into());
        assert_eq!(script.code.trim(), "b()");
    }

    #[test]
    fn a_module_declared_for_tests_is_a_test_file() {
        let tree = Tree::from_files([
            ("c/src/lib.rs", "#[cfg(test)]\nmod naive;\n"),
            ("c/src/naive.rs", "fn a() {}\n"),
        ]);
        assert!(tree.sources["c/src/naive.rs"].is_test(0) && !tree.sources["c/src/lib.rs"].is_test(0));
    }
}

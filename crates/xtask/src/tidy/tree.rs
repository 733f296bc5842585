//! The files of the repository, read once for all rules.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::source::Source;

/// Folders that are never part of the tree, wherever they stand.
const FOREIGN: [&str; 3] = [".git", "node_modules", "target"];
/// Ends of the files whose text the rules read.
const READ: [&str; 13] =
    ["gitignore", "rs", "ts", "mts", "js", "mjs", "md", "toml", "json", "yml", "sh", "capnp", "html"];
/// Data made by other programs: listed, not read.
const DATA: &str = "tests/golden/";

/// Every path of the repository, and the text of those that people write.
#[derive(Debug, Default)]
pub struct Tree {
    paths: BTreeSet<String>,
    sources: Vec<Source>,
}

impl Tree {
    /// Reads the folder `root` without what its `.gitignore` names (lines `/folder/` and `*.end` are understood).
    ///
    /// # Errors
    /// Whatever the operating system says about a folder or a file that cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let ignored = Ignored::new(&fs::read_to_string(root.join(".gitignore")).unwrap_or_default());
        let mut files = Vec::new();
        let mut paths = BTreeSet::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                if kind.is_dir() && !FOREIGN.contains(&name.as_str()) && !ignored.folder(&path) {
                    folders.push(path);
                } else if kind.is_file() && !ignored.file(&name) {
                    if is_read(&path) {
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

    /// A tree of the given paths and texts.
    pub fn from_files(files: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let mut sources: Vec<_> = files.into_iter().map(|(path, text)| Source::new(path, text)).collect();
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        let tests: BTreeSet<String> = sources.iter().flat_map(test_module_paths).collect();
        for source in &mut sources {
            if tests.contains(&source.path) {
                source.mark_as_test();
            }
        }
        Self { paths: sources.iter().map(|source| source.path.clone()).collect(), sources }
    }

    /// The text file at `path`.
    pub fn get(&self, path: &str) -> Option<&Source> {
        let index = self.sources.binary_search_by(|source| source.path.as_str().cmp(path)).ok()?;
        Some(&self.sources[index])
    }

    /// Whether a file stands at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Every path, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Every text file, sorted by path.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }

    /// The text files below `folder` (with its last `/`) whose path ends in `end`.
    pub fn under<'a>(&'a self, folder: &'a str, end: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources
            .iter()
            .filter(move |source| source.path.starts_with(folder) && source.path.ends_with(end))
    }

    /// Whether git ignores what stands at `path`: it is built, not written.
    pub fn is_built(&self, path: &str) -> bool {
        let ignored = Ignored::new(self.get(".gitignore").map_or("", |source| &source.text));
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        folders.into_iter().any(|folder| ignored.folder(folder)) || ignored.file(path)
    }

    /// The names directly below `folder` (with its last `/`) that are folders themselves.
    pub fn folders(&self, folder: &str) -> BTreeSet<&str> {
        let below = self.paths().filter_map(|path| path.strip_prefix(folder)?.split_once('/'));
        below.map(|(name, _)| name).collect()
    }
}

/// Where the files may stand that `source` declares as test modules.
fn test_module_paths(source: &Source) -> Vec<String> {
    let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let stem = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    let names = source.test_modules();
    let beside = names.iter().map(|name| format!("{folder}/{name}.rs"));
    beside.chain(names.iter().map(|name| format!("{stem}/{name}.rs"))).collect()
}

fn is_read(path: &str) -> bool {
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    READ.contains(&end) && !path.starts_with(DATA) && !path.ends_with("package-lock.json")
}

/// The part of `.gitignore` that this repository uses.
struct Ignored {
    folders: Vec<String>,
    ends: Vec<String>,
}

impl Ignored {
    fn new(text: &str) -> Self {
        let lines = || text.lines().map(str::trim);
        let folder = |line: &str| Some(line.strip_suffix('/')?.trim_start_matches('/').to_owned());
        let end = |line: &str| Some(line.strip_prefix('*')?.to_owned());
        Self { folders: lines().filter_map(folder).collect(), ends: lines().filter_map(end).collect() }
    }

    fn folder(&self, path: &str) -> bool {
        self.folders.iter().any(|folder| folder == path)
    }

    fn file(&self, name: &str) -> bool {
        self.ends.iter().any(|end| name.ends_with(end.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_on_disk_is_read_without_what_git_ignores() {
        let root = std::env::temp_dir().join(format!("fulmar-tidy-{}", std::process::id()));
        let files = [
            (".gitignore", "/dist/\n*.node\n"),
            ("a.rs", "fn a() {}\n"),
            ("b/c.node", "x"),
            ("b/c.png", "x"),
            ("dist/d.rs", "x"),
            ("b/target/e.rs", "x"),
            ("tests/golden/f.json", "{}"),
        ];
        for (path, text) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let tree = Tree::read(&root);
        fs::remove_dir_all(&root).unwrap();
        let tree = tree.unwrap();
        assert_eq!(
            tree.paths().collect::<Vec<_>>(),
            [".gitignore", "a.rs", "b/c.png", "tests/golden/f.json"]
        );
        assert_eq!(
            tree.sources().map(|source| source.path.as_str()).collect::<Vec<_>>(),
            [".gitignore", "a.rs"]
        );
        assert!(tree.is_built("dist/x.js") && tree.is_built("x.node") && !tree.is_built("src/dist.js"));
    }

    #[test]
    fn a_module_declared_for_tests_is_a_test_file() {
        let tree = Tree::from_files([
            ("c/src/lib.rs", "#[cfg(test)]\nmod naive;\n"),
            ("c/src/naive.rs", "fn a() {}\n"),
        ]);
        assert!(tree.get("c/src/naive.rs").unwrap().is_test(0));
        assert!(!tree.get("c/src/lib.rs").unwrap().is_test(0));
    }
}

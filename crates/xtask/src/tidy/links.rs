//! Links and paths in Markdown, the list of the examples, and figures with their records: each target
//! must exist.

use super::config::Config;
use super::tree::{Source, Tree};
use super::{Finding, pattern};

const RECORDS: &str = "benches/record/";
/// The pages whose `paths/in/code` must exist, unless they contain a placeholder.
const PAGES_WITH_PATHS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];
/// The folders with which a path of the repository begins.
const FOLDERS: [&str; 9] =
    ["benches", "bindings", "crates", "docs", "examples", "fuzz", "scripts", "tests", "ts"];

pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let mut found: Vec<_> = tree.under("", ".md").flat_map(|page| dead_links(tree, page)).collect();
    found.extend(
        PAGES_WITH_PATHS.iter().filter_map(|page| tree.get(page)).flat_map(|page| dead_paths(tree, page)),
    );
    found.extend(unlisted_examples(tree));
    found.extend(tree.get("README.md").into_iter().flat_map(|readme| unbacked_figures(tree, readme)));
    found
}

/// Resolves the relative `specifier` in the file `from`; the result need not exist.
pub fn join(from: &str, specifier: &str) -> Option<String> {
    if !specifier.starts_with('.') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the links to missing files; targets on the network and inside the page are not checked.
fn dead_links(tree: &Tree, page: &Source) -> Vec<Finding> {
    let targets =
        pattern!(r"\]\(([^)#:\n]+)(?:#[^)\n]*)?\)").captures_iter(&page.text).filter_map(|link| link.get(1));
    let dead = targets.filter(|target| {
        let path = join(&page.path, &format!("./{}", target.as_str()));
        !path.is_some_and(|path| tree.holds(&path))
    });
    let message = |target: &str| format!("links to {target}, which is not there; correct the path");
    dead.map(|target| page.finding(target.start(), "link", target.as_str(), message(target.as_str())))
        .collect()
}

/// Returns the missing paths that code spans with a slash name; `{a,b}` means both, `<noun>` and `*` are
/// not paths.
fn dead_paths(tree: &Tree, page: &Source) -> Vec<Finding> {
    let named =
        pattern!(r"`([\w.-]+/[\w./{},-]*)`").captures_iter(&page.text).filter_map(|found| found.get(1));
    let mut found = Vec::new();
    for named in named.filter(|named| FOLDERS.contains(&named.as_str().split('/').next().unwrap_or_default()))
    {
        let text = named.as_str();
        let paths = match text.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
            Some((head, (names, tail))) => {
                names.split(',').map(|name| format!("{head}{name}{tail}")).collect()
            }
            None => vec![text.to_owned()],
        };
        for path in paths.iter().filter(|path| !tree.holds(path)) {
            let message = format!("names {path}, which is not there; correct the path");
            found.push(page.finding(named.start(), "path", path, message));
        }
    }
    found
}

fn unlisted_examples(tree: &Tree) -> Vec<Finding> {
    let list = tree.get("examples/README.md").map_or("", |source| source.text.as_str());
    let folders = ["examples/", "crates/fulmar/examples/"].map(|folder| (folder, tree.under(folder, "")));
    let programs = folders.into_iter().flat_map(|(folder, sources)| {
        let programs = sources.filter(|source| source.is_rust() || source.is_script());
        programs
            .filter_map(move |source| Some((source, source.path.strip_prefix(folder)?.split('/').next()?)))
    });
    let message = |name| format!("examples/README.md does not list {name}; add a line about what it shows");
    let unlisted = programs.filter(|(_, name)| !list.contains(name));
    unlisted.map(|(source, name)| source.whole("example-list", name, message(name))).collect()
}

/// Returns the rows of tables whose cited record is missing or not the newest.
fn unbacked_figures(tree: &Tree, readme: &Source) -> Vec<Finding> {
    let rows = pattern!(r"(?m)^\|.*").find_iter(&readme.text);
    let cited = rows.flat_map(|row| {
        pattern!(r"benches/record/[^)\s]*?\.json")
            .find_iter(row.as_str())
            .map(move |found| (row.start(), found.as_str()))
    });
    // The names of records are a subject and a date.
    let subject = |path: &str| {
        path.trim_end_matches(".json").trim_end_matches(|last: char| !last.is_alphabetic()).to_owned()
    };
    let stale = cited.filter_map(|(at, record)| {
        let records =
            tree.paths.iter().filter(|path| path.starts_with(RECORDS) && subject(path) == subject(record));
        let newest = records.max().filter(|_| tree.paths.contains(record));
        let message = match newest {
            Some(newest) if newest == record => return None,
            Some(newest) => format!("cites {record}, and {newest} is newer; take its figures"),
            None => format!("cites {record}, which is not there; run the bench and commit its record"),
        };
        Some(readme.finding(at, "figure", record, message))
    });
    stale.collect()
}

#[cfg(test)]
mod tests {
    use super::super::found_by;
    use super::*;

    fn items(files: &[(&str, &str)]) -> Vec<String> {
        found_by(check, "", files).into_iter().map(|(_, item)| item).collect()
    }

    #[test]
    fn a_link_leads_to_a_file_a_folder_or_something_built() {
        let page = |text| {
            items(&[
                ("docs/a.md", text),
                ("docs/b.md", "# b\n"),
                ("ts/src/x.ts", ""),
                (".gitignore", "/build/\n"),
            ])
        };
        assert!(page("[b](b.md#b) [src](../ts/src/) [api](../build/api/index.html)\n").is_empty());
        assert!(page("[x](https://a.b/c.md) [y](#y) [z](mailto:a@b)\n").is_empty());
        assert_eq!(page("[c](c.md)\n[d](../ts/test)\n"), ["c.md", "../ts/test"]);
    }

    #[test]
    fn paths_that_a_page_for_contributors_names_exist() {
        let page = |text| items(&[("CONTRIBUTING.md", text), ("ts/src/x.ts", "")]);
        assert!(page("`ts/src/x.ts`, `ts/src/`, `ts/src/{x}.ts`, `ts/src/<room>/`, `and/or`\n").is_empty());
        assert_eq!(page("`ts/src/y.ts` and `ts/src/{x,z}.ts`\n"), ["ts/src/y.ts", "ts/src/z.ts"]);
    }

    #[test]
    fn an_example_is_listed() {
        assert_eq!(items(&[("examples/01-a.ts", "")]), ["01-a.ts"]);
        assert!(items(&[("examples/01-a.ts", ""), ("examples/README.md", "- `01-a.ts`: a\n")]).is_empty());
        assert_eq!(items(&[("crates/fulmar/examples/b.rs", "")]), ["b.rs"]);
    }

    #[test]
    fn a_figure_cites_the_newest_record() {
        let [old, new, other] = ["grpo-2026-01-01", "grpo-2026-02-01", "boundary-2026-03-01"]
            .map(|name| format!("benches/record/epyc/{name}.json"));
        let cites = |record: &str, records: &[&String]| {
            let readme = format!("| step | 1 | {record} |\n");
            let records = records.iter().map(|record| (record.as_str(), "{}"));
            items(&records.chain([("README.md", readme.as_str())]).collect::<Vec<_>>())
        };
        assert_eq!([cites(&old, &[]), cites(&old, &[&old, &new])], [[old.clone()], [old.clone()]]);
        assert!(cites(&old, &[&old, &other]).is_empty() && cites(&new, &[&old, &new]).is_empty());
    }
}

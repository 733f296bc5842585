//! Links: a relative link of a Markdown file leads to something that is there.

use super::Finding;
use super::config::Config;
use super::source::Source;
use super::tree::Tree;
use super::typescript::join;

/// Checks the `](target)` of every Markdown file; targets on the network and inside the page are left alone.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let pages = tree.sources().filter(|source| source.path.ends_with(".md"));
    pages.flat_map(|page| dead_links(tree, page)).collect()
}

fn dead_links(tree: &Tree, page: &Source) -> Vec<Finding> {
    let targets = page.text.match_indices("](").filter_map(|(at, open)| {
        let target = page.text[at + open.len()..].split([')', '\n']).next()?;
        let is_elsewhere = target.contains(':') || target.starts_with('#') || target.is_empty();
        (!is_elsewhere).then_some((at, target))
    });
    let dead = targets.filter(|(_, target)| {
        let path = target.split('#').next().unwrap_or(target).trim_end_matches('/');
        let path = join(&page.path, &format!("./{path}")).unwrap_or_default();
        let folder = format!("{path}/");
        !tree.has(&path) && !tree.is_built(&folder) && !tree.paths().any(|found| found.starts_with(&folder))
    });
    dead.map(|(at, target)| Finding {
        path: page.path.clone(),
        line: page.line_of(at),
        rule: "link",
        item: target.to_owned(),
        message: format!("links to {target}, which is not there; correct the path"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Vec<String> {
        let files =
            [("docs/a.md", text), ("docs/b.md", "# b\n"), ("ts/src/x.ts", ""), (".gitignore", "/build/\n")];
        check(&Tree::from_files(files), &Config::default()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn a_link_leads_to_a_file_a_folder_or_something_built() {
        assert!(items("[b](b.md#b) [src](../ts/src/) [api](../build/api/index.html)\n").is_empty());
        assert_eq!(items("[c](c.md)\n[d](../ts/test)\n"), ["c.md", "../ts/test"]);
    }

    #[test]
    fn links_to_the_network_and_into_the_page_are_left_alone() {
        assert!(items("[x](https://a.b/c.md) [y](#y) [z](mailto:a@b)\n").is_empty());
    }
}

//! Suites: whoever implements a trait that has a `check_*` suite runs that suite in a test.

use super::Finding;
use super::config::Config;
use super::function::functions;
use super::source::{Language, Source};
use super::tree::Tree;

/// Checks every `impl Trait for Type` outside tests whose trait has a public suite `check_trait`.
pub fn check(tree: &Tree, _: &Config) -> Vec<Finding> {
    let rust = || tree.under("crates/", ".rs").filter(|source| source.language == Language::Rust);
    let traits: Vec<String> =
        rust().flat_map(suites).filter(|name| rust().any(|source| declares(source, name))).collect();
    let mut found = Vec::new();
    for source in rust() {
        for (name, implementor, at) in
            implementations(source).filter(|(name, ..)| traits.iter().any(|t| t == name))
        {
            let suite = suite_of(name);
            let runs =
                |test: &Source| test.tests().any(|text| text.contains(&suite) && text.contains(implementor));
            if !source.is_test(at) && !rust().any(runs) {
                let message = format!(
                    "{implementor} implements {name} and no test runs {suite} with it; call it in its tests"
                );
                let line = source.line_of(at);
                found.push(Finding {
                    path: source.path.clone(),
                    line,
                    rule: "suite",
                    item: implementor.to_owned(),
                    message,
                });
            }
        }
    }
    found
}

/// The traits that the public functions `check_*` of `source` may be about.
fn suites(source: &Source) -> Vec<String> {
    let public =
        functions(source).into_iter().filter(|function| function.public && !source.is_test(function.at));
    public.filter_map(|function| Some(upper_camel(function.name.strip_prefix("check_")?))).collect()
}

fn declares(source: &Source, name: &str) -> bool {
    source
        .words("trait")
        .any(|at| source.next_code(at + "trait".len()).is_some_and(|next| source.name_at(next) == name))
}

/// (trait, type, place) of every `impl Trait for Type` that has no type parameters.
fn implementations(source: &Source) -> impl Iterator<Item = (&str, &str, usize)> {
    source.words("impl").filter_map(|at| {
        let head = source.code[at + "impl".len()..].split('{').next()?;
        let (name, implementor) = head.split_once(" for ")?;
        let (name, implementor) = (name.trim(), implementor.split_whitespace().next()?);
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (plain(name) && plain(implementor)).then_some((name, implementor, at))
    })
}

fn suite_of(name: &str) -> String {
    let mut suite = "check".to_owned();
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            suite.push('_');
        }
        suite.push(character.to_ascii_lowercase());
    }
    suite
}

fn upper_camel(name: &str) -> String {
    let word = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    name.split('_').filter(|part| !part.is_empty()).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIT: (&str, &str) = (
        "crates/fulmar-x/src/lib.rs",
        "pub trait TokenSink {}\npub fn check_token_sink(sink: &dyn TokenSink) {}\npub trait Free {}\n",
    );

    fn items(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().copied().chain([TRAIT]);
        check(&Tree::from_files(files), &Config::default()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn an_implementation_that_runs_no_suite_is_refused() {
        let code = ("crates/fulmar-x/src/file.rs", "impl TokenSink for File {\n}\n");
        assert_eq!(items(&[code]), ["File"]);
        let test = ("crates/fulmar-x/tests/file.rs", "fn a() { check_token_sink(&File); }\n");
        assert!(items(&[code, test]).is_empty());
    }

    #[test]
    fn traits_without_a_suite_and_implementations_of_tests_are_free() {
        assert!(items(&[("crates/fulmar-x/src/file.rs", "impl Free for File {\n}\n")]).is_empty());
        assert!(items(&[("crates/fulmar-x/tests/naive.rs", "impl TokenSink for Naive {\n}\n")]).is_empty());
    }
}

//! `tidy.toml`: the layers of the crates and rooms, counts that may only fall, and every exception with
//! its reason.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Finding;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub rust: Rust,
    pub typescript: TypeScript,
    /// Room -> number of banned phrases.
    pub language: BTreeMap<String, usize>,
    #[serde(rename = "except")]
    pub exceptions: Vec<Exception>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rust {
    /// Crate -> crates that it may depend on, directly; their dependencies are allowed too.
    pub floors: BTreeMap<String, Vec<String>>,
    /// Crates without a binding and a TypeScript folder.
    pub unmirrored: Vec<String>,
    /// Files of the bindings that belong to no crate, without their extension.
    pub binding_support: Vec<String>,
    /// Files and folders (with a last `/`) that may hold `unsafe`.
    pub unsafe_in: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TypeScript {
    /// Room -> floor. A room imports only from lower floors.
    pub floors: BTreeMap<String, u32>,
    /// Room -> rooms on its own floor that it may import all the same.
    pub sideways: BTreeMap<String, Vec<String>>,
    /// Error codes that only TypeScript raises.
    pub own_codes: Vec<String>,
}

/// A finding that is allowed, and the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// A file, or a folder with a last `/`.
    pub path: String,
    pub rule: String,
    /// The function, name or import; empty for the whole file.
    #[serde(default)]
    pub item: String,
    pub reason: String,
}

impl Exception {
    fn covers(&self, finding: &Finding) -> bool {
        let inside = self.path.ends_with('/') && finding.path.starts_with(&self.path);
        let same = self.rule == finding.rule && (self.item.is_empty() || self.item == finding.item);
        same && (inside || self.path == finding.path)
    }
}

impl Config {
    /// Reads the text of a `tidy.toml`.
    ///
    /// # Errors
    /// A message with the line if the text is not TOML, a key is unknown, or an exception has no reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| format!("tidy.toml: {error}"))?;
        match config.exceptions.iter().find(|exception| exception.reason.trim().is_empty()) {
            Some(exception) => {
                Err(format!("tidy.toml: the exception for {} must have a reason", exception.path))
            }
            None => Ok(config),
        }
    }

    /// Returns `findings` without those that an exception covers, and one more for each exception that
    /// covers no finding.
    pub fn without_exceptions(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let is_stale = |exception: &&Exception| !findings.iter().any(|found| exception.covers(found));
        let stale = self.exceptions.iter().filter(is_stale).map(|exception| Finding {
            path: "tidy.toml".into(),
            line: 0,
            rule: "stale-exception",
            item: exception.path.clone(),
            message: format!(
                "{} no longer needs its exception for `{}`; delete it",
                exception.path, exception.rule
            ),
        });
        let stale: Vec<_> = stale.collect();
        let stays = |found: &Finding| !self.exceptions.iter().any(|exception| exception.covers(found));
        findings.into_iter().filter(stays).chain(stale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(path: &str, item: &str) -> Vec<&'static str> {
        let text =
            format!("[[except]]\npath = '{path}'\nrule = 'name'\nitem = '{item}'\nreason = 'a table'\n");
        let (path, item, message) = ("a/b.rs".to_owned(), "f".to_owned(), String::new());
        let found = vec![Finding { path, line: 1, rule: "name", item, message }];
        Config::parse(&text).unwrap().without_exceptions(found).into_iter().map(|found| found.rule).collect()
    }

    #[test]
    fn an_exception_covers_its_item_its_file_or_its_folder_and_is_needed() {
        assert!(
            [("a/b.rs", "f"), ("a/b.rs", ""), ("a/", "")]
                .iter()
                .all(|(path, item)| left(path, item).is_empty())
        );
        assert_eq!(left("a/b.rs", "g"), ["name", "stale-exception"]);
    }

    #[test]
    fn an_exception_without_a_reason_and_an_unknown_key_are_refused() {
        let text = "[[except]]\npath = 'a'\nrule = 'tab'\nreason = ' '\n";
        assert!(Config::parse(text).unwrap_err().contains("must have a reason"));
        assert!(Config::parse("[rust]\nfloor = {}\n").unwrap_err().contains("floor"));
    }
}

//! `tidy.toml`: the floors of the house as data, and every exception with its reason.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Finding;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub rust: Rust,
    pub typescript: TypeScript,
    #[serde(rename = "except")]
    pub exceptions: Vec<Exception>,
}

/// What the Rust side of the house looks like.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rust {
    /// Crate -> crates that it may depend on; what those may, it may too.
    pub floors: BTreeMap<String, Vec<String>>,
    /// Crates that no binding and no TypeScript folder shows.
    pub unmirrored: Vec<String>,
    /// Files of the bindings that belong to no crate, without their end.
    pub binding_support: Vec<String>,
    /// Files and folders (with a last `/`) where `unsafe` may stand.
    pub unsafe_in: Vec<String>,
}

/// What the TypeScript side of the house looks like.
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

/// A finding that stays, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// A file, or a folder with a last `/`.
    pub path: String,
    pub rule: String,
    /// Only this function, name or import; without it the whole file.
    #[serde(default)]
    pub item: String,
    pub reason: String,
}

impl Exception {
    fn covers(&self, finding: &Finding) -> bool {
        let inside = self.path.ends_with('/') && finding.path.starts_with(&self.path);
        (inside || self.path == finding.path)
            && self.rule == finding.rule
            && (self.item.is_empty() || self.item == finding.item)
    }
}

impl Config {
    /// Reads the text of a `tidy.toml`.
    ///
    /// # Errors
    /// A sentence with the place if the text is not TOML, a key is unknown, or an exception has no reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| format!("tidy.toml: {error}"))?;
        match config.exceptions.iter().find(|exception| exception.reason.trim().is_empty()) {
            Some(exception) => {
                Err(format!("tidy.toml: the exception for {} must have a reason", exception.path))
            }
            None => Ok(config),
        }
    }

    /// `findings` without those that an exception covers, and one more for each exception that covers none.
    pub fn without_exceptions(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let unused =
            self.exceptions.iter().filter(|exception| !findings.iter().any(|found| exception.covers(found)));
        let stale: Vec<_> = unused
            .map(|exception| Finding {
                path: "tidy.toml".into(),
                line: 0,
                rule: "stale-exception",
                item: exception.path.clone(),
                message: format!(
                    "no finding `{}` in {} needs this exception any more; delete it",
                    exception.rule, exception.path
                ),
            })
            .collect();
        let stays = |found: &Finding| !self.exceptions.iter().any(|exception| exception.covers(found));
        findings.into_iter().filter(stays).chain(stale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str, item: &str) -> Finding {
        Finding {
            path: path.into(),
            line: 1,
            rule: "long-function",
            item: item.into(),
            message: "long".into(),
        }
    }

    fn exception(path: &str, item: &str) -> Config {
        let text = format!(
            "[[except]]\npath = \"{path}\"\nrule = \"long-function\"\nitem = \"{item}\"\nreason = \"a table\"\n"
        );
        Config::parse(&text).unwrap()
    }

    #[test]
    fn an_exception_covers_its_item_its_file_or_its_folder() {
        for (path, item) in [("a/b.rs", "f"), ("a/b.rs", ""), ("a/", "")] {
            assert_eq!(exception(path, item).without_exceptions(vec![finding("a/b.rs", "f")]), []);
        }
    }

    #[test]
    fn an_exception_that_covers_nothing_is_a_finding() {
        let left = exception("a/b.rs", "g").without_exceptions(vec![finding("a/b.rs", "f")]);
        assert_eq!(
            left.iter().map(|found| found.rule).collect::<Vec<_>>(),
            ["long-function", "stale-exception"]
        );
    }

    #[test]
    fn an_exception_must_have_a_reason() {
        let text = "[[except]]\npath = \"a\"\nrule = \"tab\"\nreason = \" \"\n";
        assert!(Config::parse(text).unwrap_err().contains("must have a reason"));
    }

    #[test]
    fn an_unknown_key_is_refused() {
        assert!(Config::parse("[rust]\nfloor = {}\n").unwrap_err().contains("floor"));
    }
}

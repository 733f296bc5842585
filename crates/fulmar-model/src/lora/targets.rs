//! The modules that an adapter changes, by the rules of peft.

use fulmar_core::{Error, ErrorKind, Result, nearest_name};
use regex::{Regex, RegexBuilder};

use super::LoraConfig;
use crate::parameters::Layout;

/// Selects the projections with an adapter, by the rules of PEFT.
pub(super) struct Targets<'a> {
    config: &'a LoraConfig,
    pattern: Option<Regex>,
    excluded: Option<Regex>,
}

impl<'a> Targets<'a> {
    pub(super) fn new(config: &'a LoraConfig) -> Result<Self> {
        let pattern = match config.target_pattern.as_deref() {
            Some("all-linear") => Some(r".*\.layers\.\d+\..*"),
            pattern => pattern,
        };
        Ok(Self {
            config,
            pattern: pattern.map(|pattern| whole_match("target_modules", pattern)).transpose()?,
            excluded: config
                .exclude_pattern
                .as_deref()
                .map(|pattern| whole_match("exclude_modules", pattern))
                .transpose()?,
        })
    }

    /// Returns whether the module called `name` has an adapter; `layer` is its layer, if it is in one.
    pub(super) fn holds(&self, name: &str, layer: Option<usize>) -> bool {
        let is_listed = |names: &[String]| names.iter().any(|listed| names_module(listed, name));
        let is_excluded = is_listed(&self.config.exclude_modules)
            || self.excluded.as_ref().is_some_and(|pattern| pattern.is_match(name));
        let is_target = match &self.pattern {
            Some(pattern) => pattern.is_match(name),
            None => is_listed(&self.config.target_modules),
        };
        let layers = self.config.layers_to_transform.as_ref();
        is_target
            && !is_excluded
            && layers.is_none_or(|layers| layer.is_some_and(|layer| layers.contains(&layer)))
    }

    /// Refuses targets that are not projections of layers, and a list or a pattern that selects none.
    pub(super) fn check(&self, layout: &Layout) -> Result<()> {
        let unknown = |detail: String| Err(Error::new(ErrorKind::UnknownName, detail));
        let known: Vec<&str> = layout
            .layers
            .first()
            .map_or_else(Vec::new, |layer| layer.linears().iter().map(|linear| linear.name).collect());
        let modules: Vec<String> =
            layout.layers.iter().enumerate().flat_map(|(index, layer)| layer.module_names(index)).collect();
        if let Some(target) = self
            .config
            .target_modules
            .iter()
            .find(|target| !modules.iter().any(|name| names_module(target, name)))
        {
            let nearest = nearest_name(target, &known).map(|nearest| format!("; did you mean '{nearest}'?"));
            let names = known.join(", ");
            return unknown(format!(
                "target_modules must be of {names}: got {target:?}{}",
                nearest.unwrap_or_default()
            ));
        }
        let others = layout.parameters.iter().filter_map(|parameter| parameter.name.strip_suffix(".weight"));
        let pattern =
            self.pattern.as_ref().filter(|_| self.config.target_pattern.as_deref() != Some("all-linear"));
        let is_other = |name: &&str| !modules.iter().any(|module| module == name) && self.holds(name, None);
        if let (Some(pattern), Some(name)) = (pattern, others.clone().find(is_other)) {
            return unknown(format!(
                "target_modules must match projections of layers only: {:?} matches {name:?}",
                pattern.as_str()
            ));
        }
        if self.config.target_modules.is_empty() && self.pattern.is_none() {
            return Err(Error::new(
                ErrorKind::Empty,
                "target_modules must name at least one projection: got 0",
            ));
        }
        let is_any =
            layout.layers.iter().enumerate().any(|(index, layer)| {
                layer.module_names(index).iter().any(|name| self.holds(name, Some(index)))
            });
        if !is_any {
            return Err(Error::new(
                ErrorKind::Empty,
                "target_modules, less exclude_modules and other layers, must leave a projection",
            ));
        }
        Ok(())
    }
}

/// Returns whether PEFT applies `listed` to the module called `name`: its whole name, or the end of it.
fn names_module(listed: &str, name: &str) -> bool {
    name.strip_suffix(listed).is_some_and(|start| start.is_empty() || start.ends_with('.'))
}

/// Returns a pattern that must match a whole name, like Python's `re.fullmatch`.
fn whole_match(key: &str, pattern: &str) -> Result<Regex> {
    RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(PATTERN_BYTES_MAX).build().map_err(|_| {
        let detail = format!(
            "{key} must be a regular expression without look-around and back-references: got {pattern:?}"
        );
        Error::new(ErrorKind::Malformed, detail)
    })
}

/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

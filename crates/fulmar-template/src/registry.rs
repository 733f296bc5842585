//! Named chat templates, and the selection of a chat's template.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use serde::Deserialize;
use serde_json::json;

use crate::Template;
use crate::builtin::{TEMPLATES, twin};

/// A template to register under a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TemplateEntry {
    /// Jinja source. Without a `generation` block it gives no spans.
    #[serde(rename = "template")]
    pub source: String,
    /// With [`Selection::TorchRl`], parts of a tokenizer's name that select this template, in any case.
    pub model_family_keywords: Vec<String>,
    /// If true, it may replace a template of the same name.
    #[serde(rename = "override")]
    pub overrides: bool,
}

/// Templates by name: the built-in ones and registered ones. A plain value: two registries share nothing.
///
/// ```
/// use fulmar_template::{TemplateEntry, TemplateRegistry};
///
/// let mut registry = TemplateRegistry::new();
/// assert!(registry.get("qwen3")?.has_generation());
/// let source = "{{ messages[0].content }}".to_owned();
/// registry.register("first", TemplateEntry { source, ..TemplateEntry::default() })?;
/// assert_eq!(registry.names().last(), Some("first"));
/// assert!(TemplateRegistry::builtin().get("first").is_err());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TemplateRegistry {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    name: Cow<'static, str>,
    source: Cow<'static, str>,
    /// In lower case.
    keywords: Vec<Cow<'static, str>>,
    builtin: bool,
    compiled: OnceLock<Template>,
}

/// The order in which the ways to specify a template are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selection {
    /// An explicit template, an explicit name, the tokenizer's own template, or an error; never a guess.
    #[default]
    Strict,
    /// TorchRL's: an explicit template or name, registered and then built-in family keywords in the
    /// tokenizer's name, the tokenizer's own template if it contains exactly `{% generation %}`, else
    /// `chatml_format`.
    TorchRl,
}

/// The inputs of a template selection.
#[derive(Debug, Clone, Copy, Default)]
pub struct TemplateQuery<'a> {
    /// The source of a template.
    pub template: Option<&'a str>,
    /// A registered name.
    pub name: Option<&'a str>,
    /// The tokenizer's own template.
    pub tokenizer_template: Option<&'a str>,
    /// The name or path that the tokenizer was loaded from; only [`Selection::TorchRl`] reads it.
    pub name_or_path: Option<&'a str>,
    /// The order in which these count.
    pub selection: Selection,
}

/// A [`TemplateQuery`] from other languages.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Query {
    template: Option<String>,
    name: Option<String>,
    tokenizer_template: Option<String>,
    name_or_path: Option<String>,
    selection: Selection,
}

/// A template with its name, if it came from the registry.
#[derive(Debug, Clone)]
pub struct Selected {
    /// The compiled template.
    pub template: Template,
    /// Its name in the registry; `None` for a source from elsewhere.
    pub name: Option<String>,
}

impl TemplateRegistry {
    /// Returns the built-in templates, read-only; [`TemplateRegistry::new`] returns a registry that can be
    /// changed.
    #[must_use]
    pub fn builtin() -> &'static Self {
        static BUILTIN: LazyLock<TemplateRegistry> = LazyLock::new(|| TemplateRegistry {
            entries: TEMPLATES
                .iter()
                .map(|&(name, source, keywords)| Entry::builtin(name, source, keywords))
                .collect(),
        });
        &BUILTIN
    }

    /// Returns a new registry with the built-in templates.
    #[must_use]
    pub fn new() -> Self {
        Self::builtin().clone()
    }

    /// Adds a template under `name`. A replacement keeps the place of the replaced one in the order.
    ///
    /// # Errors
    /// `Incompatible` if the name is taken and the entry does not override; `Malformed` or `LimitExceeded` for a source
    /// that does not compile.
    pub fn register(&mut self, name: &str, entry: TemplateEntry) -> Result<()> {
        let taken = self.entries.iter().position(|known| known.name == name);
        if taken.is_some() && !entry.overrides {
            let detail =
                format!("name must be new, or the entry must override: got \"{name}\", which is registered");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let compiled = OnceLock::from(Template::new(&entry.source)?);
        let keywords =
            entry.model_family_keywords.iter().map(|keyword| keyword.to_lowercase().into()).collect();
        let name = Cow::Owned(name.to_owned());
        let entry = Entry { name, source: entry.source.into(), keywords, builtin: false, compiled };
        match taken.and_then(|index| self.entries.get_mut(index)) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        Ok(())
    }

    /// Returns the template called `name`, compiled at its first use.
    ///
    /// # Errors
    /// `UnknownName` if there is no such template; the message lists the names.
    pub fn get(&self, name: &str) -> Result<Template> {
        self.entry(name)?.template()
    }

    /// Returns the source of the template called `name`.
    ///
    /// # Errors
    /// The errors of [`TemplateRegistry::get`].
    pub fn source(&self, name: &str) -> Result<&str> {
        Ok(&self.entry(name)?.source)
    }

    /// Returns the names, built-in ones first, then in order of registration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_ref())
    }

    /// Returns the template for `query`.
    ///
    /// If a tokenizer's own template has no `generation` blocks and is a known stock template, the built-in
    /// template that renders the same text with them replaces it, unless that name was overridden.
    ///
    /// # Errors
    /// `UnknownName` for a name that is not registered; `Malformed` or `LimitExceeded` for a source that does
    /// not compile; `Incompatible` if the query specifies no template in any way that its selection allows.
    pub fn select(&self, query: &TemplateQuery) -> Result<Selected> {
        if let Some(source) = query.template {
            return Ok(Selected { template: Template::new(source)?, name: None });
        }
        if let Some(name) = query.name {
            return self.selected(name);
        }
        match query.selection {
            Selection::Strict => self.tokenizers_own(query),
            Selection::TorchRl => self.as_torchrl(query),
        }
    }

    /// Runs [`TemplateRegistry::select`] with the query as JSON text, its fields in camel case; returns the
    /// JSON `{name, source}`.
    ///
    /// # Errors
    /// `Malformed` or `UnknownName` for another form; the errors of [`TemplateRegistry::select`].
    pub fn select_json(&self, query: &str) -> Result<String> {
        let query: Query = options_from_json("options", query)?;
        let Selected { template, name } = self.select(&TemplateQuery {
            template: query.template.as_deref(),
            name: query.name.as_deref(),
            tokenizer_template: query.tokenizer_template.as_deref(),
            name_or_path: query.name_or_path.as_deref(),
            selection: query.selection,
        })?;
        Ok(json!({"name": name, "source": template.source()}).to_string())
    }

    /// Returns the tokenizer's template, or its twin with `generation` blocks.
    fn tokenizers_own(&self, query: &TemplateQuery) -> Result<Selected> {
        let Some(source) = query.tokenizer_template else {
            let detail =
                "template must be given: got no template, no name and a tokenizer without a template";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        if let Some(name) = twin(source).filter(|name| self.entry(name).is_ok_and(|entry| entry.builtin)) {
            return self.selected(name);
        }
        Ok(Selected { template: Template::new(source)?, name: None })
    }

    /// Returns TorchRL's guess from the tokenizer's name.
    fn as_torchrl(&self, query: &TemplateQuery) -> Result<Selected> {
        if query.name_or_path.is_none() && query.tokenizer_template.is_none() {
            let detail = "template must be given: got no template, no name and no tokenizer";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let model = query.name_or_path.unwrap_or_default().to_lowercase();
        let of_family = |builtin: bool| {
            let mut entries = self.entries.iter().filter(move |entry| entry.builtin == builtin);
            entries.find(|entry| entry.keywords.iter().any(|keyword| model.contains(keyword.as_ref())))
        };
        if let Some(entry) = of_family(false).or_else(|| of_family(true)) {
            return self.selected(&entry.name);
        }
        match query.tokenizer_template.filter(|source| source.contains("{% generation %}")) {
            Some(source) => Ok(Selected { template: Template::new(source)?, name: None }),
            None => self.selected("chatml_format"),
        }
    }

    fn selected(&self, name: &str) -> Result<Selected> {
        Ok(Selected { template: self.get(name)?, name: Some(name.to_owned()) })
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let names = self.names().collect::<Vec<_>>().join(", ");
            Error::new(ErrorKind::UnknownName, format!("name must be one of {names}: got \"{name}\""))
        })
    }
}

impl Default for TemplateRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    fn builtin(name: &'static str, source: &'static str, keywords: &[&'static str]) -> Self {
        let keywords = keywords.iter().map(|&keyword| keyword.into()).collect();
        Self { name: name.into(), source: source.into(), keywords, builtin: true, compiled: OnceLock::new() }
    }

    fn template(&self) -> Result<Template> {
        if let Some(template) = self.compiled.get() {
            return Ok(template.clone());
        }
        let template = Template::new(&self.source)?;
        Ok(self.compiled.get_or_init(|| template).clone())
    }
}

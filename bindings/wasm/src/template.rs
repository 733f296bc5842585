//! The face of `fulmar-template`.

use fulmar::core::options_from_json;
use fulmar::template;
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// A rendered text; `spans` is `[S, 2]` in UTF-16 code units.
#[wasm_bindgen(getter_with_clone)]
pub struct RenderedText {
    pub text: String,
    pub spans: Option<Vec<u32>>,
}

/// The template of `fulmar_template::Template`.
#[wasm_bindgen]
pub struct Template {
    pub(crate) inner: template::Template,
}

#[wasm_bindgen]
impl Template {
    /// Compiles a source; JSON text gives the limits of a rendering.
    #[wasm_bindgen(constructor)]
    pub fn new(source: &str, limits: &str) -> Result<Self> {
        guard(|| Ok(Self { inner: template::Template::with_limits_json(source, limits)? }))
    }

    /// Returns whether it has a `generation` block.
    #[wasm_bindgen(js_name = hasGeneration)]
    pub fn has_generation(&self) -> Result<bool> {
        guard(|| Ok(self.inner.has_generation()))
    }

    /// Renders a conversation, which is JSON text.
    pub fn render(&self, input: &str) -> Result<RenderedText> {
        guard(|| {
            let rendered = self.inner.render_json(input)?;
            Ok(RenderedText { spans: rendered.utf16_spans(), text: rendered.text })
        })
    }
}

/// The registry of `fulmar_template::TemplateRegistry`.
#[wasm_bindgen]
pub struct TemplateRegistry {
    inner: template::TemplateRegistry,
}

#[wasm_bindgen]
impl TemplateRegistry {
    /// Makes a registry of the built-in templates.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(Self { inner: template::TemplateRegistry::new() }))
    }

    /// Adds an entry, which is JSON text.
    pub fn register(&mut self, name: &str, entry: &str) -> Result<()> {
        guard(|| self.inner.register(name, options_from_json("entry", entry)?))
    }

    /// Returns the names, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        guard(|| Ok(self.inner.names().map(Into::into).collect()))
    }

    /// Returns a template's source.
    pub fn source(&self, name: &str) -> Result<String> {
        guard(|| Ok(self.inner.source(name)?.to_owned()))
    }

    /// Selects a template for a query; both are JSON text.
    pub fn select(&self, query: &str) -> Result<String> {
        guard(|| self.inner.select_json(query))
    }
}

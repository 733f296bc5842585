//! The face of `fulmar-template`.

use fulmar::core::options_from_json;
use fulmar::template;
use napi::bindgen_prelude::Uint32Array;
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::slot::Slot;

/// A rendered text; `spans` is `[S, 2]` in UTF-16 code units.
#[napi(object)]
pub struct RenderedText {
    pub text: String,
    pub spans: Option<Uint32Array>,
}

/// The template of `fulmar_template::Template`.
#[napi]
pub struct Template {
    pub(crate) inner: Slot<template::Template>,
}

#[napi]
impl Template {
    /// Compiles a source; JSON text gives the limits of a rendering.
    #[napi(constructor)]
    pub fn new(source: String, limits: String) -> Result<Self> {
        let compiled = || template::Template::with_limits_json(&source, &limits);
        guard(|| Ok(Self { inner: Slot::new("Template", compiled()?) }))
    }

    /// Returns whether it has a `generation` block.
    #[napi]
    pub fn has_generation(&self) -> Result<bool> {
        guard(|| self.inner.with(|template| Ok(template.has_generation())))
    }

    /// Renders a conversation, which is JSON text.
    #[napi]
    pub fn render(&self, input: String) -> Result<RenderedText> {
        guard(|| {
            let rendered = self.inner.with(|template| template.render_json(&input))?;
            Ok(RenderedText { spans: rendered.utf16_spans().map(Into::into), text: rendered.text })
        })
    }

    /// Drops the template.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// The registry of `fulmar_template::TemplateRegistry`.
#[napi]
pub struct TemplateRegistry {
    inner: Slot<template::TemplateRegistry>,
}

#[napi]
impl TemplateRegistry {
    /// Makes a registry of the built-in templates.
    #[napi(constructor)]
    pub fn new() -> Result<Self> {
        guard(|| Ok(Self { inner: Slot::new("TemplateRegistry", template::TemplateRegistry::new()) }))
    }

    /// Adds an entry, which is JSON text.
    #[napi]
    pub fn register(&self, name: String, entry: String) -> Result<()> {
        let entry = || options_from_json("entry", &entry);
        guard(|| self.inner.with(|registry| registry.register(&name, entry()?)))
    }

    /// Returns the names, in order.
    #[napi]
    pub fn names(&self) -> Result<Vec<String>> {
        guard(|| self.inner.with(|registry| Ok(registry.names().map(Into::into).collect())))
    }

    /// Returns a template's source.
    #[napi]
    pub fn source(&self, name: String) -> Result<String> {
        guard(|| self.inner.with(|registry| Ok(registry.source(&name)?.to_owned())))
    }

    /// Selects a template for a query; both are JSON text.
    #[napi]
    pub fn select(&self, query: String) -> Result<String> {
        guard(|| self.inner.with(|registry| registry.select_json(&query)))
    }

    /// Drops the registry.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

//! The face of `fulmar-template`.

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
    inner: template::Template,
}

#[wasm_bindgen]
impl Template {
    /// Compiles a source.
    #[wasm_bindgen(constructor)]
    pub fn new(source: &str) -> Result<Self> {
        guard(|| Ok(Self { inner: template::Template::new(source)? }))
    }

    /// Whether it has a `generation` block.
    #[wasm_bindgen(js_name = hasGeneration)]
    pub fn has_generation(&self) -> Result<bool> {
        guard(|| Ok(self.inner.has_generation()))
    }

    /// Renders what JSON text says.
    pub fn render(&self, input: &str) -> Result<RenderedText> {
        guard(|| {
            let rendered = self.inner.render_json(input)?;
            Ok(RenderedText { spans: rendered.utf16_spans(), text: rendered.text })
        })
    }
}

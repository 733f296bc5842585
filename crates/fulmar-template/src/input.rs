//! A template's input as JSON text, the form of other languages.

use fulmar_core::{Result, exact_options_from_json, num_utf16_units};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::clock::CivilTime;
use crate::template::{ContinueFinalMessage, RenderedText, Template, TemplateInput};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[derive(Default)]
struct Input {
    messages: Vec<Map<String, Json>>,
    tools: Option<Vec<Json>>,
    documents: Option<Vec<Json>>,
    add_generation_prompt: bool,
    continue_final_message: Continue,
    special_tokens: Map<String, Json>,
    kwargs: Map<String, Json>,
    now: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Continue {
    Whether(bool),
    Field(String),
}

impl Default for Continue {
    fn default() -> Self {
        Self::Whether(false)
    }
}

impl Template {
    /// Renders `input`: the fields of [`TemplateInput`] in camel case, `now` in the form of
    /// [`CivilTime::parse`]. Numbers keep their form in the text, integers all their digits.
    ///
    /// # Errors
    /// `Malformed` or `UnknownName` for another form; the errors of [`Template::render`].
    ///
    /// # Examples
    /// ```
    /// let template = fulmar_template::Template::new("{{ messages[0].x }}{{ eos_token }}")?;
    /// let input = r#"{"messages": [{"x": 1e20}], "specialTokens": {"eos_token": "</s>"}}"#;
    /// assert_eq!(template.render_json(input)?.text, "1e+20</s>");
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn render_json(&self, input: &str) -> Result<RenderedText> {
        let input: Input = exact_options_from_json("input", input)?;
        self.render(&TemplateInput {
            messages: input.messages.iter().collect(),
            tools: input.tools.as_deref(),
            documents: input.documents.as_deref(),
            add_generation_prompt: input.add_generation_prompt,
            continue_final_message: match input.continue_final_message {
                Continue::Whether(false) => ContinueFinalMessage::No,
                Continue::Whether(true) => ContinueFinalMessage::Yes,
                Continue::Field(field) => ContinueFinalMessage::Field(field),
            },
            special_tokens: &input.special_tokens,
            kwargs: &input.kwargs,
            now: input.now.as_deref().map(CivilTime::parse).transpose()?,
        })
    }
}

impl RenderedText {
    /// Returns the spans in UTF-16 code units, JavaScript's unit, as a flat list.
    #[must_use]
    pub fn utf16_spans(&self) -> Option<Vec<u32>> {
        let edges = self.assistant_spans.as_ref()?.as_flattened();
        let (mut at, mut units) = (0, 0);
        let to_units = |&edge: &usize| {
            units += num_utf16_units(&self.text[at..edge]);
            at = edge;
            units as u32
        };
        Some(edges.iter().map(to_units).collect())
    }
}

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;

    use super::*;

    #[test]
    fn spans_count_in_utf16_units_too() {
        let template = Template::new(
            "é😀{% generation %}{{ x }}{% endgeneration %}é{% generation %}{% endgeneration %}",
        )
        .unwrap();
        let rendered = template.render_json(r#"{"kwargs": {"x": "😀é"}}"#).unwrap();
        assert_eq!(rendered.assistant_spans, Some(vec![[6, 12], [14, 14]]));
        assert_eq!(rendered.utf16_spans(), Some(vec![3, 6, 7, 7]));
    }

    #[test]
    fn input_that_is_not_of_the_form_is_refused() {
        let template = Template::new("{{ 1 }}").unwrap();
        for (input, kind) in [
            (r#"{"mesages": []}"#, ErrorKind::UnknownName),
            (r#"{"messages": [1]}"#, ErrorKind::Malformed),
            (r#"{"messages": [{"content": "\ud83d"}]}"#, ErrorKind::Malformed),
            (r#"{"now": "today"}"#, ErrorKind::Malformed),
            (r#"{"continueFinalMessage": 1}"#, ErrorKind::Malformed),
            ("[", ErrorKind::Malformed),
        ] {
            assert_eq!(template.render_json(input).unwrap_err().kind(), kind, "{input}");
        }
    }
}

//! Resolves `auto` for a tokenizer, and reports the choice with its reason.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use super::{RendererConfig, family, template};
use crate::{
    Bridge, Message, OpaqueOptions, ParseOptions, Parsed, PrefixStability, RenderOptions, Rendered, Renderer,
    RendererFacts, Result, ThinkingRetention,
};

/// Resolves `config` for `tokenizer`, with the reason as a sentence.
///
/// # Errors
/// The errors of [`super::create_renderer`] for `auto`.
pub(super) fn chosen(
    tokenizer: &Arc<dyn Tokenizer>,
    config: &RendererConfig,
) -> Result<(RendererConfig, String)> {
    let RendererConfig::Auto { model } = config else {
        return Ok((config.clone(), "it was asked for by its name".to_owned()));
    };
    let named = model.as_deref().and_then(RendererConfig::of_model);
    if let (None, Some(model)) = (&named, model) {
        check_case(model)?;
    }
    let source = tokenizer.chat_template();
    let found = source.map(|source| template::family_of(tokenizer, source)).transpose()?.flatten();
    match (named, model, found) {
        (Some(named), Some(model), Some(found)) if named.name() != found.name() => {
            let (one, other) = (named.name(), found.name());
            let detail = format!(
                "model {model:?} is of the family {one}, but the tokenizer's template is that of {other}: name one of them"
            );
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
        (Some(named), Some(model), _) => {
            Ok((named, format!("the model {model:?} is known to be of this family")))
        }
        (_, _, Some(found)) => {
            Ok((found, "the tokenizer's template writes what this family writes".to_owned()))
        }
        (_, _, None) if source.is_some() => {
            let reason =
                "the tokenizer's template writes what no known family writes, so the template itself is used";
            Ok((RendererConfig::Opaque(OpaqueOptions::default()), reason.to_owned()))
        }
        (_, Some(model), None) => Err(unknown(model)),
        (_, None, None) => {
            let detail = "model must be given with a tokenizer that came without a chat template";
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

/// Returns the family whose parser `config` selects.
///
/// # Errors
/// `Incompatible` for a template, which does not define how to read completions; the errors of
/// [`super::create_renderer`].
pub(crate) fn parser_of(
    tokenizer: &Arc<dyn Tokenizer>,
    config: &RendererConfig,
) -> Result<Box<dyn Renderer>> {
    let (config, reason) = chosen(tokenizer, config)?;
    if matches!(config, RendererConfig::Opaque(_)) {
        let detail = format!("parser must be a family, which can read completions, not a template: {reason}");
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    family(Arc::clone(tokenizer), &config)
}

/// Refuses a name that differs from a known one only in case: no other model is meant by it.
fn check_case(model: &str) -> Result<()> {
    match RendererConfig::model_names().find(|name| name.eq_ignore_ascii_case(model)) {
        None => Ok(()),
        Some(known) => {
            let detail = format!("model {model:?} is unknown; did you mean {known:?}?");
            Err(Error::new(ErrorKind::UnknownName, detail))
        }
    }
}

fn unknown(model: &str) -> Error {
    let nearest = RendererConfig::model_names().min_by_key(|name| distance(name, model)).unwrap_or_default();
    let detail = format!(
        "model {model:?} is not known by its name, and the tokenizer came without a chat template to decide by; the \
         nearest name is {nearest:?}"
    );
    Error::new(ErrorKind::Incompatible, detail)
}

/// Returns the edit distance of two names. Names of models are short.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(NAME_LENGTH_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(NAME_LENGTH_MAX).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Longer names are compared by their beginnings.
const NAME_LENGTH_MAX: usize = 128;

/// A renderer with the name of its configuration and the reason for the choice.
pub(super) struct Named {
    pub inner: Box<dyn Renderer>,
    pub name: &'static str,
    pub reason: String,
}

impl Renderer for Named {
    fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered> {
        self.inner.render(messages, options)
    }

    fn render_text(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        self.inner.render_text(messages, options)
    }

    fn bridge(
        &self,
        prev_prompt: &[u32],
        prev_completion: &[u32],
        new_messages: &[Message],
        tools: &[Value],
    ) -> Result<Bridge> {
        self.inner.bridge(prev_prompt, prev_completion, new_messages, tools)
    }

    fn parse(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        self.inner.parse(ids, options)
    }

    fn stop_ids(&self) -> &[u32] {
        self.inner.stop_ids()
    }

    fn prefix_stability(&self) -> PrefixStability {
        self.inner.prefix_stability()
    }

    fn thinking_retention(&self) -> ThinkingRetention {
        self.inner.thinking_retention()
    }

    fn facts(&self) -> RendererFacts {
        RendererFacts { name: self.name.to_owned(), reason: self.reason.clone(), ..self.inner.facts() }
    }
}

#[cfg(test)]
mod tests {
    use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};

    use super::*;

    #[test]
    fn a_renderer_that_says_which_one_it_is_passes_the_common_suite() {
        let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default()).unwrap());
        let inner = family(tokenizer, &RendererConfig::Chatml {}).unwrap();
        let named = Named { inner, name: "chatml", reason: "so".to_owned() };
        let chat = [("user", "Hi"), ("assistant", "Yo"), ("user", "Bye")];
        let chat = chat.map(|(role, text)| Message::new(role, text).unwrap()).to_vec();
        crate::check_renderer(&named, &[chat]).unwrap();
        assert_eq!((named.facts().name.as_str(), named.facts().reason.as_str()), ("chatml", "so"));
    }

    #[test]
    fn names_are_as_far_apart_as_letters_must_be_changed() {
        let pairs =
            [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("Qwen3-8b", "Qwen3-8B", 1)];
        for (a, b, expected) in pairs {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
        let long = "a".repeat(100_000);
        assert_eq!(distance(&long, &long), 0, "soon");
    }
}

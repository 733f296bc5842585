//! The grammar of error sentences: `<argument> must <rule>: got <value>; did you mean <hint>`.
//!
//! Other words may follow the colon. `FulmarError` reads the sentences that TypeScript wrote by the same rules; both pass
//! `tests/golden/core/sentences.json`.

/// Most characters of an argument.
const ARGUMENT_CHARS_MAX: usize = 256;

/// The parts of a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence<'a> {
    pub(super) argument: &'a str,
    /// Begins with `must`.
    pub(super) rule: &'a str,
    /// `None` if the sentence does not show it.
    pub(super) value: Option<&'a str>,
}

impl<'a> Sentence<'a> {
    /// Splits `text`; `None` if it is not of the form.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let (argument, rest) = text.split_once(" must ")?;
        let is_name = !argument.is_empty() && !argument.contains('\n');
        if !is_name || argument.chars().nth(ARGUMENT_CHARS_MAX).is_some() {
            return None;
        }
        let (words, shown) = rest.split_once(": ").unwrap_or((rest, ""));
        let rule = &text[argument.len() + 1..][.."must ".len() + without_hint(words).len()];
        Some(Self { argument, rule, value: shown.strip_prefix("got ").map(without_hint) })
    }
}

fn without_hint(text: &str) -> &str {
    text.split_once("; did you mean ").map_or(text, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_split_as_in_typescript() {
        type Parts = (String, String, Option<String>);
        let cases: Vec<(String, Option<Parts>)> =
            serde_json::from_str(include_str!("../../../../tests/golden/core/sentences.json")).unwrap();
        for (text, parts) in &cases {
            let wanted = parts.as_ref().map(|(argument, rule, value)| Sentence {
                argument,
                rule,
                value: value.as_deref(),
            });
            assert_eq!(Sentence::of(text), wanted, "{text:?}");
        }
        assert!(cases.len() >= 10);
    }

    #[test]
    fn an_argument_has_at_most_256_characters() {
        let named = |length: usize| format!("{} must be short", "\u{e9}".repeat(length));
        assert!(Sentence::of(&named(ARGUMENT_CHARS_MAX)).is_some());
        assert_eq!(Sentence::of(&named(ARGUMENT_CHARS_MAX + 1)), None);
    }
}

//! The texts of many conversations in one call: JavaScript cuts one text into parts faster than it takes many.

use fulmar_core::{Error, ErrorKind, num_utf16_units};

use crate::history::packed::Records;
use crate::{RenderOptions, Renderer, Result, Tools};

/// The texts of conversations, one after another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenderedTexts {
    /// All texts.
    pub text: String,
    /// The end of each in `text`, in units of UTF-16.
    pub ends: Vec<u32>,
}

/// Returns the text of each packed conversation, of `num_records` records together: a record of its options; its messages as
/// [`History::from_packed`](crate::History::from_packed) reads them; an empty record. The options are a `p` if a generation prompt
/// follows the messages, and the tools as JSON if there are any.
///
/// # Errors
/// The errors of [`History::from_packed`](crate::History::from_packed) and of [`Renderer::render_text`], with the
/// conversation's index; `Malformed` for options that cannot be read; `LimitExceeded` past 2^32 units.
///
/// # Examples
/// ```
/// use fulmar_chat::{RendererConfig, create_renderer, render_texts};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let tokenizer = std::sync::Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer = create_renderer(tokenizer, &RendererConfig::Chatml {})?;
/// let texts = render_texts(&*renderer, "\0uHi\0\0p\0uHo\0\0", 6)?;
/// assert_eq!(texts.ends, [30, 82]);
/// assert!(texts.text[30..].ends_with("Ho<|im_end|>\n<|im_start|>assistant\n"));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn render_texts(renderer: &dyn Renderer, packed: &str, num_records: usize) -> Result<RenderedTexts> {
    let mut records = Records::of(packed, num_records)?;
    let mut texts = RenderedTexts::default();
    let mut num_units = 0;
    while let Some(options) = records.next()? {
        let text = render_next(renderer, options, &mut records);
        let text = text.map_err(|error| error.at(format!("conversations[{}]", texts.ends.len())))?;
        num_units += num_utf16_units(&text);
        texts.ends.push(u32::try_from(num_units).map_err(|_| too_long(num_units))?);
        if texts.text.is_empty() {
            texts.text = text;
        } else {
            texts.text.push_str(&text);
        }
    }
    Ok(texts)
}

fn render_next(renderer: &dyn Renderer, options: &str, records: &mut Records<'_>) -> Result<String> {
    let tools = options.strip_prefix(PROMPT).unwrap_or(options);
    let options = RenderOptions {
        add_generation_prompt: options.starts_with(PROMPT),
        tools: if tools.is_empty() { Tools::NONE } else { Tools::from_json(tools)? },
    };
    renderer.render_text(&records.group()?.messages()?, &options)
}

/// Begins a record of options with a generation prompt.
const PROMPT: char = 'p';

fn too_long(num_units: usize) -> Error {
    let detail = format!("texts must have at most {} units together: got {num_units}", u32::MAX);
    Error::new(ErrorKind::LimitExceeded, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};

    use super::*;
    use crate::{ChatMlRenderer, History};

    fn renderer() -> ChatMlRenderer {
        ChatMlRenderer::new(Arc::new(CharTokenizer::new(CharTokenizerOptions::default()).unwrap())).unwrap()
    }

    #[test]
    fn texts_are_those_of_single_conversations_with_ends_in_units() {
        let renderer = renderer();
        let chats = [("ua\0aß日😀\0", 2), ("{\"role\":\"user\",\"content\":\"b\"}\0", 1), ("s\0u😀😀\0", 2)];
        let packed: String = chats.iter().map(|(chat, _)| format!("\0{chat}\0")).collect();
        let texts = render_texts(&renderer, &packed, 11).unwrap();
        let units: Vec<u16> = texts.text.encode_utf16().collect();
        let mut start = 0;
        for ((chat, num_messages), &end) in chats.into_iter().zip(&texts.ends) {
            let history = History::from_packed(chat, num_messages).unwrap();
            let single = renderer.render_text(history.chat().unwrap(), &RenderOptions::default()).unwrap();
            assert_eq!(String::from_utf16(&units[start..end as usize]).unwrap(), single);
            start = end as usize;
        }
        assert_eq!((start, texts.ends.len()), (units.len(), chats.len()));
        assert_eq!(render_texts(&renderer, "", 0).unwrap(), RenderedTexts::default());
    }

    #[test]
    fn an_error_names_its_conversation() {
        for (packed, kind, place) in [
            ("\0ua\0\0\0{\"role\":\"x\"}\0\0", ErrorKind::UnknownName, "conversations[1]: messages[0]: role"),
            ("\0ua\0\0\0\0", ErrorKind::Empty, "conversations[1]: messages must"),
            ("{\0ua\0\0", ErrorKind::Malformed, "conversations[0]: tools"),
            ("\0ua\0", ErrorKind::Malformed, "conversations[0]: packed messages"),
        ] {
            let num_records = packed.matches('\0').count();
            let error = render_texts(&renderer(), packed, num_records).unwrap_err();
            assert_eq!(error.kind(), kind, "{packed:?}: {error}");
            assert!(error.detail().starts_with(place), "{packed:?}: {error}");
            assert!(render_texts(&renderer(), packed, num_records + 1).is_err(), "{packed:?}");
        }
    }
}

//! Locates the turns of an assistant in the text of a template that does not mark them.

use fulmar_core::{Error, ErrorKind, limits};

use crate::{Message, Result};

/// The text of these messages, with or without a generation prompt.
pub type Render<'a> = dyn Fn(&[Message], bool) -> Result<String> + 'a;

/// One assistant's turn in a text, in bytes: it begins after the generation prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextTurn {
    /// The message.
    pub message: usize,
    /// The start of the turn.
    pub start: usize,
    /// The end of the assistant's text, at which the template closes the turn.
    pub body_end: usize,
    /// The end of the turn's frame.
    pub end: usize,
}

/// An assistant's text for probing how a template closes a turn.
const PROBE: &str = "fulmarprobe";

/// Returns the turns of the assistants at `indices` in `text`, the text of all `messages`.
///
/// # Errors
/// `Incompatible` if the text of fewer messages is not a prefix of the text of more, with the position of the
/// difference; `LimitExceeded` past [`limits::MASK_PREFIX_TURNS_MAX`] turns; the errors of rendering.
pub fn assistant_turns(
    render: &Render,
    messages: &[Message],
    text: &str,
    indices: &[usize],
) -> Result<Vec<TextTurn>> {
    if indices.len() > limits::MASK_PREFIX_TURNS_MAX {
        let (max, got) = (limits::MASK_PREFIX_TURNS_MAX, indices.len());
        let rule = "assistant turns must be at most";
        let detail =
            format!("{rule} {max} where each is located by rendering the messages before it: got {got}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut known = Known::default();
    indices.iter().map(|&index| one_turn(render, messages, text, index, &mut known)).collect()
}

/// Results of earlier turns, which saves probing again.
#[derive(Default)]
struct Known {
    /// The text with which the template closes a turn.
    closing: Option<String>,
    /// `true` if the template opens the turn of an assistant without text.
    opens: bool,
}

fn one_turn(
    render: &Render,
    messages: &[Message],
    text: &str,
    index: usize,
    known: &mut Known,
) -> Result<TextTurn> {
    let through = render(&messages[..=index], false)?;
    check_prefix(&through, text, index)?;
    let probe = |messages: &[Message]| {
        let probed = [messages, &[Message::new("assistant", PROBE)?]].concat();
        let text = render(&probed, false)?;
        let at = text.rfind(PROBE).ok_or_else(|| {
            let detail =
                format!("template must render the assistant's text: message {index} is not in its output");
            Error::new(ErrorKind::Incompatible, detail)
        })?;
        Ok::<_, Error>([text[..at].to_owned(), text[at + PROBE.len()..].to_owned()])
    };
    let start = if index == 0 {
        // Templates may refuse to render no messages at all.
        let [opening, _] = probe(&[])?;
        check_prefix(&opening, &through, index)?;
        opening.len()
    } else {
        let before = render(&messages[..index], true)?;
        check_prefix(&before, &through, index)?;
        known.opens = known.opens || before.len() > render(&messages[..index], false)?.len();
        // Without a generation prompt the name of the speaker would count as the assistant's text.
        let [unopened, _] = if known.opens { Default::default() } else { probe(&messages[..index])? };
        if through.starts_with(&unopened) { before.len().max(unopened.len()) } else { before.len() }
    };
    if known.closing.as_ref().is_none_or(|closing| !through[start.min(through.len())..].ends_with(closing)) {
        let [_, closing] = probe(&messages[..index])?;
        known.closing = Some(closing);
    }
    let turn = through.get(start..).unwrap_or_default();
    let body = known.closing.as_deref().and_then(|closing| turn.strip_suffix(closing)).unwrap_or(turn);
    Ok(TextTurn { message: index, start, body_end: start + body.len(), end: through.len() })
}

/// Refuses a text that does not begin with `prefix`.
fn check_prefix(prefix: &str, text: &str, index: usize) -> Result<()> {
    if text.starts_with(prefix) {
        return Ok(());
    }
    let same = prefix.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    let at =
        (0..=same).rev().find(|at| prefix.is_char_boundary(*at) && text.is_char_boundary(*at)).unwrap_or(0);
    let excerpt = |text: &str| text[at..].chars().take(40).collect::<String>();
    let detail = format!(
        "text up to message {index} must be the beginning of the text with it and what follows: at byte {at} got {:?} and {:?}",
        excerpt(prefix),
        excerpt(text)
    );
    Err(Error::new(ErrorKind::Incompatible, detail))
}

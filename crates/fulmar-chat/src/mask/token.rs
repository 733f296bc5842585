//! Spans of text to masks over tokens.

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::{Encoding, Tokenizer};

use super::turn::TextTurn;
use super::{MaskOptions, Straddling, TokenMasks, parts};
use crate::{Message, Result};

/// The assistant's share of a text.
pub struct TextTurns<'a> {
    /// The text.
    pub text: &'a str,
    /// The content of `generation` blocks, in bytes, if the template has such blocks.
    pub tagged: Option<&'a [[usize; 2]]>,
    /// The turns that count; `None` if the turns are unknown, which is allowed only with `tagged`.
    pub turns: Option<&'a [TextTurn]>,
    /// The conversation.
    pub messages: &'a [Message],
}

/// Returns the masks over the tokens of a text. A token counts if it overlaps a counted span, with a policy
/// for tokens across a border. So stripped spaces and a first token that is the whole turn are handled.
///
/// # Errors
/// `Incompatible` if a token crosses a border and the policy refuses it, or a part cannot be located.
pub fn masks_of_text(
    known: &TextTurns,
    encoding: &Encoding,
    tokenizer: &dyn Tokenizer,
    options: &MaskOptions,
) -> Result<TokenMasks> {
    let spans = counted_spans(known, options)?;
    let num_tokens = encoding.ids.len();
    let mut masks = TokenMasks {
        assistant: vec![false; num_tokens],
        sampled: vec![false; num_tokens],
        end_of_turn: vec![false; num_tokens],
    };
    for &[start, end] in &spans {
        mark(&mut masks.assistant, encoding, [start, end], options.straddling)?;
    }
    for end in ends(known, &spans) {
        if let Some(t) = end_token(known.text, encoding, tokenizer, end) {
            masks.end_of_turn[t] = true;
            if let Some(counts) = options.counts_end_of_turn() {
                masks.assistant[t] = counts;
            }
        }
    }
    Ok(masks)
}

fn counted_spans(known: &TextTurns, options: &MaskOptions) -> Result<Vec<[usize; 2]>> {
    let Some(turns) = known.turns else {
        return Ok(known.tagged.unwrap_or_default().to_vec());
    };
    let [reasoning, tool_calls] =
        [options.reasoning, options.tool_calls].map(|counts| counts.unwrap_or(true));
    let mut spans = Vec::new();
    for turn in turns {
        let [start, end] =
            parts::counted(known.text, *turn, &known.messages[turn.message], reasoning, tool_calls)?;
        match known.tagged {
            None => spans.push([start, end]),
            Some(tagged) => {
                // The token that closes the turn may be inside a block; it counts even if calls do not.
                let first = tagged.partition_point(|span| span[1] <= start);
                for span in tagged[first..].iter().take_while(|span| span[0] < turn.end) {
                    spans.push([span[0].max(start), span[1].min(end)]);
                    spans.push([span[0].max(turn.body_end), span[1]]);
                }
            }
        }
    }
    spans.retain(|[start, end]| start < end);
    Ok(spans)
}

/// Returns the possible positions of a token that ends a turn.
fn ends(known: &TextTurns, spans: &[[usize; 2]]) -> Vec<usize> {
    match known.turns {
        Some(turns) => turns.iter().map(|turn| turn.body_end).collect(),
        None => spans.iter().map(|[_, end]| *end).collect(),
    }
}

/// Returns the special token that ends a turn at byte `at`: the last one of a `generation` block, if only
/// space follows it, or else the one that begins there.
fn end_token(text: &str, encoding: &Encoding, tokenizer: &dyn Tokenizer, at: usize) -> Option<usize> {
    let next = encoding.offsets.partition_point(|[start, _]| (*start as usize) < at);
    let is_special = |t: &usize| encoding.ids.get(*t).is_some_and(|id| tokenizer.is_special(*id));
    let closed = text[..at].trim_end().len();
    let inside =
        encoding.offsets[..next].partition_point(|[start, _]| (*start as usize) < closed).checked_sub(1);
    let inside = inside.filter(is_special).filter(|t| encoding.offsets[*t][1] as usize == closed);
    inside.or_else(|| Some(next).filter(is_special).filter(|t| encoding.offsets[*t][0] as usize == at))
}

fn mark(
    mask: &mut [bool],
    encoding: &Encoding,
    [start, end]: [usize; 2],
    straddling: Straddling,
) -> Result<()> {
    let first = encoding.offsets.partition_point(|[_, token_end]| *token_end as usize <= start);
    for (t, &[token_start, token_end]) in encoding.offsets.iter().enumerate().skip(first) {
        if token_start as usize >= end {
            break;
        }
        let is_inside = token_start as usize >= start && token_end as usize <= end;
        match straddling {
            _ if is_inside => mask[t] = true,
            Straddling::Include => mask[t] = true,
            Straddling::Exclude => {}
            Straddling::Error => {
                let detail = format!(
                    "token {t} must be on one side of the assistant's text, bytes {start} to {end}: got {token_start} to {token_end}"
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
    }
    Ok(())
}

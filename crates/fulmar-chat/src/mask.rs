//! Training masks: from the origins of rendered tokens, or from the text of a template.
//!
//! There are three sources. A [`Rendered`] conversation has the origin of each token. A template with
//! `generation` blocks marks the assistant's text. Any other template is probed: the text of the first k
//! messages with a generation prompt must be a prefix of the text of k + 1 messages, and the rest is the
//! assistant's turn.

mod columns;
mod parts;
mod token;
mod turn;

use fulmar_core::{Error, ErrorKind};
use serde::Deserialize;

use crate::{Origin, Rendered, Result};
pub use columns::RenderedColumns;
pub(crate) use token::{TextTurns, masks_of_text};
pub(crate) use turn::assistant_turns;

/// A named set of mask options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskPreset {
    /// The assistant's text in all turns, without the token that ends a turn; for a template with
    /// `generation` blocks exactly their content.
    #[default]
    #[serde(rename = "torchrl")]
    TorchRl,
    /// The assistant's text and the token that ends it, in all turns.
    Trl,
    /// The tokens sampled by a policy, with the tokens that end its turns; in a conversation without any, the
    /// last assistant turn.
    Generated,
}

/// The assistant turns that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskedTurns {
    /// All turns.
    All,
    /// The last turn only.
    Last,
}

/// The treatment of a token that is partly the assistant's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Straddling {
    /// It counts.
    #[default]
    Include,
    /// It does not count.
    Exclude,
    /// It is refused.
    Error,
}

/// Options of a mask. `None` takes the value of the preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MaskOptions {
    /// The preset to start with.
    pub preset: MaskPreset,
    /// If true, the token that ends a turn counts.
    pub end_of_turn: Option<bool>,
    /// If true, reasoning counts.
    pub reasoning: Option<bool>,
    /// If true, tool calls count.
    pub tool_calls: Option<bool>,
    /// The turns that count.
    pub turns: Option<MaskedTurns>,
    /// The treatment of tokens that are partly the assistant's.
    pub straddling: Straddling,
    /// If true, a mask without any token is accepted, although training on it learns nothing.
    pub allow_empty: bool,
}

impl MaskOptions {
    /// Returns whether the end of a turn counts; `None` means as in the template's `generation` blocks.
    pub(crate) const fn counts_end_of_turn(&self) -> Option<bool> {
        match (self.end_of_turn, self.preset) {
            (Some(counts), _) => Some(counts),
            (None, MaskPreset::TorchRl) => None,
            (None, MaskPreset::Trl | MaskPreset::Generated) => Some(true),
        }
    }

    /// Returns the turns of a text that count.
    pub(crate) fn counted_turns(&self) -> MaskedTurns {
        let preset = if self.preset == MaskPreset::Generated { MaskedTurns::Last } else { MaskedTurns::All };
        self.turns.unwrap_or(preset)
    }

    /// Returns whether some part of a turn does not count.
    pub(crate) const fn leaves_parts_out(&self) -> bool {
        matches!(self.reasoning, Some(false)) || matches!(self.tool_calls, Some(false))
    }

    /// Refuses a `mask` without tokens unless it is allowed.
    pub(crate) fn checked(&self, mask: &[bool], reason: &str) -> Result<()> {
        if self.allow_empty || mask.contains(&true) {
            return Ok(());
        }
        let detail = format!("mask holds no token to train on, {reason}; allow_empty permits that");
        Err(Error::new(ErrorKind::Empty, detail))
    }
}

/// The masks of one sequence, each of shape `[T]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenMasks {
    /// The tokens that count as the assistant's under the options.
    pub assistant: Vec<bool>,
    /// The tokens that a policy drew.
    pub sampled: Vec<bool>,
    /// The tokens that end an assistant's turn, counted or not.
    pub end_of_turn: Vec<bool>,
}

/// Returns the masks of a conversation from the origins of its tokens. `stop_ids` are the ids that end a
/// turn.
///
/// # Errors
/// `Empty` if no token counts and `allow_empty` is not set; `Incompatible` for options that exclude reasoning
/// or tool calls, which origins do not distinguish.
///
/// # Examples
/// ```
/// use fulmar_chat::{MaskOptions, MaskPreset, Message, RenderOptions, RendererConfig, create_renderer, token_masks};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let tokenizer = std::sync::Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer = create_renderer(tokenizer, &RendererConfig::Chatml {})?;
/// let chat = [Message::new("user", "1+1?")?, Message::new("assistant", "2")?];
/// let rendered = renderer.render(&chat, &RenderOptions::default())?;
/// let count = |preset| {
///     let masks = token_masks(&rendered, renderer.stop_ids(), &MaskOptions { preset, ..Default::default() })?;
///     Ok::<_, fulmar_core::Error>(masks.assistant.iter().filter(|bit| **bit).count())
/// };
/// assert_eq!((count(MaskPreset::TorchRl)?, count(MaskPreset::Trl)?), (1, 2));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn token_masks(rendered: &Rendered, stop_ids: &[u32], options: &MaskOptions) -> Result<TokenMasks> {
    if options.leaves_parts_out() {
        let rule = "reasoning and toolCalls must count in a mask by origin: got false";
        return Err(Error::new(ErrorKind::Incompatible, rule));
    }
    let num_tokens = rendered.ids.len();
    let sampled: Vec<bool> = rendered.origin.iter().map(|origin| *origin == Origin::Sampled).collect();
    let written: Vec<bool> =
        sampled.iter().zip(&rendered.sampled_mask).map(|(drawn, written)| *drawn || *written).collect();
    let ends_turn = |t: usize| {
        let goes_on = t + 1 < num_tokens
            && written[t + 1]
            && rendered.message_index[t + 1] == rendered.message_index[t]
            && rendered.origin[t + 1] == rendered.origin[t];
        written[t] && stop_ids.contains(&rendered.ids[t]) && !goes_on
    };
    let end_of_turn: Vec<bool> = (0..num_tokens).map(ends_turn).collect();
    let drew = options.preset == MaskPreset::Generated && sampled.contains(&true);
    let source = if drew { &sampled } else { &written };
    let first = match if drew { options.turns.unwrap_or(MaskedTurns::All) } else { options.counted_turns() } {
        MaskedTurns::All => 0,
        MaskedTurns::Last => start_of_last_run(source, &rendered.message_index),
    };
    let keeps_end = options.counts_end_of_turn().unwrap_or(false);
    let counts = |t: usize| t >= first && source[t] && (keeps_end || !end_of_turn[t]);
    let assistant: Vec<bool> = (0..num_tokens).map(counts).collect();
    options.checked(&assistant, "as no assistant's turn is in the conversation")?;
    Ok(TokenMasks { assistant, sampled, end_of_turn })
}

/// Returns the start of the last run of set bits of one message, or the length if none is set.
fn start_of_last_run(mask: &[bool], message_index: &[i32]) -> usize {
    let Some(last) = mask.iter().rposition(|bit| *bit) else {
        return mask.len();
    };
    let in_run = |t: &usize| mask[*t] && message_index[*t] == message_index[last];
    (0..=last).rev().take_while(in_run).last().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two turns of text, then one that was sampled; 9 ends a turn.
    fn conversation() -> Rendered {
        let mut rendered = Rendered::default();
        rendered.push(&[1, 2], 0, Origin::User);
        rendered.push(&[3, 9], 1, Origin::Assistant);
        rendered.push(&[4], 1, Origin::Template);
        rendered.push(&[5, 9], 2, Origin::User);
        rendered.push(&[6, 9], -1, Origin::Sampled);
        rendered
    }

    fn bits(mask: &[bool]) -> String {
        mask.iter().map(|bit| if *bit { '1' } else { '0' }).collect()
    }

    fn assistant(options: MaskOptions) -> String {
        bits(&token_masks(&conversation(), &[9], &options).unwrap().assistant)
    }

    #[test]
    fn presets_differ_in_the_end_of_turn_and_in_what_was_drawn() {
        let preset = |preset| assistant(MaskOptions { preset, ..Default::default() });
        assert_eq!(preset(MaskPreset::TorchRl), "001000010");
        assert_eq!(preset(MaskPreset::Trl), "001100011");
        assert_eq!(preset(MaskPreset::Generated), "000000011");
        let masks = token_masks(&conversation(), &[9], &MaskOptions::default()).unwrap();
        assert_eq!(
            (bits(&masks.sampled), bits(&masks.end_of_turn)),
            ("000000011".into(), "000100001".into())
        );
    }

    #[test]
    fn options_change_what_a_preset_says() {
        let last = Some(MaskedTurns::Last);
        assert_eq!(assistant(MaskOptions { turns: last, ..Default::default() }), "000000010");
        let trl = MaskOptions { preset: MaskPreset::Trl, ..Default::default() };
        assert_eq!(assistant(MaskOptions { turns: last, ..trl }), "000000011");
        assert_eq!(assistant(MaskOptions { end_of_turn: Some(false), ..trl }), "001000010");
        let mut text_only = conversation();
        text_only.origin.fill(Origin::Template);
        let generated = MaskOptions { preset: MaskPreset::Generated, ..Default::default() };
        text_only.sampled_mask = vec![false, false, true, true, false, false, false, true, true];
        assert_eq!(bits(&token_masks(&text_only, &[9], &generated).unwrap().assistant), "000000011");
        let refused = token_masks(&text_only, &[9], &MaskOptions { reasoning: Some(false), ..trl });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn a_mask_without_a_token_is_refused_unless_it_is_asked_for() {
        let mut rendered = Rendered::default();
        rendered.push(&[1, 2], 0, Origin::User);
        let error = token_masks(&rendered, &[9], &MaskOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Empty);
        assert!(error.detail().contains("no assistant's turn"), "{error:?}");
        let allowed = MaskOptions { allow_empty: true, turns: Some(MaskedTurns::Last), ..Default::default() };
        assert_eq!(bits(&token_masks(&rendered, &[9], &allowed).unwrap().assistant), "00");
    }
}

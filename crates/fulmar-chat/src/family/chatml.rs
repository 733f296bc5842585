//! ChatML, the frame of Qwen2 and many others: `<|im_start|>role\ncontent<|im_end|>\n`.
//!
//! The newline after `<|im_end|>` is frame, not sampled: an engine stops at `<|im_end|>`, and whoever continues adds
//! the newline. The generation prompt is `<|im_start|>assistant\n`. No system message is made up.
//! Content is taken and given back as it is, untrimmed, so `parse(render(x)) == x`.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use crate::{
    Bridge, BridgeRefusal, Message, Origin, ParseOptions, Parsed, PrefixStability, RenderOptions, Rendered, Renderer,
    Result,
};

const ROLES: [(&str, Origin); 4] = [
    ("system", Origin::System),
    ("user", Origin::User),
    ("assistant", Origin::Assistant),
    ("tool", Origin::Tool),
];

/// The ChatML renderer over any tokenizer that has `<|im_start|>` and `<|im_end|>` as special tokens.
///
/// Roles are `system`, `user`, `assistant` and `tool`; a tool's answer is framed like any other message. Messages with
/// `tool_calls` are refused: plain ChatML has no form for them. See [`Renderer`] for an example.
#[derive(Clone)]
pub struct ChatMlRenderer {
    tokenizer: Arc<dyn Tokenizer>,
    open_id: u32,
    stop_ids: Vec<u32>,
    separator_ids: Vec<u32>,
    generation_prompt_ids: Vec<u32>,
}

impl ChatMlRenderer {
    /// A renderer with `tokenizer`. Stop ids are `<|im_end|>` and, where the tokenizer has it, `<|endoftext|>`.
    ///
    /// # Errors
    /// `Incompatible` if `<|im_start|>` or `<|im_end|>` is not a special token of `tokenizer`; `UnknownText` if it
    /// cannot express a newline or the word `assistant`.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let open_id = required_special(&*tokenizer, "<|im_start|>")?;
        let close_id = required_special(&*tokenizer, "<|im_end|>")?;
        let end_of_text = tokenizer.id_of("<|endoftext|>").filter(|&id| tokenizer.is_special(id));
        let stop_ids = std::iter::once(close_id).chain(end_of_text).collect();
        let separator_ids = tokenizer.encode("\n")?.ids;
        let generation_prompt_ids = [vec![open_id], tokenizer.encode("assistant\n")?.ids].concat();
        Ok(Self { tokenizer, open_id, stop_ids, separator_ids, generation_prompt_ids })
    }

    fn close_id(&self) -> u32 {
        self.stop_ids[0]
    }

    /// Appends one framed message.
    fn push_message(&self, rendered: &mut Rendered, index: usize, message: &Message) -> Result<()> {
        let role = message.role();
        let origin = origin_of(role).ok_or_else(|| unknown_role(role))?;
        if message.has_tool_calls() {
            let detail = "tool_calls must be absent: got some, and plain ChatML has no form for them";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let message_index = index as i32;
        rendered.push(&[self.open_id], message_index, Origin::Template);
        let texts = [&format!("{role}\n"), &*message.text()?];
        rendered.push_text(&*self.tokenizer, texts, message_index, origin)?;
        let close_origin = if origin == Origin::Assistant { origin } else { Origin::Template };
        rendered.push(&[self.close_id()], message_index, close_origin);
        rendered.push(&self.separator_ids, message_index, Origin::Template);
        Ok(())
    }

    fn push_messages(&self, rendered: &mut Rendered, messages: &[Message]) -> Result<()> {
        for (index, message) in messages.iter().enumerate() {
            self.push_message(rendered, index, message)
                .map_err(|error| error.at(format!("messages[{index}]")))?;
        }
        Ok(())
    }

    fn refusal(prev_prompt: &[u32], new_messages: &[Message]) -> Option<BridgeRefusal> {
        let has = |unwanted: fn(&str) -> bool| new_messages.iter().any(|message| unwanted(message.role()));
        if prev_prompt.is_empty() {
            Some(BridgeRefusal::EmptyPrompt)
        } else if new_messages.is_empty() {
            Some(BridgeRefusal::EmptyExtension)
        } else if has(|role| role == "assistant") {
            Some(BridgeRefusal::AssistantInExtension)
        } else if has(|role| origin_of(role).is_none()) {
            Some(BridgeRefusal::UnknownRole)
        } else {
            None
        }
    }
}

impl Renderer for ChatMlRenderer {
    fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered> {
        if messages.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "messages must hold at least one message: got none"));
        }
        if !options.tools.is_empty() {
            let detail = "tools must be absent: got some, and plain ChatML has no form for them";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let mut rendered = Rendered::default();
        self.push_messages(&mut rendered, messages)?;
        if options.add_generation_prompt {
            rendered.push(&self.generation_prompt_ids, -1, Origin::Template);
        }
        Ok(rendered)
    }

    fn bridge(
        &self,
        prev_prompt: &[u32],
        prev_completion: &[u32],
        new_messages: &[Message],
        _tools: &[Value],
    ) -> Result<Bridge> {
        if let Some(refusal) = Self::refusal(prev_prompt, new_messages) {
            return Ok(Bridge::Declined(refusal));
        }
        let mut rendered = Rendered::default();
        rendered.push(prev_prompt, -1, Origin::Env);
        // What an engine sampled past the end of the turn is no part of the conversation.
        let last_stop = prev_completion.iter().rposition(|id| self.stop_ids.contains(id));
        match last_stop {
            Some(position) => rendered.push(&prev_completion[..=position], -1, Origin::Env),
            None => {
                rendered.push(prev_completion, -1, Origin::Env);
                rendered.push(&[self.close_id()], -1, Origin::Synthetic);
            }
        }
        rendered.push(&self.separator_ids, -1, Origin::Template);
        self.push_messages(&mut rendered, new_messages)?;
        rendered.push(&self.generation_prompt_ids, -1, Origin::Template);
        Ok(Bridge::Extended(rendered))
    }

    fn parse(&self, ids: &[u32], _options: &ParseOptions) -> Result<Parsed> {
        let stop = ids.iter().position(|id| self.stop_ids.contains(id));
        let body = &ids[..stop.unwrap_or(ids.len())];
        Ok(Parsed {
            content: self.tokenizer.decode(body, false)?,
            reasoning_complete: true,
            finished: stop.is_some(),
            overran: body.iter().any(|&id| self.tokenizer.is_special(id)),
            ..Parsed::default()
        })
    }

    fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    fn prefix_stability(&self) -> PrefixStability {
        PrefixStability::Always
    }
}

fn origin_of(role: &str) -> Option<Origin> {
    ROLES.iter().find(|(name, _)| *name == role).map(|(_, origin)| *origin)
}

fn unknown_role(role: &str) -> Error {
    let names = ROLES.map(|(name, _)| name).join(", ");
    Error::new(ErrorKind::UnknownName, format!("role must be one of {names}: got {role:?}"))
}

fn required_special(tokenizer: &dyn Tokenizer, token: &str) -> Result<u32> {
    tokenizer.id_of(token).filter(|&id| tokenizer.is_special(id)).ok_or_else(|| {
        let detail = format!("tokenizer must have {token} as a special token: got none");
        Error::new(ErrorKind::Incompatible, detail)
    })
}

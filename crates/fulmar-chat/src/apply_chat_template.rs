//! Renders a conversation with a chat template: text, ids and masks.

use std::borrow::Cow;
use std::num::NonZero;

use fulmar_core::{Error, ErrorKind};
use fulmar_template::{CivilTime, ContinueFinalMessage, RenderedText, Template, TemplateInput};
use fulmar_tokenizer::{Encoding, Tokenizer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::mask::{TextTurns, assistant_turns, masks_of_text};
use crate::{History, MaskOptions, MaskedTurns, Message, Result, TokenMasks};

/// Fewest messages that justify another thread.
const THREAD_MESSAGES_MIN: usize = 32;

/// The end at which a too long sequence is truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The beginning.
    Left,
    /// The end.
    #[default]
    Right,
}

/// Options of [`apply_chat_template`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ChatTemplateOptions {
    /// If true, the opening of an assistant's turn follows the messages.
    pub add_generation_prompt: bool,
    /// Ends the text inside the final message: in JSON a boolean, or the name of a field.
    #[serde(deserialize_with = "continuation")]
    pub continue_final_message: ContinueFinalMessage,
    /// The available tools; `None` becomes Jinja's `none`.
    pub tools: Option<Vec<Value>>,
    /// Documents for templates that cite them; `None` becomes Jinja's `none`.
    pub documents: Option<Vec<Value>>,
    /// Variables such as `bos_token`.
    pub special_tokens: Map<String, Value>,
    /// Any other variables.
    pub template_kwargs: Map<String, Value>,
    /// The time of the template's clock, in the form of [`CivilTime::parse`].
    pub now: Option<String>,
    /// Maximum number of tokens.
    pub max_length: Option<usize>,
    /// The end that is truncated.
    pub truncation_side: Side,
    /// Options of the masks; `None` makes none.
    pub mask: Option<MaskOptions>,
    /// If true, a sequence may begin with two beginning-of-sequence tokens, which is nearly always a mistake.
    pub allow_double_bos: bool,
}

impl Default for ChatTemplateOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            continue_final_message: ContinueFinalMessage::No,
            tools: None,
            documents: None,
            special_tokens: Map::new(),
            template_kwargs: Map::new(),
            now: None,
            max_length: None,
            truncation_side: Side::Right,
            mask: None,
            allow_double_bos: false,
        }
    }
}

/// A conversation rendered by a template.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TemplatedChat {
    /// The text, never truncated.
    pub text: String,
    /// The ids; empty without a tokenizer.
    pub ids: Vec<u32>,
    /// The masks over the ids, if requested.
    pub masks: Option<TokenMasks>,
}

/// The ids of several conversations, concatenated, in a form for other languages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedChats {
    /// Conversation `s` has the tokens `offsets[s]` up to `offsets[s + 1]`.
    pub offsets: Vec<u32>,
    /// The ids, `[T]`.
    pub ids: Vec<u32>,
    /// Tokens of the assistant, `[T]`; empty without a requested mask.
    pub assistant_mask: Vec<bool>,
}

impl EncodedChats {
    /// Concatenates all `chats` in order.
    ///
    /// # Errors
    /// `LimitExceeded` if they have 2^32 tokens or more.
    pub fn new(chats: &[TemplatedChat]) -> Result<Self> {
        let num_tokens: usize = chats.iter().map(|chat| chat.ids.len()).sum();
        if u32::try_from(num_tokens).is_err() {
            let detail = format!("ids must be fewer than 2^32: got {num_tokens}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let mut all = Self { offsets: vec![0], ids: Vec::with_capacity(num_tokens), ..Self::default() };
        for chat in chats {
            all.ids.extend_from_slice(&chat.ids);
            all.assistant_mask.extend(chat.masks.iter().flat_map(|masks| &masks.assistant));
            all.offsets.push(all.ids.len() as u32);
        }
        Ok(all)
    }
}

/// Renders `messages` with `template` and, given a tokenizer, encodes the text: markers become their ids, and
/// no other special tokens are added. The template does not see messages of role `<none>` and the key
/// `is_complete`.
///
/// # Errors
/// The errors of [`Template::render`] and of the tokenizer; `Incompatible` for a mask without a tokenizer or
/// with a text that ends inside a message, if the text begins with two beginning-of-sequence tokens, or if
/// the assistant's turns cannot be located; `Empty` if the mask has no token and `allow_empty` is not set.
///
/// # Examples
/// ```
/// use fulmar_chat::{ChatTemplateOptions, MaskOptions, Message, apply_chat_template};
/// use fulmar_template::TemplateRegistry;
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let template = TemplateRegistry::builtin().get("chatml_format")?;
/// let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
/// let chat = [Message::new("user", "1+1?")?, Message::new("assistant", "2")?];
/// let mask = Some(MaskOptions::default());
/// let options = ChatTemplateOptions { add_generation_prompt: false, mask, ..Default::default() };
/// let chat = apply_chat_template(&template, Some(&tokenizer), &chat, &options)?;
/// assert_eq!(chat.text, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n");
/// let masks = chat.masks.unwrap_or_default();
/// let counted: Vec<u32> = chat.ids.iter().zip(masks.assistant).filter(|(_, bit)| *bit).map(|(id, _)| *id).collect();
/// assert_eq!(tokenizer.decode(&counted, false)?, "2");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn apply_chat_template(
    template: &Template,
    tokenizer: Option<&dyn Tokenizer>,
    messages: &[Message],
    options: &ChatTemplateOptions,
) -> Result<TemplatedChat> {
    let messages: Vec<Message> = messages.iter().filter(|message| !message.is_padding()).cloned().collect();
    let rendered = options.render(template, &messages, options.add_generation_prompt, true)?;
    let Some(tokenizer) = tokenizer else {
        if options.mask.is_some() {
            return Err(Error::new(
                ErrorKind::Incompatible,
                "tokenizer must be given for a mask, whose tokens it counts",
            ));
        }
        return Ok(TemplatedChat { text: rendered.text, ..TemplatedChat::default() });
    };
    let encoding = tokenizer.encode_added(&rendered.text)?;
    options.check_bos(&encoding.ids, tokenizer)?;
    let masks = match &options.mask {
        Some(mask) => Some(options.masks(mask, template, tokenizer, &messages, &rendered, &encoding)?),
        None => None,
    };
    let kept = options.kept(encoding.ids.len());
    Ok(TemplatedChat { text: rendered.text, ids: encoding.ids[kept].to_vec(), masks })
}

impl History {
    /// Renders each conversation with a chat template, in order: one for a conversation, all rows of a batch.
    /// Uses up to one thread a processor; only the caller's if there is little work or the target has no
    /// threads.
    ///
    /// # Errors
    /// The errors of [`apply_chat_template`] for the first conversation that fails; `ShapeMismatch` for a
    /// single message.
    pub fn apply_chat_template(
        &self,
        template: &Template,
        tokenizer: Option<&dyn Tokenizer>,
        options: &ChatTemplateOptions,
    ) -> Result<Vec<TemplatedChat>> {
        let chats = self.chats()?;
        let num_messages: usize = chats.iter().map(|chat| chat.len()).sum();
        let num_parts = chats.len().min(num_messages / THREAD_MESSAGES_MIN);
        let num_threads = if num_parts > 1 { num_parts.min(num_processors()) } else { 1 };
        let apply = |chats: &[&[Message]]| {
            let applied = chats.iter().map(|chat| apply_chat_template(template, tokenizer, chat, options));
            applied.collect::<Result<Vec<_>>>()
        };
        std::thread::scope(|scope| {
            let mut parts = chats.chunks(chats.len().div_ceil(num_threads).max(1));
            let first = parts.next().unwrap_or_default();
            let running: Vec<_> = parts.map(|part| scope.spawn(move || apply(part))).collect();
            let mut applied = apply(first)?;
            for thread in running {
                // A panic of the thread continues in this one.
                applied.extend(thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))?);
            }
            Ok(applied)
        })
    }
}

/// This query takes as long as rendering a few messages, because Linux answers it from files.
fn num_processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

impl ChatTemplateOptions {
    fn render(
        &self,
        template: &Template,
        messages: &[Message],
        prompt: bool,
        whole: bool,
    ) -> Result<RenderedText> {
        let shown: Vec<Cow<Map<String, Value>>> = messages.iter().map(shown_fields).collect();
        template.render(&TemplateInput {
            messages: shown.iter().map(AsRef::as_ref).collect(),
            tools: self.tools.as_deref(),
            documents: self.documents.as_deref(),
            add_generation_prompt: prompt,
            continue_final_message: if whole {
                self.continue_final_message.clone()
            } else {
                ContinueFinalMessage::No
            },
            special_tokens: &self.special_tokens,
            kwargs: &self.template_kwargs,
            now: self.now.as_deref().map(CivilTime::parse).transpose()?,
        })
    }

    fn masks(
        &self,
        mask: &MaskOptions,
        template: &Template,
        tokenizer: &dyn Tokenizer,
        messages: &[Message],
        rendered: &RenderedText,
        encoding: &Encoding,
    ) -> Result<TokenMasks> {
        if self.continue_final_message != ContinueFinalMessage::No {
            let rule =
                "continueFinalMessage must be false where a mask is asked for, since the turn does not end";
            return Err(Error::new(ErrorKind::Incompatible, rule));
        }
        let assistants = (0..messages.len()).filter(|index| messages[*index].role() == "assistant");
        let mut indices: Vec<usize> = assistants.collect();
        let num_assistants = indices.len();
        let takes_last = mask.counted_turns() == MaskedTurns::Last;
        if takes_last {
            indices.drain(..num_assistants.saturating_sub(1));
        }
        let tagged = rendered.assistant_spans.as_deref();
        let render =
            |messages: &[Message], prompt: bool| Ok(self.render(template, messages, prompt, false)?.text);
        let turns = match tagged {
            Some(_) if !takes_last && !mask.leaves_parts_out() => None,
            _ => Some(assistant_turns(&render, messages, &rendered.text, &indices)?),
        };
        let known = TextTurns { text: &rendered.text, tagged, turns: turns.as_deref(), messages };
        let whole = masks_of_text(&known, encoding, tokenizer, mask)?;
        let kept = self.kept(encoding.ids.len());
        let cut = |bits: &[bool]| bits[kept.clone()].to_vec();
        let masks = TokenMasks {
            assistant: cut(&whole.assistant),
            sampled: cut(&whole.sampled),
            end_of_turn: cut(&whole.end_of_turn),
        };
        let reason = match () {
            () if num_assistants == 0 => "as no message is an assistant's",
            () if whole.assistant.contains(&true) => "as truncation cut the assistant's tokens off",
            () if tagged.is_some() => {
                "as the template's generation blocks hold no token of this conversation"
            }
            () => "as the assistant's messages are empty",
        };
        mask.checked(&masks.assistant, reason)?;
        Ok(masks)
    }

    /// Returns the range of tokens to keep of `length`.
    fn kept(&self, length: usize) -> std::ops::Range<usize> {
        let num_kept = self.max_length.unwrap_or(length).min(length);
        match self.truncation_side {
            Side::Left => length - num_kept..length,
            Side::Right => 0..num_kept,
        }
    }

    fn check_bos(&self, ids: &[u32], tokenizer: &dyn Tokenizer) -> Result<()> {
        let bos = self.special_tokens.get("bos_token").and_then(Value::as_str);
        match (bos.and_then(|bos| tokenizer.id_of(bos)), ids) {
            (Some(bos), [first, second, ..]) if *first == bos && *second == bos && !self.allow_double_bos => {
                let detail = format!(
                    "ids must begin with one beginning-of-sequence token (allowDoubleBos allows two): got {bos} twice"
                );
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
            _ => Ok(()),
        }
    }
}

fn continuation<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<ContinueFinalMessage, D::Error> {
    match Value::deserialize(input)? {
        Value::Bool(false) => Ok(ContinueFinalMessage::No),
        Value::Bool(true) => Ok(ContinueFinalMessage::Yes),
        Value::String(field) => Ok(ContinueFinalMessage::Field(field)),
        _ => Err(D::Error::custom("continueFinalMessage must be a boolean or the name of a field")),
    }
}

/// Returns the fields that a template sees.
fn shown_fields(message: &Message) -> Cow<'_, Map<String, Value>> {
    let fields = message.fields();
    if !fields.contains_key("is_complete") {
        return Cow::Borrowed(fields);
    }
    Cow::Owned(
        fields
            .iter()
            .filter(|(key, _)| *key != "is_complete")
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

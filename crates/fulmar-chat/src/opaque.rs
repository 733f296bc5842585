//! Any chat template as a renderer: the template renders, and this module attributes its text.
//!
//! The output of a template is checked, never trusted. The texts of messages are located by a second
//! rendering with marks around them, which counts only if it differs in nothing else. An assistant's turn is
//! the content of `generation` blocks. Without such blocks it is the text between the generation prompt and
//! the token that ends a turn or, if that is not visible, the text that longer conversations add to shorter
//! ones. A turn that cannot be located is context of origin [`Origin::Env`]; a message without text shows no
//! marks, and its frame counts to its neighbours.
//!
//! A bridge renders a short conversation with the new messages and takes the text that they add, if they
//! change nothing before it.
//!
//! Texts of messages and tools never become special tokens, even if a template would allow it: a rendering
//! with other texts of the same length shows which characters are the template's own. If the template
//! branches on the texts, so that this is not visible, texts that spell a special token are refused; so are
//! tools, calls and answers of tools that it omits.

mod draft;
mod encode;
mod layout;
mod marks;
mod probes;
mod provenance;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use fulmar_core::{Error, ErrorKind};
use fulmar_template::{CivilTime, RenderedText, Template, TemplateInput};
use fulmar_tokenizer::{Encoding, Tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::completion::Completion;
use crate::config::{RendererConfig, parser_of};
use crate::family::{Table, refusal_of, within_length};
use crate::mask::assistant_turns;
use crate::message_view::{MessageView, origin_of};
use crate::{
    Bridge, BridgeRefusal, Extension, Message, Origin, ParseOptions, Parsed, PrefixStability, RenderOptions,
    Rendered, Renderer, Result, ThinkingRetention, trim_to_turn_close,
};
use draft::{Draft, Marker};
use layout::{Anchor, Special, pieces};
use marks::{MessageSpan, Sources, find_sources};
use provenance::{could_give, is_visible, overlaps};

use probes::{check_not_empty, has_tool_part, left_out, table, with_other_tool_part, with_reasoning_apart};

/// The roles known to templates; most templates support only some.
const ROLES: [(&str, Origin); 8] = [
    ("system", Origin::System),
    ("developer", Origin::System),
    ("user", Origin::User),
    ("assistant", Origin::Assistant),
    ("tool", Origin::Tool),
    ("function", Origin::Tool),
    ("ipython", Origin::Tool),
    ("observation", Origin::Tool),
];

/// A text for probing how a template frames messages.
const PROBE: &str = "fulmarprobe";

/// The reasoning of such a probe.
const THOUGHT: &str = "fulmarthought";

/// The longest conversation whose turns are located by rendering the messages before each of them.
const PREFIX_MESSAGES_MAX: usize = fulmar_core::limits::MASK_PREFIX_TURNS_MAX;

/// Most renderings that find the calls and answers of tools that a template omits.
const OMISSION_CHECKS_MAX: usize = 16;

/// The options of a template of any model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct OpaqueOptions {
    /// The template's source. Defaults to the one of the tokenizer.
    pub template: Option<String>,
    /// Variables of the template, such as `enable_thinking`.
    pub template_kwargs: Map<String, Value>,
    /// Variables such as `bos_token`, in addition to the tokenizer's.
    pub special_tokens: Map<String, Value>,
    /// The time of the template's clock, in the form of [`CivilTime::parse`]. Without it a template that
    /// reads the clock fails.
    pub now: Option<String>,
    /// The tokens that end an assistant's turn, the regular one first. Defaults to the one with which the
    /// template closes a turn, the tokenizer's `eos_token`, and those of `parser`.
    pub stop_tokens: Vec<String>,
    /// The family whose parser reads completions. By default all is content, up to the token that ends the
    /// turn.
    pub parser: Option<Box<RendererConfig>>,
}

/// The renderer of a template, see the module.
pub struct OpaqueRenderer {
    template: Template,
    special_tokens: Map<String, Value>,
    template_kwargs: Map<String, Value>,
    now: Option<CivilTime>,
    /// The texts with which the template opens an assistant's turn: first the whole generation prompt, then
    /// the part of it before past turns. Empty if it is unknown.
    openings: Vec<String>,
    /// The constants by which [`Completion`] parses a completion.
    table: Table,
    parser: Option<Box<dyn Renderer>>,
    /// For each id: 0 not known yet, 1 not a marker, 2 a marker.
    markers: Vec<AtomicU8>,
}

/// Tokens with their start in the text.
struct Drawn {
    rendered: Rendered,
    starts: Vec<usize>,
}

impl OpaqueRenderer {
    /// Returns the renderer of the template of `options`, or of `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if there is no template, if no token ends a turn, or if `parser` is opaque too;
    /// `UnknownName` for a stop token that `tokenizer` lacks; the errors of [`Template::new`],
    /// [`CivilTime::parse`] and [`crate::create_renderer`].
    pub fn new(tokenizer: Arc<dyn Tokenizer>, options: &OpaqueOptions) -> Result<Self> {
        let Some(source) = options.template.as_deref().or_else(|| tokenizer.chat_template()) else {
            let detail = "template must be given, since the tokenizer came without a chat template";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        let template = Template::new(source)?;
        let mut special_tokens = tokenizer.special_tokens().clone();
        special_tokens.extend(options.special_tokens.clone());
        let parser = options.parser.as_deref().map(|config| parser_of(&tokenizer, config)).transpose()?;
        let markers = (0..tokenizer.vocab_size()).map(|_| AtomicU8::new(0)).collect();
        let mut renderer = Self {
            template,
            special_tokens,
            template_kwargs: options.template_kwargs.clone(),
            now: options.now.as_deref().map(CivilTime::parse).transpose()?,
            openings: Vec::new(),
            table: table(tokenizer),
            parser,
            markers,
        };
        renderer.table.stop_ids = renderer.find_stop_ids(&options.stop_tokens)?;
        renderer.openings = renderer.find_openings().unwrap_or_default();
        Ok(renderer)
    }

    fn find_stop_ids(&self, names: &[String]) -> Result<Vec<u32>> {
        let tokenizer = &*self.table.tokenizer;
        let mut ids = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let id = tokenizer.id_of(name).ok_or_else(|| {
                let detail = format!("stopTokens[{index}] must be a token of the tokenizer: got {name:?}");
                Error::new(ErrorKind::UnknownName, detail)
            })?;
            ids.push(id);
        }
        if names.is_empty() {
            ids.extend(self.find_close());
            let eos = self.special_tokens.get("eos_token").and_then(Value::as_str);
            ids.extend(eos.and_then(|eos| tokenizer.id_of(eos)));
            ids.extend(self.parser.iter().flat_map(|parser| parser.stop_ids()));
        }
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(*id));
        if ids.is_empty() {
            let detail = "stopTokens must be given, since the template closes no turn with a special token of the tokenizer";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(ids)
    }

    /// Returns the special token with which the template closes an assistant's last turn.
    fn find_close(&self) -> Option<u32> {
        let chat = [Message::new("user", PROBE).ok()?, Message::new("assistant", PROBE).ok()?];
        let text = self.write_messages(&chat, &[], false).ok()?.text;
        let close = &text[text.rfind(PROBE)? + PROBE.len()..];
        let tokenizer = &self.table.tokenizer;
        tokenizer.encode_added(close).ok()?.ids.into_iter().find(|id| tokenizer.is_special(*id))
    }

    fn find_openings(&self) -> Option<Vec<String>> {
        let chat = [Message::new("user", PROBE).ok()?, Message::new("assistant", PROBE).ok()?];
        let tail = |num_messages: usize, prompt: bool| {
            let text = self.write_messages(&chat[..num_messages], &[], prompt).ok()?.text;
            let (_, tail) = text.split_once(PROBE)?;
            let tail = tail.split_once(PROBE).map_or(tail, |(between, _)| between);
            self.table.tokenizer.encode_added(tail).ok().map(|encoding| encoding.ids)
        };
        let (whole, prompt, answered) = (tail(1, false)?, tail(1, true)?, tail(2, false)?);
        let common = |other: &[u32]| prompt.iter().zip(other).take_while(|(a, b)| a == b).count();
        let start = common(&whole);
        let decode = |ids: &[u32]| self.table.tokenizer.decode(ids, false).ok();
        let shared = common(&answered).max(start);
        let mut openings = vec![decode(&prompt[start..])?, decode(&prompt[start..shared])?];
        openings.dedup();
        openings.retain(|opening| !opening.is_empty());
        Some(openings)
    }

    fn write(
        &self,
        messages: Vec<&Map<String, Value>>,
        tools: &[Value],
        add_generation_prompt: bool,
    ) -> Result<RenderedText> {
        self.template.render(&TemplateInput {
            messages,
            tools: Some(tools).filter(|tools| !tools.is_empty()),
            add_generation_prompt,
            special_tokens: &self.special_tokens,
            kwargs: &self.template_kwargs,
            now: self.now,
            ..TemplateInput::default()
        })
    }

    fn write_messages(&self, messages: &[Message], tools: &[Value], prompt: bool) -> Result<RenderedText> {
        let written = self.write(messages.iter().map(Message::fields).collect(), tools, prompt);
        // As in transformers, a template does not see keys whose value is null; many fail if content is
        // missing.
        written.map_err(|error| match messages.iter().position(|message| !message.has_content()) {
            Some(index) if [ErrorKind::UnknownName, ErrorKind::Incompatible].contains(&error.kind()) => {
                let detail = format!(
                    "{}; messages[{index}] has no content, which this template may need",
                    error.detail()
                );
                Error::new(error.kind(), detail)
            }
            _ => error,
        })
    }

    /// Returns the tokens of a draft, with every token's owner.
    fn draw(&self, draft: &Draft<'_>, messages: &[Message], options: &RenderOptions) -> Result<Drawn> {
        let mut anchors = self.turns(draft, messages, &options.tools);
        let has_turn = draft.owners(&anchors);
        for &MessageSpan { message, start, end, .. } in &draft.message_spans {
            let origin = match draft.views[message].origin {
                Origin::Assistant if has_turn[message] => continue,
                Origin::Assistant => Origin::Env,
                origin => origin,
            };
            anchors.push(Anchor { message, start, end, origin, is_closed: false });
        }
        let pieces = pieces(anchors, &draft.specials, draft.whole_end, draft.text.len());
        self.encode(draft, &pieces)
    }

    fn draft<'a>(
        &self,
        views: &'a [MessageView<'a>],
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Draft<'a>> {
        let prompt = options.add_generation_prompt;
        let RenderedText { text, assistant_spans: spans } =
            self.write_messages(messages, &options.tools, prompt)?;
        let whole_end = if prompt { self.whole_end(messages, &options.tools, &text) } else { text.len() };
        let encoding = self.table.tokenizer.encode_added(&text)?;
        let mut sources = self.sources(views, options, &text);
        if sources.given.is_none()
            && let Some(apart) = self.given_apart(messages, options, &text, &encoding)?
        {
            sources = apart;
        }
        let (message_spans, given) = (sources.message_spans, sources.given.unwrap_or_default());
        let markers = self.own_markers(&text, &encoding, &given)?;
        let marker = |(&id, &[start, end]): (&u32, &[u32; 2])| {
            let marker = Marker { id, start: start as usize, end: end as usize };
            (!overlaps(&given, marker.start, marker.end)).then_some(marker)
        };
        let own = match &markers {
            Some(markers) => markers.clone(),
            None => encoding.ids.iter().zip(&encoding.offsets).filter_map(marker).collect(),
        };
        let special = |&Marker { id, start, end }: &Marker| {
            let is_stop = self.table.stop_ids.contains(&id);
            (is_stop || self.table.tokenizer.is_special(id)).then_some(Special { start, end, is_stop })
        };
        let specials = own.iter().filter_map(special).collect();
        Ok(Draft { views, text, spans, whole_end, message_spans, encoding, markers, specials })
    }

    fn sources(&self, views: &[MessageView<'_>], options: &RenderOptions, text: &str) -> Sources {
        let render = |messages: &[&Map<String, Value>], tools: &[Value]| {
            Ok(self.write(messages.to_vec(), tools, options.add_generation_prompt)?.text)
        };
        find_sources(&render, views, &options.tools, text)
    }

    /// Locates the texts of messages and tools if the template branches on them. Most do so to find reasoning
    /// in an assistant's content, and render the same if it is given separately. Otherwise all markers are
    /// the template's, unless a message or a tool could contain one; then returns `None`.
    fn given_apart(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        text: &str,
        encoding: &Encoding,
    ) -> Result<Option<Sources>> {
        let apart = messages.iter().map(with_reasoning_apart).collect::<Result<Vec<_>>>()?;
        let rewritten = self.write_messages(&apart, &options.tools, options.add_generation_prompt);
        if apart != messages && rewritten.is_ok_and(|rewritten| rewritten.text == text) {
            let views = MessageView::list(&apart, &ROLES)?;
            let sources = self.sources(&views, options, text);
            if sources.given.is_some() {
                return Ok(Some(sources));
            }
        }
        let mut markers = encoding.ids.clone();
        markers.sort_unstable();
        markers.dedup();
        for id in markers {
            if !self.is_marker(id)? {
                continue;
            }
            let marker = self.table.tokenizer.decode(&[id], false)?;
            let speaker = messages.iter().position(|message| could_give(message.fields(), &marker));
            let tool =
                options.tools.iter().filter_map(Value::as_object).position(|tool| could_give(tool, &marker));
            let place = speaker.map(|index| format!("messages[{index}]"));
            if let Some(place) = place.or(tool.map(|index| format!("tools[{index}]"))) {
                let detail = format!(
                    "{place} must not spell {marker:?} or a part of it: the template decides by what messages say, so \
                     that these words cannot be told from its own special token"
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        Ok(None)
    }

    /// Returns the template's markers in `text`, if a part of the ranges in `given` became a marker too.
    fn own_markers(
        &self,
        text: &str,
        encoding: &Encoding,
        given: &[Range<usize>],
    ) -> Result<Option<Vec<Marker>>> {
        let mut is_spelled = false;
        for (&id, &[start, end]) in encoding.ids.iter().zip(&encoding.offsets) {
            is_spelled |= overlaps(given, start as usize, end as usize) && self.is_marker(id)?;
        }
        if !is_spelled {
            return Ok(None);
        }
        // The text between markers is encoded separately, as message text may overlap a marker of the
        // template.
        let mut markers = Vec::new();
        let mut at = 0;
        let end = text.len()..text.len();
        for range in given.iter().chain(std::iter::once(&end)) {
            let own = &text[at..range.start];
            if is_visible(own) {
                let Encoding { ids, offsets } = self.table.tokenizer.encode_added(own)?;
                for (id, [start, end]) in ids.into_iter().zip(offsets) {
                    if self.is_marker(id)? {
                        markers.push(Marker { id, start: at + start as usize, end: at + end as usize });
                    }
                }
            }
            at = range.end;
        }
        Ok(Some(markers))
    }

    /// Refuses parts that the template silently omits from `text`: tools, calls and answers of tools. `message_spans`
    /// holds the located texts of messages.
    ///
    /// # Errors
    /// `Incompatible`, with the position of the first.
    fn check_complete(
        &self,
        views: &[MessageView<'_>],
        options: &RenderOptions,
        text: &str,
        message_spans: &[MessageSpan],
    ) -> Result<()> {
        let messages: Vec<&Map<String, Value>> = views.iter().map(|view| view.message.fields()).collect();
        let is_unchanged = |messages: &[&Map<String, Value>], tools: &[Value]| {
            let other = self.write(messages.to_vec(), tools, options.add_generation_prompt);
            other.is_ok_and(|other| other.text == text)
        };
        if !options.tools.is_empty() && is_unchanged(&messages, &[]) {
            let got = options.tools.len();
            return Err(left_out(&format!("tools must be left out (there are {got})"), "tools"));
        }
        let mut is_seen: Vec<bool> = views.iter().map(|view| !has_tool_part(view)).collect();
        for span in message_spans.iter().filter(|span| span.is_call || views[span.message].is_tool()) {
            is_seen[span.message] = true;
        }
        let unseen: Vec<usize> = (0..views.len()).filter(|index| !is_seen[*index]).collect();
        for group in unseen.chunks(unseen.len().div_ceil(OMISSION_CHECKS_MAX).max(1)) {
            let disguised: Vec<Map<String, Value>> =
                group.iter().map(|index| with_other_tool_part(&views[*index])).collect();
            let mut others = messages.clone();
            group.iter().zip(&disguised).for_each(|(index, fields)| others[*index] = fields);
            if is_unchanged(&others, &options.tools) {
                let index = group[0];
                let what = if views[index].is_tool() { "an answer of a tool" } else { "calls of tools" };
                return Err(left_out(&format!("messages[{index}] must not hold {what}"), what));
            }
        }
        Ok(())
    }

    /// Returns the start of the generation prompt in `text`.
    fn whole_end(&self, messages: &[Message], tools: &[Value], text: &str) -> usize {
        let prompt = self.openings.first().filter(|prompt| text.ends_with(prompt.as_str()));
        if let Some(prompt) = prompt {
            return text.len() - prompt.len();
        }
        let whole = self.write_messages(messages, tools, false);
        whole.ok().filter(|whole| text.starts_with(&whole.text)).map_or(text.len(), |whole| whole.text.len())
    }

    /// Returns the assistants' turns, each with the token that closes it.
    fn turns(&self, draft: &Draft<'_>, messages: &[Message], tools: &[Value]) -> Vec<Anchor> {
        if draft.spans.is_some() {
            return draft.turns_of_spans();
        }
        let mut turns = draft.turns_behind(&self.openings);
        let has_turn = draft.owners(&turns);
        let is_missing = |index: &usize| draft.views[*index].is_assistant() && !has_turn[*index];
        let missing: Vec<usize> = (0..messages.len()).filter(is_missing).collect();
        if missing.is_empty() || messages.len() > PREFIX_MESSAGES_MAX {
            return turns;
        }
        let render =
            |messages: &[Message], prompt: bool| Ok(self.write_messages(messages, tools, prompt)?.text);
        let by_prefix = assistant_turns(&render, messages, &draft.text, &missing).unwrap_or_default();
        turns.extend(by_prefix.iter().map(|turn| draft.turn(turn.message, turn.start, turn.body_end)));
        turns
    }
}

impl Renderer for OpaqueRenderer {
    fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered> {
        check_not_empty(messages)?;
        let views = MessageView::list(messages, &ROLES)?;
        let draft = self.draft(&views, messages, options)?;
        self.check_complete(&views, options, &draft.text, &draft.message_spans)?;
        Ok(self.draw(&draft, messages, options)?.rendered)
    }

    fn render_text(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        check_not_empty(messages)?;
        let views = MessageView::list(messages, &ROLES)?;
        let text = self.write_messages(messages, &options.tools, options.add_generation_prompt)?.text;
        if !options.tools.is_empty() || views.iter().any(has_tool_part) {
            let Sources { message_spans, .. } = self.sources(&views, options, &text);
            self.check_complete(&views, options, &text, &message_spans)?;
        }
        Ok(text)
    }

    fn bridge(
        &self,
        prev_prompt: &[u32],
        prev_completion: &[u32],
        new_messages: &[Message],
        tools: &[Value],
    ) -> Result<Bridge> {
        let has_place = |role: &str| origin_of(&ROLES, role).is_some();
        if let Some(refusal) = refusal_of(prev_prompt, new_messages, has_place) {
            return Ok(Bridge::Declined(refusal));
        }
        MessageView::list(new_messages, &ROLES)?;
        let kept = trim_to_turn_close(prev_completion, &self.table.stop_ids);
        let is_closed = kept.last().is_some_and(|id| self.table.stop_ids.contains(id));
        let options = ParseOptions { prompt_ids: Some(prev_prompt.to_vec()), tools: tools.to_vec().into() };
        let parsed = self.parse(kept, &options)?;
        if !parsed.reasoning_complete {
            let refusal =
                if is_closed { BridgeRefusal::OpenReasoningAfterStop } else { BridgeRefusal::OpaqueTemplate };
            return Ok(Bridge::Declined(refusal));
        }
        let Some(mut added) = self.extension(new_messages, tools, parsed.reasoning_content.is_some())? else {
            return Ok(Bridge::Declined(BridgeRefusal::OpaqueTemplate));
        };
        let mut rendered = Rendered::default();
        if !is_closed {
            rendered.push(&added.ids[..1], -1, Origin::Synthetic);
        }
        added.drop_first(1);
        rendered.append(&mut added);
        Ok(within_length(prev_prompt.len(), Extension { num_kept: kept.len(), rendered }))
    }

    fn parse(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        let Some(parser) = &self.parser else {
            return Completion::new(&self.table, ids, None)?.parse(&options.tools);
        };
        let stop = ids.iter().position(|id| self.table.stop_ids.contains(id));
        let mut parsed = parser.parse(&ids[..stop.unwrap_or(ids.len())], options)?;
        parsed.finished = stop.is_some();
        Ok(parsed)
    }

    fn stop_ids(&self) -> &[u32] {
        &self.table.stop_ids
    }

    fn prefix_stability(&self) -> PrefixStability {
        PrefixStability::Unknown
    }

    fn thinking_retention(&self) -> ThinkingRetention {
        ThinkingRetention::Template
    }
}

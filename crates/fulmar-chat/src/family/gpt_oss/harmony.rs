//! Parses a completion in the harmony format by ids.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use crate::script::Lexicon;
use crate::tool_call::{is_offered, read_arguments};
use crate::{Parsed, ParsedToolCall, Result, ToolCallStatus};

/// Number of ids at a prompt's end that may hold the header of the message that a completion continues.
const PROMPT_TAIL: usize = 64;

/// The parser.
pub(super) struct Harmony {
    tokenizer: Arc<dyn Tokenizer>,
    start: Option<u32>,
    channel: Option<u32>,
    message: Option<u32>,
    end: Option<u32>,
    done: Option<u32>,
    call: Option<u32>,
    constrain: Option<u32>,
}

/// One message of a completion.
struct Segment<'a> {
    /// Header ids in the prompt, if the message began there.
    opened: &'a [u32],
    header: &'a [u32],
    body: &'a [u32],
    /// `true` if `<|message|>` separates the two.
    has_body: bool,
    /// The token that ended it.
    closed_by: Option<u32>,
    /// Its range in the completion, the closing id included.
    token_span: [usize; 2],
}

/// The fields of a header.
struct Header {
    channel: String,
    recipient: Option<String>,
}

impl Harmony {
    pub(super) fn new(tokenizer: Arc<dyn Tokenizer>, lexicon: &Lexicon) -> Self {
        Self {
            tokenizer,
            start: lexicon.id("<|start|>"),
            channel: lexicon.id("<|channel|>"),
            message: lexicon.id("<|message|>"),
            end: lexicon.id("<|end|>"),
            done: lexicon.id("<|return|>"),
            call: lexicon.id("<|call|>"),
            constrain: lexicon.id("<|constrain|>"),
        }
    }

    /// Parses the completion `ids` of `prompt`. Without a prompt it continues `<|start|>assistant`.
    ///
    /// # Errors
    /// `OutOfRange` for ids outside of the vocabulary.
    pub(super) fn read(&self, ids: &[u32], prompt: Option<&[u32]>, tools: &[Value]) -> Result<Parsed> {
        let stop = ids.iter().position(|id| [self.done, self.call].contains(&Some(*id)));
        let spoken = &ids[..stop.map_or(ids.len(), |stop| stop + 1)];
        let mut parsed = Parsed { reasoning_complete: true, finished: stop.is_some(), ..Parsed::default() };
        let mut reasoning: Vec<String> = Vec::new();
        let mut content: Vec<String> = Vec::new();
        for segment in self.segments(spoken, self.opened(prompt.unwrap_or_default())) {
            let header = self.header(&segment)?;
            let body = || self.decode(segment.body);
            match (&header.recipient, &*header.channel) {
                (Some(recipient), _) if segment.has_body => {
                    parsed.tool_calls.push(self.call(&segment, recipient, spoken, tools)?);
                }
                (Some(_), _) => {}
                (None, "analysis") => {
                    reasoning.push(body()?);
                    let is_closed = segment.closed_by.is_some() && segment.closed_by != self.done;
                    parsed.reasoning_complete &= is_closed || !segment.has_body;
                }
                _ if segment.has_body => content.push(body()?),
                _ => {}
            }
            parsed.overran |= segment.body.iter().any(|&id| self.tokenizer.is_special(id));
        }
        parsed.content = content.join("\n").trim().to_owned();
        let reasoning = reasoning.join("\n").trim().to_owned();
        parsed.reasoning_content = Some(reasoning).filter(|text| !text.is_empty());
        Ok(parsed)
    }

    /// Returns the ids after `<|start|>` of the message that a prompt leaves unfinished.
    fn opened<'a>(&self, prompt: &'a [u32]) -> &'a [u32] {
        let tail = &prompt[prompt.len().saturating_sub(PROMPT_TAIL)..];
        let start = tail.iter().rposition(|&id| Some(id) == self.start);
        let header = start.map_or(&tail[tail.len()..], |start| &tail[start + 1..]);
        let is_over = header.iter().any(|&id| [self.end, self.done, self.call].contains(&Some(id)));
        if is_over { &header[header.len()..] } else { header }
    }

    /// Splits a completion into messages. Each id is in at most one of them, for any input.
    fn segments<'a>(&self, ids: &'a [u32], opened: &'a [u32]) -> Vec<Segment<'a>> {
        let mut segments = Vec::new();
        let mut at = 0;
        let mut opened = opened;
        while at < ids.len() {
            let start = at;
            let in_body = opened.iter().any(|&id| Some(id) == self.message);
            let is_mark = |&id: &u32| [self.end, self.done, self.call, self.start].contains(&Some(id));
            let stop = ids[at..].iter().position(is_mark).map_or(ids.len(), |mark| at + mark);
            let colon = ids[at..stop].iter().position(|&id| Some(id) == self.message).map(|mark| at + mark);
            let (header, body) = match colon {
                _ if in_body => (&ids[at..at], &ids[at..stop]),
                Some(colon) => (&ids[at..colon], &ids[colon + 1..stop]),
                None => (&ids[at..stop], &ids[stop..stop]),
            };
            let closed_by = ids.get(stop).copied().filter(|&id| Some(id) != self.start);
            let has_body = in_body || colon.is_some();
            let end = stop + usize::from(closed_by.is_some());
            segments.push(Segment { opened, header, body, has_body, closed_by, token_span: [start, end] });
            opened = &[];
            at = end;
            if ids.get(at).copied() == self.start {
                at += 1;
            }
        }
        segments
    }

    /// Parses `assistant to=functions.NAME<|channel|>commentary <|constrain|>json`; the recipient may follow
    /// the channel.
    fn header(&self, segment: &Segment<'_>) -> Result<Header> {
        let opened = segment.opened.split(|&id| Some(id) == self.message).next().unwrap_or_default();
        let ids = [opened, segment.header].concat();
        let mut parts = ids.split(|&id| Some(id) == self.channel);
        let speaker = self.decode_header(parts.next().unwrap_or_default())?;
        let channel = self.decode_header(parts.next().unwrap_or_default())?;
        let words = || speaker.split_whitespace().chain(channel.split_whitespace());
        let recipient = words().find_map(|word| word.strip_prefix("to=")).map(str::to_owned);
        let channel = channel.split_whitespace().next().unwrap_or_default().to_owned();
        Ok(Header { channel, recipient: recipient.filter(|to| to != "assistant" && to != "user") })
    }

    fn call(
        &self,
        segment: &Segment<'_>,
        recipient: &str,
        spoken: &[u32],
        tools: &[Value],
    ) -> Result<ParsedToolCall> {
        let name = recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned();
        let name = Some(name).filter(|name| !name.is_empty());
        let read = read_arguments(name, &self.decode(segment.body)?);
        let status = if segment.closed_by != self.call {
            ToolCallStatus::UnclosedBlock
        } else if read.name.is_none() {
            ToolCallStatus::MissingName
        } else if read.status == ToolCallStatus::Ok && !is_offered(tools, read.name.as_deref()) {
            ToolCallStatus::UnknownTool
        } else {
            read.status
        };
        let token_span = segment.token_span;
        let raw = self.decode(&spoken[token_span[0]..token_span[1]])?;
        Ok(ParsedToolCall { raw, status, name: read.name, arguments: read.arguments, id: None, token_span })
    }

    /// Returns the text of header ids; `<|constrain|>` separates words.
    fn decode_header(&self, ids: &[u32]) -> Result<String> {
        let parts = ids.split(|&id| Some(id) == self.constrain).map(|ids| self.decode(ids));
        Ok(parts.collect::<Result<Vec<_>>>()?.join(" "))
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, false)
    }
}

//! The ids of a rendered text, with markers by id.

use std::sync::atomic::Ordering;

use fulmar_tokenizer::{AddedTokens, Encoding};
use serde_json::Value;

use super::draft::{Draft, Marker};
use super::layout::Piece;
use super::probes::probes;
use super::{Drawn, OpaqueRenderer, PROBE, ROLES, THOUGHT};
use crate::message_view::MessageView;
use crate::{Message, Origin, RenderOptions, Rendered, Result};

impl OpaqueRenderer {
    /// Returns the ids of a text: the template's markers by their id, message texts as text.
    pub(super) fn encode(&self, draft: &Draft<'_>, pieces: &[Piece]) -> Result<Drawn> {
        let mut drawn = Drawn { rendered: Rendered::default(), starts: Vec::new() };
        let Encoding { ids, offsets } = &draft.encoding;
        let mut pieces = Pieces { pieces, at: 0 };
        let Some(markers) = &draft.markers else {
            pieces.push(ids, offsets, 0, &mut drawn);
            return Ok(drawn);
        };
        let mut at = 0;
        let mut encoding = Encoding::default();
        for &Marker { id, start, end } in markers {
            self.encode_text(&draft.text[at..start], &mut encoding)?;
            pieces.push(&encoding.ids, &encoding.offsets, at, &mut drawn);
            pieces.push(&[id], &[[0, 0]], start, &mut drawn);
            at = end;
        }
        self.encode_text(&draft.text[at..], &mut encoding)?;
        pieces.push(&encoding.ids, &encoding.offsets, at, &mut drawn);
        Ok(drawn)
    }

    fn encode_text(&self, text: &str, encoding: &mut Encoding) -> Result<()> {
        encoding.ids.clear();
        encoding.offsets.clear();
        self.table.tokenizer.encode_into(text, AddedTokens::AsText, encoding)
    }

    /// Returns whether text becomes this id only where markers do.
    pub(super) fn is_marker(&self, id: u32) -> Result<bool> {
        let Some(known) = self.markers.get(id as usize) else { return Ok(false) };
        match known.load(Ordering::Relaxed) {
            0 => {
                let tokenizer = &self.table.tokenizer;
                let name = tokenizer.decode(&[id], false)?;
                let becomes =
                    |encoding: Result<Encoding>| encoding.is_ok_and(|encoding| encoding.ids == [id]);
                let is_marker = becomes(tokenizer.encode_added(&name)) && !becomes(tokenizer.encode(&name));
                known.store(1 + u8::from(is_marker), Ordering::Relaxed);
                Ok(is_marker)
            }
            state => Ok(state == 2),
        }
    }

    /// Returns the tokens that `new_messages` add after an assistant's turn, from the closing one on. `None`
    /// if this cannot be determined, the template changes earlier text, or it never shows reasoning and the
    /// turn `has_reasoning`.
    pub(super) fn extension(
        &self,
        new_messages: &[Message],
        tools: &[Value],
        has_reasoning: bool,
    ) -> Result<Option<Rendered>> {
        let short = probes(new_messages)?;
        let long = [&short[..], new_messages].concat();
        let options = RenderOptions { add_generation_prompt: true, tools: tools.to_vec().into() };
        let (Ok(before), Ok(after)) =
            (self.write_messages(&short, tools, false), self.write_messages(&long, tools, true))
        else {
            return Ok(None);
        };
        let thought = before.text.rfind(THOUGHT);
        let probe = before.text.rfind(PROBE).max(thought);
        let is_kept = after.text.starts_with(&before.text) && (thought.is_some() || !has_reasoning);
        let Some(probe) = probe.filter(|_| is_kept) else { return Ok(None) };
        let views = MessageView::list(&long, &ROLES)?;
        let Drawn { mut rendered, starts } =
            self.draw(&self.draft(&views, &long, &options)?, &long, &options)?;
        let is_close = |t: &usize| {
            (probe..before.text.len()).contains(&starts[*t])
                && self.table.stop_ids.contains(&rendered.ids[*t])
        };
        let Some(close) = (0..starts.len()).find(is_close) else { return Ok(None) };
        rendered.drop_first(close);
        let num_given = short.len() as i32;
        rendered.message_index.iter_mut().for_each(|index| *index = (*index - num_given).max(-1));
        Ok(Some(rendered))
    }
}

/// Assigns tokens to the pieces in which they begin, in order.
struct Pieces<'a> {
    pieces: &'a [Piece],
    at: usize,
}

impl Pieces<'_> {
    pub(super) fn push(&mut self, ids: &[u32], offsets: &[[u32; 2]], base: usize, drawn: &mut Drawn) {
        let mut first = 0;
        drawn.starts.extend(offsets.iter().map(|[start, _]| base + *start as usize));
        while first < ids.len() {
            let Some(piece) = self.pieces.get(self.at) else {
                drawn.rendered.push(&ids[first..], -1, Origin::Template);
                return;
            };
            let count = offsets[first..].partition_point(|[start, _]| base + (*start as usize) < piece.end);
            drawn.rendered.push(&ids[first..first + count], piece.message_index, piece.origin);
            first += count;
            if first < ids.len() {
                self.at += 1;
            }
        }
    }
}

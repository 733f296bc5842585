//! Draws of the tokens of a step.

use std::sync::Arc;

use fulmar_compute::cpu::for_each_part;
use fulmar_compute::{Compute, Memory};
use fulmar_core::{ErrorKind, Result};
use fulmar_objective::{DrawContext, DrawRow, RowDraw, RowDraws};

use super::{Rows, Scheduler, Sequence};
use crate::decoder::{Decoder, PackedDecoder};
use crate::outputs::{FinishReason, Outputs, SampledToken};

/// A running sequence that draws from the logits of a row.
pub(super) struct Drawer {
    row: usize,
    sequence: usize,
}

impl Sequence {
    /// Returns the draw of the token after the drawn ones, which may be one of the drafts.
    fn draw_row(&self) -> DrawRow<'_> {
        let output_ids = &self.drawn[..self.drawn.len() - self.num_drafted];
        let context = DrawContext { prompt_ids: &self.prompt, output_ids, allowed: None };
        DrawRow { options: &self.params.draw, context, rng: self.rng.state() }
    }

    /// Draws from the logits of the next row, on the processor.
    fn draw(&self, logits: &[f32]) -> Result<RowDraw> {
        self.draw_row().draw(logits, self.params.top_log_probs)
    }

    /// Adds a drawn token; returns why the sequence ends, if it does, and whether the token is the first of its drafts.
    ///
    /// # Errors
    /// The errors of a draw, except for those that end the sequence alone.
    fn take(
        &mut self,
        drawn: Result<RowDraw>,
        version: u64,
        outputs: &mut Outputs,
    ) -> Result<(Option<FinishReason>, bool)> {
        let RowDraw { draw, mut top_log_probs } = match drawn {
            Err(error) if error.kind() == ErrorKind::NonFinite => {
                return Ok((Some(FinishReason::NonFinite), false));
            }
            Err(error) if error.kind() == ErrorKind::Empty => {
                return Ok((Some(FinishReason::NoToken), false));
            }
            drawn => drawn?,
        };
        self.rng.next_u32();
        top_log_probs.truncate(self.params.top_log_probs);
        outputs.tokens.push(SampledToken::new(self.request, draw, version, top_log_probs));
        let is_draft = self.push(draw.id);
        Ok((self.finish_reason(), is_draft))
    }
}

impl Scheduler {
    /// Returns the sequences whose last token is now computed, with the rows of their drafts; a prompt's first one
    /// is followed by those that wait for its pages.
    pub(super) fn drawers(&mut self, rows: &Rows) -> Vec<Drawer> {
        let (mut drawers, mut end) = (Vec::new(), 0);
        for &(index, count) in &rows.counts {
            end += count;
            let sequence = &self.running[index];
            if sequence.computed < sequence.len() {
                continue;
            }
            let first = end - 1 - sequence.num_drafted;
            drawers.extend((first..end).map(|row| Drawer { row, sequence: index }));
            if !sequence.drawn.is_empty() || sequence.cache_version != Some(self.version) {
                continue;
            }
            let prompt = Arc::clone(&sequence.prompt);
            for follower in index + 1..self.running.len() {
                let of_group = &self.running[follower];
                let waits = of_group.cache_version.is_none() && of_group.drawn.is_empty();
                if waits && Arc::ptr_eq(&of_group.prompt, &prompt) {
                    self.attach(follower, index, prompt.len());
                    drawers.push(Drawer { row: end - 1, sequence: follower });
                }
            }
        }
        drawers
    }

    /// Draws a token for each drawer, but none for a row that follows a rejected draft; returns the sequences that
    /// finished, in order.
    pub(super) fn draw(
        &mut self,
        packed: PackedDecoder<'_>,
        drawers: &[Drawer],
    ) -> Result<Vec<(usize, FinishReason)>> {
        match packed.decoder.compute() {
            Compute::Cpu => {
                let ended = self.draw_on_cpu(packed, drawers)?;
                Ok(self.drawn(drawers, ended))
            }
            Compute::Cuda(_) => {
                let rows: Vec<usize> = drawers.iter().map(|drawer| drawer.row).collect();
                let last_rows = self.rows_of_x(packed.decoder, &rows);
                let (mut normed, mut inv_rms) = (Memory::default(), Memory::default());
                packed.head().normalise(last_rows.view(), &mut normed, &mut inv_rms);
                self.draw_normed(packed, drawers, &normed, false)
            }
        }
    }

    /// Drops what the sequences computed ahead of their draws; returns the sequences that finished, in order.
    fn drawn(
        &mut self,
        drawers: &[Drawer],
        mut ended: Vec<(usize, FinishReason)>,
    ) -> Vec<(usize, FinishReason)> {
        for drawer in drawers {
            let sequence = &mut self.running[drawer.sequence];
            sequence.drop_drafts(sequence.num_drafted);
            sequence.trim(sequence.len() - 1, &mut self.pool);
        }
        ended.sort_unstable_by_key(|(index, _)| *index);
        ended
    }

    /// Draws from the rows of logits on all cores; from those of a sequence's drafts one after the other, as each depends on the draws
    /// before it.
    fn draw_on_cpu(
        &mut self,
        packed: PackedDecoder<'_>,
        drawers: &[Drawer],
    ) -> Result<Vec<(usize, FinishReason)>> {
        let groups: Vec<&[Drawer]> = drawers.chunk_by(|a, b| a.row == b.row).collect();
        let rows: Vec<usize> = groups.iter().map(|group| group[0].row).collect();
        let last_rows = self.rows_of_x(packed.decoder, &rows);
        let Self { running, speculation, outputs, version, head, .. } = self;
        let vocab = packed.decoder.config().vocab_size;
        let (mut ended, mut done) = (Vec::new(), None);
        packed.head().for_chunks(last_rows.view(), head, |chunk, logits| {
            let logits = groups[chunk].iter().zip(logits.cpu().chunks_exact(vocab));
            let mut rows: Vec<(&Drawer, &[f32])> =
                logits.flat_map(|(group, logits)| group.iter().map(move |drawer| (drawer, logits))).collect();
            let ahead = for_each_part(&mut rows, |(drawer, logits)| {
                let sequence = &running[drawer.sequence];
                (sequence.num_drafted == 0).then(|| sequence.draw(logits))
            });
            for ((drawer, logits), ahead) in rows.into_iter().zip(ahead) {
                if done == Some(drawer.sequence) {
                    continue;
                }
                let sequence = &mut running[drawer.sequence];
                let drawn = ahead.unwrap_or_else(|| sequence.draw(logits));
                let has_draft = drawn.is_ok() && sequence.num_drafted > 0;
                let (reason, is_draft) = sequence.take(drawn, *version, outputs)?;
                if has_draft {
                    speculation.record(is_draft);
                }
                ended.extend(reason.map(|reason| (drawer.sequence, reason)));
                if reason.is_some() || !is_draft {
                    done = Some(drawer.sequence);
                }
            }
            Ok(())
        })?;
        Ok(ended)
    }

    /// Draws from all rows of logits where they are computed, for sequences without drafts; waits for a GPU once. The drawers' rows
    /// are normalised. `has_logits` if the buffer of logits holds those of all of them.
    pub(super) fn draw_normed(
        &mut self,
        packed: PackedDecoder<'_>,
        drawers: &[Drawer],
        normed: &Memory<f32>,
        has_logits: bool,
    ) -> Result<Vec<(usize, FinishReason)>> {
        let Self { running, outputs, version, head, .. } = self;
        let top = drawers.iter().map(|drawer| running[drawer.sequence].params.top_log_probs).max();
        let mut draws = RowDraws::new(packed.decoder.compute(), drawers.len(), top.unwrap_or(0))?;
        packed.head().for_normed(normed, drawers.len(), head, has_logits, |rows, logits| {
            let rows: Vec<DrawRow<'_>> =
                drawers[rows].iter().map(|drawer| running[drawer.sequence].draw_row()).collect();
            draws.draw(logits, &rows)
        })?;
        let mut ended = Vec::new();
        for (drawer, drawn) in drawers.iter().zip(draws.read()?) {
            let sequence = &mut running[drawer.sequence];
            let (reason, _) = sequence.take(drawn, *version, outputs)?;
            ended.extend(reason.map(|reason| (drawer.sequence, reason)));
        }
        Ok(self.drawn(drawers, ended))
    }

    /// Returns rows of the residual stream.
    fn rows_of_x(&self, decoder: &Decoder, rows: &[usize]) -> Memory<f32> {
        let (compute, hidden) = (decoder.compute(), decoder.config().hidden_size);
        let mut found = Memory::default();
        compute.resize(&mut found, rows.len() * hidden);
        compute.gather(&self.buffers.x, hidden, rows, &mut found);
        found
    }
}

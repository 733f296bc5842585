//! Decoding of sequences over a key/value cache: prompts in one pass, then a row a sequence and step.

use std::collections::HashMap;

use fulmar_core::{Result, Rng};
use fulmar_kernel::{RopeTable, Spans, attention, embed};
use fulmar_objective::{Draw, draw, draw_rng};

use crate::decoder::Decoder;
use crate::generation::{FinishReason, Generated, GenerationOptions, Request};
use crate::layer::LayerTrace;

/// Some of the sequences of a generation, with their part of the key/value cache.
#[derive(Debug)]
pub(crate) struct Decoding {
    options: GenerationOptions,
    prompt_ids: Vec<u32>,
    prompts: Vec<(u32, u32)>,
    slots: Vec<Slot>,
    sequences: Vec<Generated>,
    /// Keys and values of each layer, `[rows, K * E]`.
    cache: Vec<(Vec<f32>, Vec<f32>)>,
    rope: RopeTable,
    trace: LayerTrace,
    prefilled: bool,
}

/// Where one sequence stands in the cache.
#[derive(Debug)]
struct Slot {
    prompt: usize,
    first_row: u32,
    rng: Rng,
}

/// Rows to push through the layers.
#[derive(Default)]
struct Rows {
    ids: Vec<u32>,
    positions: Vec<u32>,
    cache_rows: Vec<u32>,
    spans: Spans,
}

impl Rows {
    fn push(&mut self, id: u32, position: u32, cache_row: u32, ranges: &[(u32, u32)]) {
        self.ids.push(id);
        self.positions.push(position);
        self.cache_rows.push(cache_row);
        self.spans.push_row(ranges);
    }
}

impl Decoding {
    /// Takes the cache's memory for requests that were checked; computes nothing yet.
    pub(crate) fn new(decoder: &Decoder, requests: &[Request<'_>], options: &GenerationOptions) -> Self {
        let config = decoder.config();
        let (mut prompt_ids, mut prompts, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: HashMap<&[u32], usize> = HashMap::new();
        for request in requests {
            let prompt = *known.entry(request.prompt_ids).or_insert_with(|| {
                let first = prompt_ids.len() as u32;
                prompt_ids.extend_from_slice(request.prompt_ids);
                prompts.push((first, prompt_ids.len() as u32));
                prompts.len() - 1
            });
            slots.push(Slot { prompt, first_row: 0, rng: draw_rng(request.seed, 0) });
        }
        let num_rows = prompt_ids.len() + requests.len() * options.max_tokens;
        for (index, slot) in slots.iter_mut().enumerate() {
            slot.first_row = (prompt_ids.len() + index * options.max_tokens) as u32;
        }
        let layer = || (vec![0.0; num_rows * config.kv_width()], vec![0.0; num_rows * config.kv_width()]);
        Self {
            options: options.clone(),
            prompt_ids,
            prompts,
            sequences: vec![Generated::default(); slots.len()],
            slots,
            cache: (0..config.num_hidden_layers).map(|_| layer()).collect(),
            rope: config.rope(),
            trace: LayerTrace::default(),
            prefilled: false,
        }
    }

    /// Draws one token for every live sequence and returns how many are still live.
    ///
    /// The first step also computes the prompts.
    ///
    /// # Errors
    /// `NonFinite` if the model's logits are no numbers.
    fn step(&mut self, decoder: &Decoder) -> Result<usize> {
        let live: Vec<usize> = (0..self.slots.len()).filter(|&s| self.is_live(s)).collect();
        if live.is_empty() {
            return Ok(0);
        }
        if self.prefilled {
            self.decode(decoder, &live)?;
        } else {
            self.prefill(decoder)?;
        }
        Ok(live.iter().filter(|&&sequence| self.is_live(sequence)).count())
    }

    /// Up to `count` calls of [`Decoding::step`]; how many sequences are still live.
    ///
    /// # Errors
    /// Those of [`Decoding::step`].
    pub(crate) fn steps(&mut self, decoder: &Decoder, count: usize) -> Result<usize> {
        let mut live = self.sequences.iter().filter(|sequence| sequence.finish_reason.is_none()).count();
        for _ in 0..count {
            if live == 0 {
                break;
            }
            live = self.step(decoder)?;
        }
        Ok(live)
    }

    /// The sequences, in the order of the requests.
    pub(crate) fn sequences(&self) -> &[Generated] {
        &self.sequences
    }

    fn is_live(&self, sequence: usize) -> bool {
        self.sequences[sequence].finish_reason.is_none()
    }

    fn prefill(&mut self, decoder: &Decoder) -> Result<()> {
        let mut rows = Rows::default();
        for &(first, end) in &self.prompts {
            for row in first..end {
                rows.push(self.prompt_ids[row as usize], row - first, row, &[(first, row + 1)]);
            }
        }
        let x = self.run_layers(decoder, &rows);
        let hidden = decoder.config().hidden_size;
        let last_rows: Vec<f32> = self
            .prompts
            .iter()
            .flat_map(|&(_, end)| &x[(end as usize - 1) * hidden..][..hidden])
            .copied()
            .collect();
        let mut draws = vec![None; self.slots.len()];
        let (slots, options) = (&mut self.slots, &self.options.draw());
        decoder.head().for_logits(&last_rows, |prompt, logits| {
            for (slot, draw_of) in slots.iter_mut().zip(&mut draws).filter(|(slot, _)| slot.prompt == prompt)
            {
                *draw_of = Some(draw(logits, options, &mut slot.rng)?);
            }
            Ok(())
        })?;
        self.prefilled = true;
        for (sequence, draw) in draws.into_iter().enumerate() {
            self.record(sequence, draw);
        }
        Ok(())
    }

    fn decode(&mut self, decoder: &Decoder, live: &[usize]) -> Result<()> {
        let mut rows = Rows::default();
        for &sequence in live {
            let (slot, generated) = (&self.slots[sequence], &self.sequences[sequence]);
            let prompt = self.prompts[slot.prompt];
            let done = generated.ids.len() as u32;
            let row = slot.first_row + done - 1;
            let last = generated.ids[done as usize - 1];
            rows.push(last, prompt.1 - prompt.0 + done - 1, row, &[prompt, (slot.first_row, row + 1)]);
        }
        let x = self.run_layers(decoder, &rows);
        let mut draws = vec![None; live.len()];
        let (slots, options) = (&mut self.slots, &self.options.draw());
        decoder.head().for_logits(&x, |row, logits| {
            draws[row] = Some(draw(logits, options, &mut slots[live[row]].rng)?);
            Ok(())
        })?;
        for (&sequence, draw) in live.iter().zip(draws) {
            self.record(sequence, draw);
        }
        Ok(())
    }

    /// The residual stream behind the last layer; fills the rows' places in the cache.
    fn run_layers(&mut self, decoder: &Decoder, rows: &Rows) -> Vec<f32> {
        let config = decoder.config();
        let (hidden, kv_width) = (config.hidden_size, config.kv_width());
        self.rope.extend_to(rows.positions.iter().max().map_or(0, |last| *last as usize + 1));
        let mut x = vec![0.0; rows.ids.len() * hidden];
        embed(&decoder.weights()[decoder.layout().embed.clone()], hidden, &rows.ids, &mut x);
        let trace = &mut self.trace;
        trace.resize(config, rows.ids.len());
        for (index, (keys, values)) in self.cache.iter_mut().enumerate() {
            trace.x.copy_from_slice(&x);
            let layer = decoder.layer(index);
            layer.project_heads(trace, &self.rope, &rows.positions);
            let new_rows = trace.k.chunks_exact(kv_width).zip(trace.v.chunks_exact(kv_width));
            for (&row, (key, value)) in rows.cache_rows.iter().zip(new_rows) {
                keys[row as usize * kv_width..][..kv_width].copy_from_slice(key);
                values[row as usize * kv_width..][..kv_width].copy_from_slice(value);
            }
            let LayerTrace { q, attention: out, log_sum, .. } = trace;
            attention(config.attention(), q, keys, values, &rows.spans, out, log_sum);
            layer.finish(trace, &mut x);
        }
        x
    }

    fn record(&mut self, sequence: usize, draw: Option<Draw>) {
        let (Some(draw), generated) = (draw, &mut self.sequences[sequence]) else { return };
        generated.ids.push(draw.id);
        generated.log_prob.push(draw.log_prob);
        generated.sampled_log_prob.push(draw.sampled_log_prob);
        if self.options.stop_ids.contains(&draw.id) {
            generated.finish_reason = Some(FinishReason::Stop);
        } else if generated.ids.len() == self.options.max_tokens {
            generated.finish_reason = Some(FinishReason::Length);
        }
    }
}

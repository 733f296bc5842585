//! Decode steps on a GPU as graphs: what a step queued is captured, and queued as a whole by later steps of as many rows.
//!
//! ```text
//! bucket     the number of rows, rounded up: 1, 2, 4, 8, then by 8 to 64 and by 32 to `max_num_seqs`
//! padding    the rows of a bucket past those of the step, which attend to a spare page
//! first use  runs as steps of any size do
//! second     runs in buffers of the bucket, and is captured: all layers, the last norm, and logits if they fit
//! later      one copy of the numbers of the rows, and the graph
//! ```
//! A graph has the addresses of what it reads: weights, pages, buffers. It holds while these are the same, whatever their values, so
//! a step of an optimizer changes what it computes and not the graph. What its operations allocate is memory of a pool, which all
//! graphs of an engine share, as they run in order. Its launches have room for keys of a number that is doubled when a sequence gets
//! longer; the bucket is then captured again. Draws are queued after it, as their options differ.

use std::collections::BTreeMap;

use fulmar_compute::{Compute, Graph, GraphPool, Memory, StepBlock, StepRoom};
use fulmar_core::{Dtype, ErrorKind, Result};

use super::drawing::Drawer;
use super::pass::StepBuffers;
use super::{Rows, Scheduler};
use crate::decoder::PackedDecoder;
use crate::outputs::FinishReason;

/// Ranges of rows of the cache that a block has room for at first, for each of its rows.
const RANGES_EACH: usize = 4;

/// Keys of a row that the launches of attention in bfloat16 have room for at first.
const KEYS_MIN: usize = 256;

/// The graphs of decode steps.
#[derive(Debug, Default)]
pub(super) struct DecodeGraphs {
    /// By number of rows.
    buckets: BTreeMap<usize, Bucket>,
    /// The addresses of what all graphs read and no bucket owns.
    places: Vec<u64>,
    /// The memory that operations of the graphs allocate.
    pool: GraphPool,
}

#[derive(Debug)]
enum Bucket {
    /// One step had that many rows.
    Used,
    /// Its buffers failed, or a card that held them ran out of memory: such steps run as those of any size.
    Failed,
    Held(Box<Captured>),
}

/// The buffers of a bucket, and its graph.
#[derive(Debug)]
struct Captured {
    block: StepBlock,
    buffers: StepBuffers,
    normed: Memory<f32>,
    inv_rms: Memory<f32>,
    /// `None` before the first step in the buffers, and if that could not be captured.
    graph: Option<Graph>,
    has_failed: bool,
}

/// Returns the number of rows of the bucket for `num_rows`.
fn bucket_of(num_rows: usize, max_num_seqs: usize) -> usize {
    let rounded = match num_rows {
        ..=8 => num_rows.next_power_of_two(),
        9..=64 => num_rows.next_multiple_of(8),
        _ => num_rows.next_multiple_of(32),
    };
    rounded.min(max_num_seqs.max(num_rows))
}

impl DecodeGraphs {
    /// Drops all graphs and buffers, as the card has too little memory for other work with them. Those buckets are not used again.
    /// Returns whether there were any.
    pub(super) fn release(&mut self) -> bool {
        let mut was_held = false;
        for bucket in self.buckets.values_mut().filter(|bucket| matches!(bucket, Bucket::Held(_))) {
            (*bucket, was_held) = (Bucket::Failed, true);
        }
        self.pool = GraphPool::default();
        was_held
    }
}

impl Scheduler {
    /// Runs the rows in the buffers of their bucket, by its graph if there is one, and adds padding to them. Returns the number of
    /// rows of the bucket, or `None` if the step is to run as steps of any size do.
    ///
    /// # Errors
    /// The errors of a GPU. The bucket is then not used again.
    pub(super) fn run_bucket(&mut self, packed: PackedDecoder<'_>, rows: &mut Rows) -> Result<Option<usize>> {
        let size = bucket_of(rows.step.len(), self.options.max_num_seqs);
        if !self.can_capture(packed, rows) || rows.step.most_keys() > keys_max(packed, size) {
            return Ok(None);
        }
        self.extend_rope(packed, rows);
        if packed.head().reserve_logits(self.options.max_num_seqs, &mut self.head).is_err() {
            return Ok(None);
        }
        let places = self.places(packed);
        if self.graphs.places != places {
            self.graphs = DecodeGraphs { places, ..DecodeGraphs::default() };
        }
        let mut captured = match self.graphs.buckets.insert(size, Bucket::Failed) {
            None => {
                self.graphs.buckets.insert(size, Bucket::Used);
                return Ok(None);
            }
            Some(Bucket::Failed) => return Ok(None),
            // Without memory for a bucket, steps run as before.
            Some(Bucket::Used) => match Captured::new(packed, room_of(packed, rows, size)) {
                Ok(captured) => Box::new(captured),
                Err(_) => return Ok(None),
            },
            Some(Bucket::Held(captured)) => captured,
        };
        rows.step.pad(size, self.pool.spare_row());
        match self.run_captured(packed, rows, &mut captured) {
            Ok(()) => {}
            // The step runs as those of any size, with the memory that the buckets held.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.graphs.release();
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        self.graphs.buckets.insert(size, Bucket::Held(captured));
        Ok(Some(size))
    }

    /// Runs work that draws nothing before it fails, and once more with the memory of the graphs if a card has too little.
    ///
    /// # Errors
    /// The errors of `work`.
    pub(super) fn with_memory_of_graphs<T>(&mut self, work: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        match work(self) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && self.graphs.release() => work(self),
            done => done,
        }
    }

    /// Returns whether the step can be captured: it is on a GPU, and each of its rows is the last one of a sequence that draws
    /// without drafts.
    fn can_capture(&self, packed: PackedDecoder<'_>, rows: &Rows) -> bool {
        let draws = |&(index, count): &(usize, usize)| {
            let sequence = &self.running[index];
            count == 1 && sequence.computed + 1 == sequence.len() && sequence.num_drawn() > 0
        };
        packed.decoder.compute() != Compute::Cpu
            && rows.kept.is_empty()
            && !rows.counts.is_empty()
            && rows.counts.iter().all(draws)
    }

    /// Returns the addresses of what all graphs read. Pages are those of the device, and with them graphs are dropped.
    fn places(&self, packed: PackedDecoder<'_>) -> Vec<u64> {
        let mut places = packed.places();
        places.extend([self.head.logits_place(), self.rope.angles().len() as u64]);
        places
    }

    fn run_captured(
        &mut self,
        packed: PackedDecoder<'_>,
        rows: &Rows,
        captured: &mut Captured,
    ) -> Result<()> {
        let Compute::Cuda(card) = packed.decoder.compute() else { return Ok(()) };
        if !captured.block.has_room(&rows.step) {
            let room = room_of(packed, rows, rows.step.len());
            (captured.block, captured.graph) = (StepBlock::new(packed.decoder.compute(), room)?, None);
        }
        captured.block.write(&rows.step)?;
        if let Some(graph) = &mut captured.graph {
            let (config, num_rows) = (packed.decoder.config(), self.pool.spare_row() as usize + 1);
            let num_positions = self.rope.angles().len() / config.head_dim();
            assert!(
                rows.step.are_below(config.vocab_size, num_positions, num_rows),
                "rows are those of the cache"
            );
            return graph.queue();
        }
        let pool = self.graphs.pool.clone();
        pool.run(|| {
            self.queue_step(packed, rows, captured)?;
            if !captured.has_failed {
                captured.graph = card.capture(|| self.queue_step(packed, rows, captured)).ok();
                captured.has_failed = captured.graph.is_none();
            }
            Ok(())
        })
    }

    /// Queues all that a graph has.
    fn queue_step(&mut self, packed: PackedDecoder<'_>, rows: &Rows, captured: &mut Captured) -> Result<()> {
        let Captured { buffers, normed, inv_rms, .. } = captured;
        buffers.run(packed, rows, &self.rope, &mut self.pool);
        let head = packed.head();
        head.normalise(buffers.x.view(), normed, inv_rms);
        packed.decoder.compute().check()?;
        if head.is_one_chunk(rows.step.len()) {
            head.logits_of(normed, &mut self.head)?;
        }
        packed.decoder.compute().check()
    }

    /// Draws from the rows of a bucket, which are those of the drawers in order.
    pub(super) fn draw_from_bucket(
        &mut self,
        packed: PackedDecoder<'_>,
        drawers: &[Drawer],
        bucket: usize,
    ) -> Result<Vec<(usize, FinishReason)>> {
        let held = self.graphs.buckets.insert(bucket, Bucket::Failed);
        let Some(Bucket::Held(mut captured)) = held else { return Ok(Vec::new()) };
        let is_known = packed.head().is_one_chunk(bucket);
        let ended = self.draw_normed(packed, drawers, &captured.normed, is_known);
        if !matches!(&ended, Err(error) if error.kind() == ErrorKind::OutOfMemory) {
            self.graphs.buckets.insert(bucket, Bucket::Held(captured));
            return ended;
        }
        // Nothing is drawn yet: it is tried again with the memory that the buckets held.
        let normed = std::mem::take(&mut captured.normed);
        drop(captured);
        self.graphs.release();
        self.draw_normed(packed, drawers, &normed, is_known)
    }
}

impl Captured {
    /// Allocates the buffers of a bucket.
    fn new(packed: PackedDecoder<'_>, room: StepRoom) -> Result<Self> {
        let (compute, config) = (packed.decoder.compute(), packed.decoder.config());
        let mut buffers = StepBuffers::default();
        buffers.resize(packed, room.rows);
        compute.check()?;
        Ok(Self {
            block: StepBlock::new(compute, room)?,
            buffers,
            normed: compute.zeros(room.rows * config.hidden_size)?,
            inv_rms: compute.zeros(room.rows)?,
            graph: None,
            has_failed: false,
        })
    }
}

/// Returns room for `size` rows, the given ones and padding, with twice the ranges that they need and up to twice the keys, as
/// sequences get longer.
fn room_of(packed: PackedDecoder<'_>, rows: &Rows, size: usize) -> StepRoom {
    let ranges = (2 * rows.step.num_ranges() + size).max(RANGES_EACH * size);
    let keys = match packed.decoder.activation_dtype() {
        Dtype::Bf16 => rows.step.most_keys().next_power_of_two().max(KEYS_MIN),
        // Launches do not depend on the keys.
        _ => usize::MAX,
    };
    StepRoom { rows: size, ranges, keys: keys.min(keys_max(packed, size)) }
}

/// Returns the most keys of a row for which steps of `size` rows can be captured.
fn keys_max(packed: PackedDecoder<'_>, size: usize) -> usize {
    match packed.decoder.activation_dtype() {
        Dtype::Bf16 => StepRoom::keys_max(packed.decoder.config().attention(), size),
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_then_eights_then_thirty_twos_up_to_all_sequences() {
        let sizes =
            |rows: &[usize], max: usize| rows.iter().map(|rows| bucket_of(*rows, max)).collect::<Vec<_>>();
        assert_eq!(
            sizes(&[1, 2, 3, 4, 5, 8, 9, 16, 17, 57, 64], 256),
            [1, 2, 4, 4, 8, 8, 16, 16, 24, 64, 64]
        );
        assert_eq!(sizes(&[65, 96, 97, 255, 256], 256), [96, 96, 128, 256, 256]);
        assert_eq!(sizes(&[3, 6, 97, 100], 100), [4, 8, 100, 100]);
        assert_eq!(sizes(&[3, 5], 5), [4, 5]);
    }
}

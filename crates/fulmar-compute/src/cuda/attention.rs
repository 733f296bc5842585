//! Attention of rows in either width; that of bfloat16 rows by tensor cores.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_cuda::{Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::AttentionShape;
use half::bf16;

use super::attention_f32::{self, AttentionPlan, plan_of};
use crate::{Floats, FloatsMut, Spans, kept};

/// Widths of heads that have kernels in bfloat16.
pub(crate) const HEAD_WIDTHS: [usize; 5] = [64, 80, 96, 128, 256];

/// Keys of a block of threads, and of a segment.
const BLOCK: usize = 64;
const SEGMENT: usize = 256;

/// Query heads of a block of threads with many rows, and with one row.
const SLOTS: usize = 64;
const SLOTS_OF_ROW: usize = 16;

/// Most floats of the sums of all segments, 256 MiB. More rows and keys are attended to by tiles, with the same bits, and not by
/// steps that are captured.
const SEGMENT_FLOATS_MAX: usize = 1 << 26;

/// Inputs and results of a forward pass on a card.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a, T> {
    pub q: Slice<'a, T>,
    pub keys: Slice<'a, T>,
    pub values: Slice<'a, T>,
    pub out: Slice<'a, T>,
    pub log_sum: Slice<'a, f32>,
}

/// Tiles of query rows: the keys of each row are the first ones of those of the tile's last row.
#[derive(Debug)]
pub(crate) struct RowTiles {
    /// Most rows of a tile.
    rows_max: usize,
    /// The first row and the end of each tile, in order.
    pub(super) tiles: Vec<[u32; 2]>,
    pub(super) on_card: Buffer<[u32; 2]>,
    /// Rows of the largest tile.
    pub(super) largest: usize,
    /// Keys of the row with most of them.
    most_keys: usize,
}

pub(crate) fn attention(
    card: Card,
    shape: AttentionShape,
    q_nhe: Floats<'_>,
    keys_rke: Floats<'_>,
    values_rke: Floats<'_>,
    spans: &Spans,
    out_nhe: FloatsMut<'_>,
    log_sum_nh2: SliceMut<'_, f32>,
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    let num_rows = spans.num_rows();
    assert_eq!(q_nhe.len(), num_rows * num_heads * head_dim, "a query for each row and head");
    assert_eq!(out_nhe.len(), q_nhe.len(), "an output for each row and head");
    assert_eq!(log_sum_nh2.len(), 2 * num_rows * num_heads, "two numbers for each row and head");
    let last = spans.rows().flatten().map(|range| range.1 as usize).max().unwrap_or(0);
    // Pages may have more memory for keys than for values, after a card ran out of it.
    let rows_len = keys_rke.len().min(values_rke.len());
    assert!(last * num_kv_heads * head_dim <= rows_len, "spans are of rows that are there");
    if num_rows == 0 {
        return Ok(());
    }
    match (q_nhe, keys_rke, values_rke, out_nhe) {
        (Floats::F32(q), Floats::F32(keys), Floats::F32(values), FloatsMut::F32(out)) => {
            let inputs = [q.cuda(card)?, keys.cuda(card)?, values.cuda(card)?];
            attention_f32::attention(card, shape, inputs, spans, out.cuda(card)?, log_sum_nh2)
        }
        (Floats::Bf16(q), Floats::Bf16(keys), Floats::Bf16(values), FloatsMut::Bf16(out)) => {
            let inputs = [q.cuda(card)?, keys.cuda(card)?, values.cuda(card)?];
            in_halves(card, shape, inputs, spans, out.cuda(card)?, log_sum_nh2)
        }
        _ => Err(of_two_widths()),
    }
}

/// Queues attention in bfloat16: a block of threads a segment of a row's keys if no two rows share a tile, as in steps of decoding,
/// else a block a tile of rows. Both give a row the same bits. A plan with room for keys has the segments of all of them.
fn in_halves(
    card: Card,
    shape: AttentionShape,
    inputs: [Slice<'_, bf16>; 3],
    spans: &Spans,
    out: SliceMut<'_, bf16>,
    log_sum: SliceMut<'_, f32>,
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    check_width(card, head_dim)?;
    let (plan, num_rows) = (plan_of(card, spans)?, spans.num_rows());
    if let Some(num_keys) = plan.keys_max {
        if num_keys > segment_keys_max(shape, num_rows) {
            return Err(kept::lacking(
                card,
                &format!("attention of {num_rows} rows with room for {num_keys} keys"),
            ));
        }
        return by_segments(card, shape, inputs, &plan, (num_rows, num_keys), out, log_sum);
    }
    let tiles = row_tiles_of(card, shape, spans)?;
    if tiles.largest == 1 && tiles.most_keys <= segment_keys_max(shape, num_rows) {
        return by_segments(card, shape, inputs, &plan, (num_rows, tiles.most_keys), out, log_sum);
    }
    let ([q, keys, values], AttentionPlan { rows, ranges, .. }) = (inputs, &*plan);
    let (rows, ranges, on_card) = (rows.argument(), ranges.argument(), &tiles.on_card);
    let grid = Grid {
        shared_bytes: ((SLOTS + 2 * BLOCK) * (head_dim + 8) * 2 + head_dim / 2 * 128 * 4) as u32,
        ..tiles.grid(shape)
    };
    let arguments = arguments![q, keys, values, rows, ranges, on_card, num_heads, num_kv_heads, out, log_sum];
    card.queue(&format!("attention_{head_dim}"), grid, arguments)
}

/// Queues attention by segments for `num_rows` rows of up to `num_keys` keys.
fn by_segments(
    card: Card,
    AttentionShape { num_heads, num_kv_heads, head_dim }: AttentionShape,
    [q, keys, values]: [Slice<'_, bf16>; 3],
    plan: &AttentionPlan,
    (num_rows, num_keys): (usize, usize),
    out: SliceMut<'_, bf16>,
    log_sum: SliceMut<'_, f32>,
) -> Result<()> {
    let (rows, ranges) = (plan.rows.argument(), plan.ranges.argument());
    let num_segments = num_keys.div_ceil(SEGMENT);
    let num_sums = num_rows * num_heads * num_segments;
    let (sums, maxima) = (card.room::<f32>(num_sums * head_dim)?, card.room::<f32>(2 * num_sums)?);
    let parts = (num_heads / num_kv_heads).div_ceil(SLOTS_OF_ROW);
    let grid = Grid {
        blocks: ((num_rows * num_kv_heads * parts) as u32, num_segments as u32),
        threads: 32,
        shared_bytes: ((SLOTS_OF_ROW + 2 * BLOCK) * (head_dim + 8) * 2) as u32,
    };
    let arguments = arguments![q, keys, values, rows, ranges, num_heads, num_kv_heads, &sums, &maxima];
    card.queue(&format!("attention_segments_{head_dim}"), grid, arguments)?;
    let grid = Grid { blocks: (num_rows as u32, num_heads as u32), threads: 256, shared_bytes: 0 };
    let arguments = arguments![rows, &sums, &maxima, num_heads, num_segments, head_dim, out, log_sum];
    card.queue("attention_merge", grid, arguments)
}

/// Returns the most keys of a row for which the sums of all segments are at most [`SEGMENT_FLOATS_MAX`].
pub(crate) fn segment_keys_max(shape: AttentionShape, num_rows: usize) -> usize {
    SEGMENT_FLOATS_MAX / (num_rows * shape.num_heads * shape.head_dim).max(1) * SEGMENT
}

/// Refuses a width of heads without kernels in bfloat16.
pub(super) fn check_width(card: Card, head_dim: usize) -> Result<()> {
    if HEAD_WIDTHS.contains(&head_dim) {
        return Ok(());
    }
    Err(kept::lacking(card, &format!("attention of heads of {head_dim} in bfloat16")))
}

pub(super) fn of_two_widths() -> Error {
    let detail = "queries, keys, values and outputs of attention must have one dtype: got f32 and bf16";
    Error::new(ErrorKind::Incompatible, detail)
}

/// Returns the tiles of rows, which hold the query heads of a key/value head for as many rows as fit.
pub(super) fn row_tiles_of(card: Card, shape: AttentionShape, spans: &Spans) -> Result<Arc<RowTiles>> {
    let rows_max = (SLOTS * shape.num_kv_heads / shape.num_heads).max(1);
    let make = || {
        let tiles = tiles_of_rows(spans, rows_max);
        Ok(RowTiles {
            rows_max,
            on_card: card.upload(&tiles)?,
            largest: tiles.iter().map(|[first, end]| (end - first) as usize).max().unwrap_or(0),
            tiles,
            most_keys: spans.most_keys(),
        })
    };
    spans.row_tiles.get(card, |tiles| tiles.rows_max == rows_max, make)
}

impl RowTiles {
    /// Returns the shape of a launch with a block of threads for each tile and key/value head, and for each part of a tile whose
    /// heads are more than fit.
    pub(super) fn grid(&self, shape: AttentionShape) -> Grid {
        let parts = (self.largest * shape.num_heads / shape.num_kv_heads).div_ceil(SLOTS);
        let blocks = (self.tiles.len() as u32, (shape.num_kv_heads * parts) as u32);
        Grid { blocks, threads: 128, shared_bytes: 0 }
    }
}

/// Returns tiles of up to `rows_max` consecutive rows.
fn tiles_of_rows(spans: &fulmar_kernel::Spans, rows_max: usize) -> Vec<[u32; 2]> {
    let (mut tiles, mut before): (Vec<[u32; 2]>, &[(u32, u32)]) = (Vec::new(), &[]);
    for (row, keys) in (0_u32..).zip(spans.rows()) {
        match tiles.last_mut() {
            Some([first, end]) if ((row - *first) as usize) < rows_max && begins(keys, before) => *end += 1,
            _ => tiles.push([row, row + 1]),
        }
        before = keys;
    }
    tiles
}

/// Returns whether the keys in `ranges` begin with those in `first_ones`.
fn begins(ranges: &[(u32, u32)], first_ones: &[(u32, u32)]) -> bool {
    let (mut runs, mut first_runs) = (runs_of(ranges), runs_of(first_ones).peekable());
    while let Some((first, end)) = first_runs.next() {
        let is_last = first_runs.peek().is_none();
        let fits = |run: (u32, u32)| run.0 == first && (run.1 == end || is_last && run.1 > end);
        if !runs.next().is_some_and(fits) {
            return false;
        }
    }
    true
}

/// Returns the longest runs of consecutive keys.
fn runs_of(ranges: &[(u32, u32)]) -> impl Iterator<Item = (u32, u32)> {
    let mut ranges = ranges.iter().copied().filter(|(first, end)| first < end).peekable();
    std::iter::from_fn(move || {
        let (first, mut end) = ranges.next()?;
        while let Some((_, next)) = ranges.next_if(|next| next.0 == end) {
            end = next;
        }
        Some((first, end))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use fulmar_core::Rng;

    use super::*;

    /// Returns rows of blocks of sequences and of prompts with completions, with ranges cut in two and empty ones, and the blocks.
    pub(in crate::cuda) fn ragged(seed: u32) -> (fulmar_kernel::Spans, Vec<(u32, u32)>) {
        let mut rng = Rng::new(u64::from(seed)).stream("ragged");
        let mut below = |end: u32| rng.next_u32() % end;
        let (mut spans, mut blocks) = (fulmar_kernel::Spans::default(), Vec::new());
        for _ in 0..=below(3) {
            let (first, prompt) = (spans.num_rows() as u32, below(90) + 1);
            let mut push = |ranges: &[(u32, u32)]| {
                let mut cut = Vec::new();
                for &(first, end) in ranges {
                    let middle = first + below(end - first + 1);
                    cut.extend([(first, middle), (middle, end)]);
                }
                spans.push_row(&cut);
            };
            (0..prompt).for_each(|row| push(&[(first, first + row + 1)]));
            let mut own = first + prompt;
            for len in [0, 1, 40, 70].map(|len| len * (seed % 3)) {
                (0..len).for_each(|row| push(&[(first, first + prompt), (own, own + row + 1)]));
                own += len;
            }
            blocks.push((first, own));
        }
        (spans, blocks)
    }

    /// Returns the keys of each row.
    pub(in crate::cuda) fn keys_of(spans: &fulmar_kernel::Spans) -> Vec<Vec<u32>> {
        let keys = |ranges: &[(u32, u32)]| ranges.iter().flat_map(|(first, end)| *first..*end).collect();
        spans.rows().map(keys).collect()
    }

    /// Returns tiles of rows by a list of all their keys.
    pub(in crate::cuda) fn listed_tiles(keys: &[Vec<u32>], rows_max: usize) -> Vec<[u32; 2]> {
        let mut tiles: Vec<[u32; 2]> = Vec::new();
        for row in 0..keys.len() {
            let follows =
                |first: u32| row - (first as usize) < rows_max && keys[row].starts_with(&keys[row - 1]);
            match tiles.last_mut() {
                Some([first, end]) if follows(*first) => *end += 1,
                _ => tiles.push([row as u32, row as u32 + 1]),
            }
        }
        tiles
    }

    #[test]
    fn rows_of_a_tile_see_the_first_keys_of_its_last_row() {
        for seed in 0..30 {
            let (spans, _) = ragged(seed);
            let keys = keys_of(&spans);
            for rows_max in [1, 3, 64] {
                let expected = listed_tiles(&keys, rows_max);
                assert_eq!(tiles_of_rows(&spans, rows_max), expected, "seed {seed}, {rows_max} rows");
            }
        }
    }

    #[test]
    fn keys_begin_with_others_whatever_their_ranges() {
        let whole = [(3, 9), (20, 24)];
        for first_ones in [&[][..], &[(3, 5)], &[(3, 3), (3, 9)], &[(3, 6), (6, 9), (20, 22)], &whole] {
            assert!(begins(&whole, first_ones), "{first_ones:?}");
        }
        for others in [&[(4, 9)][..], &[(3, 8), (20, 21)], &[(3, 10)], &[(3, 9), (20, 25)], &[(20, 24)]] {
            assert!(!begins(&whole, others), "{others:?}");
        }
        assert!(!begins(&whole[..1], &whole));
    }
}

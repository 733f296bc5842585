//! Attention of f32 rows, and its gradients.

use std::sync::Arc;

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::AttentionShape;

use super::attention::Saved;
use crate::Spans;
use crate::plan::Words;

/// Keys that a block holds at once.
const TILE: usize = 64;

/// Key/value rows of a block in the gradients of keys and values, and the query rows and queries that it holds at once.
const KEYS: usize = 16;
const ROWS: usize = 32;
const QUERIES: usize = 16;

/// The rows of keys that each query row attends to, as kernels read them.
#[derive(Debug)]
pub(crate) struct AttentionPlan {
    /// The end of each row's ranges, and its number of keys.
    pub rows: Words,
    /// The first row of each range, and the number of keys of its row before it.
    pub ranges: Words,
    /// Most keys of a row that the launches of attention have room for, if they are the same for all rows with no more of them.
    pub keys_max: Option<usize>,
}

/// The tiles of the backward pass.
#[derive(Debug)]
pub(crate) struct GradientPlan {
    /// The blocks that the tiles are made for.
    blocks: Vec<(u32, u32)>,
    /// Key/value rows of a block of threads, the first and the end, with the query rows that may attend to them.
    key_tiles: Buffer<[u32; 4]>,
}

pub(super) fn attention(
    card: Card,
    shape: AttentionShape,
    [q_nhe, keys_rke, values_rke]: [Slice<'_, f32>; 3],
    spans: &Spans,
    out_nhe: SliceMut<'_, f32>,
    log_sum_nh2: SliceMut<'_, f32>,
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    let plan = plan_of(card, spans)?;
    let arguments = arguments![
        q_nhe,
        keys_rke,
        values_rke,
        plan.rows.argument(),
        plan.ranges.argument(),
        num_heads,
        num_kv_heads,
        head_dim,
        out_nhe,
        log_sum_nh2
    ];
    card.queue(
        "attention_f32",
        grid(spans.num_rows(), num_heads, head_dim, head_dim + 2 * TILE + 9),
        arguments,
    )
}

/// Queues the gradients of queries, keys and values, in this order.
pub(super) fn attention_backward(
    card: Card,
    shape: AttentionShape,
    saved: Saved<'_, f32>,
    (spans, blocks): (&Spans, &[(u32, u32)]),
    d_out_nhe: Slice<'_, f32>,
    [d_q_nhe, d_keys_nke, d_values_nke]: [SliceMut<'_, f32>; 3],
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    let (num_rows, Saved { q, keys, values, out, log_sum }) = (spans.num_rows(), saved);
    let (plan, tiles) = (plan_of(card, spans)?, gradient_plan_of(card, spans, blocks)?);
    let along = card.zeros::<f32>(num_rows * num_heads)?;
    let arguments = arguments![
        q,
        keys,
        values,
        plan.rows.argument(),
        plan.ranges.argument(),
        out,
        log_sum,
        d_out_nhe,
        num_heads,
        num_kv_heads,
        head_dim,
        d_q_nhe,
        &along
    ];
    let of_rows = grid(num_rows, num_heads, head_dim, 2 * head_dim + 2 * TILE + 1);
    card.queue("attention_f32_backward_queries", of_rows, arguments)?;
    let arguments = arguments![
        q,
        keys,
        values,
        plan.rows.argument(),
        plan.ranges.argument(),
        &tiles.key_tiles,
        log_sum,
        d_out_nhe,
        &along,
        num_heads,
        num_kv_heads,
        head_dim,
        d_keys_nke,
        d_values_nke
    ];
    let of_keys = grid(tiles.key_tiles.len(), num_kv_heads, head_dim, 2 * QUERIES * KEYS + ROWS);
    card.queue("attention_f32_backward_keys", of_keys, arguments)
}

/// Returns the shape of a launch with a thread for each element of a head.
fn grid(rows: usize, heads: usize, head_dim: usize, shared_floats: usize) -> Grid {
    let threads = head_dim.next_multiple_of(32) as u32;
    Grid { blocks: (rows as u32, heads as u32), threads, shared_bytes: 4 * shared_floats as u32 }
}

pub(super) fn plan_of(card: Card, spans: &Spans) -> Result<Arc<AttentionPlan>> {
    spans.plan.get(card, |_| true, || AttentionPlan::of(card, spans.rows()))
}

fn gradient_plan_of(card: Card, spans: &Spans, blocks: &[(u32, u32)]) -> Result<Arc<GradientPlan>> {
    spans.gradient_plan.get(card, |plan| plan.blocks == blocks, || GradientPlan::of(card, spans, blocks))
}

impl AttentionPlan {
    fn of(card: Card, rows: impl Iterator<Item = impl AsRef<[(u32, u32)]>>) -> Result<Self> {
        let (mut words, ranges) = Self::words(rows);
        let first = words.len();
        words.extend(ranges);
        let rows = Words::upload(card, &words)?;
        Ok(Self { ranges: rows.from(first), rows, keys_max: None })
    }

    /// Returns the numbers of `rows` and of `ranges`, both in pairs.
    pub(crate) fn words(rows: impl Iterator<Item = impl AsRef<[(u32, u32)]>>) -> (Vec<u32>, Vec<u32>) {
        let (mut ends, mut ranges) = (Vec::new(), Vec::new());
        for row in rows {
            let mut before = 0;
            for (first, end) in row.as_ref() {
                ranges.extend([*first, before]);
                before += end - first;
            }
            ends.extend([ranges.len() as u32 / 2, before]);
        }
        (ends, ranges)
    }
}

impl GradientPlan {
    fn of(card: Card, spans: &Spans, blocks: &[(u32, u32)]) -> Result<Self> {
        let (mut key_tiles, mut rows) = (Vec::new(), 0);
        for &(first, end) in blocks {
            assert_eq!(first, rows, "blocks cover every row in order");
            let keys = (first..end).step_by(KEYS);
            key_tiles.extend(keys.map(|key| [key, end.min(key + KEYS as u32), first, end]));
            rows = end;
        }
        assert_eq!(rows as usize, spans.num_rows(), "blocks cover every row");
        Ok(Self { blocks: blocks.to_vec(), key_tiles: card.upload(&key_tiles)? })
    }
}

//! Attention of f32 rows.

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::{AttentionShape, Spans};

/// Keys that a block holds at once.
const TILE: usize = 64;

/// The rows of keys that each query row attends to, as kernels read them.
struct Plan {
    /// The end of each row's ranges, and its number of keys.
    rows: Vec<[u32; 2]>,
    /// The first row of each range, and the number of keys of its row before it.
    ranges: Vec<[u32; 2]>,
}

pub(crate) fn attention(
    card: Card,
    shape: AttentionShape,
    q_nhe: Slice<'_, f32>,
    keys_rke: Slice<'_, f32>,
    values_rke: Slice<'_, f32>,
    spans: &Spans,
    out_nhe: SliceMut<'_, f32>,
    log_sum_nh2: SliceMut<'_, f32>,
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    let num_rows = spans.num_rows();
    assert_eq!(q_nhe.len(), num_rows * num_heads * head_dim, "a query for each row and head");
    assert_eq!(out_nhe.len(), q_nhe.len(), "an output for each row and head");
    assert_eq!(log_sum_nh2.len(), 2 * num_rows * num_heads, "two numbers for each row and head");
    assert_eq!(keys_rke.len(), values_rke.len(), "a value for each key");
    let last = spans.rows().flatten().map(|range| range.1 as usize).max().unwrap_or(0);
    assert!(last * num_kv_heads * head_dim <= keys_rke.len(), "spans are of rows that are there");
    if num_rows == 0 {
        return Ok(());
    }
    let Plan { rows, ranges } = Plan::of(spans);
    let (rows, ranges) = (card.upload(&rows)?, card.upload(&ranges)?);
    let grid = Grid {
        blocks: (num_rows as u32, num_heads as u32),
        threads: head_dim.next_multiple_of(32) as u32,
        shared_bytes: ((head_dim + 2 * TILE + 9) * 4) as u32,
    };
    card.queue(
        "attention_f32",
        grid,
        arguments![
            q_nhe,
            keys_rke,
            values_rke,
            &rows,
            &ranges,
            num_heads,
            num_kv_heads,
            head_dim,
            out_nhe,
            log_sum_nh2
        ],
    )
}

impl Plan {
    fn of(spans: &Spans) -> Self {
        let mut plan = Self { rows: Vec::with_capacity(spans.num_rows()), ranges: Vec::new() };
        for row in spans.rows() {
            let mut before = 0;
            for (first, end) in row {
                plan.ranges.push([*first, before]);
                before += end - first;
            }
            plan.rows.push([plan.ranges.len() as u32, before]);
        }
        plan
    }
}

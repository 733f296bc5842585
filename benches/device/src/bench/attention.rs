//! Attention over sequences, of one row each, and its gradients.

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, arguments};
use half::bf16;

use super::{Work, halves, numbers, repeated, sized};
use crate::check;
use crate::check::spans::Layout;

/// Four sequences, of 14 heads of 64 and 2 key/value heads.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn f32_sequences(card: &Card) -> Result<Work> {
    let (heads, kv_heads, width) = (14, 2, 64);
    let layout = Layout::sequences(&[sized(card, 1_024, 4); 4]);
    let (rows, plan) = (layout.rows.len(), layout.plan(card)?);
    let q = numbers(card, "q", rows * heads * width)?;
    let [keys, values] = ["keys", "values"].map(|name| numbers(card, name, rows * kv_heads * width));
    let (keys, values) = (keys?, values?);
    let (out, log_sum) =
        (card.poisoned::<f32>(rows * heads * width)?, card.poisoned::<f32>(2 * rows * heads)?);
    let queue = move |card: &Card| {
        let (spans, ranges) = (&plan.rows, &plan.ranges);
        let arguments = arguments![&q, &keys, &values, spans, ranges, heads, kv_heads, width, &out, &log_sum];
        card.queue("attention_f32", check::attention_f32::grid(rows, heads, width), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {heads} x {width}"),
        queue: Box::new(queue),
        bytes: 4 * width * rows * 2 * (heads + kv_heads),
        operations: 4 * layout.num_pairs() * heads * width,
    })
}

/// Sequences of 4,096, of 16 heads of 128.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn sequences(card: &Card) -> Result<Work> {
    let sizes @ [heads, kv_heads, width] = sized(card, [16, 16, 128], [2, 2, 128]);
    let layout = Layout::sequences(&[sized(card, 4_096, 4); 4]);
    let (rows, tiles, plan) = (layout.rows.len(), layout.tiles_of_rows(64), layout.plan(card)?);
    let [q, keys, values] = ["q", "keys", "values"].map(|name| halves(card, name, rows * heads * width));
    let (q, keys, values, tiles_at) = (q?, keys?, values?, card.upload(&tiles)?);
    let (out, sums) = (card.poisoned::<bf16>(rows * heads * width)?, card.poisoned::<f32>(2 * rows * heads)?);
    let queue = move |card: &Card| {
        let (spans, ranges) = (&plan.rows, &plan.ranges);
        let arguments =
            arguments![&q, &keys, &values, spans, ranges, &tiles_at, heads, kv_heads, &out, &sums];
        card.queue("attention_128", check::attention::grid(&tiles, sizes), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {heads} x {width}"),
        queue: Box::new(queue),
        bytes: 2 * width * rows * 2 * (heads + kv_heads),
        operations: 4 * layout.num_pairs() * heads * width,
    })
}

/// Gradients of the same sequences. Five products are counted, though the two kernels compute seven.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn gradients(card: &Card) -> Result<Work> {
    let sizes @ [heads, kv_heads, width] = sized(card, [16, 16, 128], [2, 2, 128]);
    let layout = Layout::sequences(&[sized(card, 4_096, 4); 4]);
    let (rows, plan) = (layout.rows.len(), layout.plan(card)?);
    let tiles = (layout.tiles_of_rows(64), layout.causal_tiles(check::attention_backward::TILE_KEYS));
    let tiles_at = (card.upload(&tiles.0)?, card.upload(&tiles.1)?);
    let len = rows * heads * width;
    let [q, keys, values] = ["q", "keys", "values"].map(|name| halves(card, name, len));
    let (q, keys, values) = (q?, keys?, values?);
    let (out, d_out) = (halves(card, "out", len)?, halves(card, "d_out", len)?);
    // Maxima and sums of weights that no weight overflows against.
    let sums = repeated(card, &[100.0_f32, 1.0], 2 * rows * heads)?;
    let (d_q, along) = (card.poisoned::<f32>(len)?, card.poisoned::<f32>(rows * heads)?);
    let (d_keys, d_values) = (card.poisoned::<f32>(len)?, card.poisoned::<f32>(len)?);
    let queue = move |card: &Card| {
        let (spans, ranges) = (&plan.rows, &plan.ranges);
        let grid = check::attention_backward::queries_grid(&tiles.0, sizes);
        let arguments = arguments![
            &q,
            &keys,
            &values,
            spans,
            ranges,
            &tiles_at.0,
            &out,
            &sums,
            &d_out,
            heads,
            kv_heads,
            &d_q,
            &along
        ];
        card.queue("attention_backward_queries_128", grid, arguments)?;
        let grid = check::attention_backward::keys_grid(tiles.1.len(), sizes);
        let arguments = arguments![
            &q,
            &keys,
            &values,
            spans,
            ranges,
            &tiles_at.1,
            &sums,
            &d_out,
            &along,
            heads,
            kv_heads,
            &d_keys,
            &d_values
        ];
        card.queue("attention_backward_keys_128", grid, arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {heads} x {width}"),
        queue: Box::new(queue),
        bytes: 2 * len * 5 + 4 * len * 3,
        operations: 10 * layout.num_pairs() * heads * width,
    })
}

/// Rows with 2,048 keys each, in pages of 16, of 16 heads of 128 and 2 key/value heads: reading keys and values is the limit.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn rows(card: &Card) -> Result<Work> {
    let sizes @ [heads, kv_heads, width] = [16, 2, 128];
    let (rows, keys_each) = (sized(card, 256, 2), sized(card, 2_048, 65));
    let layout = Layout::paged(&vec![keys_each; rows], 16);
    let (plan, kv_len) = (layout.plan(card)?, layout.num_keys * kv_heads * width);
    let q = halves(card, "q", rows * heads * width)?;
    let (keys, values) = (halves(card, "keys", kv_len)?, halves(card, "values", kv_len)?);
    let grid = check::attention::segments_grid(rows, keys_each as usize, sizes);
    let segments = grid.blocks.1;
    let sums_len = rows * heads * segments as usize;
    let (sums, maxima) = (card.poisoned::<f32>(sums_len * width)?, card.poisoned::<f32>(2 * sums_len)?);
    let out = card.poisoned::<bf16>(rows * heads * width)?;
    let queue = move |card: &Card| {
        let (spans, ranges) = (&plan.rows, &plan.ranges);
        let arguments = arguments![&q, &keys, &values, spans, ranges, heads, kv_heads, &sums, &maxima];
        card.queue("attention_segments_128", grid, arguments)?;
        let none = None::<&Buffer<f32>>;
        let arguments = arguments![spans, &sums, &maxima, heads, segments, width, &out, none];
        card.queue("attention_merge", check::attention::merge_grid(rows, heads), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {heads} x {width}, {keys_each} keys"),
        queue: Box::new(queue),
        bytes: 2 * 2 * layout.num_pairs() * kv_heads * width,
        operations: 0,
    })
}

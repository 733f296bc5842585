//! Gradients of attention in either width; those of bfloat16 rows by tensor cores.

use std::sync::Arc;

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::AttentionShape;
use half::bf16;

use super::attention::{RowTiles, Saved, check_width, of_two_widths, row_tiles_of};
use super::attention_f32::{self, AttentionPlan, plan_of};
use super::cast;
use crate::{AttentionSaved, Floats, Spans};

/// Key/value rows of a block of threads.
const TILE_KEYS: u32 = 64;

/// Heads that a block holds in shared memory.
const LINES: usize = 256;

/// Elements of a head that a block computes the gradients of.
const COLUMNS: usize = 128;

/// Tiles of key/value rows.
#[derive(Debug)]
pub(crate) struct KeyTiles {
    /// The blocks and the tiles of rows that the tiles are made for.
    blocks: Vec<(u32, u32)>,
    row_tiles: Arc<RowTiles>,
    /// The first key/value row and the end of each tile, the first query row that attends to any of them and the end of these rows.
    tiles: Buffer<[u32; 4]>,
}

#[expect(clippy::too_many_arguments, reason = "the operation has eight, and the card is one more argument")]
pub(crate) fn attention_backward(
    card: Card,
    shape: AttentionShape,
    saved: AttentionSaved<'_>,
    spans: &Spans,
    blocks: &[(u32, u32)],
    d_out_nhe: Slice<'_, f32>,
    d_q_nhe: SliceMut<'_, f32>,
    d_keys_nke: SliceMut<'_, f32>,
    d_values_nke: SliceMut<'_, f32>,
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    let (num_rows, kv_width) = (spans.num_rows(), num_kv_heads * head_dim);
    let AttentionSaved { q, keys, values, out, log_sum } = saved;
    let of_queries = [q.len(), out.len(), d_out_nhe.len(), d_q_nhe.len()];
    assert_eq!(of_queries, [num_rows * num_heads * head_dim; 4], "a query for each row and head");
    let of_keys = [keys.len(), values.len(), d_keys_nke.len(), d_values_nke.len()];
    assert_eq!(of_keys, [num_rows * kv_width; 4], "a query row and a key/value row of a number are one row");
    assert_eq!(log_sum.len(), 2 * num_rows * num_heads, "two numbers for each row and head");
    if num_rows == 0 {
        return Ok(());
    }
    let (log_sum, plans) = (log_sum.cuda(card)?, (spans, blocks));
    let gradients = [d_q_nhe, d_keys_nke, d_values_nke];
    match (q, keys, values, out) {
        (Floats::F32(q), Floats::F32(keys), Floats::F32(values), Floats::F32(out)) => {
            let (q, keys, values, out) =
                (q.cuda(card)?, keys.cuda(card)?, values.cuda(card)?, out.cuda(card)?);
            let saved = Saved { q, keys, values, out, log_sum };
            attention_f32::attention_backward(card, shape, saved, plans, d_out_nhe, gradients)
        }
        (Floats::Bf16(q), Floats::Bf16(keys), Floats::Bf16(values), Floats::Bf16(out)) => {
            let (q, keys, values, out) =
                (q.cuda(card)?, keys.cuda(card)?, values.cuda(card)?, out.cuda(card)?);
            let saved = Saved { q, keys, values, out, log_sum };
            in_halves(card, shape, saved, plans, d_out_nhe, gradients)
        }
        _ => Err(of_two_widths()),
    }
}

/// Queues the gradients of bfloat16 rows, for which those of the outputs are rounded.
fn in_halves(
    card: Card,
    shape: AttentionShape,
    Saved { q, keys, values, out, log_sum }: Saved<'_, bf16>,
    (spans, blocks): (&Spans, &[(u32, u32)]),
    d_out_nhe: Slice<'_, f32>,
    [d_q, d_keys, d_values]: [SliceMut<'_, f32>; 3],
) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    check_width(card, head_dim)?;
    let (plan, row_tiles) = (plan_of(card, spans)?, row_tiles_of(card, shape, spans)?);
    let key_tiles = key_tiles_of(card, spans, blocks, &row_tiles)?;
    let AttentionPlan { rows, ranges, .. } = &*plan;
    let (rows, ranges) = (rows.argument(), ranges.argument());
    let mut d_out = card.room::<bf16>(d_out_nhe.len())?;
    cast::f32_to_bf16(card, d_out_nhe, d_out.view_mut())?;
    let along = card.room::<f32>(spans.num_rows() * num_heads)?;
    let lines_bytes = LINES * (head_dim + 8) * 2;
    let arguments = arguments![
        q,
        keys,
        values,
        rows,
        ranges,
        &row_tiles.on_card,
        out,
        log_sum,
        &d_out,
        num_heads,
        num_kv_heads,
        d_q,
        &along
    ];
    let grid = Grid { shared_bytes: lines_bytes as u32, ..row_tiles.grid(shape) };
    card.queue(&format!("attention_backward_queries_{head_dim}"), grid, arguments)?;
    let arguments = arguments![
        q,
        keys,
        values,
        rows,
        ranges,
        &key_tiles.tiles,
        log_sum,
        &d_out,
        &along,
        num_heads,
        num_kv_heads,
        d_keys,
        d_values
    ];
    let grid = Grid {
        blocks: (key_tiles.tiles.len() as u32, (num_kv_heads * head_dim.div_ceil(COLUMNS)) as u32),
        threads: 128,
        // A slot of a stage has five words.
        shared_bytes: (lines_bytes + 2 * 32 * 5 * 4) as u32,
    };
    card.queue(&format!("attention_backward_keys_{head_dim}"), grid, arguments)
}

fn key_tiles_of(
    card: Card,
    spans: &Spans,
    blocks: &[(u32, u32)],
    row_tiles: &Arc<RowTiles>,
) -> Result<Arc<KeyTiles>> {
    let fits = |tiles: &KeyTiles| tiles.blocks == blocks && Arc::ptr_eq(&tiles.row_tiles, row_tiles);
    let make = || {
        let tiles = card.upload(&tiles_of_keys(spans, blocks, &row_tiles.tiles))?;
        Ok(KeyTiles { blocks: blocks.to_vec(), row_tiles: Arc::clone(row_tiles), tiles })
    };
    spans.key_tiles.get(card, fits, make)
}

/// Returns tiles of key/value rows, each with the query rows from the first tile of rows that attends to it to the last.
fn tiles_of_keys(
    spans: &fulmar_kernel::Spans,
    blocks: &[(u32, u32)],
    row_tiles: &[[u32; 2]],
) -> Vec<[u32; 4]> {
    let rows: Vec<&[(u32, u32)]> = spans.rows().collect();
    let (mut tiles, mut row_tiles, mut covered) = (Vec::new(), row_tiles.iter().peekable(), 0);
    for &(first, end) in blocks {
        assert_eq!(first, covered, "blocks cover every row in order");
        covered = end;
        let keys = (first..end).step_by(TILE_KEYS as usize);
        let mut of_block: Vec<[u32; 4]> =
            keys.map(|key| [key, end.min(key + TILE_KEYS), end, first]).collect();
        while let Some(&[first_row, end_row]) = row_tiles.next_if(|tile| tile[1] <= end) {
            // The last row of a tile attends to the keys of all of its rows.
            for (first_key, end_key) in rows[end_row as usize - 1].iter().filter(|(key, end)| key < end) {
                let seen = (first_key - first) / TILE_KEYS..=(end_key - 1 - first) / TILE_KEYS;
                for tile in &mut of_block[*seen.start() as usize..=*seen.end() as usize] {
                    (tile[2], tile[3]) = (tile[2].min(first_row), tile[3].max(end_row));
                }
            }
        }
        // A block of threads has at least one row to read, which gives keys that no row attends to zeros.
        of_block.iter_mut().filter(|tile| tile[2] >= tile[3]).for_each(|tile| {
            (tile[2], tile[3]) = (first, first + 1);
        });
        tiles.append(&mut of_block);
    }
    assert_eq!(covered as usize, rows.len(), "blocks cover every row");
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::attention::tests::{keys_of, listed_tiles, ragged};

    #[test]
    fn a_tile_of_keys_has_the_rows_that_attend_to_it() {
        for seed in 0..12 {
            let (spans, blocks) = ragged(seed);
            let keys = keys_of(&spans);
            for rows_max in [1, 3, 64] {
                let row_tiles = listed_tiles(&keys, rows_max);
                let tile_of = |first: u32, end: u32| {
                    let sees = |tile: &&[u32; 2]| {
                        let mut keys = keys[tile[0] as usize..tile[1] as usize].iter().flatten();
                        keys.any(|key| (first..end).contains(key))
                    };
                    let seeing: Vec<&[u32; 2]> = row_tiles.iter().filter(sees).collect();
                    [first, end, seeing[0][0], seeing[seeing.len() - 1][1]]
                };
                let tiles_of = |&(first, end): &(u32, u32)| -> Vec<[u32; 4]> {
                    (first..end).step_by(64).map(|key| tile_of(key, end.min(key + 64))).collect()
                };
                let expected: Vec<[u32; 4]> = blocks.iter().flat_map(tiles_of).collect();
                let tiles = tiles_of_keys(&spans, &blocks, &row_tiles);
                assert_eq!(tiles, expected, "seed {seed}, {rows_max} rows");
            }
        }
    }

    #[test]
    fn keys_of_no_row_have_a_row_to_read() {
        let mut spans = fulmar_kernel::Spans::default();
        (0..70).for_each(|_| spans.push_row(&[(0, 1)]));
        assert_eq!(tiles_of_keys(&spans, &[(0, 70)], &[[0, 70]]), [[0, 64, 0, 70], [64, 70, 0, 1]]);
    }
}

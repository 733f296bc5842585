//! Biases of rows and rotations of heads.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::RopeTable;

use super::{add_chunks, queue_over, rows_each};

const THREADS: u32 = 128;

pub(crate) fn add_bias(card: Card, x_nd: SliceMut<'_, f32>, bias_d: Slice<'_, f32>) -> Result<()> {
    let (len, width) = (x_nd.len(), bias_d.len());
    assert!(len == 0 || len.is_multiple_of(width), "rows of one width");
    queue_over(card, "add_bias", len, arguments![x_nd, bias_d, width, len])
}

pub(crate) fn bias_backward(card: Card, d_out_nd: Slice<'_, f32>, d_bias_d: SliceMut<'_, f32>) -> Result<()> {
    let width = d_bias_d.len();
    if d_out_nd.is_empty() {
        return Ok(());
    }
    let (rows, rows_each) = (d_out_nd.len() / width, rows_each(width));
    let chunks = rows.div_ceil(rows_each);
    let sums = card.zeros::<f32>(chunks * width)?;
    let blocks = (width.div_ceil(THREADS as usize) as u32, chunks as u32);
    card.queue(
        "bias_sums",
        Grid { blocks, threads: THREADS, shared_bytes: 0 },
        arguments![d_out_nd, rows, width, width, rows_each, &sums],
    )?;
    add_chunks(card, sums.view(), chunks, width, d_bias_d)
}

/// Rotates each head in its place, as queries without a bias and a norm.
pub(crate) fn rotate(
    card: Card,
    table: &RopeTable,
    x_nhe: SliceMut<'_, f32>,
    num_heads: usize,
    positions_n: &[u32],
) -> Result<()> {
    let rows = positions_n.len();
    if rows == 0 {
        return Ok(());
    }
    let width = x_nhe.len() / (rows * num_heads);
    let (angles, positions) = (card.upload(table.angles())?, card.upload(positions_n)?);
    let (none, x) = (None::<&Buffer<f32>>, Argument::from(x_nhe));
    let arguments = arguments![
        x, none, none, none, 0.0_f32, &angles, &positions, none, num_heads, 0_u32, width, x, none, none, none
    ];
    card.queue("heads", Grid::of_rows(rows, THREADS, (4 * width * 4) as u32), arguments)
}

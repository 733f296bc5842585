//! Root-mean-square normalisation of rows, and its gradients.

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, Slice, SliceMut, arguments};

use super::{add_chunks, rows_each};
use crate::FloatsMut;

const THREADS: u32 = 128;

pub(crate) fn rms_norm(
    card: Card,
    x_nd: Slice<'_, f32>,
    weight_d: Slice<'_, f32>,
    eps: f32,
    out_nd: FloatsMut<'_>,
    inv_rms_n: SliceMut<'_, f32>,
) -> Result<()> {
    let (rows, width) = (inv_rms_n.len(), weight_d.len());
    assert!(x_nd.len() == rows * width && out_nd.len() == x_nd.len(), "rows of one width");
    if rows == 0 {
        return Ok(());
    }
    let (kernel, out) = out_nd.written_by(card, ["rms_norm", "rms_norm_bf16"])?;
    card.queue(kernel, grid(rows, width), arguments![x_nd, weight_d, eps, width, out, inv_rms_n])
}

pub(crate) fn rms_norm_backward(
    card: Card,
    x_nd: Slice<'_, f32>,
    weight_d: Slice<'_, f32>,
    inv_rms_n: Slice<'_, f32>,
    d_out_nd: Slice<'_, f32>,
    d_x_nd: SliceMut<'_, f32>,
    d_weight_d: Option<SliceMut<'_, f32>>,
) -> Result<()> {
    let (rows, width) = (inv_rms_n.len(), weight_d.len());
    let has_one_shape = [x_nd.len(), d_out_nd.len(), d_x_nd.len()].iter().all(|len| *len == rows * width);
    assert!(has_one_shape, "rows of one width");
    if rows == 0 {
        return Ok(());
    }
    let arguments = arguments![x_nd, weight_d, inv_rms_n, d_out_nd, width, d_x_nd];
    card.queue("rms_norm_backward", grid(rows, width), arguments)?;
    let Some(d_weight_d) = d_weight_d else { return Ok(()) };
    let rows_each = rows_each(width);
    let chunks = rows.div_ceil(rows_each);
    let sums = card.zeros::<f32>(chunks * width)?;
    let blocks = (width.div_ceil(THREADS as usize) as u32, chunks as u32);
    card.queue(
        "rms_norm_weight_sums",
        Grid { blocks, threads: THREADS, shared_bytes: 0 },
        arguments![x_nd, inv_rms_n, d_out_nd, rows, width, rows_each, &sums],
    )?;
    add_chunks(card, sums.view(), chunks, width, d_weight_d)
}

pub(crate) fn mask_overflow(card: Card, out_nd: SliceMut<'_, f32>, inv_rms_n: Slice<'_, f32>) -> Result<()> {
    let rows = inv_rms_n.len();
    if rows == 0 {
        return Ok(());
    }
    let width = out_nd.len() / rows;
    card.queue("mask_overflow", Grid::of_rows(rows, THREADS, 0), arguments![out_nd, inv_rms_n, width])
}

fn grid(rows: usize, width: usize) -> Grid {
    Grid::of_rows(rows, THREADS, 4 * (width as u32 + 1))
}

//! Biases of rows and rotations of heads.

use std::sync::Arc;

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, SliceMut, arguments};
use half::bf16;

use super::{add_chunks, queue_over, rows_each};
use crate::plan::Words;
use crate::{Numbers, RopeTable};

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

/// Rotates each head in its place.
pub(crate) fn rotate(
    card: Card,
    table: &RopeTable,
    x_nhe: SliceMut<'_, f32>,
    num_heads: usize,
    positions_n: Numbers<'_>,
) -> Result<()> {
    let turn = Turn::of(card, table, x_nhe.len(), num_heads, positions_n)?;
    let x = Argument::from(x_nhe);
    turn.map_or(Ok(()), |turn| turn.forward(card, "heads", x, num_heads, x))
}

/// Rotates each head and rounds it to bfloat16.
pub(crate) fn rotate_rounded(
    card: Card,
    table: &RopeTable,
    x_nhe: Slice<'_, f32>,
    num_heads: usize,
    positions_n: Numbers<'_>,
    out_nhe: SliceMut<'_, bf16>,
) -> Result<()> {
    assert_eq!(out_nhe.len(), x_nhe.len(), "both have one length");
    let turn = Turn::of(card, table, x_nhe.len(), num_heads, positions_n)?;
    turn.map_or(Ok(()), |turn| turn.forward(card, "heads_bf16", x_nhe.into(), num_heads, out_nhe.into()))
}

/// Rotates the gradient of each head back in its place.
pub(crate) fn rotate_back(
    card: Card,
    table: &RopeTable,
    d_nhe: SliceMut<'_, f32>,
    num_heads: usize,
    positions_n: Numbers<'_>,
) -> Result<()> {
    let Some(Turn { width, angles, positions, grid }) =
        Turn::of(card, table, d_nhe.len(), num_heads, positions_n)?
    else {
        return Ok(());
    };
    let (none, d) = (None::<&Buffer<f32>>, Argument::from(d_nhe));
    let arguments = arguments![
        none,
        none,
        none,
        none,
        &*angles,
        positions.argument(),
        d,
        none,
        none,
        num_heads,
        0_u32,
        width,
        d
    ];
    card.queue("heads_backward", grid, arguments)
}

/// Inputs of both rotations on a card.
struct Turn {
    width: usize,
    angles: Arc<Buffer<f32>>,
    positions: Arc<Words>,
    grid: Grid,
}

impl Turn {
    fn of(
        card: Card,
        table: &RopeTable,
        len: usize,
        num_heads: usize,
        positions_n: Numbers<'_>,
    ) -> Result<Option<Self>> {
        let rows = positions_n.cpu().len();
        if rows == 0 {
            return Ok(None);
        }
        let width = len / (rows * num_heads);
        assert_eq!(len, rows * num_heads * width, "one position a row");
        let last = positions_n.cpu().iter().max().map_or(0, |last| *last as usize + 1);
        assert!(last * width <= table.angles().len(), "positions are within the table");
        let (angles, positions) = (table.on(card)?, positions_n.on(card)?);
        // Both kernels have two floats an element of a head for each of four warps at most.
        let grid = Grid::of_rows(rows, THREADS, (8 * width * 4) as u32);
        Ok(Some(Self { width, angles, positions, grid }))
    }

    /// Queues the rotation of `x`, as queries without a bias and a norm.
    fn forward(&self, card: Card, kernel: &str, x: Argument, num_heads: usize, out: Argument) -> Result<()> {
        let Self { width, angles, positions, grid } = self;
        let none = None::<&Buffer<f32>>;
        let arguments = arguments![
            x,
            none,
            none,
            none,
            0.0_f32,
            &**angles,
            positions.argument(),
            none,
            num_heads,
            0_u32,
            *width,
            out,
            none,
            none,
            none
        ];
        card.queue(kernel, *grid, arguments)
    }
}

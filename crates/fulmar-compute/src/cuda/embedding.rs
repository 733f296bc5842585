//! Rows of a table by ids, and the table's gradient.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Card, Grid, Slice, SliceMut, arguments};

use super::THREADS;
use super::rows::add_rows;
use crate::{Floats, Numbers};

pub(crate) fn embed(
    card: Card,
    table_vd: Floats<'_>,
    width: usize,
    ids_n: Numbers<'_>,
    out_nd: SliceMut<'_, f32>,
) -> Result<()> {
    let rows = ids_n.cpu().len();
    assert_eq!(out_nd.len(), rows * width, "a row for each id");
    assert!(
        ids_n.cpu().iter().all(|id| (*id as usize + 1) * width <= table_vd.len()),
        "ids are below the vocabulary"
    );
    if rows == 0 {
        return Ok(());
    }
    let (kernel, table): (_, Argument) = match table_vd {
        Floats::F32(table) => ("embed_f32", table.cuda(card)?.into()),
        Floats::Bf16(table) => ("embed_bf16", table.cuda(card)?.into()),
    };
    let ids = ids_n.on(card)?;
    card.queue(kernel, Grid::of_rows(rows, THREADS, 0), arguments![table, ids.argument(), out_nd, width])
}

pub(crate) fn embed_backward(
    card: Card,
    d_out_nd: Slice<'_, f32>,
    width: usize,
    ids_n: &[u32],
    d_table_vd: SliceMut<'_, f32>,
) -> Result<()> {
    add_rows(card, d_out_nd, width, ids_n, d_table_vd)
}

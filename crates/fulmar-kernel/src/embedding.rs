//! Embedding look-up.

use crate::floats::Floats;
use crate::matmul::PANEL;
use crate::parallel::for_rows;

/// Writes row `ids_n[n]` of `table_vd` to row `n` of `out_nd`.
///
/// # Panics
/// If an id is not a row of the table or `out_nd` has another length.
///
/// # Examples
/// ```
/// let mut out = [0.0; 2];
/// fulmar_kernel::embed([1.0, 2.0, 3.0, 4.0].as_slice().into(), 2, &[1], &mut out);
/// assert_eq!(out, [3.0, 4.0]);
/// ```
pub fn embed(table_vd: Floats<'_>, width: usize, ids_n: &[u32], out_nd: &mut [f32]) {
    assert_eq!(out_nd.len(), ids_n.len() * width, "out must hold one row an id");
    for_rows(out_nd, width, |first, out| {
        for (out, id) in out.chunks_exact_mut(width).zip(&ids_n[first..]) {
            let row = *id as usize * width;
            table_vd.slice(row..row + width).copy_to(out);
        }
    });
}

/// Writes rows of a table that [`pack_in_place`](crate::pack_in_place) packed, as [`embed`].
///
/// # Panics
/// As [`embed`].
///
/// # Examples
/// ```
/// let mut table: Vec<f32> = (0..64).map(|at| at as f32).collect();
/// fulmar_kernel::pack_in_place(&mut table, 2);
/// let mut out = [0.0; 2];
/// fulmar_kernel::embed_packed(&table, 2, &[31], &mut out);
/// assert_eq!(out, [62.0, 63.0]);
/// ```
pub fn embed_packed(table_vd: &[f32], width: usize, ids_n: &[u32], out_nd: &mut [f32]) {
    assert_eq!(out_nd.len(), ids_n.len() * width, "out must hold one row an id");
    for_rows(out_nd, width, |first, out| {
        for (out, id) in out.chunks_exact_mut(width).zip(&ids_n[first..]) {
            let (panel, row) = (*id as usize / PANEL, *id as usize % PANEL);
            let panel = &table_vd[panel * PANEL * width..][..PANEL * width];
            for (out, inputs) in out.iter_mut().zip(panel.chunks_exact(PANEL)) {
                *out = inputs[row];
            }
        }
    });
}

/// Adds row `n` of `d_out_nd` to row `ids_n[n]` of `d_table_vd`, in order.
///
/// # Panics
/// If an id is not a row of the table.
pub fn embed_backward(d_out_nd: &[f32], width: usize, ids_n: &[u32], d_table_vd: &mut [f32]) {
    for (d_out, id) in d_out_nd.chunks_exact(width).zip(ids_n) {
        for (d_row, d) in d_table_vd[*id as usize * width..][..width].iter_mut().zip(d_out) {
            *d_row += d;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{check_gradient, random, widen};

    #[test]
    fn the_gradient_equals_finite_differences_where_an_id_repeats() {
        let (table, d_out, ids) = (random(1, 12), random(2, 12), [2, 0, 2, 1]);
        let mut d_table = vec![0.0; 12];
        embed_backward(&d_out, 3, &ids, &mut d_table);
        let d64 = widen(&d_out);
        check_gradient("table", &table, &d_table, |table| {
            (0..4).map(|n| (0..3).map(|d| table[ids[n] as usize * 3 + d] * d64[n * 3 + d]).sum::<f64>()).sum()
        });
    }
}

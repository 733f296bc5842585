//! Root-mean-square normalisation of rows.

use fulmar_core::Result;

use super::a_block_each;
use crate::arguments;
use crate::card::{Card, Shape};
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 128;

/// Rows and their width: one below and above a half-warp, a warp and a block of threads, and the widest.
const SHAPES: [(usize, usize); 15] = [
    (1, 1),
    (3, 8),
    (2, 15),
    (2, 16),
    (5, 17),
    (2, 33),
    (3, 127),
    (2, 128),
    (2, 129),
    (4, 511),
    (2, 512),
    (3, 514),
    (9, 896),
    (2, 4_096),
    (1, 16_384),
];

/// Compares the rows at every shape.
///
/// # Errors
/// Those of the card.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (rows, width) in SHAPES {
        for (kind, odd) in [("finite", 1.0), ("NaN", f32::NAN), ("inf", f32::INFINITY), ("-0", -0.0)] {
            let mut x = random("norm", rows * width, 3.0);
            x[width - 1] = odd;
            let weight = random("weight", width, 2.0);
            let (mut out, mut inv_rms) = (vec![0.0; x.len()], vec![0.0; rows]);
            fulmar_kernel::rms_norm(&x, &weight, 1e-6, &mut out, &mut inv_rms);
            let (x, weight) = (card.upload(&x)?, card.upload(&weight)?);
            let (out_at, inv_rms_at) = (card.poisoned(out.len())?, card.poisoned(rows)?);
            let grid = grid(rows, width);
            let arguments = arguments![&x, &weight, 1e-6_f32, width, &out_at, &inv_rms_at];
            card.launch("rms_norm", grid, arguments)?;
            let shape = format!("{rows} x {width}, {kind}");
            report.same("rms_norm", &shape, &out_at.read()?, &out);
            report.same("rms_norm, 1 / rms", &shape, &inv_rms_at.read()?, &inv_rms);
        }
    }
    Ok(())
}

/// Returns the shape of a launch.
pub fn grid(rows: usize, width: usize) -> Shape {
    a_block_each(rows, THREADS, 4 * (width as u32 + 1))
}

//! Root-mean-square normalisation of rows, and its gradients.

use fulmar_compute::Compute;
use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, arguments};
use half::bf16;

use super::with_large;
use crate::numbers::random;
use crate::report::{Bits, Report};

const THREADS: u32 = 128;
const EPS: f32 = 1e-6;

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

/// Rows of a task of `fulmar-kernel`, whose sums of columns are added in order.
pub fn rows_each(width: usize) -> usize {
    (8_192 / width).max(1)
}

/// One of [`SHAPES`], with its inputs and what the processor makes of them.
struct Case {
    shape: String,
    rows: usize,
    width: usize,
    x: Vec<f32>,
    weight: Vec<f32>,
    out: Vec<f32>,
    inv_rms: Vec<f32>,
}

/// Compares every kernel at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (rows, width) in with_large(card, &SHAPES, &[(8_192, 896)]) {
        for (kind, odd) in [("finite", 1.0), ("NaN", f32::NAN), ("inf", f32::INFINITY), ("-0", -0.0)] {
            let mut x = random("norm", rows * width, 3.0);
            x[width - 1] = odd;
            let case = Case::of(format!("{rows} x {width}, {kind}"), x, width);
            plain(card, report, &case)?;
            of_sum(card, report, &case)?;
            backward(card, report, &case)?;
        }
        masked(card, report, rows, width)?;
    }
    // Several chunks of rows, the last of them not whole.
    for (rows, width) in [(9, 4_096), (40, 513), (33, 896)] {
        weight_gradient(
            card,
            report,
            &Case::of(format!("{rows} x {width}"), random("norm", rows * width, 3.0), width),
        )?;
    }
    Ok(())
}

impl Case {
    fn of(shape: String, x: Vec<f32>, width: usize) -> Self {
        let rows = x.len() / width;
        let weight = random("weight", width, 2.0);
        let (mut out, mut inv_rms) = (vec![0.0; x.len()], vec![0.0; rows]);
        fulmar_kernel::rms_norm(&x, &weight, EPS, &mut out, &mut inv_rms);
        Self { shape, rows, width, x, weight, out, inv_rms }
    }

    /// Compares what a kernel wrote: y as f32, or as bfloat16.
    fn compare<T: Bits>(&self, report: &mut Report, name: &str, [out, wanted]: [&[T]; 2], inv_rms: &[f32]) {
        report.same(name, &self.shape, out, wanted);
        report.same(&format!("{name}, 1 / rms"), &self.shape, inv_rms, &self.inv_rms);
    }

    /// Returns y as bfloat16.
    fn halves(&self) -> Vec<bf16> {
        let mut halves = vec![bf16::ZERO; self.out.len()];
        fulmar_kernel::f32_to_bf16(&self.out, &mut halves);
        halves
    }
}

fn plain(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let grid = grid(case.rows, case.width);
    let (x, weight) = (card.upload(&case.x)?, card.upload(&case.weight)?);
    let (out, inv_rms) = (card.poisoned(case.out.len())?, card.poisoned(case.rows)?);
    card.launch("rms_norm", grid, arguments![&x, &weight, EPS, case.width, &out, &inv_rms])?;
    case.compare(report, "rms_norm", [&out.read()?, &case.out], &inv_rms.read()?);
    let (out, inv_rms) = (card.poisoned(case.out.len())?, card.poisoned(case.rows)?);
    card.launch("rms_norm_bf16", grid, arguments![&x, &weight, EPS, case.width, &out, &inv_rms])?;
    case.compare(report, "rms_norm_bf16", [&out.read()?, &case.halves()], &inv_rms.read()?);
    Ok(())
}

/// The norm of x + added, and that sum in the place of x.
fn of_sum(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let grid = grid(case.rows, case.width);
    let added = random("added", case.x.len(), 3.0);
    let sum: Vec<f32> = case.x.iter().zip(&added).map(|(x, added)| x + added).collect();
    let case_of_sum = Case::of(format!("{}, of a sum", case.shape), sum, case.width);
    let (added, weight) = (card.upload(&added)?, card.upload(&case.weight)?);
    let (x, out, inv_rms) =
        (card.upload(&case.x)?, card.poisoned(case.out.len())?, card.poisoned(case.rows)?);
    let arguments = arguments![&x, &added, &weight, EPS, case.width, &out, &inv_rms];
    card.launch("rms_norm_of_sum", grid, arguments)?;
    report.same("rms_norm_of_sum, x", &case.shape, &x.read()?, &case_of_sum.x);
    case_of_sum.compare(report, "rms_norm_of_sum", [&out.read()?, &case_of_sum.out], &inv_rms.read()?);
    let (x, out, inv_rms) =
        (card.upload(&case.x)?, card.poisoned(case.out.len())?, card.poisoned(case.rows)?);
    let arguments = arguments![&x, &added, &weight, EPS, case.width, &out, &inv_rms];
    card.launch("rms_norm_of_sum_bf16", grid, arguments)?;
    report.same("rms_norm_of_sum_bf16, x", &case.shape, &x.read()?, &case_of_sum.x);
    let halves = case_of_sum.halves();
    case_of_sum.compare(report, "rms_norm_of_sum_bf16", [&out.read()?, &halves], &inv_rms.read()?);
    Ok(())
}

fn backward(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let d_out = random("d_out", case.x.len(), 1.0);
    let mut d_x = random("d_x", case.x.len(), 1.0);
    let (x, weight, inv_rms) =
        (card.upload(&case.x)?, card.upload(&case.weight)?, card.upload(&case.inv_rms)?);
    let (d_out_at, d_x_at) = (card.upload(&d_out)?, card.upload(&d_x)?);
    let arguments = arguments![&x, &weight, &inv_rms, &d_out_at, case.width, &d_x_at];
    card.launch("rms_norm_backward", grid(case.rows, case.width), arguments)?;
    fulmar_kernel::rms_norm_backward(&case.x, &case.weight, &case.inv_rms, &d_out, &mut d_x, None);
    report.same("rms_norm_backward", &case.shape, &d_x_at.read()?, &d_x);
    weight_gradient(card, report, case)
}

/// Rows become NaN whose scale is one of an overflow.
fn masked(card: &Card, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let scales = [f32::MIN_POSITIVE, 0.0, f32::NAN, f32::INFINITY, -1.0, f32::MAX];
    for first in 0..scales.len() {
        let inv_rms: Vec<f32> = (first..first + rows).map(|at| scales[at % scales.len()]).collect();
        let mut wanted = random("masked", rows * width, 3.0);
        let (out, inv_rms_at) = (card.upload(&wanted)?, card.upload(&inv_rms)?);
        let arguments = arguments![&out, &inv_rms_at, width];
        card.launch("mask_overflow", Grid::of_rows(rows, THREADS, 0), arguments)?;
        Compute::Cpu.mask_overflow(&mut wanted, &inv_rms);
        report.same("mask_overflow", &format!("{rows} x {width}, {}", scales[first]), &out.read()?, &wanted);
    }
    Ok(())
}

/// Sums of chunks of rows, added to what is there.
fn weight_gradient(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let (rows, width) = (case.rows, case.width);
    let d_out = random("d_out", case.x.len(), 1.0);
    let mut d_weight = random("d_weight", width, 1.0);
    let (x, inv_rms, d_out_at) = (card.upload(&case.x)?, card.upload(&case.inv_rms)?, card.upload(&d_out)?);
    let (rows_each, d_weight_at) = (rows_each(width), card.upload(&d_weight)?);
    let chunks = rows.div_ceil(rows_each);
    let sums = card.poisoned::<f32>(chunks * width)?;
    let grid = Grid {
        blocks: (width.div_ceil(THREADS as usize) as u32, chunks as u32),
        threads: THREADS,
        shared_bytes: 0,
    };
    card.launch(
        "rms_norm_weight_sums",
        grid,
        arguments![&x, &inv_rms, &d_out_at, rows, width, rows_each, &sums],
    )?;
    let grid = Grid { blocks: (3, 1), threads: THREADS, shared_bytes: 0 };
    card.launch("add_chunks", grid, arguments![&sums, chunks, width, &d_weight_at])?;
    let mut d_x = vec![0.0; case.x.len()];
    fulmar_kernel::rms_norm_backward(
        &case.x,
        &case.weight,
        &case.inv_rms,
        &d_out,
        &mut d_x,
        Some(&mut d_weight),
    );
    report.same("rms_norm_weight_sums", &case.shape, &d_weight_at.read()?, &d_weight);
    Ok(())
}

/// Returns the shape of a launch.
pub fn grid(rows: usize, width: usize) -> Grid {
    Grid::of_rows(rows, THREADS, 4 * (width as u32 + 1))
}

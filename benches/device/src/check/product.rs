//! Products of bfloat16 rows by tensor cores: near those of f64, and equal bits of a row in every kernel and batch.
//!
//! On the emulated GPU they have the bits of [`multiply`], which follows the rule of `product.cu`. Tensor cores of a GPU round
//! otherwise inside an instruction, so there only the rest holds.

mod epilogues;
mod rows;

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, arguments};
use half::bf16;

use crate::numbers::random;
use crate::report::Report;

/// Kernel, and the outputs and rows of its blocks.
pub const KERNELS: [(&str, usize, usize); 3] =
    [("product_8", 16, 8), ("product_64", 128, 64), ("product_128", 128, 128)];

/// Largest relative error of a product, in the L2 norm: what bfloat16 operands are allowed.
const ERROR_MAX: f64 = 4e-3;

/// On the emulated GPU, results are added and written in bfloat16 for so many inputs at most: longer sums take seconds.
const EMULATED_MAX: usize = 640;

/// Rows, outputs and inputs: one below and above a tile, an instruction, a stage and a part in each direction, and odd numbers.
const SHAPES: [(usize, usize, usize); 18] = [
    (1, 1, 1),
    (1, 16, 16),
    (7, 15, 17),
    (8, 16, 64),
    (9, 17, 65),
    (2, 3, 63),
    (63, 127, 48),
    (64, 128, 72),
    (65, 129, 80),
    (3, 40, 512),
    (2, 33, 513),
    (127, 20, 520),
    (129, 31, 136),
    (1, 130, 640),
    (5, 48, 2_064),
    (4, 24, 4_872),
    (1, 1_200, 24),
    (1_032, 9, 16),
];

/// Compares the kernels at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for sizes @ (rows, outs, inner) in SHAPES {
        let (x, w) = (halves("x", rows * inner, 1.0), halves("w", outs * inner, 1.0));
        let shape = format!("{rows} x {outs} x {inner}");
        compare(card, report, &shape, sizes, [&x, &w])?;
        gradients(card, report, &shape, sizes, [&x, &w])?;
    }
    special(card, report)?;
    misaligned(card, report)?;
    epilogues::check(card, report)?;
    rows::check(card, report)
}

/// Returns the shape of a launch of a kernel that computes so many outputs of so many rows a block.
pub fn grid(rows: usize, outs: usize, (_, outs_each, rows_each): (&str, usize, usize)) -> Grid {
    const STRIDE: usize = 64 + 8;
    let shared = match rows_each {
        8 => 8 * 4 * (16 + 8) * STRIDE * 2 + 8 * 16 * 8 * 4,
        _ => 3 * (outs_each + rows_each) * STRIDE * 2,
    };
    Grid {
        blocks: (outs.div_ceil(outs_each) as u32, rows.div_ceil(rows_each) as u32),
        threads: 256,
        shared_bytes: shared as u32,
    }
}

/// Compares every kernel, with and without adding to the result.
fn compare(
    card: &Card,
    report: &mut Report,
    shape: &str,
    sizes: (usize, usize, usize),
    [x, w]: [&[bf16]; 2],
) -> Result<()> {
    let (rows, outs, inner) = sizes;
    let (x_at, w_at) = (card.upload(x)?, card.upload(w)?);
    let model = multiply(x, w, sizes);
    let exact = in_f64(x, w, sizes);
    let mut first: Option<Vec<f32>> = None;
    for kernel in KERNELS {
        let name = kernel.0;
        let y = card.poisoned(rows * outs)?;
        card.launch(name, grid(rows, outs, kernel), arguments![&x_at, &w_at, &y, rows, outs, inner, 0_u32])?;
        let found = y.read()?;
        if card.is_emulated() {
            report.same(name, shape, &found, &model);
        }
        report.near(name, shape, &found, &exact, ERROR_MAX);
        if !card.is_emulated() || inner <= EMULATED_MAX {
            other_results(card, report, shape, sizes, [&x_at, &w_at], (kernel, &found))?;
        }
        let first = first.get_or_insert_with(|| found.clone());
        report.same(&format!("{name} as {}", KERNELS[0].0), shape, &found, first);
    }
    Ok(())
}

/// A product that is added to what is there, and one in bfloat16: `found` with these as its last step.
fn other_results(
    card: &Card,
    report: &mut Report,
    shape: &str,
    (rows, outs, inner): (usize, usize, usize),
    [x, w]: [&Buffer<bf16>; 2],
    (kernel, found): ((&str, usize, usize), &[f32]),
) -> Result<()> {
    let (name, grid) = (kernel.0, grid(rows, outs, kernel));
    let before = random("y", rows * outs, 1.0);
    let added: Vec<f32> = before.iter().zip(found).map(|(before, product)| before + product).collect();
    let y = card.upload(&before)?;
    card.launch(name, grid, arguments![x, w, &y, rows, outs, inner, 1_u32])?;
    report.same(&format!("{name}, added"), shape, &y.read()?, &added);
    let mut halves = vec![bf16::ZERO; found.len()];
    fulmar_kernel::f32_to_bf16(found, &mut halves);
    let (name, y) = (format!("{name}_bf16"), card.poisoned(rows * outs)?);
    card.launch(&name, grid, arguments![x, w, &y, rows, outs, inner, 0_u32])?;
    report.same(&name, shape, &y.read()?, &halves);
    Ok(())
}

/// The gradients of a product: d w, and d^T x.
fn gradients(
    card: &Card,
    report: &mut Report,
    shape: &str,
    (rows, outs, inner): (usize, usize, usize),
    [x, w]: [&[bf16]; 2],
) -> Result<()> {
    let d = halves("d", rows * outs, 1.0);
    let (d_t, x_t, w_t) = (columns(&d, outs), columns(x, inner), columns(w, inner));
    let (x_at, w_at, d_at) = (card.upload(x)?, card.upload(w)?, card.upload(&d)?);
    // Name, operands on the card, the same as rows, and the sizes of the result and of its sums.
    let cases = [
        ("product_d_w", [&d_at, &w_at], [&d, &w_t], (rows, inner, outs)),
        ("product_dt_x", [&d_at, &x_at], [&d_t, &x_t], (outs, inner, rows)),
    ];
    for (name, [left, right], [x, w], sizes @ (rows, outs, inner)) in cases {
        let grid = grid(rows, outs, KERNELS[2]);
        let y = card.poisoned(rows * outs)?;
        card.launch(name, grid, arguments![left, right, &y, rows, outs, inner, 0_u32])?;
        let found = y.read()?;
        if card.is_emulated() {
            report.same(name, shape, &found, &multiply(x, w, sizes));
        }
        report.near(name, shape, &found, &in_f64(x, w, sizes), ERROR_MAX);
        if card.is_emulated() && outs > EMULATED_MAX {
            continue;
        }
        let before = random("before", rows * outs, 1.0);
        let added: Vec<f32> = before.iter().zip(&found).map(|(before, product)| before + product).collect();
        let y = card.upload(&before)?;
        card.launch(name, grid, arguments![left, right, &y, rows, outs, inner, 1_u32])?;
        report.same(&format!("{name}, added"), shape, &y.read()?, &added);
    }
    Ok(())
}

/// Returns the columns of a matrix as rows.
fn columns(matrix: &[bf16], width: usize) -> Vec<bf16> {
    (0..width).flat_map(|column| matrix.iter().skip(column).step_by(width).copied()).collect()
}

/// A row of NaN, one of infinities, zeros with a sign and numbers at both ends of the range change no other row.
fn special(card: &Card, report: &mut Report) -> Result<()> {
    let sizes @ (rows, outs, inner) = (6, 20, 40);
    let (mut x, w) = (halves("special", rows * inner, 1.0), halves("w", outs * inner, 1.0));
    x[inner + 3] = bf16::NAN;
    x[2 * inner + 17] = bf16::INFINITY;
    x[3 * inner..4 * inner].fill(bf16::NEG_ZERO);
    x[4 * inner..5 * inner].fill(bf16::MAX);
    let (x_at, w_at) = (card.upload(&x)?, card.upload(&w)?);
    let plain = halves("special", rows * inner, 1.0);
    let plain_at = card.upload(&plain)?;
    for kernel in KERNELS {
        let product = |x: &Buffer<bf16>| {
            let y = card.poisoned(rows * outs)?;
            let arguments = arguments![x, &w_at, &y, rows, outs, inner, 0_u32];
            card.launch(kernel.0, grid(rows, outs, kernel), arguments)?;
            y.read()
        };
        let (found, of_plain) = (product(&x_at)?, product(&plain_at)?);
        if card.is_emulated() {
            report.same(kernel.0, "special numbers", &found, &multiply(&x, &w, sizes));
        }
        let row = |of: &[f32], n: usize| of[n * outs..][..outs].to_vec();
        for n in [0, 5] {
            report.same(kernel.0, &format!("row {n} beside odd ones"), &row(&found, n), &row(&of_plain, n));
        }
        let kinds: Vec<f32> =
            row(&found, 1).iter().map(|value| f32::from(u8::from(value.is_nan()))).collect();
        report.same(kernel.0, "a row with a NaN", &kinds, &vec![1.0; outs]);
    }
    Ok(())
}

/// Operands that do not begin at a multiple of 16 bytes give the same bits.
fn misaligned(card: &Card, report: &mut Report) -> Result<()> {
    let sizes @ (rows, outs, inner) = (9, 18, 72);
    let (x, w) = (halves("x", rows * inner + 1, 1.0), halves("w", outs * inner + 1, 1.0));
    let (x_at, w_at) = (card.upload(&x)?, card.upload(&w)?);
    let (aligned_x, aligned_w) = (card.upload(&x[1..])?, card.upload(&w[1..])?);
    for kernel in KERNELS {
        let product = |x: Argument, w: Argument| {
            let y = card.poisoned::<f32>(rows * outs)?;
            card.launch(kernel.0, grid(rows, outs, kernel), arguments![x, w, &y, rows, outs, inner, 0_u32])?;
            y.read()
        };
        let aligned = product((&aligned_x).into(), (&aligned_w).into())?;
        for (shape, x, w) in [
            ("x from its second element", x_at.from(1), (&aligned_w).into()),
            ("w from its second element", (&aligned_x).into(), w_at.from(1)),
        ] {
            report.same(kernel.0, shape, &product(x, w)?, &aligned);
        }
        report.near(kernel.0, "operands of their own", &aligned, &in_f64(&x[1..], &w[1..], sizes), ERROR_MAX);
    }
    Ok(())
}

fn halves(name: &str, len: usize, scale: f32) -> Vec<bf16> {
    random(name, len, scale).into_iter().map(bf16::from_f32).collect()
}

/// Parts of the inputs, added in order; a part is summed 16 products at a time, each sum of 16 rounded once with what is there.
fn multiply(x: &[bf16], w: &[bf16], (_, _, inner): (usize, usize, usize)) -> Vec<f32> {
    let part_len = (inner.div_ceil(8).div_ceil(64) * 64).max(512);
    let chunk = |sum: f32, (x, w): (&[bf16], &[bf16])| {
        let products = x.iter().zip(w).map(|(x, w)| f64::from(x.to_f32()) * f64::from(w.to_f32()));
        (f64::from(sum) + products.fold(0.0, |sum, product| sum + product)) as f32
    };
    let part = |(x, w): (&[bf16], &[bf16])| x.chunks(16).zip(w.chunks(16)).fold(0.0, chunk);
    let output = |x: &[bf16], w: &[bf16]| {
        x.chunks(part_len).zip(w.chunks(part_len)).fold(0.0, |total, parts| total + part(parts))
    };
    each_output(x, w, inner, output)
}

fn in_f64(x: &[bf16], w: &[bf16], (_, _, inner): (usize, usize, usize)) -> Vec<f64> {
    each_output(x, w, inner, |x, w| {
        x.iter().zip(w).map(|(x, w)| f64::from(x.to_f32()) * f64::from(w.to_f32())).sum()
    })
}

fn each_output<T>(x: &[bf16], w: &[bf16], inner: usize, output: impl Fn(&[bf16], &[bf16]) -> T) -> Vec<T> {
    let outputs = |x| w.chunks_exact(inner).map(|w| output(x, w)).collect::<Vec<_>>();
    x.chunks_exact(inner).flat_map(outputs).collect()
}

//! Products of f32 matrices: every bit of `fulmar-kernel`'s `matmul`, for any number of rows and either layout of the operands.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, arguments};
use fulmar_kernel::{MatRef, matmul};

use super::with_large;
use crate::numbers::random;
use crate::report::Report;

/// Rows and outputs of a block of threads, and inputs that it holds at once.
const TILE: usize = 64;
const DEPTH: usize = 16;

/// Rows, outputs and inputs: one below and above a tile in each direction.
const SHAPES: [(usize, usize, usize); 16] = [
    (1, 1, 1),
    (1, 5, 7),
    (3, 2, 15),
    (2, 3, 16),
    (5, 4, 17),
    (63, 1, 33),
    (64, 64, 48),
    (65, 63, 31),
    (1, 65, 641),
    (7, 64, 640),
    (4, 128, 129),
    (70, 129, 64),
    (128, 127, 5),
    (2, 200, 896),
    (1, 64, 4_864),
    (33, 31, 1),
];

/// Operands that are turned, and `true` if the product is added to the result: products by weights, gradients of rows, and
/// gradients of weights.
const LAYOUTS: [([bool; 2], bool); 6] = [
    ([false, false], false),
    ([false, false], true),
    ([false, true], false),
    ([false, true], true),
    ([true, true], true),
    ([true, false], false),
];

/// Compares products at every shape, with and without adding to the result.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (rows, outs, inner) in with_large(card, &SHAPES, &[(8_192, 256, 896), (64, 256, 18_944)]) {
        for (turned, adds) in LAYOUTS {
            let x = random("x", rows * inner, 1.0);
            let w = random("w", outs * inner, 1.0);
            let mut y = random("y", rows * outs, 1.0);
            let product = Product::new(card, &x, &w, &y, [rows, outs, inner])?;
            card.launch("product_f32", product.shape(), product.arguments(turned, adds))?;
            multiply(&mut y, (&x, &w), [rows, outs, inner], turned, adds);
            let shape = format!("{rows} x {outs} x {inner}, turned {turned:?}, adds {adds}");
            report.same("product_f32", &shape, &product.y.read()?, &y);
        }
    }
    special(card, report)?;
    captured(card, report)
}

/// Returns the shape of a launch.
pub fn grid(rows: usize, outs: usize) -> Grid {
    let stride = TILE + 4;
    Grid {
        blocks: (outs.div_ceil(TILE) as u32, rows.div_ceil(TILE) as u32),
        threads: 256,
        shared_bytes: (2 * DEPTH * stride * 4) as u32,
    }
}

/// Numbers that a padded or reordered sum would change: zeros with a sign, infinities, NaN, sums that overflow on the way.
fn special(card: &Card, report: &mut Report) -> Result<()> {
    let (rows, outs, inner) = (5, 3, 18);
    let mut x = vec![-0.0; rows * inner];
    x[inner] = f32::INFINITY;
    x[2 * inner + 17] = f32::NAN;
    x[3 * inner..4 * inner].fill(3e38);
    x[4 * inner] = 1e-45;
    let w: Vec<f32> = (0..outs * inner).map(|at| if at % 2 == 0 { 1.0 } else { -0.5 }).collect();
    let mut y = vec![0.0; rows * outs];
    let product = Product::new(card, &x, &w, &y, [rows, outs, inner])?;
    card.launch("product_f32", product.shape(), product.arguments([false; 2], false))?;
    multiply(&mut y, (&x, &w), [rows, outs, inner], [false; 2], false);
    report.same("product_f32", "special numbers", &product.y.read()?, &y);
    Ok(())
}

/// A launch that a graph repeats has the arguments of its capture and the memory of its run.
fn captured(card: &Card, report: &mut Report) -> Result<()> {
    let (rows, outs, inner) = (3, 70, 20);
    let (x, w, mut y) =
        (random("x", rows * inner, 1.0), random("w", outs * inner, 1.0), vec![0.0; rows * outs]);
    let product = Product::new(card, &x, &w, &y, [rows, outs, inner])?;
    let mut graph =
        card.capture(|| card.queue("product_f32", product.shape(), product.arguments([false; 2], true)))?;
    for _ in 0..3 {
        graph.queue()?;
        multiply(&mut y, (&x, &w), [rows, outs, inner], [false; 2], true);
    }
    report.same("product_f32", "three launches of a graph", &product.y.read()?, &y);
    Ok(())
}

fn multiply(
    y: &mut [f32],
    (x, w): (&[f32], &[f32]),
    [rows, outs, inner]: [usize; 3],
    [turns_x, turns_w]: [bool; 2],
    adds: bool,
) {
    let x = if turns_x { MatRef::new(x, inner, rows).transposed() } else { MatRef::new(x, rows, inner) };
    let w = if turns_w { MatRef::new(w, inner, outs) } else { MatRef::new(w, outs, inner).transposed() };
    matmul(y, x, w, adds);
}

/// The operands on the card.
struct Product {
    x: Buffer<f32>,
    w: Buffer<f32>,
    y: Buffer<f32>,
    /// Rows, outputs, inputs.
    sizes: [usize; 3],
}

impl Product {
    fn new(card: &Card, x: &[f32], w: &[f32], y: &[f32], sizes: [usize; 3]) -> Result<Self> {
        Ok(Self { x: card.upload(x)?, w: card.upload(w)?, y: card.upload(y)?, sizes })
    }

    fn shape(&self) -> Grid {
        grid(self.sizes[0], self.sizes[1])
    }

    fn arguments(&self, turned: [bool; 2], adds: bool) -> [Argument; 9] {
        let ([rows, outs, inner], [x_is_turned, w_is_turned]) = (self.sizes, turned.map(u32::from));
        arguments![&self.x, &self.w, &self.y, rows, outs, inner, x_is_turned, w_is_turned, u32::from(adds)]
    }
}

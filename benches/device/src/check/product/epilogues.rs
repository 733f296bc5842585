//! Several products of the same rows in one launch, with biases or the gated activation. The bits are those of plain products,
//! followed by these operations on the processor.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, arguments};
use half::bf16;

use super::{KERNELS, grid, halves};
use crate::numbers::random;
use crate::report::Report;

/// Rows, outputs of three products, and inputs: one below and above a tile and half of one in each direction, and absent products.
const SHAPES: [(usize, [usize; 3], usize); 15] = [
    (1, [1, 0, 0], 1),
    (2, [0, 7, 3], 24),
    (7, [15, 1, 17], 17),
    (8, [16, 16, 16], 64),
    (9, [17, 8, 3], 65),
    (3, [40, 33, 9], 513),
    (63, [127, 1, 129], 48),
    (64, [128, 128, 128], 72),
    (65, [129, 0, 5], 80),
    (127, [20, 130, 0], 136),
    (128, [63, 0, 64], 16),
    (129, [31, 65, 257], 40),
    (130, [16, 15, 17], 16),
    (1, [130, 16, 16], 640),
    (5, [48, 24, 24], 2_064),
];

/// Largest weight of a gate: sums reach both ends of the exponential's range.
const GATE_SCALE: f32 = 30.0;

/// Compares both kinds of kernels at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (index, (rows, outs, inner)) in SHAPES.into_iter().enumerate() {
        let x = halves("x", rows * inner, 1.0);
        let weights = [0, 1, 2].map(|at| halves(&format!("w{at}"), outs[at] * inner, 1.0));
        // Every second product has a bias, in turn the first.
        let biases = [0, 1, 2].map(|at| (at % 2 == index % 2).then(|| random("bias", outs[at], 4.0)));
        let each = Each { rows, inner, outs, x, weights, biases };
        let width = outs[0].max(outs[1]);
        let (gate, up) = (halves("gate", width * inner, GATE_SCALE), halves("up", width * inner, 1.0));
        let gated = Gated { shape: format!("{rows} x {width} x {inner}"), rows, inner, width, gate, up };
        for kernel in KERNELS {
            each.compare(card, report, kernel)?;
            gated.compare(card, report, kernel, &each.x)?;
        }
    }
    special(card, report)
}

/// Up to three products of the same rows.
struct Each {
    rows: usize,
    inner: usize,
    outs: [usize; 3],
    x: Vec<bf16>,
    weights: [Vec<bf16>; 3],
    biases: [Option<Vec<f32>>; 3],
}

impl Each {
    fn compare(&self, card: &Card, report: &mut Report, kernel: (&str, usize, usize)) -> Result<()> {
        let Self { rows, inner, outs, x, .. } = self;
        let shape = format!("{rows} x {outs:?} x {inner}");
        let x = card.upload(x)?;
        let mut wanted = Vec::new();
        for ((weight, bias), outs) in self.weights.iter().zip(&self.biases).zip(outs) {
            let mut sums = plain(card, kernel, &x, weight, [*rows, *outs, *inner])?;
            if let Some(bias) = bias.as_ref().filter(|_| *outs > 0) {
                fulmar_kernel::add_bias(&mut sums, bias);
            }
            wanted.push(sums);
        }
        let name = kernel.0.replace("product", "product_each");
        let got = self.launch::<f32>(card, &name, kernel, &x)?;
        report.same(&name, &shape, &got.concat(), &wanted.concat());
        let (sums, name) = (wanted.concat(), format!("{name}_bf16"));
        let got = self.launch::<bf16>(card, &name, kernel, &x)?;
        report.same(&name, &shape, &got.concat(), &rounded(&sums));
        Ok(())
    }

    fn launch<T: bytemuck::Pod>(
        &self,
        card: &Card,
        name: &str,
        kernel: (&str, usize, usize),
        x: &Buffer<bf16>,
    ) -> Result<[Vec<T>; 3]> {
        let weights = upload_each(card, &self.weights)?;
        let biases = [0, 1, 2].map(|at| self.biases[at].as_ref().map(|bias| card.upload(bias)).transpose());
        let [b1, b2, b3] = biases;
        let (b1, b2, b3) = (b1?, b2?, b3?);
        let [o1, o2, o3] = self.outs;
        let [y1, y2, y3] = self.outs.map(|outs| card.poisoned::<T>(self.rows * outs));
        let (y1, y2, y3) = (y1?, y2?, y3?);
        let [w1, w2, w3] = &weights;
        let blocks: usize = self.outs.iter().map(|outs| outs.div_ceil(kernel.1)).sum();
        let one = grid(self.rows, 1, kernel);
        let grid = Grid { blocks: (blocks as u32, one.blocks.1), ..one };
        let arguments = arguments![
            x,
            self.rows,
            self.inner,
            w1,
            b1.as_ref(),
            &y1,
            o1,
            w2,
            b2.as_ref(),
            &y2,
            o2,
            w3,
            b3.as_ref(),
            &y3,
            o3
        ];
        card.launch(name, grid, arguments)?;
        Ok([y1.read()?, y2.read()?, y3.read()?])
    }
}

fn upload_each(card: &Card, of: &[Vec<bf16>; 3]) -> Result<[Buffer<bf16>; 3]> {
    Ok([card.upload(&of[0])?, card.upload(&of[1])?, card.upload(&of[2])?])
}

/// A gate and what it multiplies.
struct Gated {
    shape: String,
    rows: usize,
    inner: usize,
    width: usize,
    gate: Vec<bf16>,
    up: Vec<bf16>,
}

impl Gated {
    fn compare(
        &self,
        card: &Card,
        report: &mut Report,
        kernel: (&str, usize, usize),
        x: &[bf16],
    ) -> Result<()> {
        let Self { shape, rows, inner, width, .. } = self;
        let len = rows * width;
        let x = card.upload(x)?;
        let sizes = [*rows, *width, *inner];
        let gate = plain(card, kernel, &x, &self.gate, sizes)?;
        let up = plain(card, kernel, &x, &self.up, sizes)?;
        let mut act = vec![0.0; len];
        fulmar_kernel::swiglu(&gate, &up, &mut act);
        let act = rounded(&act);
        let name = kernel.0.replace("product", "product_swiglu");
        let (gate_w, up_w) = (card.upload(&self.gate)?, card.upload(&self.up)?);
        let launch = |gate: Argument, up: Argument| {
            let act = card.poisoned::<bf16>(len)?;
            let arguments = arguments![&x, &gate_w, &up_w, gate, up, &act, *rows, *width, *inner];
            card.launch(&name, grid(*rows, 2 * width, kernel), arguments)?;
            act.read()
        };
        let (gate_at, up_at) = (card.poisoned::<f32>(len)?, card.poisoned::<f32>(len)?);
        report.same(&name, shape, &launch((&gate_at).into(), (&up_at).into())?, &act);
        report.same(&format!("{name}, gate"), shape, &gate_at.read()?, &gate);
        report.same(&format!("{name}, up"), shape, &up_at.read()?, &up);
        let alone = launch(Argument::Address(0), Argument::Address(0))?;
        report.same(&format!("{name}, alone"), shape, &alone, &act);
        Ok(())
    }
}

/// Rows of NaN, infinities and the largest numbers.
fn special(card: &Card, report: &mut Report) -> Result<()> {
    let (rows, width, inner) = (12, 21, 24);
    let mut x = halves("special", rows * inner, 1.0);
    x[inner] = bf16::NAN;
    x[2 * inner + 7] = bf16::INFINITY;
    x[3 * inner + 9] = bf16::NEG_INFINITY;
    x[4 * inner..5 * inner].fill(bf16::MAX);
    x[5 * inner..6 * inner].fill(bf16::NEG_ZERO);
    let (gate, up) = (halves("gate", width * inner, GATE_SCALE), halves("up", width * inner, 1.0));
    let shape = "special numbers".to_owned();
    let gated = Gated { shape, rows, inner, width, gate, up };
    KERNELS.into_iter().try_for_each(|kernel| gated.compare(card, report, kernel, &x))
}

/// The product by the plain kernel.
fn plain(
    card: &Card,
    kernel: (&str, usize, usize),
    x: &Buffer<bf16>,
    w: &[bf16],
    [rows, outs, inner]: [usize; 3],
) -> Result<Vec<f32>> {
    if outs == 0 {
        return Ok(Vec::new());
    }
    let (w, y) = (card.upload(w)?, card.poisoned(rows * outs)?);
    card.launch(kernel.0, grid(rows, outs, kernel), arguments![x, &w, &y, rows, outs, inner, 0_u32])?;
    y.read()
}

fn rounded(numbers: &[f32]) -> Vec<bf16> {
    let mut halves = vec![bf16::ZERO; numbers.len()];
    fulmar_kernel::f32_to_bf16(numbers, &mut halves);
    halves
}

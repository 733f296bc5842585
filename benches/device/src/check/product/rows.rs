//! A row's bits in a product are a function of the row and of the weight alone: not of the number of rows, the place of the row or of
//! an output in a tile, what is next to it, or zeros after its inputs.

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, arguments};
use half::bf16;

use super::super::spread;
use super::{ERROR_MAX, KERNELS, grid, halves};
use crate::numbers::{Repeated, is_small, random};
use crate::report::Report;

/// Numbers of rows that are compared one by one, on a GPU.
const ROWS_MAX: usize = 512;

/// The same on the emulated GPU.
const SMALL_COUNTS: [usize; 7] = [1, 8, 9, 33, 64, 65, 129];

/// Places of a row, and of an output, in a batch: at both ends of an instruction, a warp and a tile.
const PLACES: [usize; 11] = [0, 1, 7, 8, 15, 16, 31, 63, 64, 127, 128];

/// Rows, outputs and inputs of products that the emulated GPU has no time for: the last projection of 7 B parameters, 16,384 tokens, and a head
/// of 151,936 outputs.
const LARGE: [[usize; 3]; 3] = [[8_192, 3_584, 18_944], [16_384, 9_728, 896], [512, 151_936, 896]];

/// The same for the emulated GPU.
const EMULATED_LARGE: [[usize; 3]; 2] = [[130, 136, 1_032], [140, 300, 40]];

/// Checks what a row's bits depend on.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    counts(card, report)?;
    places(card, report)?;
    zero_inputs(card, report)?;
    let large: &[[usize; 3]] = if is_small(card) { &EMULATED_LARGE } else { &LARGE };
    large.iter().try_for_each(|sizes| far_apart(card, report, *sizes))
}

/// The first rows of a batch have the same bits alone, for every number of them and in every kernel.
fn counts(card: &Card, report: &mut Report) -> Result<()> {
    let (outs, inner) = if is_small(card) { (17, 528) } else { (200, 1_040) };
    let counts: Vec<usize> = if is_small(card) { SMALL_COUNTS.to_vec() } else { (1..=ROWS_MAX).collect() };
    let rows = counts.iter().copied().max().unwrap_or_default();
    let case = Case::of(card, rows, outs, inner)?;
    let whole = case.results(card, KERNELS[2], rows)?;
    for kernel in KERNELS {
        for count in &counts {
            let shape = format!("the first {count} of {rows} rows, {}", kernel.0);
            for (found, whole) in case.results(card, kernel, *count)?.iter().zip(&whole) {
                let wanted: Vec<f32> =
                    whole.parts.iter().flat_map(|part| &part[..part.len() / rows * count]).copied().collect();
                report.same(found.name, &shape, &found.parts.concat(), &wanted);
            }
        }
    }
    let whole = case.d_w(card, rows)?;
    for count in counts {
        let shape = format!("the first {count} of {rows} rows");
        report.same("product_d_w", &shape, &case.d_w(card, count)?, &whole[..count * outs]);
    }
    Ok(())
}

/// Rows by two weights with biases.
struct Case {
    x: Buffer<bf16>,
    weights: [Buffer<bf16>; 2],
    biases: [Buffer<f32>; 2],
    /// A weight `[inputs, outputs]`, as it is read by `product_d_w`.
    columns: Buffer<bf16>,
    outs: usize,
    inner: usize,
}

/// The results of a launch, each `[rows, outputs]`.
struct Results {
    name: &'static str,
    parts: Vec<Vec<f32>>,
}

impl Case {
    fn of(card: &Card, rows: usize, outs: usize, inner: usize) -> Result<Self> {
        let weight = |name| card.upload(&halves(name, outs * inner, 1.0));
        let bias = |name| card.upload(&random(name, outs, 2.0));
        Ok(Self {
            x: card.upload(&halves("batch", rows * inner, 1.0))?,
            weights: [weight("gate")?, weight("up")?],
            biases: [bias("bias of gate")?, bias("bias of up")?],
            columns: weight("columns")?,
            outs,
            inner,
        })
    }

    /// Returns what kernels with these blocks make of the first rows.
    fn results(&self, card: &Card, kernel: (&str, usize, usize), rows: usize) -> Result<[Results; 3]> {
        let Self { x, weights: [gate, up], biases: [of_gate, of_up], outs, inner, .. } = self;
        let (outs, inner, len, blocks) = (*outs, *inner, rows * outs, grid(rows, *outs, kernel));
        let y = card.poisoned::<f32>(len)?;
        card.launch(kernel.0, blocks, arguments![x, gate, &y, rows, outs, inner, 0_u32])?;
        let (y1, y2, none) = (card.poisoned::<f32>(len)?, card.poisoned::<f32>(len)?, None::<&Buffer<f32>>);
        let each = kernel.0.replace("product", "product_each");
        let both = fulmar_cuda::Grid { blocks: (2 * blocks.blocks.0, blocks.blocks.1), ..blocks };
        let arguments = arguments![
            x, rows, inner, gate, of_gate, &y1, outs, up, of_up, &y2, outs, none, none, none, 0_u32
        ];
        card.launch(&each, both, arguments)?;
        let act = card.poisoned::<bf16>(len)?;
        let swiglu = kernel.0.replace("product", "product_swiglu");
        let arguments = arguments![x, gate, up, none, none, &act, rows, outs, inner];
        card.launch(&swiglu, grid(rows, 2 * outs, kernel), arguments)?;
        let act = act.read()?.into_iter().map(bf16::to_f32).collect();
        Ok([
            Results { name: "product", parts: vec![y.read()?] },
            Results { name: "product_each", parts: vec![y1.read()?, y2.read()?] },
            Results { name: "product_swiglu", parts: vec![act] },
        ])
    }

    /// Returns the first rows by the weight that is stored as columns.
    fn d_w(&self, card: &Card, rows: usize) -> Result<Vec<f32>> {
        let y = card.poisoned(rows * self.outs)?;
        let arguments = arguments![&self.x, &self.columns, &y, rows, self.outs, self.inner, 0_u32];
        card.launch("product_d_w", grid(rows, self.outs, KERNELS[2]), arguments)?;
        y.read()
    }
}

/// A row among zeros, and among others, at each place has the bits that it has alone; so has an output.
fn places(card: &Card, report: &mut Report) -> Result<()> {
    let (inner, most) = (40, PLACES[PLACES.len() - 1] + 1);
    let own = halves("own", inner, 1.0);
    let other = halves("other", inner, 1.0);
    for kernel in KERNELS {
        let alone = product(card, kernel, &own, &other, [1, 1, inner])?;
        for place in PLACES {
            for (kind, mut batch) in
                [("zeros", vec![bf16::ZERO; most * inner]), ("others", halves("batch", most * inner, 4.0))]
            {
                batch[place * inner..][..inner].copy_from_slice(&own);
                let found = product(card, kernel, &batch, &other, [most, 1, inner])?;
                let shape = format!("row {place} among {kind}");
                report.same(kernel.0, &shape, &found[place..=place], &alone);
                let found = product(card, kernel, &other, &batch, [1, most, inner])?;
                let shape = format!("output {place} among {kind}");
                report.same(kernel.0, &shape, &found[place..=place], &alone);
            }
        }
    }
    Ok(())
}

/// Zeros after the inputs change nothing, as long as the parts of the sum are as long.
fn zero_inputs(card: &Card, report: &mut Report) -> Result<()> {
    let (rows, outs) = (9, 18);
    for (inner, padded) in [(17, 64), (300, 512), (513, 1_030), (2_064, 4_096)] {
        let (x, w) = (halves("x", rows * inner, 1.0), halves("w", outs * inner, 1.0));
        let longer = |of: &[bf16]| -> Vec<bf16> {
            let zeros = vec![bf16::ZERO; padded - inner];
            of.chunks_exact(inner).flat_map(|line| line.iter().chain(&zeros)).copied().collect()
        };
        let (longer_x, longer_w) = (longer(&x), longer(&w));
        for kernel in KERNELS {
            let wanted = product(card, kernel, &x, &w, [rows, outs, inner])?;
            let found = product(card, kernel, &longer_x, &longer_w, [rows, outs, padded])?;
            report.same(kernel.0, &format!("{inner} inputs with zeros up to {padded}"), &found, &wanted);
        }
    }
    Ok(())
}

fn product(
    card: &Card,
    kernel: (&str, usize, usize),
    x: &[bf16],
    w: &[bf16],
    [rows, outs, inner]: [usize; 3],
) -> Result<Vec<f32>> {
    let (x, w, y) = (card.upload(x)?, card.upload(w)?, card.poisoned(rows * outs)?);
    card.launch(kernel.0, grid(rows, outs, kernel), arguments![&x, &w, &y, rows, outs, inner, 0_u32])?;
    y.read()
}

/// Products of many rows: some of their results are near those of f64, and rows have the bits of kernels for fewer rows. Gradients of
/// the same sizes likewise.
fn far_apart(card: &Card, report: &mut Report, sizes: [usize; 3]) -> Result<()> {
    let [rows, outs, inner] = sizes;
    let [x, w, d] = [("x", rows * inner), ("w", outs * inner), ("d", rows * outs)]
        .map(|(name, len)| Repeated::halves(name, len));
    let (x_at, w_at, d_at) = (x.upload(card)?, w.upload(card)?, d.upload(card)?);
    let shape = format!("{rows} x {outs} x {inner}");
    let large = KERNELS[2];
    let y = card.poisoned::<f32>(rows * outs)?;
    let arguments = arguments![&x_at, &w_at, &y, rows, outs, inner, 0_u32];
    card.launch(large.0, grid(rows, outs, large), arguments)?;
    let (of_x, of_w) = (|n, k| x.at(n * inner + k), |o, k| w.at(o * inner + k));
    sampled(card, report, (large.0, &shape), &y, sizes, of_x, of_w)?;
    for kernel in [KERNELS[0], KERNELS[1]] {
        let few = kernel.2.min(rows);
        let found = card.poisoned::<f32>(few * outs)?;
        let arguments = arguments![&x_at, &w_at, &found, few, outs, inner, 0_u32];
        card.launch(kernel.0, grid(few, outs, kernel), arguments)?;
        let whole = card.read(y.view().slice(0..few * outs))?;
        report.same(kernel.0, &format!("the first of {shape}"), &found.read()?, &whole);
    }
    drop(y);
    let d_x = card.poisoned::<f32>(rows * inner)?;
    let arguments = arguments![&d_at, &w_at, &d_x, rows, inner, outs, 0_u32];
    card.launch("product_d_w", grid(rows, inner, large), arguments)?;
    let (of_d, of_w) = (|n, o| d.at(n * outs + o), |k, o| w.at(o * inner + k));
    sampled(card, report, ("product_d_w", &shape), &d_x, [rows, inner, outs], of_d, of_w)?;
    drop(d_x);
    let d_w = card.poisoned::<f32>(outs * inner)?;
    let arguments = arguments![&d_at, &x_at, &d_w, outs, inner, rows, 0_u32];
    card.launch("product_dt_x", grid(outs, inner, large), arguments)?;
    let (of_d, of_x) = (|o, n| d.at(n * outs + o), |k, n| x.at(n * inner + k));
    sampled(card, report, ("product_dt_x", &shape), &d_w, [outs, inner, rows], of_d, of_x)
}

/// Compares 24 rows of a result, with 48 outputs of each, with f64. An operand is a function of a row or an output, and of an input.
fn sampled(
    card: &Card,
    report: &mut Report,
    (name, shape): (&str, &str),
    y: &Buffer<f32>,
    [rows, outs, inner]: [usize; 3],
    x: impl Fn(usize, usize) -> f64,
    w: impl Fn(usize, usize) -> f64,
) -> Result<()> {
    let (mut found, mut exact) = (Vec::new(), Vec::new());
    for n in spread(rows, 24) {
        let row = card.read(y.view().slice(n * outs..(n + 1) * outs))?;
        for o in spread(outs, 48) {
            found.push(row[o]);
            exact.push((0..inner).map(|k| x(n, k) * w(o, k)).sum());
        }
    }
    report.near(name, &format!("some of {shape}"), &found, &exact, ERROR_MAX);
    Ok(())
}

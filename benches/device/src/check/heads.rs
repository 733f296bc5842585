//! Heads of a layer: biases, norms of heads, rotations, rows of caches, and their gradients.

use fulmar_core::{Result, Rng};
use fulmar_cuda::{Buffer, Card, Grid, arguments};
use fulmar_kernel::{RopeTable, add_bias, bias_backward, f32_to_bf16, rms_norm, rms_norm_backward};
use half::bf16;

use super::rms_norm::rows_each;
use super::with_large;
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 128;
const EPS: f32 = 1e-6;

/// Positions of the table of rotations.
const POSITIONS: usize = 50;

/// Rows, heads of queries, heads of keys, and their width: below, at and above a half-warp, a warp and a block.
/// The last one has several chunks of rows.
const SHAPES: [[usize; 4]; 13] = [
    [1, 1, 1, 2],
    [3, 2, 1, 16],
    [2, 3, 3, 18],
    [4, 4, 2, 30],
    [5, 14, 2, 64],
    [2, 5, 1, 66],
    [3, 2, 2, 80],
    [2, 6, 3, 96],
    [7, 3, 1, 126],
    [2, 8, 2, 128],
    [3, 1, 1, 130],
    [2, 2, 1, 256],
    [40, 14, 2, 64],
];

/// The inputs of a layer's heads.
struct Case {
    shape: String,
    sizes: [usize; 4],
    x: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// Weights of the norms of queries and keys.
    norms: Option<[Vec<f32>; 2]>,
    positions: Vec<u32>,
    /// The rows of the caches, each for one row of the batch.
    rows: Vec<u32>,
    rope: RopeTable,
    /// Cosines and sines of every position.
    table: Vec<f32>,
}

/// Results of the processor for a [`Case`]: rows of the batch, in three parts each.
struct Found {
    /// x with its bias.
    raw: [Vec<f32>; 3],
    /// Queries and keys after the norm and the rotation, and values.
    out: [Vec<f32>; 3],
    inv_rms: [Vec<f32>; 2],
}

/// Compares both passes at every shape, with and without biases and norms.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for sizes in with_large(card, &SHAPES, &[[8_192, 14, 2, 64]]) {
        for (has_bias, has_norm) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = Case::of(sizes, has_bias, has_norm);
            let found = case.on_processor();
            forward(card, report, &case, &found)?;
            backward(card, report, &case, &found)?;
        }
    }
    for (rows, width) in [(1, 1), (1, 255), (3, 256), (2, 257), (7, 33), (20, 896)] {
        biased(card, report, rows, width)?;
    }
    Ok(())
}

/// `add_bias` to rows of any width.
fn biased(card: &Card, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let (mut x, bias) = (random("biased", rows * width, 2.0), random("bias", width, 1.0));
    let (x_at, bias_at) = (card.upload(&x)?, card.upload(&bias)?);
    let grid = Grid { blocks: (3, 1), threads: 256, shared_bytes: 0 };
    card.launch("add_bias", grid, arguments![&x_at, &bias_at, width, x.len()])?;
    fulmar_kernel::add_bias(&mut x, &bias);
    report.same("add_bias", &format!("{rows} x {width}"), &x_at.read()?, &x);
    Ok(())
}

impl Case {
    fn of(sizes: [usize; 4], has_bias: bool, has_norm: bool) -> Self {
        let [count, heads, kv_heads, width] = sizes;
        let total = (heads + 2 * kv_heads) * width;
        let mut rope = RopeTable::new(fulmar_kernel::rope_frequencies(width, 10_000.0));
        rope.extend_to(POSITIONS);
        let mut rng = Rng::new(22).stream("positions").fork((count * total) as u64);
        // Both ends of the table.
        let mut positions: Vec<u32> = (0..count).map(|_| rng.next_u32() % POSITIONS as u32).collect();
        positions[0] = 0;
        positions[count - 1] = POSITIONS as u32 - 1;
        Self {
            shape: format!(
                "{count} x ({heads} + 2 x {kv_heads}) x {width}, bias {has_bias}, norm {has_norm}"
            ),
            sizes,
            x: random("heads", count * total, 2.0),
            bias: has_bias.then(|| random("bias", total, 1.0)),
            norms: has_norm.then(|| [random("q_norm", width, 2.0), random("k_norm", width, 2.0)]),
            positions,
            // Every other row of a cache, from the last on.
            rows: (0..count as u32).rev().map(|row| row * 2 + 1).collect(),
            table: table_of(&rope, width),
            rope,
        }
    }

    /// Number of heads of queries, keys and values.
    fn counts(&self) -> [usize; 3] {
        let [_, heads, kv_heads, _] = self.sizes;
        [heads, kv_heads, kv_heads]
    }

    fn on_processor(&self) -> Found {
        let [count, ..] = self.sizes;
        let mut raw = self.parts(&self.x);
        if let Some(bias) = &self.bias {
            for (part, bias) in raw.iter_mut().zip(self.parts_of_row(bias)) {
                add_bias(part, bias);
            }
        }
        let mut out = raw.clone();
        let mut inv_rms = [Vec::new(), Vec::new()];
        for part in 0..2 {
            let heads = self.counts()[part];
            if let Some(norms) = &self.norms {
                inv_rms[part] = vec![0.0; count * heads];
                rms_norm(&raw[part], &norms[part], EPS, &mut out[part], &mut inv_rms[part]);
            }
            self.rope.rotate(&mut out[part], heads, &self.positions);
        }
        Found { raw, out, inv_rms }
    }

    /// Returns the parts of a row of all heads: queries, keys, values.
    fn parts_of_row<'a>(&self, row: &'a [f32]) -> [&'a [f32]; 3] {
        let [_, heads, kv_heads, width] = self.sizes;
        let (q, rest) = row.split_at(heads * width);
        let (k, v) = rest.split_at(kv_heads * width);
        [q, k, v]
    }

    /// Returns the parts of all rows.
    fn parts(&self, x: &[f32]) -> [Vec<f32>; 3] {
        let mut parts = [const { Vec::new() }; 3];
        for row in x.chunks_exact(x.len() / self.sizes[0]) {
            for (part, of_row) in parts.iter_mut().zip(self.parts_of_row(row)) {
                part.extend_from_slice(of_row);
            }
        }
        parts
    }

    /// Returns rows of all heads from their parts.
    fn whole(&self, parts: &[Vec<f32>; 3]) -> Vec<f32> {
        let [count, ..] = self.sizes;
        let row = |n: usize| {
            parts.iter().flat_map(move |part| &part[n * part.len() / count..][..part.len() / count])
        };
        (0..count).flat_map(row).copied().collect()
    }

    /// Returns the rows of a cache: NaN where no row of the batch is.
    fn cached(&self, part: &[f32]) -> Vec<f32> {
        let width = part.len() / self.sizes[0];
        let mut cache = vec![f32::NAN; 2 * part.len()];
        for (row, of_batch) in self.rows.iter().zip(part.chunks_exact(width)) {
            cache[*row as usize * width..][..width].copy_from_slice(of_batch);
        }
        cache
    }
}

/// Returns the cosines and sines of every position, which rotations of (1, 0) show.
fn table_of(rope: &RopeTable, width: usize) -> Vec<f32> {
    let row: Vec<f32> = (0..width).map(|at| if at < width / 2 { 1.0 } else { 0.0 }).collect();
    let mut table = row.repeat(POSITIONS);
    rope.rotate(&mut table, 1, &(0..POSITIONS as u32).collect::<Vec<_>>());
    table
}

fn forward(card: &Card, report: &mut Report, case: &Case, found: &Found) -> Result<()> {
    let [count, heads, kv_heads, width] = case.sizes;
    let (bias, norms) = (uploaded(card, case.bias.as_ref())?, uploaded_norms(card, case)?);
    let [q_norm, k_norm] = &norms;
    let (table, positions, rows) =
        (card.upload(&case.table)?, card.upload(&case.positions)?, card.upload(&case.rows)?);
    let grid = Grid::of_rows(count, THREADS, (4 * width * 4) as u32);
    let [q, k, v] = &found.out;
    let wanted = [q.clone(), case.cached(k), case.cached(v)];
    let names = ["queries", "keys", "values"];

    let (x, inv_rms) = (card.upload(&case.x)?, card.poisoned(count * (heads + kv_heads))?);
    let out: [Buffer<f32>; 3] =
        [card.poisoned(wanted[0].len())?, card.poisoned(wanted[1].len())?, card.poisoned(wanted[2].len())?];
    let arguments = arguments![
        &x,
        bias.as_ref(),
        q_norm.as_ref(),
        k_norm.as_ref(),
        EPS,
        &table,
        &positions,
        &rows,
        heads,
        kv_heads,
        width,
        &out[0],
        &out[1],
        &out[2],
        &inv_rms,
    ];
    card.launch("heads", grid, arguments)?;
    report.same("heads, x", &case.shape, &x.read()?, &case.whole(&found.raw));
    for ((name, out), wanted) in names.iter().zip(&out).zip(&wanted) {
        report.same(&format!("heads, {name}"), &case.shape, &out.read()?, wanted);
    }
    if case.norms.is_some() {
        report.same("heads, 1 / rms", &case.shape, &inv_rms.read()?, &inv_rms_of(case, found));
    }

    let (x, inv_rms) = (card.upload(&case.x)?, card.poisoned::<f32>(count * (heads + kv_heads))?);
    let out: [Buffer<bf16>; 3] =
        [card.poisoned(wanted[0].len())?, card.poisoned(wanted[1].len())?, card.poisoned(wanted[2].len())?];
    let arguments = arguments![
        &x,
        bias.as_ref(),
        q_norm.as_ref(),
        k_norm.as_ref(),
        EPS,
        &table,
        &positions,
        &rows,
        heads,
        kv_heads,
        width,
        &out[0],
        &out[1],
        &out[2],
        &inv_rms,
    ];
    card.launch("heads_bf16", grid, arguments)?;
    for ((name, out), wanted) in names.iter().zip(&out).zip(&wanted) {
        let mut halves = vec![bf16::ZERO; wanted.len()];
        f32_to_bf16(wanted, &mut halves);
        report.same(&format!("heads_bf16, {name}"), &case.shape, &out.read()?, &halves);
    }
    Ok(())
}

fn backward(card: &Card, report: &mut Report, case: &Case, found: &Found) -> Result<()> {
    let [count, heads, kv_heads, width] = case.sizes;
    let mut d_out = case.counts().map(|heads| random("d_heads", count * heads * width, 1.0));
    // A row that no loss reaches: its zeros have signs.
    d_out[0][..width].fill(0.0);
    let [d_q, d_k, d_v] = [card.upload(&d_out[0])?, card.upload(&d_out[1])?, card.upload(&d_out[2])?];
    let norms = uploaded_norms(card, case)?;
    let [q_norm, k_norm] = &norms;
    let (x, inv_rms) = (card.upload(&case.whole(&found.raw))?, card.upload(&inv_rms_of(case, found))?);
    let (table, positions) = (card.upload(&case.table)?, card.upload(&case.positions)?);
    let d_x = card.poisoned(case.x.len())?;
    let arguments = arguments![
        &x,
        q_norm.as_ref(),
        k_norm.as_ref(),
        &inv_rms,
        &table,
        &positions,
        &d_q,
        &d_k,
        &d_v,
        heads,
        kv_heads,
        width,
        &d_x,
    ];
    card.launch("heads_backward", Grid::of_rows(count, THREADS, (8 * width * 4) as u32), arguments)?;

    let mut wanted = d_out;
    for part in 0..2 {
        let heads_of_part = case.counts()[part];
        case.rope.rotate_back(&mut wanted[part], heads_of_part, &case.positions);
        let Some(weights) = &case.norms else { continue };
        let d_normed = std::mem::replace(&mut wanted[part], vec![0.0; found.raw[part].len()]);
        let before = random("d_weight", width, 1.0);
        let mut d_weight = before.clone();
        let (raw, inv_rms_of_part) = (&found.raw[part], &found.inv_rms[part]);
        rms_norm_backward(
            raw,
            &weights[part],
            inv_rms_of_part,
            &d_normed,
            &mut wanted[part],
            Some(&mut d_weight),
        );
        let d = [&d_q, &d_k][part];
        report.same("heads_backward, rotated back", &case.shape, &d.read()?, &d_normed);
        let (rows, first_head) = (count * heads_of_part, part * heads);
        let found = summed(card, &before, rows, |grid, rows_each, sums| {
            let arguments = arguments![
                &x,
                &inv_rms,
                d,
                first_head,
                heads_of_part,
                heads,
                kv_heads,
                width,
                rows,
                rows_each,
                sums
            ];
            card.launch("head_norm_weight_sums", grid, arguments)
        })?;
        report.same("head_norm_weight_sums", &case.shape, &found, &d_weight);
    }
    report.same("heads_backward", &case.shape, &d_x.read()?, &case.whole(&wanted));
    bias_gradient(card, report, case, &d_x, &wanted)
}

fn bias_gradient(
    card: &Card,
    report: &mut Report,
    case: &Case,
    d_x: &Buffer<f32>,
    wanted: &[Vec<f32>; 3],
) -> Result<()> {
    let [count, .., width] = case.sizes;
    let stride = case.x.len() / count;
    let mut first = 0;
    for (part, heads) in wanted.iter().zip(case.counts()) {
        let before = random("d_bias", heads * width, 1.0);
        let found = summed(card, &before, count, |grid, rows_each, sums| {
            let arguments = arguments![d_x.from(first), count, stride, heads * width, rows_each, sums];
            card.launch("bias_sums", grid, arguments)
        })?;
        let mut d_bias = before;
        bias_backward(part, &mut d_bias);
        report.same("bias_sums", &case.shape, &found, &d_bias);
        first += heads * width;
    }
    Ok(())
}

/// Returns `before` with the sums of chunks of rows that `launch` computes, added in order.
fn summed(
    card: &Card,
    before: &[f32],
    rows: usize,
    launch: impl FnOnce(Grid, usize, &Buffer<f32>) -> Result<()>,
) -> Result<Vec<f32>> {
    let width = before.len();
    let rows_each = rows_each(width);
    let chunks = rows.div_ceil(rows_each);
    let (sums, total) = (card.poisoned(chunks * width)?, card.upload(before)?);
    let blocks = (width.div_ceil(THREADS as usize) as u32, chunks as u32);
    launch(Grid { blocks, threads: THREADS, shared_bytes: 0 }, rows_each, &sums)?;
    let grid = Grid { blocks: (3, 1), threads: THREADS, shared_bytes: 0 };
    card.launch("add_chunks", grid, arguments![&sums, chunks, width, &total])?;
    total.read()
}

/// Returns the scales of queries and keys in rows of the batch; zeros without norms.
fn inv_rms_of(case: &Case, found: &Found) -> Vec<f32> {
    let [count, heads, kv_heads, _] = case.sizes;
    if case.norms.is_none() {
        return vec![0.0; count * (heads + kv_heads)];
    }
    let [q, k] = &found.inv_rms;
    (0..count).flat_map(|n| [&q[n * heads..][..heads], &k[n * kv_heads..][..kv_heads]].concat()).collect()
}

fn uploaded(card: &Card, values: Option<&Vec<f32>>) -> Result<Option<Buffer<f32>>> {
    values.map(|values| card.upload(values)).transpose()
}

fn uploaded_norms(card: &Card, case: &Case) -> Result<[Option<Buffer<f32>>; 2]> {
    let [q, k] = match &case.norms {
        Some([q, k]) => [Some(q), Some(k)],
        None => [None, None],
    };
    Ok([uploaded(card, q)?, uploaded(card, k)?])
}

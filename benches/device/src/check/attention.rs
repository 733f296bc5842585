//! Attention of bfloat16 rows by tensor cores: near that of f64, and equal bits of a row in every kernel, tile and batch.
//!
//! On the emulated GPU it has the bits of [`attend`], which follows the rule of `attention.cu`. Tensor cores of a GPU round
//! otherwise inside an instruction, so there only the rest holds.

use fulmar_compute::{AttentionShape, Compute, Spans, StepBlock, StepRoom, StepRows};
use fulmar_core::{ErrorKind, Result};
use fulmar_cuda::{Buffer, Card, Grid, arguments};
use half::bf16;

use super::spans::{Layout, Plan};
use super::spread;
use crate::numbers::{is_small, random};
use crate::report::Report;

/// Keys of a block and of a segment.
const BLOCK: usize = 64;
const SEGMENT: usize = 256;

/// Slots of a block of threads with many rows, and with one row.
pub const SLOTS: usize = 64;
const SLOTS_OF_ROW: usize = 16;

/// Layouts with as many rows are not cut into tiles of one and of three rows: these take seconds.
const ROWS_MAX: usize = 18;

/// Largest relative error, in the L2 norm: what bfloat16 operands are allowed.
pub const ERROR_MAX: f64 = 4e-3;

/// Queries, keys and values of a layout.
pub struct Case {
    pub text: String,
    pub layout: Layout,
    /// Heads H, key/value heads K and their width E.
    pub sizes: [usize; 3],
    pub q: Vec<bf16>,
    pub keys: Vec<bf16>,
    pub values: Vec<bf16>,
}

/// A case on the card.
pub struct Uploaded {
    pub q: Buffer<bf16>,
    pub keys: Buffer<bf16>,
    pub values: Buffer<bf16>,
    pub plan: Plan,
}

/// Compares both ways at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (layout, sizes) in layouts() {
        let case = Case::of(layout, sizes, 2.0);
        compare(card, report, &case)?;
    }
    large(card, report)?;
    tokens(card, report)?;
    special(card, report)?;
    refused(card, report)
}

/// Layouts with heads, key/value heads and their width: every width; groups below, at and above the slots of a row and of a tile;
/// keys below, at and above a block and a segment.
fn layouts() -> Vec<(Layout, [usize; 3])> {
    vec![
        (Layout::sequences(&[1]), [1, 1, 64]),
        (Layout::sequences(&[2, 1, 5]), [2, 2, 80]),
        (Layout::sequences(&[17]), [14, 2, 64]),
        (Layout::sequences(&[66]), [1, 1, 64]),
        (Layout::tree(13, &[4, 1, 7]), [3, 1, 96]),
        (Layout::tree(63, &[2, 3]).with_empty_ranges(), [2, 1, 64]),
        (Layout::sequences(&[5]), [17, 1, 64]),
        (Layout::sequences(&[3, 2]), [65, 1, 64]),
        (Layout::sequences(&[9]), [4, 2, 128]),
        (Layout::sequences(&[6]), [2, 1, 256]),
        (Layout::prefilled(257, 4, 1), [2, 1, 64]),
        (Layout::prefilled(515, 5, 7), [1, 1, 64]),
        (Layout::prefilled(300, 18, 16), [2, 2, 64]),
        (Layout::prefilled(258, 3, 16), [2, 1, 256]),
        (Layout::prefilled(600, 2, 16), [2, 1, 128]),
        (Layout::paged(&[1, 64, 65, 255], 7), [2, 1, 64]),
        (Layout::paged(&[256, 257, 63], 16).with_empty_ranges(), [8, 2, 64]),
        (Layout::paged(&[128, 127, 513], 16), [2, 1, 80]),
        (Layout::paged(&[33], 1), [4, 1, 96]),
    ]
}

/// Compares one block a tile of rows, for tiles of several sizes, and one block a segment of a row.
fn compare(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let [heads, kv_heads, _] = case.sizes;
    let at = case.upload(card)?;
    let (exact, rows_max) = (case.in_f64(), (SLOTS / (heads / kv_heads)).max(1));
    let (found, sums) = tiles(card, case, &at, rows_max)?;
    report.near("attention", &case.text, &widened(&found), &exact, ERROR_MAX);
    if card.is_emulated() {
        let (out, max_and_sum) = case.on_processor();
        report.same("attention", &case.text, &found, &out);
        report.same("attention, m and L", &case.text, &sums, &max_and_sum);
    }
    let others = if case.layout.rows.len() < ROWS_MAX { [1, 3] } else { [rows_max / 2, rows_max - 1] };
    for rows_max in others.into_iter().filter(|some| (1..rows_max).contains(some)) {
        let (tiled, tiled_sums) = tiles(card, case, &at, rows_max)?;
        let text = format!("{}, tiles of {rows_max}", case.text);
        report.same("attention", &text, &tiled, &found);
        report.same("attention, m and L", &text, &tiled_sums, &sums);
    }
    let (by_segments, sums_by_segments) = segments(card, case, &at)?;
    report.same("attention by segments", &case.text, &by_segments, &found);
    report.same("attention by segments, m and L", &case.text, &sums_by_segments, &sums);
    let (by_operation, sums_by_operation) = operation(card, case, &case.spans())?;
    report.same("attention, the operation", &case.text, &by_operation, &found);
    report.same("attention, the operation, m and L", &case.text, &sums_by_operation, &sums);
    // Rows with room for more keys than any of them has, which may share tiles.
    let (mut step, on) = (StepRows::default(), Compute::Cuda(*card));
    case.layout.rows.iter().for_each(|row| step.push(0, 0, 0, row));
    let room = StepRoom { rows: step.len(), ranges: step.num_ranges(), keys: step.most_keys() + SEGMENT + 1 };
    StepBlock::new(on, room)?.write(&step)?;
    let (by_step, sums_by_step) = operation(card, case, step.spans())?;
    report.same("attention of a step", &case.text, &by_step, &found);
    report.same("attention of a step, m and L", &case.text, &sums_by_step, &sums);
    Ok(())
}

/// Returns what the operation of `fulmar-compute` writes, which chooses the kernels and makes their plans.
fn operation(card: &Card, case: &Case, spans: &Spans) -> Result<(Vec<bf16>, Vec<f32>)> {
    let on = Compute::Cuda(*card);
    let (q, keys, values) =
        (on.hold(case.q.clone())?, on.hold(case.keys.clone())?, on.hold(case.values.clone())?);
    let mut out = on.hold(vec![bf16::NAN; case.q.len()])?;
    let mut log_sum = on.hold(vec![f32::NAN; 2 * case.q.len() / case.sizes[2]])?;
    on.attention(case.shape(), &q, (&keys).into(), (&values).into(), spans, &mut out, &mut log_sum);
    on.check()?;
    Ok((on.read(&out)?.into_owned(), on.read(&log_sum)?.into_owned()))
}

/// Rows that a block has no room for are refused, and so is a block with room for more keys than attention has memory for.
fn refused(card: &Card, report: &mut Report) -> Result<()> {
    let (on, case) = (Compute::Cuda(*card), Case::of(Layout::sequences(&[3]), [1, 1, 64], 1.0));
    let mut step = StepRows::default();
    case.layout.rows.iter().for_each(|row| step.push(0, 0, 0, row));
    let room = StepRoom { rows: 3, ranges: 3, keys: 3 };
    let few =
        [StepRoom { rows: 4, ..room }, StepRoom { ranges: 2, ..room }, StepRoom { keys: 2, ..room }, room];
    for room in few {
        let written = StepBlock::new(on, room)?.write(&step).map_err(|error| error.kind());
        let is_right = written.is_ok() == (room == few[3]) && written != Err(ErrorKind::Unavailable);
        report.same("rows of a block", &format!("{room:?}: {written:?}"), &[u32::from(is_right)], &[1]);
    }
    let keys = StepRoom::keys_max(case.shape(), 3) + 1;
    StepBlock::new(on, StepRoom { keys, ..room })?.write(&step)?;
    let many = operation(card, &case, step.spans()).map(drop).map_err(|error| error.kind());
    let is_refused = many == Err(ErrorKind::Unavailable);
    report.same("attention of too many keys", &format!("{keys}: {many:?}"), &[u32::from(is_refused)], &[1]);
    Ok(())
}

/// Returns the shape of a launch for tiles of rows of a group of heads.
pub fn grid(tiles: &[[u32; 2]], [heads, kv_heads, width]: [usize; 3]) -> Grid {
    let rows_max = tiles.iter().map(|[first, end]| end - first).max().unwrap_or(1) as usize;
    let parts = (rows_max * (heads / kv_heads)).div_ceil(SLOTS);
    Grid {
        blocks: (tiles.len() as u32, (kv_heads * parts) as u32),
        threads: 128,
        shared_bytes: ((SLOTS + 2 * BLOCK) * (width + 8) * 2 + width / 2 * 128 * 4) as u32,
    }
}

/// Returns the shape of a launch for segments of `rows` rows with up to `keys_max` keys.
pub fn segments_grid(rows: usize, keys_max: usize, [heads, kv_heads, width]: [usize; 3]) -> Grid {
    let parts = (heads / kv_heads).div_ceil(SLOTS_OF_ROW);
    Grid {
        blocks: ((rows * kv_heads * parts) as u32, keys_max.div_ceil(SEGMENT) as u32),
        threads: 32,
        shared_bytes: ((SLOTS_OF_ROW + 2 * BLOCK) * (width + 8) * 2) as u32,
    }
}

/// Returns the shape of a launch that merges the segments of rows.
pub fn merge_grid(rows: usize, heads: usize) -> Grid {
    Grid { blocks: (rows as u32, heads as u32), threads: 256, shared_bytes: 0 }
}

/// Returns the outputs of tiles of up to `rows_max` rows, and `m` and `L`.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn tiles(card: &Card, case: &Case, at: &Uploaded, rows_max: usize) -> Result<(Vec<bf16>, Vec<f32>)> {
    let rows = case.q.len() / case.sizes[2];
    let (out, sums) = (card.poisoned(case.q.len())?, card.poisoned(2 * rows)?);
    launch_tiles(card, case, at, rows_max, (&out, Some(&sums)))?;
    Ok((out.read()?, sums.read()?))
}

fn launch_tiles(
    card: &Card,
    case: &Case,
    at: &Uploaded,
    rows_max: usize,
    (out, sums): (&Buffer<bf16>, Option<&Buffer<f32>>),
) -> Result<()> {
    let [heads, kv_heads, width] = case.sizes;
    let tiles = case.layout.tiles_of_rows(rows_max);
    let tiles_at = card.upload(&tiles)?;
    let Uploaded { q, keys, values, plan: Plan { rows, ranges } } = at;
    card.launch(
        &format!("attention_{width}"),
        grid(&tiles, case.sizes),
        arguments![q, keys, values, rows, ranges, &tiles_at, heads, kv_heads, out, sums],
    )
}

fn segments(card: &Card, case: &Case, at: &Uploaded) -> Result<(Vec<bf16>, Vec<f32>)> {
    let [heads, kv_heads, width] = case.sizes;
    let rows = case.layout.rows.len();
    let keys_max = (0..rows).map(|row| case.layout.keys(row).count()).max().unwrap_or(1);
    let grid = segments_grid(rows, keys_max, case.sizes);
    let segments = grid.blocks.1;
    let sums_len = rows * heads * segments as usize;
    let (out, sums) = (card.poisoned::<f32>(sums_len * width)?, card.poisoned::<f32>(2 * sums_len)?);
    let Uploaded { q, keys, values, plan: Plan { rows: spans, ranges } } = at;
    card.launch(
        &format!("attention_segments_{width}"),
        grid,
        arguments![q, keys, values, spans, ranges, heads, kv_heads, &out, &sums],
    )?;
    let (merged, merged_sums) = (card.poisoned(case.q.len())?, card.poisoned(2 * rows * heads)?);
    card.launch(
        "attention_merge",
        merge_grid(rows, heads),
        arguments![spans, &out, &sums, heads, segments, width, &merged, &merged_sums],
    )?;
    Ok((merged.read()?, merged_sums.read()?))
}

/// Returns a batch of 16,384 tokens, of 16 heads of 128, or of a few.
pub fn long_case(card: &Card) -> Case {
    let (lens, sizes) =
        if is_small(card) { ([70, 9, 1, 20], [4, 2, 64]) } else { ([4_096; 4], [16, 4, 128]) };
    Case::of(Layout::sequences(&lens), sizes, 2.0)
}

/// Every row in tiles of two sizes and in segments; some rows near f64.
fn tokens(card: &Card, report: &mut Report) -> Result<()> {
    let case = long_case(card);
    let (text, at) = (format!("{}, some rows", case.text), case.upload(card)?);
    let [heads, kv_heads, _] = case.sizes;
    let (found, sums) = tiles(card, &case, &at, SLOTS / (heads / kv_heads))?;
    let (tiled, tiled_sums) = tiles(card, &case, &at, 5)?;
    report.same("attention, tiles of 5", &case.text, &tiled, &found);
    report.same("attention, tiles of 5, m and L", &case.text, &tiled_sums, &sums);
    let (by_segments, sums_of_segments) = segments(card, &case, &at)?;
    report.same("attention by segments", &case.text, &by_segments, &found);
    report.same("attention by segments, m and L", &case.text, &sums_of_segments, &sums);
    let rows: Vec<usize> = spread(case.layout.rows.len(), 24).collect();
    let exact: Vec<f64> = case.heads_of(rows.iter().copied(), attend_in_f64).concat();
    let width = case.q.len() / case.layout.rows.len();
    let some: Vec<bf16> = rows.iter().flat_map(|row| &found[row * width..][..width]).copied().collect();
    report.near("attention", &text, &widened(&some), &exact, ERROR_MAX);
    Ok(())
}

/// Scores so far apart that most weights are 0.
fn large(card: &Card, report: &mut Report) -> Result<()> {
    for scale in [8.0, 40.0] {
        let mut case = Case::of(Layout::prefilled(130, 9, 16), [1, 1, 64], scale);
        case.text += &format!(", numbers up to {scale}");
        compare(card, report, &case)?;
    }
    Ok(())
}

/// A NaN in a query or a key changes no row that does not attend to it; zeros with a sign, and queries of zeros.
fn special(card: &Card, report: &mut Report) -> Result<()> {
    let mut case = Case::of(Layout::sequences(&[20]), [2, 1, 64], 2.0);
    case.q[4 * 128 + 3] = bf16::NAN;
    case.q[6 * 128..7 * 128].fill(bf16::ZERO);
    case.keys[9 * 64] = bf16::NAN;
    case.keys[12 * 64 + 1] = bf16::INFINITY;
    case.values[..64].fill(bf16::NEG_ZERO);
    let (text, at) = ("special numbers", case.upload(card)?);
    let ((found, _), (by_segments, _)) = (tiles(card, &case, &at, 32)?, segments(card, &case, &at)?);
    report.same("attention by segments", text, &by_segments, &found);
    if card.is_emulated() {
        report.same("attention", text, &found, &case.on_processor().0);
    }
    let without_sums = card.poisoned::<bf16>(case.q.len())?;
    launch_tiles(card, &case, &at, 32, (&without_sums, None))?;
    report.same("attention without m and L", text, &without_sums.read()?, &found);
    let kinds: Vec<f32> = found.iter().map(|value| f32::from(u8::from(value.is_nan()))).collect();
    // One of two heads of row 4, and both of every row that attends to row 9.
    let wanted: Vec<f32> =
        (0..20 * 128).map(|at| f32::from(u8::from(at / 64 == 8 || at / 128 >= 9))).collect();
    report.same("attention, NaN", text, &kinds, &wanted);
    // Values of zeros are those of the first row alone.
    report.same("attention, a row of zeros", text, &found[..128], &[bf16::ZERO; 128]);
    let mut zeros = Case::of(Layout::sequences(&[20]), [2, 1, 64], 2.0);
    zeros.values[..64].fill(bf16::NEG_ZERO);
    let (of_zeros, _) = tiles(card, &zeros, &zeros.upload(card)?, 32)?;
    report.same("attention, before a NaN", text, &found[128..4 * 128], &of_zeros[128..4 * 128]);
    Ok(())
}

impl Case {
    /// Draws numbers up to `scale` for queries and keys.
    pub fn of(layout: Layout, sizes: [usize; 3], scale: f32) -> Self {
        let [heads, kv_heads, width] = sizes;
        let kv_len = layout.num_keys * kv_heads * width;
        let halves = |name, len, scale| random(name, len, scale).into_iter().map(bf16::from_f32).collect();
        Self {
            text: format!("{heads} heads of {kv_heads} x {width}, {}", layout.name),
            sizes,
            q: halves("q", layout.rows.len() * heads * width, scale),
            keys: halves("keys", kv_len, scale),
            values: halves("values", kv_len, 1.0),
            layout,
        }
    }

    pub fn shape(&self) -> AttentionShape {
        let [num_heads, num_kv_heads, head_dim] = self.sizes;
        AttentionShape { num_heads, num_kv_heads, head_dim }
    }

    /// Returns the spans of an operation.
    pub fn spans(&self) -> Spans {
        let mut spans = Spans::default();
        self.layout.rows.iter().for_each(|row| spans.push_row(row));
        spans
    }

    /// Copies a case to the card.
    ///
    /// # Errors
    /// Errors of the GPU's driver.
    pub fn upload(&self, card: &Card) -> Result<Uploaded> {
        Ok(Uploaded {
            q: card.upload(&self.q)?,
            keys: card.upload(&self.keys)?,
            values: card.upload(&self.values)?,
            plan: self.layout.plan(card)?,
        })
    }

    /// Returns what `each` computes for each row and head, from its query, keys and values.
    fn each_head<T>(&self, each: impl Fn(&[bf16], &[&[bf16]], &[&[bf16]]) -> T) -> Vec<T> {
        self.heads_of(0..self.layout.rows.len(), each)
    }

    /// Returns the same for each head of some rows.
    fn heads_of<T>(
        &self,
        rows: impl Iterator<Item = usize>,
        each: impl Fn(&[bf16], &[&[bf16]], &[&[bf16]]) -> T,
    ) -> Vec<T> {
        let [heads, kv_heads, width] = self.sizes;
        let of = |nh: usize| {
            let kv_head = nh % heads / (heads / kv_heads);
            let rows = |of| -> Vec<&[bf16]> {
                let at = |row: usize| &(of as &Vec<bf16>)[(row * kv_heads + kv_head) * width..][..width];
                self.layout.keys(nh / heads).map(at).collect()
            };
            each(&self.q[nh * width..][..width], &rows(&self.keys), &rows(&self.values))
        };
        rows.flat_map(|row| row * heads..(row + 1) * heads).map(of).collect()
    }

    /// Returns the outputs by the rule of the kernels, and `m` and `L`.
    fn on_processor(&self) -> (Vec<bf16>, Vec<f32>) {
        let (out, sums): (Vec<_>, Vec<_>) = self.each_head(attend).into_iter().unzip();
        (out.concat(), sums.concat())
    }

    fn in_f64(&self) -> Vec<f64> {
        self.each_head(attend_in_f64).concat()
    }
}

fn attend_in_f64(q: &[bf16], keys: &[&[bf16]], values: &[&[bf16]]) -> Vec<f64> {
    let scale = 1.0 / (q.len() as f64).sqrt();
    let dot = |key: &&[bf16]| -> f64 { q.iter().zip(*key).map(|(q, k)| q.to_f64() * k.to_f64()).sum() };
    let scores: Vec<f64> = keys.iter().map(|key| dot(key) * scale).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    let output = |e: usize| weights.iter().zip(values).map(|(w, v)| w * v[e].to_f64()).sum::<f64>() / total;
    (0..q.len()).map(output).collect()
}

/// Sums of weighted values, their maximum and the sum of their weights.
struct Sums {
    out: Vec<f32>,
    max: f32,
    weights: f32,
}

/// Attends by the rule of the kernels: segments of blocks, merged in order.
fn attend(q: &[bf16], keys: &[&[bf16]], values: &[&[bf16]]) -> (Vec<bf16>, Vec<f32>) {
    let mut total = Sums { out: vec![0.0; q.len()], max: f32::NEG_INFINITY, weights: 0.0 };
    for (keys, values) in keys.chunks(SEGMENT).zip(values.chunks(SEGMENT)) {
        let segment = attend_to_segment(q, keys, values);
        let max = total.max.max(segment.max);
        let (of_total, of_segment) = (exp2(total.max - max), exp2(segment.max - max));
        let join = |a: f32, b: f32| a * of_total + b * of_segment;
        total.out.iter_mut().zip(&segment.out).for_each(|(a, b)| *a = join(*a, *b));
        total.weights = join(total.weights, segment.weights);
        total.max = max;
    }
    let inverse = 1.0 / total.weights;
    let out = total.out.iter().map(|out| bf16::from_f32(out * inverse + 0.0)).collect();
    (out, vec![total.max, total.weights])
}

fn attend_to_segment(q: &[bf16], keys: &[&[bf16]], values: &[&[bf16]]) -> Sums {
    let scale = std::f32::consts::LOG2_E / (q.len() as f32).sqrt();
    let (mut out, mut max, mut sums) = (vec![0.0; q.len()], f32::NEG_INFINITY, [0.0_f32; 4]);
    for (keys, values) in keys.chunks(BLOCK).zip(values.chunks(BLOCK)) {
        let score = |key: &&[bf16]| {
            let steps = q.chunks(16).zip(key.chunks(16));
            steps.fold(0.0, |sum, (q, key)| add_products(sum, q.iter().copied().zip(key.iter().copied())))
                * scale
        };
        let mut weights: Vec<f32> = keys.iter().map(score).collect();
        let new_max = weights.iter().copied().fold(max, f32::max);
        weights.iter_mut().for_each(|weight| *weight = exp2(*weight - new_max));
        let down = exp2(max - new_max);
        max = new_max;
        // Of each 8 keys, one of four threads has two neighbours.
        for (thread, sum) in sums.iter_mut().enumerate() {
            let own = weights.iter().enumerate().filter(|(key, _)| key % 8 / 2 == thread);
            *sum = *sum * down + own.fold(0.0, |sum, (_, weight)| sum + weight);
        }
        let halves: Vec<bf16> = weights.iter().copied().map(bf16::from_f32).collect();
        for (e, out) in out.iter_mut().enumerate() {
            *out *= down;
            for (weights, values) in halves.chunks(16).zip(values.chunks(16)) {
                *out = add_products(*out, weights.iter().copied().zip(values.iter().map(|value| value[e])));
            }
        }
    }
    Sums { out, max, weights: (sums[0] + sums[1]) + (sums[2] + sums[3]) }
}

/// Adds up to 16 products at once, rounded once: an instruction of the emulated GPU.
pub fn add_products(sum: f32, products: impl Iterator<Item = (bf16, bf16)>) -> f32 {
    (f64::from(sum) + products.fold(0.0, |sum, (a, b)| sum + a.to_f64() * b.to_f64())) as f32
}

/// Returns 2^x as the emulated GPU does: 0 below the normal numbers.
pub fn exp2(x: f32) -> f32 {
    let value = f64::from(x).exp2() as f32;
    if value < f32::MIN_POSITIVE { 0.0 } else { value }
}

/// Returns the same numbers in f32.
pub fn widened(halves: &[bf16]) -> Vec<f32> {
    halves.iter().map(|half| half.to_f32()).collect()
}

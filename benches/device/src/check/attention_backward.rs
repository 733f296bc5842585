//! Gradients of attention in bfloat16: near those of f64, and equal bits of a query's gradient in every tile.
//!
//! On the emulated GPU they have the bits of [`Model`], which follows the order of `attention_backward.cu`.

use std::borrow::Cow;

use fulmar_compute::{AttentionSaved, Compute, Memory};
use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, arguments};
use half::bf16;

use super::attention::{
    Case, ERROR_MAX, SLOTS, Uploaded, add_products, exp2, grid, long_case, tiles, widened,
};
use super::attention_f32::gradients_in_f64;
use super::spans::{Layout, Plan};
use super::spread;
use crate::numbers::random;
use crate::report::Report;

/// Key/value rows of a block of threads.
pub const TILE_KEYS: u32 = 64;

/// Heads that a block holds in shared memory.
const LINES: usize = 256;

/// Largest relative error of gradients where that of outputs, which are saved in bfloat16, counts too. It is largest where a row has
/// few keys: there `do . v` and `do . o` are almost equal.
const ROUNDED_ERROR_MAX: f64 = 1e-2;

/// Gradients of queries, keys and values.
type Gradients = [Vec<f32>; 3];

/// Compares the gradients at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (layout, sizes) in layouts() {
        compare(card, report, &Case::of(layout, sizes, 2.0))?;
    }
    tokens(card, report)
}

/// Gradients of a batch of 16,384 tokens, of which some rows and keys are compared with f64, for the outputs, `m` and `L` that
/// were saved.
fn tokens(card: &Card, report: &mut Report) -> Result<()> {
    let case = long_case(card);
    let ([heads, kv_heads, width], at) = (case.sizes, case.upload(card)?);
    let group = heads / kv_heads;
    let (out, sums) = tiles(card, &case, &at, SLOTS / group)?;
    let d_out: Vec<bf16> = random("d_out", case.q.len(), 1.0).into_iter().map(bf16::from_f32).collect();
    let found = gradients(card, &case, &at, SLOTS / group, (&out, &sums, &d_out))?;
    let saved = Saved { case: &case, out: &out, sums: &sums, d_out: &d_out };
    let (rows, mut exact): (Vec<usize>, [Vec<f64>; 3]) =
        (spread(case.layout.rows.len(), 12).collect(), Default::default());
    for row in &rows {
        for nh in row * heads..(row + 1) * heads {
            let keys = case.layout.keys(*row).map(|key| key * kv_heads + nh % heads / group);
            exact[0]
                .extend(weighted(keys.map(|kv| (saved.d_score(nh, kv), line(&case.keys, kv, width))), width));
        }
        // A row of a sequence is the key of its number: the rows from it on attend to it.
        let end = case.layout.blocks.iter().find(|(first, end)| (*first..*end).contains(&(*row as u32)));
        let attending = *row..end.map_or(0, |(_, end)| *end as usize);
        for kv in row * kv_heads..(row + 1) * kv_heads {
            let first = kv % kv_heads * group;
            let slots =
                || attending.clone().flat_map(move |row| row * heads + first..row * heads + first + group);
            let of_scores = slots().map(|nh| (saved.d_score(nh, kv), line(&case.q, nh, width)));
            exact[1].extend(weighted(of_scores, width));
            exact[2].extend(weighted(slots().map(|nh| (saved.p(nh, kv), line(&d_out, nh, width))), width));
        }
    }
    for (name, (found, exact)) in ["queries", "keys", "values"].iter().zip(found.iter().zip(&exact)) {
        let width = found.len() / case.layout.rows.len();
        let some: Vec<f32> = rows.iter().flat_map(|row| &found[row * width..][..width]).copied().collect();
        report.near(
            &format!("attention_backward, {name}"),
            &format!("{}, some rows", case.text),
            &some,
            exact,
            ERROR_MAX,
        );
    }
    Ok(())
}

/// Results of a forward pass, and the gradients of its outputs.
struct Saved<'a> {
    case: &'a Case,
    out: &'a [bf16],
    sums: &'a [f32],
    d_out: &'a [bf16],
}

impl Saved<'_> {
    /// Returns the weight of a key for a query head.
    fn p(&self, nh: usize, kv: usize) -> f64 {
        let Case { sizes: [.., width], q, keys, .. } = self.case;
        let score = dot(line(q, nh, *width), line(keys, kv, *width)) / (*width as f64).sqrt();
        let [max, sum] = [self.sums[2 * nh], self.sums[2 * nh + 1]].map(f64::from);
        (score * std::f64::consts::LOG2_E - max).exp2() / sum
    }

    /// Returns the gradient of a product of a query and a key.
    fn d_score(&self, nh: usize, kv: usize) -> f64 {
        let width = self.case.sizes[2];
        let d_out = line(self.d_out, nh, width);
        let d = dot(d_out, line(&self.case.values, kv, width)) - dot(d_out, line(self.out, nh, width));
        self.p(nh, kv) * d / (width as f64).sqrt()
    }
}

fn dot(a: &[bf16], b: &[bf16]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum()
}

/// Returns the sum of lines with their factors.
fn weighted<'a>(lines: impl Iterator<Item = (f64, &'a [bf16])>, width: usize) -> Vec<f64> {
    lines.fold(vec![0.0; width], |mut sums, (factor, line)| {
        sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += factor * value.to_f64());
        sums
    })
}

/// Layouts with heads, key/value heads and their width: every width; groups at and above the slots of a tile; keys and slots
/// below, at and above a stage and a tile.
fn layouts() -> Vec<(Layout, [usize; 3])> {
    vec![
        (Layout::sequences(&[1]), [1, 1, 64]),
        (Layout::sequences(&[2, 1, 5]), [2, 2, 80]),
        (Layout::sequences(&[17]), [14, 2, 64]),
        (Layout::sequences(&[66]), [1, 1, 64]),
        (Layout::tree(13, &[4, 1, 7]), [3, 1, 96]),
        (Layout::tree(31, &[2, 3]).with_empty_ranges(), [2, 1, 64]),
        (Layout::sequences(&[64, 33]), [1, 1, 64]),
        (Layout::tree(5, &[40, 60]), [1, 1, 64]),
        (Layout::sequences(&[3, 2]), [65, 1, 64]),
        (Layout::sequences(&[9]), [4, 2, 128]),
        (Layout::sequences(&[32]), [2, 2, 64]),
        (Layout::sequences(&[6, 20]), [2, 1, 256]),
        (Layout::sequences(&[33]), [1, 1, 256]),
    ]
}

fn compare(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let rows_max = (SLOTS / (case.sizes[0] / case.sizes[1])).max(1);
    let at = case.upload(card)?;
    let (out, sums) = tiles(card, case, &at, rows_max)?;
    let d_out: Vec<bf16> = random("d_out", case.q.len(), 1.0).into_iter().map(bf16::from_f32).collect();
    let found = gradients(card, case, &at, rows_max, (&out, &sums, &d_out))?;
    let wide = [&case.q, &case.keys, &case.values, &d_out].map(|halves| widened(halves));
    let in_f64 = |out: Option<&[f32]>| {
        gradients_in_f64(case.shape(), &case.layout, wide.each_ref().map(Vec::as_slice), out)
    };
    let names = ["queries", "keys", "values"];
    // The gradients of what was saved, and those of the function, whose outputs are not rounded.
    for (exact, limit) in [(in_f64(Some(&widened(&out))), ERROR_MAX), (in_f64(None), ROUNDED_ERROR_MAX)] {
        for ((name, found), exact) in names.iter().zip(&found).zip(&exact) {
            report.near(&format!("attention_backward, {name}"), &case.text, found, exact, limit);
        }
    }
    let by_operation = operation(card, case, (&out, &sums, &d_out))?;
    let name = "attention_backward, the operation";
    report.same(&format!("{name}, queries"), &case.text, &by_operation[0], &found[0]);
    let exact = in_f64(Some(&widened(&out)));
    for at in [1, 2] {
        report.near(&format!("{name}, {}", names[at]), &case.text, &by_operation[at], &exact[at], ERROR_MAX);
    }
    if card.is_emulated() {
        let model = Model { case, out: &out, sums: &sums, d_out: &d_out };
        for ((name, found), modelled) in names.iter().zip(&found).zip(&model.gradients()) {
            report.same(&format!("attention_backward, {name}"), &case.text, found, modelled);
        }
    }
    if rows_max > 3 && case.layout.rows.len() < 20 {
        let [d_q, ..] = gradients(card, case, &at, 3, (&out, &sums, &d_out))?;
        report.same("attention_backward, tiles of 3", &case.text, &d_q, &found[0]);
    }
    Ok(())
}

/// Returns what the operation of `fulmar-compute` writes. Its tiles of keys leave out rows that attend to none of them.
fn operation(card: &Card, case: &Case, (out, sums, d_out): (&[bf16], &[f32], &[bf16])) -> Result<Gradients> {
    let on = Compute::Cuda(*card);
    let hold = |of: &[bf16]| on.hold(of.to_vec());
    let (q, keys, values, out) = (hold(&case.q)?, hold(&case.keys)?, hold(&case.values)?, hold(out)?);
    let (log_sum, d_out) = (on.hold(sums.to_vec())?, on.hold(widened(d_out))?);
    let saved = AttentionSaved {
        q: (&q).into(),
        keys: (&keys).into(),
        values: (&values).into(),
        out: (&out).into(),
        log_sum: log_sum.view(),
    };
    let poisoned = |of: &[bf16]| on.hold(vec![f32::NAN; of.len()]);
    let (mut d_q, mut d_keys, mut d_values) =
        (poisoned(&case.q)?, poisoned(&case.keys)?, poisoned(&case.values)?);
    let (spans, blocks) = (case.spans(), &case.layout.blocks);
    on.attention_backward(case.shape(), saved, &spans, blocks, &d_out, &mut d_q, &mut d_keys, &mut d_values);
    on.check()?;
    let read = |gradient: &Memory<f32>| on.read(gradient).map(Cow::into_owned);
    Ok([read(&d_q)?, read(&d_keys)?, read(&d_values)?])
}

/// Returns the shape of a launch for the gradients of queries.
pub fn queries_grid(tiles: &[[u32; 2]], sizes: [usize; 3]) -> Grid {
    Grid { shared_bytes: (LINES * (sizes[2] + 8) * 2) as u32, ..grid(tiles, sizes) }
}

/// Returns the shape of a launch for the gradients of keys and values.
pub fn keys_grid(tiles: usize, [_, kv_heads, width]: [usize; 3]) -> Grid {
    let parts = width.div_ceil(128);
    Grid {
        blocks: (tiles as u32, (kv_heads * parts) as u32),
        threads: 128,
        shared_bytes: (LINES * (width + 8) * 2 + 2 * 32 * 5 * 4) as u32,
    }
}

fn gradients(
    card: &Card,
    case: &Case,
    at: &Uploaded,
    rows_max: usize,
    (out, sums, d_out): (&[bf16], &[f32], &[bf16]),
) -> Result<Gradients> {
    let [heads, kv_heads, width] = case.sizes;
    let (row_tiles, key_tiles) = (case.layout.tiles_of_rows(rows_max), case.layout.tiles(TILE_KEYS));
    let (row_tiles_at, key_tiles_at) = (card.upload(&row_tiles)?, card.upload(&key_tiles)?);
    let (out, sums, d_out) = (card.upload(out)?, card.upload(sums)?, card.upload(d_out)?);
    let (d_q, along) = (card.poisoned(case.q.len())?, card.poisoned::<f32>(case.q.len() / width)?);
    let (d_keys, d_values) = (card.poisoned(case.keys.len())?, card.poisoned(case.values.len())?);
    let Uploaded { q, keys, values, plan: Plan { rows, ranges } } = at;
    card.launch(
        &format!("attention_backward_queries_{width}"),
        queries_grid(&row_tiles, case.sizes),
        arguments![
            q,
            keys,
            values,
            rows,
            ranges,
            &row_tiles_at,
            &out,
            &sums,
            &d_out,
            heads,
            kv_heads,
            &d_q,
            &along
        ],
    )?;
    card.launch(
        &format!("attention_backward_keys_{width}"),
        keys_grid(key_tiles.len(), case.sizes),
        arguments![
            q,
            keys,
            values,
            rows,
            ranges,
            &key_tiles_at,
            &sums,
            &d_out,
            &along,
            heads,
            kv_heads,
            &d_keys,
            &d_values
        ],
    )?;
    Ok([d_q.read()?, d_keys.read()?, d_values.read()?])
}

/// Gradients with every sum in the order of the kernels.
struct Model<'a> {
    case: &'a Case,
    out: &'a [bf16],
    sums: &'a [f32],
    d_out: &'a [bf16],
}

impl Model<'_> {
    fn gradients(&self) -> Gradients {
        let Case { layout, sizes: [heads, kv_heads, width], q, keys, .. } = self.case;
        let (group, inverse_root) = (heads / kv_heads, 1.0 / (*width as f32).sqrt());
        let mut found = [vec![0.0; q.len()], vec![0.0; keys.len()], vec![0.0; keys.len()]];
        for nh in 0..layout.rows.len() * heads {
            let kv: Vec<usize> =
                layout.keys(nh / heads).map(|row| row * kv_heads + nh % heads / group).collect();
            let d_scores: Vec<bf16> = kv.iter().map(|kv| self.p_and_d_score(nh, *kv).1).collect();
            let d_q = &mut found[0][nh * width..][..*width];
            add(d_q, &d_scores, &kv.iter().map(|kv| line(keys, *kv, *width)).collect::<Vec<_>>());
            d_q.iter_mut().for_each(|d| *d *= inverse_root);
        }
        for [first_key, end_key, first_row, end_row] in layout.tiles(TILE_KEYS) {
            for kv in first_key as usize * kv_heads..end_key as usize * kv_heads {
                let slots: Vec<usize> = (first_row as usize..end_row as usize)
                    .flat_map(|row| {
                        (0..group).map(move |head| (row * kv_heads + kv % kv_heads) * group + head)
                    })
                    .collect();
                let of_slot = |nh: &usize| match layout.keys(nh / heads).any(|row| row == kv / kv_heads) {
                    true => self.p_and_d_score(*nh, kv),
                    false => (bf16::ZERO, bf16::ZERO),
                };
                let (weights, d_scores): (Vec<bf16>, Vec<bf16>) = slots.iter().map(of_slot).unzip();
                let lines = |of| -> Vec<&[bf16]> { slots.iter().map(|nh| line(of, *nh, *width)).collect() };
                let d_key = &mut found[1][kv * width..][..*width];
                add(d_key, &d_scores, &lines(q));
                d_key.iter_mut().for_each(|d| *d *= inverse_root);
                add(&mut found[2][kv * width..][..*width], &weights, &lines(self.d_out));
            }
        }
        found
    }

    /// Returns `p` and `ds` without its scale, rounded, of a query head and a key that it attends to.
    fn p_and_d_score(&self, nh: usize, kv: usize) -> (bf16, bf16) {
        let Case { sizes: [.., width], q, keys, values, .. } = self.case;
        let head = |of, at| line(of, at, *width);
        let product = |a: &[bf16], b: &[bf16]| {
            let steps = a.chunks(16).zip(b.chunks(16));
            steps.fold(0.0, |sum, (a, b)| add_products(sum, a.iter().copied().zip(b.iter().copied())))
        };
        let scale = std::f32::consts::LOG2_E / (*width as f32).sqrt();
        let [max, sum] = [self.sums[2 * nh], self.sums[2 * nh + 1]];
        let p = exp2(product(head(q, nh), head(keys, kv)) * scale - max) * (1.0 / sum);
        let d_out = head(self.d_out, nh);
        let d_score = p * (product(d_out, head(values, kv)) - along(d_out, head(self.out, nh)));
        (bf16::from_f32(p), bf16::from_f32(d_score))
    }
}

/// Returns `do . o`, which two threads sum, every other 8 elements each.
fn along(d_out: &[bf16], out: &[bf16]) -> f32 {
    let mut halves = [0.0_f32; 2];
    for (at, (d_out, out)) in d_out.iter().zip(out).enumerate() {
        halves[at / 8 % 2] += d_out.to_f32() * out.to_f32();
    }
    halves[0] + halves[1]
}

/// Returns head number `at` of heads of `width`.
fn line(of: &[bf16], at: usize, width: usize) -> &[bf16] {
    &of[at * width..][..width]
}

/// Adds lines with their factors, 16 at a time.
fn add(sums: &mut [f32], factors: &[bf16], lines: &[&[bf16]]) {
    for (e, sum) in sums.iter_mut().enumerate() {
        for (factors, lines) in factors.chunks(16).zip(lines.chunks(16)) {
            *sum = add_products(*sum, factors.iter().copied().zip(lines.iter().map(|line| line[e])));
        }
    }
}

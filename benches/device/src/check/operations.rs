//! The operations of `fulmar-compute` on the card: every bit of the same call on the processor.

use std::fmt::Debug;

use fulmar_compute::{
    AdamwStep, AttentionShape, Compute, Floats, LogProb, MatRef, MatmulPrecision, Memory, RopeTable,
    RowNumbers, SgdStep, Spans, ViewMut, rope_frequencies,
};
use fulmar_core::{Dtype, ErrorKind, Result, Rng};
use fulmar_cuda::Card;
use half::bf16;

use super::spans::Layout;
use crate::numbers::random;
use crate::report::{Bits, Report};

/// Rows and their width: one below and above a half-warp, a warp and a block of threads, and several chunks of rows.
const SHAPES: [(usize, usize); 12] = [
    (1, 1),
    (3, 2),
    (2, 15),
    (5, 16),
    (1, 17),
    (7, 33),
    (4, 128),
    (2, 129),
    (3, 257),
    (65, 512),
    (20, 896),
    (2, 4_100),
];

/// Largest relative error of a product in bfloat16 in the L2 norm.
const HALVES_ERROR_MAX: f64 = 4e-3;

/// Compares every operation at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (rows, width) in SHAPES {
        let on = Both { card: *card, shape: format!("{rows} x {width}") };
        elementwise(&on, report, rows, width)?;
        norms(&on, report, rows, width)?;
        products(&on, report, rows, width)?;
        products_in_halves(&on, report, rows, width)?;
        moved(&on, report, rows, width)?;
        embedded(&on, report, rows, width)?;
        probabilities(&on, report, rows, width)?;
        steps(&on, report, rows * width)?;
        casts(&on, report, rows * width)?;
    }
    for (rows, heads, width) in [(1, 1, 2), (3, 2, 8), (5, 3, 20), (4, 7, 64), (2, 2, 256)] {
        rotated(card, report, rows, heads, width)?;
    }
    attended(card, report)?;
    planned(card, report)?;
    memory(card, report)?;
    refused(card, report)
}

/// The processor and the card.
struct Both {
    card: Card,
    shape: String,
}

impl Both {
    /// Runs an operation on copies of `inputs` and `outputs` on both devices; compares all outputs and the numbers that it
    /// returns.
    fn same<T: Bits>(
        &self,
        report: &mut Report,
        name: &str,
        inputs: &[&[f32]],
        outputs: &[&[T]],
        run: impl Fn(Compute, &[Memory<f32>], &mut [Memory<T>]) -> Vec<f64>,
    ) -> Result<()> {
        let on = |compute: Compute| -> Result<(Vec<Vec<T>>, Vec<f64>)> {
            let inputs =
                inputs.iter().map(|input| compute.hold(input.to_vec())).collect::<Result<Vec<_>>>()?;
            let mut outputs: Vec<Memory<T>> =
                outputs.iter().map(|output| compute.hold(output.to_vec())).collect::<Result<_>>()?;
            let values = run(compute, &inputs, &mut outputs);
            compute.check()?;
            let read = |output: &Memory<T>| Ok(output.view().read()?.into_owned());
            Ok((outputs.iter().map(read).collect::<Result<_>>()?, values))
        };
        let (wanted, wanted_values) = on(Compute::Cpu)?;
        match on(Compute::Cuda(self.card)) {
            Ok((got, got_values)) => {
                for (got, wanted) in got.iter().zip(&wanted) {
                    report.same(name, &self.shape, got, wanted);
                }
                report.same(&format!("{name}, values"), &self.shape, &got_values, &wanted_values);
            }
            Err(error) => report.broken(&format!("{name}, {}", self.shape), &error),
        }
        Ok(())
    }
}

fn elementwise(on: &Both, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let len = rows * width;
    let [x, y, z] = ["x", "y", "z"].map(|name| random(name, len, 4.0));
    let bias = random("bias", width, 1.0);
    on.same(report, "swiglu", &[&x, &y], &[&z], |on, i, o| {
        on.swiglu(&i[0], &i[1], &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "swiglu_backward", &[&z], &[&x, &y], |on, i, o| {
        let (gate, up) = o.split_at_mut(1);
        on.swiglu_backward(&mut gate[0], &mut up[0], &i[0]);
        Vec::new()
    })?;
    on.same(report, "scale", &[], &[&x], |on, _, o| {
        on.scale(&mut o[0], -0.3);
        Vec::new()
    })?;
    on.same(report, "add_bias", &[&bias], &[&x], |on, i, o| {
        on.add_bias(&mut o[0], &i[0]);
        Vec::new()
    })?;
    on.same(report, "bias_backward", &[&x], &[&bias], |on, i, o| {
        on.bias_backward(&i[0], &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "sum_of_squares", &[&x], &[&[0.0_f32][..]; 0], |on, i, _| vec![on.sum_of_squares(&i[0])])
}

fn norms(on: &Both, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let [x, d_out, d_x] = ["x", "d_out", "d_x"].map(|name| random(name, rows * width, 3.0));
    let [weight, d_weight] = ["weight", "d_weight"].map(|name| random(name, width, 2.0));
    let inv_rms: Vec<f32> = random("inv_rms", rows, 1.0).iter().map(|number| number.abs() + 0.1).collect();
    on.same(report, "rms_norm", &[&x, &weight], &[&d_x, &inv_rms], |on, i, o| {
        let (out, inv_rms) = o.split_at_mut(1);
        on.rms_norm(&i[0], &i[1], 1e-6, &mut out[0], &mut inv_rms[0]);
        Vec::new()
    })?;
    let scales: Vec<f32> =
        (0..rows).map(|row| [0.5, 0.0, f32::NAN, f32::INFINITY, -1.0, 2.0][row % 6]).collect();
    on.same(report, "mask_overflow", &[&scales], &[&x], |on, i, o| {
        on.mask_overflow(&mut o[0], &i[0]);
        Vec::new()
    })?;
    for has_weight in [false, true] {
        on.same(
            report,
            "rms_norm_backward",
            &[&x, &weight, &inv_rms, &d_out],
            &[&d_x, &d_weight],
            |on, i, o| {
                let (d_x, d_weight) = o.split_at_mut(1);
                let d_weight = has_weight.then(|| ViewMut::from(&mut d_weight[0]));
                on.rms_norm_backward(&i[0], &i[1], &i[2], &i[3], &mut d_x[0], d_weight);
                Vec::new()
            },
        )?;
    }
    Ok(())
}

/// Rows by weights of some widths, once in a part of a larger buffer, as weights of a decoder are.
fn products(on: &Both, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    for outs in [1, 5, 64, 65] {
        gradients(on, report, [rows, outs, width])?;
        let [x, w, y] = [rows * width, outs * width + 3, rows * outs].map(|len| random("product", len, 1.0));
        for adds in [false, true] {
            on.same(report, "matmul", &[&x, &w], &[&y], |on, i, o| {
                let w = MatRef::new(i[1].view().slice(3..), outs, width).transposed();
                on.matmul(&mut o[0], MatRef::new(&i[0], rows, width), w, adds);
                Vec::new()
            })?;
        }
        on.same(report, "matmul_each", &[&x, &w], &[&y, &y], |on, i, o| {
            let [first, second] = [3, 0]
                .map(|at| MatRef::new(i[1].view().slice(at..at + outs * width), outs, width).transposed());
            let (one, other) = o.split_at_mut(1);
            let bias = i[1].view().slice(1..1 + outs);
            let products = [(one[0].view_mut(), first, Some(bias)), (other[0].view_mut(), second, None)];
            on.matmul_each(MatRef::new(&i[0], rows, width), products);
            Vec::new()
        })?;
    }
    Ok(())
}

/// The gradients of both operands of a product of rows by a weight, written and added.
fn gradients(on: &Both, report: &mut Report, [rows, outs, inner]: [usize; 3]) -> Result<()> {
    let [x, w, d_y] = [rows * inner, outs * inner, rows * outs].map(|len| random("gradients", len, 1.0));
    for adds in [false, true] {
        on.same(report, "gradients of a product", &[&x, &w, &d_y], &[&x, &w], |on, i, o| {
            let (x, w) = (MatRef::new(&i[0], rows, inner), MatRef::new(&i[1], outs, inner));
            let (d_y, (d_x, d_w)) = (MatRef::new(&i[2], rows, outs), o.split_at_mut(1));
            on.matmul(&mut d_x[0], d_y, w, adds);
            on.matmul(&mut d_w[0], d_y.transposed(), x, adds);
            Vec::new()
        })?;
    }
    Ok(())
}

/// A product and the gradients of both operands, written and added, where a weight is in bfloat16 or the precision is: near the sums
/// in double precision of what is rounded.
fn products_in_halves(on: &Both, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let compute = Compute::Cuda(on.card);
    for outs in [5, 65] {
        let numbers = |name: &str, len: usize| compute.hold(random(name, len, 1.0));
        let [x, w, d_y] =
            [numbers("x", rows * width)?, numbers("w", outs * width)?, numbers("d", rows * outs)?];
        let [y, d_x, d_w] = [rows * outs, rows * width, outs * width].map(|len| random("sums", len, 1.0));
        let rounded = |memory: &Memory<f32>| -> Result<Vec<bf16>> {
            Ok(memory.view().read()?.iter().map(|number| bf16::from_f32(*number)).collect())
        };
        let (stored, w_up) = (compute.hold(rounded(&w)?)?, numbers("up", outs * width)?);
        let [of_x, of_w, of_d] = [rounded(&x)?, rounded(&w)?, rounded(&d_y)?];
        let number = |matrix: &[bf16], at: usize| f64::from(matrix[at].to_f32());
        let sums =
            |rows: usize, outs: usize, inner: usize, term: &dyn Fn(usize, usize, usize) -> f64| -> Vec<f64> {
                (0..rows * outs).map(|at| (0..inner).map(|k| term(at / outs, at % outs, k)).sum()).collect()
            };
        let exact = [
            sums(rows, outs, width, &|n, o, k| number(&of_x, n * width + k) * number(&of_w, o * width + k)),
            sums(rows, width, outs, &|n, k, o| number(&of_d, n * outs + o) * number(&of_w, o * width + k)),
            sums(outs, width, rows, &|o, k, n| number(&of_d, n * outs + o) * number(&of_x, n * width + k)),
        ];
        for (form, weight) in [("f32", Floats::F32(w.view())), ("bf16", Floats::Bf16(stored.view()))] {
            for adds in [false, true] {
                let x = MatRef::new(&x, rows, width).in_precision(MatmulPrecision::Bf16);
                let w = MatRef::of(weight, outs, width).in_precision(MatmulPrecision::Bf16);
                let d = MatRef::new(&d_y, rows, outs);
                let cases = [
                    ("rows", &y, x, w.transposed()),
                    ("d rows", &d_x, d, w),
                    ("d weight", &d_w, d.transposed(), x),
                ];
                for ((name, before, left, right), exact) in cases.into_iter().zip(&exact) {
                    let mut out = compute.hold(before.clone())?;
                    compute.matmul(&mut out, left, right, adds);
                    compute.check()?;
                    let wanted: Vec<f64> = exact
                        .iter()
                        .zip(before)
                        .map(|(sum, before)| if adds { sum + f64::from(*before) } else { *sum })
                        .collect();
                    let shape = format!("{} by {outs}, {form}, adds {adds}", on.shape);
                    report.near(
                        &format!("product in halves, {name}"),
                        &shape,
                        &out.view().read()?,
                        &wanted,
                        HALVES_ERROR_MAX,
                    );
                }
            }
            let x = MatRef::new(&x, rows, width);
            // One more than a launch computes.
            let counts = [outs, outs.div_ceil(2), 1, outs];
            let weights = counts.map(|count| {
                let weight = weight.slice(..count * width);
                MatRef::of(weight, count, width).in_precision(MatmulPrecision::Bf16).transposed()
            });
            let room = || counts.map(|count| compute.hold(y[..rows * count].to_vec()).unwrap_or_default());
            let (mut alone, mut each) = (room(), room());
            for (out, weight) in alone.iter_mut().zip(weights) {
                compute.matmul(out, x, weight, false);
            }
            let bias = d_y.view().slice(..counts[1]);
            compute.add_bias(&mut alone[1], bias);
            let ([y1, y2, y3, y4], [w1, w2, w3, w4]) = (each.each_mut(), weights);
            let (first, second) = ((y1.view_mut(), w1, None), (y2.view_mut(), w2, Some(bias)));
            compute.matmul_each(x, [first, second, (y3.view_mut(), w3, None), (y4.view_mut(), w4, None)]);
            for (at, (each, alone)) in each.iter().zip(&alone).enumerate() {
                let shape = format!("{}, number {at} of 4", on.shape);
                report.same("matmul_each in halves", &shape, &each.view().read()?, &alone.view().read()?);
            }
            let up = MatRef::new(&w_up, outs, width).in_precision(MatmulPrecision::Bf16).transposed();
            gated(on, report, x, [weights[0], up], rows * outs)?;
        }
    }
    Ok(())
}

/// Two products by weights in halves with their gated activation, in either width, against both products and the activation alone.
fn gated(on: &Both, report: &mut Report, x: MatRef<'_>, weights: [MatRef<'_>; 2], len: usize) -> Result<()> {
    let compute = Compute::Cuda(on.card);
    let (mut alone, mut together) =
        ([compute.zeros(len)?, compute.zeros(len)?], [compute.zeros(len)?, compute.zeros(len)?]);
    for (out, weight) in alone.iter_mut().zip(weights) {
        compute.matmul(out, x, weight, false);
    }
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let (mut wanted, mut act) = (compute.zero_floats(dtype, len)?, compute.zero_floats(dtype, len)?);
        compute.swiglu(&alone[0], &alone[1], wanted.view_mut());
        let [gate, up] = together.each_mut().map(|out: &mut Memory<f32>| out.view_mut());
        compute.matmul_gated(x, (gate, weights[0]), (up, weights[1]), act.view_mut());
        let shape = format!("{}, {}", on.shape, dtype.name());
        report.same("matmul_gated, act", &shape, &act.view().read()?, &wanted.view().read()?);
        for (name, (one, other)) in ["gate", "up"].into_iter().zip(together.iter().zip(&alone)) {
            let name = format!("matmul_gated, {name}");
            report.same(&name, &shape, &one.view().read()?, &other.view().read()?);
        }
    }
    Ok(())
}

/// Rows of elements of 1, 2, 4 and 8 bytes, some of which come several times.
fn moved(on: &Both, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let mut rng = Rng::new(22).stream("operations").fork((rows * width) as u64);
    let indices: Vec<usize> = (0..rows + 2).map(|_| rng.next_u32() as usize % rows).collect();
    moved_of(on, report, (rows, width), &indices, |number| number as u8)?;
    moved_of(on, report, (rows, width), &indices, |number| bf16::from_bits(number as u16 & 0x3fff))?;
    moved_of(on, report, (rows, width), &indices, |number| f32::from_bits(number as u32 & 0x3fff_ffff))?;
    moved_of(on, report, (rows, width), &indices, |number| f64::from(number as u32))?;
    let [from, to] = [(rows + 2) * width, rows * width].map(|len| random("added", len, 9.0));
    on.same(report, "scatter_add", &[&from], &[&to], |on, i, o| {
        on.scatter_add(&i[0], width, &indices, &mut o[0]);
        Vec::new()
    })
}

fn moved_of<T: Bits + Debug>(
    on: &Both,
    report: &mut Report,
    (rows, width): (usize, usize),
    indices: &[usize],
    of: fn(u64) -> T,
) -> Result<()> {
    let numbers = |stream: &str, len: usize| -> Vec<T> {
        let mut rng = Rng::new(22).stream(stream).fork(len as u64);
        (0..len).map(|_| of(rng.next_u64())).collect()
    };
    let [there, moved] = [numbers("there", rows * width), numbers("moved", indices.len() * width)];
    let value = of(0x0123_4567_1357_9bdf);
    on.same(report, "gather", &[], &[&there, &moved], |on, _, o| {
        let (from, to) = o.split_at_mut(1);
        on.gather(&from[0], width, indices, &mut to[0]);
        Vec::new()
    })?;
    on.same(report, "scatter", &[], &[&there, &moved], |on, _, o| {
        let (to, from) = o.split_at_mut(1);
        on.scatter(&from[0], width, indices, &mut to[0]);
        Vec::new()
    })?;
    // Rows of one number have to be equal, so each number is there once.
    let numbers: Vec<u32> = indices
        .iter()
        .enumerate()
        .filter(|(at, index)| !indices[..*at].contains(index))
        .map(|(_, index)| *index as u32)
        .collect();
    on.same(report, "put_rows", &[], &[&there, &moved], |on, _, o| {
        let (to, from) = o.split_at_mut(1);
        on.put_rows(from[0].view().slice(..numbers.len() * width), width, &numbers, &mut to[0]);
        Vec::new()
    })?;
    on.same(report, "copy", &[], &[&there, &moved], |on, _, o| {
        let (from, to) = o.split_at_mut(1);
        on.copy(from[0].view().slice(..width), to[0].view_mut().slice(width..2 * width));
        Vec::new()
    })?;
    on.same(report, "fill", &[], &[&moved], |on, _, o| {
        on.fill(o[0].view_mut().slice(1..), value);
        on.fill(o[0].view_mut().slice(..0), value);
        Vec::new()
    })
}

fn embedded(on: &Both, report: &mut Report, rows: usize, width: usize) -> Result<()> {
    let vocab = 11;
    let mut rng = Rng::new(22).stream("ids").fork((rows * width) as u64);
    let ids: Vec<u32> = (0..rows).map(|_| rng.next_u32() % vocab as u32).collect();
    let [table, out] = [vocab * width, rows * width].map(|len| random("table", len, 2.0));
    let halves: Vec<bf16> = table.iter().map(|number| bf16::from_f32(*number)).collect();
    on.same(report, "embed", &[&table], &[&out], |on, i, o| {
        on.embed(Floats::F32(i[0].view()), width, &ids, &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "embed of bfloat16", &[], &[&out], |on, _, o| {
        let table = on.hold(halves.clone()).unwrap_or_default();
        on.embed(Floats::Bf16(table.view()), width, &ids, &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "embed_backward", &[&out], &[&table], |on, i, o| {
        on.embed_backward(&i[0], width, &ids, &mut o[0]);
        Vec::new()
    })
}

fn probabilities(on: &Both, report: &mut Report, rows: usize, vocab: usize) -> Result<()> {
    let logits = random("logits", rows * vocab, 9.0);
    let ids: Vec<u32> = (0..rows).map(|row| ((row * 7 + 3) % vocab) as u32).collect();
    let [d_log_prob, d_entropy] = ["d_log_prob", "d_entropy"].map(|name| random(name, rows, 1.0));
    let row = &logits[..vocab];
    let numbers =
        |row: &LogProb| [f64::from(row.log_prob), f64::from(row.entropy), f64::from(row.max), row.log_sum];
    on.same(report, "log_prob_rows", &[&logits], &[&[0.0_f32][..]; 0], |on, i, _| {
        on.log_prob_rows(&i[0], &ids).iter().flat_map(numbers).collect()
    })?;
    on.same(report, "one row of logits", &[row], &[&[0.0_f32][..]; 0], |on, i, _| {
        let mut values = numbers(&on.log_prob_row(&i[0], ids[0] as usize)).to_vec();
        values.push(f64::from(on.entropy_row(&i[0])));
        values.push(f64::from(on.log_sum_sq_prob_row(&i[0])));
        for k in [0, 1, 5, vocab] {
            let top = on.top_k_log_probs(&i[0], k.min(4_096));
            values.extend(top.into_iter().flat_map(|(id, log_prob)| [f64::from(id), f64::from(log_prob)]));
        }
        values
    })?;
    on.same(report, "log_sum_sq_prob_rows", &[&logits], &[&[0.0_f32][..]; 0], |on, i, _| {
        on.log_sum_sq_prob_rows(&i[0], vocab).into_iter().map(f64::from).collect()
    })?;
    on.same(report, "softmax_row", &[], &[row], |on, _, o| {
        on.softmax_row(&mut o[0]);
        Vec::new()
    })?;
    on.same(report, "cross_entropy", &[], &[&logits], |on, _, o| vec![on.cross_entropy(&mut o[0], &ids)])?;
    for d_entropy in [None, Some(&d_entropy[..])] {
        on.same(report, "log_prob_backward_rows", &[], &[&logits], |on, _, o| {
            let found = on.log_prob_rows(&o[0], &ids);
            on.log_prob_backward_rows(&mut o[0], &ids, &found, &d_log_prob, d_entropy);
            Vec::new()
        })?;
    }
    on.same(report, "log_prob_backward_row", &[], &[row], |on, _, o| {
        let found = on.log_prob_row(&o[0], ids[0] as usize);
        on.log_prob_backward_row(&mut o[0], ids[0] as usize, found, 0.7, -0.2);
        Vec::new()
    })
}

fn steps(on: &Both, report: &mut Report, len: usize) -> Result<()> {
    let [weights, gradients, moment1] =
        ["weights", "gradients", "moment1"].map(|name| random(name, len, 1.0));
    let moment2: Vec<f32> = random("moment2", len, 1.0).iter().map(|number| number.abs()).collect();
    let step = AdamwStep::at(3, 1e-2, (0.9, 0.99), 1e-8, 0.01, 0.5);
    on.same(report, "adamw_step", &[&gradients], &[&weights, &moment1, &moment2], |on, i, o| {
        let [weights, moment1, moment2] = o else { return Vec::new() };
        on.adamw_step(step, weights, &i[0], moment1, moment2);
        Vec::new()
    })?;
    for momentum in [0.0, 0.9] {
        let (dampening, nesterov, decay) = (0.0, momentum > 0.0, 0.01);
        let rate = 1e-2;
        let step = SgdStep {
            learning_rate: rate,
            momentum,
            dampening,
            nesterov,
            decay,
            gradient_scale: 0.5,
            first: false,
        };
        let buffer = if momentum > 0.0 { &moment1[..] } else { &[] };
        on.same(report, "sgd_step", &[&gradients], &[&weights, buffer], |on, i, o| {
            let (weights, buffer) = o.split_at_mut(1);
            on.sgd_step(step, &mut weights[0], &i[0], &mut buffer[0]);
            Vec::new()
        })?;
    }
    on.same(report, "muon_direction", &[&gradients], &[&moment1, &weights], |on, i, o| {
        let (momentum, direction) = o.split_at_mut(1);
        on.muon_direction(&i[0], &mut momentum[0], &mut direction[0], 0.5, 0.95, true);
        Vec::new()
    })?;
    on.same(report, "mix", &[&gradients], &[&weights], |on, i, o| {
        on.mix(&i[0], &mut o[0], -0.3, 0.99);
        Vec::new()
    })
}

fn casts(on: &Both, report: &mut Report, len: usize) -> Result<()> {
    let (numbers, others) = (random("cast", len, 3.0), random("others", len, 3.0));
    let halves: Vec<bf16> = others.iter().map(|number| bf16::from_f32(*number)).collect();
    on.same(report, "f32_to_bf16", &[&numbers], &[&halves], |on, i, o| {
        on.f32_to_bf16(&i[0], &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "bf16_to_f32", &[], &[&numbers], |on, _, o| {
        on.bf16_to_f32(&on.hold(halves.clone()).unwrap_or_default(), &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "take_other_bf16", &[], &[&numbers], |on, _, o| {
        on.take_other_bf16(&on.hold(halves.clone()).unwrap_or_default(), &mut o[0]);
        Vec::new()
    })
}

fn rotated(card: &Card, report: &mut Report, rows: usize, heads: usize, width: usize) -> Result<()> {
    let on = Both { card: *card, shape: format!("{rows} rows of {heads} heads x {width}") };
    let mut table = RopeTable::new(rope_frequencies(width, 10_000.0));
    table.extend_to(40);
    let positions: Vec<u32> = (0..rows as u32).map(|row| 39 - row * 7).collect();
    let x = random("heads", rows * heads * width, 2.0);
    on.same(report, "rotate", &[], &[&x], |on, _, o| {
        on.rotate(&table, &mut o[0], heads, &positions);
        Vec::new()
    })?;
    let poisoned = vec![bf16::NAN; x.len()];
    on.same(report, "rotate_rounded", &[&x], &[&poisoned], |on, i, o| {
        on.rotate_rounded(&table, &i[0], heads, &positions, &mut o[0]);
        Vec::new()
    })?;
    on.same(report, "rotate_back", &[], &[&x], |on, _, o| {
        on.rotate_back(&table, &mut o[0], heads, &positions);
        Vec::new()
    })
}

fn attended(card: &Card, report: &mut Report) -> Result<()> {
    let layouts = [
        (Layout::sequences(&[1]), [1, 1, 1]),
        (Layout::sequences(&[2, 1, 5]), [2, 2, 7]),
        (Layout::tree(20, &[1, 30, 2]), [2, 1, 32]),
        (Layout::paged(&[17, 200, 31], 16), [4, 2, 64]),
        (Layout::tree(13, &[4, 4]).with_empty_ranges(), [7, 1, 64]),
    ];
    for (layout, [num_heads, num_kv_heads, head_dim]) in layouts {
        let shape = AttentionShape { num_heads, num_kv_heads, head_dim };
        let (rows, kv_len) = (layout.rows.len(), layout.num_keys * num_kv_heads * head_dim);
        let q = random("q", rows * num_heads * head_dim, 3.0);
        let [keys, values] = ["keys", "values"].map(|name| random(name, kv_len, 2.0));
        let log_sum = vec![0.0; 2 * rows * num_heads];
        let on = Both { card: *card, shape: layout.name.clone() };
        let mut spans = Spans::default();
        layout.rows.iter().for_each(|row| spans.push_row(row));
        on.same(report, "attention", &[&q, &keys, &values], &[&q, &log_sum], |on, i, o| {
            let (out, log_sum) = o.split_at_mut(1);
            let mut room = Memory::default();
            let keys = on.keys_in(&mut room, (&i[1]).into(), num_kv_heads * head_dim);
            on.attention(shape, &i[0], keys, (&i[2]).into(), &spans, &mut out[0], &mut log_sum[0]);
            Vec::new()
        })?;
    }
    Ok(())
}

/// A plan that changed is copied to the card anew.
fn planned(card: &Card, report: &mut Report) -> Result<()> {
    let on = Both { card: *card, shape: "a plan that grows".to_owned() };
    let mut table = RopeTable::new(rope_frequencies(4, 10_000.0));
    let (mut positions, mut spans) = (RowNumbers::default(), Spans::default());
    let shape = AttentionShape { num_heads: 1, num_kv_heads: 1, head_dim: 4 };
    for row in 0..3_u32 {
        table.extend_to(10 * row as usize + 1);
        positions.push(10 * row);
        spans.push_row(&[(0, row + 1)]);
        let x = random("planned", 4 * positions.len(), 2.0);
        let log_sum = vec![0.0; 2 * positions.len()];
        on.same(report, "rotate and attention", &[], &[&x, &x, &log_sum], |on, _, o| {
            let [x, out, log_sum] = o else { return Vec::new() };
            on.rotate(&table, &mut *x, 1, &positions);
            let (mut room, rows) = (Memory::default(), Floats::from(&*x));
            on.attention(shape, rows, on.keys_in(&mut room, rows, 4), rows, &spans, out, log_sum);
            Vec::new()
        })?;
    }
    spans.clear();
    on.same(report, "attention of no rows", &[], &[&[0.0_f32][..]; 0], |on, _, _| {
        let [mut out, mut log_sum] = [(); 2].map(|()| on.hold(Vec::<f32>::new()).unwrap_or_default());
        let empty = on.hold(Vec::<f32>::new()).unwrap_or_default();
        let rows = Floats::from(&empty);
        on.attention(shape, rows, rows, rows, &spans, &mut out, &mut log_sum);
        Vec::new()
    })
}

/// Memory that grows, shrinks, is copied and moves from device to device.
fn memory(card: &Card, report: &mut Report) -> Result<()> {
    let on = Compute::Cuda(*card);
    let mut memory = on.hold(vec![1.0_f32, 2.0, 3.0])?;
    on.resize(&mut memory, 5);
    report.same("resize", "3 to 5", &memory.view().read()?, &[1.0, 2.0, 3.0, 0.0, 0.0]);
    on.resize(&mut memory, 2);
    let copied = memory.clone();
    on.write(&[9.0], memory.view_mut().slice(1..))?;
    report.same("resize", "5 to 2", &memory.view().read()?, &[1.0, 9.0]);
    report.same("clone", "2", &copied.view().read()?, &[1.0, 2.0]);
    let mut held = Compute::Cpu.hold(copied)?;
    report.same("hold", "2", held.cpu(), &[1.0, 2.0]);
    on.resize(&mut held, 3);
    report.same("resize", "moves to the card", &held.view().read()?, &[1.0, 2.0, 0.0]);
    report.same("resize", "device", &[f32::from(u8::from(held.compute() == on))], &[1.0]);
    Ok(())
}

/// An operation without a kernel, and elements of another device, are kept errors with the operation's name, after which all works on.
fn refused(card: &Card, report: &mut Report) -> Result<()> {
    let on = Compute::Cuda(*card);
    let mut numbers = on.hold(vec![1.0_f32; 4])?;
    let error_of = |report: &mut Report, name: &str, kind: ErrorKind, start: &str| {
        let got = on.check().err().map(|error| (error.kind(), error.detail().starts_with(start)));
        report.same("refused", name, &[f32::from(u8::from(got == Some((kind, true))))], &[1.0]);
    };
    let long = on.hold(vec![0.0_f32; 4_097])?;
    on.top_k_log_probs(&long, 4_097);
    on.scale(&mut numbers, 0.0);
    error_of(report, "top_k_log_probs", ErrorKind::Unavailable, "top_k_log_probs of more than 4096 ids");
    report.same("refused", "nothing runs after an error", &numbers.view().read()?, &[1.0; 4]);
    on.copy(&[0.0_f32; 4], &mut numbers);
    error_of(report, "copy from the processor", ErrorKind::Incompatible, "copy: elements must be on cuda:0");
    on.scale(&mut numbers, 2.0);
    report.same("refused", "all works on", &numbers.view().read()?, &[2.0; 4]);
    Ok(())
}

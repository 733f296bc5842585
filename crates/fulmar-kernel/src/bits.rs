//! Checks that kernels give the same bits on every target, by checksums of results computed on x86-64.

use half::bf16;

use crate::finite_difference::random;
use crate::*;

/// FNV-1a checksum over the bits of a kernel's results.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Checksum(u64);

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl Checksum {
    fn of(values: impl IntoIterator<Item = f32>) -> Self {
        let bytes = values.into_iter().flat_map(|value| value.to_bits().to_le_bytes());
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }
}

/// A row is longer than a block of the softmax and not a multiple of its lanes.
const ROWS: usize = 5;
const COLS: usize = 4_803;

/// Logits of a size typical for trained models, with one of `-inf`.
fn logits() -> Vec<f32> {
    let mut logits: Vec<f32> = random(11, ROWS * COLS).into_iter().map(|x| 6.0 * x).collect();
    logits[COLS + 7] = f32::NEG_INFINITY;
    logits
}

#[test]
fn probabilities_have_the_same_bits_on_every_target() {
    let (logits, ids) = (logits(), [3, 4_802, 17, 2_000, 0]);
    let rows = log_prob_rows(&logits, &ids);
    let mut backward = logits.clone();
    let (d_log_prob, d_entropy) = (random(12, ROWS), random(13, ROWS));
    log_prob_backward_rows(&mut backward, &ids, &rows, &d_log_prob, Some(&d_entropy));
    let mut crossed = logits.clone();
    let loss = cross_entropy(&mut crossed, &ids);
    let mut softmax = logits[..COLS].to_vec();
    softmax_row(&mut softmax);
    let warm = SoftmaxRow::of(&logits[..COLS], 0.7);
    let mut weighed = logits[..COLS].to_vec();
    warm.weigh(&mut weighed);
    let numbers = |row: &LogProb| [row.log_prob, row.entropy, row.max, row.log_sum as f32];
    let found = [
        Checksum::of(rows.iter().flat_map(numbers)),
        Checksum::of(backward),
        Checksum::of(crossed.into_iter().chain([loss as f32])),
        Checksum::of(softmax),
        Checksum::of(weighed.into_iter().chain([warm.total() as f32, warm.log_prob(0.5)])),
        Checksum::of(log_sum_sq_prob_rows(&logits, COLS)),
        Checksum::of(top_k_log_probs(&logits, 50).into_iter().map(|(_, log_prob)| log_prob)),
        Checksum::of([entropy_row(&logits[COLS..2 * COLS])]),
    ];
    let expected = [
        0xbc5a_f431_00a8_7512,
        0x324e_5359_3fd5_da6f,
        0x0e44_87b0_a008_ac9f,
        0xfd47_9bcb_1d56_6327,
        0x1384_72d0_6287_2374,
        0x2296_60cc_112f_95c2,
        0x2d3f_562f_dc4a_de8d,
        0xa796_2881_2647_cd22,
    ];
    assert_eq!(found, expected.map(Checksum));
}

#[test]
fn products_with_8_bits_have_the_same_bits_on_every_target() {
    let (rows, inputs, outputs) = (7, 201, 70);
    let weight = random(61, outputs * inputs);
    let mut panels = Panels::default();
    panels.quantize(MatRef::new(&weight, outputs, inputs).transposed()).unwrap();
    let (x, mut out) = (random(62, rows * inputs), random(63, rows * outputs));
    matmul(&mut out, MatRef::new(&x, rows, inputs), panels.transposed(), true);
    assert_eq!(Checksum::of(out), Checksum(0xc814_8669_4f36_6fc5));
}

#[test]
fn products_in_bfloat16_have_the_same_bits_on_every_target() {
    let (rows, inputs, outputs) = (7, 201, 70);
    let (x, weight) = (random(61, rows * inputs), random(62, outputs * inputs));
    let (left, right) = (MatRef::new(&x, rows, inputs), MatRef::new(&weight, outputs, inputs).transposed());
    let mut out = random(63, rows * outputs);
    matmul(&mut out, left, right.in_precision(MatmulPrecision::Bf16), true);
    // Products of which some are below the smallest normal number.
    let small: Vec<f32> = x.iter().map(|x| x * 3e-20).collect();
    let mut sums = vec![0.0; rows * rows];
    let right = MatRef::new(&small, rows, inputs).transposed().in_precision(MatmulPrecision::Bf16);
    matmul(&mut sums, MatRef::new(&small, rows, inputs), right, false);
    let expected = [0xaa61_a832_eb53_79c8, 0xa1ee_8f66_0e9d_36fe];
    assert_eq!([out, sums].map(Checksum::of), expected.map(Checksum));
}

#[test]
fn norms_activations_and_rotations_have_the_same_bits_on_every_target() {
    let (x, weight, d_out) = (random(21, ROWS * COLS), random(22, COLS), random(23, ROWS * COLS));
    let (mut normed, mut inv_rms) = (vec![0.0; x.len()], vec![0.0; ROWS]);
    rms_norm(&x, &weight, 1e-5, &mut normed, &mut inv_rms);
    let (mut d_x, mut d_weight) = (vec![0.0; x.len()], vec![0.0; COLS]);
    rms_norm_backward(&x, &weight, &inv_rms, &d_out, &mut d_x, Some(&mut d_weight));
    let (mut gate, mut up) = (x.iter().map(|x| 9.0 * x).collect::<Vec<_>>(), random(24, x.len()));
    let mut activated = vec![0.0; x.len()];
    swiglu(&gate, &up, &mut activated);
    swiglu_backward(&mut gate, &mut up, &d_out);
    let mut rope = RopeTable::new(rope_frequencies(64, 10_000.0));
    rope.extend_to(5_000);
    let positions = [0, 1, 4_999];
    let mut turned = random(25, 3 * 2 * 64);
    rope.rotate(&mut turned, 2, &positions);
    let mut back = turned.clone();
    rope.rotate_back(&mut back, 2, &positions);
    let mut biased = x.clone();
    add_bias(&mut biased, &weight);
    let mut d_bias = vec![0.0; COLS];
    bias_backward(&d_out, &mut d_bias);
    let found = [
        Checksum::of(normed.into_iter().chain(inv_rms)),
        Checksum::of(d_x.into_iter().chain(d_weight)),
        Checksum::of(activated),
        Checksum::of(gate.into_iter().chain(up)),
        Checksum::of(turned.into_iter().chain(back)),
        Checksum::of(biased.into_iter().chain(d_bias)),
        Checksum::of(x.iter().map(|x| exp(40.0 * x))),
        Checksum::of(x.iter().map(|x| power(1e3 * x.abs(), 0.6))),
    ];
    let expected = [
        0x31a1_7cda_ae88_6de4,
        0x51de_0c07_b13a_46d4,
        0xd9b0_3251_f262_31c3,
        0xa4fb_1728_0ac3_00f2,
        0xe27a_c522_9ab7_7859,
        0x5466_6540_504f_e131,
        0xb0f0_0d88_2545_fc12,
        0x4a32_3b9e_cc5d_a838,
    ];
    assert_eq!(found, expected.map(Checksum));
}

#[test]
fn optimizer_steps_and_casts_have_the_same_bits_on_every_target() {
    let (mut weights, gradients) = (random(31, COLS), random(32, COLS));
    let (mut moment1, mut moment2) = (vec![0.0; COLS], vec![0.0; COLS]);
    for step in 1..=3 {
        let step = AdamwStep::at(step, 3e-4, (0.9, 0.95), 1e-8, 0.1, 0.37);
        adamw_step(step, &mut weights, &gradients, &mut moment1, &mut moment2);
    }
    let (mut descended, mut buffer) = (random(33, COLS), vec![0.0; COLS]);
    for first in [true, false] {
        let (learning_rate, momentum, dampening, decay, gradient_scale) = (0.1, 0.9, 0.1, 0.01, 0.37);
        let step =
            SgdStep { learning_rate, momentum, dampening, nesterov: !first, decay, gradient_scale, first };
        sgd_step(step, &mut descended, &gradients, &mut buffer);
    }
    let mut halves = vec![bf16::ZERO; COLS];
    f32_to_bf16(&gradients, &mut halves);
    let mut widened = vec![0.0; COLS];
    bf16_to_f32(&halves, &mut widened);
    let found = [
        Checksum::of(weights.into_iter().chain(moment1).chain(moment2)),
        Checksum::of(descended.into_iter().chain(buffer)),
        Checksum::of(widened),
        Checksum::of([sum_of_squares(&gradients) as f32]),
    ];
    let expected =
        [0x8c19_4264_45e8_40de, 0xa8fc_c3f1_097d_b390, 0xed75_1f85_7d19_0051, 0xce3f_0419_0594_7a77];
    assert_eq!(found, expected.map(Checksum));
}

/// Returns whether products have fused multiply-adds: WebAssembly has none, and few old processors.
fn is_fused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64")
}

/// Returns `x * y + sum` with the bits that products have here.
pub(crate) fn multiply_add(x: f32, y: f32, sum: f32) -> f32 {
    if is_fused() { x.mul_add(y, sum) } else { x * y + sum }
}

#[test]
fn products_have_the_same_bits_on_every_target_with_fused_multiply_adds() {
    if !is_fused() {
        return;
    }
    let (rows, inner, cols) = (19, 1_300, 75);
    let (x, w) = (random(41, rows * inner), random(42, inner * cols));
    let mut halves = vec![bf16::ZERO; w.len()];
    f32_to_bf16(&w, &mut halves);
    let mut out = random(43, rows * cols);
    matmul(&mut out, MatRef::new(&x, rows, inner), MatRef::new(&w, inner, cols), true);
    let weight = MatRef::of(Floats::Bf16(&halves), cols, inner).transposed();
    matmul(&mut out, MatRef::new(&x, rows, inner), weight, true);
    assert_eq!(Checksum::of(out), Checksum(0xd9e8_b1e2_bf74_4f8c));
}

#[test]
fn attention_has_the_same_bits_on_every_target_with_fused_multiply_adds() {
    if !is_fused() {
        return;
    }
    let (rows, shape) = (37, AttentionShape { num_heads: 6, num_kv_heads: 2, head_dim: 21 });
    let (width, kv_width) = (6 * 21, 2 * 21);
    let mut spans = Spans::default();
    (0..rows).for_each(|row| spans.push_row(&[(0, row + 1)]));
    let (q, keys, values) = (
        random(51, rows as usize * width),
        random(52, rows as usize * kv_width),
        random(53, rows as usize * kv_width),
    );
    let mut blocks = vec![0.0; key_block_floats(rows as usize, kv_width)];
    put_key_rows(&keys, kv_width, &(0..rows).collect::<Vec<_>>(), &mut blocks);
    let (mut out, mut log_sum) = (vec![0.0; q.len()], vec![0.0; 2 * 6 * rows as usize]);
    attention(shape, &q, blocks[..].into(), values[..].into(), &spans, &mut out, &mut log_sum);
    let [mut d_q, mut d_keys, mut d_values] = [&q, &keys, &values].map(|of| vec![0.0; of.len()]);
    let saved = AttentionSaved { q: &q, keys: &keys, values: &values, out: &out, log_sum: &log_sum };
    let d_out = random(54, q.len());
    attention_backward(shape, saved, &spans, &[(0, rows)], &d_out, &mut d_q, &mut d_keys, &mut d_values);
    let found = [out, log_sum, d_q, d_keys, d_values].map(Checksum::of);
    let expected = [
        0xf40a_d7c2_c43d_314b,
        0x6061_b16d_7635_bc6d,
        0x456b_0844_05bc_999a,
        0xc3c1_8685_a019_d66d,
        0x0ddf_cf03_7f64_568c,
    ];
    assert_eq!(found, expected.map(Checksum));
}

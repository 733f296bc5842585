//! Steps of AdamW and SGD, of f32 weights and of bfloat16 ones with f32 masters, the sum of squares for clipping, and the Newton-Schulz
//! iteration of Muon.

use fulmar_compute::{Compute, newton_schulz_floats};
use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, arguments};
use fulmar_kernel::{AdamwStep, SgdStep, muon_direction};
use half::bf16;

use super::{elements, lengths};
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 256;

/// Numbers of a block of sums.
const BLOCK: usize = 4_096;

/// Steps of an optimizer in sequence.
const STEPS: u64 = 3;

/// Numbers that weights, moments and gradients have, each of them at other places.
const ODD: [f32; 7] = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-42, f32::MAX];

/// Momentum, dampening, and whether a step looks ahead.
const RULES: [(f32, f32, bool); 4] =
    [(0.0, 0.0, false), (0.9, 0.0, false), (0.9, 0.25, false), (0.8, 0.0, true)];

/// Compares every kernel at every length.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (len, is_halved) in lengths(card).into_iter().flat_map(|len| [(len, false), (len, true)]) {
        for (decay, scale) in [(0.0, 1.0), (0.1, 0.37)] {
            adamw(card, report, Weights::new(card, len, is_halved)?, (decay, scale))?;
            for (momentum, dampening, nesterov) in RULES {
                let step = SgdStep {
                    learning_rate: 0.1,
                    momentum,
                    dampening,
                    nesterov,
                    decay: decay as f32,
                    gradient_scale: scale as f32,
                    first: false,
                };
                sgd(card, report, Weights::new(card, len, is_halved)?, step)?;
            }
        }
    }
    for (len, nesterov) in lengths(card).into_iter().flat_map(|len| [(len, false), (len, true)]) {
        muon(card, report, len, nesterov)?;
    }
    // One below and above a lane, a block, the blocks that are summed at once, and those that are added at once.
    for len in [0, 1, 15, 16, 17, 33, 4_095, 4_096, 4_097, 8_200, 200_000, 256 * BLOCK, 257 * BLOCK + 5] {
        sum_of_squares(card, report, "finite", &random("squares", len, 3.0))?;
    }
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0] {
        let mut numbers = random("squares", 9_000, 3.0);
        numbers[8_999] = odd;
        sum_of_squares(card, report, &odd.to_string(), &numbers)?;
    }
    for shape in [(1, 1), (1, 6), (6, 1), (5, 9), (9, 5), (7, 7), (31, 65), (65, 33), (64, 64), (66, 130)] {
        newton_schulz(card, report, shape, 1.0)?;
    }
    // A norm below eps, and no norm.
    newton_schulz(card, report, (5, 9), 1e-9)?;
    newton_schulz(card, report, (5, 9), 0.0)
}

/// Returns numbers of which those from `7 * place` on are [`ODD`].
fn odd_numbers(name: &str, len: usize, place: usize) -> Vec<f32> {
    let mut numbers = random(name, len, 1.0);
    for (number, odd) in numbers.iter_mut().skip(place * ODD.len()).zip(ODD) {
        *number = odd;
    }
    numbers
}

/// Weights of the processor and of the card: f32, or the masters of bfloat16 ones.
struct Weights {
    name: &'static str,
    numbers: Vec<f32>,
    halves: Option<Vec<bf16>>,
    numbers_at: Buffer<f32>,
    halves_at: Option<Buffer<bf16>>,
}

impl Weights {
    /// Every fifth of the halves is another number than its master rounds to.
    fn new(card: &Card, len: usize, is_halved: bool) -> Result<Self> {
        let numbers = odd_numbers("weights", len, 0);
        let halves: Option<Vec<bf16>> = is_halved.then(|| {
            let half =
                |(at, number): (usize, &f32)| bf16::from_f32(*number).to_bits() ^ u16::from(at % 5 == 0);
            numbers.iter().enumerate().map(|number| bf16::from_bits(half(number))).collect()
        });
        Ok(Self {
            name: if is_halved { "bfloat16" } else { "f32" },
            numbers_at: card.upload(&numbers)?,
            halves_at: halves.as_ref().map(|halves| card.upload(halves)).transpose()?,
            numbers,
            halves,
        })
    }

    /// Runs a step of the processor.
    fn step(&mut self, step: impl FnOnce(&mut [f32])) {
        if let Some(halves) = &self.halves {
            fulmar_kernel::take_other_bf16(halves, &mut self.numbers);
        }
        step(&mut self.numbers);
        if let Some(halves) = &mut self.halves {
            fulmar_kernel::f32_to_bf16(&self.numbers, halves);
        }
    }

    fn compare(&self, report: &mut Report, kernel: &str, shape: &str) -> Result<()> {
        let shape = format!("{shape}, {}", self.name);
        report.same(&format!("{kernel}, weights"), &shape, &self.numbers_at.read()?, &self.numbers);
        if let (Some(halves), Some(halves_at)) = (&self.halves, &self.halves_at) {
            report.same(&format!("{kernel}, halves"), &shape, &halves_at.read()?, halves);
        }
        Ok(())
    }
}

/// Moments or a buffer of the processor and of the card.
struct Moment {
    numbers: Vec<f32>,
    at: Buffer<f32>,
}

impl Moment {
    fn new(card: &Card, numbers: Vec<f32>) -> Result<Self> {
        Ok(Self { at: card.upload(&numbers)?, numbers })
    }
}

fn adamw(card: &Card, report: &mut Report, mut weights: Weights, (decay, scale): (f64, f64)) -> Result<()> {
    let len = weights.numbers.len();
    let mut moment1 = Moment::new(card, odd_numbers("moment1", len, 1))?;
    let mut moment2 =
        Moment::new(card, odd_numbers("moment2", len, 2).iter().map(|number| number.abs()).collect())?;
    for number in 1..=STEPS {
        let step = AdamwStep::at(number, 1e-2, (0.9, 0.99), 1e-8, decay, scale);
        let gradients = odd_numbers("gradients", len, 2 + number as usize);
        let gradients_at = card.upload(&gradients)?;
        let Weights { numbers_at, halves_at, .. } = &weights;
        let buffers = arguments![numbers_at, halves_at.as_ref(), &gradients_at, &moment1.at, &moment2.at];
        card.launch("adamw_step", elements(), adamw_arguments(buffers, step, len))?;
        let (m, v) = (&mut moment1.numbers, &mut moment2.numbers);
        weights.step(|weights| fulmar_kernel::adamw_step(step, weights, &gradients, m, v));
    }
    let shape = format!("{len}, decay {decay}, scale {scale}");
    weights.compare(report, "adamw_step", &shape)?;
    report.same("adamw_step, moment1", &shape, &moment1.at.read()?, &moment1.numbers);
    report.same("adamw_step, moment2", &shape, &moment2.at.read()?, &moment2.numbers);
    Ok(())
}

/// Returns the arguments of `adamw_step`: addresses of weights, halves, gradients and moments, then numbers.
pub fn adamw_arguments(buffers: [Argument; 5], step: AdamwStep, len: usize) -> [Argument; 14] {
    let [weights, halves, gradients, moment1, moment2] = buffers;
    let AdamwStep {
        learning_rate,
        decay,
        beta1,
        beta2,
        eps,
        step_size,
        inv_sqrt_correction2,
        gradient_scale,
    } = step;
    arguments![
        weights,
        halves,
        gradients,
        moment1,
        moment2,
        learning_rate,
        decay,
        beta1,
        beta2,
        eps,
        step_size,
        inv_sqrt_correction2,
        gradient_scale,
        len
    ]
}

fn sgd(card: &Card, report: &mut Report, mut weights: Weights, options: SgdStep) -> Result<()> {
    let len = weights.numbers.len();
    let has_buffer = options.momentum > 0.0;
    let mut buffer = Moment::new(card, vec![0.0; if has_buffer { len } else { 0 }])?;
    for number in 0..STEPS {
        let step = SgdStep { first: number == 0, ..options };
        let gradients = odd_numbers("gradients", len, 2 + number as usize);
        let gradients_at = card.upload(&gradients)?;
        let arguments = arguments![
            &weights.numbers_at,
            weights.halves_at.as_ref(),
            &gradients_at,
            has_buffer.then_some(&buffer.at),
            step.learning_rate,
            step.momentum,
            step.dampening,
            step.decay,
            step.gradient_scale,
            u32::from(step.nesterov),
            u32::from(step.first),
            len
        ];
        card.launch("sgd_step", elements(), arguments)?;
        let own = &mut buffer.numbers;
        weights.step(|weights| fulmar_kernel::sgd_step(step, weights, &gradients, own));
    }
    let SgdStep { momentum, dampening, nesterov, decay, .. } = options;
    let shape =
        format!("{len}, momentum {momentum}, dampening {dampening}, nesterov {nesterov}, decay {decay}");
    weights.compare(report, "sgd_step", &shape)?;
    report.same("sgd_step, buffer", &shape, &buffer.at.read()?, &buffer.numbers);
    Ok(())
}

fn sum_of_squares(card: &Card, report: &mut Report, kind: &str, numbers: &[f32]) -> Result<()> {
    let (sums, sum) = squares_on_card(card, &card.upload(numbers)?, numbers.len())?;
    let shape = format!("{}, {kind}", numbers.len());
    let past = &sums.read()?[numbers.len().div_ceil(BLOCK)..];
    report.same("square_sums, past the last", &shape, past, &[f32::NAN]);
    report.same("sum_of_squares", &shape, &[sum], &[fulmar_kernel::sum_of_squares(numbers)]);
    Ok(())
}

/// Returns the sums of blocks, with one more element, and the sum of all.
fn squares_on_card(card: &Card, from: &Buffer<f32>, len: usize) -> Result<(Buffer<f32>, f64)> {
    let blocks = len.div_ceil(BLOCK);
    let (sums, sum) = (card.poisoned::<f32>(blocks + 1)?, card.poisoned::<f64>(1)?);
    card.launch("square_sums", elements(), arguments![from, len, &sums])?;
    let one = Grid { blocks: (1, 1), threads: THREADS, shared_bytes: 4 * THREADS };
    card.launch("sum_of_squares", one, arguments![&sums, blocks, &sum])?;
    Ok((sums, sum.read()?[0]))
}

fn newton_schulz(card: &Card, report: &mut Report, (rows, cols): (usize, usize), largest: f32) -> Result<()> {
    const COEFFICIENTS: (f32, f32, f32) = (3.444_5, -4.775, 2.031_5);
    const STEPS: usize = 5;
    const EPS: f32 = 1e-7;
    let mut wanted = random("newton", rows * cols, largest);
    let mut workspace = vec![f32::NAN; newton_schulz_floats((rows, cols))];
    let on = Compute::Cuda(*card);
    let (mut matrix, mut workspace_at) = (on.hold(wanted.clone())?, on.hold(workspace.clone())?);
    on.newton_schulz(&mut matrix, (rows, cols), COEFFICIENTS, STEPS, EPS, &mut workspace_at);
    Compute::Cpu.newton_schulz(&mut wanted, (rows, cols), COEFFICIENTS, STEPS, EPS, &mut workspace);
    let shape = format!("{rows} x {cols}, up to {largest}");
    report.same("newton_schulz", &shape, &matrix.view().read()?, &wanted);
    Ok(())
}

fn muon(card: &Card, report: &mut Report, len: usize, nesterov: bool) -> Result<()> {
    let gradients = odd_numbers("gradients", len, 1);
    let gradients_at = card.upload(&gradients)?;
    let mut momentum = Moment::new(card, odd_numbers("moment1", len, 0))?;
    let (mut direction, direction_at) = (vec![0.0; len], card.poisoned::<f32>(len)?);
    let arguments =
        arguments![&gradients_at, &momentum.at, &direction_at, 0.37_f32, 0.95_f32, u32::from(nesterov), len];
    card.launch("muon_direction", elements(), arguments)?;
    muon_direction(&gradients, &mut momentum.numbers, &mut direction, 0.37, 0.95, nesterov);
    let shape = format!("{len}, nesterov {nesterov}");
    report.same("muon_direction", &shape, &direction_at.read()?, &direction);
    report.same("muon_direction, momentum", &shape, &momentum.at.read()?, &momentum.numbers);
    Ok(())
}

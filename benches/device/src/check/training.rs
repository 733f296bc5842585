//! Decoders that are trained on the card: every bit of the processor's gradients, values and weights, and in bfloat16 near them.

use fulmar_compute::{Compute, MatmulPrecision};
use fulmar_core::{Dtype, ErrorKind, Result};
use fulmar_cuda::{Buffer, Card};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, LoraConfig, MuonOptions, Optimizer, OptimizerOptions, ScalarHead,
    SgdOptions, TokenBatch,
};

use super::shortage::{MEMORY_MAX, lacking};
use crate::report::Report;

/// Families: plain with a head of its own, with biases and tied embeddings, and with normalised heads.
const CONFIGS: [(&str, &str); 3] = [
    (
        "llama",
        r#"{"model_type": "llama", "vocab_size": 19, "hidden_size": 12, "intermediate_size": 20,
            "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1,
            "initializer_range": 0.3, "tie_word_embeddings": false}"#,
    ),
    (
        "qwen2",
        r#"{"model_type": "qwen2", "vocab_size": 23, "hidden_size": 16, "intermediate_size": 12,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}"#,
    ),
    (
        "qwen3",
        r#"{"model_type": "qwen3", "vocab_size": 17, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6,
            "initializer_range": 0.4, "tie_word_embeddings": true}"#,
    ),
];

/// Families with biases and with normalised heads, and a width of heads that attention has in bfloat16.
const WIDE_CONFIGS: [(&str, &str); 2] = [
    (
        "qwen2, heads of 64",
        r#"{"model_type": "qwen2", "vocab_size": 23, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
            "initializer_range": 0.2}"#,
    ),
    (
        "qwen3, heads of 64",
        r#"{"model_type": "qwen3", "vocab_size": 17, "hidden_size": 16, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
            "initializer_range": 0.3, "tie_word_embeddings": true}"#,
    ),
];

/// Steps of the longest training.
const STEPS: usize = 50;

/// Largest share by which weights may differ after them; here they have the same bits.
const DIFFERENCE_MAX: f64 = 1e-5;

/// Largest relative error of gradients and weights in the L2 norm, where operands are rounded to bfloat16: a number that is nearly
/// between two of these may be rounded to the other. Attention in bfloat16 alone may be off
/// by 1e-2, see `attention_backward`; 1.6e-2 was seen on the emulated GPU.
const HALVES_ERROR_MAX: f64 = 2e-2;

/// Largest share by which a loss of weights in bfloat16 may differ from that of f32 ones.
const LOSS_DIFFERENCE_MAX: f64 = 0.02;

/// Waits of a training step: one for log-probs, one for the norm of the gradients.
const WAITS: u64 = 2;

/// Trains on both devices.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    let on = Compute::Cuda(*card);
    for (name, text) in CONFIGS {
        let decoder = Decoder::new(DecoderConfig::from_json(text)?, 7)?;
        for (rule, options) in rules() {
            let shape = format!("{name}, {rule}");
            let mut pair = Pair::of(&decoder, options, on)?;
            for step in 0..2 {
                pair.train(report, &format!("{shape}, step {step}"), step)?;
            }
            pair.compare(report, &shape)?;
        }
        recomputed(report, name, &decoder, on)?;
        squares(report, name, &decoder, on)?;
        adapted(report, name, &decoder, on)?;
        for head in [ScalarHead::VHead, ScalarHead::Score] {
            values(report, &format!("{name}, {head:?}"), &decoder.with_scalar_head(head, 3)?, on)?;
        }
    }
    let decoder = Decoder::new(DecoderConfig::from_json(CONFIGS[2].1)?, 7)?;
    long(report, &decoder, on)?;
    for (name, text) in CONFIGS {
        let decoder = Decoder::new(DecoderConfig::from_json(text)?, 7)?;
        in_halves(report, name, &decoder, on, (&[Dtype::F32, Dtype::Bf16], &rules()))?;
    }
    long_in_halves(report, "heads of 6", &decoder, on)?;
    waits(report, &decoder, *card)?;
    refused(report, &decoder, on)?;
    for (name, text) in WIDE_CONFIGS {
        let decoder = Decoder::new(DecoderConfig::from_json(text)?, 7)?;
        in_halves(report, name, &decoder, on, (&[Dtype::Bf16], &rules()[..1]))?;
        others_in_halves(report, name, &decoder, on)?;
    }
    let wide = Decoder::new(DecoderConfig::from_json(WIDE_CONFIGS[0].1)?, 7)?;
    long_in_halves(report, "heads of 64", &wide, on)?;
    let halves = wide.with_dtype(Dtype::Bf16)?;
    waits(report, &halves, *card)?;
    if card.free_bytes()? > MEMORY_MAX {
        return Ok(());
    }
    out_of_memory(report, "f32", &decoder, *card)?;
    out_of_memory(report, "bf16", &halves, *card)
}

fn rules() -> [(&'static str, OptimizerOptions); 3] {
    let adamw = AdamWOptions { learning_rate: 1e-2, weight_decay: 0.1, ..Default::default() };
    [
        ("AdamW", adamw.clone().into()),
        (
            "SGD",
            SgdOptions { learning_rate: 0.1, momentum: 0.9, nesterov: true, ..Default::default() }.into(),
        ),
        ("Muon", MuonOptions { learning_rate: 0.01, adamw, ..Default::default() }.into()),
    ]
}

/// Two completions of one prompt, a sequence of its own, and their derivatives.
struct Batch {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
    d_log_prob: Vec<f32>,
    d_entropy: Vec<f32>,
}

impl Batch {
    fn of(vocab: usize, step: usize) -> Self {
        let id = |at: usize| ((at * at * 31 + at * step + 7) % vocab) as u32;
        let prompt: Vec<u32> = (0..5).map(id).collect();
        let sequences =
            [[prompt.clone(), vec![id(8), id(9)]].concat(), [prompt, vec![id(20)]].concat(), vec![id(3); 3]];
        let mut offsets = vec![0];
        offsets.extend(sequences.iter().scan(0, |end, ids| {
            *end += ids.len() as u32;
            Some(*end)
        }));
        let mask = vec![0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 1];
        let d = |at: usize, size: f32| size * ((at * 5 + step) % 7) as f32 - 2.0 * size;
        Self {
            ids: sequences.concat(),
            offsets,
            d_log_prob: (0..mask.len()).map(|at| d(at, 0.1)).collect(),
            d_entropy: (0..mask.len()).map(|at| d(at + 3, 0.03)).collect(),
            mask,
        }
    }

    fn view(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions: None }
    }

    /// Runs a forward pass and its backward pass; returns the log-probs.
    fn backward(&self, decoder: &mut Decoder) -> Result<Vec<f32>> {
        let scores = decoder.forward(&self.view())?;
        decoder.backward(&self.d_log_prob, Some(&self.d_entropy))?;
        Ok(scores.log_prob)
    }
}

/// A decoder and its optimizer on the processor, and both on the card.
struct Pair {
    decoders: [Decoder; 2],
    optimizers: [Optimizer; 2],
}

impl Pair {
    fn of(decoder: &Decoder, options: OptimizerOptions, on: Compute) -> Result<Self> {
        let decoders = [decoder.clone(), moved(decoder, on)?];
        let [cpu, card] = &decoders;
        let optimizers = [Optimizer::new(cpu, options.clone())?, Optimizer::new(card, options)?];
        Ok(Self { decoders, optimizers })
    }

    /// Takes a step on both; compares log-probs and gradients.
    fn train(&mut self, report: &mut Report, shape: &str, step: usize) -> Result<()> {
        let batch = Batch::of(self.decoders[0].config().vocab_size, step);
        let [on_processor, on_card] = &mut self.decoders;
        let wanted = batch.backward(on_processor)?;
        report.same("log-probs in training", shape, &batch.backward(on_card)?, &wanted);
        report.same("gradients", shape, &on_card.gradients(), &on_processor.gradients());
        self.step(report, shape)
    }

    /// Updates the weights of both; compares what the optimizers report.
    fn step(&mut self, report: &mut Report, shape: &str) -> Result<()> {
        let mut reports = Vec::new();
        for (decoder, optimizer) in self.decoders.iter_mut().zip(&mut self.optimizers) {
            let step = optimizer.step(decoder, None, Some(0.5))?;
            reports.push([step.gradient_norm, step.clip_coefficient]);
        }
        report.same("norm and clipping", shape, &reports[1], &reports[0]);
        Ok(())
    }

    /// Compares weights, and the state of the optimizers.
    fn compare(&self, report: &mut Report, shape: &str) -> Result<()> {
        let ([on_processor, on_card], [of_processor, of_card]) = (&self.decoders, &self.optimizers);
        report.same("weights after steps", shape, &on_card.weights(), &on_processor.weights());
        let wanted = of_processor.to_safetensors(on_processor)?;
        report.same("state of the optimizer", shape, &of_card.to_safetensors(on_card)?, &wanted);
        Ok(())
    }
}

fn moved(decoder: &Decoder, on: Compute) -> Result<Decoder> {
    let mut moved = decoder.clone();
    moved.move_to(on.device())?;
    Ok(moved)
}

/// Recomputed activations give the gradients of stored ones.
fn recomputed(report: &mut Report, name: &str, decoder: &Decoder, on: Compute) -> Result<()> {
    let batch = Batch::of(decoder.config().vocab_size, 3);
    let (mut on_processor, mut on_card) = (decoder.clone(), moved(decoder, on)?);
    on_card.recompute_activations(true);
    for pass in 0..2 {
        batch.backward(&mut on_processor)?;
        batch.backward(&mut on_card)?;
        let shape = format!("{name}, pass {pass}");
        report.same("recomputed gradients", &shape, &on_card.gradients(), &on_processor.gradients());
    }
    on_card.zero_gradients();
    report.same("no gradients", name, &on_card.gradients(), &vec![0.0; decoder.num_parameters()]);
    Ok(())
}

fn squares(report: &mut Report, name: &str, decoder: &Decoder, on: Compute) -> Result<()> {
    let batch = Batch::of(decoder.config().vocab_size, 4);
    let (mut on_processor, mut on_card) = (decoder.clone(), moved(decoder, on)?);
    let (_, wanted) = on_processor.forward_with_squares(&batch.view())?;
    let (_, got) = on_card.forward_with_squares(&batch.view())?;
    report.same("sums of squared probabilities", name, &got, &wanted);
    Ok(())
}

/// An adapter of frozen weights is trained, left out of a score, and merged.
fn adapted(report: &mut Report, name: &str, decoder: &Decoder, on: Compute) -> Result<()> {
    let mut pair = Pair::of(decoder, AdamWOptions::default().into(), on)?;
    let target_modules = ["q_proj", "o_proj", "up_proj", "down_proj"].map(str::to_owned).to_vec();
    for (decoder, optimizer) in pair.decoders.iter_mut().zip(&mut pair.optimizers) {
        let config = LoraConfig { r: 2, target_modules: target_modules.clone(), ..Default::default() };
        decoder.add_lora(config, 1)?;
        *optimizer = Optimizer::new(decoder, AdamWOptions { learning_rate: 0.05, ..Default::default() })?;
    }
    for step in 0..2 {
        pair.train(report, &format!("{name}, adapter, step {step}"), step)?;
    }
    let [on_processor, on_card] = &mut pair.decoders;
    let wanted = on_processor.lora_to_safetensors()?;
    report.same("adapter", name, &on_card.lora_to_safetensors()?, &wanted);
    let batch = Batch::of(decoder.config().vocab_size, 9);
    let wanted = on_processor.score_base(&batch.view())?;
    report.same("base", name, &on_card.score_base(&batch.view())?.log_prob, &wanted.log_prob);
    on_processor.merge_lora()?;
    on_card.merge_lora()?;
    report.same("merged weights", name, &on_card.weights(), &on_processor.weights());
    Ok(())
}

/// A scalar head is trained, with all weights and with an adapter.
fn values(report: &mut Report, shape: &str, decoder: &Decoder, on: Compute) -> Result<()> {
    let mut adapted = decoder.clone();
    adapted.add_lora(LoraConfig { r: 2, ..Default::default() }, 1)?;
    for decoder in [decoder, &adapted] {
        let batch = Batch::of(decoder.config().vocab_size, 5);
        let mut pair = Pair::of(decoder, AdamWOptions::default().into(), on)?;
        let mut found = Vec::new();
        for decoder in &mut pair.decoders {
            found.push(decoder.values(&batch.view())?);
            found.push(decoder.forward_values(&batch.view())?);
            decoder.backward_values(&batch.d_log_prob)?;
        }
        report.same("values", shape, &found[2], &found[0]);
        report.same("values in training", shape, &found[3], &found[1]);
        let [on_processor, on_card] = &pair.decoders;
        report.same("gradients of values", shape, &on_card.gradients(), &on_processor.gradients());
        pair.step(report, shape)?;
        pair.compare(report, shape)?;
    }
    Ok(())
}

/// A tiny policy after many steps.
fn long(report: &mut Report, decoder: &Decoder, on: Compute) -> Result<()> {
    let mut pair = Pair::of(decoder, AdamWOptions { learning_rate: 1e-2, ..Default::default() }.into(), on)?;
    for step in 0..STEPS {
        let batch = Batch::of(decoder.config().vocab_size, step);
        for decoder in &mut pair.decoders {
            batch.backward(decoder)?;
        }
        pair.step(report, &format!("step {step}"))?;
    }
    let [on_processor, on_card] = &pair.decoders;
    let wanted = in_f64(&on_processor.weights());
    report.near("weights after 50 steps", "qwen3", &on_card.weights(), &wanted, DIFFERENCE_MAX);
    pair.compare(report, "50 steps")
}

/// Weights in bfloat16, and f32 ones with products in bfloat16: gradients near those of the processor, which rounds the same
/// operands; the same bits each time; an adapter, and steps of each rule.
fn in_halves(
    report: &mut Report,
    name: &str,
    decoder: &Decoder,
    on: Compute,
    (dtypes, rules): (&[Dtype], &[(&str, OptimizerOptions)]),
) -> Result<()> {
    for dtype in dtypes {
        for is_adapted in [false, true] {
            let mut on_processor = decoder.clone().with_dtype(*dtype)?;
            if is_adapted {
                on_processor.add_lora(LoraConfig { r: 2, ..Default::default() }, 1)?;
            }
            on_processor.multiply_in(MatmulPrecision::Bf16);
            let shape = format!("{name}, {dtype:?}, adapter {is_adapted}");
            for (rule, options) in rules {
                let mut pair = Pair::of(&on_processor, options.clone(), on)?;
                for step in 0..2 {
                    let batch = Batch::of(decoder.config().vocab_size, step);
                    let shape = format!("{shape}, {rule}, step {step}");
                    let mut again = pair.decoders[1].clone();
                    for decoder in &mut pair.decoders {
                        batch.backward(decoder)?;
                    }
                    batch.backward(&mut again)?;
                    let [on_processor, on_card] = &pair.decoders;
                    report.same("gradients, again", &shape, &again.gradients(), &on_card.gradients());
                    let wanted = in_f64(&on_processor.gradients());
                    report.near(
                        "gradients in halves",
                        &shape,
                        &on_card.gradients(),
                        &wanted,
                        HALVES_ERROR_MAX,
                    );
                    for (decoder, optimizer) in pair.decoders.iter_mut().zip(&mut pair.optimizers) {
                        optimizer.step(decoder, None, Some(0.5))?;
                    }
                    let [on_processor, on_card] = &pair.decoders;
                    let wanted = in_f64(&on_processor.score(&batch.view())?.log_prob);
                    let got = on_card.score(&batch.view())?.log_prob;
                    report.near("log-probs after a step in halves", &shape, &got, &wanted, HALVES_ERROR_MAX);
                    // The next gradients are those at the weights of the card.
                    pair.decoders[0] = moved(&pair.decoders[1], Compute::Cpu)?;
                }
            }
        }
    }
    Ok(())
}

/// Weights in bfloat16: recomputed activations give the bits of stored ones; squares and values near those of the processor.
fn others_in_halves(report: &mut Report, name: &str, decoder: &Decoder, on: Compute) -> Result<()> {
    let batch = Batch::of(decoder.config().vocab_size, 3);
    let mut on_processor = decoder.with_scalar_head(ScalarHead::VHead, 3)?.with_dtype(Dtype::Bf16)?;
    let mut on_card = moved(&on_processor, on)?;
    let mut recomputing = on_card.clone();
    recomputing.recompute_activations(true);
    for decoder in [&mut on_card, &mut recomputing] {
        batch.backward(decoder)?;
    }
    report.same("recomputed gradients in halves", name, &recomputing.gradients(), &on_card.gradients());
    let (_, wanted) = on_processor.forward_with_squares(&batch.view())?;
    let (_, got) = on_card.forward_with_squares(&batch.view())?;
    report.near("squares in halves", name, &got, &in_f64(&wanted), HALVES_ERROR_MAX);
    for decoder in [&mut on_processor, &mut on_card] {
        decoder.zero_gradients();
        decoder.forward_values(&batch.view())?;
        decoder.backward_values(&batch.d_log_prob)?;
    }
    let wanted = in_f64(&on_processor.values(&batch.view())?);
    report.near("values in halves", name, &on_card.values(&batch.view())?, &wanted, HALVES_ERROR_MAX);
    let wanted = in_f64(&on_processor.gradients());
    report.near("gradients of values in halves", name, &on_card.gradients(), &wanted, HALVES_ERROR_MAX);
    Ok(())
}

/// Weights in bfloat16 learn on the card as f32 ones do on the processor.
fn long_in_halves(report: &mut Report, name: &str, decoder: &Decoder, on: Compute) -> Result<()> {
    let halves = moved(&decoder.clone().with_dtype(Dtype::Bf16)?, on)?;
    let losses = [decoder, &halves].map(|decoder| -> Result<Vec<f64>> {
        let mut decoder = decoder.clone();
        let mut optimizer =
            Optimizer::new(&decoder, AdamWOptions { learning_rate: 2e-3, ..Default::default() })?;
        let mut losses = Vec::new();
        for _ in 0..STEPS {
            let mut batch = Batch::of(decoder.config().vocab_size, 0);
            let trained = batch.mask.iter().filter(|mask| **mask == 1).count() as f32;
            batch.d_log_prob = batch.mask.iter().map(|mask| -f32::from(*mask) / trained).collect();
            let log_probs = decoder.forward(&batch.view())?.log_prob;
            let of = log_probs.iter().zip(&batch.d_log_prob);
            losses.push(of.map(|(log_prob, d)| f64::from(log_prob * d)).sum());
            decoder.backward(&batch.d_log_prob, None)?;
            optimizer.step(&mut decoder, None, None)?;
        }
        Ok(losses)
    });
    let [wanted, got] = losses;
    let (wanted, got) = (wanted?, got?);
    let is_learned = wanted[STEPS - 1] < 0.7 * wanted[0];
    let furthest =
        got.iter().zip(&wanted).map(|(got, wanted)| (got / wanted - 1.0).abs()).fold(0.0, f64::max);
    let shape = format!("{name}: {:.3} to {:.3}, off by {furthest:.4}", wanted[0], wanted[STEPS - 1]);
    report.same(
        "losses in bfloat16",
        &shape,
        &[u32::from(is_learned && furthest < LOSS_DIFFERENCE_MAX)],
        &[1],
    );
    Ok(())
}

fn in_f64(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|number| f64::from(*number)).collect()
}

fn waits(report: &mut Report, decoder: &Decoder, card: Card) -> Result<()> {
    let mut on_card = moved(decoder, Compute::Cuda(card))?;
    for (rule, options) in rules() {
        let mut optimizer = Optimizer::new(&on_card, options)?;
        let before = card.num_waits();
        Batch::of(decoder.config().vocab_size, 1).backward(&mut on_card)?;
        optimizer.step(&mut on_card, None, Some(1.0))?;
        report.same("waits of a training step", rule, &[card.num_waits() - before], &[WAITS]);
    }
    Ok(())
}

/// An optimizer belongs to the device of its decoder, and a decoder without gradients has no step.
fn refused(report: &mut Report, decoder: &Decoder, on: Compute) -> Result<()> {
    let mut on_card = moved(decoder, on)?;
    let mut of_processor = Optimizer::new(decoder, AdamWOptions::default())?;
    let mut of_card = Optimizer::new(&on_card, AdamWOptions::default())?;
    on_card.zero_gradients();
    report.same("norm of no gradients", "qwen3", &[on_card.gradient_norm()], &[decoder.gradient_norm()]);
    for (name, optimizer, kind) in [
        ("another device", &mut of_processor, ErrorKind::Incompatible),
        ("no gradients", &mut of_card, ErrorKind::Closed),
    ] {
        let error = optimizer.step(&mut on_card, None, None).err().map(|error| error.kind());
        report.same("refused", name, &[u32::from(error == Some(kind))], &[1]);
    }
    Batch::of(decoder.config().vocab_size, 1).backward(&mut on_card)?;
    of_card.step(&mut on_card, None, None)?;
    report.same("steps after refusals", "qwen3", &[of_card.num_steps()], &[1]);
    Ok(())
}

/// A step fails at each of its allocations in turn: the first time with no memory, then with as much more as the last failure
/// lacked. Weights and moments are then those before it, and the next step has the bits of one that never failed.
fn out_of_memory(report: &mut Report, name: &str, decoder: &Decoder, card: Card) -> Result<()> {
    let on = Compute::Cuda(card);
    let batch = Batch::of(decoder.config().vocab_size, 2);
    for (rule, options) in rules() {
        let (mut failures, mut left) = (0, 0);
        loop {
            let mut on_card = moved(decoder, on)?;
            let mut optimizer = Optimizer::new(&on_card, options.clone())?;
            let before = optimizer.to_safetensors(&on_card)?;
            let taken: Buffer<u8> = card.zeros(card.free_bytes()? - left)?;
            let mut step = || -> Result<()> {
                batch.backward(&mut on_card)?;
                optimizer.step(&mut on_card, None, Some(0.5)).map(drop)
            };
            let result = step();
            drop(taken);
            let Err(error) = result else { break };
            failures += 1;
            let shape = format!("{name}, {rule}, {left} bytes left: {error}");
            report.same(
                "kind of a failure",
                &shape,
                &[u32::from(error.kind() == ErrorKind::OutOfMemory)],
                &[1],
            );
            report.same("weights after a failure", &shape, &on_card.weights(), &decoder.weights());
            report.same("moments after a failure", &shape, &optimizer.to_safetensors(&on_card)?, &before);
            let Some(lacking) = lacking(error.detail()) else { break };
            left += lacking;
        }
        let is_thorough = failures > 20;
        report.same("failures", &format!("{name}, {rule}: {failures}"), &[u32::from(is_thorough)], &[1]);
    }
    Ok(())
}

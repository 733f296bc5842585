//! Decoders whose passes run on the card: every bit of the processor's log-probs and entropies.

use fulmar_core::{Dtype, Result};
use fulmar_cuda::Card;
use fulmar_model::{Decoder, DecoderConfig, Scores, TokenBatch};

use crate::report::Report;

/// Families: plain, with biases, with normalised heads and with a head of its own; widths that fill no tile.
pub const CONFIGS: [(&str, &str); 3] = [
    (
        "llama",
        r#"{"model_type": "llama", "vocab_size": 67, "hidden_size": 24, "intermediate_size": 40,
            "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
            "initializer_range": 0.3, "tie_word_embeddings": false}"#,
    ),
    (
        "qwen2",
        r#"{"model_type": "qwen2", "vocab_size": 130, "hidden_size": 64, "intermediate_size": 72,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}"#,
    ),
    (
        "qwen3",
        r#"{"model_type": "qwen3", "vocab_size": 41, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
            "initializer_range": 0.4}"#,
    ),
];

/// The same kinds of families with widths of heads that attention has in bfloat16.
pub const WIDE_CONFIGS: [(&str, &str); 3] = [
    (
        "llama, heads of 80",
        r#"{"model_type": "llama", "vocab_size": 67, "hidden_size": 24, "intermediate_size": 40,
            "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 80,
            "initializer_range": 0.2, "tie_word_embeddings": false}"#,
    ),
    (
        "qwen2, heads of 64",
        r#"{"model_type": "qwen2", "vocab_size": 130, "hidden_size": 128, "intermediate_size": 72,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.1}"#,
    ),
    (
        "qwen3, heads of 64",
        r#"{"model_type": "qwen3", "vocab_size": 41, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
            "initializer_range": 0.2}"#,
    ),
];

/// Lengths of the sequences of a batch: alone, with a sequence of one token, and more rows than a tile.
const BATCHES: [&[usize]; 4] = [&[2], &[1, 7, 3], &[33, 40, 2], &[9, 9, 9, 9, 9, 9, 9, 9]];

/// Largest relative error of log-probs in the L2 norm, where weights are in bfloat16: each rounding is off by up to 2^-9, or 2e-3, and
/// those of a row add as their squares do. On the emulated GPU the error is 1.3e-3 to 2.9e-3.
const HALVES_ERROR_MAX: f64 = 5e-3;

/// Compares passes of each family over each batch.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (name, text) in CONFIGS {
        let on_processor = Decoder::new(DecoderConfig::from_json(text)?, 7)?;
        let mut on_card = on_processor.clone();
        on_card.move_to(card.device())?;
        report.same("weights on the card", name, &on_card.weights(), &on_processor.weights());
        for lens in BATCHES {
            let batch = Batch::of(lens, on_processor.config().vocab_size);
            let shape = format!("{name}, sequences {lens:?}");
            let wanted = on_processor.score(&batch.view())?;
            compare(report, "score", &shape, on_card.score(&batch.view()), &wanted);
            compare(report, "forward", &shape, on_card.forward(&batch.view()), &wanted);
            let reads = card.num_waits();
            on_card.score(&batch.view())?;
            report.same("waits of a pass", &shape, &[(card.num_waits() - reads) as u32], &[1]);
        }
        in_halves(report, name, (&on_processor, &on_card), &[33, 40, 2, 70])?;
    }
    for ((name, text), long) in WIDE_CONFIGS.iter().zip([300, 70, 129]) {
        let on_processor = Decoder::new(DecoderConfig::from_json(text)?, 7)?;
        let mut on_card = on_processor.clone();
        on_card.move_to(card.device())?;
        in_halves(report, name, (&on_processor, &on_card), &[33, 2, 40, long])?;
        bytes(report, name, &on_card)?;
    }
    overflow(card, report)
}

fn compare(report: &mut Report, name: &str, shape: &str, got: Result<Scores>, wanted: &Scores) {
    match got {
        Ok(got) => {
            report.same(&format!("{name}, log_prob"), shape, &got.log_prob, &wanted.log_prob);
            report.same(&format!("{name}, entropy"), shape, &got.entropy, &wanted.entropy);
        }
        Err(error) => report.broken(&format!("{name}, {shape}"), &error),
    }
}

/// Weights in bfloat16 give log-probs near those of the processor, which rounds no activation, and a sequence has the same bits in
/// any batch.
fn in_halves(
    report: &mut Report,
    name: &str,
    (on_processor, on_card): (&Decoder, &Decoder),
    lens: &[usize],
) -> Result<()> {
    let [on_processor, on_card] =
        [on_processor, on_card].map(|decoder| decoder.clone().with_dtype(Dtype::Bf16));
    let (on_processor, on_card) = (on_processor?, on_card?);
    let vocab = on_processor.config().vocab_size;
    let batch = Batch::of(lens, vocab);
    let (wanted, got) = (on_processor.score(&batch.view())?, on_card.score(&batch.view())?);
    let exact: Vec<f64> = wanted.log_prob.iter().map(|number| f64::from(*number)).collect();
    report.near("score in bfloat16", name, &got.log_prob, &exact, HALVES_ERROR_MAX);
    for (index, end) in batch.offsets[1..].iter().enumerate() {
        let place = batch.offsets[index] as usize..*end as usize;
        let (ids, mask) = (&batch.ids[place.clone()], &batch.mask[place.clone()]);
        let offsets = [0, ids.len() as u32];
        let alone = on_card.score(&TokenBatch { ids, offsets: &offsets, mask, ..TokenBatch::default() })?;
        report.same("score in bfloat16, alone", name, &alone.log_prob, &got.log_prob[place]);
    }
    Ok(())
}

/// Queries, keys, values and outputs of attention take half the bytes where weights are in bfloat16.
fn bytes(report: &mut Report, name: &str, on_card: &Decoder) -> Result<()> {
    let config = on_card.config();
    let batch = Batch::of(&[33, 40], config.vocab_size);
    let halves = on_card.clone().with_dtype(Dtype::Bf16)?;
    let [wide, halves] = [on_card.clone(), halves].map(|mut decoder| -> Result<usize> {
        decoder.forward(&batch.view())?;
        Ok(decoder.trace_bytes())
    });
    // The last row of a sequence is not computed.
    let (rows, width) = (32 + 39, config.head_dim());
    let (heads, kv_heads) = (config.num_attention_heads, config.num_kv_heads());
    let of_layer = 2 * (heads + kv_heads) * width;
    let of_all = config.hidden_size + config.intermediate_size;
    // Heads before they are rounded are in f32, once for all layers.
    let room = 4 * (heads + 2 * kv_heads) * width;
    let less = rows * (2 * (of_layer * config.num_hidden_layers + of_all) - room);
    report.same("bytes of activations", name, &[wide? as u64], &[(halves? + less) as u64]);
    Ok(())
}

/// Residuals whose squares overflow make both devices refuse the batch with the same sentence.
fn overflow(card: &Card, report: &mut Report) -> Result<()> {
    let text = CONFIGS[0].1.replace("0.3", "1e30");
    let mut decoder = Decoder::new(DecoderConfig::from_json(&text)?, 7)?;
    let batch = Batch::of(&[5], decoder.config().vocab_size);
    let wanted = decoder.score(&batch.view()).map_err(|error| error.to_string());
    decoder.move_to(card.device())?;
    let got = decoder.score(&batch.view()).map_err(|error| error.to_string());
    report.same("overflow", "llama", &[u32::from(wanted.is_err() && got == wanted)], &[1]);
    Ok(())
}

/// Sequences with all tokens but the first of each trained.
pub struct Batch {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
}

impl Batch {
    pub fn of(lens: &[usize], vocab: usize) -> Self {
        let mut batch = Self { ids: Vec::new(), offsets: vec![0], mask: Vec::new() };
        for len in lens {
            let first = batch.ids.len();
            batch.ids.extend((first..first + len).map(|at| ((at * at * 31 + 7) % vocab) as u32));
            batch.mask.extend((0..*len).map(|at| u8::from(at > 0)));
            batch.offsets.push(batch.ids.len() as u32);
        }
        batch
    }

    pub fn view(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, ..TokenBatch::default() }
    }
}

//! Decoders whose passes run on the card: every bit of the processor's log-probs and entropies.

use fulmar_core::{Dtype, ErrorKind, Result};
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

/// Lengths of the sequences of a batch: alone, with a sequence of one token, and more rows than a tile.
const BATCHES: [&[usize]; 4] = [&[2], &[1, 7, 3], &[33, 40, 2], &[9, 9, 9, 9, 9, 9, 9, 9]];

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
        refused(report, name, &mut on_card)?;
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

/// A call that a decoder on the card lacks is an error, and scores are the same after it.
fn refused(report: &mut Report, name: &str, on_card: &mut Decoder) -> Result<()> {
    let batch = Batch::of(&[4], on_card.config().vocab_size);
    let before = on_card.forward(&batch.view())?;
    let is_unavailable =
        |refused: Result<()>| u32::from(refused.is_err_and(|error| error.kind() == ErrorKind::Unavailable));
    let halves = on_card.clone().with_dtype(Dtype::Bf16)?;
    let in_halves = halves.score(&batch.view()).map(drop);
    report.same("bfloat16 is refused", name, &[is_unavailable(in_halves)], &[1]);
    compare(report, "score after errors", name, on_card.score(&batch.view()), &before);
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

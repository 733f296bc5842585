//! Trains a tiny decoder with GRPO, from characters to vowels, without Node.
//!
//! Each step draws a group of answers, compares their rewards, and moves the log-prob of every sampled token by its advantage.
//! Run it with `cargo run --release -p fulmar --example train_grpo`.

#![expect(clippy::print_stdout, reason = "an example prints")]

use fulmar::core::Result;
use fulmar::model::{
    AdamWOptions, Decoder, DecoderConfig, Generated, Optimizer, Request, SamplingParams, TokenBatch, generate,
};
use fulmar::objective::{
    Advantage, AdvantageOptions, Groups, GrpoLoss, GrpoOptions, LossBatch, group_advantage,
};
use fulmar::tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};

const GROUP: usize = 32;
const STEPS: u64 = 30;
const CONFIG: &str = r#"{
    "model_type": "qwen2", "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2
}"#;

fn main() -> Result<()> {
    let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
    let mut config = DecoderConfig::from_json(CONFIG)?;
    config.vocab_size = tokenizer.vocab_size();
    let mut decoder = Decoder::new(config, 1)?;
    let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default())?;
    let prompt = tokenizer.encode("Sing")?.ids;
    let (mut first, mut last) = (None, 0.0);
    for step in 0..STEPS {
        let requests: Vec<_> = (0..GROUP as u64)
            .map(|answer| Request { prompt_ids: &prompt, seed: step * GROUP as u64 + answer })
            .collect();
        let answers = generate(&decoder, &requests, &SamplingParams { max_tokens: 8, ..Default::default() })?;
        let reward = answers.iter().map(|answer| vowels(&tokenizer, answer)).collect::<Result<Vec<_>>>()?;
        last = reward.iter().sum::<f64>() / GROUP as f64;
        first.get_or_insert(last);
        train(&mut decoder, &mut optimizer, &prompt, &answers, &reward)?;
        if step % 5 == 4 {
            println!("step {step}: reward {last:.2}, {:?}", tokenizer.decode(&answers[0].ids, true)?);
        }
    }
    assert!(last > first.unwrap_or_default() + 0.3, "the reward must rise");
    Ok(())
}

/// The share of vowels in an answer.
fn vowels(tokenizer: &CharTokenizer, answer: &Generated) -> Result<f64> {
    let text = tokenizer.decode(&answer.ids, true)?;
    Ok(text.chars().filter(|letter| "aeiou".contains(*letter)).count() as f64 / 8.0)
}

/// One step on a group: prompts and answers as ragged columns, log-probs, loss, gradients, update.
fn train(
    decoder: &mut Decoder,
    optimizer: &mut Optimizer,
    prompt: &[u32],
    answers: &[Generated],
    reward: &[f64],
) -> Result<()> {
    let (mut ids, mut mask, mut old_log_prob, mut offsets) = (vec![], vec![], vec![], vec![0]);
    for answer in answers {
        ids.extend(prompt.iter().chain(&answer.ids));
        mask.extend(prompt.iter().map(|_| 0_u8).chain(answer.ids.iter().map(|_| 1)));
        old_log_prob.extend(prompt.iter().map(|_| 0.0).chain(answer.log_prob.iter().copied()));
        offsets.push(ids.len() as u32);
    }
    let advantage = group_advantage(reward, None, Groups::Size(GROUP), &AdvantageOptions::default())?;
    let advantage_s: Vec<f32> = advantage.advantage.iter().map(|&value| value as f32).collect();
    let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, ..Default::default() };
    let scores = decoder.forward(&batch)?;
    // The sampler and the trainer compute the same bits.
    assert!(
        old_log_prob.iter().zip(&scores.log_prob).zip(&mask).all(|((a, b), trained)| *trained == 0 || a == b)
    );
    let output = GrpoLoss::new(GrpoOptions::default())?.forward(&LossBatch {
        log_prob: &scores.log_prob,
        old_log_prob: &old_log_prob,
        ref_log_prob: None,
        sampler_log_prob: None,
        entropy: None,
        advantage: Advantage::PerSequence(&advantage_s),
        mask: &mask,
        offsets: &offsets,
    })?;
    decoder.backward(&output.grad_log_prob, None)?;
    optimizer.step(decoder, Some(1e-2), Some(1.0))?;
    Ok(())
}

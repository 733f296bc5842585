//! Scores four answers to one question and shows what each of their tokens would teach.
//!
//! A conversation becomes token ids, a policy answers, the ledger keeps which ids were sampled, the answers compete
//! within their group, and the GRPO loss says in which direction every sampled token's log-probability should move.
//! Run it with `cargo run -p fulmar --example score_rollouts`.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use fulmar::chat::{
    Attribution, ChatMlRenderer, Ledger, Message, ParseOptions, RenderOptions, Rendered, Renderer, Turn,
    Versions,
};
use fulmar::core::Result;
use fulmar::objective::{
    Advantage, AdvantageOptions, Groups, GrpoLoss, GrpoOptions, LossBatch, group_advantage,
};
use fulmar::tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};

/// The four answers of one group. The last one forgot the form that was asked for.
const ANSWERS: [&str; 4] = ["[ANSWER] 42", "[ANSWER] 41", "[ANSWER] 42", "42"];

fn main() -> Result<()> {
    let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
    let renderer = ChatMlRenderer::new(tokenizer.clone())?;
    let question = Message::new("user", "What is 17 + 25? Answer as [ANSWER] <int>.")?;
    let prompt = renderer
        .render(&[question], &RenderOptions { add_generation_prompt: true, ..RenderOptions::default() })?;
    println!("prompt: {:?}", tokenizer.decode(&prompt.ids, false)?);

    let mut group = Group::default();
    for answer in ANSWERS {
        // An untrained policy gives every token the same probability. Yours sends its own numbers.
        let completion = [&tokenizer.encode(answer)?.ids, &renderer.stop_ids()[..1]].concat();
        let log_probs = vec![-(tokenizer.vocab_size() as f32).ln(); completion.len()];
        group.add(&prompt, &completion, &log_probs)?;
        group.reward.push(reward(&renderer.parse(&completion, &ParseOptions::default())?.content));
    }

    let advantage =
        group_advantage(&group.reward, None, Groups::Size(ANSWERS.len()), &AdvantageOptions::default())?;
    let advantage_s: Vec<f32> = advantage.advantage.iter().map(|&value| value as f32).collect();
    let output = GrpoLoss::new(GrpoOptions::default())?.forward(&LossBatch {
        log_prob: &group.log_prob,
        old_log_prob: &group.log_prob,
        ref_log_prob: None,
        sampler_log_prob: None,
        entropy: None,
        advantage: Advantage::PerSequence(&advantage_s),
        mask: &group.mask,
        offsets: &group.offsets,
    })?;

    println!("{:<14} {:>6} {:>9} {:>7} {:>14}", "answer", "reward", "advantage", "trained", "d loss/d logp");
    for (index, answer) in ANSWERS.iter().enumerate() {
        let range = group.offsets[index] as usize..group.offsets[index + 1] as usize;
        let num_trained = group.mask[range.clone()].iter().filter(|&&trained| trained == 1).count();
        let gradient = output.grad_log_prob[range].last().copied().unwrap_or_default();
        let (reward, advantage) = (group.reward[index], advantage_s[index]);
        println!("{answer:<14} {reward:>6.2} {advantage:>9.3} {num_trained:>7} {gradient:>14.5}");
    }
    println!("loss {:.6} over {} tokens", output.loss, output.metric("numTokens").unwrap_or_default());
    Ok(())
}

/// 1 for the right number, and 0.3 for the form alone.
fn reward(content: &str) -> f64 {
    let answer = content.rsplit_once("[ANSWER]").map(|(_, answer)| answer.trim());
    match answer.map(str::parse::<i64>) {
        Some(Ok(42)) => 1.3,
        Some(Ok(_)) => 0.3,
        _ => 0.0,
    }
}

/// The rollouts of one prompt, end to end in flat columns.
struct Group {
    log_prob: Vec<f32>,
    mask: Vec<u8>,
    offsets: Vec<u32>,
    reward: Vec<f64>,
}

impl Default for Group {
    fn default() -> Self {
        Self { log_prob: Vec::new(), mask: Vec::new(), offsets: vec![0], reward: Vec::new() }
    }
}

impl Group {
    /// Records one rollout in a ledger of its own and appends the sample that the ledger makes of it.
    fn add(&mut self, prompt: &Rendered, completion_ids: &[u32], log_probs: &[f32]) -> Result<()> {
        let mut ledger = Ledger::default();
        let origin =
            Attribution { origin: &prompt.origin, message_index: &prompt.message_index, message_offset: 0 };
        ledger.record_turn(&Turn {
            prompt_ids: &prompt.ids,
            completion_ids,
            log_probs,
            sampled_log_probs: log_probs,
            versions: Versions::one(0),
            attribution: Some(origin),
            branch_reason: None,
        })?;
        let samples = ledger.samples()?;
        self.log_prob.extend(&samples.log_probs);
        self.mask.extend(samples.mask.iter().map(|&trained| u8::from(trained)));
        self.offsets.push(self.log_prob.len() as u32);
        Ok(())
    }
}

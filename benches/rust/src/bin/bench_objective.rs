//! Compared with benches/rival/trl/objective.py: losses, estimates and draws without Node in between.
//!
//!     bench_objective FOLDER
//!
//! benches/ts/objective.ts writes the inputs into FOLDER. Each line `KIND REPEATS` of standard input is answered with one line of
//! JSON: `us`, the mean time of a call, and `values`, what the last call gave, to be compared.

use std::fs;
use std::io::BufRead;
use std::time::{Duration, Instant};

use fulmar::compute::Compute;
use fulmar::core::Result;
use fulmar::objective::{
    AdvantageOptions, DrawContext, DrawOptions, Groups, PerStep, StepBatch, TimeAxis, VtraceOptions, draw,
    draw_probabilities, draw_rng, generalized_advantage_estimate, group_advantage, logits_loss,
    td_lambda_return_estimate, token_log_probs, vtrace_advantage_estimate,
};
use fulmar_bench::{broken, say};
use serde_json::json;

const GROUP: usize = 8;
const GAMMA: f64 = 0.99;
const LAMBDA: f64 = 0.95;
/// One of so many values of an answer is reported.
const STRIDE: usize = 997;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or_else(|| broken("no folder"))?;
    let mut inputs = Inputs::read(&folder)?;
    say(&json!({ "threads": fulmar::kernel::num_threads() }))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(broken)?;
        let (kind, repeats) = line.split_once(' ').ok_or_else(|| broken(&line))?;
        let repeats: u32 = repeats.parse().map_err(broken)?;
        let (mut spent, mut values) = (Duration::ZERO, Vec::new());
        for _ in 0..repeats {
            let (time, found) = inputs.run(kind)?;
            spent += time;
            values = found;
        }
        let us = spent.as_secs_f64() * 1e6 / f64::from(repeats);
        say(&json!({ "us": us, "values": values }))?;
    }
    Ok(())
}

struct Inputs {
    logits: Vec<f32>,
    /// The buffers that a pass overwrites.
    scratch: Vec<f32>,
    ids: Vec<u32>,
    rewards: Vec<f64>,
    peaked: Vec<f32>,
    flat: Vec<f32>,
    steps: [Steps; 2],
    draw_index: u64,
}

/// `[rows, time]`
struct Steps {
    axis: TimeAxis,
    reward: Vec<f32>,
    value: Vec<f32>,
    next_value: Vec<f32>,
    log_pi: Vec<f32>,
    log_mu: Vec<f32>,
    done: Vec<u8>,
}

impl Steps {
    fn read(folder: &str, rows: usize, time: usize) -> Result<Self> {
        let all = floats(&format!("{folder}/steps-{rows}x{time}.f32"))?;
        let mut columns = all.chunks_exact(rows * time).map(<[f32]>::to_vec);
        let mut next = || columns.next().ok_or_else(|| broken("too few columns"));
        Ok(Self {
            axis: TimeAxis { outer: rows, time, inner: 1 },
            reward: next()?,
            value: next()?,
            next_value: next()?,
            log_pi: next()?,
            log_mu: next()?,
            done: next()?.iter().map(|done| u8::from(*done != 0.0)).collect(),
        })
    }

    fn batch(&self) -> StepBatch<'_, f32> {
        StepBatch {
            axis: self.axis,
            reward: &self.reward,
            next_value: &self.next_value,
            done: &self.done,
            terminated: None,
            compute: Compute::Cpu,
        }
    }
}

impl Inputs {
    fn read(folder: &str) -> Result<Self> {
        let bytes = |name: &str| fs::read(format!("{folder}/{name}")).map_err(broken);
        let logits = floats(&format!("{folder}/logits.f32"))?;
        Ok(Self {
            scratch: logits.clone(),
            logits,
            ids: bytes("ids.u32")?.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect(),
            rewards: bytes("rewards.f64")?
                .as_chunks()
                .0
                .iter()
                .map(|word| f64::from_le_bytes(*word))
                .collect(),
            peaked: floats(&format!("{folder}/peaked.f32"))?,
            flat: floats(&format!("{folder}/flat.f32"))?,
            steps: [Steps::read(folder, 64, 1000)?, Steps::read(folder, 4096, 128)?],
            draw_index: 0,
        })
    }

    fn run(&mut self, kind: &str) -> Result<(Duration, Vec<f64>)> {
        match kind {
            "forward" => timed(
                || token_log_probs(&self.logits, &self.ids, 1.0, Compute::Cpu),
                |found| every(&found.log_prob, 1),
            ),
            "both" => {
                self.scratch.copy_from_slice(&self.logits);
                let gradients = vec![-1.0; self.ids.len()];
                let (scratch, ids) = (&mut self.scratch, &self.ids);
                let (spent, _) = timed(
                    || logits_loss(scratch, ids, 1.0, Compute::Cpu, |_| Ok((gradients, None, ()))),
                    |()| Vec::new(),
                )?;
                Ok((spent, every(&self.scratch, STRIDE * STRIDE)))
            }
            "advantage" => {
                let options = AdvantageOptions { std_floor: 0.0, ..AdvantageOptions::default() };
                timed(
                    || group_advantage(&self.rewards, None, Groups::Size(GROUP), &options),
                    |found| every(&found.advantage_f32().unwrap_or_default(), STRIDE),
                )
            }
            _ => match kind.split_once(':').ok_or_else(|| broken(kind))? {
                ("draw", cut) => self.draw(cut),
                (estimate, shape) => estimate_of(estimate, &self.steps[usize::from(shape != "64x1000")]),
            },
        }
    }

    fn draw(&mut self, cut: &str) -> Result<(Duration, Vec<f64>)> {
        let all = DrawOptions::default();
        let (logits, options) = match cut {
            "temperature" => (&self.peaked, DrawOptions { temperature: 0.7, ..all }),
            "topK50TopP0.9" => (&self.peaked, DrawOptions { top_k: Some(50), top_p: 0.9, ..all }),
            "topP0.9" => (&self.peaked, DrawOptions { top_p: 0.9, ..all }),
            "flatTopP0.9" => (&self.flat, DrawOptions { top_p: 0.9, ..all }),
            other => return Err(broken(other)),
        };
        self.draw_index += 1;
        let (spent, _) = timed(|| draw(logits, &options, &mut draw_rng(7, self.draw_index)), |_| Vec::new())?;
        let kept = draw_probabilities(logits, &options, &DrawContext::default())?;
        Ok((spent, vec![kept.iter().filter(|probability| **probability > 0.0).count() as f64]))
    }
}

fn estimate_of(estimate: &str, steps: &Steps) -> Result<(Duration, Vec<f64>)> {
    let (batch, gamma, lambda) = (steps.batch(), PerStep::All(GAMMA), PerStep::All(LAMBDA));
    match estimate {
        "gae" => timed(
            || generalized_advantage_estimate(&batch, &steps.value, gamma, lambda),
            |found| every(&found.advantage, STRIDE),
        ),
        "tdLambda" => {
            timed(|| td_lambda_return_estimate(&batch, gamma, lambda, true), |found| every(&found, STRIDE))
        }
        "vtrace" => timed(
            || {
                vtrace_advantage_estimate(
                    &batch,
                    &steps.value,
                    [&steps.log_pi, &steps.log_mu],
                    gamma,
                    VtraceOptions::default(),
                )
            },
            |found| every(&found.advantage, STRIDE),
        ),
        other => Err(broken(other)),
    }
}

/// Runs `work`; returns its time and a sample of its result.
fn timed<R>(
    work: impl FnOnce() -> Result<R>,
    tell: impl FnOnce(R) -> Vec<f64>,
) -> Result<(Duration, Vec<f64>)> {
    let start = Instant::now();
    let found = work()?;
    Ok((start.elapsed(), tell(found)))
}

fn every(values: &[f32], stride: usize) -> Vec<f64> {
    values.iter().step_by(stride).map(|value| f64::from(*value)).collect()
}

fn floats(path: &str) -> Result<Vec<f32>> {
    let bytes = fs::read(path).map_err(broken)?;
    Ok(bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

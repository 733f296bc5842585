//! A rival of benches/ts/smollm2.ts: the Llama of candle-transformers in f32.
//!
//! `candle-llama FOLDER`, where FOLDER is a Llama as Hugging Face lays it out. Each line of standard input is a request in
//! JSON, each answer one line of JSON. benches/ts/smollm2.ts says what each request means; there is no training, as
//! this model's norm, rotary angles and softmax have no gradient.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use serde::Deserialize;
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Rows = Vec<Vec<u32>>;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Request {
    Score { ids: Rows },
    Prefill { ids: Rows },
    Generate { ids: Rows, tokens: usize },
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or("the first argument must be a folder")?;
    let engine = Engine::load(Path::new(&folder))?;
    let threads = candle_core::utils::get_num_threads();
    say(&json!({ "versions": { "candle": "0.11.1" }, "threads": threads }))?;
    for line in std::io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?)?;
        let (start, start_cpu_ms) = (Instant::now(), cpu_ms(&getrusage(UsageWho::RUSAGE_SELF)?));
        let mut answer = match request {
            Request::Score { ids } => engine.score(&ids)?,
            Request::Prefill { ids } => engine.prefill(&ids)?,
            Request::Generate { ids, tokens } => engine.generate(&ids, tokens)?,
        };
        answer["ms"] = json!(ms_since(start));
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        answer["cpuMs"] = json!(cpu_ms(&usage) - start_cpu_ms);
        answer["peakMiB"] = json!(usage.max_rss() as f64 / 1024.0);
        say(&answer)?;
    }
    Ok(())
}

/// A model and what its caches are made from.
struct Engine {
    config: Config,
    llama: Llama,
}

impl Engine {
    fn load(folder: &Path) -> Result<Self> {
        let config: LlamaConfig = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
        let config = config.into_config(false);
        let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu)?;
        let llama = Llama::load(VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu), &config)?;
        Ok(Self { config, llama })
    }

    fn cache(&self) -> Result<Cache> {
        Ok(Cache::new(true, DType::F32, &self.config, &Device::Cpu)?)
    }

    /// The model answers at the last position only: token after token, over the cache.
    fn score(&self, ids: &Rows) -> Result<Value> {
        let (ids_bt, mut cache) = (batch(ids)?, self.cache()?);
        let score = |at| {
            let logits = self.llama.forward(&ids_bt.narrow(1, at, 1)?.contiguous()?, at, &mut cache)?;
            let log_probs = candle_nn::ops::log_softmax(&logits, D::Minus1)?;
            log_probs.gather(&ids_bt.narrow(1, at + 1, 1)?.contiguous()?, 1)
        };
        let scored = (0..ids_bt.dim(1)? - 1).map(score).collect::<candle_core::Result<Vec<_>>>()?;
        Ok(json!({ "logProbs": Tensor::cat(&scored, 1)?.to_vec2::<f32>()? }))
    }

    fn prefill(&self, ids: &Rows) -> Result<Value> {
        self.llama.forward(&batch(ids)?, 0, &mut self.cache()?)?;
        Ok(json!({}))
    }

    /// Greedy, over the cache, past any end token; `drawMs` leaves the first token out.
    fn generate(&self, ids: &Rows, tokens: usize) -> Result<Value> {
        let (mut last, mut cache) = (batch(ids)?, self.cache()?);
        let (mut start, mut num_seen, mut drawn) = (Instant::now(), 0, Vec::with_capacity(tokens));
        for at in 0..tokens {
            if at == 1 {
                start = Instant::now();
            }
            let logits = self.llama.forward(&last, num_seen, &mut cache)?;
            num_seen += last.dim(1)?;
            last = logits.argmax_keepdim(D::Minus1)?;
            drawn.push(last.clone());
        }
        let draw_ms = ms_since(start);
        Ok(json!({ "ids": Tensor::cat(&drawn, 1)?.to_vec2::<u32>()?, "drawMs": draw_ms }))
    }
}

fn batch(rows: &Rows) -> Result<Tensor> {
    Ok(Tensor::new(rows.clone(), &Device::Cpu)?)
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

/// Processor time of all threads.
fn cpu_ms(usage: &Usage) -> f64 {
    let [user, system] = [usage.user_time(), usage.system_time()];
    let us = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    (us(user) + us(system)) / 1000.0
}

fn say(line: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

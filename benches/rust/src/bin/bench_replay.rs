//! Compared with the rivals of benches/rival/torchrl: buffers without Node in between.
//!
//! Each line of standard input is a request, each answer one line of JSON: `open CASE ROWS` fills a buffer, `check` draws and
//! says how much of it is wrong, `state` digests all rows, `OPERATION COUNT REPEATS` gives the mean time of a call in
//! microseconds, `close` frees the buffer. The cases:
//!
//! - `pixels`: row `i` holds `a[k] = 5 i + k`, f32\[5\], and `b.c[j] = 31 i + 7 j`, u8\[3, 32, 32\]; 3,092 bytes.
//! - `prioritized`: a sampler alone; the priority of row `i` is one of 1,000 levels, by the bits of `2654435761 i`.
//! - `ragged`: row `i` holds `reward` f32, `i` itself, and `tokens` i64 of length `64 + bits(i) % 1985`, token `k` being
//!   `31 i + 7 k`; drawn rows are padded on the right with -1.
//! - `slices`: episodes of 200 steps with `episode` i64, `step` f32 and `next.done`; a turn writes 256 steps and draws 32 x 64.

use std::io::BufRead;
use std::time::Instant;

use fulmar::core::Result;
use fulmar::replay::{
    Batch, PrioritizedOptions, PrioritizedSampler, ReplayBuffer, ReplayBufferOptions, SamplerOptions,
    SliceOptions, TensorStorage, TrajectoryKeys, WeightedRows,
};
use fulmar::tensor::{Key, PadSide, Ragged, Tensor, TensorDict};
use fulmar_bench::{broken, say};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const ROWS: usize = 10_000;
const MORE: usize = 400;
const BATCH: usize = 256;
const PIXELS: usize = 3 * 32 * 32;
const LEVELS: u32 = 1000;
const PRIORITIES: PrioritizedOptions =
    PrioritizedOptions { alpha: 0.6, beta: 0.4, eps: 1e-8, max_priority_within_buffer: false };
const DRAWS: usize = 65_536;
const TOKENS_MIN: usize = 64;
const TOKENS_SPAN: u32 = 1985;
const ROLLOUTS: usize = 256;
const PADDED: usize = 64;
const PAD: i64 = -1;
const EPISODE: i64 = 200;
const SLICES: usize = 32;
const STEPS: usize = 64;
const WRITTEN: usize = 256;
/// Rows that are written at once to fill a buffer.
const CHUNK: usize = 1_000_000;

/// A filled buffer that is measured.
trait Case {
    /// Runs one operation once.
    fn run(&mut self, operation: &str, count: usize) -> Result<()>;
    /// Draws, and says what is wrong with it.
    fn check(&mut self) -> Result<Value>;
    /// A digest of all rows.
    fn state(&self) -> Result<String>;
}

fn main() -> Result<()> {
    say(&json!({ "cases": ["pixels", "prioritized", "ragged", "slices"] }))?;
    let mut case: Option<Box<dyn Case>> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(broken)?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).unwrap_or(&"").parse::<usize>().map_err(broken);
        let opened = || broken("a request before a case was opened");
        match words[0] {
            "open" => {
                let before = resident_bytes();
                case = Some(open(words[1], number(2)?)?);
                let taken = before.zip(resident_bytes()).map(|(before, after)| after as f64 - before as f64);
                say(&json!({ "bytesPerRow": taken.map(|taken| taken / number(2).unwrap_or(1) as f64) }))?;
            }
            "close" => {
                case = None;
                say(&json!({ "closed": true }))?;
            }
            "check" => say(&case.as_mut().ok_or_else(opened)?.check()?)?,
            "state" => say(&json!({ "digest": case.as_ref().ok_or_else(opened)?.state()? }))?,
            operation => {
                let (case, count, repeats) = (case.as_mut().ok_or_else(opened)?, number(1)?, number(2)?);
                let start = Instant::now();
                for _ in 0..repeats {
                    case.run(operation, count)?;
                }
                say(&json!({ "us": start.elapsed().as_secs_f64() * 1e6 / repeats as f64 }))?;
            }
        }
    }
    Ok(())
}

fn open(case: &str, rows: usize) -> Result<Box<dyn Case>> {
    Ok(match case {
        "pixels" => Box::new(Pixels::new(rows)?),
        "prioritized" => Box::new(Prioritized::new(rows)?),
        "ragged" => Box::new(Rollouts::new(rows)?),
        "slices" => Box::new(Slices::new(rows)?),
        other => return Err(broken(format!("no case {other}"))),
    })
}

struct Pixels {
    buffer: ReplayBuffer,
    more: TensorDict,
    one: TensorDict,
    memory: Batch,
}

impl Pixels {
    fn new(rows: usize) -> Result<Self> {
        let options = ReplayBufferOptions { seed: 1, write_info: false, ..Default::default() };
        let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[rows])?), options)?;
        buffer.extend(&pixels(0, rows)?)?;
        let memory = buffer.sample(Some(BATCH))?;
        let one = pixels(3 * ROWS, 1)?.index(0)?;
        Ok(Self { buffer, more: pixels(2 * ROWS, MORE)?, one, memory })
    }
}

impl Case for Pixels {
    fn run(&mut self, operation: &str, count: usize) -> Result<()> {
        match operation {
            "extend" => drop(self.buffer.extend(&self.more)?),
            "add" => drop(self.buffer.add(&self.one)?),
            "sample" => drop(self.buffer.sample(Some(count))?),
            "sampleInto" => self.buffer.sample_into(Some(count), &mut self.memory)?,
            other => return Err(broken(format!("no operation {other}"))),
        }
        Ok(())
    }

    fn check(&mut self) -> Result<Value> {
        self.run("sampleInto", BATCH)?;
        let a = self.memory.items.tensor("a")?;
        let mut wrong = 0;
        for (row, first) in a.as_f32()?.chunks_exact(5).map(|a| a[0]).enumerate() {
            wrong += usize::from(pixels(first as usize / 5, 1)?.index(0)? != self.memory.items.index(row)?);
        }
        Ok(json!({ "wrong": wrong, "of": BATCH }))
    }

    fn state(&self) -> Result<String> {
        digest(&self.buffer, &[Key::from("a"), Key::from(["b", "c"])])
    }
}

fn pixels(start: usize, count: usize) -> Result<TensorDict> {
    let ids = start..start + count;
    let a = ids.clone().flat_map(|id| (0..5).map(move |k| (5 * id + k) as f32)).collect();
    let c = ids.flat_map(|id| (0..PIXELS).map(move |j| (31 * id + 7 * j) as u8)).collect();
    let mut items = TensorDict::new(&[count])?;
    items.set("a", Tensor::from_vec_f32(&[count, 5], a)?)?;
    items.set(["b", "c"], Tensor::from_vec::<u8>(&[count, 3, 32, 32], c)?)?;
    Ok(items)
}

struct Prioritized {
    sampler: PrioritizedSampler,
    num_rows: usize,
    batch: WeightedRows,
    updated: Vec<usize>,
    /// The next priorities of these rows, and those after: no update writes what is there.
    changes: [Vec<f32>; 2],
}

impl Prioritized {
    fn new(num_rows: usize) -> Result<Self> {
        let mut sampler = PrioritizedSampler::new(num_rows, PRIORITIES, 1)?;
        for start in (0..num_rows).step_by(CHUNK) {
            let rows: Vec<usize> = (start..num_rows.min(start + CHUNK)).collect();
            let priorities: Vec<f32> = rows.iter().copied().map(priority).collect();
            sampler.update_priority(&rows, &priorities)?;
        }
        let stride = num_rows / DRAWS;
        let place = |at: usize| {
            let order = at * 40_503 % DRAWS;
            order * stride + bits(order) as usize % stride
        };
        let updated: Vec<usize> = (0..DRAWS).map(place).collect();
        let changes = [7, 0].map(|by| updated.iter().map(|row| priority(row + by)).collect());
        Ok(Self { sampler, num_rows, batch: WeightedRows::default(), updated, changes })
    }
}

impl Case for Prioritized {
    fn run(&mut self, operation: &str, count: usize) -> Result<()> {
        match operation {
            "sampleInto" => self.sampler.sample_into(count, &mut self.batch)?,
            "update" => {
                self.sampler.update_priority(&self.updated[..count], &self.changes[0][..count])?;
                self.changes.swap(0, 1);
            }
            other => return Err(broken(format!("no operation {other}"))),
        }
        Ok(())
    }

    fn check(&mut self) -> Result<Value> {
        let changed = self.changes[0].clone();
        self.run("update", DRAWS)?;
        let leaf_of = |row: usize| f64::from(self.sampler.tree().leaf(row).unwrap_or(f32::NAN));
        let leaf = |priority: f32| f64::from(priority + PRIORITIES.eps).powf(f64::from(PRIORITIES.alpha));
        let leaves = self.updated.iter().map(|&row| leaf_of(row)).zip(&changed);
        let leaf_apart = leaves.map(|(got, &priority)| (got / leaf(priority) - 1.0).abs()).sum::<f64>();
        self.run("update", DRAWS)?;
        let batch = self.sampler.sample(DRAWS)?;
        let power = f64::from(-PRIORITIES.alpha * PRIORITIES.beta);
        let eps = f64::from(PRIORITIES.eps);
        let lowest = 1.0 / f64::from(LEVELS) + eps;
        let weight = |row: usize| ((f64::from(priority(row)) + eps) / lowest).powf(power);
        let weights = batch.rows.iter().zip(&batch.weights);
        let apart =
            weights.map(|(&row, &got)| (f64::from(got) / weight(row) - 1.0).abs()).fold(0.0, f64::max);
        let mean =
            |of: &dyn Fn(usize) -> f64| batch.rows.iter().map(|&row| of(row)).sum::<f64>() / DRAWS as f64;
        let mut num_unreachable = 0;
        for row in 0..self.num_rows {
            num_unreachable += usize::from(self.sampler.tree().sum_in(row, row + 1)? <= 0.0);
        }
        Ok(json!({
            "apart": apart,
            "leafApart": leaf_apart / DRAWS as f64,
            "priority": mean(&|row| f64::from(priority(row))),
            "row": mean(&|row| row as f64 / self.num_rows as f64),
            "unreachable": num_unreachable,
        }))
    }

    fn state(&self) -> Result<String> {
        Err(broken("no rows to digest"))
    }
}

/// A number of 32 bits for an id.
fn bits(id: usize) -> u32 {
    (id as u32).wrapping_mul(2_654_435_761)
}

fn priority(row: usize) -> f32 {
    (f64::from(bits(row) % LEVELS + 1) / f64::from(LEVELS)) as f32
}

struct Rollouts {
    buffer: ReplayBuffer,
    more: TensorDict,
}

impl Rollouts {
    fn new(rows: usize) -> Result<Self> {
        let options = ReplayBufferOptions { seed: 1, write_info: false, ..Default::default() };
        let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[rows])?), options)?;
        buffer.extend(&rollouts(0, rows)?)?;
        Ok(Self { buffer, more: rollouts(2 * rows, ROLLOUTS)? })
    }

    fn draw(&mut self, count: usize) -> Result<(Tensor, Batch)> {
        let batch = self.buffer.sample(Some(count))?;
        Ok((batch.items.ragged("tokens")?.to_padded(PadSide::Right, PAD as f64)?, batch))
    }
}

impl Case for Rollouts {
    fn run(&mut self, operation: &str, count: usize) -> Result<()> {
        match operation {
            "extend" => drop(self.buffer.extend(&self.more)?),
            "sample" => drop(self.draw(count)?),
            other => return Err(broken(format!("no operation {other}"))),
        }
        Ok(())
    }

    fn check(&mut self) -> Result<Value> {
        let (padded, batch) = self.draw(PADDED)?;
        let width = padded.shape()[1];
        let rows = padded.as_slice::<i64>()?.chunks_exact(width).zip(batch.items.tensor("reward")?.as_f32()?);
        let is_right = |(row, id): (&[i64], &f32)| {
            let tokens = tokens_of(*id as usize);
            row[..tokens.len()] == tokens && row[tokens.len()..].iter().all(|token| *token == PAD)
        };
        let num_right = rows.filter(|row| is_right(*row)).count();
        Ok(json!({ "wrong": PADDED - num_right, "of": PADDED }))
    }

    fn state(&self) -> Result<String> {
        let rows: Vec<usize> = (0..self.buffer.len()).collect();
        let items = self.buffer.storage().get(&rows)?;
        let mut digest = Sha256::new();
        digest.update(items.tensor("reward")?.to_bytes());
        digest.update(items.ragged("tokens")?.values().to_bytes());
        Ok(hex(digest))
    }
}

fn rollouts(start: usize, count: usize) -> Result<TensorDict> {
    let ids = start..start + count;
    let rows: Vec<Vec<i64>> = ids.clone().map(tokens_of).collect();
    let mut offsets = vec![0_u64];
    offsets.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let values = rows.concat();
    let mut items = TensorDict::new(&[count])?;
    items.set("reward", Tensor::from_vec_f32(&[count], ids.map(|id| id as f32).collect())?)?;
    items.set("tokens", Ragged::new(Tensor::from_vec(&[values.len()], values)?, &offsets)?)?;
    Ok(items)
}

fn tokens_of(id: usize) -> Vec<i64> {
    let len = TOKENS_MIN + (bits(id) % TOKENS_SPAN) as usize;
    (0..len).map(|at| (31 * id + 7 * at) as i64).collect()
}

struct Slices {
    buffer: ReplayBuffer,
    more: TensorDict,
}

impl Slices {
    fn new(num_rows: usize) -> Result<Self> {
        let sampler = SamplerOptions::Slice {
            slices: SliceOptions { num_slices: Some(SLICES), ..Default::default() },
            trajectories: TrajectoryKeys { id_key: Some(Key::from("episode")), end_keys: None },
        };
        let options = ReplayBufferOptions { seed: 1, sampler, write_info: false, ..Default::default() };
        let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[num_rows])?), options)?;
        for start in (0..num_rows).step_by(CHUNK) {
            let ids = start as i64..num_rows.min(start + CHUNK) as i64;
            buffer.extend(&steps(ids, |id| (id / EPISODE, id, id % EPISODE == EPISODE - 1))?)?;
        }
        let half = WRITTEN as i64 / 2;
        let place = |id| (-1 - id / half, num_rows as i64 + id, id % half == half - 1);
        Ok(Self { buffer, more: steps(0..WRITTEN as i64, place)? })
    }

    fn turn(&mut self) -> Result<Batch> {
        self.buffer.extend(&self.more)?;
        self.buffer.sample(Some(SLICES * STEPS))
    }
}

impl Case for Slices {
    fn run(&mut self, _: &str, _: usize) -> Result<()> {
        self.turn().map(drop)
    }

    fn check(&mut self) -> Result<Value> {
        let batch = self.turn()?.items;
        let (episodes, steps) = (batch.tensor("episode")?, batch.tensor("step")?);
        let slices = episodes.as_slice::<i64>()?.chunks_exact(STEPS).zip(steps.as_f32()?.chunks_exact(STEPS));
        let is_right = |(episode, step): (&[i64], &[f32])| {
            episode.iter().all(|id| *id == episode[0]) && step.windows(2).all(|pair| pair[1] == pair[0] + 1.0)
        };
        let num_right = slices.filter(|slice| is_right(*slice)).count();
        Ok(json!({ "wrong": SLICES - num_right, "of": SLICES }))
    }

    fn state(&self) -> Result<String> {
        digest(&self.buffer, &[Key::from("episode"), Key::from("step"), Key::from(["next", "done"])])
    }
}

/// Steps of an episode, a number and a flag each.
fn steps(ids: std::ops::Range<i64>, of: impl Fn(i64) -> (i64, i64, bool)) -> Result<TensorDict> {
    let count = ids.clone().count();
    let mut items = TensorDict::new(&[count])?;
    items
        .set("episode", Tensor::from_vec(&[count], ids.clone().map(|id| of(id).0).collect::<Vec<i64>>())?)?;
    items.set("step", Tensor::from_vec_f32(&[count], ids.clone().map(|id| of(id).1 as f32).collect())?)?;
    items
        .set(["next", "done"], Tensor::from_vec(&[count], ids.map(|id| of(id).2).collect::<Vec<bool>>())?)?;
    Ok(items)
}

/// All rows in their order, leaf by leaf.
fn digest(buffer: &ReplayBuffer, keys: &[Key]) -> Result<String> {
    let rows: Vec<usize> = (0..buffer.len()).collect();
    let items = buffer.storage().get(&rows)?;
    let mut digest = Sha256::new();
    for key in keys {
        digest.update(items.tensor(key.clone())?.to_bytes());
    }
    Ok(hex(digest))
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Memory of this process that is not swapped out; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

//! Times of kernels, as a share of the bandwidth of a copy that is measured first, in the same process, then those of whole decoders.

mod attention;
mod copies;
mod decoder;

use bytemuck::Pod;
use fulmar_core::{Result, Rng};
use fulmar_cuda::{Buffer, Card, Grid, arguments};
use fulmar_kernel::AdamwStep;
use fulmar_objective::{DrawMethod, DrawOptions, draw_rng};
use half::bf16;
use serde_json::{Value, json};

use crate::numbers::Repeated;
use crate::report::write;
use crate::{Options, check};

/// Launches of a round, of which the median counts.
const TIMES: usize = 20;

/// Rounds of each bench: the slower one counts.
const ROUNDS: usize = 2;

/// Kernels of products in bfloat16: by the rows of a block, and those of gradients.
const PRODUCTS: [&str; 5] = ["product_8", "product_64", "product_128", "product_d_w", "product_dt_x"];

/// A kernel at one shape.
struct Bench {
    /// The name of the bench, which a rival of `rivals.py` shares.
    name: &'static str,
    /// The file of the kernel, and the kernel.
    file: &'static str,
    kernel: &'static str,
    make: fn(&Card) -> Result<Work>,
    /// Without one the time is written alone.
    goal: Option<Goal>,
}

/// The goal of a bench.
#[derive(Clone, Copy)]
enum Goal {
    /// The least share of the bandwidth of a copy.
    Copy(f64),
    /// The least share of the operations a second of the largest product, which `rivals.py` measures.
    Peak(f64),
    /// The least number of tokens a second.
    TokensPerSecond(f64),
    /// The longest time.
    Milliseconds(f64),
}

impl Goal {
    /// Adds the goal to the record of a bench, with what it is a share of.
    fn add(self, record: &mut Value) {
        let (goal, of) = match self {
            Self::Copy(share) => (share, "copy"),
            Self::Peak(share) => (share, "peak"),
            Self::TokensPerSecond(rate) => (rate, "tokens_per_second"),
            Self::Milliseconds(time) => (time, "milliseconds"),
        };
        record["goal"] = json!(goal);
        record["goal_of"] = json!(of);
    }
}

/// Queues one launch.
type Queue = Box<dyn FnMut(&Card) -> Result<()>>;

/// Launches with their inputs.
struct Work {
    shape: String,
    queue: Queue,
    /// Bytes that must be read and written.
    bytes: usize,
    /// Floating-point operations, where these are the limit.
    operations: usize,
}

const BENCHES: [Bench; 33] = [
    Bench {
        name: "log_prob",
        file: "log_prob",
        kernel: "log_prob_rows",
        make: log_prob,
        goal: Some(Goal::Copy(0.85)),
    },
    Bench {
        name: "log_prob_and_gradient",
        file: "log_prob",
        kernel: "log_prob_and_backward_rows",
        make: log_prob_and_gradient,
        goal: Some(Goal::Copy(0.85)),
    },
    Bench { name: "top_k", file: "log_prob", kernel: "top_k_log_probs_rows", make: top_k, goal: None },
    draw_bench("draw", Some(0.20), |card| draw_of(card, &DrawOptions::default())),
    draw_bench("draw_top_k", None, |card| {
        draw_of(card, &DrawOptions { top_k: Some(50), ..DrawOptions::default() })
    }),
    draw_bench("draw_top_p", Some(0.25), |card| {
        draw_of(card, &DrawOptions { top_p: 0.9, ..DrawOptions::default() })
    }),
    draw_bench("draw_all_cuts", Some(0.35), |card| draw_of(card, &all_cuts())),
    draw_bench("draw_by_noise", None, |card| {
        draw_of(card, &DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() })
    }),
    Bench {
        name: "rms_norm",
        file: "rms_norm",
        kernel: "rms_norm",
        make: rms_norm,
        goal: Some(Goal::Copy(0.80)),
    },
    Bench {
        name: "rms_norm_backward",
        file: "rms_norm",
        kernel: "rms_norm_backward",
        make: rms_norm_backward,
        goal: Some(Goal::Copy(0.65)),
    },
    Bench {
        name: "gather",
        file: "rows",
        kernel: "gather_rows_4",
        make: gather,
        goal: Some(Goal::Copy(0.80)),
    },
    Bench { name: "scatter_add", file: "rows", kernel: "scatter_add_rows", make: scatter_add, goal: None },
    Bench { name: "swiglu", file: "swiglu", kernel: "swiglu", make: swiglu, goal: None },
    Bench { name: "cast", file: "cast", kernel: "f32_to_bf16", make: cast, goal: None },
    Bench {
        name: "adamw",
        file: "optimizer",
        kernel: "adamw_step",
        make: adamw,
        goal: Some(Goal::Copy(0.85)),
    },
    Bench {
        name: "attention_f32",
        file: "attention_f32",
        kernel: "attention_f32",
        make: attention::f32_sequences,
        goal: None,
    },
    Bench {
        name: "attention 16384 x 16 x 128",
        file: "attention",
        kernel: "attention_128",
        make: attention::sequences,
        goal: Some(Goal::Peak(0.35)),
    },
    Bench {
        name: "attention backward 16384 x 16 x 128",
        file: "attention_backward",
        kernel: "attention_backward_keys_128",
        make: attention::gradients,
        goal: Some(Goal::Peak(0.22)),
    },
    Bench {
        name: "attention 256 x 2048 keys",
        file: "attention",
        kernel: "attention_segments_128",
        make: attention::rows,
        goal: Some(Goal::Copy(0.70)),
    },
    Bench { name: "product_f32", file: "product_f32", kernel: "product_f32", make: product_f32, goal: None },
    // Gate and up of 0.5 B, 3 B and 7 B parameters, and down of 3 B.
    product("product 8192 x 9728 x 896", 2, product_of::<8_192, 9_728, 896, 2>, None),
    product("product 8192 x 22016 x 2048", 2, product_of::<8_192, 22_016, 2_048, 2>, None),
    product("product 16384 x 22016 x 2048", 2, product_of::<16_384, 22_016, 2_048, 2>, None),
    product("product 8192 x 2048 x 11008", 2, product_of::<8_192, 2_048, 11_008, 2>, None),
    product("product 8192 x 37888 x 3584", 2, product_of::<8_192, 37_888, 3_584, 2>, None),
    // Both gradients of gate and up of 3 B.
    product("product 8192 x 2048 x 22016", 3, product_of::<8_192, 2_048, 22_016, 3>, None),
    product("product 22016 x 2048 x 8192", 4, product_of::<22_016, 2_048, 8_192, 4>, None),
    product("product 1 x 22016 x 2048", 0, product_of::<1, 22_016, 2_048, 0>, Some(Goal::Copy(0.65))),
    product("product 8 x 22016 x 2048", 0, product_of::<8, 22_016, 2_048, 0>, Some(Goal::Copy(0.65))),
    product("product 64 x 22016 x 2048", 1, product_of::<64, 22_016, 2_048, 1>, Some(Goal::Copy(0.65))),
    // Gate, up and their activation of 0.5 B, and queries, keys and values with biases.
    Bench {
        name: "product swiglu 8192 x 4864 x 896",
        file: "product",
        kernel: "product_swiglu_128",
        make: product_swiglu,
        goal: None,
    },
    Bench {
        name: "product q k v 8192 x 896",
        file: "product",
        kernel: "product_each_128_bf16",
        make: product_q_k_v,
        goal: None,
    },
    product("product 256 x 22016 x 2048", 2, product_of::<256, 22_016, 2_048, 2>, None),
];

/// Returns a bench of kernel number `kernel` of [`PRODUCTS`].
const fn product(
    name: &'static str,
    kernel: usize,
    make: fn(&Card) -> Result<Work>,
    goal: Option<Goal>,
) -> Bench {
    Bench { name, file: "product", kernel: PRODUCTS[kernel], make, goal }
}

/// Measures every bench; returns whether all of them ran.
///
/// # Errors
/// Errors of the GPU's driver, if not even a copy can be measured; `Io` if a record cannot be written.
pub fn measure(card: &Card, options: &Options) -> Result<bool> {
    let copy = copy_bandwidth(card)?;
    write(&format!("copy: {copy:.1} GB/s, read and written"));
    options.records.add(&json!({ "name": "copy", "gigabytes_per_second": copy }))?;
    let mut has_failed = false;
    let mut add = |name: &str, record: Result<Value>| {
        let record = record.unwrap_or_else(|error| {
            has_failed = true;
            json!({ "name": name, "error": error.to_string() })
        });
        write(&record.to_string());
        options.records.add(&record)
    };
    for bench in BENCHES.iter().filter(|bench| options.has(bench.file) && is_possible(card, bench)) {
        add(bench.name, record(card, bench, copy))?;
    }
    if options.only.is_none() {
        add("upload", copies::record(card, "upload"))?;
        add("download", copies::record(card, "download"))?;
    }
    for bench in decoder::BENCHES.iter().filter(|_| options.has("decoder")) {
        add(bench.name, bench.record(card))?;
    }
    Ok(!has_failed)
}

/// Launches every bench once.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn once(card: &Card, options: &Options) -> Result<bool> {
    for bench in BENCHES.iter().filter(|bench| options.has(bench.file) && is_possible(card, bench)) {
        let mut work = (bench.make)(card)?;
        (work.queue)(card)?;
        card.finish()?;
    }
    Ok(true)
}

fn is_possible(card: &Card, bench: &Bench) -> bool {
    bench.name != "log_prob_and_gradient" || card.gpu().compute_capability.0 >= 9
}

fn record(card: &Card, bench: &Bench, copy: f64) -> Result<Value> {
    let Work { shape, mut queue, bytes, operations } = (bench.make)(card)?;
    let milliseconds = rounds(card, &mut || queue(card))?;
    let slower = milliseconds.iter().copied().fold(0.0, f64::max);
    let bandwidth = bytes as f64 / slower / 1e6;
    let mut record = json!({
        "name": bench.name,
        "kernel": bench.kernel,
        "shape": shape,
        "milliseconds": milliseconds,
        "bytes": bytes,
        "operations": operations,
        "gigabytes_per_second": bandwidth,
        "teraflops": operations as f64 / slower / 1e9,
        "share": (operations == 0).then_some(bandwidth / copy),
    });
    if let Some(goal) = bench.goal {
        goal.add(&mut record);
    }
    Ok(record)
}

/// Returns the median of each round, in milliseconds.
fn rounds(card: &Card, work: &mut dyn FnMut() -> Result<()>) -> Result<Vec<f64>> {
    (0..ROUNDS)
        .map(|_| {
            let mut times = card.timed(TIMES, work)?;
            times.sort_by(f32::total_cmp);
            Ok(f64::from(times[TIMES / 2]))
        })
        .collect()
}

/// Returns the bandwidth of a copy, read and written, in GB/s.
fn copy_bandwidth(card: &Card) -> Result<f64> {
    let len = sized(card, 1 << 28, 1 << 14);
    let (from, mut to) = (numbers(card, "copy", len)?, card.poisoned::<f32>(len)?);
    let times = rounds(card, &mut || card.copy(from.view(), to.view_mut()))?;
    let faster = times.into_iter().fold(f64::INFINITY, f64::min);
    Ok(2.0 * 4.0 * len as f64 / faster / 1e6)
}

fn log_prob(card: &Card) -> Result<Work> {
    let (rows, vocab) = (sized(card, 8_192, 4), sized(card, 151_936, 5_000));
    let (logits, ids) = (numbers(card, "logits", rows * vocab)?, ids(card, rows, vocab)?);
    let [log_prob, entropy, max] = [card.poisoned::<f32>(rows)?, card.poisoned(rows)?, card.poisoned(rows)?];
    let log_sum = card.poisoned::<f64>(rows)?;
    let shape = format!("{rows} x {vocab}");
    let queue = move |card: &Card| {
        let arguments = arguments![&logits, &ids, vocab, &log_prob, &entropy, &max, &log_sum];
        card.queue("log_prob_rows", check::log_prob::rows_grid(rows), arguments)
    };
    Ok(Work { shape, queue: Box::new(queue), bytes: 4 * rows * vocab, operations: 0 })
}

fn log_prob_and_gradient(card: &Card) -> Result<Work> {
    let (rows, vocab) = (sized(card, 8_192, 4), sized(card, 151_936, 5_000));
    let (logits, ids) = (numbers(card, "logits", rows * vocab)?, ids(card, rows, vocab)?);
    let (d_log_prob, d_entropy) = (numbers(card, "d_log_prob", rows)?, numbers(card, "d_entropy", rows)?);
    let [log_prob, entropy, max] = [card.poisoned::<f32>(rows)?, card.poisoned(rows)?, card.poisoned(rows)?];
    let log_sum = card.poisoned::<f64>(rows)?;
    let shape = format!("{rows} x {vocab}");
    let queue = move |card: &Card| {
        let arguments =
            arguments![&logits, &ids, vocab, &d_log_prob, &d_entropy, &log_prob, &entropy, &max, &log_sum];
        card.queue("log_prob_and_backward_rows", check::log_prob::together_grid(rows, vocab), arguments)
    };
    Ok(Work { shape, queue: Box::new(queue), bytes: 2 * 4 * rows * vocab, operations: 0 })
}

/// The 20 likeliest of each row.
fn top_k(card: &Card) -> Result<Work> {
    let (rows, vocab, k) = (sized(card, 512, 4), sized(card, 151_936, 5_000), 20);
    let logits = numbers(card, "logits", rows * vocab)?;
    let (ids, log_probs) = (card.poisoned::<u32>(rows * k)?, card.poisoned::<f32>(rows * k)?);
    let queue = move |card: &Card| {
        let arguments = arguments![&logits, vocab, k, &ids, &log_probs];
        card.queue("top_k_log_probs_rows", check::log_prob::top_k_grid(rows, k), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {vocab}, {k}"),
        queue: Box::new(queue),
        bytes: 4 * rows * vocab,
        operations: 0,
    })
}

const fn draw_bench(name: &'static str, goal_ms: Option<f64>, make: fn(&Card) -> Result<Work>) -> Bench {
    let goal = match goal_ms {
        Some(time) => Some(Goal::Milliseconds(time)),
        None => None,
    };
    Bench { name, file: "draw", kernel: "draw_rows", make, goal }
}

/// Returns options with every cut.
fn all_cuts() -> DrawOptions {
    DrawOptions {
        top_k: Some(1_000),
        top_p: 0.99,
        min_p: 1e-4,
        typical_p: 0.95,
        epsilon_cutoff: 1e-5,
        eta_cutoff: 1e-5,
        ..DrawOptions::default()
    }
}

fn draw_of(card: &Card, options: &DrawOptions) -> Result<Work> {
    let (rows, vocab) = (sized(card, 128, 4), sized(card, 151_936, 5_000));
    let scores = numbers(card, "scores", rows * vocab)?;
    let words: Vec<u32> = (0..rows as u64).map(|row| draw_rng(row, 0).next_u32()).collect();
    let noise: Vec<[u32; 5]> = (0..rows as u64).map(|row| check::draw::noise_of(options, row)).collect();
    let inputs = check::draw::Inputs::of(card, vocab, &vec![options; rows], &words, &noise)?;
    let queue = move |card: &Card| inputs.queue(card, &scores);
    Ok(Work {
        shape: format!("{rows} x {vocab}"),
        queue: Box::new(queue),
        bytes: 4 * rows * vocab,
        operations: 0,
    })
}

fn rms_norm(card: &Card) -> Result<Work> {
    let (rows, width) = (sized(card, 16_384, 8), sized(card, 4_096, 896));
    let (x, weight) = (numbers(card, "norm", rows * width)?, numbers(card, "weight", width)?);
    let (out, inv_rms) = (card.poisoned::<f32>(rows * width)?, card.poisoned::<f32>(rows)?);
    let queue = move |card: &Card| {
        let arguments = arguments![&x, &weight, 1e-6_f32, width, &out, &inv_rms];
        card.queue("rms_norm", check::rms_norm::grid(rows, width), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {width}"),
        queue: Box::new(queue),
        bytes: 2 * 4 * rows * width,
        operations: 0,
    })
}

fn rms_norm_backward(card: &Card) -> Result<Work> {
    let (rows, width) = (sized(card, 16_384, 8), sized(card, 4_096, 896));
    let [x, d_out, d_x] = ["norm", "d_out", "d_x"].map(|name| numbers(card, name, rows * width));
    let (x, d_out, d_x) = (x?, d_out?, d_x?);
    let (weight, inv_rms) = (numbers(card, "weight", width)?, numbers(card, "inv_rms", rows)?);
    let queue = move |card: &Card| {
        let arguments = arguments![&x, &weight, &inv_rms, &d_out, width, &d_x];
        card.queue("rms_norm_backward", check::rms_norm::grid(rows, width), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {width}"),
        queue: Box::new(queue),
        bytes: 4 * 4 * rows * width,
        operations: 0,
    })
}

fn gather(card: &Card) -> Result<Work> {
    let (count, there, width) = (sized(card, 65_536, 64), sized(card, 262_144, 256), 768);
    let (from, index) = (numbers(card, "gather", there * width)?, ids(card, count, there)?);
    let to = card.poisoned::<f32>(count * width)?;
    let queue = move |card: &Card| {
        card.queue("gather_rows_4", Grid::of_rows(count, 256, 0), arguments![&from, &index, &to, width])
    };
    Ok(Work {
        shape: format!("{count} x {width}"),
        queue: Box::new(queue),
        bytes: 2 * 4 * count * width,
        operations: 0,
    })
}

/// Each row gets two, far apart.
fn scatter_add(card: &Card) -> Result<Work> {
    let (there, width) = (sized(card, 32_768, 32), 768);
    let index: Vec<u32> = (0..2 * there as u32).map(|row| row % there as u32).collect();
    let plan = check::rows::Plan::of(&index);
    let (from, to) = (numbers(card, "from", 2 * there * width)?, numbers(card, "to", there * width)?);
    let (index, ends, rows) = (card.upload(&plan.index)?, card.upload(&plan.ends)?, card.upload(&plan.rows)?);
    let queue = move |card: &Card| {
        let grid = Grid::of_rows(there, 256, 0);
        card.queue("scatter_add_rows", grid, arguments![&from, &index, &ends, &rows, width, &to])
    };
    Ok(Work {
        shape: format!("{} x {width}", 2 * there),
        queue: Box::new(queue),
        bytes: 4 * 4 * there * width,
        operations: 0,
    })
}

fn swiglu(card: &Card) -> Result<Work> {
    let len = sized(card, 16_384 * 4_864, 10_000);
    let (gate, up) = (numbers(card, "gate", len)?, numbers(card, "up", len)?);
    let out = card.poisoned::<f32>(len)?;
    let queue = move |card: &Card| card.queue("swiglu", over(card, len), arguments![&gate, &up, &out, len]);
    Ok(Work { shape: len.to_string(), queue: Box::new(queue), bytes: 3 * 4 * len, operations: 0 })
}

fn cast(card: &Card) -> Result<Work> {
    let len = sized(card, 1 << 28, 10_000);
    let (from, to) = (numbers(card, "cast", len)?, card.poisoned::<u16>(len)?);
    let queue = move |card: &Card| card.queue("f32_to_bf16", over(card, len), arguments![&from, &to, len]);
    Ok(Work { shape: len.to_string(), queue: Box::new(queue), bytes: 6 * len, operations: 0 })
}

/// Weights in bfloat16 and their masters.
fn adamw(card: &Card) -> Result<Work> {
    let len = sized(card, 500_000_000, 10_000);
    let [masters, gradients, moment1] =
        ["masters", "gradients", "moment1"].map(|name| numbers(card, name, len));
    let (masters, gradients, moment1) = (masters?, gradients?, moment1?);
    // The second moment is not negative.
    let moment2 = repeated(card, &[1e-3_f32; 1 << 16], len)?;
    let halves = halves(card, "weights", len)?;
    let step = AdamwStep::at(10, 1e-5, (0.9, 0.999), 1e-8, 0.01, 0.5);
    let queue = move |card: &Card| {
        let buffers = arguments![&masters, Some(&halves), &gradients, &moment1, &moment2];
        card.queue("adamw_step", over(card, len), check::optimizer::adamw_arguments(buffers, step, len))
    };
    Ok(Work { shape: len.to_string(), queue: Box::new(queue), bytes: 32 * len, operations: 0 })
}

fn product_f32(card: &Card) -> Result<Work> {
    let [rows, outs, inner] = sized(card, [4_096, 4_096, 4_096], [70, 65, 33]);
    let (x, w) = (numbers(card, "x", rows * inner)?, numbers(card, "w", outs * inner)?);
    let y = card.poisoned::<f32>(rows * outs)?;
    let queue = move |card: &Card| {
        let arguments = arguments![&x, &w, &y, rows, outs, inner, 0_u32, 0_u32, 0_u32];
        card.queue("product_f32", check::product_f32::grid(rows, outs), arguments)
    };
    Ok(Work {
        shape: format!("{rows} x {outs} x {inner}"),
        queue: Box::new(queue),
        bytes: 4 * (rows * inner + outs * inner + rows * outs),
        operations: 2 * rows * outs * inner,
    })
}

/// A product of bfloat16 by kernel number `KERNEL` of [`PRODUCTS`]. Of few rows, reading the weights is the limit.
fn product_of<const ROWS: usize, const OUTS: usize, const INNER: usize, const KERNEL: usize>(
    card: &Card,
) -> Result<Work> {
    let [rows, outs, inner] = sized(card, [ROWS, OUTS, INNER], [ROWS.min(130), 136, 80]);
    let (x, w) = (halves(card, "x", rows * inner)?, halves(card, "w", outs * inner)?);
    let y = card.poisoned::<f32>(rows * outs)?;
    let queue = move |card: &Card| {
        let grid = check::product::grid(rows, outs, check::product::KERNELS[KERNEL.min(2)]);
        card.queue(PRODUCTS[KERNEL], grid, arguments![&x, &w, &y, rows, outs, inner, 0_u32])
    };
    Ok(Work {
        shape: String::new(),
        queue: Box::new(queue),
        bytes: 2 * (rows * inner + outs * inner) + 4 * rows * outs,
        operations: if ROWS > 64 { 2 * rows * outs * inner } else { 0 },
    })
}

/// The activation of a feed-forward layer, which keeps gates and what they multiply, as training does.
fn product_swiglu(card: &Card) -> Result<Work> {
    let [rows, width, inner] = sized(card, [8_192, 4_864, 896], [130, 70, 80]);
    let x = halves(card, "x", rows * inner)?;
    let (gate_w, up_w) = (halves(card, "gate", width * inner)?, halves(card, "up", width * inner)?);
    let (gate, up) = (card.poisoned::<f32>(rows * width)?, card.poisoned::<f32>(rows * width)?);
    let act = card.poisoned::<bf16>(rows * width)?;
    let queue = move |card: &Card| {
        let grid = check::product::grid(rows, 2 * width, check::product::KERNELS[2]);
        let arguments = arguments![&x, &gate_w, &up_w, &gate, &up, &act, rows, width, inner];
        card.queue("product_swiglu_128", grid, arguments)
    };
    Ok(Work {
        shape: String::new(),
        queue: Box::new(queue),
        bytes: 2 * (rows * inner + 2 * width * inner) + 10 * rows * width,
        operations: 4 * rows * width * inner,
    })
}

/// Queries, keys and values with biases, in bfloat16.
fn product_q_k_v(card: &Card) -> Result<Work> {
    let [rows, q, kv, inner] = sized(card, [8_192, 896, 128, 896], [130, 70, 20, 80]);
    let x = halves(card, "x", rows * inner)?;
    let (w_q, w_k, w_v) =
        (halves(card, "q", q * inner)?, halves(card, "k", kv * inner)?, halves(card, "v", kv * inner)?);
    let (b_q, b_k, b_v) = (numbers(card, "q", q)?, numbers(card, "k", kv)?, numbers(card, "v", kv)?);
    let (y_q, y_k, y_v) = (
        card.poisoned::<bf16>(rows * q)?,
        card.poisoned::<bf16>(rows * kv)?,
        card.poisoned::<bf16>(rows * kv)?,
    );
    let kernel = check::product::KERNELS[2];
    let blocks = q.div_ceil(kernel.1) + 2 * kv.div_ceil(kernel.1);
    let one = check::product::grid(rows, 1, kernel);
    let grid = Grid { blocks: (blocks as u32, one.blocks.1), ..one };
    let queue = move |card: &Card| {
        let arguments =
            arguments![&x, rows, inner, &w_q, &b_q, &y_q, q, &w_k, &b_k, &y_k, kv, &w_v, &b_v, &y_v, kv];
        card.queue("product_each_128_bf16", grid, arguments)
    };
    let outs = q + 2 * kv;
    Ok(Work {
        shape: String::new(),
        queue: Box::new(queue),
        bytes: 2 * (rows * inner + outs * inner + rows * outs),
        operations: 2 * rows * outs * inner,
    })
}

fn halves(card: &Card, name: &str, len: usize) -> Result<Buffer<bf16>> {
    Repeated::halves(name, len).upload(card)
}

/// Returns `len` elements on the GPU: copies of `pattern`, one after the other.
fn repeated<T: Pod>(card: &Card, pattern: &[T], len: usize) -> Result<Buffer<T>> {
    Repeated::of(pattern.to_vec(), len).upload(card)
}

/// Returns the size for a GPU, or that for the emulated one.
fn sized<T>(card: &Card, on_gpu: T, emulated: T) -> T {
    if card.is_emulated() { emulated } else { on_gpu }
}

fn numbers(card: &Card, name: &str, len: usize) -> Result<Buffer<f32>> {
    Repeated::numbers(name, len, 8.0).upload(card)
}

/// Returns `count` numbers below `end`.
fn ids(card: &Card, count: usize, end: usize) -> Result<Buffer<u32>> {
    let mut rng = Rng::new(22).stream("ids");
    let ids: Vec<u32> = (0..count).map(|_| rng.next_u32() % end as u32).collect();
    card.upload(&ids)
}

/// Returns a launch over `len` elements that fills a GPU.
fn over(card: &Card, len: usize) -> Grid {
    let blocks = sized(card, 132 * 16, 3).min(len.div_ceil(256)) as u32;
    Grid { blocks: (blocks, 1), threads: 256, shared_bytes: 0 }
}

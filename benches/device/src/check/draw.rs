//! Draws of tokens: the ids and both log-probs of `fulmar-objective`.

use fulmar_core::{Result, Rng};
use fulmar_cuda::{Buffer, Card, Grid, arguments};
use fulmar_objective::{
    Draw, DrawContext, DrawMethod, DrawOptions, draw_in, draw_probabilities, draw_rng, token_mask,
};

use super::log_prob::rows_grid;
use super::with_large;
use crate::numbers::random;
use crate::report::Report;

const THREADS: u32 = 1_024;

/// Threads of `draw_noise_rows`.
const NOISE_THREADS: u32 = 256;

/// Numbers of a row that are summed together.
const BLOCK: usize = 4_096;

/// The number of a mask for a row that has none.
const NONE: u32 = u32::MAX;

/// Vocabularies, and the rows of each: one below and above a word of a mask, a block of threads, a block of sums, the blocks that are
/// summed at once.
const SHAPES: [(usize, usize); 18] = [
    (1, 40),
    (2, 100),
    (5, 200),
    (31, 70),
    (32, 70),
    (33, 70),
    (255, 70),
    (257, 70),
    (1_000, 140),
    (1_023, 70),
    (1_025, 70),
    (4_095, 35),
    (4_096, 35),
    (4_097, 35),
    (4_100, 35),
    (65_537, 10),
    (151_936, 10),
    (270_000, 5),
];

const TEMPERATURES: [f64; 10] = [1.0, 1.0, 0.7, 0.0, 3.0, 1e9, 1e38, 1e300, 1e-3, 1e-300];

/// The largest that are kept, their probability, and the least share of the likeliest.
const CUTS: [(Option<usize>, f64, f64); 20] = [
    (None, 1.0, 0.0),
    (Some(1), 1.0, 0.0),
    (Some(3), 1.0, 0.0),
    (Some(50), 1.0, 0.0),
    (Some(usize::MAX), 1.0, 0.0),
    (None, 1.0, 0.02),
    (None, 1.0, 0.5),
    (None, 1.0, 1.0),
    (None, 1.0, 1e-310),
    (Some(20), 1.0, 0.1),
    (Some(4_500), 1.0, 0.0),
    (None, 0.9, 0.0),
    (None, 0.5, 0.0),
    (None, 0.999_999, 0.0),
    (None, 1e-9, 0.0),
    (None, 0.7, 0.05),
    (Some(40), 0.9, 0.0),
    (Some(40), 0.6, 0.2),
    (Some(3_000), 0.95, 0.0),
    (Some(5), 0.3, 0.0),
];

/// The typical, those of at least this probability, those of at least this one for the entropy, and the share of the entropy.
const LATER_CUTS: [(f64, f64, f64, Option<f64>); 16] = [
    (0.9, 0.0, 0.0, None),
    (0.5, 0.0, 0.0, None),
    (1e-9, 0.0, 0.0, None),
    (0.999_999, 0.0, 0.0, None),
    (1.0, 0.01, 0.0, None),
    (1.0, 1e-4, 0.0, None),
    (1.0, 0.9, 0.0, None),
    (1.0, 0.0, 0.01, None),
    (1.0, 0.0, 0.5, None),
    (1.0, 0.0, 1e-12, None),
    (0.7, 1e-3, 1e-3, None),
    (1.0, 0.0, 0.0, Some(0.5)),
    (1.0, 0.0, 0.0, Some(1.0)),
    (1.0, 0.0, 0.0, Some(1e-9)),
    (0.8, 0.0, 0.0, Some(0.9)),
    (0.8, 1e-5, 1e-5, Some(0.99)),
];

/// A row and the inputs of its draw.
pub struct Request {
    pub logits: Vec<f32>,
    pub options: DrawOptions,
    pub prompt: Vec<u32>,
    pub output: Vec<u32>,
    pub allowed: Option<Vec<u32>>,
    pub seed: u64,
}

/// Compares draws at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (vocab, rows) in with_large(card, &SHAPES, &[(151_936, 64)]) {
        let requests: Vec<Request> = (0..rows).map(|row| Request::of(vocab, row)).collect();
        drawn(card, report, &format!("{rows} x {vocab}"), &requests)?;
    }
    biased(card, report)?;
    whole(card, report)?;
    masses(card, report)?;
    by_noise(card, report)?;
    ends(card, report)?;
    unusable(card, report)
}

/// Draws by noise: from a few tokens, from many that are nearly equal, and from lists that cuts leave.
fn by_noise(card: &Card, report: &mut Report) -> Result<()> {
    for (vocab, rows) in [(1, 3), (2, 40), (5, 60), (63, 60), (257, 40), (4_101, 12), (20_001, 9)] {
        let request = |row: usize| {
            let mut request = Request::of(vocab, row);
            request.options.draw_method = DrawMethod::GumbelMax;
            if row.is_multiple_of(3) {
                let logits = random(&format!("noise {row}"), vocab, [0.1, 2.0][row % 2]);
                request =
                    Request { logits, options: request.options, seed: row as u64 * 7, ..Request::plain() };
            }
            request
        };
        let requests: Vec<Request> = (0..rows).map(request).collect();
        drawn(card, report, &format!("{rows} x {vocab}, by noise"), &requests)?;
    }
    Ok(())
}

/// Draws by scores whose last bits depend on how biases are added.
fn biased(card: &Card, report: &mut Report) -> Result<()> {
    const VOCAB: usize = 12;
    let request = |row: usize| {
        let logits = random(&format!("biased {row}"), VOCAB, 2.0);
        let biases = random(&format!("biases {row}"), 2 * VOCAB, 3.0);
        let bias = |(at, bias): (usize, &f32)| ((at % VOCAB) as u32, f64::from(*bias) / 3.0);
        let logit_bias = biases.iter().enumerate().map(bias).collect();
        let options = DrawOptions { logit_bias, ..DrawOptions::default() };
        Request { logits, options, seed: row as u64, ..Request::plain() }
    };
    drawn(card, report, &format!("100 x {VOCAB}, biased"), &(0..100).map(request).collect::<Vec<_>>())
}

/// Draws from all tokens of several blocks, which have about the same probability each.
fn whole(card: &Card, report: &mut Report) -> Result<()> {
    for vocab in [4_097, 8_192, 20_001, 70_000] {
        let request = |row: usize| {
            let options = DrawOptions { temperature: [1.0, 0.7, 3.0][row % 3], ..DrawOptions::default() };
            let logits = random(&format!("whole {row}"), vocab, 2.0);
            Request { logits, options, seed: row as u64, ..Request::plain() }
        };
        let requests: Vec<Request> = (0..12).map(request).collect();
        drawn(card, report, &format!("12 x {vocab}, whole"), &requests)?;
    }
    Ok(())
}

/// Cuts by mass of scores that are nearly equal, tie, or are too close to part.
fn masses(card: &Card, report: &mut Report) -> Result<()> {
    const TOP_P: [f64; 8] = [1e-12, 0.01, 0.3, 0.5, 0.9, 0.99, 0.999_999, 1.0 - 1e-15];
    for (vocab, scale) in [
        (3, 1.0),
        (63, 2.0),
        (64, 0.1),
        (65, 2.0),
        (66, 1e-3),
        (200, 1e-42),
        (511, 0.5),
        (512, 3.0),
        (1_000, 0.0),
        (4_097, 1e-6),
        (16_447, 1.0),
        (20_001, 4.0),
    ] {
        let mut requests = Vec::new();
        for (row, top_p) in TOP_P.into_iter().enumerate() {
            for (ties, top_k, min_p) in [(1.0, None, 0.0), (8.0, None, 0.0), (1.0, Some(vocab * 3 / 4), 0.3)]
            {
                let mut logits = random(&format!("mass {row}"), vocab, scale);
                if ties > 1.0 && scale > 0.0 {
                    logits
                        .iter_mut()
                        .for_each(|logit| *logit = (*logit * ties / scale).round() * scale / ties);
                }
                let options = DrawOptions { top_p, top_k, min_p, ..DrawOptions::default() };
                let typical = DrawOptions { typical_p: top_p, top_k, min_p, ..DrawOptions::default() };
                for options in [options, typical] {
                    let logits = logits.clone();
                    requests.push(Request { logits, options, seed: row as u64, ..Request::plain() });
                }
            }
        }
        drawn(card, report, &format!("{vocab}, scores to {scale}, by mass"), &requests)?;
    }
    Ok(())
}

impl Request {
    /// Returns a request with options that its number draws.
    fn of(vocab: usize, row: usize) -> Self {
        let mut rng = Rng::new(22).stream("draw requests").fork((vocab * 1_000 + row) as u64);
        let mut below = |end: usize| rng.next_u32() as usize % end;
        let mut logits = random(&format!("draw {row}"), vocab, [1.0, 4.0, 12.0, 90.0][below(4)]);
        if below(3) == 0 {
            // Many ties, and zeros of both signs.
            logits.iter_mut().for_each(|logit| *logit = (*logit / 4.0).round());
        }
        if below(3) == 0 && vocab > 2 {
            let banned = [0, vocab - 1, vocab / 2];
            banned.into_iter().for_each(|place| logits[place] = f32::NEG_INFINITY);
            logits[1] = 0.5;
        }
        if below(7) == 0 {
            logits[below(vocab)] = f32::MIN;
            logits[1 % vocab] = f32::MAX;
        }
        if below(5) == 0 {
            logits[vocab - 1] = 100.0;
        }
        let (top_k, top_p, min_p) = CUTS[below(CUTS.len())];
        let temperature = TEMPERATURES[below(TEMPERATURES.len())];
        let mut options = DrawOptions { temperature, top_k, top_p, min_p, ..DrawOptions::default() };
        if below(2) == 0 {
            (options.typical_p, options.epsilon_cutoff, options.eta_cutoff, options.top_h) =
                LATER_CUTS[below(LATER_CUTS.len())];
        }
        let (mut prompt, mut output, mut allowed) = (Vec::new(), Vec::new(), None);
        let last = vocab as u32 - 1;
        if below(3) == 0 {
            let far = [1.5, -1e300, 1e300][below(3)];
            options.logit_bias =
                vec![(below(vocab) as u32, 2.7), (0, far), (last, 0.1), (0, 3.3), (0, 1e-3), (last, -0.7)];
        }
        if below(2) == 0 {
            prompt = (0..9).map(|_| below(vocab) as u32).collect();
            output = vec![below(vocab) as u32, 0, 0, below(vocab) as u32, last];
            options.repetition_penalty = [1.0, 1.3, 0.8][below(3)];
            (options.presence_penalty, options.frequency_penalty) = [(0.0, 0.0), (0.5, 0.3)][below(2)];
        }
        if below(4) == 0 && vocab > 3 {
            options.banned_ids = vec![0, 2, 2];
        }
        if below(4) == 0 && vocab > 3 {
            let ids: Vec<u32> = (0..vocab as u32).filter(|id| id % 3 > 0).collect();
            allowed = token_mask(vocab, &ids).ok();
        }
        Self { logits, options, prompt, output, allowed, seed: row as u64 }
    }

    /// Returns a request without options.
    fn plain() -> Self {
        let (options, prompt, output) = (DrawOptions::default(), Vec::new(), Vec::new());
        Self { logits: Vec::new(), options, prompt, output, allowed: None, seed: 0 }
    }

    pub fn context(&self) -> DrawContext<'_> {
        DrawContext { prompt_ids: &self.prompt, output_ids: &self.output, allowed: self.allowed.as_deref() }
    }

    fn word(&self) -> u32 {
        draw_rng(self.seed, 0).next_u32()
    }
}

/// Returns 1 for a draw by noise, and the two words of the key and of the stream of its noise.
pub fn noise_of(options: &DrawOptions, seed: u64) -> [u32; 5] {
    let state = draw_rng(seed, 0).stream("gumbel").fork(0).state();
    let [key, stream] = [state.key, state.stream].map(|number| [number as u32, (number >> 32) as u32]);
    let is_by_noise = options.draw_method == DrawMethod::GumbelMax;
    [is_by_noise.into(), key[0], key[1], stream[0], stream[1]]
}

/// Ids and log-probs of rows, as the card finds them.
struct Drawn {
    ids: Vec<u32>,
    sampled: Vec<f32>,
    log_prob: Vec<f32>,
}

fn drawn(card: &Card, report: &mut Report, shape: &str, requests: &[Request]) -> Result<()> {
    let words: Vec<u32> = requests.iter().map(Request::word).collect();
    let found = on_card(card, requests, &words)?;
    let draw = |request: &Request| {
        draw_in(&request.logits, &request.options, &request.context(), &mut draw_rng(request.seed, 0))
    };
    let wanted: Vec<Draw> = requests.iter().map(draw).collect::<Result<_>>()?;
    // On the processor the sign of 0 depends on which of two zeros is the largest score.
    let column = |of: fn(&Draw) -> f32| wanted.iter().map(|draw| of(draw) + 0.0).collect::<Vec<_>>();
    let ids: Vec<u32> = wanted.iter().map(|draw| draw.id).collect();
    report.same("draw_rows, ids", shape, &found.ids, &ids);
    report.same("draw_rows, sampled", shape, &found.sampled, &column(|draw| draw.sampled_log_prob));
    report.same("draw_rows, log_prob", shape, &found.log_prob, &column(|draw| draw.log_prob));
    Ok(())
}

/// Words at both ends draw the first and the last token that has a probability.
fn ends(card: &Card, report: &mut Report) -> Result<()> {
    for (vocab, rows) in [(7, 22), (4_097, 22), (5_000, 22)] {
        let mut requests: Vec<Request> = (0..rows).map(|row| Request::of(vocab, row)).collect();
        for (row, request) in requests.iter_mut().enumerate() {
            let mut logits = random(&format!("ends {row}"), vocab, 2.0);
            if row % 2 == 0 {
                // All that is left: sums of blocks in single precision may be above what the weights add up to.
                logits[vocab - 3..].fill(f32::NEG_INFINITY);
                *request = Request { logits, ..Request::plain() };
                continue;
            }
            request.logits = logits;
            request.options.logit_bias.clear();
            request.options.temperature = 1.0;
        }
        let possible: Vec<Vec<usize>> = requests
            .iter()
            .map(|request| {
                let probabilities =
                    draw_probabilities(&request.logits, &request.options, &request.context())?;
                Ok((0..vocab).filter(|id| probabilities[*id] > 0.0).collect())
            })
            .collect::<Result<_>>()?;
        for (word, end) in [(0, "first"), (u32::MAX, "last")] {
            let found = on_card(card, &requests, &vec![word; rows])?;
            let of_end = |ids: &Vec<usize>| if word == 0 { ids[0] } else { ids[ids.len() - 1] } as u32;
            let wanted: Vec<u32> = possible.iter().map(of_end).collect();
            report.same("draw_rows, the end", &format!("{rows} x {vocab}, {end}"), &found.ids, &wanted);
        }
    }
    // The first token has less than half of the probability of the lowest word.
    let request = Request { logits: vec![-23.5, 0.0], ..Request::plain() };
    let found = on_card(card, &[request], &[0])?;
    report.same("draw_rows, the lowest word", "1 x 2", &found.ids, &[1]);
    Ok(())
}

/// Rows that nothing can be drawn from, each with all cuts and temperatures, between rows that are whole.
fn unusable(card: &Card, report: &mut Report) -> Result<()> {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut requests: Vec<Request> = (0..66).map(|row| Request::of(100, row)).collect();
        for (row, request) in requests.iter_mut().enumerate().filter(|(row, _)| row % 3 > 0) {
            let DrawOptions { temperature, top_k, top_p, min_p, .. } = request.options;
            let options = DrawOptions { temperature, top_k, top_p, min_p, ..DrawOptions::default() };
            *request = Request { logits: std::mem::take(&mut request.logits), options, ..Request::plain() };
            if odd == f32::NEG_INFINITY {
                request.logits.fill(odd);
            } else {
                request.logits[[0, 50, 99][row % 3]] = odd;
            }
        }
        let words: Vec<u32> = requests.iter().map(Request::word).collect();
        let found = on_card(card, &requests, &words)?;
        for (row, request) in requests.iter().enumerate() {
            let mut rng = draw_rng(request.seed, 0);
            let draw = draw_in(&request.logits, &request.options, &request.context(), &mut rng);
            let (id, sampled) = draw.map_or((0, f32::NAN), |draw| (draw.id, draw.sampled_log_prob + 0.0));
            let shape = format!("100, {odd}, row {row}");
            report.same("draw_rows of an unusable row, id", &shape, &found.ids[row..=row], &[id]);
            report.same("draw_rows of an unusable row", &shape, &found.sampled[row..=row], &[sampled]);
        }
    }
    Ok(())
}

/// Items of all rows, and the end of those of each row.
#[derive(Default)]
struct Items {
    ends: Vec<u32>,
    ids: Vec<u32>,
}

impl Items {
    fn end_row(&mut self) {
        self.ends.push(self.ids.len() as u32);
    }
}

/// The inputs of `score_rows` besides logits.
#[derive(Default)]
struct Plan {
    bias: Items,
    biases: Vec<f64>,
    seen: Items,
    counts: Vec<u32>,
    penalties: Vec<f32>,
    banned: Items,
    mask: Vec<u32>,
    masks: Vec<u32>,
}

impl Plan {
    fn of(requests: &[Request]) -> Self {
        let mut plan = Self::default();
        for request in requests {
            plan.add(request);
        }
        plan
    }

    fn add(&mut self, request: &Request) {
        let options = &request.options;
        let mut biases = options.logit_bias.clone();
        biases.sort_by_key(|(id, _)| *id);
        self.bias.ids.extend(biases.iter().map(|(id, _)| *id));
        self.biases.extend(biases.iter().map(|(_, bias)| *bias));
        self.bias.end_row();
        let mut seen = [&request.prompt[..], &request.output].concat();
        seen.sort_unstable();
        seen.dedup();
        let count = |id: &u32| request.output.iter().filter(|drawn| *drawn == id).count() as u32;
        self.counts.extend(seen.iter().map(count));
        self.seen.ids.extend(seen);
        self.seen.end_row();
        let penalties = [options.repetition_penalty, options.frequency_penalty, options.presence_penalty];
        self.penalties.extend(penalties.map(|penalty| penalty as f32));
        self.banned.ids.extend(&options.banned_ids);
        self.banned.end_row();
        let words = request.logits.len().div_ceil(32);
        self.mask.push(request.allowed.as_ref().map_or(NONE, |_| (self.masks.len() / words) as u32));
        self.masks.extend(request.allowed.iter().flatten());
    }
}

/// The inputs and the room of `draw_rows` besides scores.
pub struct Inputs {
    rows: usize,
    vocab: usize,
    temperature: Buffer<f64>,
    top_k: Buffer<u32>,
    cuts: Buffer<f64>,
    words: Buffer<u32>,
    noise: Buffer<u32>,
    list: Buffer<u32>,
    places: Buffer<u32>,
    weights: Buffer<f32>,
    kept: Buffer<u64>,
    ids: Buffer<u32>,
    sampled: Buffer<f32>,
}

impl Inputs {
    /// Uploads the options and the random words of rows.
    ///
    /// # Errors
    /// Errors of the GPU's driver.
    pub fn of(
        card: &Card,
        vocab: usize,
        options: &[&DrawOptions],
        words: &[u32],
        noise: &[[u32; 5]],
    ) -> Result<Self> {
        let rows = options.len();
        let temperature: Vec<f64> = options.iter().map(|options| options.temperature).collect();
        let top_k = |options: &&DrawOptions| options.top_k.map_or(0, |top_k| top_k.min(vocab) as u32);
        let cuts = |options: &&DrawOptions| {
            let DrawOptions { top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h, .. } = **options;
            [top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h.unwrap_or(0.0)]
        };
        Ok(Self {
            rows,
            vocab,
            temperature: card.upload(&temperature)?,
            top_k: card.upload(&options.iter().map(top_k).collect::<Vec<_>>())?,
            cuts: card.upload(&options.iter().flat_map(cuts).collect::<Vec<_>>())?,
            words: card.upload(words)?,
            noise: card.upload(noise.as_flattened())?,
            list: card.poisoned(rows * vocab)?,
            places: card.poisoned(rows * vocab)?,
            weights: card.poisoned(rows * vocab)?,
            kept: card.poisoned(3 * rows)?,
            ids: card.poisoned(rows)?,
            sampled: card.poisoned(rows)?,
        })
    }

    /// Queues `draw_rows` and `draw_noise_rows` of scores.
    ///
    /// # Errors
    /// Errors of the GPU's driver.
    pub fn queue(&self, card: &Card, scores: &Buffer<f32>) -> Result<()> {
        let Self { rows, vocab, temperature, top_k, cuts, words, noise, .. } = self;
        let Self { list, places, weights, kept, ids, sampled, .. } = self;
        let arguments = arguments![
            scores,
            *vocab,
            temperature,
            top_k,
            cuts,
            words,
            list,
            places,
            weights,
            kept,
            ids,
            sampled
        ];
        card.queue("draw_rows", grid(*rows, *vocab), arguments)?;
        let arguments = arguments![scores, *vocab, temperature, noise, list, weights, kept, ids, sampled];
        card.queue("draw_noise_rows", Grid::of_rows(*rows, NOISE_THREADS, 12 * NOISE_THREADS), arguments)
    }
}

fn on_card(card: &Card, requests: &[Request], words: &[u32]) -> Result<Drawn> {
    let (rows, vocab) = (requests.len(), requests[0].logits.len());
    let logits: Vec<f32> = requests.iter().flat_map(|request| request.logits.iter().copied()).collect();
    let logits = card.upload(&logits)?;
    let scores = scores_on_card(card, &logits, vocab, &Plan::of(requests))?;
    let options: Vec<&DrawOptions> = requests.iter().map(|request| &request.options).collect();
    let noise: Vec<[u32; 5]> =
        requests.iter().map(|request| noise_of(&request.options, request.seed)).collect();
    let inputs = Inputs::of(card, vocab, &options, words, &noise)?;
    inputs.queue(card, &scores)?;
    let Inputs { ids, sampled, .. } = inputs;
    let [log_prob, entropy, max] = [card.poisoned::<f32>(rows)?, card.poisoned(rows)?, card.poisoned(rows)?];
    let log_sum = card.poisoned::<f64>(rows)?;
    let arguments = arguments![&logits, &ids, vocab, &log_prob, &entropy, &max, &log_sum];
    card.launch("log_prob_rows", rows_grid(rows), arguments)?;
    let log_prob = log_prob.read()?.iter().map(|log_prob| log_prob + 0.0).collect();
    Ok(Drawn { ids: ids.read()?, sampled: sampled.read()?, log_prob })
}

fn scores_on_card(card: &Card, logits: &Buffer<f32>, vocab: usize, plan: &Plan) -> Result<Buffer<f32>> {
    let rows = plan.mask.len();
    let scores = card.poisoned::<f32>(rows * vocab)?;
    let [bias_ends, bias_ids] = [card.upload(&plan.bias.ends)?, card.upload(&plan.bias.ids)?];
    let [seen_ends, seen_ids] = [card.upload(&plan.seen.ends)?, card.upload(&plan.seen.ids)?];
    let [banned_ends, banned_ids] = [card.upload(&plan.banned.ends)?, card.upload(&plan.banned.ids)?];
    let (biases, counts) = (card.upload(&plan.biases)?, card.upload(&plan.counts)?);
    let penalties = card.upload(&plan.penalties)?;
    let (mask, masks) = (card.upload(&plan.mask)?, card.upload(&plan.masks)?);
    let arguments = arguments![
        logits,
        vocab,
        &bias_ends,
        &bias_ids,
        &biases,
        &seen_ends,
        &seen_ids,
        &counts,
        &penalties,
        &banned_ends,
        &banned_ids,
        &mask,
        &masks,
        &scores
    ];
    let grid = Grid { blocks: (rows as u32, 1), threads: THREADS, shared_bytes: 0 };
    card.launch("score_rows", grid, arguments)?;
    Ok(scores)
}

/// Returns the shape of a launch of `draw_rows`.
fn grid(rows: usize, vocab: usize) -> Grid {
    const SELECT_WORDS: usize = 8 * 256 + 2;
    let blocks = vocab.div_ceil(BLOCK);
    let shared_bytes = (8 * (19 + blocks) + 4 * (blocks + BLOCK) + 4 * (4 + SELECT_WORDS)) as u32;
    Grid { blocks: (rows as u32, 1), threads: THREADS, shared_bytes }
}

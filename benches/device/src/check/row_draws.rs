//! Draws of many rows as an operation: the ids and log-probs of the processor, with lists of the host, and one wait for all.

use fulmar_compute::Compute;
use fulmar_core::{ErrorKind, Result, Rng};
use fulmar_cuda::Card;
use fulmar_objective::{Draw, DrawMethod, DrawOptions, DrawRow, RowDraw, RowDraws, draw_rng, token_mask};

use super::draw::Request;
use crate::numbers::random;
use crate::report::Report;

const SHAPES: [(usize, usize); 5] = [(1, 3), (2, 30), (33, 60), (130, 60), (4_099, 12)];

/// Most ids of the lists of this check.
const TOP_MAX: usize = 3;

/// Compares draws at every shape, and what is refused.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (vocab, rows) in SHAPES {
        let requests: Vec<Request> = (0..rows).map(|row| request_of(vocab, row)).collect();
        compare(card, report, &format!("{rows} x {vocab}"), &requests, TOP_MAX.min(vocab))?;
    }
    odd(card, report)?;
    let refused = RowDraws::new(Compute::Cuda(*card), 1, 4_097).map(drop);
    let kind = refused.err().map(|error| error.kind());
    report.same("likeliest ids", "4,097", &[u32::from(kind == Some(ErrorKind::Unavailable))], &[1]);
    Ok(())
}

/// Returns a request with options that its number draws, lists of the host among them.
fn request_of(vocab: usize, row: usize) -> Request {
    let mut rng = Rng::new(22).stream("row draws").fork((vocab * 1_000 + row) as u64);
    let mut below = |end: usize| rng.next_u32() as usize % end;
    let logits = random(&format!("row {row}"), vocab, [1.0, 6.0][below(2)]);
    let last = vocab as u32 - 1;
    // Few different tokens, so that n-grams repeat.
    let mut tokens = |count: usize| (0..count).map(|_| below(vocab.min(3)) as u32).collect::<Vec<_>>();
    let (prompt, output) = (tokens(12), tokens(9));
    let ends = output[output.len() - 2..].to_vec();
    let mut options = DrawOptions { temperature: [1.0, 0.7, 0.0][below(3)], ..DrawOptions::default() };
    if below(2) == 0 {
        options.draw_method = DrawMethod::GumbelMax;
    }
    if below(3) == 0 {
        (options.top_k, options.top_p) = (Some(5), 0.9);
    }
    if below(2) == 0 && vocab > 3 {
        options.no_repeat_ngram_size = 1 + below(3);
        options.bad_words_ids = vec![vec![last], [&ends[..], &[1]].concat(), vec![2, 2, 2, 2, 0]];
    }
    if below(2) == 0 {
        options.logit_bias = vec![(last, 0.3), (0, 1.0 / 3.0)];
        options.sequence_bias = vec![
            (vec![0], -0.7),
            ([&ends[..], &[0]].concat(), 1.1),
            ([&ends[1..], &[last]].concat(), 1e-3),
            (vec![0, 1, 2, 0, 1, 2, 0], 5.0),
        ];
    }
    if below(3) == 0 {
        (options.repetition_penalty, options.presence_penalty) = (1.3, 0.2);
    }
    let allowed = (below(4) == 0 && vocab > 4)
        .then(|| token_mask(vocab, &(0..last).step_by(2).collect::<Vec<_>>()).unwrap_or_default());
    Request { logits, options, prompt, output, allowed, seed: row as u64 * 11 }
}

fn row_of(request: &Request) -> DrawRow<'_> {
    DrawRow { options: &request.options, context: request.context(), rng: draw_rng(request.seed, 5).state() }
}

/// Draws on a device, in two halves.
fn drawn(compute: Compute, requests: &[Request], num_top: usize) -> Result<Vec<Result<RowDraw>>> {
    let mut draws = RowDraws::new(compute, requests.len(), num_top)?;
    for part in requests.chunks(requests.len().div_ceil(2)) {
        let logits: Vec<f32> = part.iter().flat_map(|request| request.logits.iter().copied()).collect();
        let logits = compute.hold(logits)?;
        draws.draw(logits.view(), &part.iter().map(row_of).collect::<Vec<_>>())?;
    }
    draws.read()
}

fn compare(
    card: &Card,
    report: &mut Report,
    shape: &str,
    requests: &[Request],
    num_top: usize,
) -> Result<()> {
    let wanted = drawn(Compute::Cpu, requests, num_top)?;
    let before = card.num_waits();
    let got = drawn(Compute::Cuda(*card), requests, num_top)?;
    report.same("waits of draws", shape, &[card.num_waits() - before], &[1]);
    let column = |drawn: &[Result<RowDraw>], of: fn(&Draw) -> u32| -> Vec<u32> {
        drawn.iter().map(|drawn| drawn.as_ref().map_or(u32::MAX, |drawn| of(&drawn.draw))).collect()
    };
    let mut same =
        |name: &str, of: fn(&Draw) -> u32| report.same(name, shape, &column(&got, of), &column(&wanted, of));
    same("row draws, ids", |draw| draw.id);
    // The sign of 0 depends on which of two zeros is the largest score.
    same("row draws, log_prob", |draw| (draw.log_prob + 0.0).to_bits());
    same("row draws, sampled", |draw| (draw.sampled_log_prob + 0.0).to_bits());
    let top = |drawn: &[Result<RowDraw>]| -> Vec<u32> {
        let rows = drawn.iter().flatten().flat_map(|drawn| &drawn.top_log_probs);
        rows.flat_map(|(id, log_prob)| [*id, log_prob.to_bits()]).collect()
    };
    report.same("row draws, likeliest ids", shape, &top(&got), &top(&wanted));
    let kinds = |drawn: &[Result<RowDraw>]| -> Vec<u32> {
        drawn.iter().map(|drawn| drawn.as_ref().err().map_or(0, |error| 1 + error.kind() as u32)).collect()
    };
    report.same("row draws, errors", shape, &kinds(&got), &kinds(&wanted));
    Ok(())
}

/// Rows that nothing is drawn from, each for a reason of its own, between rows that are whole.
fn odd(card: &Card, report: &mut Report) -> Result<()> {
    const VOCAB: usize = 40;
    let mut requests: Vec<Request> = (0..12).map(|row| request_of(VOCAB, row)).collect();
    for (place, odd) in [(0, f32::NAN), (2, f32::INFINITY)] {
        // A number that is wrong is refused even if its token is banned.
        requests[place].logits[7] = odd;
        requests[place].options.banned_ids = vec![7];
    }
    requests[4].logits.fill(f32::NEG_INFINITY);
    requests[5].options.banned_ids = (0..VOCAB as u32).collect();
    requests[7].options.banned_ids = vec![VOCAB as u32];
    requests[8].options.top_p = 0.0;
    requests[9].output.push(VOCAB as u32);
    requests[10].allowed = Some(vec![1]);
    compare(card, report, "odd rows", &requests, 2)
}

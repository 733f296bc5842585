//! The ledger against the literal branching table, a naive ledger of whole copies, and hostile JSON.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_chat::{
    Attribution, BranchReason, Ledger, Origin, Samples, Turn, TurnColumns, TurnOptions, VersionRange,
    Versions,
};
use fulmar_core::{ErrorKind, Result, limits, options_from_json};
use proptest::prelude::*;
use serde_json::Value;

/// A prompt, a completion and the version of the weights.
type Exchange<'a> = (&'a [u32], &'a [u32], u32);

fn turn<'a>((prompt_ids, completion_ids, version): Exchange<'a>, log_probs: &'a [f32]) -> Turn<'a> {
    let versions = Versions::one(version);
    let sampled_log_probs = log_probs;
    Turn {
        prompt_ids,
        completion_ids,
        log_probs,
        sampled_log_probs,
        versions,
        attribution: None,
        branch_reason: None,
    }
}

/// Distinct log-probabilities for every token of a rollout.
fn log_probs(turn_index: usize, num_ids: usize) -> Vec<f32> {
    (0..num_ids).map(|t| -0.1 - turn_index as f32 - t as f32 / 1024.0).collect()
}

fn recorded(exchanges: &[Exchange<'_>]) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    for (index, exchange) in exchanges.iter().enumerate() {
        ledger.record_turn(&turn(*exchange, &log_probs(index, exchange.1.len())))?;
    }
    Ok(ledger)
}

fn samples(exchanges: &[Exchange<'_>]) -> Samples {
    recorded(exchanges).unwrap().samples().unwrap()
}

fn mask(samples: &Samples, index: usize) -> String {
    samples.get(index).unwrap().mask.iter().map(|&trained| if trained { 'T' } else { 'F' }).collect()
}

#[test]
fn one_turn_is_one_sample() {
    let mut ledger = Ledger::default();
    ledger.record_turn(&turn((&[1, 2], &[4, 5], 2), &[-0.1, -0.1])).unwrap();
    let samples = ledger.samples().unwrap();
    let sample = samples.get(0).unwrap();
    assert_eq!((samples.len(), sample.turn_id, sample.ids), (1, 0, &[1, 2, 4, 5][..]));
    assert_eq!(mask(&samples, 0), "FFTT");
    assert_eq!(sample.log_probs, [0.0, 0.0, -0.1, -0.1]);
    assert_eq!(samples.advantages(Some(0.5)).unwrap(), [0.0, 0.0, 0.5, 0.5]);
    assert_eq!((sample.min_policy_version, sample.max_policy_version), (2, 2));
}

#[test]
fn a_sample_spans_the_versions_of_its_turns() {
    let samples = samples(&[(&[1, 2], &[4, 5], 3), (&[1, 2, 4, 5, 9], &[7], 4)]);
    let sample = samples.get(0).unwrap();
    assert_eq!((samples.len(), sample.ids), (1, &[1, 2, 4, 5, 9, 7][..]));
    assert_eq!((sample.min_policy_version, sample.max_policy_version), (3, 4));
    assert_eq!(sample.versions, [0, 0, 3, 3, 0, 4]);
}

#[test]
fn versions_that_go_back_give_the_true_minimum() {
    let samples = samples(&[(&[1], &[2], 7), (&[1, 2], &[3], 5)]);
    assert_eq!((samples.min_policy_versions[0], samples.max_policy_versions[0]), (5, 7));
}

#[test]
fn a_growing_prefix_is_one_sample() {
    let turns: [Exchange<'_>; 3] =
        [(&[1, 2], &[4], 0), (&[1, 2, 4, 8], &[5, 6], 0), (&[1, 2, 4, 8, 5, 6, 9], &[7], 0)];
    let samples = samples(&turns);
    assert_eq!((samples.len(), &samples.ids[..]), (1, &[1, 2, 4, 8, 5, 6, 9, 7][..]));
    assert_eq!(mask(&samples, 0), "FFTFTTFT");
    assert_eq!(samples.advantages(Some(-0.2)).unwrap(), [0.0, 0.0, -0.2, 0.0, -0.2, -0.2, 0.0, -0.2]);
}

#[test]
fn an_edited_history_opens_a_second_sample() {
    let samples = samples(&[(&[1, 2], &[4], 0), (&[90, 91], &[5], 0)]);
    let [first, second] = [samples.get(0).unwrap(), samples.get(1).unwrap()];
    assert_eq!((samples.len(), first.turn_id, first.ids), (2, 0, &[1, 2, 4][..]));
    assert_eq!((second.turn_id, second.ids), (1, &[90, 91, 5][..]));
    assert_eq!((mask(&samples, 0), mask(&samples, 1)), ("FFT".to_owned(), "FFT".to_owned()));
    assert_eq!(samples.advantages(Some(0.1)).unwrap(), [0.0, 0.0, 0.1, 0.0, 0.0, 0.1]);
}

#[test]
fn a_compaction_splits_five_turns_in_two_samples() {
    let samples = samples(&[
        (&[1], &[11], 5),
        (&[1, 11, 21], &[12], 6),
        (&[1, 11, 21, 12, 22], &[13], 6),
        (&[2], &[14], 6),
        (&[2, 14, 24], &[15], 7),
    ]);
    assert_eq!((samples.turn_ids.clone(), samples.len()), (vec![0, 3], 2));
    assert_eq!(
        (samples.min_policy_versions.clone(), samples.max_policy_versions.clone()),
        (vec![5, 6], vec![6, 7])
    );
    assert_eq!((mask(&samples, 0), mask(&samples, 1)), ("FTFTFT".to_owned(), "FTFT".to_owned()));
}

#[test]
fn a_later_turn_without_completion_is_an_error_and_changes_nothing() {
    let mut ledger = recorded(&[(&[1, 2], &[4], 0)]).unwrap();
    let before = ledger.clone();
    let error = ledger.record_turn(&turn((&[1, 2, 4, 8], &[], 0), &[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert_eq!(
        error.detail(),
        "every turn of several must hold a sampled token: got no completion in turn 1"
    );
    assert_eq!(ledger, before);
    let error = recorded(&[(&[1, 2], &[], 0), (&[1, 2, 3], &[4], 0)]).unwrap_err();
    assert!(error.detail().ends_with("no completion in turn 0"), "{error}");
}

#[test]
fn a_sole_turn_without_completion_gives_no_samples() {
    let samples = samples(&[(&[1, 2, 4, 8], &[], 0)]);
    assert!(samples.is_empty() && samples.ids.is_empty());
    assert_eq!((samples.offsets.clone(), samples.get(0)), (vec![0], None));
}

#[test]
fn a_missing_or_infinite_advantage_is_an_error() {
    let samples = samples(&[(&[1], &[2], 0)]);
    assert_eq!(samples.advantages(None).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(samples.advantages(Some(f32::NAN)).unwrap_err().kind(), ErrorKind::NonFinite);
}

#[test]
fn observations_and_actions_of_three_turns_are_one_datum() {
    let first = [1, 2, 3, 4, 5];
    let second = [1, 2, 3, 4, 5, 10, 11, 12, 6, 7];
    let third = [1, 2, 3, 4, 5, 10, 11, 12, 6, 7, 20, 21, 8];
    let samples = samples(&[(&first, &[10, 11, 12], 0), (&second, &[20, 21], 0), (&third, &[30, 31, 32], 0)]);
    assert_eq!((samples.len(), &mask(&samples, 0)[1..]), (1, "FFFFTTTFFTTFTTT"));
}

#[test]
fn a_broken_prefix_gives_two_data() {
    let samples = samples(&[(&[1, 2, 3], &[10, 11], 0), (&[50, 51, 52], &[60, 61], 0)]);
    assert_eq!((samples.len(), &mask(&samples, 0)[1..], &mask(&samples, 1)[1..]), (2, "FFTT", "FFTT"));
}

#[test]
fn a_fork_inside_a_completion_trains_what_is_shared_once() {
    let mut ledger = recorded(&[(&[1, 2], &[4, 5, 6], 0)]).unwrap();
    let placed = ledger.record_turn(&turn((&[1, 2, 4, 7], &[8], 0), &[-1.0])).unwrap();
    let fork = placed.fork.unwrap();
    assert_eq!((fork.branch, fork.position, fork.reason), (0, 3, BranchReason::HistoryEdit));
    assert_eq!(ledger.num_tokens(), 7, "what is shared is stored once");
    assert_eq!(ledger.path_ids(), [1, 2, 4, 7, 8]);
    let samples = ledger.samples().unwrap();
    assert_eq!((mask(&samples, 0), mask(&samples, 1)), ("FFTTT".to_owned(), "FFFFT".to_owned()));
}

#[test]
fn answers_drawn_again_from_one_prompt_are_samples_of_their_own() {
    let mut ledger = recorded(&[(&[1, 2], &[4], 0), (&[1, 2], &[4], 1)]).unwrap();
    let reasons: Vec<_> = ledger.forks().map(|fork| fork.reason).collect();
    assert_eq!(reasons, [BranchReason::Resample]);
    let placed = ledger.record_turn(&turn((&[1, 2, 4, 9], &[5], 2), &[-1.0])).unwrap();
    assert_eq!((placed.branch, placed.fork), (1, None), "equal histories: the last turn's branch continues");
    let samples = ledger.samples().unwrap();
    assert_eq!((mask(&samples, 0), mask(&samples, 1)), ("FFT".to_owned(), "FFTFT".to_owned()));
}

#[test]
fn a_prompt_that_returns_to_an_older_branch_continues_it() {
    let samples = samples(&[(&[1], &[2], 0), (&[8], &[9], 0), (&[1, 2, 3], &[4], 0)]);
    assert_eq!((samples.len(), samples.get(0).unwrap().ids), (2, &[1, 2, 3, 4][..]));
    assert_eq!((mask(&samples, 0), mask(&samples, 1)), ("FTFT".to_owned(), "FT".to_owned()));
}

#[test]
fn a_path_that_ends_in_a_fork_is_no_leaf() {
    let mut ledger = recorded(&[(&[1], &[2], 0)]).unwrap();
    ledger.fork(2, BranchReason::Compaction).unwrap();
    ledger.record_turn(&turn((&[1, 2, 3], &[4], 0), &[-1.0])).unwrap();
    let samples = ledger.samples().unwrap();
    assert_eq!((samples.len(), mask(&samples, 0)), (1, "FTFT".to_owned()));
}

#[test]
fn segments_say_where_each_run_came_from() {
    let mut ledger = Ledger::default();
    let prompt = [1, 10, 9, 2];
    let origin = [Origin::Template, Origin::User, Origin::Template, Origin::Template];
    let attribution = Attribution { origin: &origin, message_index: &[0, 0, 0, -1], message_offset: 0 };
    let versions = Versions::Each(&[3, 4]);
    let first =
        Turn { versions, attribution: Some(attribution), ..turn((&prompt, &[20, 9], 0), &[-0.5, -0.25]) };
    ledger.record_turn(&first).unwrap();
    let next = [&prompt[..], &[20, 9, 8, 3, 30]].concat();
    let origin = [Origin::Env, Origin::Tool].map(|origin| [origin; 6]).concat();
    let message_index = [&[-1; 7][..], &[0; 2]].concat();
    let attribution = Attribution { origin: &origin[3..], message_index: &message_index, message_offset: 2 };
    let versions = Versions::Within(VersionRange { min: 4, max: 6 });
    let second = Turn { versions, attribution: Some(attribution), ..turn((&next, &[9], 0), &[-2.0]) };
    ledger.record_turn(&second).unwrap();

    let described = ledger.segments().iter().map(|run| (run.length, run.origin, run.message_index, run.turn));
    let expected = [
        (1, Origin::Template, 0, 0),
        (1, Origin::User, 0, 0),
        (1, Origin::Template, 0, 0),
        (1, Origin::Template, -1, 0),
        (1, Origin::Sampled, 1, 0),
        (1, Origin::Sampled, 1, 0),
        (1, Origin::Tool, -1, 1),
        (2, Origin::Tool, 2, 1),
        (1, Origin::Sampled, 3, 1),
    ];
    assert_eq!(described.collect::<Vec<_>>(), expected);
    let sample = ledger.samples().unwrap();
    assert_eq!(sample.versions, [0, 0, 0, 0, 3, 4, 0, 0, 0, 4]);
    assert_eq!((sample.min_policy_versions[0], sample.max_policy_versions[0]), (3, 6));
    assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger);
}

#[test]
fn labels_of_the_last_prompt_tokens_alone_leave_those_before_to_the_environment() {
    let next = [1, 2, 4, 8, 30, 31];
    let play = |origin: &[Origin], message_index: &[i32]| {
        let mut ledger = recorded(&[(&[1, 2], &[4], 0)]).unwrap();
        let attribution = Some(Attribution { origin, message_index, message_offset: 2 });
        ledger.record_turn(&Turn { attribution, ..turn((&next, &[9], 0), &[-2.0]) }).unwrap();
        ledger
    };
    let whole = [Origin::Env, Origin::Env, Origin::Env, Origin::Env, Origin::Tool, Origin::Template];
    let ledger = play(&whole, &[-1, -1, -1, -1, 0, -1]);
    for first in 1..=4 {
        assert_eq!(play(&whole[first..], &[-1, -1, -1, -1, 0, -1][first..]), ledger);
    }
    let described = ledger.segments().iter().skip(2).map(|run| (run.length, run.origin, run.message_index));
    let expected =
        [(1, Origin::Env, -1), (1, Origin::Tool, 2), (1, Origin::Template, -1), (1, Origin::Sampled, 3)];
    assert_eq!(described.collect::<Vec<_>>(), expected);
}

#[test]
fn what_cannot_be_recorded_is_refused_and_changes_nothing() {
    let mut ledger = recorded(&[(&[1, 2], &[4], 0)]).unwrap();
    let before = ledger.clone();
    let exchange: Exchange<'_> = (&[1, 2, 4, 8], &[5, 6], 0);
    let good = turn(exchange, &[-1.0, -2.0]);
    let origin = [Origin::User; 4];
    let attribution = Attribution { origin: &origin, message_index: &[0; 4], message_offset: 0 };
    let cases = [
        (Turn { prompt_ids: &[], ..good }, ErrorKind::Empty),
        (Turn { log_probs: &[-1.0], ..good }, ErrorKind::ShapeMismatch),
        (Turn { sampled_log_probs: &[-1.0; 3], ..good }, ErrorKind::ShapeMismatch),
        (Turn { log_probs: &[-1.0, f32::NAN], ..good }, ErrorKind::NonFinite),
        (Turn { sampled_log_probs: &[f32::NEG_INFINITY, -1.0], ..good }, ErrorKind::NonFinite),
        (Turn { versions: Versions::Each(&[1]), ..good }, ErrorKind::ShapeMismatch),
        (Turn { versions: Versions::Within(VersionRange { min: 2, max: 1 }), ..good }, ErrorKind::OutOfRange),
        (
            Turn { attribution: Some(Attribution { origin: &[], ..attribution }), ..good },
            ErrorKind::ShapeMismatch,
        ),
        (
            Turn { attribution: Some(Attribution { message_index: &[0], ..attribution }), ..good },
            ErrorKind::ShapeMismatch,
        ),
        (
            Turn {
                attribution: Some(Attribution {
                    origin: &[Origin::User; 5],
                    message_index: &[0; 5],
                    message_offset: 0,
                }),
                ..good
            },
            ErrorKind::ShapeMismatch,
        ),
        (
            Turn { attribution: Some(Attribution { message_index: &[-2; 4], ..attribution }), ..good },
            ErrorKind::OutOfRange,
        ),
        (
            Turn { attribution: Some(Attribution { message_offset: u32::MAX, ..attribution }), ..good },
            ErrorKind::OutOfRange,
        ),
        (
            Turn { attribution: Some(Attribution { origin: &[Origin::Sampled; 4], ..attribution }), ..good },
            ErrorKind::OutOfRange,
        ),
    ];
    for (turn, kind) in cases {
        assert_eq!(ledger.record_turn(&turn).unwrap_err().kind(), kind, "{turn:?}");
        assert_eq!(ledger, before);
    }
    ledger.record_turn(&good).unwrap();
}

#[test]
fn a_ledger_that_is_full_of_forks_refuses_the_next_turn_and_is_unchanged() {
    let mut ledger = recorded(&[(&[1, 2], &[4], 0)]).unwrap();
    for _ in 0..limits::LEDGER_FORKS_MAX {
        ledger.fork(1, BranchReason::Resample).unwrap();
    }
    let before = ledger.clone();
    let refused = ledger.record_turn(&turn((&[7], &[8], 0), &[-1.0])).unwrap_err();
    assert_eq!((refused.kind(), ledger == before), (ErrorKind::LimitExceeded, true));
    ledger.record_turn(&turn((&[1, 2, 4, 5], &[8], 0), &[-1.0])).unwrap();
}

#[test]
fn samples_that_would_not_fit_are_refused_before_they_are_made() {
    let num_forks = limits::LEDGER_FORKS_MAX;
    let prompt = vec![1; limits::LEDGER_TOKENS_MAX / num_forks];
    let mut ledger = recorded(&[(&prompt, &[2], 0)]).unwrap();
    for _ in 0..num_forks {
        ledger.fork(prompt.len(), BranchReason::Resample).unwrap();
    }
    assert_eq!(ledger.samples().unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn columns_record_what_a_turn_records_and_come_whole() {
    let options: TurnOptions = options_from_json(
        "turn",
        r#"{"messageOffset":2,"branchReason":"compaction","policyVersion":{"min":1,"max":2}}"#,
    )
    .unwrap();
    let (log_probs, origin) = (&[-1.0][..], [Origin::User, Origin::Tool]);
    let columns = TurnColumns {
        prompt_ids: &[5, 6],
        completion_ids: &[7],
        log_probs,
        sampled_log_probs: log_probs,
        origins: Some(&[2, 4]),
        message_indices: Some(&[0, 1]),
        ..TurnColumns::default()
    };
    let mut ledger = Ledger::default();
    ledger.record_columns(&columns, &options).unwrap();
    let mut expected = Ledger::default();
    let attribution = Attribution { origin: &origin, message_index: &[0, 1], message_offset: 2 };
    let versions = Versions::Within(VersionRange { min: 1, max: 2 });
    let turn = Turn { versions, attribution: Some(attribution), ..turn((&[5, 6], &[7], 0), log_probs) };
    expected.record_turn(&turn).unwrap();
    assert_eq!(ledger, expected);

    let refuse = |columns: TurnColumns<'_>, options| {
        ledger.clone().record_columns(&columns, &options).unwrap_err().kind()
    };
    assert_eq!(refuse(columns, TurnOptions::default()), ErrorKind::Malformed);
    assert_eq!(refuse(TurnColumns { versions: Some(&[1]), ..columns }, options), ErrorKind::Malformed);
    assert_eq!(refuse(TurnColumns { origins: None, ..columns }, options), ErrorKind::Malformed);
    assert_eq!(refuse(TurnColumns { origins: Some(&[2, 8]), ..columns }, options), ErrorKind::OutOfRange);
    let options =
        TurnOptions { policy_version: None, branch_reason: Some(BranchReason::Compaction), ..options };
    ledger.record_columns(&TurnColumns { versions: Some(&[3]), ..columns }, &options).unwrap();
    assert_eq!(ledger.forks().map(|fork| fork.reason).collect::<Vec<_>>(), [BranchReason::Compaction]);
}

#[test]
fn turn_options_are_strict() {
    let kind = |json| options_from_json::<TurnOptions>("turn", json).unwrap_err().kind();
    assert_eq!(kind(r#"{"policyVersion":1.5}"#), ErrorKind::Malformed);
    assert_eq!(kind(r#"{"branchReason":"whim"}"#), ErrorKind::UnknownName);
    assert_eq!(kind(r#"{"offset":1}"#), ErrorKind::UnknownName);
    assert_eq!(kind(r#"{"bridgeRefusal":"whim"}"#), ErrorKind::UnknownName);
}

#[test]
fn a_refused_bridge_gives_the_reason_of_the_branch_unless_the_caller_knows_better() {
    let reason = |json: &str| {
        let mut ledger = recorded(&[(&[1, 2], &[4], 0)]).unwrap();
        let options: TurnOptions = options_from_json("turn", json).unwrap();
        let columns = TurnColumns {
            prompt_ids: &[1, 9],
            completion_ids: &[5],
            log_probs: &[-1.0],
            sampled_log_probs: &[-1.0],
            versions: Some(&[1]),
            ..TurnColumns::default()
        };
        ledger.record_columns(&columns, &options).unwrap().fork.unwrap().reason
    };
    assert_eq!(reason("{}"), BranchReason::HistoryEdit);
    assert_eq!(reason(r#"{"bridgeRefusal":"user_query_under_tool_cycle"}"#), BranchReason::Retention);
    assert_eq!(reason(r#"{"bridgeRefusal":"opaque_template"}"#), BranchReason::Opaque);
    assert_eq!(reason(r#"{"bridgeRefusal":"over_length"}"#), BranchReason::BridgeRefused);
    assert_eq!(
        reason(r#"{"bridgeRefusal":"over_length","branchReason":"compaction"}"#),
        BranchReason::Compaction
    );
}

#[test]
fn json_of_another_kind_or_version_is_incompatible_and_contradictions_are_malformed() {
    let json = recorded(&[(&[1, 2], &[4], 0), (&[1, 9], &[5], 1)]).unwrap().to_json();
    let kind_with = |from: &str, to: &str| {
        assert!(json.contains(from), "{from} in {json}");
        Ledger::from_json(&json.replacen(from, to, 1)).unwrap_err().kind()
    };
    assert_eq!(kind_with("\"version\":1", "\"version\":2"), ErrorKind::Incompatible);
    assert_eq!(kind_with("\"ledger\"", "\"diary\""), ErrorKind::Incompatible);
    assert_eq!(kind_with("\"ids\":[1,", "\"ids\":["), ErrorKind::Malformed);
    assert_eq!(kind_with("\"position\":1", "\"position\":4"), ErrorKind::Malformed);
    assert_eq!(kind_with("\"position\":1", "\"position\":18446744073709551615"), ErrorKind::Malformed);
    assert_eq!(kind_with("\"current\":1", "\"current\":2"), ErrorKind::Malformed);
    assert_eq!(kind_with("\"origin\":\"sampled\"", "\"origin\":\"user\""), ErrorKind::Malformed);
    assert_eq!(kind_with("\"sampledLogProbs\":[-0.1,", "\"sampledLogProbs\":["), ErrorKind::ShapeMismatch);
    assert_eq!(kind_with("\"logProbs\":[-0.1,", "\"logProbs\":[1e300,"), ErrorKind::Malformed);
    assert_eq!(kind_with("\"logProbs\":[-0.1,", "\"logProbs\":[null,"), ErrorKind::Malformed);
    assert_eq!(kind_with("}", ""), ErrorKind::Malformed);
}

/// The naive ledger: every path is a whole copy of `(token, draw)`, where a draw is the number of a sampled
/// token.
#[derive(Default)]
struct Naive {
    paths: Vec<Vec<(u32, Option<usize>)>>,
    current: usize,
    num_draws: usize,
}

impl Naive {
    fn record(&mut self, prompt: &[u32], completion: &[u32]) {
        let shared = |path: &[(u32, Option<usize>)]| {
            path.iter().zip(prompt).take_while(|(held, given)| held.0 == **given).count()
        };
        let rank = |index: usize| {
            let num_shared = shared(&self.paths[index]);
            let is_whole = num_shared == self.paths[index].len();
            ((index == self.current && is_whole), num_shared, is_whole, index)
        };
        let best = (0..self.paths.len()).max_by_key(|&index| rank(index));
        let (whole, start) = best.map_or((false, Vec::new()), |best| {
            let num_shared = shared(&self.paths[best]);
            (num_shared == self.paths[best].len(), self.paths[best][..num_shared].to_vec())
        });
        let mut path = start.clone();
        path.extend(prompt[start.len()..].iter().map(|&id| (id, None)));
        path.extend(completion.iter().enumerate().map(|(t, &id)| (id, Some(self.num_draws + t))));
        self.num_draws += completion.len();
        self.current = if whole { best.unwrap_or(0) } else { self.paths.len() };
        self.paths.resize(self.paths.len().max(self.current + 1), Vec::new());
        self.paths[self.current] = path;
    }

    /// Ids and draws of each sample; a draw that was seen before is context.
    fn samples(&self) -> Vec<Vec<(u32, Option<usize>)>> {
        let mut seen = std::collections::HashSet::new();
        let mut once = |(id, draw): (u32, Option<usize>)| (id, draw.filter(|&draw| seen.insert(draw)));
        let samples = self.paths.iter().map(|path| path.iter().copied().map(&mut once).collect::<Vec<_>>());
        samples.filter(|sample| sample.iter().any(|(_, draw)| draw.is_some())).collect()
    }
}

/// The start of a prompt (a path, and its share in 1/8), its continuation, and the sampled tokens.
type Plan = Vec<((usize, usize), Vec<u32>, Vec<u32>)>;

fn plan() -> impl Strategy<Value = Plan> {
    let start = (0_usize..5, prop::sample::select(vec![8_usize, 8, 8, 8, 7, 5, 2, 0]));
    let turn = (start, prop::collection::vec(0_u32..3, 0..4), prop::collection::vec(0_u32..3, 1..5));
    prop::collection::vec(turn, 1..14)
}

/// Runs `plan` on both ledgers. The log-probability of a sampled token is the number of its draw.
fn play(plan: &Plan) -> (Ledger, Naive) {
    let (mut ledger, mut naive) = (Ledger::default(), Naive::default());
    for ((path, eighths), tail, completion) in plan {
        let path = naive.paths.get(path % naive.paths.len().max(1)).cloned().unwrap_or_default();
        let mut prompt: Vec<u32> = path[..path.len() * eighths / 8].iter().map(|(id, _)| *id).collect();
        prompt.extend(tail);
        if prompt.is_empty() {
            prompt.push(1);
        }
        let draws: Vec<f32> = (0..completion.len()).map(|t| (naive.num_draws + t) as f32).collect();
        ledger.record_turn(&turn((&prompt, completion, 0), &draws)).unwrap();
        naive.record(&prompt, completion);
    }
    (ledger, naive)
}

proptest! {
    #[test]
    fn samples_equal_those_of_a_ledger_of_whole_copies(plan in plan()) {
        let (ledger, naive) = play(&plan);
        let samples = ledger.samples().unwrap();
        let expected = naive.samples();
        prop_assert_eq!(samples.len(), expected.len());
        for (index, expected) in expected.iter().enumerate() {
            let sample = samples.get(index).unwrap();
            let draw = |t: usize| sample.mask[t].then(|| sample.log_probs[t] as usize);
            let found: Vec<_> = (0..sample.ids.len()).map(|t| (sample.ids[t], draw(t))).collect();
            prop_assert_eq!(&found, expected);
        }
        let last: Vec<u32> = naive.paths[naive.current].iter().map(|(id, _)| *id).collect();
        prop_assert_eq!(ledger.path_ids(), last);
    }

    #[test]
    fn every_sampled_token_is_trained_in_exactly_one_sample(plan in plan()) {
        let (ledger, naive) = play(&plan);
        let samples = ledger.samples().unwrap();
        let trained = samples.mask.iter().zip(&samples.log_probs).filter(|(trained, _)| **trained);
        let mut draws: Vec<usize> = trained.map(|(_, draw)| *draw as usize).collect();
        draws.sort_unstable();
        prop_assert_eq!(draws, (0..naive.num_draws).collect::<Vec<_>>());
    }

    #[test]
    fn json_brings_a_ledger_back_and_recording_goes_on(plan in plan(), bits in any::<u32>()) {
        let (mut ledger, _) = play(&plan);
        let log_prob = f32::from_bits(bits);
        if log_prob.is_finite() {
            ledger.record_turn(&turn((&ledger.path_ids(), &[1], 9), &[log_prob])).unwrap();
        }
        let mut read = Ledger::from_json(&ledger.to_json()).unwrap();
        prop_assert_eq!(&read, &ledger);
        for ledger in [&mut ledger, &mut read] {
            ledger.record_turn(&turn((&[2, 1, 0], &[1], 9), &[-1.0])).unwrap();
        }
        prop_assert_eq!(read, ledger);
    }

    #[test]
    fn json_with_one_number_changed_is_refused_or_consistent(plan in plan(), at in any::<prop::sample::Index>(), number in -2_i64..40) {
        let mut json: Value = serde_json::from_str(&play(&plan).0.to_json()).unwrap();
        let mut numbers = Vec::new();
        collect_numbers(&mut json, &mut numbers);
        let index = at.index(numbers.len());
        *numbers.swap_remove(index) = number.into();
        if let Ok(ledger) = Ledger::from_json(&json.to_string()) {
            let samples = ledger.samples().unwrap();
            prop_assert!(samples.ids.len() == samples.mask.len());
            prop_assert_eq!(ledger.path_ids().len(), ledger.num_path_tokens());
            prop_assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger);
        }
    }
}

fn collect_numbers<'a>(value: &'a mut Value, numbers: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => numbers.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| collect_numbers(item, numbers)),
        Value::Object(fields) => fields.values_mut().for_each(|field| collect_numbers(field, numbers)),
        _ => {}
    }
}

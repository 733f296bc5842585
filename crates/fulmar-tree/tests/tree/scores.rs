//! Tests of scores: torchrl's rows, the formulas, wrong input.

use fulmar_core::ErrorKind;
use fulmar_tensor::{Tensor, TensorDict};
use fulmar_tree::{Score, ScoreKeys, exp3_update, weights};
use serde_json::Value;

use crate::golden_value::{dict, tensor};
use crate::rows;

fn score(name: &str) -> Score {
    match name {
        "PUCT(c=5)" => Score::Puct { c: 5.0, unvisited: None },
        "PUCT(c=1.5)" => Score::Puct { c: 1.5, unvisited: None },
        "UCB(c=sqrt2)" => Score::Ucb { c: std::f64::consts::SQRT_2, unvisited: None, ucb1: false },
        "UCB(c=0)" => Score::Ucb { c: 0.0, unvisited: None, ucb1: false },
        "UCB1_TUNED(2)" => Score::Ucb1Tuned { exploration_constant: 2.0 },
        "UCB1_TUNED(.5)" => Score::Ucb1Tuned { exploration_constant: 0.5 },
        other => panic!("{other} is not known"),
    }
}

fn assert_close(got: &Tensor, want: &Tensor, what: &Value) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    for (got, want) in got.to_f32_vec().into_iter().zip(want.to_f32_vec()) {
        let is_close = got.is_nan() == want.is_nan()
            && (want.is_nan() || (got - want).abs() <= 1e-5 + 1e-5 * want.abs());
        assert!(is_close, "{what}: got {got}, expected {want}");
    }
}

#[test]
fn scores_are_those_of_upstream() {
    for row in rows("mcts", "score") {
        let got = score(row["score"].as_str().unwrap()).forward(&dict(&row["input"]), &ScoreKeys::default());
        match row.get("ok") {
            Some(want) => assert_close(&got.unwrap(), &tensor(want), &row["id"]),
            None => assert_eq!(got.unwrap_err().kind(), ErrorKind::UnknownName, "{}", row["id"]),
        }
    }
}

#[test]
fn weights_of_exp3_are_those_of_upstream() {
    let keys = ScoreKeys::default();
    for row in rows("mcts", "exp3") {
        let gamma = row["gamma"].as_f64().unwrap();
        let score = Score::Exp3 { gamma };
        let mut node = dict(&row["input"]);
        let pairs = row["ok"]["$dict"].as_array().unwrap();
        let probability = score.forward(&node, &keys).unwrap();
        assert_close(&probability, &tensor(&pairs[0][1]), &row["id"]);
        node.set("weights", weights(&node, &keys).unwrap()).unwrap();
        for update in pairs[2][1].as_array().unwrap() {
            let field = |at: usize| update["$dict"][at][1].clone();
            let probability = score.forward(&node, &keys).unwrap();
            let (action, reward) = (field(0).as_u64().unwrap() as usize, field(1).as_f64().unwrap());
            let after =
                exp3_update(node.tensor("weights").unwrap(), &probability, action, reward, gamma).unwrap();
            let plain = |at: usize| tensor(&crate::golden_value::plain(&field(at)));
            assert_close(&after, &plain(2), &row["id"]);
            node.set("weights", after).unwrap();
            assert_close(&score.forward(&node, &keys).unwrap(), &plain(3), &row["id"]);
        }
    }
}

fn node(wins: Vec<f64>, visits: Vec<f64>) -> TensorDict {
    let mut node = TensorDict::new(&[]).unwrap();
    let total: f64 = visits.iter().sum();
    node.set("win_count", Tensor::from_vec(&[wins.len()], wins).unwrap()).unwrap();
    node.set("prior_prob", Tensor::from_vec(&[visits.len()], vec![0.5_f64; visits.len()]).unwrap()).unwrap();
    node.set("visits", Tensor::from_vec(&[visits.len()], visits).unwrap()).unwrap();
    node.set("total_visits", Tensor::from_vec(&[], vec![total]).unwrap()).unwrap();
    node
}

#[test]
fn actions_without_visits_have_the_mean_that_is_asked_for_and_an_infinite_ucb1() {
    let node = node(vec![0.0, 3.0], vec![0.0, 4.0]);
    let of = |score: Score| score.forward(&node, &ScoreKeys::default()).unwrap().to_vec::<f64>().unwrap();
    let puct = of(Score::Puct { c: 2.0, unvisited: Some(0.0) });
    assert_eq!(puct, [2.0 * 0.5 * 2.0, 0.75 + 2.0 * 0.5 * 2.0 / 5.0]);
    assert!(of(Score::Puct { c: 2.0, unvisited: None })[0].is_nan());
    let ucb1 = of(Score::Ucb { c: 2.0, unvisited: None, ucb1: true });
    assert_eq!(ucb1[0], f64::INFINITY);
    assert!((ucb1[1] - (0.75 + 2.0 * (4.0_f64.ln() / 4.0).sqrt())).abs() < 1e-15);
}

#[test]
fn constants_and_shapes_outside_their_range_are_refused() {
    let kind = |score: Score| score.checked().unwrap_err().kind();
    assert_eq!(kind(Score::Exp3 { gamma: 1.5 }), ErrorKind::OutOfRange);
    assert_eq!(kind(Score::Exp3 { gamma: f64::NAN }), ErrorKind::NonFinite);
    assert_eq!(kind(Score::Puct { c: -1.0, unvisited: None }), ErrorKind::OutOfRange);
    let mut wrong = node(vec![1.0, 1.0], vec![1.0, 1.0]);
    wrong.set("visits", Tensor::from_vec(&[3], vec![1.0_f64; 3]).unwrap()).unwrap();
    let error = score("PUCT(c=5)").forward(&wrong, &ScoreKeys::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    wrong.set("visits", Tensor::from_vec(&[2], vec![1.0_f64; 2]).unwrap()).unwrap();
    wrong.set("total_visits", Tensor::from_vec(&[3], vec![1.0_f64; 3]).unwrap()).unwrap();
    let error = score("PUCT(c=5)").forward(&wrong, &ScoreKeys::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    let column = |len: usize| Tensor::from_vec(&[len], vec![1.0_f32; len]).unwrap();
    let update =
        |action, len, reward| exp3_update(&column(2), &column(len), action, reward, 0.1).unwrap_err().kind();
    assert_eq!(update(2, 2, 0.0), ErrorKind::OutOfRange);
    assert_eq!(update(0, 3, 0.0), ErrorKind::ShapeMismatch);
    assert_eq!(update(0, 2, f64::INFINITY), ErrorKind::NonFinite);
}

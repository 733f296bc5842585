//! Numeric functions given finite numbers of any size: they return finite numbers or refuse by kind.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_compute::Compute;
use fulmar_core::{Error, ErrorKind, Rng};
use fulmar_objective::{
    AdaptiveKlController, Advantage, AdvantageOptions, AdvantageScale, Baseline, BradleyTerryLoss,
    BradleyTerryOptions, Correction, CorrectionLevel, CorrectionRule, DistillationLoss, DistillationOptions,
    DpoLoss, DpoLossType, DpoOptions, DrawContext, DrawOptions, Envelope, FDivergence, GroupAdvantage,
    Groups, GrpoLoss, GrpoOptions, KlDirection, KlEstimator, KlPenalty, KlRewardOptions, KtoBatch, KtoLoss,
    KtoLossType, KtoOptions, LinearHead, LossBatch, LossOutput, McAdvantage, McAdvantageOptions,
    McAdvantageSelector, Metric, Normalization, PerStep, PreferenceBatch, RatioLevel, RewardAggregation,
    RewardPairs, RewardPlace, RewardTable, SelectionStrategy, SftBatch, SftLoss, SftOptions, SftReduction,
    StdKind, StepBatch, Surrogate, TimeAxis, TokenGradients, TrajectoryReturn, VtraceOptions, draw_in,
    draw_probabilities, draw_rng, generalized_advantage_estimate, group_advantage, importance_weights,
    kl_estimate, kl_reward, logits_loss, multi_reward_advantage, reward2go, standardized,
    td_lambda_return_estimate, td0_advantage_estimate, td1_return_estimate, token_log_probs,
    vtrace_advantage_estimate,
};

type Outcome = Result<Vec<f64>, Error>;

type Function = fn(&mut Draws<'_>) -> Outcome;

/// Returns a finite number: ordinary, large, as large as any, tiny, denormal or 0, of either sign.
fn number(rng: &mut Rng, largest: f64) -> f64 {
    let tiny = if largest > 1e39 { 5e-324 } else { f64::from(f32::from_bits(1)) };
    let sizes = [0.0, 1.0, 30.0, 1e4, largest.sqrt(), largest / 3.0, largest, tiny, 1.0 / largest];
    let size = sizes[rng.below(sizes.len() as u64).unwrap() as usize];
    if rng.below(2).unwrap() == 0 { size } else { -size }
}

struct Draws<'a> {
    rng: &'a mut Rng,
    largest: f64,
}

impl Draws<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.rng.below(count as u64).unwrap() as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn doubles(&mut self, len: usize) -> Vec<f64> {
        (0..len).map(|_| number(self.rng, self.largest)).collect()
    }

    fn singles(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| number(self.rng, f64::from(f32::MAX)) as f32).collect()
    }

    fn flags(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(2) as u8).collect()
    }

    fn penalty(&mut self) -> KlPenalty {
        KlPenalty {
            estimator: self.pick(&[KlEstimator::K1, KlEstimator::K2, KlEstimator::K3]),
            coefficient: self.pick(&[0.0, 0.1, 1e30]),
            importance_weighted: self.below(2) == 1,
        }
    }
}

fn metrics(metrics: &[Metric]) -> impl Iterator<Item = f64> {
    metrics.iter().map(|metric| metric.value)
}

fn output(output: LossOutput<f64>) -> Vec<f64> {
    let LossOutput { loss, metrics: of, grad_log_prob, grad_entropy } = output;
    metrics(&of).chain([loss]).chain(grad_log_prob).chain(grad_entropy.into_iter().flatten()).collect()
}

fn grpo(draws: &mut Draws<'_>) -> Outcome {
    let surrogate = draws.pick(&[
        Surrogate::Clip,
        Surrogate::None,
        Surrogate::Gmpo,
        Surrogate::Cispo { cap: 5.0 },
        Surrogate::Sapo { tau_positive: 1.0, tau_negative: 1e3 },
        Surrogate::Vespo {
            positive: Envelope { k: 2.0, lambda: 3.0 },
            negative: Envelope { k: 1e6, lambda: 0.0 },
        },
        Surrogate::Dppo { delta: 0.2 },
    ]);
    let by_token = matches!(surrogate, Surrogate::Gmpo | Surrogate::Dppo { .. });
    let levels =
        [RatioLevel::Token, RatioLevel::Sequence, RatioLevel::SequenceToken, RatioLevel::SequenceProduct];
    let correction = Correction {
        level: draws.pick(&[CorrectionLevel::Token, CorrectionLevel::Geometric]),
        rule: draws.pick(&[CorrectionRule::Truncate, CorrectionRule::Mask, CorrectionRule::Veto]),
        ..Correction::default()
    };
    let options = GrpoOptions {
        ratio: if by_token { RatioLevel::Token } else { draws.pick(&levels) },
        surrogate,
        corrections: vec![correction; draws.below(2)],
        off_policy_threshold: draws.pick(&[None, Some(0.5)]),
        keep_rejected: draws.below(2) == 1,
        dual_clip: draws.pick(&[None, Some(3.0)]),
        normalization: draws.pick(&[
            Normalization::TokenMean,
            Normalization::SequenceMean,
            Normalization::FixedLength(1.0),
            Normalization::GlobalTokens(1.0),
        ]),
        kl_to_ref: draws.penalty(),
        kl_to_inference: draws.penalty(),
        log_ratio_max: draws.pick(&[10.0, 20.0, 700.0]),
        clamp_log_ratio: draws.below(2) == 1,
        entropy_coefficient: draws.pick(&[0.0, 0.1, 1e30]),
        top_entropy_quantile: draws.pick(&[1.0, 0.2]),
        ..GrpoOptions::default()
    };
    let [log_prob, old, reference, sampler, entropy] = [(); 5].map(|()| draws.doubles(5));
    // Equal more often than by chance, so that not all ratios are dropped.
    let old = if draws.below(2) == 0 { log_prob.clone() } else { old };
    let (advantage, mask) = (draws.doubles(2), draws.flags(5));
    GrpoLoss::new(options)?
        .forward(&LossBatch {
            log_prob: &log_prob,
            old_log_prob: &old,
            ref_log_prob: Some(&reference),
            sampler_log_prob: Some(&sampler),
            entropy: Some(&entropy),
            advantage: Advantage::PerSequence(&advantage),
            mask: &mask,
            offsets: &[0, 3, 5],
        })
        .map(output)
}

fn supervised(draws: &mut Draws<'_>) -> Outcome {
    let (log_prob, reference, mask) = (draws.doubles(4), draws.doubles(4), draws.flags(4));
    let reduction = draws.pick(&[
        SftReduction::Mean,
        SftReduction::Sum,
        SftReduction::TokenMean,
        SftReduction::GlobalTokens(1.0),
        SftReduction::GlobalSequences(3.0),
    ]);
    let batch =
        SftBatch { log_prob: &log_prob, ref_log_prob: Some(&reference), mask: &mask, offsets: &[0, 3, 4] };
    let result = if draws.below(2) == 0 {
        let direction = draws.pick(&[KlDirection::Forward, KlDirection::Reverse]);
        DistillationLoss::new(DistillationOptions { direction, reduction, ..Default::default() })?
            .forward(&batch)?
    } else {
        let kl_to_ref = KlPenalty { importance_weighted: false, ..draws.penalty() };
        let options = SftOptions { reduction, dft: draws.below(2) == 1, kl_to_ref, ..Default::default() };
        let minor = SftOptions {
            reduction: SftReduction::Mean,
            dft: false,
            kl_to_ref: KlPenalty::default(),
            minor_beta: Some(1e3),
            ..options.clone()
        };
        SftLoss::new(if draws.below(2) == 0 { options } else { minor })?.forward(&batch)?
    };
    Ok(output(result.output).into_iter().chain(result.sequence_loss).collect())
}

fn pairs(draws: &mut Draws<'_>) -> Outcome {
    let kinds = [
        DpoLossType::Sigmoid,
        DpoLossType::Hinge,
        DpoLossType::Ipo,
        DpoLossType::Robust,
        DpoLossType::BcoPair,
        DpoLossType::SppoHard,
        DpoLossType::NcaPair,
        DpoLossType::Aot,
        DpoLossType::AotUnpaired,
        DpoLossType::ApoZero,
        DpoLossType::ApoDown,
        DpoLossType::Discopop,
        DpoLossType::Sft,
        DpoLossType::SigmoidNorm,
    ];
    let (log_prob, reference, squares) = (draws.doubles(6), draws.doubles(6), draws.doubles(6));
    let options = DpoOptions {
        loss_weights: [(draws.pick(&kinds), 1.0)].into(),
        beta: draws.pick(&[0.1, 1e10]),
        f_divergence: draws.pick(&[
            FDivergence::ReverseKl,
            FDivergence::ForwardKl,
            FDivergence::JsDivergence,
            FDivergence::AlphaDivergence(0.5),
        ]),
        use_weighting: draws.below(4) == 0,
        ..DpoOptions::default()
    };
    DpoLoss::new(options)?
        .forward(&PreferenceBatch {
            log_prob: &log_prob,
            ref_log_prob: &reference,
            log_sum_sq_prob: Some(&squares),
            mask: &[1; 6],
            offsets: &[0, 2, 3, 4, 6],
        })
        .map(output)
}

fn answers(draws: &mut Draws<'_>) -> Outcome {
    let (log_prob, reference, others) = (draws.doubles(3), draws.doubles(3), draws.doubles(2));
    let desirable = draws.flags(2);
    let options = KtoOptions {
        loss_type: draws.pick(&[KtoLossType::Kto, KtoLossType::ApoZeroUnpaired]),
        ..KtoOptions::default()
    };
    KtoLoss::new(options)?
        .forward(&KtoBatch {
            log_prob: &log_prob,
            ref_log_prob: &reference,
            desirable: &desirable,
            kl_log_ratio: Some(&others),
            mask: &[1; 3],
            offsets: &[0, 2, 3],
        })
        .map(output)
}

fn rewards_of_pairs(draws: &mut Draws<'_>) -> Outcome {
    let [chosen, rejected, margin] = [(); 3].map(|()| draws.doubles(3));
    let options =
        BradleyTerryOptions { center_coefficient: draws.pick(&[0.0, 0.01, 1e30]), ..Default::default() };
    let found = BradleyTerryLoss::new(options)?.forward(&RewardPairs {
        chosen: &chosen,
        rejected: &rejected,
        margin: Some(&margin),
        offsets: None,
    })?;
    let gradients = found.grad_chosen.into_iter().chain(found.grad_rejected);
    Ok(metrics(&found.metrics).chain([found.loss]).chain(gradients).collect())
}

fn divergences(draws: &mut Draws<'_>) -> Outcome {
    let (log_prob, reference, mask) = (draws.doubles(3), draws.doubles(3), draws.flags(3));
    let estimator = draws.pick(&[KlEstimator::K1, KlEstimator::K2, KlEstimator::K3]);
    match draws.below(4) {
        0 => {
            let found = kl_estimate(&log_prob, &reference, &mask, estimator, Compute::Cpu)?;
            Ok([vec![found.mean], found.kl, found.grad_log_prob].concat())
        }
        1 => {
            let place = draws.pick(&[RewardPlace::LastToken, RewardPlace::EveryToken]);
            let coefficient = draws.pick(&[1.0, 1e30]);
            let options = KlRewardOptions { coefficient, estimator, place, ..Default::default() };
            let (count, offsets) = (draws.pick(&[2, 3]), [0, 1, 3]);
            let reward = draws.doubles(count);
            let found = kl_reward(&log_prob, &reference, &mask, &offsets, &reward, &options)?;
            Ok([found.kl, found.reward].concat())
        }
        2 => {
            let correction = Correction {
                level: draws.pick(&[CorrectionLevel::Token, CorrectionLevel::Sequence]),
                rule: draws.pick(&[CorrectionRule::Truncate, CorrectionRule::Mask]),
                max: draws.pick(&[3.0, f64::INFINITY]),
                ..Correction::default()
            };
            importance_weights(&log_prob, &reference, &mask, &[0, 3], &correction, Compute::Cpu)
        }
        _ => {
            let mut controller = AdaptiveKlController::new(0.1, 6.0, 1e4)?;
            Ok(vec![controller.update(&log_prob)?, controller.coefficient()])
        }
    }
}

fn advantages(draws: &mut Draws<'_>) -> Outcome {
    let options = AdvantageOptions {
        baseline: draws.pick(&[Baseline::Group, Baseline::LeaveOneOut]),
        scale: draws.pick(&[AdvantageScale::Group, AdvantageScale::Batch, AdvantageScale::None]),
        std: draws.pick(&[StdKind::Unbiased, StdKind::Population]),
        epsilon: draws.pick(&[0.0, 1e-4]),
        std_floor: draws.pick(&[0.0, 1e-3]),
        ..AdvantageOptions::default()
    };
    let all = |found: GroupAdvantage| -> Outcome {
        let narrow = found.advantage_f32()?;
        Ok([found.advantage, found.mean, found.std, narrow.into_iter().map(f64::from).collect()].concat())
    };
    let (reward, scored) = (draws.doubles(6), draws.flags(6));
    match draws.below(3) {
        0 => all(group_advantage(&reward, None, Groups::Size(3), &options)?),
        1 => all(group_advantage(&reward, Some(&scored), Groups::Offsets(&[0, 4, 6]), &options)?),
        _ => {
            let weights = draws.doubles(1);
            let how = draws.pick(&[RewardAggregation::SumThenNormalize, RewardAggregation::NormalizeThenSum]);
            let table = RewardTable { reward: &reward, scored: Some(&scored), weights: &weights };
            all(multi_reward_advantage(table, Groups::Size(2), how, &options)?)
        }
    }
}

fn queues(draws: &mut Draws<'_>) -> Outcome {
    let mut queues = McAdvantage::new(McAdvantageOptions {
        trajectory_return: draws.pick(&[None, Some(TrajectoryReturn::Sum), Some(TrajectoryReturn::Mean)]),
        ..McAdvantageOptions::of_size(2)
    })?;
    let mut found = Vec::new();
    for _ in 0..4 {
        let rewards = draws.doubles(2);
        let pushed = queues.push("a", &rewards);
        // Any queue state can be written and read again.
        let state = queues.state_json()?;
        queues.load_state_json(&state)?;
        found.extend(pushed?.1.advantages.concat());
        found.push(queues.stats().trajectory_return_sum);
    }
    Ok(found)
}

/// A selector returns no numbers, but must not lose a group to a mean that overflowed: one of two means is
/// between these bounds.
fn choices(draws: &mut Draws<'_>) -> Outcome {
    let returns = draws.doubles(3);
    let strategy =
        draws.pick(&[SelectionStrategy::First, SelectionStrategy::Uniform, SelectionStrategy::Balanced]);
    let selector = McAdvantageSelector { strategy, ..McAdvantageSelector::default() };
    let chosen = selector.select(&returns, 2, Some([-f64::MAX, f64::MAX]))?;
    assert!(chosen.is_some(), "{returns:?}");
    Ok(vec![])
}

fn steps(draws: &mut Draws<'_>) -> Outcome {
    let axis = TimeAxis { outer: 2, time: 3, inner: 1 };
    let [reward, next_value, value, log_pi, log_mu] = [(); 5].map(|()| draws.singles(6));
    let (done, terminated) = (draws.flags(6), draws.flags(6));
    let steps = StepBatch {
        axis,
        reward: &reward,
        next_value: &next_value,
        done: &done,
        terminated: Some(&terminated),
        compute: Compute::Cpu,
    };
    let (gamma, lambda) = (PerStep::All(draws.pick(&[0.99, 1.0])), PerStep::All(0.95));
    let both = |found: fulmar_objective::ValueEstimate<f32>| [found.advantage, found.target].concat();
    let found = match draws.below(7) {
        0 => both(generalized_advantage_estimate(&steps, &value, gamma, lambda)?),
        1 => td0_advantage_estimate(&steps, &value, gamma)?,
        2 => td1_return_estimate(&steps, gamma, true)?,
        3 => td_lambda_return_estimate(&steps, gamma, lambda, true)?,
        4 => reward2go(axis, &reward, &done, 0.99, Compute::Cpu)?,
        5 => {
            let options =
                draws.pick(&[VtraceOptions::default(), VtraceOptions { rho_max: 1e300, c_max: 1e300 }]);
            both(vtrace_advantage_estimate(&steps, &value, [&log_pi, &log_mu], gamma, options)?)
        }
        _ => standardized(&reward, Compute::Cpu)?,
    };
    Ok(found.into_iter().map(f64::from).collect())
}

fn singles(values: impl IntoIterator<Item = f32>) -> impl Iterator<Item = f64> {
    values.into_iter().map(f64::from)
}

fn logits(draws: &mut Draws<'_>) -> Outcome {
    let (mut logits, ids) = (draws.singles(6), [draws.below(3) as u32, 1]);
    let temperature = draws.pick(&[1.0, 0.01, 1e-40, 1e300]);
    let (by_log_prob, by_entropy) = (draws.singles(2), draws.singles(2));
    if draws.below(2) == 0 {
        let weight = draws.singles(6);
        let (hidden, compute) = (draws.singles(4), Compute::Cpu);
        let head = LinearHead {
            weight: weight.as_slice().into(),
            panels: None,
            bias: None,
            width: 2,
            temperature,
            precision: Default::default(),
            compute,
        };
        let gradients = TokenGradients { log_prob: &by_log_prob, entropy: Some(&by_entropy) };
        let found = head.backward(&hidden, &ids, gradients)?;
        return Ok(singles(found.hidden).chain(singles(found.weight)).collect());
    }
    let found = token_log_probs(&logits, &ids, temperature, Compute::Cpu)?;
    logits_loss(&mut logits, &ids, temperature, Compute::Cpu, |_| Ok((by_log_prob, Some(by_entropy), ())))?;
    // A log-probability below every single is -inf, which losses refuse by place.
    let log_prob = found.log_prob.into_iter().filter(|log_prob| *log_prob > f32::NEG_INFINITY);
    Ok(singles(log_prob).chain(singles(found.entropy)).chain(singles(logits)).collect())
}

fn tokens(draws: &mut Draws<'_>) -> Outcome {
    let logits = draws.singles(6);
    let options = DrawOptions {
        temperature: draws.pick(&[0.0, 1e-300, 1.0, 1e300]),
        top_k: draws.pick(&[None, Some(2)]),
        top_p: draws.pick(&[1.0, 0.5]),
        min_p: draws.pick(&[0.0, 0.5]),
        typical_p: draws.pick(&[1.0, 0.5]),
        epsilon_cutoff: draws.pick(&[0.0, 0.1]),
        eta_cutoff: draws.pick(&[0.0, 0.9]),
        top_h: draws.pick(&[None, Some(0.5)]),
        sequence_bias: vec![(vec![2, 1], draws.pick(&[0.0, -1e300, 1e300]))],
        repetition_penalty: draws.pick(&[1.0, 1e-300, 1e300]),
        presence_penalty: draws.pick(&[0.0, 1e300]),
        logit_bias: vec![(1, draws.pick(&[0.0, -1e300, 1e300]))],
        ..DrawOptions::default()
    };
    let context = DrawContext { prompt_ids: &[0, 1], output_ids: &[2], allowed: None };
    let probabilities = draw_probabilities(&logits, &options, &context)?;
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{probabilities:?}");
    let token = draw_in(&logits, &options, &context, &mut draw_rng(7, 0))?;
    Ok(probabilities.into_iter().chain([token.sampled_log_prob.into()]).collect())
}

#[test]
fn finite_numbers_of_any_size_give_finite_numbers_or_a_typed_error() {
    let functions: [(&str, Function); 12] = [
        ("grpo", grpo),
        ("supervised", supervised),
        ("pairs", pairs),
        ("answers", answers),
        ("rewards of pairs", rewards_of_pairs),
        ("divergences", divergences),
        ("advantages", advantages),
        ("queues", queues),
        ("choices", choices),
        ("steps", steps),
        ("logits", logits),
        ("tokens", tokens),
    ];
    let mut rng = Rng::new(13).stream("extremes");
    for (name, function) in functions {
        let (mut num_finite, mut num_refused) = (0, 0);
        for case in 0..3000 {
            // Half of the numbers fit in single precision, as numbers from JavaScript arrays do.
            let largest = if case % 2 == 0 { f64::from(f32::MAX) } else { f64::MAX };
            match function(&mut Draws { rng: &mut rng, largest }) {
                Ok(numbers) => {
                    let is_finite = numbers.iter().all(|number| number.is_finite());
                    assert!(is_finite, "{name}, case {case}: {numbers:?}");
                    num_finite += 1;
                }
                Err(error) => {
                    let kinds = [ErrorKind::NonFinite, ErrorKind::Empty, ErrorKind::OutOfRange];
                    let kinds = [&kinds[..], &[ErrorKind::Incompatible]].concat();
                    assert!(kinds.contains(&error.kind()), "{name}, case {case}: {error}");
                    num_refused += 1;
                }
            }
        }
        assert!(num_finite > 100, "{name}: {num_finite} finite, {num_refused} refused");
    }
}

#[test]
fn rewards_that_no_single_holds_are_refused_by_place() {
    let options = AdvantageOptions { scale: AdvantageScale::None, ..AdvantageOptions::default() };
    let found = group_advantage(&[0.0, 0.0, 1e39, 0.0], None, Groups::Size(2), &options).unwrap();
    assert_eq!(found.advantage, [0.0, 0.0, 5e38, -5e38], "doubles hold them");
    let error = found.advantage_f32().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NonFinite);
    assert!(error.detail().starts_with("advantage[2] must fit in single precision"), "{error}");
    // Squares of these overflow a double: a deviation of infinity would make every advantage 0.
    let error =
        group_advantage(&[0.0, 1.0, 1e200, -1e200], None, Groups::Size(2), &AdvantageOptions::default())
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NonFinite);
    assert!(error.detail().contains("group[1]"), "{error}");
}

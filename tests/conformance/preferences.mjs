/**
 * Compares losses of preferences, of worked examples, of teachers and of reward models with what trl and torchrl gave for the same
 * log-probabilities and rewards: values, gradients and metrics.
 */

import { BradleyTerryLoss, DistillationLoss, DPOLoss, GRPOLoss, KTOLoss, SFTLoss } from 'fulmar/objective'
import { bits, camel, decided, farther, flat, number, offsetsIn, offsetsOf, singles } from './loss-rows.mjs'

const NO_TOKENIZER = 'a loss of log-probabilities needs no tokenizer'

const CHECKS = {
  trl_dpo: dpo,
  trl_kto: kto,
  trl_rloo: rloo,
  trl_sft: trlSft,
  torchrl_SFTLoss: torchrlSft,
  torchrl_DistillationLoss: distillation,
  trl_reward_modeling: rewards,
  torchrl_reward_modeling: rewardsOfTokens,
}

export const preferences = {
  topic: 'preferences',
  members: {
    input: `kind case note dtype config.kl_direction config.reduction config.normalize_by_seq_length config.assistant_only
      config.loss_function config.beta loss_types loss_weights beta label_smoothing f_divergence_type f_alpha_divergence_coef ld_alpha use_weighting
      discopop_tau completion_mask log_probs ref_log_probs log_sum_sq_probs loss_type desirable_weight undesirable_weight calculate_KL label
      kl_log_probs ref_kl_log_probs num_items_in_batch label_mask rewards_chosen rewards_rejected margin center_rewards_coefficient
      chosen_ids rejected_ids pad_token_id chosen_rewards rejected_rewards mask old_sequence_log_probs advantages entropies epsilon_low
      epsilon_high assistant_mask attention_mask ref_or_teacher_log_probs gradient_of`,
    expected: 'loss gradient gradients metrics outputs output_shapes',
    refusal: 'expected_error:outputs',
    aside: {},
  },
  matches: ({ kind }) => Object.hasOwn(CHECKS, kind ?? ''),
  prepare: () => undefined,
  check: ({ value: row }) => CHECKS[row.kind](row),
}

/** `[chosen..., rejected...]` pair by pair. */
const inPairs = (rows) =>
  rows.slice(0, rows.length / 2).flatMap((chosen, pair) => [chosen, rows[rows.length / 2 + pair]])

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length

function different(row, { loss, gradLogProb, metrics }, gradient, names = {}) {
  const compared = Object.entries(names).map(([ours, theirs]) =>
    farther(ours, metrics[ours], row.metrics[theirs]),
  )
  const shown = Object.values(names)
  const strange = Object.keys(row.metrics ?? {}).find(
    (name) => !shown.includes(name) && !OTHERS.includes(name),
  )
  return (
    farther('loss', loss, row.loss) ??
    farther('gradient', gradLogProb, gradient) ??
    compared.find((difference) => difference !== undefined) ??
    (strange && `the metric ${strange} is not known`)
  )
}

/** Metrics that their kinds compare themselves. */
const OTHERS = [
  ...[
    'rewards/margins',
    'min_reward',
    'max_reward',
    'clip_ratio/low_mean',
    'clip_ratio/low_min',
    'clip_ratio/high_mean',
  ],
  ...['clip_ratio/high_max', 'clip_ratio/region_mean'],
]

function dpo(row) {
  const fDivergence = camel(row.f_divergence_type)
  const loss = new DPOLoss({
    lossWeights: Object.fromEntries(row.loss_types.map((name, at) => [camel(name), row.loss_weights[at]])),
    beta: row.beta,
    labelSmoothing: row.label_smoothing,
    fDivergence:
      fDivergence === 'alphaDivergence' ? { alphaDivergence: row.f_alpha_divergence_coef } : fDivergence,
    ...(row.ld_alpha !== null && { ldAlpha: row.ld_alpha }),
    useWeighting: row.use_weighting,
    discopopTau: row.discopop_tau,
  })
  const result = loss.forward({
    logProb: singles(inPairs(row.log_probs)),
    refLogProb: singles(inPairs(row.ref_log_probs)),
    ...(row.log_sum_sq_probs && { logSumSqProb: singles(inPairs(row.log_sum_sq_probs)) }),
    mask: bits(inPairs(row.completion_mask).map((mask) => mask.slice(1))),
    offsets: offsetsIn(inPairs(row.log_probs)),
  })
  return different(row, result, inPairs(row.gradient), {
    rewardChosen: 'rewards/chosen',
    rewardRejected: 'rewards/rejected',
    accuracy: 'rewards/accuracies',
    margin: 'rewards/margins',
    logProbChosen: 'logps/chosen',
    logProbRejected: 'logps/rejected',
  })
}

function kto(row) {
  if (row.calculate_KL !== (row.kl_log_probs !== null)) return `calculate_KL is ${row.calculate_KL}`
  const loss = new KTOLoss({
    lossType: camel(row.loss_type),
    beta: row.beta,
    desirableWeight: row.desirable_weight,
    undesirableWeight: row.undesirable_weight,
  })
  const logProb = singles(row.log_probs)
  const result = loss.forward({
    logProb,
    refLogProb: singles(row.ref_log_probs),
    desirable: bits(row.label),
    ...(row.kl_log_probs && {
      klLogRatio: Float32Array.from(row.kl_log_probs, (own, at) => own - row.ref_kl_log_probs[at]),
    }),
    mask: new Uint8Array(logProb.length).fill(1),
    offsets: offsetsIn(row.log_probs),
  })
  const { rewardChosen, rewardRejected } = result.metrics
  return (
    different(row, result, row.gradient, {
      kl: 'kl',
      rewardChosen: 'rewards/chosen',
      rewardRejected: 'rewards/rejected',
    }) ?? farther('margin', rewardChosen - rewardRejected, row.metrics['rewards/margins'])
  )
}

/** Upstream keeps sums of old log-probabilities alone, and counts clipped sequences: in a sequence by itself all tokens are, or none. */
function rloo(row) {
  const old = row.log_probs.map((sequence, s) => {
    const trained = sequence.map((_, t) => t).filter((t) => row.mask[s][t] === 1)
    const rest = row.old_sequence_log_probs[s] - trained.reduce((sum, t) => sum + sequence[t], 0)
    return sequence.map((logProb, t) => logProb + (t === trained[0] ? rest : 0))
  })
  const loss = new GRPOLoss({ preset: 'rloo', clipEpsilon: [row.epsilon_low, row.epsilon_high] })
  const run = (sequences) => {
    const of = (rows) => sequences.map((s) => rows[s])
    return loss.forward({
      logProb: singles(of(row.log_probs)),
      oldLogProb: singles(of(old)),
      entropy: singles(of(row.entropies)),
      advantage: singles(of(row.advantages)),
      mask: bits(of(row.mask)),
      offsets: offsetsIn(of(row.log_probs)),
    })
  }
  const all = row.log_probs.map((_, s) => s)
  const alone = all.map((s) => run([s]).metrics)
  const [low, high] = ['clipFractionLow', 'clipFractionHigh'].map((name) =>
    alone.map((metrics) => metrics[name]),
  )
  return (
    different(row, run(all), row.gradient, { entropy: 'entropy' }) ??
    farther('low', mean(low), row.metrics['clip_ratio/low_mean']) ??
    farther('high', mean(high), row.metrics['clip_ratio/high_mean']) ??
    farther('region', mean(low) + mean(high), row.metrics['clip_ratio/region_mean']) ??
    farther('lowest', Math.min(...low), row.metrics['clip_ratio/low_min']) ??
    farther('highest', Math.max(...high), row.metrics['clip_ratio/high_max'])
  )
}

function trlSft(row) {
  if (!['nll', 'dft'].includes(row.loss_type)) return `the loss ${row.loss_type} is not known`
  const reduction = row.num_items_in_batch === null ? 'tokenMean' : { globalTokens: row.num_items_in_batch }
  const result = new SFTLoss({ reduction, dft: row.loss_type === 'dft' }).forward({
    logProb: singles(row.log_probs),
    mask: bits(row.label_mask),
    offsets: offsetsIn(row.log_probs),
  })
  return different(row, result, row.gradient)
}

const supervised = ({ config: { reduction, normalize_by_seq_length: normalizeBySeqLength } }) => ({
  reduction: reduction === 'mean' ? 'mean' : 'sum', // `none` has the gradient of the sum
  normalizeBySeqLength,
})

function torchrlSft(row) {
  const { loss_function: name, beta, reduction, normalize_by_seq_length: normalizes } = row.config
  const isMinor = name === 'minor_sft'
  const reference = row.ref_or_teacher_log_probs
  const { loss, sequenceLoss } = new SFTLoss({
    ...supervised(row),
    ...(isMinor && { minorBeta: beta }),
  }).forward({
    logProb: singles(row.log_probs),
    ...(reference && { refLogProb: singles(reference) }),
    mask: bits(row.assistant_mask),
    offsets: offsetsIn(row.log_probs),
  })
  const wanted = row.log_probs.map((sequence, s) => {
    const trained = sequence.map((_, t) => t).filter((t) => row.assistant_mask[s][t])
    const sum = (values) =>
      trained.reduce((total, t) => total + values[t], 0) / (normalizes ? Math.max(trained.length, 1) : 1)
    return isMinor ? Math.log1p(Math.exp(-beta * (sum(sequence) - sum(reference[s])))) : -sum(sequence)
  })
  const joined = reduction === 'mean' ? mean(wanted) : wanted.length * mean(wanted)
  const ours = farther('sequences', sequenceLoss, wanted) ?? farther('loss', loss, joined)
  return row.expected_error
    ? decided(NO_TOKENIZER, ours)
    : (ours ?? 'the original refuses to start without a tokenizer')
}

function distillation(row) {
  const loss = new DistillationLoss({ direction: row.config.kl_direction, ...supervised(row) })
  const result = loss.forward({
    logProb: singles(row.log_probs),
    teacherLogProb: singles(row.ref_or_teacher_log_probs),
    mask: bits(row.config.assistant_only === false ? row.attention_mask : row.assistant_mask),
    offsets: offsetsIn(row.log_probs),
  })
  const isEach = row.config.reduction === 'none'
  const { loss_distill: shape, kl_to_teacher: other } = row.output_shapes
  return (
    farther('loss', isEach ? result.sequenceLoss : result.loss, row.outputs.loss_distill) ??
    farther('kl', mean([...result.sequenceLoss]), row.outputs.kl_to_teacher) ??
    farther('gradient', result.gradLogProb, row.gradients) ??
    lengthsDiffer(row.gradients, row.log_probs) ??
    (String([shape, other]) === String([isEach ? [row.log_probs.length] : [], []]) && Array.isArray(shape)
      ? undefined
      : `shapes are ${JSON.stringify(row.output_shapes)}`)
  )
}

const lengthsDiffer = (rows, wanted) =>
  rows.length === wanted.length && rows.every((row, at) => row.length === wanted[at].length)
    ? undefined
    : `lengths are ${rows.map((row) => row.length)}`

function rewards(row) {
  const loss = new BradleyTerryLoss({ centerCoefficient: row.center_rewards_coefficient ?? 0 })
  const result = loss.forward({
    chosen: singles(row.rewards_chosen),
    rejected: singles(row.rewards_rejected),
    ...(row.margin && { margin: singles(row.margin) }),
  })
  const gradLogProb = [...result.gradChosen, ...result.gradRejected]
  const names = { accuracy: 'accuracy', margin: 'margin', meanReward: 'mean_reward' }
  const all = [...row.rewards_chosen, ...row.rewards_rejected].map(number)
  return (
    different(row, { ...result, gradLogProb }, row.gradient, names) ??
    farther('least', Math.min(...all), row.metrics.min_reward) ??
    farther('most', Math.max(...all), row.metrics.max_reward)
  )
}

/** Rewards of tokens are compared from the first that differs to the end of the longer answer. */
function rewardsOfTokens(row) {
  const end = (ids) => (ids.indexOf(row.pad_token_id) + ids.length + 1) % (ids.length + 1) || ids.length
  const ranges = row.chosen_ids.map((chosen, pair) => {
    const rejected = row.rejected_ids[pair]
    const differs = chosen.findIndex((id, at) => id !== rejected[at])
    const stop = Math.max(end(chosen), end(rejected))
    return [differs < 0 ? stop : differs, stop]
  })
  const of = (rows) => rows.map((values, pair) => values.slice(...ranges[pair]))
  const { loss, gradChosen, gradRejected } = new BradleyTerryLoss().forward({
    chosen: singles(of(row.chosen_rewards)),
    rejected: singles(of(row.rejected_rewards)),
    offsets: offsetsOf(ranges.map(([start, stop]) => stop - start)),
  })
  const { chosen_rewards: chosen, rejected_rewards: rejected } = row.gradients
  const outside = [chosen, rejected].flatMap((rows) =>
    rows.flatMap((values, pair) => values.filter((_, at) => at < ranges[pair][0] || at >= ranges[pair][1])),
  )
  return (
    farther('loss', loss, row.loss) ??
    lengthsDiffer(chosen, row.chosen_rewards) ??
    lengthsDiffer(rejected, row.rejected_rewards) ??
    farther('chosen', gradChosen, of(chosen)) ??
    farther('rejected', gradRejected, of(rejected)) ??
    farther('outside', outside, flat(outside).fill(number(0)))
  )
}

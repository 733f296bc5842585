/**
 * Compares losses of the GRPO family with what torchrl and trl gave for the same log-probabilities: values, gradients and metrics.
 * Where a ratio stands on a bound, rounding to singles may decide for the other side; such tokens are not compared.
 */

import { GRPOLoss } from 'fulmar'
import { attempt, bits, farther, flat, number, offsetsIn, offsetsOf, singles } from './loss-rows.mjs'

/** Upstream's CISPO clips the ratio and lets its gradient go with it; the paper's and ours keep the gradient. */
const CISPO = { byDecision: 'a token of cispo keeps its gradient outside the clip range' }
/** Means are over trained tokens: a batch without them has none. */
const NOTHING = { byDecision: 'a mask that trains nothing is refused' }
/** Upstream carries infinities and NaN on. */
const EXTREME = {
  byDecision: 'ratios beyond e^20 are dropped and counted, gradients beyond a single refused',
}
/** A ragged batch has no dimensions to disagree. */
const NO_RANK = { byDecision: 'an advantage is one value a sequence or one a token, whatever its rank' }
const NO_NAME = { byDecision: 'an unknown aggregation is refused, not read as another' }
/** Upstream takes the values of another token. */
const OWN_TOKEN = { byDecision: 'an advantage of a token of a ragged batch stays with its token' }

export const losses = {
  topic: 'losses',
  matches: ({ library, loss }) => loss !== undefined && (library === 'torchrl' || /^trl/.test(library ?? '')),
  prepare: () => undefined,
  check: ({ value: row }) => (row.library === 'torchrl' ? torchrl(row) : trl(row)),
}

const sumOf = (value) => flat(value).reduce((sum, one) => sum + one, 0)

/** The batch of a row of torchrl; sequences of unequal length are padded on the left. */
function torchrlBatch(row) {
  const current = row.cur_log_probs ?? row.dist_log_probs
  const lengths = row.ragged_lengths ?? current.map((sequence) => sequence.length)
  const joined = (rows) => rows.flatMap((sequence, s) => flat(sequence).slice(-lengths[s]))
  const collected = row.collector_mask && flat(row.collector_mask)
  return {
    logProb: singles(joined(current)),
    oldLogProb: singles(joined(row.sample_log_probs)),
    ...(row.ref_log_probs && { refLogProb: singles(joined(row.ref_log_probs)) }),
    entropy: singles(joined(row.entropies ?? row.dist_entropy)),
    advantage: singles(
      row.advantage.map((values, s) => (flat(values).length === 1 ? Array(lengths[s]).fill(values) : values)),
    ),
    mask: bits(joined(row.mask)).map((bit, t) => bit * (collected?.[t] ?? 1)),
    offsets: offsetsOf(lengths),
    joined,
  }
}

function torchrlOptions({ config, loss }) {
  const normalization =
    config.reduction === 'none' || config.aggregation === 'none'
      ? { globalTokens: 1 }
      : { prompt_mean: 'sequenceMean', token_mean: 'tokenMean', undefined: 'tokenMean' }[config.aggregation]
  return {
    normalization: normalization ?? config.aggregation,
    logRatioMax: 700, // upstream drops no token for its ratio
    ...(config.clip_epsilon !== undefined && { clipEpsilon: config.clip_epsilon }),
    ...(config.kl_mask_threshold && { klMaskThreshold: config.kl_mask_threshold }),
    ...(loss === 'CISPOLoss' && {
      surrogate: { cispo: { cap: 1 + [config.clip_epsilon ?? 0.2].flat().at(-1) } },
    }),
  }
}

function torchrl(row) {
  const known = { bad_config: 'OUT_OF_RANGE', missing_ref: 'EMPTY' }[row.case]
  if (known !== undefined) return refused(row, known)
  if (row.expected_error) return NO_RANK
  const { joined, ...batch } = torchrlBatch(row)
  const entropyCoefficient = row.config.entropy_coeff ?? 0.01
  const run = () => new GRPOLoss({ ...torchrlOptions(row), entropyCoefficient }).forward(batch)
  if (row.case === 'all_masked') return attempt(run).code === 'EMPTY' ? NOTHING : 'must be refused'
  if (row.config.aggregation === 'bogus')
    return attempt(run).code === 'UNKNOWN_NAME' ? NO_NAME : 'must be refused'
  if (/^extreme_ratio/.test(row.case)) return extreme(row, batch, run)
  if (row.upstream_bug) return ownToken(row, batch)
  if (row.logits) return fromLogits(row, batch)
  const result = run()
  const isOff = offBounds(batch, [row.config.clip_epsilon ?? 0.2].flat())
  return (
    policyDifference(row, result, batch, joined, isOff) ??
    farther('entropy loss', result.metrics.entropyLoss, sumOf(row.outputs.loss_entropy)) ??
    farther('d entropies', result.gradEntropy, joined(row.gradients.loss_entropy)) ??
    penaltyDifference(row, batch, joined) ??
    metricDifference(row, result, batch, isOff) ??
    (row.loss === 'CISPOLoss' ? CISPO : undefined)
  )
}

/** Whether a token's ratio stands on none of its bounds. */
function offBounds({ logProb, oldLogProb }, epsilon) {
  const bounds = [1 - epsilon[0], 1 + epsilon.at(-1)]
  return (t) => bounds.every((bound) => Math.abs(Math.exp(logProb[t] - oldLogProb[t]) - bound) > 1e-6)
}

function policyDifference(row, { metrics, gradLogProb }, { logProb, oldLogProb }, joined, isOff) {
  const wanted = joined(row.gradients.loss_objective)
  if (row.loss !== 'CISPOLoss') {
    return (
      farther('objective', metrics.policyLoss, sumOf(row.outputs.loss_objective)) ??
      farther('gradient', gradLogProb, wanted, { counts: isOff })
    )
  }
  // Where upstream has a gradient it is ours; elsewhere ours is that of the capped ratio.
  const inside = (t) => isOff(t) && wanted[t] !== 0
  const policy = logProb.reduce((sum, value, t) => sum + gradOf(gradLogProb, oldLogProb, t) * value, 0)
  return (
    farther('gradient', gradLogProb, wanted, { counts: inside }) ??
    farther('objective', metrics.policyLoss, policy)
  )
}

/** The weight of a log-probability is held fixed, so their products are the value. */
const gradOf = (gradLogProb, oldLogProb, t) => (Number.isFinite(oldLogProb[t]) ? gradLogProb[t] : 0)

/** Penalties upstream are means over every position, padding too. */
function penaltyDifference(row, batch, joined) {
  const numPositions = flat(row.mask).length
  const zero = { ...batch, advantage: batch.advantage.map(() => 0) }
  for (const [theirs, ours] of [
    ['kl_to_ref', 'klToRef'],
    ['kl_to_inference', 'klToInference'],
  ]) {
    const coefficient = row.config[`${theirs}_coeff`]
    if (coefficient === undefined) continue
    const options = {
      ...torchrlOptions(row),
      normalization: { globalTokens: numPositions },
      [ours]: { coefficient },
    }
    const { loss, gradLogProb, metrics } = new GRPOLoss(options).forward(zero)
    const difference =
      farther(`${theirs} loss`, loss, row.outputs[`loss_${theirs}`]) ??
      farther(`${theirs} gradient`, gradLogProb, joined(row.gradients[`loss_${theirs}`])) ??
      farther(theirs, (metrics[ours] * metrics.numTokens) / numPositions, row.outputs[theirs])
    if (difference !== undefined) return difference
  }
  return undefined
}

/** Metrics upstream are means over every position, and do not know the collector's mask or a threshold. */
function metricDifference(row, { metrics }, batch, isOff) {
  if (row.collector_mask || row.config.kl_mask_threshold) return undefined
  const share = metrics.numTokens / flat(row.mask).length
  const onBounds = batch.logProb.some((_, t) => batch.mask[t] === 1 && !isOff(t))
  const clipped = row.loss !== 'CISPOLoss' && !onBounds
  return (
    farther('ess', metrics.ess, row.outputs.ESS) ??
    farther('kl_approx', metrics.klApprox * share, row.outputs.kl_approx) ??
    (clipped ? farther('clip_fraction', metrics.clipFraction * share, row.outputs.clip_fraction) : undefined)
  )
}

function refused(row, code) {
  const isMissing = row.case === 'missing_ref'
  const { code: got } = attempt(() => {
    const { joined, refLogProb, ...batch } = torchrlBatch(row)
    const klToRef = { coefficient: row.config.kl_to_ref_coeff ?? 0 }
    return new GRPOLoss({ ...torchrlOptions(row), ...(isMissing && { klToRef }) }).forward(batch)
  })
  return got === code ? undefined : `must be refused with ${code}: got ${got}`
}

function extreme(row, batch, run) {
  const dropped = new GRPOLoss({ ...torchrlOptions(row), logRatioMax: 20 }).forward(batch)
  if (!(dropped.metrics.numExtremeRatio > 0))
    return `extreme ratios must be counted: got ${dropped.metrics.numExtremeRatio}`
  const { value, code } = attempt(run)
  if (value === undefined) return code === 'NON_FINITE' ? EXTREME : `must be NON_FINITE: got ${code}`
  return farther('objective', value.metrics.policyLoss, sumOf(row.outputs.loss_objective)) &&
    row.loss !== 'CISPOLoss'
    ? farther('objective', value.metrics.policyLoss, sumOf(row.outputs.loss_objective))
    : EXTREME
}

function ownToken(row, batch) {
  const { logProb, oldLogProb, advantage, mask } = batch
  if (row.loss === 'CISPOLoss') return CISPO
  const [low, high] = [row.config.clip_epsilon ?? 0.2].flat()
  const options = { ...torchrlOptions(row), normalization: { globalTokens: 1 } }
  const wanted = logProb.reduce((sum, value, t) => {
    const ratio = Math.exp(value - oldLogProb[t])
    const clipped = Math.min(Math.max(ratio, 1 - low), 1 + (high ?? low))
    return sum - (mask[t] === 1 ? Math.min(ratio * advantage[t], clipped * advantage[t]) : 0)
  }, 0)
  return farther('objective', new GRPOLoss(options).forward(batch).loss, wanted) ?? OWN_TOKEN
}

/** All terms together, to the logits of a categorical distribution. */
function fromLogits(row, batch) {
  if (row.loss === 'CISPOLoss') return CISPO
  const share = sumOf([...batch.mask]) / batch.mask.length
  const { loss, gradLogProb, gradEntropy } = new GRPOLoss({
    ...torchrlOptions(row),
    klToRef: { coefficient: (row.config.kl_to_ref_coeff ?? 0) * share },
    entropyCoefficient: 0.01,
  }).forward(batch)
  const { loss_objective: objective, loss_entropy: entropy, loss_kl_to_ref: penalty = 0 } = row.outputs
  const tokens = flat(row.tokens)
  const gradients = row.logits.flat().map((logits, t) => {
    const weights = logits.map((logit) => Math.exp(logit - Math.max(...logits)))
    const p = weights.map((weight) => weight / sumOf(weights))
    const own = -sumOf(p.map((one) => one * Math.log(one)))
    return p.map(
      (one, v) =>
        gradLogProb[t] * (Number(v === tokens[t]) - one) - gradEntropy[t] * one * (Math.log(one) + own),
    )
  })
  return (
    farther('loss', loss, number(objective) + number(entropy) + number(penalty)) ??
    farther('d logits', gradients, row.gradients.logits)
  )
}

function trlOptions(row) {
  const { config, num_items_in_batch: numItems } = row
  const high = config.epsilon_high ?? config.epsilon
  const tokens = { globalTokens: Math.max(numItems ?? 1, 1) }
  const tau = (side) => Math.fround(config[`sapo_temperature_${side}`])
  const envelope = (side) => ({ k: config[`vespo_k_${side}`], lambda: config[`vespo_lambda_${side}`] })
  const chosen = {
    grpo: { normalization: 'sequenceMean' },
    bnpo: { normalization: 'tokenMean' },
    dr_grpo: { preset: 'drGrpo', normalization: { fixedLength: config.max_completion_length } },
    dapo: { preset: 'dapo', normalization: tokens },
    luspo: { normalization: { fixedLength: 1 } },
    cispo: { surrogate: { cispo: { cap: high } }, normalization: tokens },
    sapo: { preset: 'sapo', surrogate: { sapo: { tauPositive: tau('pos'), tauNegative: tau('neg') } } },
    vespo: {
      surrogate: { vespo: { positive: envelope('pos'), negative: envelope('neg') } },
      normalization: tokens,
    },
    gmpo: { preset: 'gmpo' },
  }[row.loss]
  return {
    ...chosen,
    ratio: config.importance_sampling_level,
    clipEpsilon: [config.epsilon, high],
    ...(config.delta !== null && { dualClip: config.delta }),
    ...(row.importance_sampling_ratio && { corrections: [{ rule: 'mask', min: 1e-20, max: 1e300 }] }),
    ...(config.off_policy_mask_threshold !== null && {
      offPolicyThreshold: config.off_policy_mask_threshold,
    }),
    keepRejected: true,
    klToRef: {
      coefficient: config.beta,
      importanceWeighted: config.use_bias_correction_kl && row.loss !== 'gmpo',
    },
    logRatioMax: 700,
    entropyCoefficient: config.entropy_coef,
  }
}

function trlBatch(row) {
  const offsets = offsetsIn(row.cur_log_probs)
  const tool = row.tool_mask && flat(row.tool_mask)
  const mask = bits(row.mask).map((bit, t) => bit * (tool?.[t] ?? 1))
  const old = flat(row.old_log_probs ?? row.cur_log_probs)
  const sampler = row.importance_sampling_ratio ? samplerOf(row, old, mask, offsets) : row.sampling_log_probs
  return {
    logProb: singles(row.cur_log_probs),
    oldLogProb: singles(old),
    ...(row.ref_log_probs && { refLogProb: singles(row.ref_log_probs) }),
    ...(sampler && { samplerLogProb: singles(sampler) }),
    ...(row.entropies && { entropy: singles(row.entropies) }),
    advantage: singles(row.advantages),
    mask,
    offsets,
  }
}

/** A sampler whose ratios are those given. VESPO multiplies those of a sequence, upstream with those of padding. */
function samplerOf(row, old, mask, offsets) {
  return row.importance_sampling_ratio.flatMap((given, s) => {
    const ratios = flat(given)
    const places = Array.from({ length: offsets[s + 1] - offsets[s] }, (_, t) => offsets[s] + t)
    const trained = Math.max(sumOf(places.map((t) => mask[t])), 1)
    const product = sumOf(ratios.map((ratio) => Math.log(Math.max(ratio, 1e-8))))
    return places.map((t, at) => {
      const ratio = ratios.length === 1 ? ratios[0] : ratios[at]
      return old[t] - (row.loss === 'vespo' ? product / trained : ratio > 0 ? Math.log(ratio) : -100)
    })
  })
}

function trl(row) {
  if (row.expected_error) {
    const { code } = attempt(() => new GRPOLoss(trlOptions(row)))
    return code === 'UNKNOWN_NAME' ? undefined : `must be refused with UNKNOWN_NAME: got ${code}`
  }
  const batch = trlBatch(row)
  const { loss, metrics, gradLogProb, gradEntropy } = new GRPOLoss(trlOptions(row)).forward(batch)
  const { metrics: theirs } = row.outputs
  const isOff = offBounds(batch, [row.config.epsilon, row.config.epsilon_high ?? row.config.epsilon])
  const optional = (ours, name) =>
    theirs[name] == null ? undefined : farther(ours, metrics[ours], theirs[name])
  const hasBonus = row.config.entropy_coef > 0
  return (
    // Upstream takes the token mean of the entropy whatever the loss; here one denominator rules all terms.
    (hasBonus
      ? farther('policy', metrics.policyLoss, theirs.policy_loss)
      : farther('loss', loss, row.outputs.loss)) ??
    (hasBonus && row.loss === 'bnpo'
      ? (farther('loss', loss, row.outputs.loss) ??
        farther('d entropies', gradEntropy, row.gradients.entropies))
      : undefined) ??
    farther('gradient', gradLogProb, row.gradients.cur_log_probs, { counts: isOff }) ??
    optional('entropy', 'entropy') ??
    optional('klToRef', 'kl') ??
    (['grpo', 'bnpo', 'dr_grpo', 'dapo', 'luspo'].includes(row.loss)
      ? (optional('clipFractionLow', 'clip_ratio/low_mean') ??
        optional('clipFractionHigh', 'clip_ratio/high_mean'))
      : undefined) ??
    (row.loss === 'cispo' ? optional('clipFractionHigh', 'cispo_clip_ratio') : undefined)
  )
}

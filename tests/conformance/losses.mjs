/**
 * Compares losses of the GRPO family with what torchrl and trl gave for the same log-probabilities: values, gradients and metrics.
 * If a ratio equals a bound, rounding to single precision may put it on the other side; such tokens are not compared.
 */

import { GRPOLoss } from 'fulmar'
import { attempt, bits, decided, farther, flat, offsetsIn, offsetsOf, singles } from './loss-rows.mjs'
import { failsInTorchrl, notTorchrl, torchrlLoss } from './torchrl-losses.mjs'

const CISPO = 'a token of cispo keeps its gradient outside the clip range'
const NOTHING = 'a mask that trains nothing is refused'
const EXTREME = 'ratios beyond e^20 are dropped and counted, gradients beyond a single refused'
const NO_RANK = 'an advantage is one value a sequence or one a token, whatever its rank'
const NO_NAME = 'an unknown aggregation is refused, not read as another'
const OWN_TOKEN = 'an advantage of a token of a ragged batch stays with its token'
const OWN_BONUS = 'the entropy bonus has the denominator of its loss'

const TORCHRL = {
  input: `id library case loss dtype cur_log_probs sample_log_probs mask advantage entropies ref_log_probs ragged_lengths collector_mask
    logits tokens dist_log_probs dist_entropy upstream_bug gradient_of config.clip_epsilon config.aggregation config.reduction
    config.kl_mask_threshold config.kl_to_ref_coeff config.kl_to_inference_coeff config.entropy_coeff`,
  expected: 'outputs gradients output_shapes',
  refusal: 'expected_error:outputs',
  aside: {},
}
const TRL = {
  input: `id library case loss dtype cur_log_probs old_log_probs mask advantages entropies ref_log_probs sampling_log_probs
    importance_sampling_ratio tool_mask num_items_in_batch config.delta config.use_bias_correction_kl config.sapo_temperature_pos
    config.sapo_temperature_neg config.vespo_k_pos config.vespo_lambda_pos config.vespo_k_neg config.vespo_lambda_neg config.epsilon
    config.epsilon_high config.loss_type config.importance_sampling_level config.top_entropy_quantile config.entropy_coef config.beta
    config.off_policy_mask_threshold config.max_completion_length config.steps_per_generation config.gradient_accumulation_steps
    config.training`,
  expected: 'outputs gradients',
  refusal: 'expected_error:outputs',
  aside: {},
}

export const losses = {
  topic: 'losses',
  members: ({ library }) => (library === 'torchrl' ? TORCHRL : TRL),
  tolerance: ({ case: name, dtype }) =>
    dtype === 'float32' && /^extreme/.test(name) ? { relative: 1e-4, absolute: 1e-6 } : undefined,
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
  const isNamed = [undefined, 'token_mean', 'prompt_mean', 'none'].includes(row.config.aggregation)
  if (failsInTorchrl(row) && !row.expected_error) return 'the original fails'
  if (row.expected_error) {
    const { joined: _, ...batch } = torchrlBatch(row)
    const isComputed = !isNamed || batch.mask.every((bit) => bit === 0) || isExtreme(batch)
    return isComputed && !failsInTorchrl(row) ? 'the original gives a value' : refused(row)
  }
  const differs = notTorchrl(row)
  if (differs !== undefined) return differs
  if (!isNamed) return unknownAggregation(row)
  const { joined, ...batch } = torchrlBatch(row)
  if (row.logits) return fromLogits(row, batch)
  if (batch.mask.every((bit) => bit === 0)) {
    const { code } = attempt(() => new GRPOLoss(torchrlOptions(row)).forward(batch))
    return decided(NOTHING, code === 'EMPTY' ? undefined : `must be refused: got ${code}`)
  }
  if (row.config.clip_epsilon === undefined && isExtreme(batch)) return extreme(row, batch)
  const entropyCoefficient = row.config.entropy_coeff ?? 0.01
  const result = new GRPOLoss({ ...torchrlOptions(row), entropyCoefficient }).forward(batch)
  const isOff = offBounds(batch, [row.config.clip_epsilon ?? 0.2].flat())
  const moves = movedAdvantage(row, batch)
  const policy =
    row.loss === 'CISPOLoss' || moves
      ? impliedDifference(row, result, batch, isOff)
      : policyDifference(row, result, joined, isOff)
  const difference =
    policy ??
    farther('entropy loss', result.metrics.entropyLoss, sumOf(row.outputs.loss_entropy)) ??
    farther('d entropies', result.gradEntropy, joined(row.gradients.loss_entropy)) ??
    penaltyDifference(row, batch, joined) ??
    metricDifference(row, result, batch, isOff)
  if (row.loss === 'CISPOLoss') return decided(CISPO, difference)
  return moves ? decided(OWN_TOKEN, difference) : difference
}

/** Returns whether the original gives tokens of shorter sequences the advantages of others: it pads them on the other side. */
const movedAdvantage = ({ advantage }, { offsets }) =>
  advantage.some((values) => flat(values).length > 1 && flat(values).length < longest(offsets))

const longest = (offsets) => Math.max(...[...offsets].slice(1).map((end, s) => end - offsets[s]))

/** Returns whether a ratio is beyond the default bounds. */
const isExtreme = ({ logProb, oldLogProb, mask }) =>
  logProb.some(
    (one, t) => mask[t] === 1 && Math.abs(one - oldLogProb[t]) > 20 && Number.isFinite(oldLogProb[t]),
  )

function refused(row) {
  const { joined, refLogProb, ...batch } = torchrlBatch(row)
  const needs = (row.config.kl_to_ref_coeff ?? 0) > 0
  const { code, value } = attempt(() => {
    const klToRef = { coefficient: row.config.kl_to_ref_coeff ?? 0 }
    return new GRPOLoss({ ...torchrlOptions(row), ...(needs && { klToRef }) }).forward({
      ...batch,
      ...(refLogProb && { refLogProb }),
    })
  })
  if (code !== undefined) return undefined
  // An advantage with a dimension less than the log-probabilities.
  const isFlat = row.advantage.every((values) => !Array.isArray(values[0]))
  if (!isFlat) return 'must be refused'
  const whole = { ...row, advantage: row.advantage.map((values) => values.map((one) => [one])) }
  const { joined: _, ...same } = torchrlBatch(whole)
  const { gradLogProb } = new GRPOLoss(torchrlOptions(row)).forward(same)
  return decided(NO_RANK, farther('gradient', value.gradLogProb, gradLogProb))
}

function unknownAggregation(row) {
  const { joined, ...batch } = torchrlBatch(row)
  const { code } = attempt(() => new GRPOLoss(torchrlOptions(row)).forward(batch))
  return decided(NO_NAME, code === 'UNKNOWN_NAME' ? undefined : `must be refused: got ${code}`)
}

/** Returns whether a token's ratio is on neither of its bounds. */
function offBounds({ logProb, oldLogProb }, epsilon) {
  const bounds = [1 - epsilon[0], 1 + epsilon.at(-1)]
  return (t) => bounds.every((bound) => Math.abs(Math.exp(logProb[t] - oldLogProb[t]) - bound) > 1e-6)
}

function policyDifference(row, { metrics, gradLogProb }, joined, isOff) {
  return (
    farther('objective', metrics.policyLoss, sumOf(row.outputs.loss_objective)) ??
    farther('gradient', gradLogProb, joined(row.gradients.loss_objective), { counts: isOff })
  )
}

/** The objective with ratios and advantages of each token's own: clipped as they are, or capped and held fixed. */
function impliedDifference(row, { metrics, gradLogProb }, batch, isOff) {
  const { logProb, oldLogProb, advantage, mask, offsets } = batch
  const [low, high = low] = [row.config.clip_epsilon ?? 0.2].flat()
  const trained = mask.map((bit, t) => bit * Number(Number.isFinite(oldLogProb[t]) && isNear(row, batch, t)))
  const weights = weightsOf(row, trained, offsets)
  const terms = [...logProb].map((one, t) => {
    if (trained[t] === 0) return { loss: 0, gradient: 0 }
    const ratio = Math.exp(one - oldLogProb[t])
    const own =
      advantage[advantage.length === logProb.length ? t : offsets.findLastIndex((start) => start <= t)]
    if (row.loss === 'CISPOLoss') {
      const gradient = -Math.min(ratio, 1 + high) * own * weights[t]
      return { loss: gradient * one, gradient }
    }
    const [free, held] = [ratio * own, Math.min(Math.max(ratio, 1 - low), 1 + high) * own]
    return { loss: -Math.min(free, held) * weights[t], gradient: free <= held ? -free * weights[t] : 0 }
  })
  return (
    farther(
      'gradient',
      gradLogProb,
      terms.map(({ gradient }) => gradient),
      { counts: isOff },
    ) ?? farther('objective', metrics.policyLoss, sumOf(terms.map(({ loss }) => loss)))
  )
}

const isNear = ({ config }, { logProb, oldLogProb }, t) =>
  !(config.kl_mask_threshold > 0) || (logProb[t] - oldLogProb[t]) ** 2 / 2 <= config.kl_mask_threshold

/** The weight of each token: 1, a share of its sequence's mean, or a share of all. */
function weightsOf({ config }, trained, offsets) {
  if (config.aggregation === 'none' || config.reduction === 'none') return trained
  const total = sumOf([...trained])
  if (config.aggregation !== 'prompt_mean') return [...trained].map((bit) => bit / total)
  return [...trained].map((bit, t) => {
    const s = offsets.findLastIndex((start) => start <= t)
    const own = sumOf([...trained.slice(offsets[s], offsets[s + 1])])
    return bit / Math.max(own, 1) / (offsets.length - 1)
  })
}

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

/** Dropped and counted by default; taken as they are, they give a value or are refused. */
function extreme(row, batch) {
  const gaps = batch.logProb.map((one, t) => batch.mask[t] * Math.abs(one - batch.oldLogProb[t]))
  const beyond = gaps.filter((gap) => gap > 20).length
  const dropped = new GRPOLoss({ ...torchrlOptions(row), logRatioMax: 20 }).forward(batch)
  const counted =
    dropped.metrics.numExtremeRatio === beyond
      ? undefined
      : `${beyond} extreme ratios must be counted: got ${dropped.metrics.numExtremeRatio}`
  const { value, code } = attempt(() => new GRPOLoss(torchrlOptions(row)).forward(batch))
  if (value === undefined) {
    const isBeyond = batch.logProb.some(
      (one, t) => !Number.isFinite(Math.fround(Math.exp(one - batch.oldLogProb[t]))),
    )
    return decided(
      EXTREME,
      counted,
      code === 'NON_FINITE' && isBeyond ? undefined : `must be NON_FINITE: got ${code}`,
    )
  }
  const policy =
    row.loss === 'CISPOLoss'
      ? impliedDifference(row, value, batch, () => true)
      : farther('objective', value.metrics.policyLoss, sumOf(row.outputs.loss_objective), { relative: 1e-4 })
  return decided(EXTREME, counted, policy)
}

/** All terms together, to the logits of a categorical distribution. */
function fromLogits(row, batch) {
  const tokens = flat(row.tokens)
  const toLogits = (gradLogProb, gradEntropy) =>
    row.logits.flat().map((logits, t) => {
      const weights = logits.map((logit) => Math.exp(logit - Math.max(...logits)))
      const p = weights.map((weight) => weight / sumOf(weights))
      const own = -sumOf(p.map((one) => one * Math.log(one)))
      return p.map(
        (one, v) =>
          gradLogProb[t] * (Number(v === tokens[t]) - one) - gradEntropy[t] * one * (Math.log(one) + own),
      )
    })
  const { gradients: theirs } = torchrlLoss(row)
  const attended = flat(row.mask)
  const joint = attended.map((bit, t) => {
    const terms = ['loss_objective', 'loss_kl_to_ref', 'loss_kl_to_inference'].map(
      (name) => theirs[name]?.[t] ?? 0,
    )
    return bit === 0 ? 0 : sumOf(terms)
  })
  const entropies = attended.map((bit, t) => bit * theirs.loss_entropy[t])
  const share = sumOf([...batch.mask]) / batch.mask.length
  const coefficient = (name) => ({ coefficient: (row.config[name] ?? 0) * share })
  const { loss, gradLogProb, gradEntropy } = new GRPOLoss({
    ...torchrlOptions(row),
    klToRef: coefficient('kl_to_ref_coeff'),
    klToInference: coefficient('kl_to_inference_coeff'),
    entropyCoefficient: row.config.entropy_coeff ?? 0.01,
  }).forward(batch)
  const isTheirs = farther('d logits of the row', row.gradients.logits, toLogits(joint, entropies), {
    relative: 1e-9,
  })
  const total = sumOf(
    Object.entries(row.outputs)
      .filter(([name]) => name.startsWith('loss_'))
      .map(([, value]) => sumOf(value)),
  )
  if (row.loss === 'CISPOLoss') {
    const options = { ...torchrlOptions(row) }
    const alone = new GRPOLoss(options).forward(batch)
    return decided(CISPO, isTheirs, impliedDifference(row, alone, batch, offBounds(batch, [0.2])))
  }
  return (
    isTheirs ??
    farther('loss', loss, total) ??
    farther('d logits', toLogits(gradLogProb, gradEntropy), row.gradients.logits)
  )
}

function trlOptions(row) {
  const { config, num_items_in_batch: numItems } = row
  const high = config.epsilon_high ?? config.epsilon
  const window = config.training ? config.gradient_accumulation_steps / config.steps_per_generation : 1
  const tokens = { globalTokens: Math.max(numItems ?? 1, 1) * window }
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
    topEntropyQuantile: config.top_entropy_quantile,
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

/** The divisor of the mean over micro-batches, which here belongs to the caller. */
const accumulated = ({ config }) => (config.training ? config.gradient_accumulation_steps : 1)

const SINGLES = 'log-probabilities are singles, also where rows hold doubles'

/**
 * Compares a row of TRL. If an entropy equals the threshold of the mask within rounding to single precision, doubles and singles may take
 * different sides; the row must then be that of the quantile a millionth to one side.
 */
function trl(row) {
  const outcome = trlOutcome(row)
  const { top_entropy_quantile: quantile } = row.config
  if (typeof outcome !== 'string' || row.dtype !== 'float64' || !(quantile < 1)) return outcome
  const isNear = [1 - 1e-6, 1 + 1e-6].some((share) => {
    const config = { ...row.config, top_entropy_quantile: quantile * share }
    return typeof trlOutcome({ ...row, config }) !== 'string'
  })
  return isNear ? decided(SINGLES) : outcome
}

function trlOutcome(row) {
  const { config } = row
  if (config.loss_type !== undefined && config.loss_type !== row.loss)
    return `loss_type is ${config.loss_type} for ${row.loss}`
  if (row.expected_error) {
    const { code } = attempt(() => new GRPOLoss(trlOptions(row)))
    return code === 'UNKNOWN_NAME' ? undefined : `must be refused with UNKNOWN_NAME: got ${code}`
  }
  const { outputs, gradients } = row
  const { metrics: theirs } = outputs
  const batch = trlBatch(row)
  const steps = ['dapo', 'cispo', 'vespo'].includes(row.loss) ? 1 : accumulated(row)
  const isOff = offBounds(batch, [config.epsilon, config.epsilon_high ?? config.epsilon])
  const { loss, metrics, gradLogProb } = new GRPOLoss({ ...trlOptions(row), entropyCoefficient: 0 }).forward(
    batch,
  )
  const difference =
    farther(
      'gradient',
      gradLogProb.map((one) => one / steps),
      gradients.cur_log_probs,
      { counts: isOff },
    ) ??
    farther('entropy', metrics.entropy, theirs.entropy) ??
    (config.beta === 0 ? undefined : farther('klToRef', metrics.klToRef, theirs.kl)) ??
    (CLIPPED.includes(row.loss) ? clipDifference(row, batch, metrics) : undefined) ??
    (row.loss === 'cispo'
      ? farther('clipped', metrics.clipFractionHigh, theirs.cispo_clip_ratio)
      : undefined) ??
    (row.loss === 'vespo'
      ? farther('phi', meanEnvelope(row, batch), theirs['vespo/phi_seq_mean'])
      : undefined) ??
    strangeMetric(row)
  if (difference !== undefined) return difference
  if (config.entropy_coef === 0) {
    return gradients.entropies === null
      ? farther('loss', loss / steps, outputs.loss)
      : 'without a bonus there is no gradient of entropies'
  }
  return farther('policy', loss, theirs.policy_loss) ?? bonus(row, batch, loss / steps)
}

const CLIPPED = ['grpo', 'bnpo', 'dr_grpo', 'dapo', 'luspo', 'gmpo']

/** Of the ratios of the original, also where its product is of a sequence: how many tokens a bound holds, on either side. */
function clipDifference(row, batch, { clipFractionLow, clipFractionHigh }) {
  const { metrics: theirs } = row.outputs
  const alone = range(batch.offsets.length - 1).flatMap((s) => {
    const one = sequenceOf(batch, s)
    if (!one.mask.includes(1)) return []
    const single = { ...trlOptions(row), entropyCoefficient: 0 }
    return [new GRPOLoss(single).forward(one).metrics]
  })
  const lowest = Math.min(...alone.map((one) => one.clipFractionLow))
  const highest = Math.max(...alone.map((one) => one.clipFractionHigh))
  // The ratio of a sequence is one value there, and the mean is over sequences; here it is over tokens.
  const meanOf = (name, ours) =>
    row.config.importance_sampling_level === 'sequence'
      ? sumOf(alone.map((one) => one[name])) / alone.length
      : ours
  const low = meanOf('clipFractionLow', clipFractionLow)
  const high = meanOf('clipFractionHigh', clipFractionHigh)
  return (
    farther('low', low, theirs['clip_ratio/low_mean']) ??
    farther('high', high, theirs['clip_ratio/high_mean']) ??
    farther('region', low + high, theirs['clip_ratio/region_mean']) ??
    farther('lowest', lowest, theirs['clip_ratio/low_min']) ??
    farther('highest', highest, theirs['clip_ratio/high_max'])
  )
}

const range = (count) => Array.from({ length: count }, (_, at) => at)

function sequenceOf({ offsets, advantage, ...columns }, s) {
  const [start, end] = [offsets[s], offsets[s + 1]]
  const cut = (values) => values.slice(start, end)
  const own = advantage.length === columns.logProb.length ? cut(advantage) : advantage.slice(s, s + 1)
  const rest = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, cut(values)]))
  return { ...rest, advantage: own, offsets: Uint32Array.of(0, end - start) }
}

/** The mean weight of a sequence, read from the gradient that it gives an advantage of 1 or -1. */
function meanEnvelope(row, batch) {
  const advantage = batch.advantage.map((one) => (one >= 0 ? 1 : -1))
  const options = {
    ...trlOptions(row),
    normalization: { globalTokens: 1 },
    klToRef: { coefficient: 0 },
    entropyCoefficient: 0,
    topEntropyQuantile: 1,
  }
  const { gradLogProb } = new GRPOLoss(options).forward({ ...batch, advantage })
  const weights = range(batch.offsets.length - 1).map((s) => {
    const tokens = range(batch.offsets[s + 1] - batch.offsets[s]).map((t) => batch.offsets[s] + t)
    const trained = tokens.find((t) => batch.mask[t] === 1)
    return trained === undefined ? undefined : Math.abs(gradLogProb[trained])
  })
  return weights.includes(undefined) ? Number.NaN : sumOf(weights) / weights.length
}

/** A metric that is there and that nothing above has compared. */
function strangeMetric({ loss, config, outputs }) {
  const known = [
    'entropy',
    ...(config.beta === 0 ? [] : ['kl']),
    ...(config.entropy_coef === 0 ? [] : ['policy_loss', 'entropy_coef']),
  ]
  if (CLIPPED.includes(loss))
    known.push(
      ...['low_mean', 'high_mean', 'region_mean', 'low_min', 'high_max'].map((name) => `clip_ratio/${name}`),
    )
  if (loss === 'cispo') known.push('cispo_clip_ratio')
  if (loss === 'vespo') known.push('vespo/phi_seq_mean')
  const strange = Object.keys(outputs.metrics).find((name) => !known.includes(name))
  if (strange !== undefined) return `the metric ${strange} is not known`
  const { entropy_coef: coefficient } = outputs.metrics
  return coefficient === undefined || coefficient === config.entropy_coef
    ? undefined
    : `entropy_coef is ${coefficient}`
}

/** The original's bonus is the mean entropy of tokens whatever the loss; here one denominator rules all terms. */
function bonus(row, batch, policy) {
  const { config, outputs, gradients } = row
  const share = config.entropy_coef / accumulated(row)
  const { metrics, gradEntropy, loss } = new GRPOLoss(trlOptions(row)).forward(batch)
  // With a mask by entropy the bonus is that of the tokens it keeps.
  const bits = [...batch.mask].map((bit, t) =>
    config.top_entropy_quantile < 1 ? Number(gradEntropy[t] !== 0) : bit,
  )
  const count = sumOf(bits)
  const entropy = sumOf(bits.map((bit, t) => (bit === 1 ? batch.entropy[t] : 0))) / count
  const theirs =
    farther('loss', policy - share * entropy, outputs.loss) ??
    farther(
      'd entropies',
      bits.map((bit) => (-share * bit) / count),
      gradients.entropies,
    )
  const held = [...gradEntropy].reduce((total, one, t) => total + one * batch.entropy[t], 0)
  const ours =
    farther('bonus', metrics.entropyLoss, held) ??
    farther('loss with it', loss, metrics.policyLoss + (metrics.klToRefLoss ?? 0) + metrics.entropyLoss)
  if (row.loss === 'bnpo') {
    return (
      theirs ??
      ours ??
      farther(
        'd entropies of ours',
        gradEntropy.map((one) => one / accumulated(row)),
        gradients.entropies,
      )
    )
  }
  return decided(OWN_BONUS, theirs, ours)
}

/**
 * The values of TorchRL's GRPOLoss, DAPO and CISPOLoss, with its padding and its means over every position: the other side of each decision.
 * A row must hold these values, so that nothing in it can be another and still count as a departure.
 */

import { flat } from './loss-rows.mjs'

const sum = (values) => values.reduce((total, value) => total + value, 0)
const mean = (values) => sum(values) / values.length

/** Returns true if TorchRL fails: for invalid bounds, a missing reference, or an advantage with too few dimensions. */
export function failsInTorchrl({ config, advantage, ref_log_probs: reference }) {
  const [low, high = low] = flat(config.clip_epsilon ?? 0.2)
  const isFlat = advantage.every((values) => !Array.isArray(values[0]))
  return low >= 1 || low < 0 || high < 0 || (config.kl_to_ref_coeff > 0 && !reference) || isFlat
}

/** Outputs and gradients as a row holds them; tokens of all sequences one after another, padding included. */
export function torchrlLoss(row) {
  const { config } = row
  const [width, count] = [row.mask[0].length, row.mask.length]
  const cells = Array.from({ length: count * width }, (_, at) => [Math.floor(at / width), at % width])
  const padded = (rows, side = 'left') =>
    cells.map(([s, t]) => {
      const values = flat(rows[s])
      return values[side === 'left' ? t - (width - values.length) : t] ?? 0
    })
  const [current, previous] = [row.cur_log_probs ?? row.dist_log_probs, row.sample_log_probs].map((rows) =>
    padded(rows),
  )
  const advantage = cells.map(([s, t]) => {
    const values = flat(row.advantage[s])
    return values.length === 1 ? values[0] : (values[t] ?? 0)
  })
  const attended = flat(row.mask).map((bit, at) => bit === 1 && Number.isFinite(previous[at]))
  const logRatio = attended.map((is, at) => (is ? current[at] - previous[at] : 0))
  const threshold = config.kl_mask_threshold ?? 0
  const trained = attended.map((is, at) => is && !(threshold > 0 && 0.5 * logRatio[at] ** 2 > threshold))
  const bounds = boundsOf(config)
  const clipped = logRatio.map((one) => Math.min(Math.max(one, bounds[0]), bounds[1]))
  const tokens = logRatio.map((one, at) => objectiveOf(row, one, clipped[at], advantage[at]))
  const join = aggregation(row, trained, width, count)
  const entropies = flat(row.entropies ?? row.dist_entropy)
  const coefficient = config.entropy_coeff ?? 0.01
  const outputs = {
    loss_objective: join.value(tokens.map(({ loss }) => loss)),
    clip_fraction: mean(clipped.map((one, at) => Number(one !== logRatio[at]))),
    kl_approx: mean(logRatio.map((one) => -one)),
    ESS: effective(logRatio.filter((_, at) => trained[at])),
    entropy: mean(entropies),
    loss_entropy: join.value(entropies.map((one) => -coefficient * one)),
  }
  const gradients = {
    loss_objective: join.gradient(tokens.map(({ slope }, at) => (attended[at] ? slope : 0))),
    loss_entropy: join.gradient(entropies.map(() => -coefficient)),
  }
  for (const [name, factor, rows] of [
    ['kl_to_ref', config.kl_to_ref_coeff > 0 ? config.kl_to_ref_coeff : undefined, row.ref_log_probs],
    ['kl_to_inference', config.kl_to_inference_coeff, row.sample_log_probs],
  ]) {
    if (factor === undefined) continue
    const reference = padded(rows)
    const gaps = trained.map((is, at) => (is ? reference[at] - (attended[at] ? current[at] : 0) : 0))
    outputs[name] = mean(gaps.map((gap) => Math.expm1(gap) - gap))
    outputs[`loss_${name}`] = factor * outputs[name]
    gradients[`loss_${name}`] = gaps.map((gap) => (-factor * Math.expm1(gap)) / gaps.length)
  }
  return { outputs, gradients, isClipped: clipped.map((one, at) => one !== logRatio[at]) }
}

function boundsOf({ clip_epsilon: given }) {
  const [low, high = low] = flat(given ?? 0.2)
  return [Math.log1p(-low), Math.log1p(high)]
}

/** A token's loss, and what the loss changes by with the token's log-probability. */
function objectiveOf({ loss, dtype }, logRatio, clipped, advantage) {
  const ratio = dtype === 'float32' ? Math.fround(Math.exp(logRatio)) : Math.exp(logRatio)
  const [free, held] = [ratio * advantage, Math.exp(clipped) * advantage]
  const inside = clipped === logRatio
  if (loss === 'CISPOLoss') return { loss: -held, slope: inside ? -free : 0 }
  // The branch that is not taken has the slope 0 times its ratio, which has none where that overflows.
  return { loss: -Math.min(free, held), slope: inside || free < held ? -free : 0 * ratio }
}

function effective(logRatios) {
  const [one, two] = [sum(logRatios.map(Math.exp)), sum(logRatios.map((ratio) => Math.exp(2 * ratio)))]
  return one ** 2 / two / logRatios.length
}

/** The reduction of tokens to one value: none, a mean over prompts of means, or one mean, which alone uses the collector's mask. */
function aggregation({ config, collector_mask: collector }, trained, width, count) {
  const counts = (s) => Math.max(sum(trained.slice(s * width, (s + 1) * width).map(Number)), 1)
  const isCollected = collector ? flat(collector).map((bit) => bit === 1) : trained.map(() => true)
  const isPlain = config.aggregation === 'none' || config.reduction === 'none'
  const isTaken = trained.map(
    (is, at) => is && (isPlain || config.aggregation === 'prompt_mean' || isCollected[at]),
  )
  const total = sum(isTaken.map(Number))
  const weights = isTaken.map((is, at) => {
    if (!is) return 0
    if (isPlain) return 1
    return config.aggregation === 'prompt_mean' ? 1 / counts(Math.floor(at / width)) / count : 1 / total
  })
  const gradient = (values) => values.map((value, at) => (weights[at] === 0 ? 0 : value * weights[at]))
  return {
    gradient,
    value: (values) => (isPlain ? gradient(values) : sum(gradient(values))),
  }
}

const shapeOf = (value) => (Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [])

/** The first part of a row that is not what TorchRL computes. */
export function notTorchrl(row) {
  const { outputs, gradients } = torchrlLoss(row)
  const near = row.dtype === 'float64' ? 1e-9 : /extreme/.test(row.case) ? 1e-4 : 1e-5
  const absolute = row.dtype === 'float64' ? 1e-9 : 1e-6
  for (const [part, theirs] of [
    ['outputs', outputs],
    ['gradients', gradients],
  ]) {
    if (part === 'gradients' && row.logits) continue
    const names = Object.keys(row[part])
    const strange = names.find((name) => !(name in theirs))
    if (strange !== undefined) return `${part}.${strange} is not known`
    for (const [name, value] of Object.entries(theirs)) {
      if (row[part][name] === undefined) return `${part}.${name} is missing`
      const [got, want] = [flat(row[part][name]), flat(value)]
      if (got.length !== want.length)
        return `${part}.${name} has ${got.length} numbers, TorchRL ${want.length}`
      const largest = Math.max(...want.map(Math.abs).filter(Number.isFinite), 0)
      const at = got.findIndex(
        (one, index) =>
          !Object.is(one, want[index]) && !(Math.abs(one - want[index]) <= near * largest + absolute),
      )
      if (at >= 0) return `${part}.${name}[${at}] is ${got[at]}, TorchRL computes ${want[at]}`
      const shape = row.output_shapes?.[name]
      if (part === 'outputs' && row.output_shapes && String(shape) !== String(shapeOf(row[part][name])))
        return `output_shapes.${name} is ${shape} for ${got.length} numbers`
    }
  }
  return undefined
}

import { describe, expect, it } from 'vitest'
import { DPOLoss, type DPOLossOptions, type PreferenceBatch } from '../../src/objective/index.js'
import { bitsOf, expectNear, flat, type Row, readRows } from './rows.js'

const BATCH: PreferenceBatch = {
  logProb: Float32Array.of(Number.NaN, -1, -2, -3),
  refLogProb: Float32Array.of(Number.NaN, -1, -2, -3),
  mask: Uint8Array.of(0, 1, 1, 1),
  offsets: Uint32Array.of(0, 2, 4),
}

const camel = (name: string) => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())

/** `[chosen..., rejected...]` pair by pair. */
function inPairs(rows: number[][]): number[][] {
  const half = rows.length / 2
  return rows.slice(0, half).flatMap((chosen, pair) => [chosen, rows[half + pair] ?? []])
}

function optionsOf(row: Row): DPOLossOptions {
  const divergence = camel(row.f_divergence_type)
  return {
    lossWeights: Object.fromEntries(
      row.loss_types.map((name: string, at: number) => [camel(name), row.loss_weights[at]]),
    ),
    beta: row.beta,
    labelSmoothing: row.label_smoothing,
    fDivergence:
      divergence === 'alphaDivergence'
        ? { alphaDivergence: row.f_alpha_divergence_coef }
        : (divergence as 'reverseKl'),
    ...(row.ld_alpha !== null && { ldAlpha: row.ld_alpha }),
    useWeighting: row.use_weighting,
    discopopTau: row.discopop_tau,
  }
}

function batchOf(row: Row): PreferenceBatch {
  const [logProb, reference] = [inPairs(row.log_probs), inPairs(row.ref_log_probs)]
  const length = logProb[0]?.length ?? 0
  return {
    logProb: Float32Array.from(flat(logProb)),
    refLogProb: Float32Array.from(flat(reference)),
    ...(row.log_sum_sq_probs && { logSumSqProb: Float32Array.from(flat(inPairs(row.log_sum_sq_probs))) }),
    mask: Uint8Array.from(flat(inPairs(row.completion_mask).map((mask) => mask.slice(1)))),
    offsets: Uint32Array.from({ length: logProb.length + 1 }, (_, s) => s * length),
  }
}

const throwing = (code: string) => expect.objectContaining({ code })

describe('DPOLoss', () => {
  it('gives the loss, the gradient and the metrics of trl for every type and option', () => {
    const rows = readRows('preference', (row) => row.kind === 'trl_dpo')
    expect(new Set(rows.flatMap((row) => row.loss_types)).size).toBe(15)
    for (const row of rows) {
      const { loss, gradLogProb, metrics } = new DPOLoss(optionsOf(row)).forward(batchOf(row))
      expectNear([loss], [row.loss])
      expectNear(gradLogProb, flat(inPairs(row.gradient)))
      expectNear([metrics.accuracy ?? -1], [row.metrics['rewards/accuracies']])
      expectNear([metrics.margin ?? -1], [row.metrics['rewards/margins']])
    }
  })

  it('gives a term for each loss, before its weight, and says what means are over', () => {
    const { loss, metrics, denominators } = new DPOLoss({
      lossWeights: { sigmoid: 2, apoZero: 0.5 },
    }).forward(BATCH)
    expectNear([metrics.sigmoidLoss ?? 0, metrics.apoZeroLoss ?? 0, loss], [Math.LN2, 1, 2 * Math.LN2 + 0.5])
    expect(denominators).toMatchObject({ sigmoidLoss: 1, accuracy: 1, margin: 1 })
    expect(metrics).toMatchObject({ numPairs: 1, numTokens: 3 })
  })

  it('adds up over micro-batches that know the pairs and chosen tokens of their step', () => {
    const lossWeights = { sigmoid: 1, sft: 0.3 }
    const row = readRows('preference', (one) => one.kind === 'trl_dpo' && one.log_probs.length === 6)[0]
    const whole = batchOf(row as Row)
    const { offsets, mask } = whole
    const chosen = [0, 2, 4].flatMap((s) => [...mask.subarray(offsets[s], offsets[s + 1])])
    const step = new DPOLoss({
      lossWeights,
      numPairs: 3,
      numChosenTokens: chosen.reduce((sum, bit) => sum + bit, 0),
    })
    const parts = [0, 1, 2].map((pair) => {
      const [start, end] = [offsets[2 * pair], offsets[2 * pair + 2]]
      return step.forward({
        logProb: whole.logProb.subarray(start, end),
        refLogProb: whole.refLogProb.subarray(start, end),
        mask: mask.subarray(start, end),
        offsets: offsets.slice(2 * pair, 2 * pair + 3).map((bound) => bound - (start ?? 0)),
      })
    })
    const { loss, gradLogProb } = new DPOLoss({ lossWeights }).forward(whole)
    expectNear([parts.reduce((sum, part) => sum + part.loss, 0)], [loss], 1e-12)
    expectNear(
      parts.flatMap((part) => [...part.gradLogProb]),
      gradLogProb,
      1e-6,
    )
  })

  it('gives the same bits on every backend', () => {
    const fraction = (step: number) => Float32Array.from({ length: 40 }, (_, t) => -((t * step) % 101) / 32)
    const loss = new DPOLoss({
      lossWeights: { sigmoid: 1, robust: 0.5, bcoPair: 0.25, discopop: 0.125, aot: 0.75, sft: 0.1 },
      labelSmoothing: 0.1,
      discopopTau: 0.5,
    })
    const { loss: value, gradLogProb } = loss.forward({
      logProb: fraction(37),
      refLogProb: fraction(29),
      mask: Uint8Array.from({ length: 40 }, (_, t) => (t % 5 === 0 ? 0 : 1)),
      offsets: Uint32Array.of(0, 8, 13, 31, 40),
    })
    expect(bitsOf(Float64Array.of(value), gradLogProb)).toBe('58a751de61b4074b')
  })

  it('names an unknown loss and the nearest known one', () => {
    const wrong = () => new DPOLoss({ lossWeights: { sigmoyd: 1 } as object })
    expect(wrong).toThrow("DPOLoss.lossWeights.sigmoyd must be a known key: did you mean 'sigmoid'?")
  })

  it.each([
    ['UNKNOWN_NAME', { betta: 0.1 }],
    ['UNKNOWN_NAME', { fDivergence: 'chiSquared' }],
    ['UNKNOWN_NAME', { fDivergence: { alpha: 2 } }],
    ['OUT_OF_RANGE', { beta: 0 }],
    ['OUT_OF_RANGE', { beta: Number.NaN }],
    ['OUT_OF_RANGE', { labelSmoothing: 0.5, lossWeights: { robust: 1 } }],
    ['OUT_OF_RANGE', { ldAlpha: 1.5 }],
    ['OUT_OF_RANGE', { lossWeights: { ipo: -1 } }],
    ['INCOMPATIBLE', { labelSmoothing: 0.1 }],
    ['INCOMPATIBLE', { lossWeights: { exoPair: 1 } }],
    ['INCOMPATIBLE', { lossWeights: { aot: 1 }, useWeighting: true }],
    ['EMPTY', { lossWeights: {} }],
    ['MALFORMED', { lossWeights: { ipo: '1' } }],
    ['MALFORMED', null],
  ])('refuses with %s the options %j', (code, options) => {
    expect(() => new DPOLoss(options as DPOLossOptions)).toThrow(throwing(code))
  })

  it.each([
    ['NON_FINITE', { mask: Uint8Array.of(1, 1, 1, 1) }],
    ['SHAPE_MISMATCH', { refLogProb: Float32Array.of(-1) }],
    ['SHAPE_MISMATCH', { offsets: Uint32Array.of(0, 4) }],
    ['EMPTY', { mask: new Uint8Array(4) }],
    ['EMPTY', { mask: Uint8Array.of(0, 0, 1, 1) }],
    ['OUT_OF_RANGE', { offsets: Uint32Array.of(0, 3, 2) }],
    ['MALFORMED', { refLogProb: undefined }],
    ['UNKNOWN_NAME', { reflogProb: BATCH.logProb }],
  ])('refuses with %s the batch %j', (code, change) => {
    expect(() => new DPOLoss().forward({ ...BATCH, ...change } as PreferenceBatch)).toThrow(throwing(code))
  })

  it('refuses to weigh pairs without what it weighs them by', () => {
    expect(() => new DPOLoss({ useWeighting: true }).forward(BATCH)).toThrow(throwing('EMPTY'))
  })
})

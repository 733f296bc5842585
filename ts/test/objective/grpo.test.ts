import { describe, expect, it } from 'vitest'
import {
  type Correction,
  GRPOLoss,
  type GRPOLossOptions,
  type GRPOPreset,
  type LossBatch,
  type Normalization,
} from '../../src/objective/index.js'
import { bitsOf, expectNear, flat, type Row, readRows } from './rows.js'

const BATCH: LossBatch = {
  logProb: Float32Array.of(-1, -0.5, -2),
  oldLogProb: Float32Array.of(-1, -0.5, -2),
  advantage: Float32Array.of(1, -1),
  mask: Uint8Array.of(0, 1, 1),
  offsets: Uint32Array.of(0, 2, 3),
}

/** Forty tokens of exact fractions, the same in `crates/fulmar-objective/tests/objective/bits.rs`. */
function exactBatch(): LossBatch {
  const fraction = (step: number) => Float32Array.from({ length: 40 }, (_, t) => -((t * step) % 101) / 32)
  return {
    logProb: fraction(37),
    oldLogProb: Float32Array.from(fraction(37), (value, t) => value + (((t * 7) % 11) - 5) / 16),
    refLogProb: Float32Array.from(fraction(37), (value, t) => value + (((t * 5) % 13) - 6) / 16),
    entropy: Float32Array.from({ length: 40 }, (_, t) => (t % 9) / 8),
    advantage: Float32Array.from({ length: 4 }, (_, s) => (s - 1.25) / 2),
    mask: Uint8Array.from({ length: 40 }, (_, t) => (t % 4 === 0 ? 0 : 1)),
    offsets: Uint32Array.of(0, 13, 13, 30, 40),
  }
}

function offsetsOf(lengths: readonly number[]): Uint32Array {
  return Uint32Array.from([0, ...lengths.map((_, s) => lengths.slice(0, s + 1).reduce((a, b) => a + b))])
}

function trlBatch(row: Row): LossBatch {
  const lengths = row.cur_log_probs.map((sequence: number[]) => sequence.length)
  const tool = row.tool_mask === null ? undefined : flat(row.tool_mask)
  return {
    logProb: Float32Array.from(flat(row.cur_log_probs)),
    oldLogProb: Float32Array.from(flat(row.old_log_probs ?? row.cur_log_probs)),
    ...(row.ref_log_probs && { refLogProb: Float32Array.from(flat(row.ref_log_probs)) }),
    advantage: Float32Array.from(row.advantages),
    mask: Uint8Array.from(flat(row.mask), (bit, t) => bit * (tool?.[t] ?? 1)),
    offsets: offsetsOf(lengths),
  }
}

function trlOptions(row: Row): GRPOLossOptions {
  const { epsilon, epsilon_high: high, beta, max_completion_length: fixedLength } = row.config
  const normalization = {
    grpo: 'sequenceMean' as const,
    bnpo: 'tokenMean' as const,
    dr_grpo: { fixedLength },
    dapo: { globalTokens: row.num_items_in_batch },
  }[row.loss as 'grpo']
  const klToRef = { coefficient: beta, importanceWeighted: row.config.use_bias_correction_kl }
  return { clipEpsilon: [epsilon, high ?? epsilon], normalization, klToRef }
}

function codeOf(body: () => unknown): { code: unknown; message: string } {
  try {
    body()
  } catch (error) {
    if (error instanceof Error && 'code' in error) return { code: error.code, message: error.message }
    throw error
  }
  throw new Error('the body must throw')
}

describe('GRPOLoss', () => {
  it('gives the loss and the gradient of trl', () => {
    const rows = readRows('grpo', (row) => row.library === 'trl' && row.outputs && !row.config.entropy_coef)
    expect(rows.length).toBeGreaterThan(20)
    for (const row of rows) {
      const { loss, gradLogProb, metrics } = new GRPOLoss(trlOptions(row)).forward(trlBatch(row))
      expectNear([loss], [row.outputs.loss])
      expectNear(gradLogProb, flat(row.gradients.cur_log_probs))
      expectNear([metrics.clipFractionLow ?? -1], [row.outputs.metrics['clip_ratio/low_mean']])
      expectNear([metrics.clipFractionHigh ?? -1], [row.outputs.metrics['clip_ratio/high_mean']])
    }
  })

  it('gives the objective and the gradient of torchrl', () => {
    const simple = (row: Row) => row.case === 'grid' && Object.keys(row.config).length === 0
    for (const row of readRows('grpo', (row) => row.library === 'torchrl' && simple(row))) {
      const advantage = row.advantage.flatMap((values: number[][], s: number) =>
        row.cur_log_probs[s].map((_: number, t: number) => (values[t] ?? values[0])?.[0]),
      )
      const { loss, gradLogProb } = new GRPOLoss().forward({
        logProb: Float32Array.from(flat(row.cur_log_probs)),
        oldLogProb: Float32Array.from(flat(row.sample_log_probs)),
        advantage: Float32Array.from(advantage),
        mask: Uint8Array.from(flat(row.mask)),
        offsets: offsetsOf(row.cur_log_probs.map((sequence: number[]) => sequence.length)),
      })
      expectNear([loss], [row.outputs.loss_objective])
      expectNear(gradLogProb, flat(row.gradients.loss_objective))
    }
  })

  it('gives the same bits on every backend', () => {
    const loss = new GRPOLoss({
      clipEpsilon: [0.1, 0.3],
      dualClip: 1.5,
      normalization: 'sequenceMean',
      klToRef: { coefficient: 0.1 },
      klToInference: { estimator: 'k2', coefficient: 0.2 },
      entropyCoefficient: 0.01,
    })
    const { loss: value, gradLogProb, gradEntropy } = loss.forward(exactBatch())
    expect(bitsOf(Float64Array.of(value), gradLogProb, gradEntropy ?? new Float32Array())).toBe(
      '467d729fbeb018c4',
    )
  })

  it('has ratio 1 and clips nothing when the sampler and the trainer agree', () => {
    const { metrics } = new GRPOLoss({ clipEpsilon: 0 }).forward(BATCH)
    expect(metrics).toMatchObject({ ratioMean: 1, ratioMax: 1, clipFraction: 0, kl: 0, ess: 1, numTokens: 2 })
  })

  it('says what each mean is over', () => {
    const { metrics, denominators } = new GRPOLoss().forward({
      ...BATCH,
      oldLogProb: Float32Array.of(-1, Number.NaN, -2),
    })
    expect(metrics).toMatchObject({ numTokens: 1, numNonFinite: 1 })
    expect(denominators).toMatchObject({ ratioMean: 1, clipFraction: 1, policyLoss: 1 })
    expect(new GRPOLoss().forward(BATCH).denominators.clipFraction).toBe(2)
  })

  it('returns the gradient of the entropies only when they are in the loss', () => {
    const entropy = Float32Array.of(Number.NaN, 1, 2)
    const bonus = new GRPOLoss({ entropyCoefficient: 0.5 }).forward({ ...BATCH, entropy })
    expect([...(bonus.gradEntropy ?? [])]).toEqual([0, -0.25, -0.25])
    expect(bonus.metrics).toMatchObject({ entropy: 1.5, entropyLoss: -0.75 })
    expect(new GRPOLoss().forward({ ...BATCH, entropy }).gradEntropy).toBeUndefined()
  })

  it('leaves the input arrays as they were', () => {
    const before = structuredClone(BATCH)
    new GRPOLoss().forward(BATCH)
    expect(BATCH).toEqual(before)
  })

  it('names an unknown option and the nearest known one', () => {
    const wrong: object[] = [
      { clipEpsilonn: 0.2 },
      { klToRef: { coeficient: 0.1 } },
      { normalization: { fixedLenght: 8 } },
    ]
    const messages = wrong.map((options) => codeOf(() => new GRPOLoss(options)))
    expect(messages).toEqual([
      {
        code: 'UNKNOWN_NAME',
        message: "GRPOLoss.clipEpsilonn must be a known key: did you mean 'clipEpsilon'?",
      },
      {
        code: 'UNKNOWN_NAME',
        message: "GRPOLoss.klToRef.coeficient must be a known key: did you mean 'coefficient'?",
      },
      {
        code: 'UNKNOWN_NAME',
        message: "GRPOLoss.normalization.fixedLenght must be a known key: did you mean 'fixedLength'?",
      },
    ])
  })

  it.each([
    ['OUT_OF_RANGE', { clipEpsilon: -0.1 }],
    ['OUT_OF_RANGE', { clipEpsilon: [0.2, Number.NaN] }],
    ['OUT_OF_RANGE', { dualClip: Number.NaN }],
    ['OUT_OF_RANGE', { dualClip: 1.1 }],
    ['OUT_OF_RANGE', { klMaskThreshold: Number.POSITIVE_INFINITY }],
    ['OUT_OF_RANGE', { normalization: { globalTokens: 0 } }],
    ['OUT_OF_RANGE', { klToRef: { coefficient: -1 } }],
    ['UNKNOWN_NAME', { normalization: 'tokens' }],
    ['UNKNOWN_NAME', { klToRef: { estimator: 'k4' } }],
    ['MALFORMED', { clipEpsilon: '0.2' }],
    ['MALFORMED', { clipEpsilon: [0.2] }],
    ['MALFORMED', null],
  ])('refuses with %s the options %j', (code, options) => {
    expect(codeOf(() => new GRPOLoss(options as GRPOLossOptions)).code).toBe(code)
  })

  it.each([
    [
      'SHAPE_MISMATCH',
      'old_log_prob length must equal log_prob = 3: got 1',
      { oldLogProb: Float32Array.of(-1) },
    ],
    [
      'SHAPE_MISMATCH',
      'advantage length must be 2 (sequences) or 3 (tokens): got 4',
      { advantage: new Float32Array(4) },
    ],
    [
      'SHAPE_MISMATCH',
      'last offset must equal the number of tokens = 3: got 4',
      { offsets: Uint32Array.of(0, 2, 4) },
    ],
    ['OUT_OF_RANGE', 'mask[1] must be 0 or 1: got 7', { mask: Uint8Array.of(0, 7, 1) }],
    ['EMPTY', 'mask must train at least one token: got 0 of 3', { mask: new Uint8Array(3) }],
    ['NON_FINITE', 'log_prob[2] must be finite: got NaN', { logProb: Float32Array.of(-1, -1, Number.NaN) }],
    ['NON_FINITE', 'advantage[1] must be finite: got NaN', { advantage: Float32Array.of(1, Number.NaN) }],
    ['MALFORMED', 'mask must be a Uint8Array: got an array of 3', { mask: [0, 1, 1] }],
    ['MALFORMED', 'logProb must be a Float32Array: got Float64Array', { logProb: new Float64Array(3) }],
    ['MALFORMED', 'oldLogProb must be a Float32Array: got undefined', { oldLogProb: undefined }],
    [
      'UNKNOWN_NAME',
      "batch.refLogprob must be a known key: did you mean 'refLogProb'?",
      { refLogprob: BATCH.logProb },
    ],
  ])('refuses a batch with %s: %s', (code, message, change) => {
    const batch = { ...BATCH, ...change } as LossBatch
    expect(codeOf(() => new GRPOLoss().forward(batch))).toEqual({ code, message })
  })

  it('refuses a penalty without its reference', () => {
    const loss = new GRPOLoss({ klToRef: { coefficient: 0.1 } })
    expect(codeOf(() => loss.forward(BATCH)).code).toBe('EMPTY')
  })

  it('gives the family of trl: sapo, vespo, gmpo, luspo and cispo', () => {
    const presets = { sapo: 'sapo', vespo: 'vespo', gmpo: 'gmpo', luspo: 'luspo', cispo: 'cispo' } as const
    const plain = (row: Row) =>
      row.outputs && !row.importance_sampling_ratio && !row.config.off_policy_mask_threshold
    const rows = readRows(
      'family',
      (row) => row.library !== 'torchrl' && plain(row) && !row.config.entropy_coef,
    )
    expect(new Set(rows.map((row) => row.loss)).size).toBe(5)
    for (const row of rows) {
      const { epsilon, epsilon_high: high, beta } = row.config
      const { gradLogProb, loss } = new GRPOLoss({
        preset: presets[row.loss as 'sapo'],
        ratio: 'token', // these rows of luspo ask for it
        clipEpsilon: [epsilon, high ?? epsilon],
        ...(row.loss === 'cispo' && { surrogate: { cispo: { cap: high ?? epsilon } } }),
        ...(/vespo|cispo/.test(row.loss) && {
          normalization: { globalTokens: Math.max(row.num_items_in_batch, 1) },
        }),
        klToRef: { coefficient: beta, importanceWeighted: row.loss !== 'gmpo' },
        logRatioMax: 700,
      }).forward(trlBatch(row))
      expectNear([loss], [row.outputs.loss])
      expectNear(gradLogProb, flat(row.gradients.cur_log_probs))
    }
  })

  it.each<[GRPOPreset, GRPOLossOptions]>([
    ['grpo', { normalization: 'sequenceMean' }],
    ['bnpo', {}],
    ['dapo', { clipEpsilon: [0.2, 0.28] }],
    ['gspo', { ratio: 'sequence', clipEpsilon: [3e-4, 4e-4], normalization: 'sequenceMean' }],
    ['gspoToken', { ratio: 'sequenceToken', clipEpsilon: [3e-4, 4e-4], normalization: 'sequenceMean' }],
    ['cispo', { surrogate: { cispo: { cap: 5 } } }],
    ['sapo', { surrogate: { sapo: { tauPositive: 1, tauNegative: 1.05 } }, normalization: 'sequenceMean' }],
    ['luspo', { ratio: 'sequence', clipEpsilon: [2e-3, 2.5e-3], normalization: { fixedLength: 1 } }],
    ['vespo', { surrogate: { vespo: { positive: { k: 2, lambda: 3 }, negative: { k: 3, lambda: 2 } } } }],
    ['gmpo', { surrogate: 'gmpo', clipEpsilon: 0.4, normalization: 'sequenceMean' }],
    ['rloo', { ratio: 'sequenceProduct', normalization: 'sequenceMean' }],
  ])('means by the preset %s the options %j', (preset, options) => {
    const batch = exactBatch()
    expect(new GRPOLoss({ preset }).forward(batch)).toEqual(new GRPOLoss(options).forward(batch))
  })

  it('asks for a length with drGrpo, and lets options replace what a preset chose', () => {
    expect(codeOf(() => new GRPOLoss({ preset: 'drGrpo' })).code).toBe('EMPTY')
    const fixed: GRPOLossOptions = { normalization: { fixedLength: 20 } }
    const batch = exactBatch()
    expect(new GRPOLoss({ preset: 'drGrpo', ...fixed }).forward(batch)).toEqual(
      new GRPOLoss(fixed).forward(batch),
    )
    const wide = new GRPOLoss({ preset: 'dapo', clipEpsilon: 0.2 }).forward(batch)
    expect(wide).toEqual(new GRPOLoss().forward(batch))
    expect(codeOf(() => new GRPOLoss({ preset: 'ppo' as GRPOPreset })).code).toBe('UNKNOWN_NAME')
  })

  it('multiplies by how likely the sampler found a token, or rejects it', () => {
    const batch = { ...BATCH, samplerLogProb: Float32Array.of(-1, -0.5 - Math.LN2, -2 + Math.LN2) }
    const corrected = (correction: Correction) =>
      new GRPOLoss({ corrections: [correction], keepRejected: true }).forward(batch)
    expectNear(corrected({ max: 1.5 }).gradLogProb, [0, -0.75, 0.25])
    const masked = corrected({ rule: 'mask', max: 1.5 })
    expectNear(masked.gradLogProb, [0, 0, 0.25])
    expect(masked.metrics.numRejected).toBe(1)
    expect(codeOf(() => new GRPOLoss({ corrections: [{}] }).forward(BATCH)).code).toBe('EMPTY')
    const unknown = { corrections: [{ levle: 'token' }] } as object
    expect(codeOf(() => new GRPOLoss(unknown)).code).toBe('UNKNOWN_NAME')
  })

  it('trains a token whose sampler told nothing, with the ratio 1', () => {
    const told = (last: number) => ({ ...BATCH, samplerLogProb: Float32Array.of(0, -0.7, last) })
    const loss = new GRPOLoss({ corrections: [{ rule: 'mask', max: 1.5 }] })
    const [unknown, equal] = [loss.forward(told(Number.NaN)), loss.forward(told(BATCH.oldLogProb[2] ?? 0))]
    expect(unknown.gradLogProb).toEqual(equal.gradLogProb)
    expect([unknown.metrics.numSamplerUnknown, unknown.metrics.numNonFinite]).toEqual([1, 0])
    expect(codeOf(() => loss.forward(told(Number.NEGATIVE_INFINITY))).code).toBe('NON_FINITE')
  })

  it('clamps the log-ratio as torchtitan does, and chooses tokens by their entropy', () => {
    const batch = {
      logProb: Float32Array.of(-1, -1),
      oldLogProb: Float32Array.of(-15, -1),
      advantage: Float32Array.of(-1),
      mask: Uint8Array.of(1, 1),
      offsets: Uint32Array.of(0, 2),
    }
    const { loss, gradLogProb } = new GRPOLoss({ preset: 'torchtitan' }).forward(batch)
    expectNear([loss / ((Math.exp(10) + 1) / 2), ...gradLogProb], [1, 0, 0.5])
    const chosen = new GRPOLoss({ topEntropyQuantile: 0.5 })
    const entropy = Float32Array.of(0.1, 0.9)
    expect([...chosen.forward({ ...batch, entropy }).gradLogProb]).toEqual([0, 0.5])
    expect(codeOf(() => chosen.forward(batch)).code).toBe('EMPTY')
  })

  it('takes the surrogates of tokens with the ratio of a sequence only where they have one', () => {
    for (const preset of ['cispo', 'sapo', 'vespo'] as const) new GRPOLoss({ preset, ratio: 'sequence' })
    for (const surrogate of ['gmpo', { dppo: { delta: 0.2 } }] as const) {
      expect(codeOf(() => new GRPOLoss({ surrogate, ratio: 'sequence' })).code).toBe('INCOMPATIBLE')
    }
  })

  it('adds up over micro-batches under the counts of a whole step', () => {
    const { offsets, ...columns } = exactBatch()
    const trained = columns.mask.reduce((sum, bit) => sum + bit, 0)
    const twins: [Normalization, Normalization][] = [
      ['tokenMean', { globalTokens: trained }],
      ['sequenceMean', { globalSequences: 4 }],
      [{ fixedLength: 20 }, { globalTokens: 4 * 20 }],
    ]
    for (const [here, ofStep] of twins) {
      const whole = new GRPOLoss({ normalization: here }).forward({ ...columns, offsets })
      const parts = [0, 2, 3].map((s) => {
        // sequence 1 is empty
        const [start = 0, end] = [offsets[s], offsets[s + 1]]
        const part = (values: Float32Array) => values.subarray(start, end)
        return new GRPOLoss({ normalization: ofStep }).forward({
          logProb: part(columns.logProb),
          oldLogProb: part(columns.oldLogProb),
          advantage: columns.advantage.subarray(s, s + 1),
          mask: columns.mask.subarray(start, end),
          offsets: Uint32Array.of(0, (end ?? 0) - start),
        })
      })
      expectNear([parts.reduce((sum, part) => sum + part.loss, 0)], [whole.loss], 1e-12)
      expectNear(
        parts.flatMap((part) => [...part.gradLogProb]),
        whole.gradLogProb,
        1e-7,
      )
    }
  })
})

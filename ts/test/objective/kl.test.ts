import { describe, expect, it } from 'vitest'
import {
  AdaptiveKLController,
  ConstantKLController,
  importanceWeights,
  type KlEstimateOptions,
  klEstimate,
  klReward,
} from '../../src/objective/index.js'
import { expectNear, flat, readRows } from './rows.js'

describe('klEstimate', () => {
  it('gives k1, k3 and their gradients as torchrl does', () => {
    for (const row of readRows('kl', (row) => row.kind === 'k3_token_estimate')) {
      const count = row.log_probs.length
      const options = {
        logProb: Float32Array.from(flat(row.log_probs)),
        refLogProb: Float32Array.from(flat(row.target_log_probs)),
        mask: new Uint8Array(count).fill(1),
      }
      const { kl, gradLogProb, numTokens } = klEstimate(options)
      expect(numTokens).toBe(count)
      expectNear(kl, row.k3)
      expectNear(
        gradLogProb.map((gradient) => gradient * count),
        row.k3_grad_log_probs,
      )
      expectNear(klEstimate({ ...options, estimator: 'k1' }).kl, row.k1_from_KLComputation)
    }
  })

  it.each<[string, object]>([
    ['SHAPE_MISMATCH', { mask: Uint8Array.of(1) }],
    ['NON_FINITE', { refLogProb: Float32Array.of(0, Number.NEGATIVE_INFINITY) }],
    ['OUT_OF_RANGE', { mask: Uint8Array.of(1, 2) }],
    ['UNKNOWN_NAME', { estimator: 'k4' }],
    ['UNKNOWN_NAME', { estimater: 'k1' }],
    ['MALFORMED', { logProb: [0, 0] }],
  ])('refuses with %s the change %j', (code, change) => {
    const options = {
      logProb: new Float32Array(2),
      refLogProb: new Float32Array(2),
      mask: Uint8Array.of(1, 1),
    }
    const estimate = () => klEstimate({ ...options, ...change } as KlEstimateOptions)
    expect(estimate).toThrow(expect.objectContaining({ code }))
  })
})

const offsetsOf = (rows: number[][]) =>
  Uint32Array.from([0, ...rows.map((_, s) => flat(rows.slice(0, s + 1)).length)])
const floats = (value: unknown) => Float32Array.from(flat(value))

describe('klReward', () => {
  it('gives the penalties and rewards of torchrl', () => {
    const kinds = ['KLComputation', 'KLRewardTransform']
    for (const row of readRows('kl', (row) => kinds.includes(row.kind) && !row.upstream_bug)) {
      const logProbs: number[][] = row.gen_log_probs ?? row.log_probs
      const behind = logProbs.map((tokens, s) => tokens.map((_, t) => t >= (row.prompt_lengths?.[s] ?? 0)))
      const { kl, reward } = klReward({
        logProb: floats(logProbs),
        refLogProb: floats(row.ref_log_probs),
        mask: Uint8Array.from(flat(row.assistant_mask ?? behind)),
        offsets: offsetsOf(logProbs),
        reward: floats(row.rewards),
        coefficient: row.coef ?? row.config?.coeff ?? 1,
        place: 'everyToken',
      })
      expectNear(kl, flat(row.outputs.kl ?? row.outputs.kl_penalty))
      if (row.outputs.reward) expectNear(reward, flat(row.outputs.reward))
    }
  })
})

describe('klReward with a reward for each token', () => {
  const tokens = {
    logProb: Float32Array.of(-1, -2, -3),
    refLogProb: Float32Array.of(-2, -2.5, -1),
    mask: Uint8Array.of(1, 1, 0),
    offsets: Uint32Array.of(0, 2, 3),
    coefficient: 0.5,
  }

  it('leaves each in its place', () => {
    expectNear(klReward({ ...tokens, reward: Float32Array.of(5, 6, 7) }).reward, [4.5, 5.75, 7])
  })

  it('refuses a place for them, and other lengths', () => {
    const codeOf = (change: object) => () =>
      klReward({ ...tokens, reward: Float32Array.of(5, 6, 7), ...change })
    expect(codeOf({ place: 'lastToken' })).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
    expect(codeOf({ reward: new Float32Array(4) })).toThrow(
      expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
    )
  })
})

describe('importanceWeights', () => {
  it('gives the ratio 1 where the sampler told nothing, and refuses an infinity', () => {
    const weigh = (first: number) =>
      importanceWeights({
        oldLogProb: Float32Array.of(-1, -1),
        samplerLogProb: Float32Array.of(first, -1.5),
        mask: Uint8Array.of(1, 1),
        offsets: Uint32Array.of(0, 2),
        level: 'sequence',
      })
    expectNear(weigh(Number.NaN), [Math.exp(0.5), Math.exp(0.5)])
    expect(() => weigh(Number.NEGATIVE_INFINITY)).toThrow(expect.objectContaining({ code: 'NON_FINITE' }))
  })

  it('gives the ratios of trl', () => {
    for (const row of readRows('kl', ({ kind }) => kind === 'trl_vllm_importance_ratio')) {
      const [level, rule] = row.mode.split('_')
      const mask = Uint8Array.from(flat(row.completion_mask))
      const weights = importanceWeights({
        oldLogProb: floats(row.old_log_probs),
        samplerLogProb: floats(row.sampling_log_probs),
        mask,
        offsets: offsetsOf(row.old_log_probs),
        level,
        rule,
        min: row.clip_min ?? 0,
        max: row.clip_max ?? 1e30,
      })
      const length = row.old_log_probs[0].length
      const ratios: number[] = row.ratio.flatMap((values: number[]) =>
        values.length === length ? values : Array(length).fill(values[0]),
      )
      expectNear(
        weights,
        ratios.map((ratio, t) => (mask[t] === 1 ? ratio : 1)),
      )
    }
  })
})

describe('KL controllers', () => {
  it('steer as torchrl does', () => {
    using controller = new AdaptiveKLController({ initKlCoef: 0.1, target: 6, horizon: 10_000 })
    expect(controller.update(Array(10).fill(1))).toBeCloseTo(0.09998, 10)
    expect(controller.update(Array(100).fill(10 / 0.09998))).toBeCloseTo(0.10017996, 8)
    expect(controller.coefficient).toBeCloseTo(0.10017996, 8)
    expect(() => controller.update([])).toThrow(expect.objectContaining({ code: 'EMPTY' }))
    expect(new ConstantKLController({ klCoef: 0.2 }).update()).toBe(0.2)
  })
})

import { describe, expect, it } from 'vitest'
import { type KlEstimateOptions, klEstimate } from '../../src/objective/index.js'
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

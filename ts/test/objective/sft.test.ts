import { describe, expect, it } from 'vitest'
import { type SFTBatch, SFTLoss, type SFTLossOptions } from '../../src/objective/index.js'
import { expectNear, flat, readRows } from './rows.js'

const BATCH: SFTBatch = {
  logProb: Float32Array.of(-0.5, -0.5, Number.NaN, -3),
  mask: Uint8Array.of(1, 1, 0, 1),
  offsets: Uint32Array.of(0, 3, 4),
}

describe('SFTLoss', () => {
  it('gives the token mean and the gradient of trl', () => {
    for (const row of readRows('preference', (row) => row.kind === 'trl_sft')) {
      const length = row.log_probs[0].length
      const dft = row.loss_type === 'dft'
      const { loss, gradLogProb } = new SFTLoss({ reduction: 'tokenMean', dft }).forward({
        logProb: Float32Array.from(flat(row.log_probs)),
        mask: Uint8Array.from(flat(row.label_mask)),
        offsets: Uint32Array.from({ length: row.log_probs.length + 1 }, (_, s) => s * length),
      })
      expectNear([loss], [row.loss])
      expectNear(gradLogProb, flat(row.gradient))
    }
  })

  it.each<[SFTLossOptions, number, number[]]>([
    [{}, 1.75, [0.5, 3]],
    [{ normalizeBySeqLength: false }, 2, [1, 3]],
    [{ reduction: 'sum', normalizeBySeqLength: false }, 4, [1, 3]],
    [{ reduction: 'sum' }, 3.5, [0.5, 3]],
    [{ reduction: { globalTokens: 8 } }, 0.5, [0.5, 3]],
    [{ reduction: { globalSequences: 4 } }, 0.875, [0.5, 3]],
  ])('joins sequences as %j asks', (options, loss, sequenceLoss) => {
    const result = new SFTLoss(options).forward(BATCH)
    expect([result.loss, [...result.sequenceLoss]]).toEqual([loss, sequenceLoss])
  })

  it('adds a masked KL to the reference and reports it', () => {
    const loss = new SFTLoss({ reduction: 'tokenMean', klToRef: { estimator: 'k2', coefficient: 0.5 } })
    const refLogProb = Float32Array.of(-1.5, -0.5, Number.NaN, -3)
    const { metrics, gradLogProb } = loss.forward({ ...BATCH, refLogProb })
    expectNear([metrics.klToRef ?? -1, metrics.klToRefLoss ?? -1], [0.5 / 3, 0.25 / 3])
    expectNear(gradLogProb, [-1 / 3 + 0.5 / 3, -1 / 3, 0, -1 / 3])
  })

  it('counts a sequence less the further it is ahead of the reference', () => {
    const refLogProb = Float32Array.of(-1, -1, Number.NaN, -2)
    const minor = new SFTLoss({ minorBeta: 0.1, normalizeBySeqLength: false }).forward({
      ...BATCH,
      refLogProb,
    })
    expectNear(minor.sequenceLoss, [0.6444, 0.7444], 1e-4)
    expectNear([minor.loss, minor.metrics.minorLoss ?? 0], [0.6944, 0.6944], 1e-4)
    expect(minor.gradLogProb[0]).toBeGreaterThan(minor.gradLogProb[3] ?? 0)
  })

  it('refuses what it cannot do', () => {
    const options: [object, string][] = [
      [{ reduction: 'none' }, 'UNKNOWN_NAME'],
      [{ reduction: { globalToken: 8 } }, 'UNKNOWN_NAME'],
      [{ klToRef: { importanceWeighted: true } }, 'OUT_OF_RANGE'],
      [{ normaliseBySeqLength: true }, 'UNKNOWN_NAME'],
      [{ minorBeta: 0 }, 'OUT_OF_RANGE'],
      [{ minorBeta: 0.1, dft: true }, 'INCOMPATIBLE'],
      [{ minorBeta: 0.1, reduction: 'tokenMean' }, 'INCOMPATIBLE'],
    ]
    for (const [wrong, code] of options)
      expect(() => new SFTLoss(wrong)).toThrow(expect.objectContaining({ code }))
    const batches: [object, string][] = [
      [{ mask: new Uint8Array(4) }, 'EMPTY'],
      [{ mask: Uint8Array.of(1, 1, 1, 1) }, 'NON_FINITE'],
      [{ refLogProb: new Float32Array(3) }, 'SHAPE_MISMATCH'],
      [{ offsets: [0, 4] }, 'MALFORMED'],
    ]
    for (const [change, code] of batches) {
      const forward = () => new SFTLoss().forward({ ...BATCH, ...change } as SFTBatch)
      expect(forward).toThrow(expect.objectContaining({ code }))
    }
  })
})

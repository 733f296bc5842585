import { describe, expect, it } from 'vitest'
import { type KTOBatch, KTOLoss, type KTOLossOptions } from '../../src/objective/index.js'
import { expectNear, flat, readRows } from './rows.js'

const BATCH: KTOBatch = {
  logProb: Float32Array.of(-1, -2),
  refLogProb: Float32Array.of(-1, -2),
  desirable: Uint8Array.of(1, 0),
  klLogRatio: Float32Array.of(0.5, -0.5),
  mask: Uint8Array.of(1, 1),
  offsets: Uint32Array.of(0, 1, 2),
}

const throwing = (code: string) => expect.objectContaining({ code })

describe('KTOLoss', () => {
  it('gives the loss, the gradient and the metrics of trl', () => {
    const rows = readRows('preference', (row) => row.kind === 'trl_kto')
    expect(rows.length).toBe(4)
    for (const row of rows) {
      const logProb = Float32Array.from(flat(row.log_probs))
      const lossType = row.loss_type === 'kto' ? 'kto' : 'apoZeroUnpaired'
      const { beta, desirable_weight: desirableWeight, undesirable_weight: undesirableWeight } = row
      const loss = new KTOLoss({ lossType, beta, desirableWeight, undesirableWeight })
      const result = loss.forward({
        logProb,
        refLogProb: Float32Array.from(flat(row.ref_log_probs)),
        desirable: Uint8Array.from(row.label),
        ...(row.kl_log_probs && {
          klLogRatio: Float32Array.from(row.kl_log_probs, (own: number, s) => own - row.ref_kl_log_probs[s]),
        }),
        mask: new Uint8Array(logProb.length).fill(1),
        offsets: Uint32Array.from({ length: row.label.length + 1 }, (_, s) => s * row.log_probs[0].length),
      })
      expectNear([result.loss], [row.loss])
      expectNear(result.gradLogProb, flat(row.gradient))
      expectNear([result.metrics.kl ?? -1], [row.metrics.kl])
      expectNear([result.metrics.rewardChosen ?? -9], [row.metrics['rewards/chosen']])
    }
  })

  it('means over no answer are 0 over 0', () => {
    const { metrics, denominators } = new KTOLoss().forward({ ...BATCH, desirable: Uint8Array.of(1, 1) })
    expect([metrics.rewardRejected, denominators.rewardRejected, denominators.rewardChosen]).toEqual([
      0, 0, 2,
    ])
  })

  it.each([
    ['UNKNOWN_NAME', { lossType: 'bco' }],
    ['UNKNOWN_NAME', { desirableweight: 1 }],
    ['OUT_OF_RANGE', { beta: -1 }],
    ['OUT_OF_RANGE', { desirableWeight: -1 }],
    ['OUT_OF_RANGE', { numSequences: 0 }],
  ])('refuses with %s the options %j', (code, options) => {
    expect(() => new KTOLoss(options as KTOLossOptions)).toThrow(throwing(code))
  })

  it.each([
    ['EMPTY', { klLogRatio: undefined }],
    ['EMPTY', { klLogRatio: new Float32Array() }],
    ['NON_FINITE', { klLogRatio: Float32Array.of(Number.NaN) }],
    ['NON_FINITE', { logProb: Float32Array.of(Number.NEGATIVE_INFINITY, -1) }],
    ['SHAPE_MISMATCH', { desirable: Uint8Array.of(1) }],
    ['OUT_OF_RANGE', { desirable: Uint8Array.of(1, 2) }],
    ['MALFORMED', { desirable: [1, 0] }],
    ['EMPTY', { mask: Uint8Array.of(1, 0) }],
  ])('refuses with %s the batch %j', (code, change) => {
    expect(() => new KTOLoss().forward({ ...BATCH, ...change } as KTOBatch)).toThrow(throwing(code))
  })
})

import { describe, expect, it } from 'vitest'
import {
  type DistillationBatch,
  DistillationLoss,
  type DistillationLossOptions,
} from '../../src/objective/index.js'
import { expectNear, flat, readRows } from './rows.js'

const BATCH: DistillationBatch = {
  logProb: Float32Array.of(-1, -2, -0.3),
  teacherLogProb: Float32Array.of(-0.5, -2.5, -0.1),
  mask: Uint8Array.of(1, 1, 1),
  offsets: Uint32Array.of(0, 1, 2, 3),
}

const throwing = (code: string) => expect.objectContaining({ code })

describe('DistillationLoss', () => {
  it('gives the loss and the gradient of torchrl', () => {
    const rows = readRows('preference', (row) => row.kind === 'torchrl_DistillationLoss')
    expect(rows.length).toBe(12)
    for (const row of rows) {
      const { kl_direction: direction, reduction, normalize_by_seq_length: normalizeBySeqLength } = row.config
      const joined = reduction === 'mean' ? 'mean' : 'sum'
      const loss = new DistillationLoss({ direction, reduction: joined, normalizeBySeqLength })
      const lengths: number[] = row.log_probs.map((sequence: number[]) => sequence.length)
      const result = loss.forward({
        logProb: Float32Array.from(flat(row.log_probs)),
        teacherLogProb: Float32Array.from(flat(row.ref_or_teacher_log_probs)),
        mask: Uint8Array.from(flat(row.assistant_mask)),
        offsets: Uint32Array.from({ length: lengths.length + 1 }, (_, s) =>
          lengths.slice(0, s).reduce((sum, length) => sum + length, 0),
        ),
      })
      expectNear(reduction === 'none' ? result.sequenceLoss : [result.loss], flat(row.outputs.loss_distill))
      expectNear(result.gradLogProb, flat(row.gradients))
    }
  })

  it('gives the published values of tokens', () => {
    expectNear(new DistillationLoss().forward(BATCH).sequenceLoss, [0.1487, 0.1065, 0.0214], 1e-4)
  })

  it('takes a micro-batch that trains nothing under the counts of a step', () => {
    const loss = new DistillationLoss({ reduction: { globalTokens: 5 } })
    const result = loss.forward({ ...BATCH, mask: new Uint8Array(3) })
    expect([result.loss, ...result.gradLogProb]).toEqual([0, 0, 0, 0])
  })

  it('does not dilute the mean by a sequence without a trained token', () => {
    const one = new DistillationLoss().forward({ ...BATCH, mask: Uint8Array.of(0, 1, 0) })
    expect(one.loss).toBe(one.sequenceLoss[1])
  })

  it.each([
    ['UNKNOWN_NAME', { direction: 'sideways' }],
    ['UNKNOWN_NAME', { reduction: 'average' }],
    ['OUT_OF_RANGE', { reduction: { globalSequences: 0 } }],
  ])('refuses with %s the options %j', (code, options) => {
    expect(() => new DistillationLoss(options as DistillationLossOptions)).toThrow(throwing(code))
  })

  it.each([
    ['MALFORMED', { teacherLogProb: undefined }],
    ['SHAPE_MISMATCH', { teacherLogProb: new Float32Array(2) }],
    ['EMPTY', { mask: new Uint8Array(3) }],
    ['OUT_OF_RANGE', { teacherLogProb: new Float32Array(3) }],
    ['NON_FINITE', { teacherLogProb: Float32Array.of(-1, Number.NaN, -1) }],
  ])('refuses with %s the batch %j', (code, change) => {
    expect(() => new DistillationLoss().forward({ ...BATCH, ...change } as DistillationBatch)).toThrow(
      throwing(code),
    )
  })
})

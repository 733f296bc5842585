import { describe, expect, it } from 'vitest'
import { BradleyTerryLoss, type RewardPairs } from '../../src/objective/index.js'
import { expectNear, readRows } from './rows.js'

const throwing = (code: string) => expect.objectContaining({ code })

describe('BradleyTerryLoss', () => {
  it('gives the loss, the gradient and the metrics of trl', () => {
    const rows = readRows('preference', (row) => row.kind === 'trl_reward_modeling')
    expect(rows.length).toBe(4)
    for (const row of rows) {
      const loss = new BradleyTerryLoss({ centerCoefficient: row.center_rewards_coefficient ?? 0 })
      const { metrics, ...result } = loss.forward({
        chosen: Float32Array.from(row.rewards_chosen),
        rejected: Float32Array.from(row.rewards_rejected),
        ...(row.margin && { margin: Float32Array.from(row.margin) }),
      })
      expectNear([result.loss], [row.loss])
      expectNear([...result.gradChosen, ...result.gradRejected], row.gradient)
      expectNear([metrics.accuracy ?? -1, metrics.margin ?? -9], [row.metrics.accuracy, row.metrics.margin])
    }
  })

  it('compares rewards of tokens by the mean of each pair, and equal answers not at all', () => {
    const chosen = Float32Array.of(1, 1, 0)
    const pairs = { chosen, rejected: new Float32Array(3), offsets: Uint32Array.of(0, 2, 2, 3) }
    const { loss, metrics, gradChosen } = new BradleyTerryLoss().forward(pairs)
    expectNear([loss], [(Math.log1p(Math.exp(-1)) + Math.LN2) / 2])
    expect(metrics.numPairs).toBe(2)
    expectNear([gradChosen[2] ?? 0], [-0.25])
  })

  it('refuses what it cannot compare', () => {
    const pairs: RewardPairs = { chosen: Float32Array.of(1), rejected: Float32Array.of(0) }
    const refused: [object, string][] = [
      [{ rejected: new Float32Array(2) }, 'SHAPE_MISMATCH'],
      [{ margin: new Float32Array(2) }, 'SHAPE_MISMATCH'],
      [{ offsets: Uint32Array.of(0, 2) }, 'SHAPE_MISMATCH'],
      [{ offsets: Uint32Array.of(1, 1) }, 'OUT_OF_RANGE'],
      [{ offsets: new Uint32Array() }, 'EMPTY'],
      [{ chosen: Float32Array.of(Number.NaN) }, 'NON_FINITE'],
      [{ chosen: [1] }, 'MALFORMED'],
      [{ offsets: [0, 1] }, 'MALFORMED'],
      [{ margins: Float32Array.of(1) }, 'UNKNOWN_NAME'],
    ]
    for (const [change, code] of refused) {
      const forward = () => new BradleyTerryLoss().forward({ ...pairs, ...change } as RewardPairs)
      expect(forward).toThrow(throwing(code))
    }
    expect(() => new BradleyTerryLoss({ centerCoefficient: -1 })).toThrow(throwing('OUT_OF_RANGE'))
    expect(() => new BradleyTerryLoss({ numPairs: 0 })).toThrow(throwing('OUT_OF_RANGE'))
  })
})

import { describe, expect, it } from 'vitest'
import { constantSchedule, cosineSchedule, linearSchedule } from '../../src/train/index.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })

describe('linearSchedule', () => {
  it('rises in equal parts, falls to its final share and stays there', () => {
    const rate = linearSchedule({ learningRate: 2, warmupSteps: 4, finalFraction: 0.5 })
    expect([0, 1, 2, 3].map((step) => rate(step, 12))).toEqual([0.5, 1, 1.5, 2])
    expect([4, 8, 12, 13].map((step) => rate(step, 12))).toEqual([2, 1.5, 1, 1])
  })

  it('refuses options outside their range by name', () => {
    expect(() => linearSchedule({ learningRate: 0 })).toThrow(/learningRate must be > 0: got 0/)
    expect(() => linearSchedule({ learningRate: 1, warmupSteps: -1 })).toThrow(/warmupSteps/)
    expect(() => linearSchedule({ learningRate: 1, warmupSteps: 0.5 })).toThrow(code('MALFORMED'))
    expect(() => linearSchedule({ learningRate: 1, finalFraction: 2 })).toThrow(/finalFraction/)
    const unknown = { learningRate: 1, warmupStep: 2 } as { learningRate: number }
    expect(() => linearSchedule(unknown)).toThrow(/did you mean 'warmupSteps'/)
    expect(() => linearSchedule({ learningRate: 1 })(-1, 2)).toThrow(code('OUT_OF_RANGE'))
  })
})

describe('cosineSchedule', () => {
  it('falls along half a cosine', () => {
    const rate = cosineSchedule({ learningRate: 3 })
    for (let step = 0; step <= 9; step++) {
      expect(rate(step, 9)).toBeCloseTo(1.5 * (1 + Math.cos((Math.PI * step) / 9)), 12)
    }
  })
})

describe('constantSchedule', () => {
  it('stays once it has risen', () => {
    const rate = constantSchedule({ learningRate: 0.1, warmupSteps: 1 })
    expect([0, 1, 7].map((step) => rate(step, 3))).toEqual([0.1, 0.1, 0.1])
  })

  it('has no share that is left at the end', () => {
    const options = { learningRate: 1, finalFraction: 0.5 } as { learningRate: number }
    expect(() => constantSchedule(options)).toThrow(code('UNKNOWN_NAME'))
  })
})

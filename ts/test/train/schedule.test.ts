import { describe, expect, it } from 'vitest'
import { linearSchedule } from '../../src/train/index.js'

describe('linearSchedule', () => {
  it('rises in equal parts, then falls to its final share', () => {
    const rate = linearSchedule({ learningRate: 2, warmupSteps: 4, finalFraction: 0.5 })
    expect([0, 1, 2, 3].map((step) => rate(step, 12))).toEqual([0.5, 1, 1.5, 2])
    expect(rate(4, 12)).toBe(2)
    expect(rate(12, 12)).toBe(1)
  })

  it('is constant by default', () => {
    const rate = linearSchedule({ learningRate: 0.1 })
    expect([rate(0, 3), rate(2, 3)]).toEqual([0.1, 0.1])
  })

  it('refuses options outside their range by name', () => {
    expect(() => linearSchedule({ learningRate: 0 })).toThrow(/learningRate must be > 0: got 0/)
    expect(() => linearSchedule({ learningRate: 1, warmupSteps: -1 })).toThrow(/warmupSteps/)
    expect(() => linearSchedule({ learningRate: 1, finalFraction: 2 })).toThrow(/finalFraction/)
  })
})

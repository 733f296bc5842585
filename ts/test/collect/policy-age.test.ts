import { describe, expect, it } from 'vitest'
import { policyAge } from '../../src/collect/index.js'
import { reduceMetrics } from '../../src/telemetry/index.js'

describe('policyAge', () => {
  it('measures mean and greatest age', () => {
    expect(reduceMetrics(policyAge(10, [8, 9], 4)).values).toEqual({
      'train_batch/policy_age/mean': 1.5,
      'train_batch/policy_age/max': 2,
    })
    expect(reduceMetrics(policyAge(10, [], 0)).values).toEqual({})
  })

  it('refuses an age past its bound, and no other', () => {
    expect(() => policyAge(4, [0], 3)).toThrow('age of a sample must be <= 3 steps: got 4')
    expect(() => policyAge(4, [0], 4)).not.toThrow()
    expect(() => policyAge(5, [0], 4)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(() => policyAge(50, [0], Number.POSITIVE_INFINITY)).not.toThrow()
  })
})

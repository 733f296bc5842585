import { describe, expect, it } from 'vitest'
import { isError, isTerminal, isTruncated, ROLLOUT_STATUSES } from '../../src/env/index.js'

describe('RolloutStatus', () => {
  it('has four truncations, four errors, one success and one that goes on, and no overlap', () => {
    expect(ROLLOUT_STATUSES).toHaveLength(10)
    expect(ROLLOUT_STATUSES.filter(isTruncated)).toEqual([
      'truncated_length',
      'truncated_prompt_too_long',
      'truncated_max_turns',
      'truncated_total_tokens',
    ])
    expect(ROLLOUT_STATUSES.filter(isError)).toEqual(['error_parse', 'error_timeout', 'error_abort', 'error'])
    expect(ROLLOUT_STATUSES.filter((status) => isError(status) && isTruncated(status))).toEqual([])
    expect(ROLLOUT_STATUSES.filter((status) => !isTerminal(status))).toEqual(['ongoing'])
  })
})

import { describe, expect, it } from 'vitest'
import { lastCompletionText, type TurnView } from '../../src/env/index.js'

const turn = (content: string | null): TurnView => ({
  promptMessages: [],
  completionMessage: content === null ? null : { role: 'assistant', content },
  envMessages: [],
  envRewards: {},
})

describe('lastCompletionText', () => {
  it('is what the policy said last, and nothing where it said nothing', () => {
    expect(lastCompletionText({ status: 'completed', turns: [turn('first'), turn('last')] })).toBe('last')
    expect(lastCompletionText({ status: 'error_parse', turns: [turn('first'), turn(null)] })).toBe('')
    expect(lastCompletionText({ status: 'error', turns: [] })).toBe('')
  })
})

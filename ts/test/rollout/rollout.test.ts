import { describe, expect, it } from 'vitest'
import { formatTurnId } from '../../src/rollout/index.js'

describe('formatTurnId', () => {
  it('names group, rollout and turn, or only the rollout', () => {
    const id = { groupId: 5, rolloutId: 2, turnId: 0 }
    expect(formatTurnId(id)).toBe('group=5/rollout=2/turn=0')
    expect(formatTurnId(id, { includeTurn: false })).toBe('group=5/rollout=2')
  })
})

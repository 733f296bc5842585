import { describe, expect, it } from 'vitest'
import { filtered, filterOf, type RolloutFilter } from '../../src/dashboard/rollout-filter.js'
import { summaryOf, turnsOf } from '../../src/dashboard/rollout-line.js'

const queryOf = (fields: Readonly<Record<string, string>>) =>
  new Map(Object.entries(fields).map(([name, value]) => [name, [value]] as const))

const rollout = (fields: object) => ({
  ...{ step: null, groupId: 0, rolloutId: 0, isValidation: false, status: 'completed', reward: null },
  ...{ numTurns: 1, numTokens: 1, hasLedger: false, text: '' },
  ...fields,
})

describe('filtered', () => {
  it('agrees with a filter that is asked field by field', () => {
    const all = Array.from({ length: 240 }, (_, index) =>
      rollout({
        ...{
          step: index % 5 === 0 ? null : index % 5,
          groupId: index % 7,
          reward: index % 4 === 0 ? null : (index % 11) / 10,
        },
        ...{ status: index % 3 === 0 ? 'error_policy' : 'completed', text: `answer ${index % 13} of ä` },
      }),
    )
    const filters: RolloutFilter[] = [
      {},
      { step: 2 },
      { group: 3, status: 'completed' },
      { rewardMin: 0.3, rewardMax: 0.7 },
      { scored: false },
      { scored: true, text: 'ANSWER 1 OF Ä' },
      { rewardMin: 0.9, step: 1, group: 1, status: 'completed', text: 'answer' },
    ]
    for (const filter of filters) {
      const naive = all.flatMap((one, index) => {
        const { step = one.step, group = one.groupId, status = one.status, text = '' } = filter
        const isPlaced = one.step === step && one.groupId === group && one.status === status
        const bounds = filter.rewardMin !== undefined || filter.rewardMax !== undefined
        const reward = one.reward ?? Number.NaN
        const isBetween = !bounds || (reward >= (filter.rewardMin ?? -9) && reward <= (filter.rewardMax ?? 9))
        const isScored = filter.scored === undefined || filter.scored === !Number.isNaN(reward)
        return isPlaced && isBetween && isScored && one.text.includes(text.toLowerCase()) ? [index] : []
      })
      expect(filtered(all, filter)).toEqual(naive)
    }
  })

  it('reads fields of a query, and refuses a value that is not a number', () => {
    expect(
      filterOf(queryOf({ step: '3', rewardMin: '-1.5', text: '', status: 'completed', scored: 'false' })),
    ).toEqual({
      ...{ step: 3, rewardMin: -1.5, status: 'completed', scored: false },
    })
    expect(() => filterOf(queryOf({ group: 'x' }))).toThrow('group must be a number: got x')
    expect(() => filterOf(queryOf({ scored: 'maybe' }))).toThrow('scored must be true or false')
  })
})

describe('summaryOf', () => {
  it('reads lines of runs and of evaluations, and refuses others', () => {
    const turns = [
      {
        completionMessage: { content: 'Oslo', tool_calls: [{ function: { name: 'Look' } }] },
        numCompletionTokens: 2,
      },
    ]
    expect(
      summaryOf({ groupId: 1, rolloutId: 2, step: 3, status: 'completed', reward: 0.5, turns }),
    ).toMatchObject({
      ...{ step: 3, groupId: 1, rolloutId: 2, reward: 0.5, numTurns: 1, numTokens: 2, isValidation: false },
      text: expect.stringContaining('oslo\n[{"function":{"name":"look"}}]'),
    })
    const messages = [
      { role: 'user', content: 'Why?' },
      { role: 'assistant', content: 'Because' },
    ]
    const answer = {
      problemIndex: 4,
      answerIndex: 1,
      numCompletionTokens: 9,
      reward: null,
      turns: [{}],
      messages,
      ledger: {},
    }
    expect(summaryOf(answer)).toMatchObject({
      groupId: 4,
      rolloutId: 1,
      numTokens: 9,
      isValidation: true,
      hasLedger: true,
      step: null,
    })
    for (const line of [
      null,
      3,
      'x',
      [],
      {},
      { groupId: -1, rolloutId: 0, turns },
      { groupId: 1, rolloutId: 0, turns: {} },
    ])
      expect(summaryOf(line)).toBeUndefined()
    const odd = {
      groupId: 1,
      rolloutId: 0,
      turns: [null, 3, { promptMessages: 'x', completionMessage: 5 }],
      reward: 'high',
    }
    expect(summaryOf(odd)).toMatchObject({ reward: null, status: 'unknown', numTokens: null })
  })

  it('cuts the text that a search looks at', () => {
    const line = (length: number) => ({
      groupId: 0,
      rolloutId: 0,
      turns: [{ completionMessage: { content: 'A'.repeat(length) } }],
    })
    expect(summaryOf(line(65_535))?.text).toBe(`${'a'.repeat(65_535)}\n`)
    expect(summaryOf(line(65_537))?.text).toBe('a'.repeat(65_536))
  })
})

describe('turnsOf', () => {
  it('cuts the one list of an evaluation at its turns, and keeps facts', () => {
    const messages = ['a', 'b', 'c', 'd', 'e'].map((content) => ({ content }))
    const turns = [{ numPromptMessages: 1, finishReason: 'stop' }, { numPromptMessages: 3 }]
    expect(turnsOf({ messages, turns })).toEqual([
      { messages: messages.slice(0, 3), facts: turns[0] },
      { messages: messages.slice(3), facts: turns[1] },
    ])
  })

  it('shows a prompt again only where a turn departs from an earlier one', () => {
    const [prompt, reply, answer] = ['p', 'r', 'a'].map((content) => ({ content }))
    const turn = { promptMessages: [prompt], completionMessage: reply, envMessages: [answer] }
    const fork = { turnId: 0, reason: 'sibling' }
    const read = turnsOf({ turns: [turn, turn, { ...turn, fork }] })
    expect(read.map(({ messages }) => messages)).toEqual([
      [prompt, reply, answer],
      [reply, answer],
      [prompt, reply, answer],
    ])
    expect(read[2]?.facts).toEqual({ fork })
  })
})

import { describe, expect, it } from 'vitest'
import type { RolloutView } from '../../src/env/index.js'
import { reward } from '../../src/task/index.js'
import { failing } from '../torchrl/envs/chats.js'

const user = { role: 'user', content: 'Capital of Norway?' }
const assistant = { role: 'assistant', content: 'Oslo' }
const rollout: RolloutView = {
  status: 'completed',
  turns: [
    {
      promptMessages: [user],
      completionMessage: assistant,
      envMessages: [{ role: 'user', content: 'Sure?' }],
      envRewards: {},
    },
  ],
}
const context = { signal: new AbortController().signal }

describe('reward', () => {
  it('gives the function text, row, conversation and signal', async () => {
    const seen: unknown[] = []
    const sample = { capital: 'Oslo' }
    const fn = reward<typeof sample>('exact', (input) => {
      seen.push(input)
      return input.text === input.sample.capital
    })
    expect(await fn.score(rollout, sample, context)).toBe(1)
    const messages = [user, assistant, { role: 'user', content: 'Sure?' }]
    expect(seen).toEqual([{ text: 'Oslo', sample, messages, rollout, signal: context.signal }])
  })

  it('counts true as 1 and false as 0, and passes numbers and refusals on', async () => {
    const given = [true, false, 0.25, { unscored: 'no judge' }]
    const scores = await Promise.all(
      given.map((value) => reward('r', () => value).score(rollout, {}, context)),
    )
    expect(scores).toEqual([1, 0, 0.25, { unscored: 'no judge' }])
  })

  it('has an empty text and no messages for a rollout without a turn', async () => {
    const fn = reward('r', ({ text, messages }) => (text === '' ? messages.length : -1))
    expect(await fn.score({ status: 'error', turns: [] }, {}, context)).toBe(0)
  })

  it('refuses names, functions and weights of another form', () => {
    const score = () => 1
    expect(() => reward('', score)).toThrow(failing('MALFORMED', /name/))
    expect(() => reward('r', 1 as never)).toThrow(failing('MALFORMED', /score of r/))
    expect(() => reward('r', score, { weight: -1 })).toThrow(failing('OUT_OF_RANGE', /weight of r/))
    expect(() => reward('r', score, { wieght: 1 } as never)).toThrow(failing('UNKNOWN_NAME', /weight/))
  })
})

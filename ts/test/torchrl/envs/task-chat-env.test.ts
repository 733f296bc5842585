import { describe, expect, it } from 'vitest'
import { createRenderer } from '../../../src/chat/index.js'
import { listDataset } from '../../../src/data/index.js'
import type { Task } from '../../../src/env/index.js'
import { Rollouter } from '../../../src/rollout/index.js'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { sumDigits } from '../../../src/task/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { ChatEnv, chatsAt, replyPolicy, rollout, specEnvOf } from '../../../src/torchrl/index.js'
import { failing, user } from './chats.js'

/** Repeats what the policy says until it says bye; worth the number of its turns. */
function echoes(closed: string[] = []): Task<{ word: string }> {
  return {
    name: 'echoes',
    makeDataset: () => listDataset({ items: [{ word: 'a' }, { word: 'b' }, { word: 'c' }] }),
    makeEnv: ({ word }) => ({
      init: () => ({ initPromptMessages: [{ role: 'system', content: 'S' }, user(word)] }),
      step: ({ content }) => {
        if (content === 'throw') throw new Error('no')
        return content === 'bye' ? { done: true } : { envMessages: [user(`${content}?`)] }
      },
      close: () => void closed.push(word),
    }),
    rewardFns: [
      { name: 'turns', score: ({ turns }) => turns.length },
      {
        name: 'last',
        weight: 3,
        score: ({ turns }) =>
          turns.some(({ completionMessage }) => completionMessage?.content === 'odd')
            ? { unscored: 'odd' }
            : 1,
      },
    ],
    isSolved: () => true,
  }
}

const policyOf = (...turns: string[][]) => {
  let turn = 0
  const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => turns[turn]?.[at] ?? 'bye' })
  return async (...[dict]: Parameters<typeof policy>) => {
    const root = await policy(dict)
    turn += 1
    return root
  }
}
const data = (
  dict: { tensor(key: readonly string[]): { data: ArrayLike<number | bigint> } },
  ...key: string[]
) => Array.from(dict.tensor(key).data)

describe('ChatEnv.of', () => {
  it('takes the turns of each conversation, and scores the last one', async () => {
    const env = ChatEnv.of(echoes(), { numEnvs: 2 })
    const steps = await rollout(env, policyOf(['x', 'y'], ['z', 'bye']), { maxSteps: 5 })
    expect(steps.batchSize).toEqual([2, 2])
    const [first, second] = steps.parts
    expect(first?.value('query')).toEqual(['a', 'b'])
    expect(data(first ?? expect.unreachable(), 'next', 'reward')).toEqual([0, 0])
    expect(data(second ?? expect.unreachable(), 'next', 'reward')).toEqual([0, 1.25])
    expect(data(second ?? expect.unreachable(), 'next', 'rewards', 'turns')).toEqual([0, 2])
    expect(data(second ?? expect.unreachable(), 'next', 'done')).toEqual([0, 1])
    expect(
      chatsAt(second ?? expect.unreachable(), ['history', 'prompt'])[0]?.map(({ content }) => content),
    ).toEqual(['S', 'a', 'x', 'x?'])
    expect(env.numOpen).toBe(1)
    await env.close()
    expect(env.numOpen).toBe(0)
  })

  it('has the specs that it derives from the task', async () => {
    const closed: string[] = []
    const env = ChatEnv.of(echoes(closed), { numEnvs: 2, maxTurns: 2 })
    expect(env.rewardSpec.leafKeys()).toContainEqual(['rewards', 'turns'])
    await checkEnvSpecs(specEnvOf(env), { steps: 5 })
    expect(closed.length).toBeGreaterThan(2)
  })

  it('gives the rewards that a Rollouter gives', async () => {
    using tokenizer = new CharTokenizer()
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const replies = ['[ANSWER] 10', '[ANSWER] 11', 'nothing', '[ANSWER] 7']
    const says = (text: string) => [...tokenizer.encode(text).ids, renderer.stopIds[0] ?? 0]
    const policy = new ScriptedPolicy({ reply: (_, call) => says(replies[call] ?? '') })
    const task = sumDigits({ seed: 4 })
    const rollouter = new Rollouter({ policy, task, renderer, groupSize: 4, maxTokens: 32 })
    const [group] = await rollouter.runNextGroups(1)
    const env = ChatEnv.of(task, { repeats: 4, groupRepeats: true })
    const { parts } = await rollout(env, policyOf(replies), { maxSteps: 1 })
    const rewards = data(parts[0] ?? expect.unreachable(), 'next', 'reward')
    expect(rewards).toEqual(group?.rollouts.map(({ reward }) => Math.fround(reward ?? Number.NaN)))
    expect(new Set(rewards).size).toBeGreaterThan(1)
    group?.[Symbol.dispose]()
  })

  it('numbers groups, and takes the next sample once a group is whole', async () => {
    const env = ChatEnv.of(echoes(), { numEnvs: 2, repeats: 3 })
    const queries: unknown[] = []
    const groups: unknown[] = []
    for (let reset = 0; reset < 3; reset++) {
      const dict = await env.reset()
      queries.push(dict.value('query'))
      groups.push(data(dict, 'group_id').map(Number))
    }
    expect(queries).toEqual([
      ['a', 'a'],
      ['a', 'b'],
      ['b', 'b'],
    ])
    expect(groups).toEqual([
      [0, 0],
      [0, 1],
      [1, 1],
    ])
  })

  it('goes on from a state in the middle of a group', async () => {
    const [env, other] = [ChatEnv.of(echoes(), { repeats: 2 }), ChatEnv.of(echoes(), { repeats: 2 })]
    const start = JSON.parse(JSON.stringify(env.stateDict()))
    for (const count of [0, 1, 2, 3]) {
      env.loadStateDict(start)
      for (let at = 0; at < count; at++) await env.reset()
      other.loadStateDict(JSON.parse(JSON.stringify(env.stateDict())))
      const [one, two] = [await env.reset(), await other.reset()]
      expect([two.value('query'), data(two, 'group_id')]).toEqual([one.value('query'), data(one, 'group_id')])
    }
    expect(() => env.loadStateDict({ ...start, numTaken: 3 })).toThrow(failing('OUT_OF_RANGE', /numTaken/))
    expect(() => env.loadStateDict({ ...start, dataset: 3 })).toThrow(failing('MALFORMED'))
  })

  it('truncates after maxTurns, and marks what no function could score', async () => {
    const env = ChatEnv.of(echoes(), { numEnvs: 2, maxTurns: 2 })
    const { parts } = await rollout(env, policyOf(['odd', 'x'], ['y', 'y']), { maxSteps: 4 })
    const last = parts.at(-1) ?? expect.unreachable()
    expect(data(last, 'next', 'truncated')).toEqual([1, 1])
    expect(data(last, 'next', 'terminated')).toEqual([0, 0])
    expect(data(last, 'next', 'reward')).toEqual([Number.NaN, 1.25])
    expect(data(last, 'next', 'scored')).toEqual([0, 1])
    expect(last.value(['next', 'unscored'])).toEqual(['last: odd', null])
  })

  it('lets elements that are done begin anew, and closes each conversation once', async () => {
    const closed: string[] = []
    const env = ChatEnv.of(echoes(closed), { numEnvs: 2 })
    const steps = await rollout(env, policyOf(['bye', 'x'], ['x', 'x'], ['x', 'bye']), {
      maxSteps: 3,
      breakWhenAnyDone: false,
    })
    expect(steps.parts.map((part) => part.value('query'))).toEqual([
      ['a', 'b'],
      ['c', 'b'],
      ['c', 'b'],
    ])
    expect(closed).toEqual(['a', 'b'])
    await env.reset()
    expect(closed).toEqual(['a', 'b', 'c'])
    await env.close()
    expect(closed).toHaveLength(5)
  })

  it('refuses an episode that is over, and what is no message of the assistant', async () => {
    const env = ChatEnv.of(echoes())
    const dict = await env.reset()
    const root = await policyOf(['bye'])(dict)
    await env.step(root)
    await expect(env.step(root)).rejects.toThrow(failing('CLOSED', /episode/))
    await expect(env.step(await env.reset())).rejects.toThrow(failing('UNKNOWN_NAME', /history.full/))
    const wrong = await replyPolicy({ inputMode: 'history', reply: () => 'x' })(await env.reset())
    wrong.delete(['history', 'response'])
    wrong.set(['history', 'full'], wrong.get(['history', 'prompt']) ?? expect.unreachable())
    await expect(env.step(wrong)).rejects.toThrow(failing('MALFORMED', /assistant/))
    for (const options of [{ numEnvs: 0 }, { repeats: 1.5 }, { maxTurns: -1 }])
      expect(() => ChatEnv.of(echoes(), options)).toThrow(failing('OUT_OF_RANGE'))
    expect(() => ChatEnv.of(echoes(), { split: 'test' as never })).toThrow(failing('UNKNOWN_NAME'))
  })

  it('passes on what an environment throws, and isolates it under a deadline', async () => {
    const env = ChatEnv.of(echoes(), { numEnvs: 2 })
    await expect(env.step(await policyOf(['throw', 'x'])(await env.reset()))).rejects.toThrow('no')
    const said = replyPolicy({
      inputMode: 'history',
      reply: ([, asked]) => ((asked as { content: string }).content === 'c' ? 'throw' : 'bye'),
    })
    const { parts } = await rollout(env, said, { maxSteps: 1, timeoutMs: 1000 })
    const errors = parts[0]?.value(['next', 'error']) as unknown[]
    expect(errors).toEqual([{ status: 'error', message: 'no' }, null])
  })
})

import { describe, expect, it } from 'vitest'
import type { Message } from '../../../src/chat/index.js'
import { ManualClock } from '../../../src/telemetry/index.js'
import type { TensorDict } from '../../../src/tensor/index.js'
import {
  ChatEnv,
  DatasetChatEnv,
  type DictPolicy,
  type EnvTransform,
  GSM8KEnv,
  replyPolicy,
  rollout,
} from '../../../src/torchrl/index.js'
import { assistant, failing, user } from './chats.js'

describe('rollout with a deadline', () => {
  const dataset = Array.from({ length: 20 }, (_, at) => ({ query: `q${at}` }))
  const datasetEnv = (transforms: EnvTransform[] = []) =>
    new DatasetChatEnv({ dataset, shuffle: false, numEnvs: 3, transforms })
  /** The column of a step, an entry for each element. */
  const column = (part: TensorDict | undefined, ...key: string[]) =>
    (part ? part.value(key) : []) as readonly unknown[]
  const said = (prompt: unknown) => String((prompt as readonly Message[]).at(-1)?.content)
  const echo = replyPolicy({ inputMode: 'history', reply: (prompt) => `${said(prompt)}!` })
  const queryOf = (dict: TensorDict) => (dict.value('query') as string[])[0] ?? ''
  const never = () => new Promise<never>(() => {})
  /** Answers for all queries but these. */
  const without = (fails: (dict: TensorDict) => Promise<never>, ...queries: string[]): DictPolicy => {
    return (dict) => (queries.includes(queryOf(dict)) ? fails(dict) : echo(dict))
  }
  const errorsOf = (part: TensorDict | undefined) =>
    column(part, 'next', 'error').map((error) => (error as { status: string } | null)?.status ?? null)
  const options = (clock: ManualClock) => ({ maxSteps: 3, breakWhenAnyDone: false, timeoutMs: 50, clock })
  /** Lets time pass whenever nothing else happens. */
  async function played<T>(clock: ManualClock, run: Promise<T>): Promise<T> {
    let isOver = false
    const watched = run.finally(() => {
      isOver = true
    })
    watched.catch(() => {})
    while (!isOver) {
      for (let turn = 0; turn < 20 && !isOver; turn++) await new Promise((resolve) => setImmediate(resolve))
      clock.advance(10)
    }
    return await watched
  }

  it('gives what it gives without one, where everybody answers', async () => {
    const clock = new ManualClock()
    const plain = await rollout(datasetEnv(), echo, { maxSteps: 3, breakWhenAnyDone: false })
    const apart = await rollout(datasetEnv(), echo, options(clock))
    expect(apart.batchSize).toEqual([3, 3])
    for (const [at, part] of apart.parts.entries()) {
      expect(errorsOf(part)).toEqual([null, null, null])
      expect(part.value(['history', 'full'])).toEqual(plain.parts[at]?.value(['history', 'full']))
    }
    expect(clock.numTimers).toBe(0)
  })

  it.each([
    ['hangs', 'error_timeout', never, /policy must answer within 50 ms/],
    ['throws', 'error', () => Promise.reject(new Error('no engine')), /no engine/],
  ] as const)(
    'ends an element alone whose policy %s, and the others say what they would have said',
    async (_, status, fails, message) => {
      const clock = new ManualClock()
      const steps = await played(clock, rollout(datasetEnv(), without(fails, 'q1'), options(clock)))
      const plain = await rollout(datasetEnv(), echo, { maxSteps: 3, breakWhenAnyDone: false })
      const [first, second] = steps.parts
      expect(errorsOf(first)).toEqual([null, status, null])
      expect(column(first, 'next', 'error')[1]).toMatchObject({ message: expect.stringMatching(message) })
      expect([...(first?.tensor(['next', 'done']).data ?? [])]).toEqual([0, 1, 0])
      expect([...(first?.tensor(['next', 'truncated']).data ?? [])]).toEqual([0, 1, 0])
      // It begins anew with the next row, without any entry of its neighbours.
      expect(second?.value('query')).toEqual(['q0', 'q3', 'q2'])
      expect(column(first, 'history', 'full')[1]).toBeNull()
      for (const row of [0, 2])
        for (const [at, part] of steps.parts.entries())
          expect(column(part, 'history', 'full')[row]).toEqual(
            column(plain.parts[at], 'history', 'full')[row],
          )
    },
  )

  it('ends an element alone whose environment hangs, and keeps what its policy said', async () => {
    const clock = new ManualClock()
    const hangs: EnvTransform = { afterStep: (next, root) => (queryOf(root) === 'q2' ? never() : next) }
    const steps = await played(clock, rollout(datasetEnv([hangs]), echo, options(clock)))
    expect(errorsOf(steps.parts[0])).toEqual([null, null, 'error_timeout'])
    expect(column(steps.parts[0], 'history', 'full')[2]).toEqual([user('q2'), assistant('q2!')])
    expect(steps.batchSize).toEqual([3, 3])
  })

  it('gives an element that failed no reward, which is not a reward of 0', async () => {
    const clock = new ManualClock()
    const rows = ['2', '3'].map((answer) => ({ question: `${answer}?`, answer: `#### ${answer}` }))
    const env = new GSM8KEnv({ dataset: rows, shuffle: false, numEnvs: 2 })
    const knows = replyPolicy({ inputMode: 'history', reply: () => '<think>x</think><answer>2</answer>' })
    const asksTwo = (dict: TensorDict) => JSON.stringify(dict.value(['history', 'prompt'])).includes('2?')
    const policy: DictPolicy = (dict) => (asksTwo(dict) ? knows(dict) : never())
    const steps = await played(clock, rollout(env, policy, { maxSteps: 1, timeoutMs: 50, clock }))
    expect([...(steps.parts[0]?.tensor(['next', 'reward']).toFloat32() ?? [])]).toEqual([1, Number.NaN])
  })

  it('ends with the steps before when nobody answers any more, and with a typed error when nobody ever did', async () => {
    const clock = new ManualClock()
    let numCalls = 0
    const dies: DictPolicy = (dict) => (numCalls++ < 3 ? echo(dict) : never())
    const steps = await played(
      clock,
      rollout(datasetEnv(), dies, { ...options(clock), breakWhenAnyDone: true }),
    )
    expect(steps.parts.map(errorsOf)).toEqual([
      [null, null, null],
      ['error_timeout', 'error_timeout', 'error_timeout'],
    ])
    await expect(played(clock, rollout(datasetEnv(), never, options(clock)))).rejects.toEqual(
      failing('TIMEOUT', /policy must answer within 50 ms/),
    )
    const slow: EnvTransform = { beforeReset: never }
    await expect(played(clock, rollout(datasetEnv([slow]), echo, options(clock)))).rejects.toEqual(
      failing('TIMEOUT', /reset must answer within 50 ms/),
    )
    expect(clock.numTimers).toBe(0)
  })

  it('keeps the steps before a reset that hangs', async () => {
    const clock = new ManualClock()
    let numResets = 0
    const slow: EnvTransform = { beforeReset: (dict) => (numResets++ === 0 ? dict : never()) }
    const steps = await played(clock, rollout(datasetEnv([slow]), without(never, 'q1'), options(clock)))
    expect(steps.batchSize).toEqual([3, 1])
  })

  it('stops during a turn with ABORTED, and refuses what is no deadline', async () => {
    const abort = new AbortController()
    const clock = new ManualClock()
    const run = rollout(datasetEnv(), never, { ...options(clock), signal: abort.signal })
    await new Promise((resolve) => setImmediate(resolve))
    abort.abort()
    await expect(run).rejects.toEqual(failing('ABORTED'))
    for (const timeoutMs of [0, -1, Number.NaN])
      await expect(rollout(datasetEnv(), echo, { maxSteps: 1, timeoutMs })).rejects.toEqual(
        failing('OUT_OF_RANGE', /timeoutMs/),
      )
    const square = new ChatEnv({ batchSize: [1, 1] })
    await expect(rollout(square, echo, { maxSteps: 1, timeoutMs: 5 })).rejects.toEqual(
      failing('SHAPE_MISMATCH'),
    )
  })
})

import { describe, expect, it, vi } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import type { MessageEnv, RewardFn, Task } from '../../src/env/index.js'
import { Decoder } from '../../src/model/index.js'
import { GRPOLoss } from '../../src/objective/index.js'
import { DecoderPolicy } from '../../src/policy/index.js'
import {
  buildTrainingSamples,
  packTrainingBatch,
  Rollouter,
  type RollouterOptions,
} from '../../src/rollout/index.js'
import { ManualClock, reduceMetrics } from '../../src/telemetry/index.js'
import { ScriptedPolicy, type ScriptedReply } from '../../src/testing/index.js'
import { TINY } from '../model/tiny.js'
import { type ScriptedEnv, scriptedEnv } from './scripted-env.js'
import { type ToyOptions, ToyRenderer } from './toy-renderer.js'

/** Worth the first sampled token: `20` gives 20. */
const firstToken: RewardFn<string> = {
  name: 'firstToken',
  score: ({ turns }) => Number(String(turns[0]?.completionMessage?.content ?? '').split(' ')[0]),
}

interface ToyTask extends Task<string> {
  readonly envs: ScriptedEnv[]
}

function toyTask(step?: MessageEnv['step'], rewardFns: readonly RewardFn<string>[] = [firstToken]): ToyTask {
  const envs: ScriptedEnv[] = []
  return {
    name: 'toy',
    envs,
    makeDataset: (split) => listDataset({ items: ['a', 'b', 'c'].map((name) => `${split} ${name}`) }),
    makeEnv: () => {
      const env = scriptedEnv()
      if (step) env.step = step
      envs.push(env)
      return env
    },
    rewardFns,
    isSolved: ({ turns }) => turns.at(-1)?.completionMessage?.content === '20',
  }
}

type Overrides = Partial<RollouterOptions<string>> & {
  readonly toy?: ToyOptions
  readonly reply?: () => ScriptedReply
}

function rollouterOf(task: Task<string>, { toy, reply = () => [20, 9], ...options }: Overrides = {}) {
  const policy = options.policy ?? new ScriptedPolicy({ reply, version: 4 })
  const renderer = new ToyRenderer(toy)
  return new Rollouter({ task, renderer, groupSize: 2, maxTokens: 8, maxTurns: 1, ...options, policy })
}

const group0 = { sample: 'a', groupId: 0 }

describe('Rollouter', () => {
  it('gives each turn the ids of its prompt, its tokens and its version', async () => {
    using group = await rollouterOf(toyTask(), { maxTurns: 2, groupSize: 1 }).runGroup(group0)
    const [first, second] = group.rollouts[0]?.turns ?? []
    expect(first?.id).toEqual({ groupId: 0, rolloutId: 0, turnId: 0 })
    expect([...(first?.promptIds ?? [])]).toEqual([1, 10, 11, 9, 8, 2])
    expect([...(second?.promptIds ?? [])]).toEqual([1, 10, 11, 9, 8, 2, 20, 9, 8, 3, 30, 9, 8, 2])
    expect(second).toMatchObject({ minPolicyVersion: 4, maxPolicyVersion: 4, finishReason: 'stop' })
    expect(group.rollouts[0]?.status).toBe('truncated_max_turns')
  })

  it('ends completions at stop strings, which stay in them and end no turn of themselves', async () => {
    using decoder = Decoder.fromSeed({ ...TINY, vocab_size: 40 }, { seed: 2 })
    const policy = new DecoderPolicy(decoder, { decodeStream: () => ({ push: (id) => `<${id}>` }) })
    const drawn = async (stopStrings: readonly string[]) => {
      const options = { policy, groupSize: 1, maxTokens: 20, stopStrings }
      using group = await rollouterOf(toyTask(), options).runGroup(group0)
      const { completionIds = [], finishReason } = group.rollouts[0]?.turns[0] ?? {}
      return { ids: [...completionIds], finishReason }
    }
    const whole = await drawn([])
    expect(whole.ids.length).toBeGreaterThan(4)
    const stop = `<${whole.ids[2]}><${whole.ids[3]}>`
    expect(await drawn([stop])).toEqual({ ids: whole.ids.slice(0, 4), finishReason: 'stop' })
  })

  it('keeps what was sampled when the environment throws', async () => {
    const throws = () => {
      throw new Error('sandbox died')
    }
    using group = await rollouterOf(toyTask(throws)).runGroup(group0)
    const [rollout] = group.rollouts
    expect(rollout).toMatchObject({
      status: 'error',
      cause: { stage: 'step', message: 'sandbox died' },
      reward: 20,
    })
    expect([...(rollout?.turns[0]?.completionIds ?? [])]).toEqual([20, 9])
    expect(rollout?.ledger.numTurns).toBe(1)
  })

  it('ends a rollout with no_completion when the policy answers nothing', async () => {
    const mute = { version: 0, generate: () => Promise.resolve(JSON.parse('null')) }
    using group = await rollouterOf(toyTask(), { policy: mute }).runGroup(group0)
    expect(group.rollouts[0]).toMatchObject({
      status: 'error',
      cause: { stage: 'generate', kind: 'no_completion' },
    })
    expect(buildTrainingSamples(group).samples).toEqual([])
  })

  it('makes two samples of a rollout whose history was rewritten, each token trained once', async () => {
    const toy: ToyOptions = { refusal: 'unknown_role', rewrite: [22] }
    const task = toyTask()
    const rollouter = rollouterOf(task, { toy, maxTurns: 2, groupSize: 1, reply: () => [20, 21, 9] })
    using group = await rollouter.runGroup(group0)
    const { samples } = buildTrainingSamples(group)
    expect(samples.map(({ turnId }) => turnId)).toEqual([0, 1])
    expect([...(samples[1]?.ids ?? [])]).toEqual([1, 10, 11, 9, 8, 2, 22, 9, 8, 3, 30, 9, 8, 2, 20, 21, 9])
    expect(samples.map(({ mask }) => mask.reduce((sum, bit) => sum + bit, 0))).toEqual([3, 3])
    expect(group.rollouts[0]?.ledger.forks()).toMatchObject([{ reason: 'bridge_refused' }])
  })

  it('masks the closing token that a continued truncation adds', async () => {
    const rollouter = rollouterOf(toyTask(), {
      maxTurns: 2,
      groupSize: 1,
      maxTokens: 1,
      onTruncation: 'continue',
      reply: () => [20],
    })
    using group = await rollouter.runGroup(group0)
    const [sample] = buildTrainingSamples(group).samples
    expect([...(sample?.ids.slice(6) ?? [])]).toEqual([20, 9, 8, 3, 30, 9, 8, 2, 20])
    expect([...(sample?.mask.slice(6) ?? [])]).toEqual([1, 0, 0, 0, 0, 0, 0, 0, 1])
  })

  it('gives the loss of -0.25 for siblings of 3 and 1 tokens with rewards 1 and 0', async () => {
    const replies = [[1, 20, 9], [0]]
    const task = toyTask(() => ({ done: true }))
    const rollouter = rollouterOf(task, {
      reply: () => ({ ids: replies.shift() ?? [], finishReason: 'stop' }),
    })
    using group = await rollouter.runGroup(group0)
    expect(group.rollouts.map(({ advantage }) => advantage)).toEqual([0.5, -0.5])
    const { logProbs, advantages, mask, offsets } = packTrainingBatch(buildTrainingSamples(group).samples)
    const batch = { logProb: logProbs, oldLogProb: logProbs, advantage: advantages, mask, offsets }
    expect(new GRPOLoss().forward(batch).loss).toBeCloseTo(-0.25, 6)
    expect(new GRPOLoss({ normalization: 'sequenceMean' }).forward(batch).loss).toBeCloseTo(0, 6)
  })

  it('draws seeds from run, split, group, sibling and turn alone', async () => {
    const seedsOf = async (seed: number, groupIds: readonly number[], split?: 'train' | 'validation') => {
      const policy = new ScriptedPolicy({ reply: () => [20, 9] })
      const rollouter = rollouterOf(toyTask(), { policy, seed, maxTurns: 2, concurrency: 1 })
      for (const groupId of groupIds) {
        using _ = await rollouter.runGroup({ sample: 'a', groupId, ...(split && { split }) })
      }
      return new Map(policy.requests.map((request) => [request.requestId, request.seed]))
    }
    const both = await seedsOf(7, [0, 1])
    expect(new Set(both.values()).size).toBe(8)
    for (const [id, seed] of await seedsOf(7, [1])) expect(both.get(id)).toBe(seed)
    const others = [
      ...(await seedsOf(8, [0, 1])).values(),
      ...(await seedsOf(7, [0, 1], 'validation')).values(),
    ]
    expect(others.filter((seed) => [...both.values()].includes(seed))).toEqual([])
  })

  it('never runs more rollouts at once than its concurrency', async () => {
    let numRunning = 0
    let most = 0
    let open: () => void = () => {}
    const isFull = new Promise<void>((resolve) => (open = resolve))
    const policy = new ScriptedPolicy({
      reply: async () => {
        most = Math.max(most, ++numRunning)
        if (numRunning === 3) open()
        await isFull // the first three run at once, however late each of them begins
        numRunning -= 1
        return [20, 9]
      },
    })
    const rollouter = rollouterOf(toyTask(), { policy, groupSize: 4, concurrency: 3 })
    const groups = await rollouter.runNextGroups(3)
    expect(policy.requests).toHaveLength(12)
    expect(most).toBe(3)
    for (const group of groups) group[Symbol.dispose]()
  })

  it('scores before it closes, and closes every environment once', async () => {
    const task = toyTask()
    const openWhenScored: boolean[] = []
    const watching: RewardFn<string> = {
      name: 'watching',
      score: () => openWhenScored.push(task.envs.every(({ numClosed }) => numClosed === 0)),
    }
    using _ = await rollouterOf({ ...task, rewardFns: [watching] }).runGroup(group0)
    expect(openWhenScored).toEqual([true, true])
    expect(task.envs.map(({ numClosed }) => numClosed)).toEqual([1, 1])
  })

  it('counts environments that do not close, and does not wait for them for ever', async () => {
    const clock = new ManualClock()
    const task = toyTask()
    let numClosing = 0
    const close = () => {
      numClosing += 1
      return new Promise<void>(() => undefined)
    }
    const makeEnv = (): MessageEnv => ({ ...scriptedEnv(), close })
    const rollouter = rollouterOf({ ...task, makeEnv }, { clock, closeTimeoutMs: 10 })
    const running = rollouter.runGroup(group0)
    while (numClosing < 2) await new Promise((resolve) => setImmediate(resolve))
    clock.advance(10)
    using group = await running
    expect(reduceMetrics(group.metrics).values['rollout/close_failures/sum']).toBe(2)
  })

  it('ends a rollout whose environment cannot be made, and keeps its siblings', async () => {
    const task = toyTask()
    let numMade = 0
    const makeEnv = () => {
      numMade += 1
      if (numMade === 1) throw new Error('no port free')
      return scriptedEnv()
    }
    using group = await rollouterOf({ ...task, makeEnv }).runGroup(group0)
    expect(group.rollouts.map(({ status }) => status)).toEqual(['error', 'truncated_max_turns'])
    expect(group.rollouts[0]?.cause).toEqual({ stage: 'init', kind: 'user_code', message: 'no port free' })
  })

  it('leaves unscored siblings out of advantages and samples', async () => {
    const picky: RewardFn<string> = {
      name: 'picky',
      score: (rollout, sample, context) => {
        const score = Number(firstToken.score(rollout, sample, context))
        return score === 21 ? { unscored: 'no opinion' } : score
      },
    }
    const replies = [20, 21, 23]
    const reply = () => [replies.shift() ?? 0, 9]
    using group = await rollouterOf(toyTask(undefined, [picky]), { groupSize: 3, reply }).runGroup(group0)
    expect(group.rollouts.map(({ advantage }) => advantage)).toEqual([-1.5, null, 1.5])
    expect(buildTrainingSamples(group).samples).toHaveLength(2)
    expect(reduceMetrics(group.metrics).values['rollout/unscored_rate/mean']).toBeCloseTo(1 / 3)
  })

  it('stops with ABORTED and closes every environment when its signal fires', async () => {
    const controller = new AbortController()
    const task = toyTask(() => {
      controller.abort()
      return new Promise(() => undefined)
    })
    const running = rollouterOf(task).runGroup({ ...group0, signal: controller.signal })
    await expect(running).rejects.toMatchObject({ code: 'ABORTED' })
    expect(task.envs.map(({ numClosed }) => numClosed)).toEqual([1, 1])
  })

  it('hangs one listener on a signal, however many rollouts wait for it', async () => {
    const { signal } = new AbortController()
    const added = vi.spyOn(signal, 'addEventListener')
    using group = await rollouterOf(toyTask(), { groupSize: 16 }).runGroup({ ...group0, signal })
    expect(group.rollouts).toHaveLength(16)
    expect(added).toHaveBeenCalledTimes(1)
  })

  it('ends a completion that misses its deadline', async () => {
    const clock = new ManualClock()
    const policy = new ScriptedPolicy({ reply: () => new Promise<never>(() => undefined) })
    const rollouter = rollouterOf(toyTask(), { policy, clock, groupSize: 1, generateTimeoutMs: 5 })
    const running = rollouter.runGroup(group0)
    while (policy.requests.length === 0) await new Promise((resolve) => setImmediate(resolve))
    clock.advance(5)
    using group = await running
    expect(group.rollouts[0]).toMatchObject({
      status: 'error_timeout',
      cause: { stage: 'generate', kind: 'deadline' },
    })
  })

  it('leaves room for the completion within the limit of the rollout', async () => {
    const policy = new ScriptedPolicy({ reply: () => [20, 9] })
    using _ = await rollouterOf(toyTask(), { policy, groupSize: 1, maxRolloutTokens: 9 }).runGroup(group0)
    expect(policy.requests[0]?.maxTokens).toBe(3)
  })

  it('makes log-probabilities that are not numbers the error of their rollout', async () => {
    const reply = () => ({ ids: [20, 9], logProbs: [-1, Number.NaN] })
    using group = await rollouterOf(toyTask(), { reply, groupSize: 1 }).runGroup(group0)
    expect(group.rollouts[0]).toMatchObject({
      status: 'error',
      cause: { stage: 'generate', kind: 'invalid_output' },
    })
  })

  it('goes on with the next sample and group after a resume', async () => {
    const idsOf = async (rollouter: ReturnType<typeof rollouterOf>) => {
      const groups = await rollouter.runNextGroups(2)
      for (const group of groups) group[Symbol.dispose]()
      return groups.map(({ groupId, sample }) => `${groupId} ${sample}`)
    }
    const first = rollouterOf(toyTask())
    expect(await idsOf(first)).toEqual(['0 train a', '1 train b'])
    const state: unknown = JSON.parse(JSON.stringify(first.stateDict()))
    const resumed = rollouterOf(toyTask())
    resumed.loadStateDict(state)
    expect(await idsOf(resumed)).toEqual(['2 train c', '3 train a'])
    expect(() => resumed.loadStateDict({ train: { position: 1 } })).toThrow(/numGroups must be >= 0/)
    expect(() => resumed.loadStateDict({ numGroups: 1, train: { position: 1 }, trian: 2 })).toThrow(
      /did you mean 'train'/,
    )
  })

  it('measures the same held-out samples each time and does not touch the streams', async () => {
    const policy = new ScriptedPolicy({ reply: (_, call) => [call % 2 === 0 ? 20 : 21, 9] })
    const rollouter = rollouterOf(toyTask(), { policy })
    const evaluation = await rollouter.evaluate({ numProblems: 4, temperature: 0 })
    expect(evaluation).toMatchObject({ passRate: 0.5, meanReward: 20.5, numProblems: 4 })
    const seeds = () => policy.requests.splice(0).map(({ seed, temperature }) => `${seed} ${temperature}`)
    const before = seeds()
    await rollouter.evaluate({ numProblems: 4, temperature: 0 })
    expect(seeds()).toEqual(before)
    expect(rollouter.getValidationSample()).toBe('validation a')
    expect(rollouter.getTrainingSample()).toBe('train a')
  })

  it('says that isSolved threw, with its sentence', async () => {
    const isSolved = () => {
      throw new Error('no reference')
    }
    const evaluating = rollouterOf({ ...toyTask(), isSolved }).evaluate({ numProblems: 2 })
    await expect(evaluating).rejects.toMatchObject({
      code: 'USER_CODE',
      message: 'isSolved must not throw: got no reference',
    })
  })

  it('refuses sizes that are not positive integers', () => {
    expect(() => rollouterOf(toyTask(), { groupSize: 0 })).toThrow(
      'groupSize must be a positive integer: got 0',
    )
    expect(() => rollouterOf(toyTask(), { concurrency: 0.5 })).toThrow(/concurrency/)
  })
})

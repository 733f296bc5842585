import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  Controller,
  type ControllerOptions,
  type ControllerStep,
  capacityRule,
  ParkingPolicy,
  readyFirst,
  type StepBatch,
  strictFifo,
  WeightSync,
  windowedFifo,
} from '../../src/collect/index.js'
import { listDataset } from '../../src/data/index.js'
import type { MessageEnv, RewardFn, Task } from '../../src/env/index.js'
import type { GenerateRequest, Policy } from '../../src/policy/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { scriptedEnv } from '../rollout/scripted-env.js'
import { ToyRenderer } from '../rollout/toy-renderer.js'

const code = (value: string) => expect.objectContaining({ code: value })
const tick = () => new Promise((resolve) => setImmediate(resolve))

/** The second sibling of each group is worth 1 and the first 0, so that every group teaches. */
const siblings: RewardFn<number> = {
  name: 'sibling',
  score: ({ turns }) => Number(String(turns[0]?.completionMessage?.content).endsWith('1')),
}

interface World extends Partial<ControllerOptions<number>> {
  readonly answers?: Policy
  readonly makeEnv?: (sample: number) => MessageEnv
  readonly score?: RewardFn<number>['score']
  readonly numTurns?: number
}

/** Says `20` for the first sibling and `21` for the second. */
function twoAnswers(version = 0): ScriptedPolicy {
  const reply = ({ requestId }: GenerateRequest) => [requestId.includes('rollout=0') ? 20 : 21, 9]
  return new ScriptedPolicy({ reply, version })
}

/** A controller over groups of two rollouts, whose training adds one to the version of the policy. */
function controllerOf({
  answers,
  makeEnv = () => scriptedEnv(),
  score,
  numTurns = 1,
  ...options
}: World = {}) {
  const policy = answers ?? twoAnswers()
  const task: Task<number> = {
    name: 'toy',
    makeDataset: () => listDataset({ items: Array.from({ length: 1000 }, (_, index) => index) }),
    makeEnv,
    rewardFns: [score ? { name: 'own', score } : siblings],
    isSolved: () => true,
  }
  const renderer = new ToyRenderer()
  const rollouter = new Rollouter({ policy, task, renderer, groupSize: 2, maxTokens: 8, maxTurns: numTurns })
  const batches: StepBatch[] = []
  const train = async (batch: StepBatch) => {
    batches.push(batch)
    if (policy instanceof ScriptedPolicy) policy.version += 1
    return { version: policy.version, metrics: {} }
  }
  const shared = { rollouter, policy, train, groupsPerStep: 2, steps: 3 }
  return { controller: new Controller({ ...shared, ...options }), policy, rollouter, batches }
}

async function stepsOf(controller: Controller<number>): Promise<ControllerStep<number>[]> {
  const steps: ControllerStep<number>[] = []
  for await (const step of controller) steps.push(step)
  return steps
}

const groupIds = (steps: readonly ControllerStep<number>[]) =>
  steps.map(({ groups }) => groups.map(({ groupId }) => groupId))
const agesOf = (steps: readonly ControllerStep<number>[]) =>
  steps.map(({ metrics }) => metrics['train_batch/policy_age/max'])

describe('a synchronous Controller', () => {
  it('trains each batch on groups that the last step’s weights sampled, in their order', async () => {
    const { controller, batches } = controllerOf()
    const steps = await stepsOf(controller)
    expect(groupIds(steps)).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
    ])
    expect(agesOf(steps)).toEqual([0, 0, 0])
    expect(batches.map(({ minPolicyVersions }) => minPolicyVersions)).toEqual([
      [0, 0, 0, 0],
      [1, 1, 1, 1],
      [2, 2, 2, 2],
    ])
  })

  it('has nothing pending while its caller has a step, and samples nothing meanwhile', async () => {
    const { controller, policy } = controllerOf()
    for await (const { index } of controller) {
      const { length } = (policy as ScriptedPolicy).requests
      await tick()
      expect((policy as ScriptedPolicy).requests).toHaveLength(length)
      expect(controller.stateDict()).toEqual({
        rollouter: { train: { position: 2 * (index + 1) }, numGroups: 2 * (index + 1) },
        pending: [],
      })
    }
  })

  it('draws further groups until enough of them teach, if it is told to', async () => {
    const isEven = (requestId: string) => Number(/group=(\d+)/.exec(requestId)?.[1]) % 2 === 0
    const reply = ({ requestId }: GenerateRequest) => [
      isEven(requestId) || requestId.includes('rollout=0') ? 20 : 21,
      9,
    ]
    const world = { answers: new ScriptedPolicy({ reply }), steps: 2 }
    const fixed = await stepsOf(controllerOf(world).controller)
    expect(fixed.map(({ metrics }) => metrics['train_batch/num_training_samples/mean'])).toEqual([2, 2])
    const steps = await stepsOf(controllerOf({ ...world, dynamicSampling: true }).controller)
    expect(steps.map(({ metrics }) => metrics['train_batch/num_training_samples/mean'])).toEqual([4, 4])
    expect(steps[0]?.groups.map(({ groupId }) => groupId)).toEqual([0, 1, 2, 3])
    expect(steps[0]?.metrics).toMatchObject({
      'train_batch/num_metric_only_groups/mean': 2,
      'rollout_buffer/released/filtered/sum': 2,
      'training_sample_builder/num_groups_dropped_zero_std/sum': 2,
    })
  })

  it('gives each group with the step that trains it, also where groups are left out or run ahead', async () => {
    const isEven = (requestId: string) => Number(/group=(\d+)/.exec(requestId)?.[1]) % 2 === 0
    const reply = ({ requestId }: GenerateRequest) => [
      isEven(requestId) || requestId.includes('rollout=0') ? 20 : 21,
      9,
    ]
    const ahead = windowedFifo({ groupsPerStep: 2, offPolicySteps: 2, windowFraction: 0.5 })
    for (const options of [{}, { dynamicSampling: true }, { staleness: ahead, firstStep: 1 }]) {
      const given = new Map<number, number>()
      const answers = new ScriptedPolicy({ reply })
      const onGroup: ControllerOptions<number>['onGroup'] = ({ groupId }, { step }) =>
        given.set(groupId, step)
      const steps = await stepsOf(controllerOf({ ...options, answers, onGroup }).controller)
      const trained = steps.flatMap(({ index, groups }) => groups.map(({ groupId }) => [groupId, index + 1]))
      expect(trained.map(([groupId]) => [groupId, given.get(groupId ?? -1)])).toEqual(trained)
    }
  })

  it('gives up once too many groups in a row teach nothing, with the commonest reason', async () => {
    const { controller } = controllerOf({ score: () => 1, dynamicSampling: true, maxEmptyGroups: 5 })
    await expect(stepsOf(controller)).rejects.toThrow(
      'a group must have something to train within 5 groups: got training_sample_builder/num_groups_dropped_zero_std',
    )
  })

  it('says why when no rollout of a step could be scored', async () => {
    const { controller } = controllerOf({ score: () => Number.NaN })
    await expect(stepsOf(controller)).rejects.toThrow(code('NON_FINITE'))
  })
})

describe('an asynchronous Controller', () => {
  const staleness = windowedFifo({ groupsPerStep: 2, offPolicySteps: 2, windowFraction: 0.5 })

  it('samples while it trains, never more groups than there are slots', async () => {
    const { controller, policy } = controllerOf({
      staleness,
      train: async () => {
        const { requests } = policy as ScriptedPolicy
        for (let round = 0; round < 20; round++) await tick()
        expect(requests.length).toBeLessThanOrEqual(2 * 6)
        ;(policy as ScriptedPolicy).version += 1
        return { version: policy.version, metrics: { numRequests: requests.length } }
      },
      steps: 9,
    })
    for await (const step of controller) {
      expect(step.metrics.numRequests).toBe(12)
      break
    }
  })

  it('keeps every age within its bound, whatever finishes when, and trains every group once', async () => {
    const plan = fc.record({
      groupsPerStep: fc.integer({ min: 1, max: 3 }),
      offPolicySteps: fc.integer({ min: 0, max: 3 }),
      windowFraction: fc.constantFrom(null, 0.3, 1),
      delays: fc.array(fc.nat(6), { minLength: 40, maxLength: 40 }),
    })
    await fc.assert(
      fc.asyncProperty(plan, async ({ delays, ...options }) => {
        const policy = windowedFifo(options)
        const wait = async (rounds: number) => {
          for (let round = 0; round < rounds; round++) await tick()
        }
        const inner = twoAnswers()
        const reply = async (request: GenerateRequest) => {
          const group = Number(/group=(\d+)/.exec(request.requestId)?.[1])
          await wait(delays[group % delays.length] ?? 0)
          return [request.requestId.includes('rollout=0') ? 20 : 21, 9]
        }
        const answers = new ScriptedPolicy({ reply })
        const { controller } = controllerOf({
          answers,
          staleness: policy,
          groupsPerStep: options.groupsPerStep,
          steps: 5,
          train: async () => {
            await wait(delays[inner.version % delays.length] ?? 0)
            inner.version += 1
            answers.version = inner.version
            return { version: inner.version, metrics: {} }
          },
        })
        const steps = await stepsOf(controller)
        expect(Math.max(...agesOf(steps).map((age) => age ?? 0))).toBeLessThanOrEqual(policy.maxAge)
        const ids = groupIds(steps).flat()
        expect(ids).toHaveLength(5 * options.groupsPerStep)
        expect(new Set(ids).size).toBe(ids.length)
      }),
      { seed: 3, numRuns: 25 },
    )
  })

  it('gives groups up that got too old while they were sampled, and cancels their rollouts', async () => {
    const signals: (AbortSignal | undefined)[] = []
    let numCalls = 0
    const answers: Policy = {
      version: 0,
      generate: (request) => {
        signals.push(request.signal)
        numCalls += 1
        return numCalls <= 2 ? new Promise(() => {}) : twoAnswers(version).generate(request)
      },
    }
    let version = 0
    const { controller } = controllerOf({
      answers,
      staleness: readyFirst({ groupsPerStep: 1, offPolicySteps: 1, overStale: 'cancel' }),
      groupsPerStep: 1,
      steps: 3,
      train: async () => ({ version: ++version, metrics: {} }),
    })
    const steps = await stepsOf(controller)
    expect(groupIds(steps).flat()).not.toContain(0)
    expect(signals[0]?.aborted).toBe(true)
    const released = steps.map(({ metrics }) => metrics['rollout_buffer/released/stale/sum'] ?? 0)
    expect(released.reduce((sum, count) => sum + count, 0)).toBe(1)
  })

  it.each(
    [capacityRule, readyFirst].flatMap((make) => [
      { make, overStale: 'continue' as const, trained: [2, 2], age: 2 },
      { make, overStale: 'maskPrefix' as const, trained: [1, 1], age: 1 },
      { make, overStale: 'withhold' as const, trained: [], age: 0 },
      { make, overStale: 'cancel' as const, trained: [], age: 0 },
    ]),
  )(
    'trains what $overStale leaves of rollouts that got too old behind a slow step: $make.name',
    async (row) => {
      const { make, overStale, trained, age } = row
      let version = 0
      let finishFirst = () => {}
      const firstMayEnd = new Promise<void>((resolve) => {
        finishFirst = resolve
      })
      const answers: Policy = {
        version: 0,
        generate: async (request) => {
          const isFirst = request.requestId.startsWith('group=0/')
          if (isFirst) await firstMayEnd
          // The first group's first token is of the first weights, its second one of those at its end.
          const versions = [isFirst ? 0 : version, version] as const
          const completion = await twoAnswers(version).generate(request)
          return { ...completion, policyVersions: Uint32Array.from(versions), minPolicyVersion: versions[0] }
        },
      }
      const batches: StepBatch[] = []
      const { controller } = controllerOf({
        answers,
        staleness: make({ groupsPerStep: 1, offPolicySteps: 1, overStale }),
        groupsPerStep: 1,
        steps: 4,
        train: async (batch) => {
          batches.push(batch)
          // The first group ends while the second step trains, so its batch waits until the weights are of version 2.
          if (version === 1) {
            finishFirst()
            for (let turn = 0; turn < 50; turn++) await tick()
          }
          version += 1
          return { version, metrics: {} }
        },
      })
      const steps = await stepsOf(controller)
      expect(groupIds(steps)[2]).toEqual([0])
      const counts = batches[2]?.samples.map(({ mask }) => mask.reduce((sum, flag) => sum + flag, 0))
      expect(counts).toEqual(trained)
      expect(batches[2]?.microbatches.flat().map(({ batch }) => batch?.numTrained ?? 0)).toEqual([
        trained.reduce((sum: number, count) => sum + count, 0),
      ])
      expect(agesOf(steps)[2] ?? 0).toBe(age)
    },
  )

  it('ends with EMPTY, and says why, when everything is always too old to train', async () => {
    let version = 0
    const answers: Policy = {
      version: 0,
      generate: async (request) => await twoAnswers(0).generate(request), // whose weights never change
    }
    const world = (maxEmptyGroups: number) => ({
      answers,
      staleness: readyFirst({ groupsPerStep: 2, offPolicySteps: 1 }),
      steps: 6,
      maxEmptyGroups,
      train: async () => {
        version += 1
        return { version, metrics: {} }
      },
    })
    // Two steps are young enough; the third, fourth, ... are not.
    await expect(stepsOf(controllerOf(world(7)).controller)).rejects.toThrow(
      expect.objectContaining({
        code: 'EMPTY',
        message: expect.stringMatching(/within 7 groups: got samples that are too old/),
      }),
    )
    expect(version).toBe(5)
    version = 0
    expect(await stepsOf(controllerOf(world(8)).controller)).toHaveLength(6)
  })

  it('ends both sides when training fails, and knows which groups to run again', async () => {
    const { controller, policy } = controllerOf({
      staleness,
      train: async () => {
        throw new Error('out of memory')
      },
    })
    await expect(stepsOf(controller)).rejects.toThrow('out of memory')
    const { length } = (policy as ScriptedPolicy).requests
    await tick()
    expect((policy as ScriptedPolicy).requests).toHaveLength(length)
    const { pending, rollouter } = controller.stateDict()
    expect(pending.map(({ groupId }) => groupId)).toEqual(
      Array.from({ length: rollouter.numGroups }, (_, index) => index),
    )
  })

  it('ends both sides when sampling fails', async () => {
    const { controller } = controllerOf({
      staleness,
      makeEnv: () => {
        throw new Error('no sandbox left')
      },
    })
    await expect(stepsOf(controller)).rejects.toThrow(/no sandbox left/)
  })

  it('stops with ABORTED, at once, whatever its policy does', async () => {
    const abort = new AbortController()
    const answers: Policy = { version: 0, generate: () => new Promise(() => {}) }
    const { controller } = controllerOf({ answers, staleness, signal: abort.signal })
    const running = stepsOf(controller)
    await tick()
    abort.abort()
    await expect(running).rejects.toThrow(code('ABORTED'))
    expect(controller.stateDict().pending).toHaveLength(6)
    const early = controllerOf({ signal: AbortSignal.abort() })
    await expect(stepsOf(early.controller)).rejects.toThrow(code('ABORTED'))
  })

  it('stops everything when its caller leaves the loop', async () => {
    const { controller, policy } = controllerOf({ staleness, steps: 100 })
    for await (const _ of controller) break
    const { length } = (policy as ScriptedPolicy).requests
    await tick()
    expect((policy as ScriptedPolicy).requests).toHaveLength(length)
  })

  it('runs what was begun and not trained again after a resume, before anything new', async () => {
    const first = controllerOf({ staleness, steps: 100 })
    let state: unknown
    const trained: number[] = []
    for await (const step of first.controller) {
      trained.push(...step.groups.map(({ groupId }) => groupId))
      state = JSON.parse(JSON.stringify(first.controller.stateDict()))
      if (step.index === 2) break
    }
    const resumed = controllerOf({ staleness, firstStep: 3, steps: 8 })
    resumed.controller.loadStateDict(state)
    const steps = await stepsOf(resumed.controller)
    const all = [...trained, ...groupIds(steps).flat()]
    expect(new Set(all).size).toBe(all.length)
    expect([...all].sort((a, b) => a - b)).toEqual(Array.from({ length: 16 }, (_, index) => index))
    for (const { groupId, sample } of steps.flatMap(({ groups }) => groups)) expect(sample).toBe(groupId)
  })

  it('tells a run that does not move from one that does', async () => {
    const clock = new ManualClock()
    const answers: Policy = { version: 0, generate: () => new Promise(() => {}) }
    const { controller } = controllerOf({ answers, staleness, clock, stallTimeoutMs: 1000 })
    const running = stepsOf(controller)
    await tick()
    clock.advance(1000)
    await expect(running).rejects.toThrow(
      'a group must finish or a step end within 1000 ms: got 0 waiting, 6 inflight, 0 finalized',
    )
    expect(clock.numTimers).toBe(0)
  })

  it('takes weights to its policies in the background, and gives slots back once they are served', async () => {
    const log: string[] = []
    const policy = new ParkingPolicy(twoAnswers(0))
    const sync = new WeightSync<Policy>({
      capture: (version) => {
        log.push(`capture ${version}`)
        return twoAnswers(version)
      },
      receivers: [policy],
    })
    let version = 0
    const { controller } = controllerOf({
      answers: policy,
      staleness: strictFifo({ groupsPerStep: 2, offPolicySteps: 1 }),
      steps: 4,
      weightSync: sync as WeightSync<never>,
      train: async ({ minPolicyVersions }, { beforeUpdate, step }) => {
        log.push(`train ${step} on ${Math.min(...minPolicyVersions)}`)
        await beforeUpdate()
        return { version: ++version, metrics: {} }
      },
    })
    const steps = await stepsOf(controller)
    expect(policy.version).toBe(4)
    expect(log.filter((line) => line.startsWith('capture'))).toEqual([
      'capture 1',
      'capture 2',
      'capture 3',
      'capture 4',
    ])
    expect(Math.max(...agesOf(steps).map((age) => age ?? 0))).toBeLessThanOrEqual(1)
    expect(log[0]).toBe('train 0 on 0')
  })

  it('ends when weights cannot be served', async () => {
    const broken = {
      name: 'server',
      version: 0,
      stage: () => {
        throw new Error('connection reset')
      },
      commit: () => {},
      rollback: () => {},
    }
    const weightSync = new WeightSync<number>({ capture: () => 1, receivers: [broken], attempts: 1 })
    const { controller } = controllerOf({ staleness, weightSync: weightSync as WeightSync<never> })
    await expect(stepsOf(controller)).rejects.toThrow(code('UNAVAILABLE'))
  })

  it('parks rollouts of many turns across weight updates and trains them with the versions of their tokens', async () => {
    const policy = new ParkingPolicy(twoAnswers(0))
    let version = 0
    const { controller, batches } = controllerOf({
      answers: policy,
      numTurns: 6,
      staleness: windowedFifo({ groupsPerStep: 1, offPolicySteps: 3, windowFraction: 1 }),
      groupsPerStep: 1,
      steps: 6,
      train: async (batch) => {
        batches.push(batch)
        policy.stage(twoAnswers(++version))
        await policy.commit(version)
        policy.settle()
        return { version, metrics: {} }
      },
    })
    const steps = await stepsOf(controller)
    expect(steps).toHaveLength(6)
    const samples = batches.flatMap((batch) => batch.samples)
    for (const { versions, mask, minPolicyVersion, maxPolicyVersion } of samples) {
      const trained = [...versions].filter((_, at) => mask[at] === 1)
      expect(Math.min(...trained)).toBe(minPolicyVersion)
      expect(Math.max(...trained)).toBe(maxPolicyVersion)
      expect(trained).toEqual([...trained].sort((a, b) => a - b))
    }
  })
})

describe('Controller', () => {
  it('refuses numbers and states that cannot be', () => {
    expect(() => controllerOf({ groupsPerStep: 0 })).toThrow(code('OUT_OF_RANGE'))
    expect(() => controllerOf({ steps: -1 })).toThrow(code('OUT_OF_RANGE'))
    const small = strictFifo({ groupsPerStep: 1, offPolicySteps: 0 })
    expect(() => controllerOf({ staleness: small })).toThrow('capacity of staleness must be >= groupsPerStep')
    const { controller } = controllerOf()
    const rollouter = { train: { position: 0 }, numGroups: 0 }
    const load = (pending: unknown) => () => controller.loadStateDict({ rollouter, pending })
    expect(load('none')).toThrow(code('MALFORMED'))
    expect(load([{ groupId: 0 }])).toThrow(code('OUT_OF_RANGE'))
    expect(load([{ groupId: 0, cursor: { position: 0 }, extra: 1 }])).toThrow(code('UNKNOWN_NAME'))
  })

  it('takes no step where there is none to take', async () => {
    expect(await stepsOf(controllerOf({ steps: 0 }).controller)).toEqual([])
  })
})

import { describe, expect, it } from 'vitest'
import { CharTokenizer, createRenderer, Rollouter } from '../../../src/index.js'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import {
  fitTable,
  type MakeMLGymOptions,
  type MLGymTask,
  MLGymWrapper,
  makeMLGym,
  mlGym,
  replyPolicy,
  rollout,
  StepCounter,
  specEnvOf,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { worksHere } from '../../tools/sandbox-here.js'
import { failing } from './chats.js'
import { block, timesTask } from './ml-gym.js'

const isUsable = await worksHere()
const writes = (text: string) => `${block('write n.txt', text)}\n${block('submit')}`

/** One step of a batch: each element says its text. */
async function oneStep(options: MakeMLGymOptions, ...texts: string[]) {
  const env = makeMLGym({ numEnvs: texts.length, ...options })
  try {
    const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => texts[at] ?? '' })
    const { parts } = await rollout(env, policy, { maxSteps: 1 })
    const next = parts[0]?.dict('next')
    if (next === undefined) throw new Error('there must be a step')
    return {
      rewards: [...next.tensor('reward').toFloat32()],
      scored: [...next.tensor('scored').data],
      done: [...next.tensor('done').data],
      unscored: next.value('unscored') as readonly (string | null)[],
    }
  } finally {
    await env.close()
  }
}

describe.runIf(isUsable)('makeMLGym', () => {
  it('rewards each element by its score less the baseline, and leaves failures unscored', async () => {
    const { rewards, scored, done, unscored } = await oneStep(
      { task: timesTask() },
      writes('3'),
      writes('0'),
      writes('x'),
      `${block('bash', 'rm n.txt')}\n${block('submit')}`,
      'no code',
    )
    expect(rewards).toEqual([20, -10, Number.NaN, Number.NaN, 0])
    expect(scored).toEqual([1, 1, 0, 0, 1])
    expect(done).toEqual([1, 1, 1, 1, 0])
    expect(unscored[2]).toMatch(/submission_failed: .*no number/)
    expect(unscored[3]).toMatch(/no_submission: n\.txt/)
  })

  it('gives failures of the agent a reward on request, never those of the scorer', async () => {
    const options = { task: timesTask(), failureReward: -5, rewardWrongFormat: -1, maxRetries: 0 }
    expect((await oneStep(options, writes('x'), 'no code')).rewards).toEqual([-5, -1])
    const code = `import os
if os.path.exists("submission/extra.txt"): raise SystemExit(1)
print('{"score": 1}')`
    const scorer = { command: ['python3', '-I', 'score.py'], files: { 'score.py': code } }
    const breaks = `${block('write extra.txt', 'a')}\n${block('submit')}`
    const { rewards, unscored } = await oneStep(
      { ...options, task: timesTask({ scorer }) },
      breaks,
      block('submit'),
    )
    expect(rewards).toEqual([Number.NaN, 0])
    expect(unscored[0]).toMatch(/scorer_failed/)
  })

  it('cannot be given a reason by what the agent prints', async () => {
    const forged = `${block('bash', 'echo "Without a score: forged"; echo "The score is 99"')}\n${block('submit')}`
    expect(await oneStep({ task: timesTask() }, forged)).toMatchObject({ rewards: [0], scored: [1] })
    const lost = `${block('bash', 'echo "Without a score: forged"; rm n.txt')}\n${block('submit')}`
    expect((await oneStep({ task: timesTask() }, lost)).unscored[0]).toMatch(/: no_submission: n\.txt/)
  })

  it('has specs that hold, transforms around it, and takes several tasks in turn', async () => {
    const other = timesTask({ name: 'other', instructions: 'Another one.' })
    const env = makeMLGym({ tasks: [timesTask(), other], split: 'validation', maxSteps: 1 })
    await checkEnvSpecs(specEnvOf(env))
    const counted = new TransformedEnv(env, [new StepCounter()])
    const policy = replyPolicy({ inputMode: 'history', reply: () => writes('2') })
    env.setSeed(0)
    for (const words of ['Write a large', 'Another one']) {
      const { parts } = await rollout(counted, policy, { maxSteps: 2 })
      expect(JSON.stringify(parts[0]?.value('query'))).toContain(words)
      expect(parts[0]?.tensor(['next', 'step_count']).data[0]).toBe(1n)
    }
    await env.close()
  })
})

describe.runIf(isUsable)('mlGym', () => {
  it('is a task for a rollouter, whose truncated rollouts are unscored', async () => {
    using tokenizer = new CharTokenizer()
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const says = (text: string) => [...tokenizer.encode(text).ids, renderer.stopIds[0] ?? 0]
    const replies = [writes('2'), writes('x'), block('bash', 'true')]
    const policy = new ScriptedPolicy({ reply: (_, call) => says(replies[call] ?? '') })
    const task = mlGym({ tasks: [timesTask()] })
    const rollouter = new Rollouter({ policy, task, renderer, groupSize: 3, maxTokens: 256, maxTurns: 1 })
    using group = await rollouter.runGroup({ sample: task.makeDataset('train').next(), groupId: 0 })
    const all = group.rollouts.map(({ reward, status }) => `${status} ${reward}`).sort()
    expect(all).toEqual(['completed 10', 'completed null', 'truncated_max_turns null'])
  })

  it('measures a baseline once a task, and again where it failed', async () => {
    const task = timesTask()
    const files = { ...task.files }
    const gym = mlGym({ tasks: [{ ...task, files }] })
    const sample = gym.makeDataset('train').next()
    const begin = async () => {
      const env = gym.makeEnv(sample)
      await env.init({ signal: new AbortController().signal })
      await env.close()
    }
    files['n.txt'] = 'words'
    await expect(begin()).rejects.toThrow(failing('INCOMPATIBLE'))
    files['n.txt'] = '5'
    await begin()
    files['n.txt'] = 'words' // no baseline is measured any more
    await Promise.all([begin(), begin()])
  })
})

describe('makeMLGym', () => {
  it('takes either a task or tasks, by name or whole', async () => {
    const env = makeMLGym({ task: 'fitTable', numEnvs: 2, repeats: 2, groupRepeats: true })
    expect(env).toBeInstanceOf(MLGymWrapper)
    expect(env.batchSize).toEqual([4])
    await env.close()
    expect(() => makeMLGym({ tasks: ['fitTable', fitTable({ seed: 1 })] })).not.toThrow()
    expect(() => makeMLGym({})).toThrow(failing('MALFORMED', /neither/))
    expect(() => makeMLGym({ task: 'fitTable', tasks: [] })).toThrow(failing('MALFORMED', /both/))
    expect(() => makeMLGym({ task: 'prisonersDilemma' as never })).toThrow(
      failing('UNKNOWN_NAME', /fitTable/),
    )
    expect(() => makeMLGym({ task: 'toString' as never })).toThrow(failing('UNKNOWN_NAME'))
    expect(() => makeMLGym({ tasks: [] })).toThrow(failing('EMPTY'))
    expect(() => makeMLGym({ tasks: 'fitTable' as never })).toThrow(failing('MALFORMED'))
    expect(() => makeMLGym({ task: {} as MLGymTask })).toThrow(failing('MALFORMED'))
  })

  it('refuses options that do not fit', () => {
    const task = timesTask()
    expect(() => makeMLGym({ task, maxTurns: 3 } as never)).toThrow(failing('UNKNOWN_NAME'))
    expect(() => makeMLGym({ task, baseline: async () => 1 } as never)).toThrow(failing('UNKNOWN_NAME'))
    expect(() => makeMLGym({ task, failureReward: Number.NaN })).toThrow(failing('NON_FINITE'))
    expect(() => makeMLGym({ task, rewardWrongFormat: Number.POSITIVE_INFINITY })).toThrow(
      failing('NON_FINITE'),
    )
    expect(() => makeMLGym({ task, maxSteps: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => mlGym({ tasks: [task], validationTasks: [] })).toThrow(failing('EMPTY'))
  })
})

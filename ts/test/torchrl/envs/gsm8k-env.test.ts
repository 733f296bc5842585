import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { chatsAt, GSM8KEnv, MATHEnv, replyPolicy, rollout, specEnvOf } from '../../../src/torchrl/index.js'
import { failing } from './chats.js'

const dataset = [
  { question: 'One and one?', answer: '1+1=2\n#### 2' },
  { question: 'Two and two?', answer: '2+2=4\n#### 4' },
]

describe('GSM8KEnv', () => {
  it('asks the question of a row, and ends after one step', async () => {
    const env = new GSM8KEnv({ dataset, shuffle: false, numEnvs: 2 })
    const dict = await env.reset()
    const chats = chatsAt(dict, ['history', 'prompt'])
    expect(chats.map((chat) => chat.map(({ role }) => role))).toEqual([
      ['system', 'user'],
      ['system', 'user'],
    ])
    expect(chats[1]?.[1]?.content).toBe('Two and two?')
    expect(dict.value('answer')).toEqual(dataset.map(({ answer }) => answer))
    const policy = replyPolicy({
      inputMode: 'history',
      reply: (_, at) => (at ? 'hm' : '<answer>two: 2.00</answer>'),
    })
    const steps = await rollout(env, policy, { maxSteps: 3 })
    expect(steps.batchSize).toEqual([2, 1])
    expect([...(steps.parts[0]?.tensor(['next', 'truncated']).data ?? [])]).toEqual([1, 1])
    expect([...(steps.parts[0]?.tensor(['next', 'terminated']).data ?? [])]).toEqual([1, 0])
  })

  it('takes as many steps as it is asked for where elements begin anew', async () => {
    const env = new GSM8KEnv({ dataset, numEnvs: 3 })
    const policy = replyPolicy({ inputMode: 'history', reply: () => '<answer>2</answer>' })
    const steps = await rollout(env, policy, { maxSteps: 3, breakWhenAnyDone: false })
    expect(steps.batchSize).toEqual([3, 3])
  })

  it('leaves rewards to others, and takes a prompt and rewards of your own', async () => {
    const bare = new GSM8KEnv({ dataset, computeReward: false, systemPrompt: 'S' })
    expect(bare.rewardSpec.keys()).toEqual([])
    expect(chatsAt(await bare.reset(), ['history', 'prompt'])[0]?.[0]?.content).toBe('S')
    const env = new GSM8KEnv({ dataset, shuffle: false, reward: { correctReward: 2, formatReward: 0.5 } })
    const policy = replyPolicy({ inputMode: 'history', reply: () => '<answer>2</answer>' })
    const { parts } = await rollout(env, policy, { maxSteps: 1 })
    expect(parts[0]?.tensor(['next', 'reward']).data[0]).toBe(2)
  })

  it('does what its specs say', async () => {
    await checkEnvSpecs(specEnvOf(new GSM8KEnv({ dataset, numEnvs: 2, repeats: 2, groupRepeats: true })))
  })

  it('refuses malformed rows, naming them', () => {
    const made = (row: object) => () => new GSM8KEnv({ dataset: [dataset[0], row] as never })
    expect(made({ question: 'q', answer: '4' })).toThrow(failing('MALFORMED', /^dataset\[1\]: answer/))
    expect(made({ question: 'q', answer: 'a #### 4 #### 5' })).toThrow(failing('MALFORMED', /^dataset\[1\]/))
    expect(made({ answer: '#### 4' })).toThrow(failing('MALFORMED', /question/))
    expect(() => new GSM8KEnv({ dataset, maxSteps: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new GSM8KEnv({ dataset, applyTemplate: true } as never)).toThrow(failing('UNKNOWN_NAME'))
  })
})

describe('MATHEnv', () => {
  it('scores the answer against the box of the solution', async () => {
    const problems = [
      { problem: 'Half?', solution: 'So $\\boxed{\\frac{1}{2}}$.', level: 'Level 1' },
      { problem: 'Two?', solution: '\\boxed{1} and \\boxed{2}', level: 'Level 2' },
    ]
    const env = new MATHEnv({ dataset: problems, shuffle: false, numEnvs: 2 })
    await checkEnvSpecs(specEnvOf(env))
    env.resetDataloader()
    const policy = replyPolicy({
      inputMode: 'history',
      reply: (_, at) => `<answer>${at ? 1 : '\\frac12'}</answer>`,
    })
    const { parts } = await rollout(env, policy, { maxSteps: 1 })
    const rewards = [...(parts[0]?.tensor(['next', 'reward']).toFloat32() ?? [])]
    expect(rewards[0]).toBe(1)
    expect(rewards[1]).toBeCloseTo(0.1)
    expect(parts[0]?.value('level')).toEqual(['Level 1', 'Level 2'])
    expect(() => new MATHEnv({ dataset: [{ problem: 'p' }] as never })).toThrow(
      failing('MALFORMED', /solution/),
    )
  })
})

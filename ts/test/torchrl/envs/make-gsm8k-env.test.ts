import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { NonTensorStack, type TensorDict } from '../../../src/tensor/index.js'
import { makeGsm8kEnv, rollout, specEnvOf } from '../../../src/torchrl/index.js'
import { failing } from './chats.js'

const dataset = [
  { question: '1+1?', answer: '#### 2' },
  { question: '2+2?', answer: '#### 4' },
]
const says = (text: string) => (dict: TensorDict) =>
  dict.set('text_response', new NonTensorStack(new Array(dict.batchSize[0] ?? 0).fill(text)))

describe('makeGsm8kEnv', () => {
  it('takes one step an episode, or as many episodes as steps are asked for', async () => {
    const env = makeGsm8kEnv({ dataset, numEnvs: 2, repeats: 2 })
    expect((await rollout(env, says('x'), { maxSteps: 3 })).batchSize).toEqual([2, 1])
    const steps = await rollout(env, says('<answer>2</answer>'), { maxSteps: 3, breakWhenAnyDone: false })
    expect(steps.batchSize).toEqual([2, 3])
    expect(steps.parts.map((part) => part.tensor(['next', 'reward']).shape)).toEqual([
      [2, 1, 1],
      [2, 1, 1],
      [2, 1, 1],
    ])
    const questions = steps.parts.flatMap((part) => part.value('text') as string[])
    expect(questions.every((text) => /User: \d\+\d\? Assistant: <think>$/.test(text))).toBe(true)
    const next = steps.parts[0]?.value(['next', 'text']) as string[]
    expect(next[0]?.endsWith('<think><answer>2</answer>')).toBe(true)
  })

  it('does what its specs say, and refuses rows without a number', async () => {
    await checkEnvSpecs(specEnvOf(makeGsm8kEnv({ dataset, numEnvs: 2, repeats: 2, groupRepeats: true })))
    const wrong = [{ question: 'q', answer: 'none' }]
    expect(() => makeGsm8kEnv({ dataset: wrong })).toThrow(failing('MALFORMED', /answer/))
  })
})

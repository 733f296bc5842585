import { expect, it } from 'vitest'
import type { Task } from '../../../src/env/index.js'
import { ifeval } from '../../../src/task/ifeval.js'
import { countdown, gsm8k, math } from '../../../src/task/index.js'
import {
  CountdownEnv,
  chatsAt,
  type EnvBase,
  GSM8KEnv,
  IFEvalEnv,
  MATHEnv,
} from '../../../src/torchrl/index.js'

const question = { question: '1+1?', answer: '#### 2' }
const problem = { problem: 'Half of one?', solution: '\\boxed{0.5}' }
const instructed = { prompt: 'No commas.', instruction_id_list: ['punctuation:no_comma'], kwargs: [{}] }

it.each<[string, Task<never>, EnvBase]>([
  ['gsm8k', gsm8k({ rows: [question] }), new GSM8KEnv({ dataset: [question] })],
  ['math', math({ rows: [problem] }), new MATHEnv({ dataset: [problem] })],
  ['ifeval', ifeval({ rows: [instructed] }), new IFEvalEnv({ dataset: [instructed] })],
  ['countdown', countdown({ seed: 3 }), new CountdownEnv({ seed: 3 })],
])('asks %s in the same words as a conversation and as a dictionary', async (_, task, env) => {
  const conversation = task.makeEnv(task.makeDataset('train').next())
  const { initPromptMessages } = await conversation.init({ signal: new AbortController().signal })
  const dict = await env.reset()
  expect(initPromptMessages).toHaveLength(2)
  expect(chatsAt(dict, ['history', 'prompt'])[0]).toEqual(initPromptMessages)
})

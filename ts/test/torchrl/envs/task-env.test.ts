import { expect, it } from 'vitest'
import type { MessageEnv, Task } from '../../../src/env/index.js'
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

const firstOf = <Sample>(task: Task<Sample>) => task.makeEnv(task.makeDataset('train').next())

it.each<[string, MessageEnv, EnvBase]>([
  ['gsm8k', firstOf(gsm8k({ rows: [question] })), new GSM8KEnv({ dataset: [question] })],
  ['math', firstOf(math({ rows: [problem] })), new MATHEnv({ dataset: [problem] })],
  ['ifeval', firstOf(ifeval({ rows: [instructed] })), new IFEvalEnv({ dataset: [instructed] })],
  ['countdown', firstOf(countdown({ seed: 3 })), new CountdownEnv({ seed: 3 })],
])('asks %s in the same words as a conversation and as a dictionary', async (_, conversation, env) => {
  const { initPromptMessages } = await conversation.init({ signal: new AbortController().signal })
  const dict = await env.reset()
  expect(initPromptMessages).toHaveLength(2)
  expect(chatsAt(dict, ['history', 'prompt'])[0]).toEqual(initPromptMessages)
})

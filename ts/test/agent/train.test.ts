/** Agents in a whole training run, and the exactness of its first update. */

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Validator } from '@cfworker/json-schema'
import { describe, expect, it } from 'vitest'
import { checkTrainConfig, trainConfigSchema } from '../../src/train/index.js'
import { fulmar } from '../cli/fake-io.js'
import { temporaryFolder } from '../telemetry/folder.js'

/** Asks twice, once after its own answer, and posts the share of letters `a`. */
const AGENT = `
const { OPENAI_BASE_URL: url, OPENAI_API_KEY: key, FULMAR_SAMPLE } = process.env
const send = (path, body) => fetch(url + path, {
  method: 'POST', headers: { authorization: 'Bearer ' + key }, body: JSON.stringify(body),
}).then((answer) => answer.json())
const messages = [{ role: 'user', content: JSON.parse(FULMAR_SAMPLE).question }]
let text = ''
for (const more of ['More?', '']) {
  const { message } = (await send('/chat/completions', { model: 'm', messages })).choices[0]
  text += message.content
  messages.push(message, { role: 'user', content: more })
}
await send('/fulmar/reward', { reward: [...text].filter((letter) => letter > 'a').length })
`

const task = {
  kind: 'agent',
  name: 'letters',
  command: [process.execPath, '--input-type=module', '-e', AGENT],
  samples: [{ question: 'a' }, { question: 'b' }],
}

describe('fulmar train', () => {
  it('trains an agent that is a command, on the tokens that were sampled', async () => {
    const folder = await temporaryFolder()
    const runDir = join(folder, 'run')
    const samples = join(folder, 'samples.jsonl')
    await writeFile(samples, task.samples.map((sample) => `${JSON.stringify(sample)}\n`).join(''))
    const config = join(folder, 'config.json')
    const model = {
      ...{ hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 },
      ...{ num_attention_heads: 2, num_key_value_heads: 1 },
    }
    const grpo = { steps: 2, promptsPerStep: 1, groupSize: 4, maxTokens: 6, reference: false }
    const json = {
      ...{ runDir, model, grpo },
      task: { ...task, samples },
      sft: { steps: 0 },
      eval: { numProblems: 2 },
    }
    await writeFile(config, JSON.stringify(json))
    const trained = await fulmar(['train', config])
    expect([trained.code, trained.stderr]).toEqual([0, expect.stringMatching(/grpo step 2: pass rate \d/)])
    const lines = (await readFile(join(runDir, 'log.jsonl'), 'utf8')).trim().split('\n')
    const steps = lines.map((line) => JSON.parse(line)).filter(({ event }) => event === 'step')
    expect(steps.length).toBe(2)
    // Trainer and sampler agree to the bit on tokens that no text has passed through, in one branch a rollout.
    const exact = { ratioMax: 1, ratioMean: 1, logProbDiffMax: 0, numTokens: 48 }
    expect(steps[0].metrics).toMatchObject({ ...exact, 'rollout/branches_per_rollout/max': 1 })
    expect(steps[1].metrics).toMatchObject({ ratioMax: 1, 'rollout/error_rate/mean': 0 })
  })
})

describe('a configuration with an agent', () => {
  it('is checked, and has its schema', () => {
    const { task: read, runDir } = checkTrainConfig({ task })
    expect([read, runDir]).toEqual([task, 'runs/letters-seed0'])
    const bad = (more: object) => () => checkTrainConfig({ task: { ...task, ...more } })
    expect(bad({ kind: 'agnt' })).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
    expect(bad({ commands: ['x'] })).toThrow(/did you mean 'command'/)
    expect(bad({ samples: undefined })).toThrow(/config.task.samples must be/)
    expect(bad({ timeoutMs: 0 })).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    const validator = new Validator(JSON.parse(JSON.stringify(trainConfigSchema())), '2020-12')
    expect(validator.validate({ task }).valid).toBe(true)
    expect(validator.validate({ task: { ...task, commands: ['x'] } }).valid).toBe(false)
  })
})

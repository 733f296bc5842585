/**
 * `node docs/runs/agent-python-tool/train.mjs OUT [PYTHON]`: trains a tiny policy behind `agent.mjs`, and measures it on
 * numbers that it was not trained on. Then both agents, in JavaScript and in Python, ask the trained policy the same; PYTHON has the package
 * `openai`. Needs `dist/`.
 */

import assert from 'node:assert/strict'
import { appendFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { CharTokenizer, evaluate, grpo, loadModel, Rollouter, sft } from 'fulmar'
import { Decoder } from 'fulmar/model'
import { saveCheckpoint, TINY_DECODER } from 'fulmar/train'
import { agentTask } from 'fulmar/agent'
import OpenAI from 'openai'
import { agent } from './agent.mjs'

const [out = 'build/agent-python-tool', python] = process.argv.slice(2)
await mkdir(out, { recursive: true })
const log = (line) => {
  console.log(JSON.stringify(line))
  return appendFile(join(out, 'log.jsonl'), `${JSON.stringify(line)}\n`)
}

const CODE = 'print(sum(map(int,input().split())))'
const parameters = { type: 'object', properties: { code: { type: 'string' } } }
const tools = [{ type: 'function', function: { name: 'python', parameters } }]
const SHARE = 0.3 // of the examples use the tool
const user = { role: 'user', content: 'Sum?' }

/** A worked example: with the tool, or a guess. */
function example(index) {
  if (index % 10 >= 10 * SHARE) return { messages: [user, { role: 'assistant', content: String(20 + index) }], tools }
  const call = { id: 'call', type: 'function', function: { name: 'python', arguments: { code: CODE } } }
  return { messages: [user, { role: 'assistant', content: '', tool_calls: [call] }], tools }
}

const pairs = Array.from({ length: 200 }, (_, index) => ({ numbers: [10 + ((index * 37) % 89), 10 + ((index * 53) % 83)] }))
const samples = pairs.slice(0, 150)
const validationSamples = pairs.slice(150)
const run = ({ baseURL, apiKey, sample }) => agent(new OpenAI({ baseURL, apiKey }), sample)
const task = agentTask({ run, samples, validationSamples, name: 'sum' })

// A tiny model in a folder, whose tokens are characters and the special tokens of Qwen2.5, which has a form for tools.
const specialTokens = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<tool_call>', '</tool_call>']
const tokenizer = new CharTokenizer({ specialTokens })
const decoder = Decoder.fromSeed(
  { ...TINY_DECODER, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, vocab_size: tokenizer.vocabSize },
  { seed: 0 },
)
const files = { 'tokenizer.fulmar.json': JSON.stringify(tokenizer) }
await saveCheckpoint({ folder: join(out, 'model'), decoder, files })
const model = await loadModel(join(out, 'model'), { renderer: { name: 'qwen2_5' } })
const examples = Array.from({ length: 100 }, (_, index) => `${JSON.stringify(example(index))}\n`)
await writeFile(join(out, 'samples.jsonl'), examples.join(''))
for await (const { index, loss } of sft({ model, examples: join(out, 'samples.jsonl'), epochs: 40, batchSize: 10, learningRate: 3e-3 }))
  if (index % 100 === 99) await log({ sft: index + 1, loss })

const measured = { model, task, numProblems: 50, numAnswers: 2, maxTokens: 128 }
const pass = async (when) => {
  const { passRate, passRateInterval, numErrors } = await evaluate(measured)
  await log({ heldOut: when, passRate, passRateInterval, numErrors })
}
await pass('before')
for await (const { index, reward, update } of grpo({ model, task, steps: 32, promptsPerStep: 4, groupSize: 8, maxTokens: 128, learningRate: 1e-3 })) {
  const { ratioMax, logProbDiffMax } = update?.metrics ?? {}
  await log({ step: index, reward: reward.mean, ratioMax, logProbDiffMax })
}
await pass('after')

/** The tokens of a rollout of an agent that is a command. */
async function ledgerOf(command, sample) {
  const asCommand = agentTask({ command, samples: [sample], name: 'sum' })
  const rollouter = new Rollouter({ policy: model.policy, renderer: model.renderer, task: asCommand, groupSize: 1, maxTokens: 128, seed: 1 })
  const group = await rollouter.runGroup({ sample, groupId: 0 })
  const [rollout] = group.rollouts
  assert.equal(rollout.status, 'completed', rollout.error?.message)
  const text = JSON.stringify(rollout.ledger.toJSON())
  group[Symbol.dispose]()
  return text
}

if (python !== undefined) {
  let numSame = 0
  for (const sample of validationSamples.slice(0, 5)) {
    const ours = await ledgerOf(['node', join(import.meta.dirname, 'agent.mjs')], sample)
    numSame += Number(ours === (await ledgerOf([python, join(import.meta.dirname, 'agent.py')], sample)))
  }
  await log({ ledgersCompared: 5, ledgersTheSame: numSame })
  assert.equal(numSame, 5)
}

/**
 * The package with a decoder on the emulated GPU: rewards, weights and checkpoints are those of the CPU, bit for bit, and what runs
 * on the CPU alone is refused. Stage `cuda-decoder` runs this file with the emulated driver in its path.
 */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { lastCompletionText } from '../../dist/env/index.js'
import {
  createModel,
  DecoderPolicy,
  Engine,
  GRPOLoss,
  gpus,
  grpo,
  listDataset,
  loadModel,
  placeDevice,
  sft,
  WorkerPolicy,
} from '../../dist/index.js'
import {
  drawProbabilities,
  drawToken,
  headBackward,
  headLogProbs,
  tokenLogProbs,
  tokenLogProbsBackward,
} from '../../dist/objective/index.js'
import { ListStorage } from '../../dist/replay/index.js'
import { Tensor } from '../../dist/tensor/index.js'
import { checkTrainConfig, runTraining } from '../../dist/train/index.js'

const SHAPE = { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 }
const DEVICES = ['cpu', 'cuda:0']
const UNAVAILABLE = { code: 'UNAVAILABLE' }

const folder = mkdtempSync(join(tmpdir(), 'fulmar-gpu-'))
after(() => rmSync(folder, { recursive: true, force: true }))

/** A task whose reward differs from answer to answer, whatever an untrained model says. */
const task = {
  name: 'length',
  makeDataset: () => listDataset({ items: ['a', 'b', 'c', 'd'], shuffleSeed: 1 }),
  makeEnv: (letter) => ({
    init: () => ({ initPromptMessages: [{ role: 'user', content: letter }] }),
    step: () => ({ done: true }),
    close: () => undefined,
  }),
  rewardFns: [{ name: 'codes', score: (rollout) => codes(lastCompletionText(rollout)) }],
}

const codes = (text) => ([...text].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % 17) / 17

test('a GPU is listed and placed, and auto is the first one', () => {
  assert.deepEqual(
    gpus().map(({ name }) => name),
    ['emulated GPU'],
  )
  assert.deepEqual(
    [placeDevice('cuda'), placeDevice('cuda:0'), placeDevice('auto')],
    ['cuda:0', 'cuda:0', 'cuda:0'],
  )
  assert.throws(() => placeDevice('cuda:1'), UNAVAILABLE)
  const [{ memoryBytes, freeMemoryBytes, computeCapability, driverVersion, code }] = gpus()
  assert.deepEqual([computeCapability, driverVersion, code], ['9.0', '13.0', 'sm_90a'])
  assert.ok(freeMemoryBytes > 0 && freeMemoryBytes <= memoryBytes)
})

test('supervised steps, rollouts and GRPO on the GPU have the numbers of the CPU', async () => {
  const [onCpu, onGpu] = await Promise.all(DEVICES.map((device) => trained(device)))
  assert.ok(
    onCpu.steps.some(({ update }) => update !== null),
    'a step must change the weights',
  )
  assert.deepEqual(onGpu, onCpu)
})

test('an adapter is trained on the GPU, and drawn from, with the numbers of the CPU', async () => {
  const [onCpu, onGpu] = await Promise.all(DEVICES.map((device) => taught(device, { lora: { rank: 2 } })))
  const adapters = await Promise.all([onCpu, onGpu].map(({ model }) => model.decoder.loraToSafetensors()))
  assert.deepEqual(onGpu.losses, onCpu.losses)
  assert.deepEqual(adapters[1], adapters[0])
  const [said, again] = await Promise.all(
    [onCpu, onGpu].map(({ model }) => model.chat('hello', { maxTokens: 6, seed: 3 })),
  )
  assert.deepEqual(again, said)
})

test('a worker thread has its copy on the GPU, with the tokens of the CPU', async () => {
  const request = { requestId: 'a', promptIds: Uint32Array.of(5, 6), seed: 1, maxTokens: 4, stopIds: [] }
  const drawn = await Promise.all(
    DEVICES.map(async (device) => {
      const { decoder } = createModel({ seed: 5, device }, SHAPE)
      const policy = await WorkerPolicy.launch(decoder)
      try {
        const { ids, logProbs } = await policy.generate(request)
        return { ids, logProbs }
      } finally {
        await policy.close()
      }
    }),
  )
  assert.deepEqual(drawn[1], drawn[0])
  const { decoder } = createModel({ seed: 5, device: 'cuda:0' }, SHAPE)
  const policy = await WorkerPolicy.launch(decoder, { weights: 'q8' })
  await assert.rejects(policy.generate(request), UNAVAILABLE) // as the copy is on the GPU
  await policy.close()
})

test('policies and the run log report the memory of the GPU, and none on the CPU', async () => {
  for (const device of DEVICES) {
    const { decoder } = createModel({ seed: 5, device }, SHAPE)
    const policies = [new DecoderPolicy(decoder), await WorkerPolicy.launch(decoder)]
    for (const policy of policies) {
      const { policyVersion, ...memory } = await policy.report()
      assert.equal(policyVersion, 0)
      checkMemory(device, memory)
    }
    await policies[1].close()
    const runDir = join(folder, `run-${device === 'cpu' ? 'cpu' : 'gpu'}`)
    const grpoOptions = { steps: 1, promptsPerStep: 2, groupSize: 2, maxTokens: 4 }
    const evaluation = { numProblems: 1 }
    const sftOptions = { steps: 1, batchSize: 1 }
    const model = { ...SHAPE, device }
    const options = { seed: 3, runDir, model, sft: sftOptions, grpo: grpoOptions, eval: evaluation }
    await runTraining(checkTrainConfig(options))
    const events = readFileSync(join(runDir, 'log.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const steps = events.filter(({ event }) => event === 'step')
    assert.equal(steps.length, 2)
    for (const { metrics } of steps) {
      const names = Object.keys(metrics).filter((name) => name.startsWith('device'))
      checkMemory(device, Object.fromEntries(names.map((name) => [name, metrics[name]])))
    }
  }
})

/** Checks the fields of a report that tell of a GPU. */
function checkMemory(device, memory) {
  if (device === 'cpu') return assert.deepEqual(memory, {})
  const [{ memoryBytes }] = gpus()
  assert.deepEqual(Object.keys(memory).sort(), ['deviceFreeBytes', 'deviceMemoryBytes'])
  // The weights alone are more than that.
  assert.ok(memory.deviceMemoryBytes > 4 * 1000)
  assert.equal(memory.deviceMemoryBytes + memory.deviceFreeBytes, memoryBytes)
}

test('a saved model goes on, on either device', async () => {
  const path = join(folder, 'saved')
  await createModel({ seed: 5, device: 'cuda:0' }, SHAPE).save(path)
  const models = await Promise.all(DEVICES.map((device) => loadModel(path, { device })))
  assert.deepEqual(
    models.map(({ decoder }) => decoder.device),
    DEVICES,
  )
  const [said, again] = await Promise.all(
    models.map((model) => model.chat('hello', { maxTokens: 6, seed: 3 })),
  )
  assert.deepEqual(again, said)
})

test('heads, log-probs of logits and draws have the bits of the CPU, in chunks too', () => {
  const wave = (length, step) => Float32Array.from({ length }, (_, at) => Math.sin(at * step) * 3)
  const [rows, width, vocab] = [40, 12, 30_011] // more logits than one chunk holds
  const ids = Uint32Array.from({ length: rows }, (_, row) => (row * 7919) % vocab)
  const gradients = { gradLogProb: wave(rows, 1.7), gradEntropy: wave(rows, 0.3) }
  const head = {
    hidden: wave(rows * width, 0.7),
    weight: wave(vocab * width, 0.13),
    bias: wave(vocab, 0.9),
    width,
    ids,
  }
  const few = { logits: wave(rows * 50, 1.1), ids: ids.map((id) => id % 50) }
  const found = (device) =>
    [1, 0.7].flatMap((temperature) => [
      headLogProbs({ ...head, temperature, logSumSqProb: true, device }),
      headBackward({ ...head, ...gradients, temperature, device }),
      tokenLogProbs({ ...few, temperature, logSumSqProb: true, device }),
      tokenLogProbsBackward({ ...few, ...gradients, temperature, device }),
      ...[0, 1, 2].map((drawIndex) =>
        drawToken({
          logits: few.logits,
          topP: 0.8,
          repetitionPenalty: 1.2,
          outputIds: ids.map((id) => id % 50),
          temperature,
          seed: 5,
          drawIndex,
          device,
        }),
      ),
    ])
  const onCpu = found('cpu')
  assert.deepEqual(found('cuda:0'), onCpu)
  assert.deepEqual(found('auto'), onCpu)
  for (const logits of [Float32Array.of(1, Number.NaN), new Float32Array(0)]) {
    const refusal = (device) => {
      try {
        return drawToken({ logits, seed: 1, drawIndex: 0, device })
      } catch ({ code, message }) {
        return { code, message }
      }
    }
    assert.deepEqual(refusal('cuda:0'), refusal('cpu'))
  }
  const wrong = { ...few, logits: few.logits.map((logit, at) => (at === 2 * 50 + 3 ? Number.NaN : logit)) }
  assert.throws(() => tokenLogProbs({ ...wrong, device: 'cuda:0' }), {
    code: 'NON_FINITE',
    message: /^logits of row 2 /,
  })
})

test('what runs on the CPU alone is refused with its name', async () => {
  const { decoder } = createModel({ seed: 5, device: 'cuda:0' }, SHAPE)
  const onCpuAlone = { code: 'UNAVAILABLE', message: /^device must be cpu for anything but decoders/ }
  assert.throws(() => Tensor.from([1]).to('cuda'), onCpuAlone)
  assert.throws(() => new GRPOLoss({ device: 'cuda' }), onCpuAlone)
  assert.throws(() => new ListStorage(4, { device: 'cuda' }), onCpuAlone)
  assert.throws(() => drawProbabilities({ logits: new Float32Array(2), device: 'cuda' }), onCpuAlone)
  new GRPOLoss({ device: 'auto' })
  new ListStorage(4, { device: 'auto' })
  const prompt = { ids: Uint32Array.of(5, 6), seed: 1 }
  for (const options of [{ weights: 'q8' }, { speculativeTokens: 2 }, { activationBytesMax: 1 << 20 }]) {
    await assert.rejects(
      async () => new Engine(decoder, options).generate(prompt, { maxTokens: 2 }),
      UNAVAILABLE,
    )
  }
})

test('weights or products in bfloat16 are trained and drawn from near the numbers of the CPU', async () => {
  for (const options of [{ dtype: 'bf16' }, { matmulPrecision: 'bf16' }]) {
    const [onCpu, onGpu] = await Promise.all(DEVICES.map((device) => taught(device, options)))
    for (const [step, loss] of onGpu.losses.entries()) {
      const off = Math.abs(loss / onCpu.losses[step] - 1)
      assert.ok(off < 0.02, `${JSON.stringify(options)}, step ${step}: off by ${off}`)
    }
    const { decoder } = onGpu.model
    const prompt = [5, 6]
    const { ids, logProbs } = await new DecoderPolicy(decoder).generate({
      requestId: 'a',
      promptIds: Uint32Array.from(prompt),
      seed: 1,
      maxTokens: 4,
      stopIds: [],
    })
    const all = Uint32Array.from([...prompt, ...ids])
    const mask = Uint8Array.from(all, (_, at) => Number(at >= prompt.length))
    const scores = await decoder.score({ ids: all, offsets: Uint32Array.of(0, all.length), mask })
    assert.deepEqual(scores.logProb.slice(prompt.length), logProbs)
  }
})

/** Two supervised steps and three of GRPO: all their numbers but times, and the weights after them. */
async function trained(device) {
  const { model, losses } = await taught(device)
  const steps = []
  for await (const { seconds: _, metrics, ...step } of grpo({
    model,
    task,
    groupSize: 3,
    promptsPerStep: 2,
    maxTokens: 5,
    steps: 3,
  }))
    steps.push({ ...step, metrics: withoutTimes(metrics) })
  return { losses, steps, weights: await model.decoder.toSafetensors() }
}

async function taught(device, { dtype = 'f32', matmulPrecision = 'f32', ...options } = {}) {
  const model = createModel({ seed: 1, device, dtype, matmulPrecision }, SHAPE)
  assert.equal(model.decoder.device, device)
  const messages = [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: 'there' },
  ]
  const losses = []
  for await (const { loss } of sft({ model, examples: [{ messages }], steps: 2, batchSize: 1, ...options }))
    losses.push(loss)
  return { model, losses }
}

const withoutTimes = (metrics) =>
  Object.fromEntries(Object.entries(metrics).filter(([name]) => !/second|time|latency|_ms|per_s/i.test(name)))

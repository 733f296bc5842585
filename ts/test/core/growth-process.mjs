/**
 * `node --expose-gc ts/test/core/growth-process.mjs NUM_CYCLES [KIND]`: makes, uses and frees everything that holds native memory, files or
 * threads, over and over, and prints how much stays behind: bytes of memory and open files and handles, from the first half of the cycles
 * to the second. A process of its own for each kind, as the memory of one that runs other tests says nothing; without KIND it starts them.
 */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createRenderer, Ledger, Template } from '../../../dist/entry/chat.js'
import { AdamW, Decoder, Engine, UnpaddedTokenBatch } from '../../../dist/entry/model.js'
import { GRPOLoss, klEstimate } from '../../../dist/entry/objective.js'
import { DecoderPolicy, WorkerPolicy } from '../../../dist/entry/policy.js'
import {
  DurableStorage,
  LazyMemmapStorage,
  LazyTensorStorage,
  PrioritizedSampler,
  PriorityTree,
  ReplayBuffer,
} from '../../../dist/entry/replay.js'
import { Ragged, Tensor, TensorDict } from '../../../dist/entry/tensor.js'
import { CharTokenizer, HfTokenizer } from '../../../dist/entry/tokenizer.js'

const numCycles = Number(process.argv[2])
const only = process.argv[3]
const folder = mkdtempSync(join(tmpdir(), 'fulmar-growth-'))
const MEGABYTE = 1 << 18 // floats
const config = {
  ...{ model_type: 'qwen2', vocab_size: 256, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64 },
}
const ids = Uint32Array.from({ length: 32 }, (_, at) => at)
const batch = { ids, offsets: Uint32Array.of(0, 32), mask: Uint8Array.from(ids, (id) => Number(id > 0)) }
const lossBatch = {
  ...{ logProb: Float32Array.of(-1, -2), oldLogProb: Float32Array.of(-1, -2), advantage: Float32Array.of(1) },
  ...{ mask: Uint8Array.of(1, 1), offsets: Uint32Array.of(0, 2) },
}
const numbers = new Float32Array(8192).fill(-1)
const longLossBatch = {
  ...{ logProb: numbers, oldLogProb: numbers, advantage: Float32Array.of(1) },
  ...{ mask: new Uint8Array(8192).fill(1), offsets: Uint32Array.of(0, 8192) },
}
const file = JSON.parse(
  readFileSync(
    new URL('../../../tests/golden/tokenizer/byte_fallback/tokenizer.json', import.meta.url),
    'utf8',
  ),
)
const rows = (count) =>
  TensorDict.from({ x: Tensor.zeros('f32', [count, MEGABYTE / 64]) }, { batchSize: [count] })
const free = (...all) => {
  for (const one of all) one[Symbol.dispose]()
}
const kept = []
let cycle = 0

function useBuffer(storage, sampler) {
  const buffer = new ReplayBuffer({ storage, batchSize: 8, seed: cycle, ...(sampler && { sampler }) })
  const items = rows(64)
  buffer.extend(items)
  const drawn = buffer.sample()
  free(drawn, items, buffer)
}

async function useFolder(open) {
  const path = join(folder, String(cycle))
  const storage = open(path)
  useBuffer(storage)
  storage[Symbol.dispose]()
  rmSync(path, { recursive: true })
}

/** One cycle of each kind. */
const KINDS = {
  // Shows that the measurement finds a leak.
  'a leak': () => {
    kept.push(Tensor.from(new Float32Array(MEGABYTE).fill(cycle)))
  },
  tensors: () => {
    const one = Tensor.zeros('f32', [MEGABYTE])
    const dict = TensorDict.from({ one }, { batchSize: [] })
    const ragged = Ragged.from(one, Uint32Array.of(0, 7, MEGABYTE))
    const again = dict.tensor('one')
    if (again.shape[0] !== MEGABYTE) throw new Error('a tensor must be whole')
    free(again, ragged, dict, one)
  },
  'forgotten tensors': () => {
    if (TensorDict.from({ one: Tensor.zeros('f32', [MEGABYTE]) }, { batchSize: [] }).batchSize.length > 0)
      throw new Error('a dictionary must have no batch')
  },
  losses: () => {
    for (let made = 0; made < 2000; made++) {
      const { loss } = new GRPOLoss({ preset: 'dapo' }).forward(lossBatch)
      if (loss !== -1) throw new Error('the advantage is 1, and so is each ratio')
    }
  },
  'losses and estimates in a loop without an await': () => {
    // Node runs finalizers on its event loop alone, which such a loop never reaches.
    const forward = (times) => {
      for (let at = 0; at < times; at++) {
        new GRPOLoss().forward(longLossBatch)
        klEstimate({ logProb: numbers, refLogProb: numbers, mask: longLossBatch.mask })
      }
      globalThis.gc()
      return process.memoryUsage().rss
    }
    if (cycle > 1) return
    const before = forward(500)
    const grown = forward(2500) - before
    if (grown > 32 << 20) throw new Error(`7500 arrays of 32 KiB must be collected: ${grown} bytes are left`)
  },
  'decoders, optimisers and engines': async () => {
    const decoder = Decoder.fromSeed(config, { seed: cycle })
    const optimizer = new AdamW(decoder, { learningRate: 0.01 })
    await decoder.forward(batch)
    await decoder.backward(new Float32Array(32).fill(0.1))
    await optimizer.step()
    const engine = new Engine(decoder)
    await engine.generate({ ids, seed: 1 }, { maxTokens: 4 })
    free(engine, optimizer, decoder)
  },
  'streams left in the middle': async () => {
    const decoder = Decoder.fromSeed(config, { seed: cycle })
    const engine = new Engine(decoder)
    for await (const _ of engine.stream({ ids, seed: 1 }, { maxTokens: 20 })) break
    free(engine, decoder)
  },
  'adapters and files': async () => {
    const decoder = Decoder.fromSeed(config, { seed: cycle })
    await decoder.addLora({ r: 4, target_modules: ['q_proj'] }, { seed: 1 })
    const bytes = await decoder.toSafetensors()
    const again = await Decoder.fromSafetensors(config, bytes)
    free(again, decoder)
  },
  'tokenizers, renderers and templates': () => {
    const hugging = HfTokenizer.fromJson(file)
    const characters = new CharTokenizer()
    const renderer = createRenderer(characters, { name: 'chatml' })
    const template = new Template('{% for m in messages %}{{ m.content }}{% endfor %}')
    const messages = [{ role: 'user', content: 'x'.repeat(10_000) }]
    hugging.encode('some text')
    renderer.render(messages)
    template.render({ messages })
    const ledger = new Ledger()
    ledger.recordTurn({
      ...{ promptIds: ids, completionIds: ids, logProbs: new Float32Array(32), policyVersion: 0 },
      sampledLogProbs: new Float32Array(32),
    })
    free(ledger, template, renderer, characters, hugging)
  },
  'buffers in memory': () => useBuffer(new LazyTensorStorage(64)),
  'buffers with priorities': () =>
    useBuffer(new LazyTensorStorage(64), new PrioritizedSampler({ alpha: 1, beta: 1 })),
  'buffers in mapped files': () => useFolder((path) => new LazyMemmapStorage(64, { scratchDir: path })),
  'durable buffers': () => useFolder((path) => new DurableStorage(path, 64)),
  'trees and batches': () => {
    const tree = new PriorityTree(100_000)
    tree.update(ids, ids)
    const { offsets: _, ...padded } = batch
    const unpadded = new UnpaddedTokenBatch({
      ...padded,
      attentionMask: new Uint8Array(32).fill(1),
      width: 32,
    })
    free(unpadded, tree)
  },
  threads: async () => {
    if (cycle % 10 > 0) return
    const decoder = Decoder.fromSeed(config, { seed: cycle })
    const policy = await WorkerPolicy.launch(decoder)
    const request = { requestId: 'a', promptIds: ids, seed: 1, maxTokens: 4, stopIds: [] }
    await policy.generate(request)
    await policy.close()
    const local = new DecoderPolicy(decoder)
    await local.generate(request)
    free(decoder)
  },
}

const numFiles = () => (process.platform === 'linux' ? readdirSync('/proc/self/fd').length : 0)

async function measured() {
  globalThis.gc()
  // What was collected is freed at the end of a turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve))
  globalThis.gc()
  return {
    bytes: process.memoryUsage.rss(),
    files: numFiles(),
    handles: process.getActiveResourcesInfo().length,
  }
}

/** The least of each figure in some samples: what is collected late comes and goes. */
const least = (samples) =>
  Object.fromEntries(
    Object.keys(samples[0]).map((name) => [name, Math.min(...samples.map((one) => one[name]))]),
  )

/** Measures the growth of one kind. */
async function growthOf(use) {
  const samples = []
  for (cycle = 1; cycle <= numCycles; cycle++) {
    await use()
    await new Promise((resolve) => setImmediate(resolve))
    if (cycle % Math.floor(numCycles / 6) === 0) samples.push(await measured())
  }
  const [early, late] = [least(samples.slice(0, 3)), least(samples.slice(3))]
  return Object.fromEntries(Object.entries(late).map(([name, value]) => [name, value - early[name]]))
}

function growthInProcess(kind) {
  const args = ['--expose-gc', fileURLToPath(import.meta.url), String(numCycles), kind]
  // glibc gives back at once what is freed, so that the figure is what is held and not what is kept for later.
  const allocator = {
    MALLOC_ARENA_MAX: '1',
    MALLOC_MMAP_THRESHOLD_: '65536',
    MALLOC_TRIM_THRESHOLD_: '65536',
  }
  const env = { ...process.env, ...allocator }
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8', env }))
}

const growth = only
  ? await growthOf(KINDS[only])
  : Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, growthInProcess(kind)]))
rmSync(folder, { recursive: true })
process.stdout.write(JSON.stringify(growth), () => process.exit())

/**
 * `node ts/test/core/terminate-process.mjs COUNT`: starts threads that use all that holds native memory and stops each in the middle, also
 * while native work runs for it on another thread. A process of its own, as it may crash; it writes down how many it stopped.
 */

import { Worker } from 'node:worker_threads'

const count = Number(process.argv[2])
const dist = (entry) => JSON.stringify(new URL(`../../../dist/entry/${entry}.js`, import.meta.url).href)
const BODY = `
const { parentPort } = await import('node:worker_threads')
const { AdamW, Decoder, Engine } = await import(${dist('model')})
const { LazyTensorStorage, ReplayBuffer } = await import(${dist('replay')})
const { Tensor, TensorDict } = await import(${dist('tensor')})
const config = {
  ...{ model_type: 'qwen2', vocab_size: 64, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 256 },
}
const decoder = Decoder.fromSeed(config, { seed: 1 })
const optimizer = new AdamW(decoder, { learningRate: 0.01 })
const engine = new Engine(decoder)
const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(256), batchSize: 64, prefetch: 2 })
buffer.extend(TensorDict.from({ x: Tensor.zeros('f32', [256, 64]) }, { batchSize: [256] }))
const ids = Uint32Array.from({ length: 64 }, (_, at) => at)
const batch = { ids, offsets: Uint32Array.of(0, 32, 64), mask: Uint8Array.from(ids, (id) => Number(id % 32 > 0)) }
const train = async () => {
  for (;;) {
    await decoder.forward(batch)
    await decoder.backward(new Float32Array(64).fill(0.1))
    await optimizer.step()
    parentPort.postMessage('step')
  }
}
const generate = async (seed) => {
  for (;;) {
    for await (const _ of engine.stream({ ids: ids.subarray(0, 8), seed }, { maxTokens: 40 })) parentPort.postMessage('token')
  }
}
const draw = async () => {
  for await (const rows of buffer.batches()) {
    rows[Symbol.dispose]()
    parentPort.postMessage('batch')
  }
}
const write = async () => {
  for (;;) {
    await decoder.toSafetensors()
    parentPort.postMessage('file')
  }
}
parentPort.postMessage('ready')
const ways = [train, generate, draw, write]
const way = Number(process.env.FULMAR_WAY)
void ways[way % 4](1)
if (way >= 4) void ways[(way + 1) % 4](2)
`

let numStopped = 0
for (let at = 0; at < count; at++) {
  const env = { ...process.env, FULMAR_WAY: String(at % 8) }
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(BODY)}`), { env })
  let numLeft = 1 + ((at * 7) % 13)
  await new Promise((resolve, reject) => {
    worker.on('error', reject)
    worker.on('message', () => {
      if (--numLeft === 0) void worker.terminate()
    })
    worker.on('exit', resolve)
  })
  numStopped += 1
}
process.stdout.write(String(numStopped))

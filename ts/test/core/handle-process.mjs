/** Runs in a process of its own: samples batches and drops them, as its argument asks, and prints its peak memory. */

import { LazyTensorStorage, ReplayBuffer } from '../../../dist/entry/replay.js'
import { Tensor, TensorDict } from '../../../dist/entry/tensor.js'

const [way, numBatches] = [process.argv[2], Number(process.argv[3])]
const items = TensorDict.from({ pixels: Tensor.zeros('u8', [64, 1 << 20]) }, { batchSize: [64] })
const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(64), batchSize: 1 })
buffer.extend(items)

let most = 0
let seen = 0
function look(batch) {
  if (batch.tensor('pixels').shape[1] !== 1 << 20) throw new Error('a batch must be whole')
  most = Math.max(most, process.memoryUsage.rss())
  return ++seen < numBatches
}

if (way === 'draw') while (look(buffer.sample()));
if (way === 'iterate') for (const batch of buffer) if (!look(batch)) break
if (way === 'await') for await (const batch of buffer.batches()) if (!look(batch)) break
if (way === 'keep') {
  const kept = []
  while (look(buffer.sample())) kept.push(buffer.sample())
  for (const batch of kept)
    if (batch.tensor('pixels').data.length !== 1 << 20) throw new Error('a kept batch must be whole')
}
process.stdout.write(String(most))

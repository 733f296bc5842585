/** Runs in a thread of its own: writes to a shared buffer, samples from it, or both, as `workerData` asks. */

import { parentPort, workerData } from 'node:worker_threads'
import { ReplayBuffer } from '../../../dist/entry/replay.js'
import { Tensor, TensorDict } from '../../../dist/entry/tensor.js'

const WIDTH = 33
const { token, task, writer, numWrites, numDraws } = workerData
const buffer = ReplayBuffer.attach(token)

/** Rows in which every element is the row's own number: a torn one would hold two. */
function items(...ids) {
  const wide = Tensor.from(
    ids.flatMap((id) => Array(WIDTH).fill(id)),
    { shape: [ids.length, WIDTH] },
  )
  return TensorDict.from({ id: Tensor.from(ids), wide }, { batchSize: [ids.length] })
}

/** Writes three rows at a time, numbered through. */
function write(step) {
  const first = writer * 100_000 + step * 3
  buffer.extend(items(first, first + 1, first + 2))
}

/** Number of torn rows of a batch. */
function torn(batch) {
  const ids = batch.tensor('id').data
  const wide = batch.tensor('wide').data
  return ids.filter((id, row) => wide.slice(row * WIDTH, (row + 1) * WIDTH).some((value) => value !== id))
    .length
}

if (task === 'write') {
  for (let step = 0; step < numWrites; step++) write(step)
  parentPort.postMessage({ written: numWrites * 3 })
} else if (task === 'draw') {
  let numTorn = 0
  for (let draw = 0; draw < numDraws; draw++) numTorn += torn(buffer.sample(16))
  parentPort.postMessage({ numTorn })
} else if (task === 'batches') {
  parentPort.postMessage({ started: true })
  for await (const batch of buffer.batches()) {
    if (torn(batch) > 0) parentPort.postMessage({ isTorn: true })
  }
} else {
  parentPort.postMessage({ started: true })
  for (let step = 0; ; step++) {
    write(step)
    torn(buffer.sample(16))
  }
}

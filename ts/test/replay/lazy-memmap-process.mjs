/** Runs in a process of its own: writes to a folder and samples from it, as its argument asks. */

import { LazyMemmapStorage, ReplayBuffer } from '../../../dist/entry/replay.js'
import { Tensor, TensorDict } from '../../../dist/entry/tensor.js'

const WIDTH = 33
const { scratchDir, maxSize, writer, numWrites } = JSON.parse(process.argv[2])
const storage = new LazyMemmapStorage(maxSize, { scratchDir, sharedInit: scratchDir !== undefined })
const buffer = new ReplayBuffer({ storage, seed: writer })

/** Rows in which every element is the row's own number: a torn one would hold two. */
function items(...ids) {
  const wide = Tensor.from(
    ids.flatMap((id) => Array(WIDTH).fill(id)),
    { shape: [ids.length, WIDTH] },
  )
  return TensorDict.from({ id: Tensor.from(ids), wide }, { batchSize: [ids.length] })
}

function checkWhole(batch) {
  const ids = batch.tensor('id').data
  const wide = batch.tensor('wide').data
  const torn = ids.filter((id, row) => wide.slice(row * WIDTH, (row + 1) * WIDTH).some((one) => one !== id))
  if (torn.length > 0) throw new Error(`torn rows: ${torn}`)
}

// Without a number of writes it continues until it is killed.
for (let write = 0; numWrites === undefined || write < numWrites; write++) {
  const first = writer * 100_000 + write * 3
  buffer.extend(items(first, first + 1, first + 2))
  checkWhole(buffer.sample(16))
  if (write % 10 === 9) process.stdout.write(`${first + 3}\n`)
}
if (scratchDir === undefined) process.stdout.write(storage.path)

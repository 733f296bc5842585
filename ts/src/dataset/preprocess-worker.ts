/** Thread of a mapping: it maps each chunk that it gets by the default export of a module. */

import { isMainThread, parentPort, workerData } from 'node:worker_threads'
import { FulmarError, messageOf } from '../core/index.js'
import { readConsolidated, writeConsolidated } from '../tensor/index.js'
import { loadRowsFn, mappedRows, type RowsFn } from './preprocess.js'
import type { ChunkCall, ChunkReply } from './preprocess-threads.js'

let loaded: Promise<RowsFn> | undefined

async function replyTo({ start, stop, rows }: ChunkCall, url: string): Promise<ChunkReply> {
  try {
    loaded ??= loadRowsFn(url)
    const mapped = await mappedRows(await loaded, readConsolidated(rows), { start, stop })
    return { rows: writeConsolidated(mapped) }
  } catch (error) {
    const code = error instanceof FulmarError ? error.code : 'USER_CODE'
    return { error: { code, message: messageOf(error) } }
  }
}

if (!isMainThread && parentPort !== null && workerData?.kind === 'fulmar-preprocess') {
  const port = parentPort
  port.on(
    'message',
    (call: ChunkCall) => void replyTo(call, workerData.url).then((reply) => port.postMessage(reply)),
  )
} else if (isMainThread) {
  throw new FulmarError(
    'INCOMPATIBLE',
    'preprocess-worker must be the file of a worker thread: got the main one',
  )
}

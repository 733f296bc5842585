/** What runs in a worker thread: ONNX Runtime, whose `run` would hold up any other thread. */

import { isMainThread, parentPort, workerData } from 'node:worker_threads'
import { FulmarError } from '../core/index.js'
import { OnnxModel, type OnnxSource } from './onnx-model.js'
import { servePolicy } from './serve-policy.js'

/** What this thread is given. */
export type { OnnxSource }

if (!isMainThread && parentPort !== null && workerData?.kind === 'fulmar-onnx') {
  servePolicy(parentPort, async (source) => {
    const policy = await OnnxModel.open(source as OnnxSource)
    return { policy, close: () => policy.close() }
  })
} else if (isMainThread) {
  throw new FulmarError('INCOMPATIBLE', 'onnx-worker must be the file of a worker thread: got the main one')
}

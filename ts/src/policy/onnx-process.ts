/**
 * Separate process for ONNX Runtime, whose `run` blocks any event loop, and which ends the whole process if
 * its worker thread is terminated.
 */

import { FulmarError } from '../core/index.js'
import { type OnnxSource as ModelSource, OnnxModel } from './onnx-model.js'
import { decodeStreamsOf, servePolicy, type WorkerMessage } from './serve-policy.js'

/** Input of this process; the tokenizer, as JSON, comes with the first model. */
export type OnnxSource = Omit<ModelSource, 'decodeStream'> & { readonly tokenizer?: string }

if (process.argv[2] !== 'fulmar-onnx' || process.send === undefined)
  throw new FulmarError('INCOMPATIBLE', 'onnx-process must be the file of a process: got another use')
// There is no receiver left.
process.on('disconnect', () => process.exit())
const port = {
  on: (event: 'message', listener: (message: WorkerMessage) => void) => process.on(event, listener),
  postMessage: (reply: unknown) => void process.send?.(reply),
}
let decodeStream: ReturnType<typeof decodeStreamsOf> | undefined
servePolicy(port, async (given) => {
  const { tokenizer, ...source } = given as OnnxSource
  if (tokenizer !== undefined) decodeStream = decodeStreamsOf(tokenizer)
  const policy = await OnnxModel.open({ ...source, decodeStream })
  return { policy, close: () => policy.close() }
})

/** Rows mapped in threads: each takes the next chunk once it has given the last one back. */

import { aborted, onAbort } from '../async/index.js'
import { type ErrorCode, FulmarError, messageOf } from '../core/index.js'
import { readConsolidated, type TensorDict, writeConsolidated } from '../tensor/index.js'
import type { Chunk, RowsPlan } from './preprocess.js'

/** Maps all chunks, in order; `onRows` is called with the number of rows that are mapped. */
export type ChunkMapper = (
  chunks: readonly Chunk[],
  onRows: (numRows: number) => void,
) => Promise<readonly TensorDict[]>

/** A chunk as a message to a thread: a dictionary as a consolidated file. */
export interface ChunkCall {
  readonly start: number
  readonly stop: number
  readonly rows: Uint8Array
}

/** Answer to a {@link ChunkCall}. */
export type ChunkReply =
  | { readonly rows: Uint8Array }
  | { readonly error: { readonly code: ErrorCode; readonly message: string } }

/** Maps chunks by the default export of a module, in threads of their own, which end with it. */
export function mapInThreads(url: string, { numWorkers, signal }: RowsPlan): ChunkMapper {
  return async (chunks, onRows) => {
    const parts: TensorDict[] = []
    let [next, numRows, isStopped] = [0, 0, false]
    const threads = await Promise.all(
      Array.from({ length: Math.min(numWorkers, chunks.length) }, () => MapThread.start(url)),
    )
    const stop = () => Promise.all(threads.map((thread) => thread.close()))
    const work = async (thread: MapThread): Promise<void> => {
      for (let chunk = chunks[next]; chunk !== undefined && !isStopped; chunk = chunks[next]) {
        const at = next++
        parts[at] = await thread.map(chunk)
        numRows += chunk.stop - chunk.start
        onRows(numRows)
      }
    }
    const stopListening = onAbort(signal, () => void stop())
    try {
      if (signal?.aborted) throw aborted(signal)
      await Promise.all(threads.map(work))
      return parts
    } catch (error) {
      if (signal?.aborted) throw aborted(signal)
      throw error
    } finally {
      isStopped = true
      stopListening()
      await stop()
    }
  }
}

type Thread = import('node:worker_threads').Worker

/** One thread, which maps one chunk at a time. */
class MapThread {
  readonly #thread: Thread

  private constructor(thread: Thread) {
    this.#thread = thread
  }

  static async start(url: string): Promise<MapThread> {
    const { Worker } = await import('node:worker_threads')
    const file = new URL('./preprocess-worker.js', import.meta.url)
    return new MapThread(new Worker(file, { workerData: { kind: 'fulmar-preprocess', url } }))
  }

  map(chunk: Chunk): Promise<TensorDict> {
    const { start, stop } = chunk
    const thread = this.#thread
    return new Promise<TensorDict>((resolve, reject) => {
      const failed = (why: string) =>
        reject(
          new FulmarError(
            'USER_CODE',
            `fn must map rows ${start} to ${stop - 1}: its thread ends with ${why}`,
          ),
        )
      const onError = (error: unknown) => failed(messageOf(error))
      const onExit = (code: number) => failed(`exit code ${code}`)
      const onMessage = (reply: ChunkReply) => {
        thread.off('error', onError).off('exit', onExit)
        if ('rows' in reply) return resolve(readConsolidated(reply.rows))
        reject(new FulmarError(reply.error.code, reply.error.message))
      }
      thread.once('message', onMessage).once('error', onError).once('exit', onExit)
      const call: ChunkCall = { start, stop, rows: writeConsolidated(chunk.read()) }
      thread.postMessage(call)
    })
  }

  async close(): Promise<void> {
    await this.#thread.terminate()
  }
}

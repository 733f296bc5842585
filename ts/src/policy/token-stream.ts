/** Streams of tokens with a final result. */

import { onAbort } from '../async/index.js'
import type { Completion, GenerateRequest, Policy } from './policy.js'

/**
 * Parts of a result in order. Leaving the loop early stops the work; without iteration the result still
 * arrives. Iterate it once.
 */
export interface TokenStream<Part, Result> extends AsyncIterable<Part> {
  /** Final result of all parts. Rejects as the loop does. */
  readonly result: Promise<Result>
}

/** Sampled tokens in order, with one entry per token in each array. */
export type CompletionPart = Pick<Completion, 'ids' | 'logProbs' | 'sampledLogProbs'>

/** A {@link Policy} that can stream tokens. */
export interface StreamingPolicy extends Policy {
  /**
   * Samples one completion and streams its tokens. A signal that fires, or a loop that is left, ends it with
   * `finishReason: 'abort'` and the tokens so far.
   * @throws {FulmarError} From the loop and from `result`, as {@link Policy.generate}; tokens already
   * streamed stay valid.
   */
  stream(request: GenerateRequest): TokenStream<CompletionPart, Completion>
}

/**
 * Creates the stream of the parts that `run` pushes and the result that it returns. Unread parts wait in
 * memory: `run` limits their number. The signal of `run` fires with `signal` and if the loop is left.
 */
export function tokenStream<Part, Result>(
  signal: AbortSignal | undefined,
  run: (push: (part: Part) => void, signal: AbortSignal) => Promise<Result>,
): TokenStream<Part, Result> {
  const controller = new AbortController()
  const stopListening = onAbort(signal, () => controller.abort(signal?.reason))
  if (signal?.aborted) controller.abort(signal.reason)
  let [parts, ended, wake]: [Part[], boolean, () => void] = [[], false, () => {}]
  const push = (part: Part) => {
    parts.push(part)
    wake()
  }
  const result = run(push, controller.signal).finally(() => {
    stopListening()
    ended = true
    wake()
  })
  // The loop reports a failure, so `result` need not be read.
  result.catch(() => {})
  async function* iterate(): AsyncGenerator<Part, void, undefined> {
    try {
      while (!ended || parts.length > 0) {
        const now = parts
        parts = []
        yield* now
        if (!ended && parts.length === 0)
          await new Promise<void>((resolve) => {
            wake = resolve
          })
      }
      await result
    } finally {
      controller.abort()
    }
  }
  return { result, [Symbol.asyncIterator]: iterate }
}

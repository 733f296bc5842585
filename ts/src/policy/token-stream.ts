/** Tokens as they come, and what they came to. */

import { onAbort } from '../async/index.js'
import type { Completion, GenerateRequest, Policy } from './policy.js'

/**
 * Parts of a result in the order in which they come. Who leaves the loop early stops what is under way; who does not iterate at all
 * gets the result all the same. Iterate it once.
 */
export interface TokenStream<Part, Result> extends AsyncIterable<Part> {
  /** What the parts make together. Rejects as the loop does. */
  readonly result: Promise<Result>
}

/** Sampled tokens, in their order, each array with one entry per token. */
export type CompletionPart = Pick<Completion, 'ids' | 'logProbs' | 'sampledLogProbs'>

/** A {@link Policy} that can tell tokens as it samples them. */
export interface StreamingPolicy extends Policy {
  /**
   * Samples one completion and tells its tokens as they come. A signal that fires, or a loop that is left, ends it with
   * `finishReason: 'abort'` and the tokens that came.
   * @throws {FulmarError} From the loop and from `result`, as {@link Policy.generate}; tokens that were told before stay true.
   */
  stream(request: GenerateRequest): TokenStream<CompletionPart, Completion>
}

/**
 * The stream of what `run` gives to `push` and returns. Parts that nobody has taken yet wait in memory: `run` bounds their number.
 * The signal that `run` is given fires with `signal` and when the loop is left.
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
  // Whoever iterates hears of a failure there, and need not ask for the result.
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

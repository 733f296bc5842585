/** A policy with scripted replies: for tests, for debugging environments, for replaying a conversation. */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import {
  type Completion,
  checkGenerateRequest,
  type FinishReason,
  type GenerateRequest,
  type Policy,
} from '../policy/policy.js'

/** Reply of a script: tokens, or tokens with their log-probabilities and finish reason. */
export type ScriptedReply =
  | readonly number[]
  | {
      /** The tokens to return. */
      readonly ids: readonly number[]
      /**
       * One log-probability per token.
       * @default -0.1 for each
       */
      readonly logProbs?: readonly number[]
      /**
       * @default 'stop' if the last token is a stop token, else 'length'
       */
      readonly finishReason?: FinishReason
    }

/** Options of a {@link ScriptedPolicy}. */
export interface ScriptedPolicyOptions {
  /** Called once per request, in the order of the requests; `callIndex` counts them from 0. */
  readonly reply: (request: GenerateRequest, callIndex: number) => ScriptedReply | Promise<ScriptedReply>
  /**
   * The version that completions carry; assign {@link ScriptedPolicy.version} to change it.
   * @default 0
   */
  readonly version?: number
}

const LOG_PROB_DEFAULT = -0.1

/**
 * Answers each request with the tokens of a script. Longer replies than `maxTokens` are cut and end with `length`; stop strings are the
 * script's to heed, as ids have no text here.
 *
 * @example
 * ```ts
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * const policy = new ScriptedPolicy({ reply: ({ promptIds }) => [promptIds[0] ?? 0, 9], version: 3 })
 * const completion = await policy.generate({
 *   requestId: 'a', promptIds: Uint32Array.of(7), seed: 0, maxTokens: 1, stopIds: [9],
 * })
 * assert.deepEqual([...completion.ids], [7])
 * assert.equal(completion.finishReason, 'length')
 * assert.equal(completion.minPolicyVersion, 3)
 * ```
 */
export class ScriptedPolicy implements Policy {
  /** The version that the next completion carries. */
  version: number
  /** Every request so far, in order. */
  readonly requests: GenerateRequest[] = []
  readonly #reply: ScriptedPolicyOptions['reply']

  constructor(options: ScriptedPolicyOptions) {
    checkKnownKeys('options', options, ['reply', 'version'], ['reply'])
    const { reply, version = 0 } = options
    this.#reply = reply
    this.version = version
  }

  /**
   * Asks the script.
   * @throws {FulmarError} `EMPTY` if the prompt holds no token; `OUT_OF_RANGE` if `maxTokens` is not a positive
   * integer; `SHAPE_MISMATCH` if the script gives another number of log-probabilities than of tokens.
   */
  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    const callIndex = this.requests.push(request) - 1
    const version = this.version
    const scripted = await this.#reply(request, callIndex)
    const { requestId, maxTokens, stopIds, signal } = request
    const reply = 'ids' in scripted ? scripted : { ids: scripted }
    const { ids: allIds, logProbs } = reply
    if (logProbs && logProbs.length !== allIds.length) {
      const detail = `logProbs must have one entry per token (${allIds.length}): got ${logProbs.length}`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    const ids = new Uint32Array(allIds.length > maxTokens ? allIds.slice(0, maxTokens) : allIds)
    const logProbT = logProbs
      ? new Float32Array(logProbs.slice(0, maxTokens))
      : new Float32Array(ids.length).fill(LOG_PROB_DEFAULT)
    const natural: FinishReason = stopIds.includes(ids.at(-1) ?? -1) ? 'stop' : 'length'
    const finishReason = signal?.aborted ? 'abort' : (reply.finishReason ?? natural)
    return {
      requestId,
      ids,
      logProbs: logProbT,
      sampledLogProbs: logProbT,
      finishReason,
      minPolicyVersion: version,
      maxPolicyVersion: version,
    }
  }
}

/** Options of one rollout behind the endpoint, and what they allow. */

import type { Renderer } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { Policy } from '../policy/index.js'
import type { SamplingOptions } from '../rollout/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'

/** Maximum number of answers of a rollout, whatever its own limit. */
const AGENT_TURNS_MAX = 10_000

/** Options of `InterceptionServer.open`. */
export interface OpenOptions extends Omit<SamplingOptions, 'maxTokens' | 'topK'> {
  /** Policy that samples the answers; the caller disposes it. */
  readonly policy: Policy
  /** Renderer of the policy's model; the caller disposes it. */
  readonly renderer: Renderer
  /**
   * Maximum number of tokens of an answer, including the stop token; a request may ask for fewer.
   * @default 4096
   */
  readonly maxTokens?: number
  /**
   * Divisor of the logits, in place of that of each request.
   * @default that of the request, or 1
   */
  readonly temperature?: number
  /**
   * Probability mass of the most likely tokens, in place of that of each request.
   * @default that of the request, or 1
   */
  readonly topP?: number
  /**
   * Number of most likely tokens to sample from, in place of that of each request; 0 means all.
   * @default that of the request, or 0
   */
  readonly topK?: number
  /**
   * Returns the seed of a draw: `draw` is a safe integer that depends on the prompt, on the request's own `seed` and on
   * how often the prompt was asked before, but not on other requests.
   * @default draws of seed 0
   */
  readonly seedOf?: (draw: number) => number
  /**
   * Name of the rollout, in ids of requests and in logs. Printable characters.
   * @default a number of the server
   */
  readonly name?: string
  /** Maximum number of answers. @default 10_000, which is also the most */
  readonly maxTurns?: number
  /** Maximum length of prompt and answer together. @default no limit */
  readonly maxRolloutTokens?: number
  /** Maximum number of tokens of all answers together; requests that run at the same time may exceed it. @default no limit */
  readonly maxTotalTokens?: number
  /** Deadline of one answer in milliseconds; `null` for none. @default null */
  readonly generateTimeoutMs?: number | null
  /** Clock of deadlines. @default systemClock */
  readonly clock?: Clock
}

/** {@link OpenOptions} with their defaults. */
export interface RolloutSettings extends OpenOptions {
  readonly maxTokens: number
  readonly name: string
  readonly seedOf: (draw: number) => number
  readonly maxTurns: number
  readonly maxRolloutTokens: number
  readonly maxTotalTokens: number
  readonly generateTimeoutMs: number | null
  readonly clock: Clock
}

const KEYS: readonly (keyof OpenOptions)[] = [
  ...(['policy', 'renderer', 'maxTokens', 'temperature', 'topP', 'topK', 'stopStrings', 'seedOf'] as const),
  ...(['name', 'maxTurns', 'maxRolloutTokens', 'maxTotalTokens', 'generateTimeoutMs', 'clock'] as const),
]

const MAX_TOKENS_DEFAULT = 4096

/** @throws {FulmarError} `UNKNOWN_NAME` or `MALFORMED` for an option; `OUT_OF_RANGE` for a number. */
export function checkOpenOptions(options: OpenOptions): Omit<RolloutSettings, 'name'> {
  checkKnownKeys('options', options, KEYS, ['policy', 'renderer'])
  const { maxTokens = MAX_TOKENS_DEFAULT, maxTurns = AGENT_TURNS_MAX, seedOf = (draw) => draw } = options
  const { maxRolloutTokens = Number.POSITIVE_INFINITY, maxTotalTokens = Number.POSITIVE_INFINITY } = options
  const { generateTimeoutMs = null, clock = systemClock } = options
  for (const key of ['generate', 'render'] as const) {
    const part = key === 'generate' ? options.policy : options.renderer
    checkGiven(key === 'generate' ? 'options.policy' : 'options.renderer', part)
    if (typeof Reflect.get(part, key) !== 'function')
      throw new FulmarError('MALFORMED', `options must have a part with a function ${key}: got an object`)
  }
  const counts = { maxTokens, maxTurns, maxRolloutTokens, maxTotalTokens }
  for (const [key, value] of Object.entries({ ...counts, generateTimeoutMs: generateTimeoutMs ?? 1 })) {
    if (!(value >= 1)) throw new FulmarError('OUT_OF_RANGE', `${key} must be >= 1: got ${value}`)
  }
  return {
    ...{ ...options, maxTokens, seedOf, maxRolloutTokens, maxTotalTokens, generateTimeoutMs, clock },
    maxTurns: Math.min(maxTurns, AGENT_TURNS_MAX),
  }
}

/**
 * What turns a prompt into sampled tokens. Everything above this floor (environments, rollouts, collectors,
 * recipes) knows a language model only through this interface.
 */

import { checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import { StopStrings } from '../model/index.js'
import { checkRequestRule, REQUEST_RULES, type RequestRule } from './request-rule.js'

/** One request for one completion. Nothing in it is text: token ids in, token ids out. */
export interface GenerateRequest extends RequestRule {
  /** Unique within the run, for logs and for engines that want an id. */
  readonly requestId: string
  /** The prompt, at least one token. Read before the call returns, never kept or changed. */
  readonly promptIds: Uint32Array
  /** Fixes every draw of this request, whatever else is generated beside it. A non-negative safe integer. */
  readonly seed: number
  /** At most this many tokens are sampled, the stop token included. At least 1. */
  readonly maxTokens: number
  /**
   * Divides the logits before drawing; 0 takes the likeliest token.
   * @default 1
   */
  readonly temperature?: number
  /**
   * Draws among the `topK` likeliest tokens only; 0 means all.
   * @default 0
   */
  readonly topK?: number
  /**
   * Draws among the smallest set of likeliest tokens whose probabilities reach `topP`, in (0, 1].
   * @default 1
   */
  readonly topP?: number
  /**
   * Draws among the tokens that are at least this share as likely as the likeliest, in [0, 1].
   * @default 0
   */
  readonly minP?: number
  /**
   * Divides the logits above 0, and multiplies those below, of the tokens in prompt and output; above 0.
   * @default 1
   */
  readonly repetitionPenalty?: number
  /**
   * Subtracted from the logit of each token in the output, once each time that it stands there.
   * @default 0
   */
  readonly frequencyPenalty?: number
  /**
   * Subtracted from the logit of each token in the output.
   * @default 0
   */
  readonly presencePenalty?: number
  /** Generation ends once one of these was sampled; it is then the last of the completion's `ids`. */
  readonly stopIds: readonly number[]
  /**
   * Texts that end generation at the token that completes one, which is then the last of the completion's `ids`: at most 64 of at most
   * 1,024 UTF-16 units. Looked for in what is sampled alone, with its special tokens.
   * @default []
   */
  readonly stopStrings?: readonly string[]
  /** The conversation that this belongs to: an engine of several servers keeps it on one, whose cache knows its beginning. */
  readonly sessionId?: string
  /** Ends generation early with `finishReason: 'abort'`; what was sampled so far is returned. */
  readonly signal?: AbortSignal
}

/** Why a completion ended: a stop token or string, the token limit, or an abort. */
export type FinishReason = 'stop' | 'length' | 'abort'

/** What was sampled. `ids`, `logProbs` and `sampledLogProbs` have one entry per sampled token. */
export interface Completion {
  /** The id of the request that this answers. */
  readonly requestId: string
  /** The sampled tokens, the stop token included. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Log-probability of each token under the model itself (temperature 1, no filter); NaN where it is not known. Shape `[T]`. */
  readonly logProbs: Float32Array
  /** Log-probability of each token under the distribution it was drawn from; NaN where it is not known. Shape `[T]`. */
  readonly sampledLogProbs: Float32Array
  /** Why generation ended. */
  readonly finishReason: FinishReason
  /**
   * The stop string that ended it, else the stop id; `null` if it ended otherwise.
   * @default not told
   */
  readonly stoppedBy?: number | string | null
  /** The oldest weights that sampled any of these tokens. */
  readonly minPolicyVersion: number
  /** The newest weights that sampled any of these tokens. */
  readonly maxPolicyVersion: number
  /**
   * The weights that sampled each token. Shape `[T]`.
   * @default not known token by token: between `minPolicyVersion` and `maxPolicyVersion`
   */
  readonly policyVersions?: Uint32Array
}

/** What a policy cannot do says so here; all it does not name holds. */
export interface PolicyCapabilities {
  /**
   * Whether a request with the same seed draws the same tokens, whatever runs beside it.
   * @default true
   */
  readonly seeds?: boolean
  /**
   * Whether completions tell {@link Completion.logProbs}; else they are NaN.
   * @default true
   */
  readonly logProbs?: boolean
  /**
   * Whether completions tell {@link Completion.sampledLogProbs} at any temperature and filter; else they are NaN where the two kinds
   * differ.
   * @default true
   */
  readonly sampledLogProbs?: boolean
  /**
   * Whether it can tell that a stop string was sampled; else a request with one is refused with `UNAVAILABLE`.
   * @default true
   */
  readonly stopStrings?: boolean
}

/** One sequence whose tokens are to be scored. */
export interface ScoreRequest {
  /** As {@link GenerateRequest.requestId}. */
  readonly requestId: string
  /** The sequence, at least one token. Read before the call returns, never kept or changed. */
  readonly ids: Uint32Array
  /** Rejects the call with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** What a policy says about the tokens of a sequence. */
export interface TokenScores {
  /** The id of the request that this answers. */
  readonly requestId: string
  /** Log-probability of each token after those before it (temperature 1, no filter); NaN for the first, which follows none. Shape `[T]`. */
  readonly logProbs: Float32Array
  /** The weights that said so. */
  readonly policyVersion: number
}

/**
 * Samples completions. Calls may overlap: an implementation is free to batch all requests that wait at the same
 * moment, and a result must not depend on what it was batched with.
 *
 * @example
 * ```ts
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * const policy = new ScriptedPolicy({ reply: () => [5, 6, 9] })
 * const request = { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 0, maxTokens: 8, stopIds: [9] }
 * const completion = await policy.generate(request)
 * assert.equal(completion.finishReason, 'stop')
 * assert.deepEqual([...completion.ids], [5, 6, 9])
 * ```
 */
export interface Policy {
  /** Counts the updates of the weights: 0 as loaded, one more after each optimiser step. */
  readonly version: number
  /**
   * Samples one completion.
   * @throws {FulmarError} `OUT_OF_RANGE`, `EMPTY`, `MALFORMED` or `LIMIT_EXCEEDED` if the request is not as {@link GenerateRequest}
   * documents; `UNAVAILABLE` for stop strings that it cannot look for, and for a {@link RequestRule} that it cannot draw by.
   */
  generate(request: GenerateRequest): Promise<Completion>
  /** What it cannot do. @default all can be done */
  readonly capabilities?: PolicyCapabilities
  /**
   * Scores the tokens of a sequence. A policy without this method cannot.
   * @throws {FulmarError} `EMPTY` for a sequence without tokens; `ABORTED` if the signal fires.
   */
  score?(request: ScoreRequest): Promise<TokenScores>
}

/**
 * Refuses a request that no policy could answer; implementations call it first.
 * @throws {FulmarError} `MALFORMED` if the prompt is no `Uint32Array`; `EMPTY` if it holds no token; as `StopStrings` for those; `OUT_OF_RANGE` if `maxTokens` is not a
 * positive integer, `seed` not a non-negative safe integer, `temperature` or `topK` negative, `topP` outside (0, 1], `minP` outside [0, 1],
 * `repetitionPenalty` not above 0, another penalty not finite, or a {@link RequestRule} is outside its range.
 *
 * @example
 * ```ts
 * import { checkGenerateRequest } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * const request = { requestId: 'a', promptIds: new Uint32Array(0), seed: 0, maxTokens: 8, stopIds: [] }
 * assert.throws(() => checkGenerateRequest(request), { code: 'EMPTY' })
 * ```
 */
export function checkGenerateRequest(request: GenerateRequest): void {
  checkKnownKeys(
    'request',
    request,
    [
      'requestId',
      'promptIds',
      'seed',
      'maxTokens',
      'temperature',
      'topK',
      'topP',
      'minP',
      'repetitionPenalty',
      'frequencyPenalty',
      'presencePenalty',
      ...REQUEST_RULES,
      'stopIds',
      'stopStrings',
      'sessionId',
      'signal',
    ],
    ['requestId', 'promptIds', 'seed', 'maxTokens', 'stopIds'],
  )
  const { promptIds, seed, maxTokens, temperature = 1, topK = 0, topP = 1, minP = 0 } = request
  const { repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0, stopStrings } = request
  checkTypedArray('promptIds', promptIds, Uint32Array)
  if (promptIds.length === 0) throw new FulmarError('EMPTY', 'promptIds must hold a token: they are empty')
  const hasNone = stopStrings === undefined || (Array.isArray(stopStrings) && stopStrings.length === 0)
  if (!hasNone) new StopStrings(stopStrings)
  check('maxTokens', maxTokens, Number.isSafeInteger(maxTokens) && maxTokens >= 1, 'a positive integer')
  check('seed', seed, Number.isSafeInteger(seed) && seed >= 0, 'a non-negative safe integer')
  check('temperature', temperature, Number.isFinite(temperature) && temperature >= 0, 'finite and >= 0')
  check('topK', topK, Number.isSafeInteger(topK) && topK >= 0, 'a non-negative integer')
  check('topP', topP, topP > 0 && topP <= 1, 'in (0, 1]')
  check('minP', minP, minP >= 0 && minP <= 1, 'in [0, 1]')
  const divides = Number.isFinite(repetitionPenalty) && repetitionPenalty > 0
  check('repetitionPenalty', repetitionPenalty, divides, 'finite and > 0')
  check('frequencyPenalty', frequencyPenalty, Number.isFinite(frequencyPenalty), 'finite')
  check('presencePenalty', presencePenalty, Number.isFinite(presencePenalty), 'finite')
  checkRequestRule(request)
}

function check(name: string, value: number, holds: boolean, rule: string): void {
  if (!holds) throw new FulmarError('OUT_OF_RANGE', `${name} must be ${rule}: got ${value}`)
}

/**
 * Refuses a sequence that no policy could score; implementations call it first.
 * @throws {FulmarError} `MALFORMED` if the ids are no `Uint32Array`; `EMPTY` if there is no token; `ABORTED` if the signal has fired.
 *
 * @example
 * ```ts
 * import { checkScoreRequest } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(() => checkScoreRequest({ requestId: 'a', ids: new Uint32Array(0) }), { code: 'EMPTY' })
 * ```
 */
export function checkScoreRequest(request: ScoreRequest): void {
  checkKnownKeys('request', request, ['requestId', 'ids', 'signal'], ['requestId', 'ids'])
  const { ids, signal } = request
  checkTypedArray('ids', ids, Uint32Array)
  if (ids.length === 0) throw new FulmarError('EMPTY', 'ids must hold a token: they are empty')
  if (signal?.aborted) throw new FulmarError('ABORTED', 'signal must not have fired: got an abort')
}

/**
 * The interface of language models for environments, rollouts, collectors and recipes: prompts in, sampled
 * tokens out.
 */

import { checkKnownKeys, checkTypedArray, type DeviceMemory, FulmarError } from '../core/index.js'
import { StopStrings } from '../model/index.js'
import { checkRequestRule, REQUEST_RULES, type RequestRule } from './request-rule.js'

/** One request for one completion, in token ids. */
export interface GenerateRequest extends RequestRule {
  /** Id, unique within the run, for logs and engines. */
  readonly requestId: string
  /** Prompt, at least one token. Read before the call returns, never kept or changed. */
  readonly promptIds: Uint32Array
  /** Seed of every draw of this request, independent of concurrent requests. A non-negative safe integer. */
  readonly seed: number
  /** Maximum number of sampled tokens, including the stop token. At least 1. */
  readonly maxTokens: number
  /**
   * Divisor of the logits before sampling; 0 takes the most likely token.
   * @default 1
   */
  readonly temperature?: number
  /**
   * Number of most likely tokens to sample from; 0 means all.
   * @default 0
   */
  readonly topK?: number
  /**
   * Probability mass of the most likely tokens to sample from, in (0, 1].
   * @default 1
   */
  readonly topP?: number
  /**
   * Minimum probability as a share of the largest one, in [0, 1].
   * @default 0
   */
  readonly minP?: number
  /**
   * Penalty of the tokens in prompt and output: divides their logits above 0 and multiplies those below;
   * above 0.
   * @default 1
   */
  readonly repetitionPenalty?: number
  /**
   * Subtracted from the logit of each token in the output, once per occurrence.
   * @default 0
   */
  readonly frequencyPenalty?: number
  /**
   * Subtracted from the logit of each token in the output.
   * @default 0
   */
  readonly presencePenalty?: number
  /** Stop tokens: generation ends after one of them, which is then the last of the completion's `ids`. */
  readonly stopIds: readonly number[]
  /**
   * Texts that end generation at the token that completes one, which is then the last of the completion's
   * `ids`: at most 64 of at most 1,024 UTF-16 units. Matched in the sampled text only, with its special
   * tokens.
   * @default []
   */
  readonly stopStrings?: readonly string[]
  /**
   * Conversation of the request: an engine of several servers keeps it on one, whose prefix cache has its
   * beginning.
   */
  readonly sessionId?: string
  /** Ends generation early with `finishReason: 'abort'`; the tokens sampled so far are returned. */
  readonly signal?: AbortSignal
}

/** Reason why a completion ended: a stop token or string, the token limit, or an abort. */
export type FinishReason = 'stop' | 'length' | 'abort'

/** A sampled completion. `ids`, `logProbs` and `sampledLogProbs` have one entry per sampled token. */
export interface Completion {
  /** Id of the request. */
  readonly requestId: string
  /** Sampled tokens, including the stop token. Shape `[T]`. */
  readonly ids: Uint32Array
  /**
   * Log-probability of each token under the unmodified model (temperature 1, no filter); NaN if unknown.
   * Shape `[T]`.
   */
  readonly logProbs: Float32Array
  /** Log-probability of each token under the sampling distribution; NaN if unknown. Shape `[T]`. */
  readonly sampledLogProbs: Float32Array
  /** Reason why generation ended. */
  readonly finishReason: FinishReason
  /**
   * Stop string that ended it, else the stop id; `null` for another end.
   * @default unknown
   */
  readonly stoppedBy?: number | string | null
  /** Oldest policy version that sampled any of these tokens. */
  readonly minPolicyVersion: number
  /** Newest policy version that sampled any of these tokens. */
  readonly maxPolicyVersion: number
  /**
   * Policy version of each token. Shape `[T]`.
   * @default unknown: between `minPolicyVersion` and `maxPolicyVersion`
   */
  readonly policyVersions?: Uint32Array
}

/** Capabilities that a policy may lack; all that it does not list are present. */
export interface PolicyCapabilities {
  /**
   * True if a request with the same seed draws the same tokens, independent of concurrent requests.
   * @default true
   */
  readonly seeds?: boolean
  /**
   * True if completions have {@link Completion.logProbs}; else they are NaN.
   * @default true
   */
  readonly logProbs?: boolean
  /**
   * True if completions have {@link Completion.sampledLogProbs} at any temperature and filter; else they are
   * NaN where the two kinds differ.
   * @default true
   */
  readonly sampledLogProbs?: boolean
  /**
   * True if {@link Completion.logProbs} are those of the policy's own decoder, bit for bit; false if it samples with
   * rounded weights or a rounded cache.
   * @default true
   */
  readonly exactLogProbs?: boolean
  /**
   * True if stop strings are supported; else a request with one throws `UNAVAILABLE`.
   * @default true
   */
  readonly stopStrings?: boolean
}

/** A sequence to score. */
export interface ScoreRequest {
  /** As {@link GenerateRequest.requestId}. */
  readonly requestId: string
  /** Sequence, at least one token. Read before the call returns, never kept or changed. */
  readonly ids: Uint32Array
  /** Rejects the call with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Scores of the tokens of a sequence. */
export interface TokenScores {
  /** Id of the request. */
  readonly requestId: string
  /**
   * Log-probability of each token given those before it (temperature 1, no filter); NaN for the first. Shape
   * `[T]`.
   */
  readonly logProbs: Float32Array
  /** Policy version of the scores. */
  readonly policyVersion: number
}

/** State of a policy, and the memory of its GPU if its decoder is on one. */
export interface PolicyReport extends DeviceMemory {
  /** Policy version of the weights that later requests use. */
  readonly policyVersion: number
}

/**
 * Samples completions. Calls may overlap: an implementation may batch all waiting requests, and a result must
 * not depend on its batch.
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
  /** Policy version: 0 as loaded, plus 1 for each optimizer step. */
  readonly version: number
  /**
   * Samples one completion.
   * @throws {FulmarError} `OUT_OF_RANGE`, `EMPTY`, `MALFORMED` or `LIMIT_EXCEEDED` if the request breaks a
   * rule of {@link GenerateRequest}; `UNAVAILABLE` for unsupported stop strings, and for an unsupported
   * {@link RequestRule}.
   */
  generate(request: GenerateRequest): Promise<Completion>
  /** Capabilities that this policy lacks. @default none */
  readonly capabilities?: PolicyCapabilities
  /**
   * Scores the tokens of a sequence; optional.
   * @throws {FulmarError} `EMPTY` for a sequence without tokens; `ABORTED` if the signal fires.
   */
  score?(request: ScoreRequest): Promise<TokenScores>
  /** Returns its state; optional. */
  report?(): Promise<PolicyReport>
}

/**
 * Rejects an invalid request; implementations call it first.
 * @throws {FulmarError} `MALFORMED` if the prompt is not a `Uint32Array`; `EMPTY` if it holds no token; as `StopStrings` for those; `OUT_OF_RANGE` if `maxTokens` is not a
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
 * Rejects an invalid sequence; implementations call it first.
 * @throws {FulmarError} `MALFORMED` if the ids are not a `Uint32Array`; `EMPTY` if there is no token; `ABORTED` if the signal has fired.
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
  if (signal?.aborted) throw new FulmarError('ABORTED', 'signal must not have fired: it did')
}

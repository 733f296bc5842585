/** Drawing the next token from logits. */

import {
  call,
  checkGiven,
  checkKnownKeys,
  describeValue,
  FulmarError,
  type OnDevice,
  placeDevice,
} from '../core/index.js'
import { raw } from '../native/index.js'
import { checkArray, type KnownKeys, optionsJson } from './argument.js'

/**
 * Transformations of logits into a distribution, applied in this order; the defaults are those of the Rust
 * core.
 */
export interface DrawRule {
  /** Bias added to the logits of single ids, by id. @default none */
  readonly logitBias?: Readonly<Record<number, number>>
  /**
   * Bias added to the logit of the last id of a sequence if prompt and output end with its other ids: `[[[5,
   * 7], -2]]` makes 7 less likely after 5.
   * @default none
   */
  readonly sequenceBias?: readonly (readonly [ids: readonly number[], bias: number])[]
  /**
   * Penalty of the tokens in prompt and output: divides their logits above 0 and multiplies those below;
   * above 0.
   * @default 1
   */
  readonly repetitionPenalty?: number
  /** Subtracted from the logit of each token in the output, once per occurrence. @default 0 */
  readonly frequencyPenalty?: number
  /** Subtracted from the logit of each token in the output. @default 0 */
  readonly presencePenalty?: number
  /** Length of n-grams of prompt and output that are not drawn again; 0 allows repeats. @default 0 */
  readonly noRepeatNgramSize?: number
  /**
   * Sequences of ids that are not drawn: the last id is banned if prompt and output end with the other ids.
   * @default none
   */
  readonly badWordsIds?: readonly (readonly number[])[]
  /** Ids that are not drawn, such as stop ids before a minimum length. @default none */
  readonly bannedIds?: readonly number[]
  /** Divisor of the logits; 0 takes the most likely token, the lower id among equals. @default 1 */
  readonly temperature?: number
  /**
   * Share of the entropy that the most likely tokens may reach together, in `(0, 1]`: keeps at most 100
   * tokens and at least one.
   * @default none
   */
  readonly topH?: number
  /** Number of most likely tokens that stay, plus all that tie with the last one; at least 1. @default all */
  readonly topK?: number
  /** The probability mass that stays, in `(0, 1]`. @default 1 */
  readonly topP?: number
  /** Lower bound of the probabilities that stay, as a share of the largest one, in `[0, 1]`. @default 0 */
  readonly minP?: number
  /**
   * Probability mass that stays of the tokens whose surprise is nearest to the entropy, in `(0, 1]`.
   * @default 1
   */
  readonly typicalP?: number
  /**
   * Lower bound of the probabilities that stay, in `[0, 1)`; the most likely token always stays.
   * @default 0
   */
  readonly epsilonCutoff?: number
  /** Lower bound that falls with the entropy `H`: `min(eta, sqrt(eta) e^-H)`, in `[0, 1)`. @default 0 */
  readonly etaCutoff?: number
  /** Way from the distribution to a token. @default 'inverse' */
  readonly drawMethod?: DrawMethod
}

/**
 * Way from a distribution to a token. `inverse` inverts the cumulative sum of the probabilities. `gumbelMax` takes the largest
 * logit with Gumbel noise, a hash of seed, index of the draw and id: two models that are nearly equal then nearly always draw the
 * same token, so that an engine accepts most of its speculative tokens. Both draw from the same distribution.
 */
export type DrawMethod = 'inverse' | 'gumbelMax'

/** The distribution to draw from. */
export interface DrawOptions extends DrawRule, OnDevice {
  /** `[V]`; `-Infinity` for a token that is never drawn. Copied, not kept. */
  readonly logits: Float32Array
  /** Prompt tokens: for the repetition penalty, n-grams, and sequences. @default none */
  readonly promptIds?: Uint32Array
  /** Tokens drawn so far: for the same and all other penalties. @default none */
  readonly outputIds?: Uint32Array
  /**
   * Tokens that a grammar or a set allows: `[ceil(V / 32)]` words, token `v` is bit `v % 32` of word `v /
   * 32`. See {@link tokenMask}.
   * @default all
   */
  readonly allowed?: Uint32Array
}

/** Options of {@link drawToken}. */
export interface DrawTokenOptions extends DrawOptions {
  /** Seed of the request, an integer from 0 to 2^53 - 1. */
  readonly seed: number
  /**
   * Index of the draw within the request, from 0: a draw depends on (seed, drawIndex), not on earlier draws.
   */
  readonly drawIndex: number
}

/** One drawn token. */
export interface Draw {
  /** The token. */
  readonly id: number
  /** Its log-probability under the unmodified model, with the same bits as in a loss. */
  readonly logProb: number
  /** Its log-probability under the distribution that it was drawn from; 0 at temperature 0. */
  readonly sampledLogProb: number
}

const RULE_KEYS = {
  device: true,
  logitBias: true,
  sequenceBias: true,
  repetitionPenalty: true,
  frequencyPenalty: true,
  presencePenalty: true,
  noRepeatNgramSize: true,
  badWordsIds: true,
  bannedIds: true,
  temperature: true,
  topH: true,
  topK: true,
  topP: true,
  minP: true,
  typicalP: true,
  epsilonCutoff: true,
  etaCutoff: true,
  drawMethod: true,
} as const
const CONTEXT_KEYS = { logits: true, promptIds: true, outputIds: true, allowed: true } as const

/**
 * Draws a token. Applies biases, penalties and bans, then the temperature, then the cuts, each over the
 * tokens that the one before kept: top-h, top-k, top-p, min-p, typical, epsilon, eta, in the order of
 * `transformers`. Gives the same token natively and in WebAssembly. Costs O(V), and O(V + T) with n-grams or
 * sequences over T tokens.
 *
 * @throws {FulmarError} `EMPTY` without logits, for a sequence without ids, or if no token may be drawn; `NON_FINITE` if a logit is NaN
 * or `Infinity`, or all are `-Infinity`; `OUT_OF_RANGE` for an option outside its range or an id that is not
 * below V;
 * unknown key; `MALFORMED` for a value of another type.
 *
 * @example
 * ```ts
 * import { drawToken } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const logits = Float32Array.of(0.5, 2, -1)
 * assert.equal(drawToken({ logits, temperature: 0, seed: 7, drawIndex: 0 }).id, 1)
 * const again = () => drawToken({ logits, topP: 0.9, seed: 7, drawIndex: 3 })
 * assert.deepEqual(again(), again())
 * ```
 */
export function drawToken(options: DrawTokenOptions): Draw {
  checkGiven('options', options)
  const { logits, promptIds, outputIds, allowed, seed, drawIndex } = options
  const json = ruleJson('drawToken', options, { seed: true, drawIndex: true }, placeDevice)
  const draw = call(() => raw.drawToken(json, logits, promptIds, outputIds, allowed, seed, drawIndex))
  return { id: draw.id, logProb: draw.logProb, sampledLogProb: draw.sampledLogProb }
}

/**
 * Returns the distribution that {@link drawToken} draws from: `[V]`, summing to 1, 0 for tokens that were
 * cut. A new array.
 *
 * @throws {FulmarError} As {@link drawToken}.
 *
 * @example
 * ```ts
 * import { drawProbabilities } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const probabilities = drawProbabilities({ logits: Float32Array.of(1, 3, 3, 0), topK: 2 })
 * assert.deepEqual([...probabilities], [0, 0.5, 0.5, 0])
 * ```
 */
export function drawProbabilities(options: DrawOptions): Float64Array {
  checkGiven('options', options)
  const { logits, promptIds, outputIds, allowed } = options
  const json = ruleJson('drawProbabilities', options, {})
  return call(() => raw.drawProbabilities(json, logits, promptIds, outputIds, allowed))
}

/**
 * Returns the mask that allows `ids` out of `vocabSize` tokens: `[ceil(vocabSize / 32)]`, see
 * {@link DrawOptions.allowed}. A grammar makes one for each of its states and passes it to the draws in that state.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` for an id that is not below `vocabSize`; `LIMIT_EXCEEDED` for more than 2^22 tokens;
 * `MALFORMED` for ids in an array of another type.
 *
 * @example
 * ```ts
 * import { drawProbabilities, tokenMask } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const allowed = tokenMask(4, Uint32Array.of(0, 3))
 * assert.deepEqual(allowed, Uint32Array.of(0b1001))
 * const probabilities = drawProbabilities({ logits: Float32Array.of(1, 9, 9, 1), allowed })
 * assert.deepEqual([...probabilities], [0.5, 0, 0, 0.5])
 * ```
 */
export function tokenMask(vocabSize: number, ids: Uint32Array): Uint32Array {
  checkArray({ ids }, 'ids', 'Uint32Array')
  return call(() => raw.tokenMask(vocabSize, ids))
}

function ruleJson(
  place: string,
  options: DrawOptions,
  more: KnownKeys,
  resolve?: typeof placeDevice,
): string {
  checkKnownKeys(place, options, Object.keys({ ...CONTEXT_KEYS, ...RULE_KEYS, ...more }))
  checkArray(options, 'logits', 'Float32Array')
  for (const name of ['promptIds', 'outputIds', 'allowed']) checkArray(options, name, 'Uint32Array', true)
  const { logitBias, ...rule } = Object.fromEntries(
    Object.entries(options).filter(([name]) => name in RULE_KEYS),
  )
  const biases = logitBias === undefined ? {} : { logitBias: biasesOf(place, logitBias) }
  return optionsJson(place, { ...rule, ...biases }, RULE_KEYS, resolve)
}

/** Converts biases to pairs, as the keys of JSON are texts. */
function biasesOf(place: string, logitBias: unknown): [number, unknown][] {
  if (typeof logitBias !== 'object' || logitBias === null || Array.isArray(logitBias)) {
    const got = describeValue(logitBias)
    throw new FulmarError('MALFORMED', `${place}.logitBias must be an object from ids to numbers: got ${got}`)
  }
  return Object.entries(logitBias).map(([id, bias]) => [Number(id), bias])
}

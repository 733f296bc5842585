/** Generation options of a wrapper under TorchRL's names. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { StopStrings } from '../../model/index.js'
import type { GenerateRequest } from '../../policy/policy.js'
import { checkRequestRule, REQUEST_RULES, type RequestRule, rulesOf } from '../../policy/request-rule.js'

/** Generation options: TorchRL's `generate_kwargs` in camel case, and the rules of `transformers` in {@link RequestRule}. */
export interface GenerateKwargs extends RequestRule {
  /**
   * Most tokens of a completion, the stop token included.
   * @default 128
   */
  readonly maxNewTokens?: number
  /** Another name of `maxNewTokens`; give one of the two. */
  readonly maxTokens?: number
  /** Another name of the wrapper's `numSamples`; give one of the two. */
  readonly numReturnSequences?: number
  /** Another name of the wrapper's `numSamples`; give one of the two. */
  readonly n?: number
  /**
   * False takes the likeliest tokens: a temperature of 0.
   * @default true
   */
  readonly doSample?: boolean
  /** As {@link GenerateRequest.temperature}. @default 1, or 0 where `doSample` is false */
  readonly temperature?: number
  /** As {@link GenerateRequest.topK}. @default 0 */
  readonly topK?: number
  /** As {@link GenerateRequest.topP}. @default 1 */
  readonly topP?: number
  /** As {@link GenerateRequest.minP}. @default 0 */
  readonly minP?: number
  /** As {@link GenerateRequest.repetitionPenalty}. @default 1 */
  readonly repetitionPenalty?: number
  /** As {@link GenerateRequest.frequencyPenalty}. @default 0 */
  readonly frequencyPenalty?: number
  /** As {@link GenerateRequest.presencePenalty}. @default 0 */
  readonly presencePenalty?: number
  /**
   * Ids that end a completion.
   * @default the tokenizer's end-of-sequence token, and the end of a ChatML turn where it has one
   */
  readonly stopIds?: readonly number[]
  /** As {@link GenerateRequest.stopStrings}: they stay in the response. @default [] */
  readonly stopStrings?: readonly string[]
  /**
   * Fixes the draws of the first call; later calls draw on. A non-negative safe integer.
   * @default 0
   */
  readonly seed?: number
}

/** {@link GenerateKwargs} checked and with defaults, except the stop ids, which come from the tokenizer. */
export interface ResolvedGenerateKwargs
  extends RequestRule,
    Required<
      Pick<
        GenerateRequest,
        | 'maxTokens'
        | 'temperature'
        | 'topK'
        | 'topP'
        | 'minP'
        | 'repetitionPenalty'
        | 'frequencyPenalty'
        | 'presencePenalty'
        | 'stopStrings'
        | 'seed'
      >
    > {
  readonly stopIds: readonly number[] | undefined
  readonly numSamples: number | undefined
}

const KEYS: readonly (keyof GenerateKwargs)[] = [
  ...([
    'maxNewTokens',
    'maxTokens',
    'numReturnSequences',
    'n',
    'doSample',
    'temperature',
    'topK',
    'topP',
  ] as const),
  ...([
    'minP',
    'repetitionPenalty',
    'frequencyPenalty',
    'presencePenalty',
    'stopIds',
    'stopStrings',
    'seed',
  ] as const),
  ...REQUEST_RULES,
]

const MAX_NEW_TOKENS_DEFAULT = 128

/**
 * Checks generation options, and fills in the defaults.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest; `INCOMPATIBLE` for two names of one option, or for
 * `doSample: false` with a temperature above 0; `OUT_OF_RANGE`, `EMPTY` or `MALFORMED` for a value; as `StopStrings` for those.
 */
export function resolveGenerateKwargs(kwargs: GenerateKwargs = {}): ResolvedGenerateKwargs {
  checkKnownKeys('generateKwargs', kwargs, KEYS)
  const maxTokens = oneOf('maxNewTokens', kwargs.maxNewTokens, 'maxTokens', kwargs.maxTokens)
  const numSamples = oneOf('numReturnSequences', kwargs.numReturnSequences, 'n', kwargs.n)
  const { doSample = true, temperature = doSample ? 1 : 0, topK = 0, topP = 1, minP = 0, stopIds } = kwargs
  const {
    repetitionPenalty = 1,
    frequencyPenalty = 0,
    presencePenalty = 0,
    seed = 0,
    stopStrings = [],
  } = kwargs
  if (!doSample && temperature !== 0)
    throw new FulmarError('INCOMPATIBLE', `When doSample is false, temperature must be 0: got ${temperature}`)
  new StopStrings(stopStrings)
  checkRequestRule(kwargs)
  const isSeed = Number.isSafeInteger(seed) && seed >= 0
  const isCount = (count: number) => Number.isSafeInteger(count) && count >= 1
  const rules: [string, unknown, boolean, string][] = [
    ['temperature', temperature, Number.isFinite(temperature) && temperature >= 0, 'non-negative'],
    ['topK', topK, Number.isSafeInteger(topK) && topK >= 0, 'a positive integer, or 0 for all'],
    ['topP', topP, topP > 0 && topP <= 1, 'between 0 and 1'],
    ['minP', minP, minP >= 0 && minP <= 1, 'between 0 and 1'],
    ['repetitionPenalty', repetitionPenalty, repetitionPenalty > 0, 'positive'],
    ['maxNewTokens', maxTokens, isCount(maxTokens ?? 1), 'an integer >= 1'],
    ['numSamples', numSamples, isCount(numSamples ?? 1), 'an integer >= 1'],
    ['seed', seed, isSeed, 'a non-negative safe integer'],
  ]
  for (const [name, value, holds, rule] of rules) {
    if (!holds) throw new FulmarError('OUT_OF_RANGE', `${name} must be ${rule}: got ${value}`)
  }
  const penalties = { repetitionPenalty, frequencyPenalty, presencePenalty }
  const cuts = { temperature, topK, topP, minP, ...rulesOf(kwargs), stopStrings }
  return { maxTokens: maxTokens ?? MAX_NEW_TOKENS_DEFAULT, numSamples, seed, stopIds, ...cuts, ...penalties }
}

function oneOf<T>(name: string, value: T | undefined, alias: string, other: T | undefined): T | undefined {
  if (value !== undefined && other !== undefined)
    throw new FulmarError(
      'INCOMPATIBLE',
      `${name} must not be given with ${alias}, which means the same: got both`,
    )
  return value ?? other
}

/** Requests for generation: a prompt and the options of its sequence. */

import { checkKnownKeys } from '../core/index.js'
import type { DrawRule } from '../objective/index.js'

/** Options of a generated sequence, with the sampling rules of its tokens. */
export interface GenerationOptions extends Omit<DrawRule, 'topK'> {
  /** Most tokens to draw, the stop token included. */
  readonly maxTokens: number
  /**
   * Ids that end the sequence once drawn.
   * @default []
   */
  readonly stopIds?: readonly number[]
  /**
   * Texts that end the sequence at the token that completes one, which is the last of the ids. Looked for in what was drawn alone,
   * not across the prompt's end.
   * @default []
   */
  readonly stopStrings?: readonly string[]
  /**
   * Draws among the `topK` likeliest tokens; 0 means all.
   * @default 0
   */
  readonly topK?: number
  /**
   * Number of most likely ids to return with each token.
   * @default 0
   */
  readonly topLogProbs?: number
  /** Stops between two steps and frees the pages; what was drawn so far is returned, its `finishReason` is `abort`. */
  readonly signal?: Pick<AbortSignal, 'aborted'>
}

/** One prompt with the seed of its draws. */
export interface Prompt {
  /** At least one token. */
  readonly ids: Uint32Array
  /** Names the random stream: a sequence depends on its prompt, its seed, the options and the weights alone. */
  readonly seed: number
}

const PARAM_KEYS = [
  ...[
    'maxTokens',
    'stopIds',
    'stopStrings',
    'topLogProbs',
    'signal',
    'temperature',
    'topK',
    'topP',
    'minP',
    'typicalP',
  ],
  ...['logitBias', 'repetitionPenalty', 'frequencyPenalty', 'presencePenalty', 'bannedIds'],
  ...['sequenceBias', 'noRepeatNgramSize', 'badWordsIds', 'epsilonCutoff', 'etaCutoff', 'topH', 'drawMethod'],
]

/** The options as the core reads them. @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. */
export function paramsJson(options: GenerationOptions): string {
  checkKnownKeys('options', options, PARAM_KEYS)
  const {
    maxTokens,
    stopIds,
    stopStrings: _,
    topLogProbs,
    signal: __,
    topK = 0,
    logitBias,
    ...rule
  } = options
  const draw = {
    ...rule,
    ...(topK === 0 ? {} : { topK }),
    // The core takes pairs, as JSON's keys are texts.
    ...(logitBias && { logitBias: Object.entries(logitBias).map(([id, bias]) => [Number(id), bias]) }),
  }
  return JSON.stringify({ maxTokens, stopIds, topLogProbs, draw })
}

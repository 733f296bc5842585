/** Options of a wrapper of a language model, checked and with defaults. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { BATCHING_KEYS, type BatchingOptions } from '../../policy/request-batcher.js'
import type { TensorKey } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import type { RenderingOptions } from '../data/apply-chat-template.js'
import { type GenerateKwargs, type ResolvedGenerateKwargs, resolveGenerateKwargs } from './generate-kwargs.js'

/** Input of a wrapper: conversations, texts or token ids. */
export type InputMode = NonNullable<LLMWrapperOptions['inputMode']>

/** Options of {@link LLMWrapperBase} and its kin. */
export interface LLMWrapperOptions extends BatchingOptions {
  /**
   * Text to ids and back; stays the caller's, and is never changed.
   * @default none, which `inputMode: 'tokens'` alone can do without
   */
  readonly tokenizer?: NativeTokenizer
  /** @default 'history' */
  readonly inputMode?: 'history' | 'text' | 'tokens'
  /**
   * Key of the input.
   * @default [the root of `inputMode`, 'prompt'], or 'full' if `generate` is false
   */
  readonly inputKey?: TensorKey
  /**
   * Key of the mask of padded input tokens, if the dictionary has no `all_attention_mask`.
   * @default 'attention_mask'
   */
  readonly attentionMaskKey?: TensorKey
  /**
   * If true, draws completions; else scores the given tokens.
   * @default true
   */
  readonly generate?: boolean
  /** Options of the generation. */
  readonly generateKwargs?: GenerateKwargs
  /**
   * If true, outputs are padded tensors instead of ragged rows: prompts on the left, responses on the right.
   * @default false
   */
  readonly padOutput?: boolean
  /**
   * The id that pads. Lengths are kept in masks, never read from ids, so any will do.
   * @default the tokenizer's padding token, else 0
   */
  readonly padId?: number
  /**
   * If true, writes the outputs to the input dictionary; else returns a new one with only the outputs.
   * @default true, without `numSamples`
   */
  readonly inPlace?: boolean
  /**
   * Completions for each prompt: the batch gets a last dimension of that length. Scoring does not use it.
   * @default one, without a dimension
   */
  readonly numSamples?: number
  /** Chat template of `inputMode: 'history'` and its inputs. @default the tokenizer's own template */
  readonly rendering?: Omit<RenderingOptions, 'tokenizer'>
  /**
   * If true, adds the special tokens of the tokenizer's file around input texts; templates write them
   * themselves.
   * @default false
   */
  readonly addSpecialTokens?: boolean
  /**
   * If true, uses ids at `['tokens', 'prompt']` instead of rendering a history, for environments that append
   * to the drawn ids. False by default, as ids of an earlier turn may still be there.
   * @default false
   */
  readonly preferTokens?: boolean
  /**
   * The message that drawn ids mean, such as a renderer's `parse` finds with its calls and reasoning.
   * @default the assistant's, its content the text without special tokens
   */
  readonly parseResponse?: (ids: Uint32Array) => Message
  /** @default true */
  readonly returnLogProbs?: boolean
  /** @default 'history' */
  readonly historyKey?: TensorKey
  /** @default 'text' */
  readonly textKey?: TensorKey
  /** @default 'tokens' */
  readonly tokensKey?: TensorKey
  /** @default 'masks' */
  readonly masksKey?: TensorKey
  /** @default 'log_probs' */
  readonly logProbsKey?: TensorKey
  /**
   * If true, batches the rows of concurrent calls.
   * @default true if a batch size is given
   */
  readonly batching?: boolean
}

/** {@link LLMWrapperOptions}, checked and complete. */
export interface WrapperConfig
  extends Required<
    Pick<
      LLMWrapperOptions,
      | 'inputMode'
      | 'generate'
      | 'padOutput'
      | 'padId'
      | 'inPlace'
      | 'rendering'
      | 'addSpecialTokens'
      | 'preferTokens'
      | 'returnLogProbs'
      | 'batching'
    >
  > {
  readonly tokenizer: NativeTokenizer | undefined
  readonly numSamples: number | undefined
  readonly parseResponse: ((ids: Uint32Array) => Message) | undefined
  readonly generateKwargs: ResolvedGenerateKwargs
  readonly stopIds: readonly number[]
  readonly inputKey: readonly string[]
  readonly attentionMaskKey: readonly string[]
  readonly roots: Readonly<Record<InputMode | 'masks' | 'logProbs', readonly string[]>>
}

/** The keys of {@link LLMWrapperOptions}. */
export const WRAPPER_KEYS: readonly (keyof LLMWrapperOptions)[] = [
  ...BATCHING_KEYS,
  ...(['tokenizer', 'inputMode', 'inputKey', 'attentionMaskKey', 'generate', 'generateKwargs'] as const),
  ...(['padOutput', 'padId', 'inPlace', 'numSamples', 'rendering', 'addSpecialTokens'] as const),
  ...(['preferTokens', 'parseResponse', 'returnLogProbs', 'batching'] as const),
  ...(['historyKey', 'textKey', 'tokensKey', 'masksKey', 'logProbsKey'] as const),
]
const MODES: readonly InputMode[] = ['history', 'text', 'tokens']

/** Checks options. @throws {FulmarError} As the constructor of {@link LLMWrapperBase}. */
export function resolveWrapperOptions(options: LLMWrapperOptions): WrapperConfig {
  checkKnownKeys('options', options, WRAPPER_KEYS)
  const { inputMode = 'history', generate = true, returnLogProbs = true, tokenizer } = options
  if (!MODES.includes(inputMode))
    throw new FulmarError('UNKNOWN_NAME', `inputMode must be one of ${MODES.join(', ')}: got ${inputMode}`)
  if (!generate && !returnLogProbs)
    throw new FulmarError('INCOMPATIBLE', 'returnLogProbs must be true where generate is false: got false')
  if (inputMode !== 'tokens' && tokenizer === undefined)
    throw new FulmarError(
      'INCOMPATIBLE',
      `tokenizer must be given for inputMode ${inputMode}: it is undefined`,
    )
  for (const name of [
    'generate',
    'padOutput',
    'inPlace',
    'preferTokens',
    'returnLogProbs',
    'batching',
  ] as const) {
    const value = options[name]
    if (value !== undefined && typeof value !== 'boolean')
      throw new FulmarError('MALFORMED', `${name} must be a boolean: got ${String(value)}`)
  }
  const generateKwargs = resolveGenerateKwargs(options.generateKwargs)
  const numSamples = samplesOf(options.numSamples, generateKwargs.numSamples, generate)
  if (numSamples !== undefined && options.inPlace)
    throw new FulmarError(
      'INCOMPATIBLE',
      'inPlace must not be true with numSamples, which adds a dimension: got true',
    )
  const roots = {
    history: path(options.historyKey ?? 'history'),
    text: path(options.textKey ?? 'text'),
    tokens: path(options.tokensKey ?? 'tokens'),
    masks: path(options.masksKey ?? 'masks'),
    logProbs: path(options.logProbsKey ?? 'log_probs'),
  }
  const {
    inputKey = [...roots[inputMode], generate ? 'prompt' : 'full'],
    attentionMaskKey = 'attention_mask',
  } = options
  return {
    tokenizer,
    inputMode,
    generate,
    returnLogProbs,
    generateKwargs,
    numSamples,
    roots,
    inputKey: path(inputKey),
    attentionMaskKey: path(attentionMaskKey),
    stopIds: generateKwargs.stopIds ?? stopIdsOf(tokenizer),
    padOutput: options.padOutput ?? false,
    padId: padIdOf(options),
    inPlace: options.inPlace ?? numSamples === undefined,
    rendering: options.rendering ?? {},
    addSpecialTokens: options.addSpecialTokens ?? false,
    preferTokens: options.preferTokens ?? false,
    parseResponse: options.parseResponse,
    batching: batches(options),
  }
}

function samplesOf(
  numSamples: number | undefined,
  n: number | undefined,
  generate: boolean,
): number | undefined {
  if (numSamples !== undefined && n !== undefined && numSamples !== n)
    throw new FulmarError(
      'INCOMPATIBLE',
      `numSamples must be what generateKwargs says (${n}): got ${numSamples}`,
    )
  // A count of one that came with the generation options asks for no dimension.
  const count = numSamples ?? (n === 1 ? undefined : n)
  if (count === undefined || !generate) return undefined
  if (!Number.isSafeInteger(count) || count < 1)
    throw new FulmarError('OUT_OF_RANGE', `numSamples must be an integer >= 1: got ${count}`)
  return count
}

function batches({ batching, minBatchSize, maxBatchSize }: LLMWrapperOptions): boolean {
  const sized = minBatchSize !== undefined || maxBatchSize !== undefined
  if (batching === false && sized)
    throw new FulmarError('INCOMPATIBLE', 'batching must not be false where a batch size is given: got false')
  return batching ?? sized
}

function padIdOf({ padId, tokenizer }: LLMWrapperOptions): number {
  const token = tokenizer?.specialTokens.pad_token
  const id = padId ?? (token === undefined ? undefined : tokenizer?.idOf(token)) ?? 0
  if (Number.isSafeInteger(id) && id >= 0) return id
  throw new FulmarError('OUT_OF_RANGE', `padId must be a token id: got ${id}`)
}

function stopIdsOf(tokenizer: NativeTokenizer | undefined): number[] {
  const names = [tokenizer?.specialTokens.eos_token, '<|im_end|>']
  const ids = names.map((name) => (name === undefined ? undefined : tokenizer?.idOf(name)))
  return [...new Set(ids.filter((id) => id !== undefined))]
}

function path(key: TensorKey): readonly string[] {
  return typeof key === 'string' ? [key] : key
}

/** Fields of prompts and answers of language models over the containers of this room: what `LLMInput` and its siblings extend. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Tensor, TensorDict } from '../../tensor/index.js'
import { checkDict } from '../../tensor/tensor-dict.js'
import { checkBatch } from './batch.js'
import { LogProbs } from './log-probs.js'
import { Masks } from './masks.js'
import type { Nested } from './nested.js'
import type { SequencesOptions, TokenField } from './sequences.js'
import { Text } from './text.js'
import { Tokens } from './tokens.js'

/** Prompt of {@link LLMInput}. */
export interface LLMInputFields {
  /** Ids of the prompts, `i64`: `[L]`, ragged rows, or padded `[...batch, L]`. */
  readonly tokens?: TokenField | undefined
  /** True where `tokens` are no padding, `bool`. */
  readonly attentionMask?: TokenField | undefined
  /** Texts of the prompts, in lists nested as the batch is. */
  readonly text?: Nested<string> | undefined
}

/** Answer of {@link LLMOutput}. */
export interface LLMOutputFields {
  /** Ids of the prompts, `i64`. */
  readonly tokens?: TokenField | undefined
  /** Ids of the answers, `i64`. */
  readonly tokensResponse?: TokenField | undefined
  /** Log-probabilities of the answers, `f32`, one for each of `tokensResponse`. */
  readonly logProbs?: TokenField | undefined
  /** Logits of the answers, `f32` `[...batch, R, V]`. */
  readonly logits?: Tensor | undefined
  /** Texts of the answers, in lists nested as the batch is. */
  readonly textResponse?: Nested<string> | undefined
}

/** Prompt and answer of {@link LLMData}. */
export interface LLMDataFields extends LLMInputFields, LLMOutputFields {}

/** Containers that a record is made of. */
export interface LLMParts {
  /** Its `prompt`, and for an answer its `response`. */
  readonly text?: Text
  /** Its `prompt`, and for an answer its `response`. */
  readonly tokens?: Tokens
  /** Its `allAttentionMask`, which must be that of the prompts. */
  readonly masks?: Masks
  /** Its `response`. */
  readonly logProbs?: LogProbs
  /** `[...batch, R, V]`. */
  readonly logits?: Tensor
}

/** Name of each field in dictionaries. */
const DICT_KEYS = {
  tokens: 'tokens',
  attentionMask: 'attention_mask',
  text: 'text',
  tokensResponse: 'tokens_response',
  logProbs: 'log_probs',
  logits: 'logits',
  textResponse: 'text_response',
} as const

/** Field of a record. */
export type LLMFieldName = keyof typeof DICT_KEYS

/** A record of prompts, answers or both. A class names its fields. */
export abstract class LLMRecord {
  /** The batch dimensions; `[]` for one prompt or answer. */
  readonly batchSize: readonly number[]
  /** @internal */
  protected readonly fields: LLMDataFields
  readonly #text: Text
  readonly #tokens: Tokens
  readonly #masks: Masks
  readonly #logProbs: LogProbs

  protected constructor(names: readonly LLMFieldName[], fields: LLMDataFields, options: SequencesOptions) {
    checkKnownKeys('fields', fields, names)
    const { tokens, tokensResponse, attentionMask, logProbs, logits, text, textResponse } = fields
    this.fields = Object.freeze(
      Object.fromEntries(Object.entries(fields).filter(([, one]) => one !== undefined)),
    )
    this.#text = new Text({ prompt: text, response: textResponse })
    this.#tokens = new Tokens({ prompt: tokens, response: tokensResponse }, options)
    this.#masks = new Masks({ allAttentionMask: attentionMask }, options)
    this.#logProbs = new LogProbs({ response: logProbs }, options)
    const parts: [string, readonly number[]][] = []
    if (tokens ?? tokensResponse) parts.push(['tokens', this.#tokens.batchSize])
    if (attentionMask) parts.push(['attentionMask', this.#masks.batchSize])
    if (logProbs) parts.push(['logProbs', this.#logProbs.batchSize])
    if ((text ?? textResponse) !== undefined) parts.push(['text', this.#text.batchSize])
    if (logits) parts.push(['logits', logitsBatch(logits)])
    this.batchSize = Object.freeze([...(parts[0]?.[1] ?? options.batchSize ?? [])])
    for (const [name, batchSize] of parts) checkBatch(name, batchSize, this.batchSize)
    if (attentionMask)
      checkAlike('attentionMask', this.#masks.rows('allAttentionMask'), this.#tokens.rows('prompt'))
    if (logProbs) checkAlike('logProbs', this.#logProbs.rows('response'), this.#tokens.rows('response'))
  }

  /** Ids of the prompts. */
  get tokens(): TokenField | undefined {
    return this.fields.tokens
  }

  /** The fields that are there, under TorchRL's names. @throws {FulmarError} `SHAPE_MISMATCH` for ragged rows of many dimensions. */
  toTensorDict(): TensorDict {
    const dict = TensorDict.from({}, { batchSize: this.batchSize })
    const texts = this.#text.toTensorDict()
    for (const name of Object.keys(this.fields) as LLMFieldName[]) {
      const entry =
        name === 'text'
          ? texts.get('prompt')
          : name === 'textResponse'
            ? texts.get('response')
            : this.fields[name]
      if (entry !== undefined) dict.set(DICT_KEYS[name], entry)
    }
    return dict
  }

  /** @internal */
  protected textParts(): Text {
    return this.#text
  }

  /** The ids, as `prompt` and `response`. */
  toTokens(): Tokens {
    return this.#tokens
  }

  /** @internal */
  protected maskParts(): Masks {
    return this.#masks
  }

  /** @internal */
  protected logProbParts(): LogProbs {
    return this.#logProbs
  }
}

/** @internal The fields of containers. @throws {FulmarError} `UNKNOWN_NAME` for another container. */
export function fieldsOfParts(known: readonly (keyof LLMParts)[], parts: LLMParts): LLMDataFields {
  checkKnownKeys('parts', parts, known)
  const { text, tokens, masks, logProbs, logits } = parts
  const fields = {
    ...{ tokens: tokens?.prompt, tokensResponse: tokens?.response, attentionMask: masks?.allAttentionMask },
    ...{ logProbs: logProbs?.response, logits, text: text?.prompt, textResponse: text?.response },
  }
  return Object.fromEntries(Object.entries(fields).filter(([, one]) => one !== undefined))
}

/** @internal The fields in a dictionary. @throws {FulmarError} `UNKNOWN_NAME` for another key. */
export function fieldsInDict(names: readonly LLMFieldName[], dict: TensorDict): LLMDataFields {
  checkDict(dict)
  const entries = dict.keys().map((key) => {
    const name = names.find((one) => DICT_KEYS[one] === key)
    if (name === undefined) {
      const known = names.map((one) => DICT_KEYS[one]).join(', ')
      throw new FulmarError('UNKNOWN_NAME', `dict must have the keys ${known} alone: got ${key}`)
    }
    return [name, name === 'text' || name === 'textResponse' ? dict.value(key) : dict.get(key)]
  })
  return Object.fromEntries(entries)
}

function logitsBatch(logits: Tensor): readonly number[] {
  if (!(logits instanceof Tensor) || logits.dtype !== 'f32' || logits.shape.length < 2) {
    const got = logits instanceof Tensor ? `${logits.dtype} [${logits.shape.join(', ')}]` : typeof logits
    throw new FulmarError('INCOMPATIBLE', `logits must be f32 of [...batch, R, V]: got ${got}`)
  }
  return logits.shape.slice(0, -2)
}

/** Refuses rows of other lengths than the tokens that they belong to. */
function checkAlike(name: string, rows: readonly Tensor[], tokens: readonly Tensor[]): void {
  if (tokens.length === 0) return
  for (const [at, row] of rows.entries()) {
    const [got, wanted] = [row.shape[0], tokens[at]?.shape[0]]
    if (got === wanted) continue
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `${name} must have ${wanted} values for its tokens in row ${at}: got ${got}`,
    )
  }
}

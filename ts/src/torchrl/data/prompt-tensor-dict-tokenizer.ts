/** Prompts with their labels to dictionaries of ids of one length. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Ragged, Tensor, type TensorDict } from '../../tensor/index.js'
import { flatTexts } from './batch.js'
import { TensorDictTokenizer, type TensorDictTokenizerOptions } from './tensor-dict-tokenizer.js'

/** Options of {@link PromptTensorDictTokenizer}. */
export interface PromptTensorDictTokenizerOptions
  extends Pick<
    TensorDictTokenizerOptions,
    'tokenizer' | 'maxLength' | 'value' | 'addedTokens' | 'addSpecialTokens'
  > {
  /** If false, rows may be longer than `maxLength`. @default true */
  readonly truncation?: boolean
  /** Key of the prompts. @default 'prompt' */
  readonly key?: string
  /** The id that ends a text. @default the tokenizer's `eos_token` */
  readonly endId?: number
}

const SHARED = ['tokenizer', 'maxLength', 'value', 'addedTokens', 'addSpecialTokens'] as const
const KEYS = [...SHARED, 'truncation', 'key', 'endId']

/**
 * TorchRL's mapper of batches with prompts and `label`: `input_ids` and `attention_mask` of prompt and label together, `i64`
 * `[B, maxLength]`, padded and cut on the right; `prompt_rindex`, `i64` `[B]`, the position of the last token of the prompt; and
 * `valid_sample`, `bool` `[B]`, true where the last token of the row is the end. The batch size is `[]`, as in TorchRL.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { PromptTensorDictTokenizer } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
 * const map = new PromptTensorDictTokenizer({ tokenizer, maxLength: 5, value: 0, endId: 0 })
 * const dict = map.apply({ prompt: ['ab', 'a'], label: ['c', 'bbbb'] })
 * assert.deepEqual(dict.tensor('input_ids').data, BigInt64Array.of(1n, 2n, 3n, 0n, 0n, 1n, 2n, 2n, 2n, 2n))
 * assert.deepEqual(dict.tensor('prompt_rindex').data, BigInt64Array.of(1n, 0n))
 * assert.deepEqual(dict.tensor('valid_sample').data, Uint8Array.of(1, 0))
 * ```
 */
export class PromptTensorDictTokenizer {
  readonly #options: PromptTensorDictTokenizerOptions
  readonly #map: TensorDictTokenizer
  readonly #endId: number

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `OUT_OF_RANGE` if `maxLength` is no integer from 1; `INCOMPATIBLE`
   * without an id for padding or for the end.
   */
  constructor(options: PromptTensorDictTokenizerOptions) {
    checkKnownKeys('options', options, KEYS, ['tokenizer', 'maxLength'])
    const { truncation = true, tokenizer } = options
    const shared = Object.fromEntries(SHARED.map((name) => [name, options[name]]))
    this.#options = options
    this.#map = new TensorDictTokenizer({
      ...{ ...shared, tokenizer, maxLength: options.maxLength },
      ...{ side: 'right', truncation: truncation && 'right' },
    })
    this.#endId = options.endId ?? endIdOf(options)
  }

  /**
   * Encodes lists of prompts and labels of one length.
   * @throws {FulmarError} `MALFORMED` without lists of texts; `SHAPE_MISMATCH` for lists of two lengths; `EMPTY` for a prompt without a
   * token; errors of the encoding.
   */
  apply(sample: Readonly<Record<string, unknown>>): TensorDict {
    const { tokenizer, maxLength, truncation = true, key = 'prompt' } = this.#options
    const { addedTokens = true, addSpecialTokens = true } = this.#options
    const [prompts, labels] = [listOf(key, sample[key]), listOf('label', sample.label)]
    if (prompts.length !== labels.length) {
      const detail = `label must have a text for each of ${key} (${prompts.length}): got ${labels.length}`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    const dict = this.#map.apply({ text: prompts.map((prompt, at) => prompt + (labels[at] ?? '')) })
    const cut = truncation && { maxLength, side: 'right' as const }
    const { rows } = tokenizer.encodeBatch(prompts, { addedTokens, addSpecialTokens, truncation: cut })
    const last = prompts.map((prompt, at) => {
      const length = (rows[at + 1] ?? 0) - (rows[at] ?? 0)
      if (length > 0) return BigInt(length - 1)
      throw new FulmarError('EMPTY', `${key}[${at}] must have a token: got ${JSON.stringify(prompt)}`)
    })
    const isEnded = lastIds(dict).map((id) => Number(id === this.#endId))
    return dict
      .withBatchSize([])
      .set('prompt_rindex', Tensor.from(BigInt64Array.from(last)))
      .set('valid_sample', Tensor.from(Uint8Array.from(isEnded), { dtype: 'bool' }))
  }
}

/** @internal The id of the tokenizer's end of text. @throws {FulmarError} `INCOMPATIBLE` for a tokenizer without one. */
export function endIdOf({ tokenizer }: Pick<PromptTensorDictTokenizerOptions, 'tokenizer'>): number {
  const token = tokenizer.specialTokens.eos_token
  const id = token === undefined ? undefined : tokenizer.idOf(token)
  if (id !== undefined) return id
  throw new FulmarError(
    'INCOMPATIBLE',
    'endId must be given for a tokenizer without eos_token: it is undefined',
  )
}

function listOf(name: string, value: unknown): readonly string[] {
  const { flat, batchSize } = flatTexts(name, value)
  if (batchSize.length === 1) return flat
  throw new FulmarError(
    'MALFORMED',
    `${name} must be a list of texts: got ${batchSize.length} levels of lists`,
  )
}

function lastIds(dict: TensorDict): number[] {
  const entry = dict.get('input_ids')
  if (entry instanceof Ragged)
    return Array.from({ length: entry.numRows }, (_, row) => Number(entry.row(row).data.at(-1)))
  const { data, shape } = dict.tensor('input_ids')
  const [numRows = 0, width = 0] = shape
  return Array.from({ length: numRows }, (_, row) => Number(data[(row + 1) * width - 1]))
}

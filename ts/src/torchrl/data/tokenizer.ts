/** Texts of dictionaries to ids, and back. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { NativeTokenizer, PaddingOptions, TruncationOptions } from '../../tokenizer/index.js'
import { columnsOf, idsAt, maskKeyOf, nameOf, setEach, textsAt } from './dict-text.js'

/** Options of {@link Tokenizer}. */
export interface TokenizerOptions {
  /** Tokenizer that encodes and decodes. */
  readonly tokenizer: NativeTokenizer
  /** Keys of texts. */
  readonly inKeys: readonly TensorKey[]
  /** Keys of their ids, one for each of `inKeys`. */
  readonly outKeys: readonly TensorKey[]
  /**
   * Keys of ids for {@link Tokenizer.inverse}.
   * @default []
   */
  readonly inKeysInv?: readonly TensorKey[]
  /**
   * Keys of their texts.
   * @default []
   */
  readonly outKeysInv?: readonly TensorKey[]
  /**
   * Padding of rows to one length; they stay ragged with `false`.
   * @default false
   */
  readonly padding?: false | PaddingOptions
  /**
   * Truncation of texts.
   * @default false
   */
  readonly truncation?: false | TruncationOptions
  /**
   * If true, names of special tokens in the texts become their ids, as is right for text of a template.
   * @default true
   */
  readonly addedTokens?: boolean
  /**
   * If true, adds the special tokens of the tokenizer's file around the texts.
   * @default false
   */
  readonly addSpecialTokens?: boolean
  /**
   * If true, special tokens are left out of decoded texts.
   * @default true
   */
  readonly skipSpecialTokens?: boolean
  /**
   * If true, writes `attention_mask` next to the ids.
   * @default true
   */
  readonly returnAttentionMask?: boolean
  /**
   * If true, missing keys are skipped.
   * @default true
   */
  readonly missingTolerance?: boolean
}

const KEYS = [
  'tokenizer',
  'inKeys',
  'outKeys',
  'inKeysInv',
  'outKeysInv',
  'padding',
  'truncation',
  'addedTokens',
  'addSpecialTokens',
  'skipSpecialTokens',
  'returnAttentionMask',
  'missingTolerance',
]

/**
 * TorchRL's transform: texts of a dictionary become ids, `i64`, with their attention mask; the other way,
 * ids become texts. Dictionaries come back as new ones that share their other entries.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { Tokenizer } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const transform = new Tokenizer({
 *   tokenizer,
 *   inKeys: [['text', 'prompt']],
 *   outKeys: [['tokens', 'prompt']],
 *   inKeysInv: [['tokens', 'prompt']],
 *   outKeysInv: ['said'],
 *   padding: { side: 'left', value: 0 },
 * })
 * const dict = TensorDict.from({}, { batchSize: [2] }).set(['text', 'prompt'], new NonTensorStack(['ab', 'c']))
 * const encoded = transform.forward(dict)
 * assert.deepEqual(encoded.tensor(['tokens', 'prompt']).shape, [2, 2])
 * assert.deepEqual(encoded.tensor(['tokens', 'attention_mask']).data, BigInt64Array.of(1n, 1n, 0n, 1n))
 * assert.deepEqual(transform.inverse(encoded).value('said'), ['ab', 'c'])
 * assert.equal(dict.has('tokens'), false)
 * ```
 */
export class Tokenizer {
  readonly #options: TokenizerOptions

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `SHAPE_MISMATCH` if there is not one key for each key. */
  constructor(options: TokenizerOptions) {
    checkKnownKeys('options', options, KEYS)
    const { inKeys, outKeys, inKeysInv = [], outKeysInv = [] } = options
    checkPairs('outKeys', inKeys, outKeys)
    checkPairs('outKeysInv', inKeysInv, outKeysInv)
    this.#options = { ...options }
  }

  /**
   * A dictionary with the ids of the texts.
   * @throws {FulmarError} `MALFORMED` for entries that are no texts; `UNKNOWN_NAME` for a missing key that is not
   * tolerated; `INCOMPATIBLE` without an id for padding; the errors of encoding.
   */
  forward(dict: TensorDict): TensorDict {
    const { tokenizer, inKeys, outKeys, padding = false, truncation = false } = this.#options
    const { addedTokens = true, addSpecialTokens = false, returnAttentionMask = true } = this.#options
    const encoded = dict.exclude([])
    for (const [key, out] of this.#pairs(dict, inKeys, outKeys)) {
      const batch = tokenizer.encodeBatch(textsAt(dict, key), { addedTokens, addSpecialTokens, truncation })
      const { ids, attentionMask } = columnsOf(batch, dict.batchSize, { padding, tokenizer })
      encoded.set(out, ids)
      if (returnAttentionMask) encoded.set(maskKeyOf(out), attentionMask)
    }
    return encoded
  }

  /**
   * A dictionary with the texts of the ids; those that the attention mask marks as padding are left out.
   * @throws {FulmarError} `SHAPE_MISMATCH` or `OUT_OF_RANGE` for entries that are no ids; `UNKNOWN_NAME` for a missing key
   * that is not tolerated.
   */
  inverse(dict: TensorDict): TensorDict {
    const { tokenizer, inKeysInv = [], outKeysInv = [], skipSpecialTokens = true } = this.#options
    const decoded = dict.exclude([])
    for (const [key, out] of this.#pairs(dict, inKeysInv, outKeysInv)) {
      const rows = idsAt(dict, key, maskKeyOf(key))
      setEach(
        decoded,
        out,
        rows.map((ids) => tokenizer.decode(ids, { skipSpecial: skipSpecialTokens })),
      )
    }
    return decoded
  }

  #pairs(
    dict: TensorDict,
    from: readonly TensorKey[],
    to: readonly TensorKey[],
  ): (readonly [TensorKey, TensorKey])[] {
    return from.flatMap((key, at) => {
      const out = to[at]
      if (out !== undefined && dict.has(key)) return [[key, out] as const]
      if (this.#options.missingTolerance ?? true) return []
      throw new FulmarError('UNKNOWN_NAME', `${nameOf(key)} must be there: it is absent`)
    })
  }
}

function checkPairs(name: string, from: readonly TensorKey[], to: readonly TensorKey[]): void {
  if (from.length === to.length) return
  throw new FulmarError(
    'SHAPE_MISMATCH',
    `${name} must be ${from.length}, one for each key: got ${to.length}`,
  )
}

/** Text that grows by a token at a time, with a hash of all that came before: for searches that meet the same state again. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Binary, Categorical, Composite, NonTensor, Unbounded } from '../../spec/index.js'
import { Tensor, TensorDict, type TensorKey } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import { setEach } from '../data/dict-text.js'
import { checkBatchSize, type EnvBase } from './env.js'
import { flags } from './flag.js'
import { idRowsAt, joinedIds, setIdRows } from './token-rows.js'

/** Options of {@link LLMHashingEnv}. */
export interface LLMHashingEnvOptions {
  /** Vocabulary size. @default the tokenizer's */
  readonly vocabSize?: number
  /** Number of texts; a number is one dimension. @default [1] */
  readonly batchSize?: number | readonly number[]
  /** The hash after a token, a 64-bit integer, of the hash before it. @default a mix of both */
  readonly hash?: (before: bigint, id: number) => bigint
  /** Key of the ids. @default 'observation' */
  readonly observationKey?: TensorKey
  /** If true, the text is returned with them. @default true */
  readonly textOutput?: boolean
  /** Encodes texts and decodes ids; needed for text. */
  readonly tokenizer?: NativeTokenizer
  /** Key of the texts. @default 'text' */
  readonly textKey?: TensorKey
}

const KEYS = ['vocabSize', 'batchSize', 'hash', 'observationKey', 'textOutput', 'tokenizer', 'textKey']

/**
 * TorchRL's environment for searches in trees of text: each step takes one token, `action` `[B, 1]` of `i64`, and shows all ids so far and
 * their rolling hash, `hashing` `[B, 1]` of `i64`. Texts of the same ids have the same hash, by whatever steps they came about. It never
 * ends by itself.
 *
 * @example
 * ```ts
 * import { CharTokenizer, Tensor } from 'fulmar'
 * import { LLMHashingEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const env = new LLMHashingEnv({ tokenizer })
 * const [b = 0] = tokenizer.encode('b').ids
 * const next = env.step(env.makeTensorDict('a').set('action', Tensor.from(BigInt64Array.of(BigInt(b)), { shape: [1, 1] })))
 * assert.deepEqual(next.value('text'), ['ab'])
 * assert.deepEqual(next.tensor('hashing').data, env.makeTensorDict('ab').tensor('hashing').data)
 * ```
 */
export class LLMHashingEnv implements EnvBase {
  readonly batchSize: readonly number[]
  readonly observationSpec: Composite
  readonly actionSpec: Composite
  readonly rewardSpec: Composite
  readonly doneSpec: Composite
  readonly stateSpec: Composite
  readonly #hash: (before: bigint, id: number) => bigint
  readonly #key: TensorKey
  readonly #textKey: TensorKey | undefined
  readonly #tokenizer: NativeTokenizer | undefined
  readonly #vocabSize: number

  /**
   * @throws {FulmarError} `INCOMPATIBLE` if neither `vocabSize` nor a tokenizer is given, or none for text; `OUT_OF_RANGE` for a vocabulary
   * that is no positive integer; `SHAPE_MISMATCH` for a batch of another number of dimensions than one; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(options: LLMHashingEnvOptions) {
    checkKnownKeys('options', options, KEYS)
    const { tokenizer, vocabSize = tokenizer?.vocabSize, batchSize = [1], hash = mixed } = options
    const { observationKey = 'observation', textOutput = true, textKey = 'text' } = options
    if (vocabSize === undefined || (textOutput && tokenizer === undefined)) {
      const detail = 'tokenizer must be given for text, and where vocabSize is not: it is undefined'
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    if (!Number.isSafeInteger(vocabSize) || vocabSize < 1) {
      throw new FulmarError('OUT_OF_RANGE', `vocabSize must be a positive integer: got ${vocabSize}`)
    }
    this.batchSize = checkBatchSize(typeof batchSize === 'number' ? [batchSize] : batchSize)
    if (this.batchSize.length > 1) {
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `batchSize must have one dimension: got ${this.batchSize.length}`,
      )
    }
    this.#hash = hash
    this.#key = observationKey
    this.#textKey = textOutput ? textKey : undefined
    this.#tokenizer = tokenizer
    this.#vocabSize = vocabSize
    const shape = this.batchSize
    const column = [...shape, 1]
    this.observationSpec = new Composite(
      { hashing: new Unbounded({ shape: column, dtype: 'i64' }) },
      { shape },
    )
    this.observationSpec.set(observationKey, null)
    if (this.#textKey)
      this.observationSpec.set(this.#textKey, new NonTensor({ shape, batched: true, example: '' }))
    this.actionSpec = new Composite(
      { action: new Categorical(vocabSize, { shape: column, dtype: 'i64' }) },
      { shape },
    )
    this.rewardSpec = new Composite({}, { shape })
    const flag = () => new Binary(1, { shape: column, dtype: 'bool' })
    this.doneSpec = new Composite({ done: flag(), terminated: flag() }, { shape })
    this.stateSpec = new Composite({}, { shape })
  }

  /** A reset with texts, one for each element, or one for all. @throws {FulmarError} `INCOMPATIBLE` without a tokenizer. */
  makeTensorDict(text: string | readonly string[]): TensorDict {
    const tokenizer = this.#tokenizer
    if (tokenizer === undefined)
      throw new FulmarError('INCOMPATIBLE', 'tokenizer must be given for text: it is undefined')
    const texts = typeof text === 'string' ? new Array<string>(this.batchSize[0] ?? 1).fill(text) : text
    const rows = texts.map((one) => tokenizer.encode(one, { addedTokens: true }).ids)
    return this.reset(setIdRows(TensorDict.from({}, { batchSize: [texts.length] }), this.#key, rows))
  }

  /** Hashes the ids of `dict`. @throws {FulmarError} `EMPTY` without `dict`; `UNKNOWN_NAME` without ids. */
  reset(dict?: TensorDict): TensorDict {
    if (dict === undefined)
      throw new FulmarError('EMPTY', 'dict must hold the ids of a reset: it is undefined')
    const rows = this.#rows(dict)
    const hashes = rows.map((ids) => ids.reduce((before, id) => this.#hash(before, id), 0n))
    return this.#shown(dict.clone(), rows, hashes)
  }

  /**
   * Appends a token.
   * @throws {FulmarError} `UNKNOWN_NAME` without ids or action; `OUT_OF_RANGE` for an invalid token.
   */
  step(dict: TensorDict): TensorDict {
    const rows = this.#rows(dict)
    const actions = Array.from(dict.tensor('action').as('i64').data, Number)
    const wrong = actions.find((id) => id < 0 || id >= this.#vocabSize)
    if (wrong !== undefined || actions.length !== rows.length) {
      const rule = `action must hold one token of the ${this.#vocabSize} for each of ${rows.length}`
      throw new FulmarError('OUT_OF_RANGE', `${rule}: got ${wrong ?? `${actions.length} of them`}`)
    }
    const before = dict.tensor('hashing').as('i64').data
    const hashes = actions.map((id, at) => this.#hash(before[at] ?? 0n, id))
    const grown = rows.map((ids, at) => joinedIds(ids, Uint32Array.of(actions[at] ?? 0)))
    return this.#shown(TensorDict.from({}, { batchSize: dict.batchSize }), grown, hashes)
  }

  #rows(dict: TensorDict): Uint32Array[] {
    const rows = idRowsAt(dict, this.#key)
    if (rows) return rows
    throw new FulmarError(
      'UNKNOWN_NAME',
      `dict must have ids at ${JSON.stringify(this.#key)}: got ${dict.keys()}`,
    )
  }

  #shown(dict: TensorDict, rows: readonly Uint32Array[], hashes: readonly bigint[]): TensorDict {
    setIdRows(dict, this.#key, rows)
    const data = BigInt64Array.from(hashes, (hash) => BigInt.asIntN(64, hash))
    dict.set('hashing', Tensor.from(data, { shape: [rows.length, 1] }))
    const tokenizer = this.#tokenizer
    if (this.#textKey && tokenizer) {
      setEach(
        dict,
        this.#textKey,
        rows.map((ids) => tokenizer.decode(ids)),
      )
    }
    return dict.set('done', flags(dict.batchSize)).set('terminated', flags(dict.batchSize))
  }
}

/** The finaliser of SplitMix64 (G. Steele and others, <https://doi.org/10.1145/2660193.2660195>) over hash and token. */
function mixed(before: bigint, id: number): bigint {
  let z = BigInt.asUintN(64, before + BigInt(id + 1) * 0x9e3779b97f4a7c15n)
  z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n)
  z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn)
  return z ^ (z >> 31n)
}

/** TorchRL's environment from before its chats: a prompt grows by each response. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Binary, Composite, NonTensor } from '../../spec/index.js'
import { Ragged, Tensor, TensorDict, type TensorKey } from '../../tensor/index.js'
import { setEach, textsAt } from '../data/dict-text.js'
import { checkBatchSize, type EnvBase } from './env.js'
import { flags } from './flag.js'
import { setFloatRows } from './log-prob-rows.js'
import { idRowsAt, joinedIds, setIdRows } from './token-rows.js'

/** Options of {@link LLMEnv}. */
export interface LLMEnvOptions {
  /** If true, prompts and responses are texts; else token ids. @default true */
  readonly fromText?: boolean
  /** Number of elements; a number is one dimension, and there is at most one. @default [1] */
  readonly batchSize?: number | readonly number[]
  /** Key of text prompts. @default 'text' */
  readonly strKey?: TensorKey
  /** Key of prompts as ids. @default 'tokens' */
  readonly tokenKey?: TensorKey
  /** Key of the attention mask, ones for each id of a prompt. @default 'attention_mask' */
  readonly attentionKey?: TensorKey
  /** If true, ids come with an attention mask. @default true */
  readonly hasAttention?: boolean
  /** Key of responses. @default 'text_response' or 'tokens_response' */
  readonly actionKey?: TensorKey
  /** If true, each id of a response has a reward, 0; for ids only. @default false */
  readonly assignReward?: boolean
  /** @default 'reward' */
  readonly rewardKey?: TensorKey
  /**
   * If true, a response with `eosTokenId` ends its episode, with flags for each id at `tokens_data`; for ids
   * only.
   * @default false
   */
  readonly assignDone?: boolean
  /** The id that ends. */
  readonly eosTokenId?: number
}

const KEYS = [
  'fromText',
  'batchSize',
  'strKey',
  'tokenKey',
  'attentionKey',
  'hasAttention',
  'actionKey',
  'assignReward',
  'rewardKey',
  'assignDone',
  'eosTokenId',
]

/**
 * Text or ids that grow by each response, for ports of TorchRL's older programs; new ones use
 * {@link ChatEnv}, which has roles.
 *
 * @example
 * ```ts
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { LLMEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new LLMEnv()
 * const dict = env.reset(TensorDict.from({ text: new NonTensorStack(['1+1=']) }, { batchSize: [1] }))
 * const next = env.step(dict.set('text_response', new NonTensorStack(['2'])))
 * assert.deepEqual(next.value('text'), ['1+1=2'])
 * ```
 */
export class LLMEnv implements EnvBase {
  readonly batchSize: readonly number[]
  readonly observationSpec: Composite
  readonly actionSpec: Composite
  readonly rewardSpec: Composite
  readonly doneSpec: Composite
  readonly stateSpec: Composite
  readonly #options: LLMEnvOptions
  readonly #key: TensorKey
  readonly #actionKey: TensorKey
  readonly #attentionKey: TensorKey | undefined

  /**
   * @throws {FulmarError} `SHAPE_MISMATCH` for a batch of another number of dimensions than one; `INCOMPATIBLE` if rewards or ends shall be
   * assigned to text, or ends without `eosTokenId`; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(options: LLMEnvOptions = {}) {
    checkKnownKeys('options', options, KEYS)
    const { fromText = true, batchSize = [1], assignReward = false, assignDone = false, eosTokenId } = options
    const {
      strKey = 'text',
      tokenKey = 'tokens',
      attentionKey = 'attention_mask',
      hasAttention = true,
    } = options
    this.batchSize = checkBatchSize(typeof batchSize === 'number' ? [batchSize] : batchSize)
    if (this.batchSize.length > 1) {
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `batchSize must have one dimension: got ${this.batchSize.length}`,
      )
    }
    if (fromText && (assignReward || assignDone)) {
      throw new FulmarError('INCOMPATIBLE', 'assignReward and assignDone must be false for text: got true')
    }
    if (assignDone && eosTokenId === undefined) {
      throw new FulmarError(
        'INCOMPATIBLE',
        'eosTokenId must be given where assignDone is true: it is undefined',
      )
    }
    this.#options = options
    this.#key = fromText ? strKey : tokenKey
    this.#actionKey = options.actionKey ?? (fromText ? 'text_response' : 'tokens_response')
    this.#attentionKey = fromText || !hasAttention ? undefined : attentionKey
    const shape = this.batchSize
    const spec = fromText ? new NonTensor({ shape, batched: true, example: '' }) : null
    const empty = () => new Composite({}, { shape })
    this.observationSpec = empty().set(this.#key, spec)
    if (this.#attentionKey) this.observationSpec.set(this.#attentionKey, null)
    this.actionSpec = empty().set(this.#actionKey, spec)
    this.rewardSpec = assignReward ? empty().set(options.rewardKey ?? 'reward', null) : empty()
    this.doneSpec = empty()
    for (const name of ['done', 'terminated']) {
      this.doneSpec.set(name, new Binary(1, { shape: [...shape, 1], dtype: 'bool' }))
    }
    this.stateSpec = empty()
  }

  /**
   * Returns `dict` with flags.
   * @throws {FulmarError} `EMPTY` without `dict`; `UNKNOWN_NAME` or `MALFORMED` without a prompt.
   */
  reset(dict?: TensorDict): TensorDict {
    if (dict === undefined)
      throw new FulmarError('EMPTY', 'dict must hold the prompt of a reset: it is undefined')
    const given = dict.batchSize.length === 0 ? dict.expand(this.batchSize) : dict
    const first = given.clone()
    if (this.#isText) setEach(first, this.#key, textsAt(this.#checked(first, this.#key), this.#key))
    else this.#setIds(first, idRowsAt(this.#checked(first, this.#key), this.#key) ?? [])
    return first.set('done', flags(first.batchSize)).set('terminated', flags(first.batchSize))
  }

  /** The prompt with the response behind it. @throws {FulmarError} `UNKNOWN_NAME`, `MALFORMED` or `SHAPE_MISMATCH` without an action. */
  step(dict: TensorDict): TensorDict {
    for (const key of [this.#key, this.#actionKey]) this.#checked(dict, key)
    const next = TensorDict.from({}, { batchSize: dict.batchSize })
    next.set('done', flags(dict.batchSize)).set('terminated', flags(dict.batchSize))
    if (this.#isText) {
      const [before, said] = [textsAt(dict, this.#key), textsAt(dict, this.#actionKey)]
      setEach(
        next,
        this.#key,
        before.map((text, at) => `${text}${said[at]}`),
      )
      return next
    }
    const [before, said] = [idRowsAt(dict, this.#key) ?? [], idRowsAt(dict, this.#actionKey) ?? []]
    this.#setIds(
      next,
      before.map((ids, at) => joinedIds(ids, said[at] ?? new Uint32Array())),
    )
    const { assignReward, assignDone, rewardKey = 'reward' } = this.#options
    const zeros = said.map((ids) => new Float32Array(ids.length))
    if (assignReward) setFloatRows(next, rewardKey, zeros)
    return assignDone ? this.#withEnds(next, said) : next
  }

  get #isText(): boolean {
    return this.#options.fromText ?? true
  }

  #withEnds(next: TensorDict, said: readonly Uint32Array[]): TensorDict {
    const { eosTokenId } = this.#options
    const bits = said.map((ids) => Uint8Array.from(ids, (id) => Number(id === eosTokenId)))
    const rows = Ragged.fromRows(bits.map((row) => Tensor.from(row, { dtype: 'bool' })))
    const isOver = bits.map((row) => row.includes(1))
    for (const name of ['done', 'terminated']) {
      next.set(['tokens_data', name], rows).set(name, flags(next.batchSize, isOver))
    }
    return next
  }

  #setIds(dict: TensorDict, rows: readonly Uint32Array[]): void {
    setIdRows(dict, this.#key, rows)
    if (this.#attentionKey) {
      setIdRows(
        dict,
        this.#attentionKey,
        rows.map((ids) => new Uint32Array(ids.length).fill(1)),
      )
    }
  }

  #checked(dict: TensorDict, key: TensorKey): TensorDict {
    if (dict.has(key)) return dict
    throw new FulmarError('UNKNOWN_NAME', `dict must have the key ${JSON.stringify(key)}: got ${dict.keys()}`)
  }
}

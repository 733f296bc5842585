/** Conversations without end: the response of the policy becomes part of the next prompt. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { Task } from '../../env/index.js'
import { Binary, Composite, NonTensor } from '../../spec/index.js'
import { type Json, NonTensorStack, TensorDict, type TensorKey } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import type { RenderingOptions } from '../data/apply-chat-template.js'
import { checkBatch, nestedLike } from '../data/batch.js'
import { ChatHistory } from '../data/chat-history.js'
import { setEach, textsAt } from '../data/dict-text.js'
import { History } from '../data/history.js'
import { type ChatTurnTransform, speaksFor } from './chat-turn.js'
import { chatsAt, historyAt } from './chats-at.js'
import { checkBatchSize, type EnvBase, type InputMode } from './env.js'
import { flags } from './flag.js'
import { TaskChatEnv, type TaskChatEnvOptions } from './task-chat-env.js'
import { idRowsAt, joinedIds, setIdRows } from './token-rows.js'

/** Options of {@link ChatEnv}. */
export interface ChatEnvOptions {
  /**
   * Form of prompts and actions.
   * @default 'history'
   */
  readonly inputMode?: InputMode
  /**
   * Number of conversations; a number is one dimension.
   * @default [1]
   */
  readonly batchSize?: number | readonly number[]
  /**
   * Text of the system message.
   * @default no such message
   */
  readonly systemPrompt?: string
  /** Renders prompts of text and tokens: needed in these modes. */
  readonly tokenizer?: NativeTokenizer
  /**
   * Other inputs of the chat template.
   * @default the tokenizer's template
   */
  readonly template?: Omit<RenderingOptions, 'tokenizer'>
  /** @default 'system' */
  readonly systemRole?: string
  /** @default 'user' */
  readonly userRole?: string
  /**
   * Key of the user's text in a reset.
   * @default 'query'
   */
  readonly dataKey?: TensorKey
  /**
   * A conversation whose prompt has this many tokens or more is truncated. Needs a tokenizer.
   * @default no limit
   */
  readonly maxPromptTokens?: number
}

/** The names of {@link ChatEnvOptions}. */
export const CHAT_ENV_KEYS = [
  'inputMode',
  'batchSize',
  'systemPrompt',
  'tokenizer',
  'template',
  'systemRole',
  'userRole',
  'dataKey',
  'maxPromptTokens',
] as const

const INPUT_MODES: readonly string[] = ['history', 'text', 'tokens']
/**
 * TorchRL's chat: a reset asks, and each step takes `full`, the prompt with the policy's message, as the next
 * prompt. Rewards and the end of episodes come from transforms. In `text` there is no template between turns,
 * and in `tokens` the drawn ids are part of the next prompt. A step without `full` appends `response` to the
 * prompt.
 *
 * @example
 * ```ts
 * import { NonTensorData, NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new ChatEnv({ systemPrompt: 'Be brief.' })
 * const dict = env.reset(TensorDict.from({ query: new NonTensorData('1+1?') }, { batchSize: [1] }))
 * dict.set(['history', 'response'], new NonTensorStack([[{ role: 'assistant', content: '2' }]]))
 * const next = env.step(dict)
 * const said = [['system', 'Be brief.'], ['user', '1+1?'], ['assistant', '2']].map(([role, content]) => ({ role, content }))
 * assert.deepEqual(next.value(['history', 'prompt']), [said])
 * assert.throws(() => new ChatEnv({ inputMode: 'text' }), { code: 'INCOMPATIBLE' }) // no tokenizer
 * ```
 */
export class ChatEnv implements EnvBase {
  readonly inputMode: InputMode
  readonly batchSize: readonly number[]
  readonly observationSpec: Composite
  readonly actionSpec: Composite
  readonly rewardSpec: Composite
  readonly doneSpec: Composite
  readonly stateSpec: Composite
  readonly #options: ChatEnvOptions
  readonly #dataKey: TensorKey

  /**
   * A task as such an environment: its samples, prompts, answers and rewards.
   * @throws {FulmarError} As the constructor of {@link TaskChatEnv}.
   */
  static of<Sample>(task: Task<Sample>, options: TaskChatEnvOptions = {}): TaskChatEnv<Sample> {
    return new TaskChatEnv(task, options)
  }

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or mode; `SHAPE_MISMATCH` for a batch without
   * a dimension, or tokens in a batch of more than one; `OUT_OF_RANGE` for a length or limit that is not a
   * positive integer; `INCOMPATIBLE` for text, tokens or a limit without a tokenizer.
   */
  constructor(options: ChatEnvOptions = {}) {
    checkKnownKeys('options', options, CHAT_ENV_KEYS)
    const { inputMode = 'history', batchSize = [1], tokenizer, dataKey = 'query', maxPromptTokens } = options
    if (!INPUT_MODES.includes(inputMode)) {
      throw new FulmarError('UNKNOWN_NAME', `inputMode must be history, text or tokens: got ${inputMode}`)
    }
    this.inputMode = inputMode
    this.batchSize = checkBatchSize(typeof batchSize === 'number' ? [batchSize] : batchSize)
    if (inputMode === 'tokens' && this.batchSize.length > 1) {
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `batchSize must have one dimension in tokens mode: got ${this.batchSize.length}`,
      )
    }
    if ((inputMode !== 'history' || maxPromptTokens !== undefined) && tokenizer === undefined) {
      const what = inputMode === 'history' ? 'maxPromptTokens' : `inputMode '${inputMode}'`
      throw new FulmarError('INCOMPATIBLE', `tokenizer must be given for ${what}: it is undefined`)
    }
    if (maxPromptTokens !== undefined && !(Number.isSafeInteger(maxPromptTokens) && maxPromptTokens >= 1)) {
      throw new FulmarError(
        'OUT_OF_RANGE',
        `maxPromptTokens must be a positive integer: got ${maxPromptTokens}`,
      )
    }
    this.#options = options
    this.#dataKey = dataKey
    const shape = this.batchSize
    const column = (name: string) => {
      // No spec describes rows of any length, so ids may be anything here; a step checks them.
      const spec =
        inputMode === 'tokens' ? null : new NonTensor({ shape, batched: true, example: exampleOf(inputMode) })
      return new Composite({}, { shape }).set([inputMode, name], spec)
    }
    this.observationSpec = column('prompt')
    this.actionSpec = column('full')
    this.rewardSpec = new Composite({}, { shape })
    this.doneSpec = new Composite({}, { shape })
    const names = maxPromptTokens === undefined ? ['done', 'terminated'] : ['done', 'terminated', 'truncated']
    for (const name of names) this.doneSpec.set(name, new Binary(1, { shape: [...shape, 1], dtype: 'bool' }))
    this.stateSpec = new Composite({}, { shape }).set(
      dataKey,
      new NonTensor({ shape, batched: true, example: '' }),
    )
  }

  /**
   * The first prompt of each conversation. What else `dict` holds stays.
   * @throws {FulmarError} `EMPTY` without `dict`; `UNKNOWN_NAME` if it holds no query; `MALFORMED` for a query that is no text;
   * `SHAPE_MISMATCH` for a batch of other dimensions; as {@link History.applyChatTemplate}.
   */
  reset(dict?: TensorDict): TensorDict {
    if (dict === undefined)
      throw new FulmarError('EMPTY', 'dict must hold the query of a reset: it is undefined')
    const { systemPrompt, systemRole = 'system', userRole = 'user' } = this.#options
    const given = this.#checkRank(dict)
    if (!given.has(this.#dataKey)) {
      throw new FulmarError(
        'UNKNOWN_NAME',
        `dict must have the key ${JSON.stringify(this.#dataKey)}: got ${given.keys()}`,
      )
    }
    const before = systemPrompt === undefined ? [] : [{ role: systemRole, content: systemPrompt }]
    const chats = textsAt(given, this.#dataKey).map((content) => [...before, { role: userRole, content }])
    const prompt = History.fromChats(nestedLike(chats, given.batchSize) as readonly Message[])
    const first = given.exclude([this.inputMode])
    setEach(
      first,
      this.#dataKey,
      chats.map((chat) => chat.at(-1)?.content),
    )
    if (this.inputMode === 'history') setEach(first, ['history', 'prompt'], chats)
    else {
      const chat = new ChatHistory({ prompt })
      const options = { ...this.#options.template, tokenizer: this.#tokenizer }
      if (this.inputMode === 'text')
        first.set(['text', 'prompt'], new NonTensorStack(chat.toText(options).prompt as Json[]))
      else first.set(['tokens', 'prompt'], chat.toTokens(options).toTensorDict().ragged('prompt'))
    }
    return this.#withFlags(first)
  }

  /**
   * Returns the next prompts: the values of `full` in the actions.
   * @throws {FulmarError} `UNKNOWN_NAME` without an action; `MALFORMED` or `SHAPE_MISMATCH` for an invalid
   * one; `INCOMPATIBLE` for ids of another dtype than `i64`.
   */
  step(dict: TensorDict): TensorDict {
    const given = this.#checkRank(dict)
    const next = TensorDict.from({}, { batchSize: given.batchSize })
    const key = [this.inputMode, given.has([this.inputMode, 'full']) ? 'full' : 'response']
    if (!given.has(key)) {
      throw new FulmarError(
        'UNKNOWN_NAME',
        `dict must have an action at ${this.inputMode}.full: there is none`,
      )
    }
    const isWhole = key[1] === 'full'
    if (this.inputMode === 'history' && isWhole) {
      historyAt(given, key)
      // The entry moves as it is: to write the conversation anew would cost each turn its length.
      return this.#withFlags(given.select([key]).rename(key, ['history', 'prompt']))
    }
    if (this.inputMode === 'tokens') setIdRows(next, ['tokens', 'prompt'], this.#wholeIds(given, isWhole))
    else if (this.inputMode === 'text') {
      const texts = textsAt(given, key)
      const before = isWhole ? texts.map(() => '') : textsAt(given, ['text', 'prompt'])
      const whole = texts.map((text, at) => `${before[at]}${text}`)
      setEach(next, ['text', 'prompt'], whole)
    } else {
      const before = chatsAt(given, ['history', 'prompt'])
      const whole = chatsAt(given, key).map((messages, at) => [...(before[at] ?? []), ...messages])
      setEach(next, ['history', 'prompt'], whole)
    }
    return this.#withFlags(next)
  }

  /** No transforms: the policy's message is appended. `undefined` in another mode, or with a limit of tokens. */
  chatTurns(_first: TensorDict): readonly ChatTurnTransform[] | undefined {
    const isPlain = this.inputMode === 'history' && this.#options.maxPromptTokens === undefined
    return isPlain && speaksFor(this, ['step']) ? [] : undefined
  }

  /** A dictionary of as many dimensions as the environment; one without a batch is used for all elements. */
  #checkRank(dict: TensorDict): TensorDict {
    const { batchSize } = this
    if (dict.batchSize.length === 0) return dict.expand(batchSize)
    if (dict.batchSize.length !== batchSize.length) checkBatch('dict', dict.batchSize, batchSize)
    return dict
  }

  #withFlags(dict: TensorDict): TensorDict {
    const { maxPromptTokens } = this.#options
    if (maxPromptTokens === undefined) {
      return dict.set('done', flags(dict.batchSize)).set('terminated', flags(dict.batchSize))
    }
    const isLong = this.#promptLengths(dict).map((length) => length >= maxPromptTokens)
    return dict
      .set('done', flags(dict.batchSize, isLong))
      .set('terminated', flags(dict.batchSize))
      .set('truncated', flags(dict.batchSize, isLong))
  }

  /** The ids of actions; of responses behind their prompts where these are not whole. */
  #wholeIds(dict: TensorDict, isWhole: boolean): Uint32Array[] {
    const said = idRowsAt(dict, ['tokens', isWhole ? 'full' : 'response']) ?? []
    const prompts = isWhole ? [] : (idRowsAt(dict, ['tokens', 'prompt']) ?? [])
    return said.map((ids, at) => joinedIds(prompts[at] ?? new Uint32Array(), ids))
  }

  /** Returns the number of tokens of the prompt of each element. */
  #promptLengths(dict: TensorDict): number[] {
    if (this.inputMode === 'tokens')
      return (idRowsAt(dict, ['tokens', 'prompt']) ?? []).map(({ length }) => length)
    const tokenizer = this.#tokenizer
    const count = (text: string) => tokenizer.encode(text, { addedTokens: true }).ids.length
    if (this.inputMode === 'text') return textsAt(dict, ['text', 'prompt']).map(count)
    const render = (chat: readonly Message[]) =>
      History.fromChats(chat).applyChatTemplate({ ...this.#options.template, tokenizer })
    return chatsAt(dict, ['history', 'prompt']).map((chat) => count(String(render(chat))))
  }

  get #tokenizer(): NativeTokenizer {
    if (this.#options.tokenizer) return this.#options.tokenizer
    throw new FulmarError('INCOMPATIBLE', 'tokenizer must be given to render prompts: it is undefined')
  }
}

function exampleOf(inputMode: InputMode) {
  return inputMode === 'text' ? '' : [{ role: 'user', content: '' }]
}

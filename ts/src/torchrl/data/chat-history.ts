/** The messages of prompts, responses and both. */

import type { MaskOptions } from '../../chat/mask.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../../core/index.js'
import { NonTensorData, NonTensorStack, Ragged, Tensor, TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import { encodeHistory, type RenderingOptions, renderHistory } from './apply-chat-template.js'
import { checkBatch, nestedLike } from './batch.js'
import { History } from './history.js'
import { Masks } from './masks.js'
import type { SequenceSpec } from './sequences.js'
import { Text } from './text.js'
import { fieldOf, responsesOf, Tokens } from './tokens.js'

/** The fields of {@link ChatHistory}: conversations `[...batch, T]`; one message is a conversation of one. */
export interface ChatFields {
  readonly prompt?: History | undefined
  readonly response?: History | undefined
  readonly full?: History | undefined
}

/** Options of {@link ChatHistory.toTokens}. */
export type TokenizingOptions = RenderingOptions & { readonly tokenizer: NativeTokenizer }

const NAMES = ['prompt', 'response', 'full'] as const
type Name = (typeof NAMES)[number]

/**
 * Conversations. `full` is `prompt` with `response` behind it. A prompt is rendered with the opening of the assistant's
 * turn, `full` without, and the text or the ids of a response are what `full` has behind those of the prompt.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { ChatHistory, History } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const prompt = History.fromChats([{ role: 'user', content: '1+1?' }])
 * const response = History.fromChats([{ role: 'assistant', content: '2' }])
 * const chat = new ChatHistory({ prompt, response })
 * const options = { tokenizer, templateName: 'chatml_format' }
 * const text = chat.toText(options)
 * assert.equal(text.response, '2<|im_end|>\n')
 * assert.equal(text.full, `${text.prompt}${text.response}`)
 * assert.deepEqual(chat.toTokens(options).toHistory(options).response?.content, ['2'])
 * ```
 */
export class ChatHistory {
  readonly prompt: History | undefined
  readonly response: History | undefined
  readonly full: History | undefined
  /** The batch dimensions; `[]` for one conversation. */
  readonly batchSize: readonly number[]

  /**
   * `full` is `prompt` and `response` together where it is not given.
   * @throws {FulmarError} `SHAPE_MISMATCH` if batches differ or are ragged themselves; `UNKNOWN_NAME` for an unknown field.
   */
  constructor(fields: ChatFields = {}) {
    checkKnownKeys('fields', fields, NAMES)
    const [prompt, response, full] = NAMES.map((name) => conversations(name, fields[name]))
    this.prompt = prompt
    this.response = response
    const given = { prompt, response, full }
    const first = prompt ?? response ?? full
    this.batchSize = Object.freeze(first?.shape.slice(0, -1) ?? [])
    for (const name of NAMES) {
      const shape = given[name]?.shape.slice(0, -1)
      if (shape) checkBatch(name, shape, this.batchSize)
    }
    this.full = full ?? (prompt && response && prompt.extend(response))
  }

  /**
   * One batch of containers of one batch, with the same fields.
   * @throws {FulmarError} `EMPTY` without containers; `SHAPE_MISMATCH` if batches differ; `INCOMPATIBLE` if fields differ.
   */
  static stack(all: readonly ChatHistory[]): ChatHistory {
    checkGiven('all', all)
    const [first] = all
    if (first === undefined) throw new FulmarError('EMPTY', 'containers must be at least 1: got 0')
    for (const one of all) checkBatch('each container', one.batchSize, first.batchSize)
    const fields = NAMES.filter((name) => first[name] !== undefined).map((name) => {
      const rows = all.flatMap((one) => one[name] ?? [])
      if (rows.length === all.length) return [name, History.stack(rows)]
      throw new FulmarError('INCOMPATIBLE', `containers must all have ${name}: got one without`)
    })
    return new ChatHistory(Object.fromEntries(fields))
  }

  /** A plain description; the example's conversations hold one message `foo`. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly Name[] } = {},
  ): SequenceSpec<ChatHistory> {
    checkKnownKeys('options', options, ['shape', 'keys'])
    const { shape = [-1], keys = NAMES } = options
    const spec = History.defaultSpec({ shape: [...shape, -1] })
    return {
      shape,
      keys,
      zero: () => new ChatHistory(Object.fromEntries(keys.map((name) => [name, spec.zero()]))),
      contains: (value) =>
        value instanceof ChatHistory &&
        NAMES.every((name) =>
          value[name] === undefined ? !keys.includes(name) : spec.contains(value[name]),
        ),
    }
  }

  /**
   * Returns an element of the first batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist.
   */
  at(index: number): ChatHistory {
    if (this.batchSize.length === 0)
      throw new FulmarError('OUT_OF_RANGE', `index must lie within the 0 that there are: got ${index}`)
    const fields = NAMES.map((name) => [name, this[name]?.at(index)])
    return new ChatHistory(Object.fromEntries(fields))
  }

  /**
   * Renders the conversations by a template.
   * @throws {FulmarError} `INCOMPATIBLE` if the text of `full` does not begin with that of `prompt`; as
   * {@link History.applyChatTemplate}.
   */
  toText(options: RenderingOptions): Text {
    const render = (history: History | undefined, addGenerationPrompt: boolean) =>
      history && nestedLike(renderHistory(history, { ...options, addGenerationPrompt }), this.batchSize)
    return new Text({ prompt: render(this.prompt, true), full: render(this.full, false) })
  }

  /**
   * The ids of what a template makes of the conversations: ragged.
   * @throws {FulmarError} `INCOMPATIBLE` if the ids of `full` do not begin with those of `prompt`; as
   * {@link History.applyChatTemplate}.
   */
  toTokens(options: TokenizingOptions): Tokens {
    const encode = (history: History | undefined, addGenerationPrompt: boolean) => {
      if (history === undefined) return undefined
      const { ids, offsets } = encodeHistory(history, { ...options, addGenerationPrompt })
      return { ids, rows: offsets }
    }
    const [prompt, full] = [encode(this.prompt, true), encode(this.full, false)]
    const response = prompt && full && responsesOf(prompt, full)
    const fields = Object.entries({ prompt, response, full }).map(([name, rows]) => [
      name,
      rows && fieldOf(rows, this.batchSize),
    ])
    return new Tokens(Object.fromEntries(fields), { batchSize: this.batchSize })
  }

  /**
   * Returns the masks of `full`: an attention mask of ones, and the mask of the assistant's tokens.
   * @throws {FulmarError} `EMPTY` without `full`, or if a mask has no token; as {@link History.applyChatTemplate}.
   */
  toMasks({ mask = {}, ...options }: TokenizingOptions & { readonly mask?: MaskOptions }): Masks {
    if (this.full === undefined) throw new FulmarError('EMPTY', 'full must be there for masks: it is absent')
    const { ids, offsets, assistantMask } = encodeHistory(this.full, {
      ...options,
      addGenerationPrompt: false,
      mask,
    })
    const field = (bits: Uint8Array) => {
      const values = Tensor.from(bits, { dtype: 'bool' })
      return this.batchSize.length === 0 ? values : Ragged.from(values, offsets)
    }
    const fields = {
      allAttentionMask: field(new Uint8Array(ids.length).fill(1)),
      allAssistantMask: field(assistantMask),
    }
    return new Masks(fields, { batchSize: this.batchSize })
  }

  /** Returns the dictionaries of the messages by name. @throws {FulmarError} As {@link TensorDict.set}. */
  toTensorDict(): TensorDict {
    const dict = TensorDict.from({}, { batchSize: this.batchSize })
    for (const name of NAMES) {
      const chats = this[name]?.toJSON()
      if (chats === undefined) continue
      dict.set(
        name,
        this.batchSize.length === 0 ? new NonTensorData(chats as never) : new NonTensorStack(chats as never),
      )
    }
    return dict
  }
}

/** Conversations whose batch is a rectangle. */
function conversations(name: Name, history: History | undefined): History | undefined {
  if (history === undefined || history.rank > 0) {
    const batch = history?.shape.slice(0, -1) ?? []
    if (!batch.includes(-1)) return history
    throw new FulmarError('SHAPE_MISMATCH', `${name} must be of one batch: got rows of batches that differ`)
  }
  return history.unsqueeze(0)
}

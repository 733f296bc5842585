/** A conversation, or a batch of them: messages in nested lists whose rows may differ in length. */

import { type Message, wellFormed } from '../../chat/message.js'
import { withMessages } from '../../chat/packed-messages.js'
import { call, checkGiven, checkKnownKeys, FulmarError, Handle, parseJson } from '../../core/index.js'
import { type RawHistory, raw } from '../../native/index.js'
import { TemplateRegistry } from '../../template/index.js'
import type { Tensor, TensorDict } from '../../tensor/index.js'
import {
  applyTemplate,
  type ChatTemplateOptions,
  type DictChatOptions,
  type TensorChatOptions,
  type TextChatOptions,
} from './apply-chat-template.js'
import type { FromTextOptions, GrowOptions, HistorySpec } from './history-options.js'
import { mapped, type Nested } from './nested.js'

/**
 * The end of a conversation that histories of several lengths share: each is its beginning. So appending a message a
 * thousand times copies nothing, though every history on the way stays as it was.
 */
interface Tip {
  /** Current number of messages of the native object. */
  length: number
}

// The door to the private part, for the functions below.
let unwrap: (history: History) => Handle<RawHistory>

/**
 * Messages of shape `[]` (one message), `[T]` (a conversation, oldest first), `[B, T]` (a batch), or more
 * batch dimensions before `T`; rows may differ in length. Immutable unless `inPlace` is true: `append` and
 * `extend` return a new history. Messages are copied with all their keys. Holds native memory: dispose it,
 * declare it with `using`, or leave it to the collector.
 *
 * @example
 * ```ts
 * import { History } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const history = History.fromChats([{ role: 'user', content: '1+1?' }])
 * const longer = history.append({ role: 'assistant', content: '2' })
 * assert.deepEqual([history.length, longer.shape, longer.content], [1, [2], ['1+1?', '2']])
 * assert.equal(JSON.stringify(longer), '[{"role":"user","content":"1+1?"},{"role":"assistant","content":"2"}]')
 * assert.throws(() => History.fromChats([{ role: '', content: 'hello' }]), { code: 'EMPTY' })
 *
 * const batch = History.stack([history, longer])
 * assert.deepEqual([batch.shape, batch.at(1).at(-1).content], [[2, -1], '2'])
 * const [first] = batch.applyChatTemplate({ templateName: 'chatml_format', addGenerationPrompt: false })
 * assert.equal(first, '<|im_start|>user\n1+1?<|im_end|>\n')
 * assert.deepEqual(History.fromText(String(first)).content, ['1+1?'])
 * ```
 */
export class History implements Iterable<Message> {
  #native: Handle<RawHistory>
  #tip: Tip | undefined
  #rank: number | undefined
  #shape: readonly number[] | undefined
  #nested: Nested<Message> | undefined

  private constructor(native: Handle<RawHistory>, tip?: Tip) {
    this.#native = native
    this.#tip = tip
    if (tip) this.#shape = Object.freeze([tip.length])
  }

  static {
    unwrap = (history) => history.#own()
  }

  static #of(make: () => RawHistory): History {
    return new History(new Handle('History', make))
  }

  /**
   * The conversation of these dictionaries, the batch of these lists of dictionaries, or the history of their JSON
   * text, in which numbers such as `1.0` keep their form and integers their digits; of a key that comes
   * twice the last value stays. None at all is an empty conversation.
   * @throws {FulmarError} `MALFORMED` or `EMPTY` if one is no message, naming its index; `SHAPE_MISMATCH` if
   * dictionaries and lists, or lists of different rank, are mixed; `LIMIT_EXCEEDED` past 65,536 messages in a
   * conversation, 64 MiB of text in a message, or 8 dimensions.
   */
  static fromChats(chats: string | readonly Message[] | readonly Nested<Message>[]): History {
    return History.#of(() => rawOf(chats))
  }

  /**
   * The batch of histories of one rank; of single messages, their conversation.
   * @throws {FulmarError} `EMPTY` without rows; `SHAPE_MISMATCH` if ranks differ; `LIMIT_EXCEEDED` past a limit.
   */
  static stack(rows: readonly History[]): History {
    checkGiven('rows', rows)
    const [first, ...others] = rows
    if (first === undefined) throw new FulmarError('EMPTY', 'rows must be at least 1: got 0')
    const other = others.find((row) => row.rank !== first.rank)
    if (other) throw mismatch(`rows must share one rank, ${first.rank} here: got ${other.rank}`)
    return History.#of(() => {
      const batch = first.#own().call((native) => native.unsqueeze(0))
      for (const row of others) row.#own().call((native) => batch.append(0, native))
      return batch
    })
  }

  /**
   * The messages of a rendered text, or the batch of those of several. Roles and contents are trimmed; a message that
   * the text does not close has `is_complete: false`, and a bare opening at the end is an empty message of that kind.
   * ChatML's tool calls move into `tool_calls`.
   * @throws {FulmarError} `MALFORMED` if a text holds no message; `UNKNOWN_NAME` for a template without a
   * parser; `EMPTY` for an empty list; errors of a custom parser.
   */
  static fromText(text: string | readonly string[], options: FromTextOptions = {}): History {
    checkKnownKeys('options', options, ['templateName', 'tokenizer', 'registry', 'parser'])
    checkGiven('text', text)
    if (typeof text !== 'string') return History.stack(text.map((row) => History.fromText(row, options)))
    const { templateName, tokenizer, registry = TemplateRegistry.builtin } = options
    const parser =
      options.parser ?? (templateName === undefined ? undefined : registry.inverseParser(templateName))
    if (parser) return History.fromChats(parser(text) as readonly Message[])
    const eosToken = tokenizer?.specialTokens.eos_token
    return History.#of(() => raw.History.fromText(wellFormed(text), templateName, eosToken))
  }

  /** A plain description of histories. @throws {FulmarError} `OUT_OF_RANGE` if a length is no integer from -1. */
  static defaultSpec(options: { readonly shape?: readonly number[] } = {}): HistorySpec {
    checkKnownKeys('options', options, ['shape'])
    const { shape = [-1] } = options
    const wrong = shape.find((length) => !Number.isInteger(length) || length < -1)
    if (wrong !== undefined)
      throw new FulmarError('OUT_OF_RANGE', `shape must hold integers from -1: got ${wrong}`)
    const lengths = Float64Array.from(shape, (length) => (length === -1 ? 1 : length))
    return {
      shape,
      zero: () => History.#of(() => raw.History.zero(lengths)),
      contains: (value) =>
        value instanceof History &&
        value.rank === shape.length &&
        value.shape.every((length, dim) => shape[dim] === -1 || shape[dim] === length),
    }
  }

  /** The length of each dimension, -1 where rows differ; `[]` for one message. */
  get shape(): readonly number[] {
    this.#shape ??= Object.freeze([...this.#own().call((native) => native.shape())])
    return this.#shape
  }

  /** The number of dimensions: 0 for one message. */
  get rank(): number {
    this.#rank ??= this.shape.length
    return this.#rank
  }

  /** The length of the first dimension; 1 for one message. */
  get length(): number {
    return this.shape[0] ?? 1
  }

  /**
   * The messages of one conversation, oldest first; of a single message that one. An integer that a number would print with other digits, as
   * most beyond 2^53 are, is a text of its digits; {@link History.toJsonText} has it as an integer.
   * @throws {FulmarError} `SHAPE_MISMATCH` for a batch.
   */
  get messages(): readonly Message[] {
    if (this.rank > 1) throw mismatch(`messages must be one conversation, of rank 1: got rank ${this.rank}`)
    const read = this.#read()
    return Array.isArray(read) ? read : Object.freeze([read as Message])
  }

  /** The role of each message. */
  get role(): Nested<string> {
    return this.column('role') as Nested<string>
  }

  /** The content of each message, as it came. */
  get content(): Nested<Message['content']> {
    return this.column('content') as Nested<Message['content']>
  }

  /** The tool calls of each message, `null` where it has none. */
  get toolCalls(): Nested<readonly unknown[] | null> {
    return this.column('tool_calls') as Nested<readonly unknown[] | null>
  }

  /** The answers of tools that each message itself holds, `null` where it has none. */
  get toolResponses(): Nested<readonly unknown[] | null> {
    return this.column('tool_responses') as Nested<readonly unknown[] | null>
  }

  /** The reasoning of each message, `null` where it has none. */
  get reasoning(): Nested<string | null> {
    const names = ['reasoning_content', 'thinking', 'reasoning']
    const of = (message: Readonly<Record<string, unknown>>) =>
      names.map((name) => message[name]).find((value) => value != null) ?? null
    return mapped(this.#read(), of) as Nested<string | null>
  }

  /** True for each complete message, unless `is_complete` is false. */
  get isComplete(): Nested<boolean> {
    return mapped(this.#read(), (message) => message.is_complete !== false)
  }

  /** The field `key` of each message, `null` where a message has none. */
  column(key: string): Nested<unknown> {
    return mapped(this.#read(), (message: Readonly<Record<string, unknown>>) => message[key] ?? null)
  }

  /** The dictionaries, made once; the lists cannot be changed. */
  #read(): Nested<Message> {
    const freeze = (node: Nested<Message>): Nested<Message> =>
      Array.isArray(node) ? Object.freeze(node.map(freeze)) : node
    this.#nested ??= freeze(parseJson(this.toJsonText()) as Nested<Message>)
    return this.#nested
  }

  /**
   * Returns the part at `index` of the first dimension, counted from the end if negative: a message, or a row
   * of a batch.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist; `SHAPE_MISMATCH` for one message.
   */
  at(index: number): History {
    const length = this.#parts()
    const at = index < 0 ? index + length : index
    if (Number.isInteger(at) && at >= 0 && at < length) return this.#derive((native) => native.at(at))
    throw new FulmarError('OUT_OF_RANGE', `index must lie within the ${length} that there are: got ${index}`)
  }

  /**
   * The parts `start` up to and without `end` of the first dimension; negative counts from the end.
   * @throws {FulmarError} `EMPTY` if no row of a batch would be left; `SHAPE_MISMATCH` for one message.
   */
  slice(start: number, end: number = this.#parts()): History {
    const length = this.#parts()
    const [from, to] = [start, end].map((at) => Math.min(Math.max(at < 0 ? at + length : at, 0), length))
    return this.#derive((native) => native.slice(Math.min(from ?? 0, to ?? 0), to ?? 0))
  }

  /** The parts along the first dimension. @throws {FulmarError} `SHAPE_MISMATCH` for one message. */
  rows(): History[] {
    return Array.from({ length: this.#parts() }, (_, index) => this.at(index))
  }

  /**
   * One more message in each conversation: `item` is what this history is without `dim`.
   * @throws {FulmarError} `SHAPE_MISMATCH` if this is one message, or dimensions do not fit; as
   * {@link History.fromChats} for messages. Nothing has changed then.
   */
  append(item: Message | History | readonly Nested<Message>[], options: GrowOptions = {}): History {
    return this.#grown(item, options, (native, dim, more) => native.append(dim, more))
  }

  /**
   * More messages in each conversation: `items` has as many dimensions as this history.
   * @throws {FulmarError} As {@link History.append}.
   */
  extend(
    items: History | readonly Message[] | readonly Nested<Message>[],
    options: GrowOptions = {},
  ): History {
    return this.#grown(items, options, (native, dim, more) => native.extend(dim, more))
  }

  #grown(
    given: unknown,
    options: GrowOptions,
    grow: (native: RawHistory, dim: number, more: RawHistory) => void,
  ): History {
    checkKnownKeys('options', options, ['dim', 'inPlace'])
    // The core refuses one message, which has no dimension.
    const dim = this.rank === 0 ? 0 : dimOf(options, this.rank)
    const { inPlace = false } = options
    const sharesTip = this.rank === 1 && !inPlace
    const target = inPlace || sharesTip ? this : this.#derive((native) => native.copy())
    const [native, before] = [target.#own(), sharesTip ? this.shape : undefined]
    withRaw(given, (more) => native.call((raw) => grow(raw, dim, more)))
    if (before) return this.#grownTip(native, before)
    target.#nested = undefined
    target.#shape = undefined
    if (target.#tip) target.#tip.length = target.length
    return target
  }

  /** The history at the end of the conversation that this one, which was of the shape `before`, is now the beginning of. */
  #grownTip(native: Handle<RawHistory>, before: readonly number[]): History {
    this.#shape = before
    this.#tip ??= { length: 0 }
    this.#tip.length = native.call((raw) => raw.shape()[0] ?? 0)
    return new History(native, this.#tip)
  }

  /** The native object that holds this history and nothing else. */
  #own(): Handle<RawHistory> {
    const length = this.#shape?.[0]
    if (this.#tip && length !== undefined && this.#tip.length !== length) {
      const shared = this.#native
      this.#native = new Handle('History', () => shared.call((native) => native.slice(0, length)))
      this.#tip = undefined
    }
    return this.#native
  }

  /**
   * The same messages with a new dimension of length 1 at `dim`, 0 to the rank; negative counts from the end.
   * @throws {FulmarError} `OUT_OF_RANGE` for another `dim`; `LIMIT_EXCEEDED` past 8 dimensions.
   */
  unsqueeze(dim: number): History {
    const at = dimOf({ dim }, this.rank + 1)
    return this.#derive((native) => native.unsqueeze(at))
  }

  /** The batch with conversations made equally long by messages of role `<none>` at the end; they are never rendered. */
  toPadded(): History {
    return this.#derive((native) => native.padded())
  }

  /** The history without messages of role `<none>`. */
  toRagged(): History {
    return this.#derive((native) => native.unpadded())
  }

  /**
   * The text that a template makes of each conversation, or its ids, with masks if asked for: TorchRL's return shapes.
   * Without `tokenize` a text, or a list of texts for a batch. With `tokenize: true` an `i64` tensor `[1, L]`, or a list
   * of them. With `returnDict: true` or a mask a dictionary with `input_ids` and `attention_mask`, both `i64`, and with a
   * mask `assistant_masks`: `[L]` for a conversation, ragged rows for a batch, `[B, L]` with `padding`.
   *
   * @throws {FulmarError} `INCOMPATIBLE` without a template, for ids without a tokenizer, for a mask with
   * `continueFinalMessage`, or if the assistant's turns cannot be located; `EMPTY` if a mask has no token;
   * `SHAPE_MISMATCH` for one message; the errors of rendering and encoding.
   */
  applyChatTemplate(options: DictChatOptions): TensorDict
  applyChatTemplate(options: TensorChatOptions): Nested<Tensor<'i64'>>
  applyChatTemplate(options: TextChatOptions): Nested<string>
  applyChatTemplate(options: ChatTemplateOptions): TensorDict | Nested<Tensor<'i64'>> | Nested<string>
  applyChatTemplate(options: ChatTemplateOptions): TensorDict | Nested<Tensor<'i64'>> | Nested<string> {
    if (this.rank === 0) throw mismatch('history must have a dimension (unsqueeze it first): got one message')
    return applyTemplate(this, options)
  }

  /** The JSON text of the dictionaries, numbers as they came. */
  toJsonText(): string {
    return this.#own().call((native) => native.toJson())
  }

  /** The dictionaries, as they came: ready for JSON. */
  toJSON(): unknown {
    return this.#read()
  }

  [Symbol.iterator](): Iterator<Message> {
    return this.messages[Symbol.iterator]()
  }

  /** @internal Lets a template reach the native object. */
  withNative<R>(body: (native: RawHistory) => R): R {
    return this.#own().call(body)
  }

  /** Gives the native memory back, unless a longer history shares it; parts and copies live on. */
  [Symbol.dispose](): void {
    if (this.#tip) this.#native = new Handle('History', () => new raw.History('[]'))
    this.#tip = undefined
    this.#native.free()
  }

  #derive(make: (native: RawHistory) => RawHistory): History {
    return History.#of(() => this.#own().call(make))
  }

  #parts(): number {
    if (this.rank === 0) throw mismatch('history must have a dimension: got one message')
    return this.length
  }
}

/** The messages that a caller gives. */
function rawOf(given: unknown): RawHistory {
  if (typeof given === 'string') return new raw.History(wellFormed(given))
  const rows = Array.isArray(given) && given.length > 0 && given.every(Array.isArray)
  return (rows ? stacked(given) : undefined) ?? withMessages(given as readonly Message[], readMessages)
}

function readMessages(messages: string, numPacked: number | undefined): RawHistory {
  return new raw.History(messages, numPacked)
}

/** Returns the batch of `rows`, read one by one; `undefined` if one is wrong, as reading all of them gives a better error. */
function stacked(rows: readonly (readonly Message[])[]): RawHistory | undefined {
  const read: RawHistory[] = []
  try {
    for (const row of rows) read.push(withMessages(row, readMessages))
    const batch = read[0]?.unsqueeze(0)
    for (const row of read.slice(1)) batch?.append(0, row)
    return batch
  } catch {
    return undefined
  } finally {
    for (const row of read) row.free()
  }
}

function withRaw<R>(given: unknown, body: (native: RawHistory) => R): R {
  if (given instanceof History) return unwrap(given).call(body)
  const native = call(() => rawOf(given))
  try {
    return body(native)
  } finally {
    native.free()
  }
}

function dimOf({ dim = -1 }: GrowOptions, rank: number): number {
  const at = dim < 0 ? dim + rank : dim
  if (Number.isInteger(at) && at >= 0 && at < rank) return at
  throw new FulmarError('OUT_OF_RANGE', `dim must lie within the ${rank} that there are: got ${dim}`)
}

function mismatch(detail: string): FulmarError {
  return new FulmarError('SHAPE_MISMATCH', detail)
}

/** A conversation, or a batch of them: messages in nested lists whose rows may differ in length. */

import { call, checkKnownKeys, FulmarError } from '../core/index.js'
import { raw } from '../native/index.js'
import { TemplateRegistry } from '../template/index.js'
import type { Tensor, TensorDict } from '../tensor/index.js'
import type { NativeTokenizer } from '../tokenizer/index.js'
import {
  applyTemplate,
  type ChatTemplateOptions,
  type DictChatOptions,
  type TensorChatOptions,
  type TextChatOptions,
} from './apply-chat-template.js'
import type { Message } from './message.js'

/** Values in lists nested as the messages are: one value for one message. */
export type Nested<T> = T | readonly Nested<T>[]

/** Where {@link History.append} and {@link History.extend} add, and to what. */
export interface GrowOptions {
  /**
   * The dimension along which to add; negative counts from the end.
   * @default -1, the messages
   */
  readonly dim?: number
  /**
   * Whether this history itself grows instead of a new one.
   * @default false
   */
  readonly inPlace?: boolean
}

/** What {@link History.fromText} is told besides the text. */
export interface FromTextOptions {
  /**
   * The template that wrote the text.
   * @default the one whose markers the text holds, else ChatML
   */
  readonly templateName?: string
  /** Its end-of-sequence token ends turns where the family has no marker of its own. */
  readonly tokenizer?: NativeTokenizer
  /**
   * Where parsers of templates of your own are looked up by `templateName`, before the built-in families.
   * @default TemplateRegistry.builtin
   */
  readonly registry?: TemplateRegistry
  /** Reads the messages itself. */
  readonly parser?: (text: string) => readonly Readonly<Record<string, unknown>>[]
}

/** What a history may be: a plain description. */
export interface HistorySpec {
  /** The length of each dimension; -1 is any. */
  readonly shape: readonly number[]
  /** A history of this shape whose messages hold the text `foo`; dimensions of any length have length 1. */
  zero(): History
  /** Whether `value` is a history of this shape. */
  contains(value: unknown): boolean
}

/** One message: its JSON text, which keeps `1.0`, and the object made of it when somebody looks. */
class Leaf {
  readonly json: string
  #message: Message | undefined

  constructor(json: string) {
    this.json = json
  }

  get message(): Message {
    this.#message ??= JSON.parse(this.json) as Message
    return this.#message
  }
}

type Node = Leaf | readonly Node[]

// The door to the private part, for the functions below.
let unwrap: (history: History) => Node

/**
 * Messages of shape `[]` (one message), `[T]` (a conversation, oldest first), `[B, T]` (a batch), or more batch
 * dimensions before `T`; rows may differ in length. Immutable unless `inPlace` is asked for: `append` and `extend`
 * return a new history. Messages are copied on the way in, and their keys, known or not, are kept.
 *
 * @example
 * ```ts
 * import { History } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const history = History.fromChats([{ role: 'user', content: '1+1?' }])
 * const longer = history.append({ role: 'assistant', content: '2' })
 * assert.deepEqual([history.length, longer.shape, longer.content], [1, [2], ['1+1?', '2']])
 * assert.equal(JSON.stringify(longer), '[{"role":"user","content":"1+1?"},{"role":"assistant","content":"2"}]')
 * assert.throws(() => History.fromChats([{ role: '', content: 'who?' }]), { code: 'EMPTY' })
 *
 * const batch = History.stack([history, longer])
 * assert.deepEqual([batch.shape, batch.at(1).at(-1).content], [[2, -1], '2'])
 * const [first] = batch.applyChatTemplate({ templateName: 'chatml_format', addGenerationPrompt: false })
 * assert.equal(first, '<|im_start|>user\n1+1?<|im_end|>\n')
 * assert.deepEqual(History.fromText(String(first)).content, ['1+1?'])
 * ```
 */
export class History implements Iterable<Message> {
  #node: Node
  #messages: readonly Message[] | undefined

  private constructor(node: Node) {
    this.#node = node
  }

  static {
    unwrap = (history) => history.#node
  }

  /**
   * The conversation of these dictionaries, the batch of these lists of dictionaries, or the history of their JSON
   * text, in which numbers such as `1.0` keep their form. None at all is an empty conversation.
   * @throws {FulmarError} `MALFORMED` or `EMPTY` if one is no message, naming its index; `SHAPE_MISMATCH` if
   * dictionaries and lists, or lists of different rank, are mixed; `LIMIT_EXCEEDED` past 65,536 messages in a
   * conversation, 64 MiB of text in a message, or 8 dimensions.
   */
  static fromChats(chats: string | readonly Message[] | readonly Nested<Message>[]): History {
    return new History(nodeOf(chats))
  }

  /**
   * The batch of histories of one rank; of single messages, their conversation.
   * @throws {FulmarError} `EMPTY` without rows; `SHAPE_MISMATCH` if ranks differ; `LIMIT_EXCEEDED` past a limit.
   */
  static stack(rows: readonly History[]): History {
    const rank = rows[0]?.rank
    if (rank === undefined) throw new FulmarError('EMPTY', 'rows must be at least 1: got 0')
    const other = rows.find((row) => row.rank !== rank)
    if (other) throw mismatch(`rows must share one rank, ${rank} here: got ${other.rank}`)
    return new History(checkedNode(rows.map((row) => row.#node)))
  }

  /**
   * The messages of a rendered text, or the batch of those of several. Roles and contents are trimmed; a message that
   * the text does not close has `is_complete: false`, and a bare opening at the end is an empty message of that kind.
   * ChatML's tool calls move into `tool_calls`.
   * @throws {FulmarError} `MALFORMED` if a text holds no message; `UNKNOWN_NAME` for a template whose text nobody can
   * parse; `EMPTY` for an empty list; what a parser of your own throws.
   */
  static fromText(text: string | readonly string[], options: FromTextOptions = {}): History {
    checkKnownKeys('options', options, ['templateName', 'tokenizer', 'registry', 'parser'])
    if (typeof text !== 'string') return History.stack(text.map((row) => History.fromText(row, options)))
    const { templateName, tokenizer, registry = TemplateRegistry.builtin } = options
    const parser =
      options.parser ?? (templateName === undefined ? undefined : registry.inverseParser(templateName))
    if (parser) return History.fromChats(parser(text) as readonly Message[])
    const eosToken = tokenizer?.specialTokens.eos_token
    return new History(leaves(call(() => raw.messagesFromText(wellFormed(text), templateName, eosToken))))
  }

  /** A plain description of histories. @throws {FulmarError} `OUT_OF_RANGE` if a length is no integer from -1. */
  static defaultSpec({ shape = [-1] }: { readonly shape?: readonly number[] } = {}): HistorySpec {
    const wrong = shape.find((length) => !Number.isInteger(length) || length < -1)
    if (wrong !== undefined)
      throw new FulmarError('OUT_OF_RANGE', `shape must hold integers from -1: got ${wrong}`)
    return {
      shape,
      zero: () => zeroOf(shape),
      contains: (value) =>
        value instanceof History &&
        value.rank === shape.length &&
        value.shape.every((length, dim) => shape[dim] === -1 || shape[dim] === length),
    }
  }

  /** The length of each dimension, -1 where rows differ; `[]` for one message. */
  get shape(): number[] {
    return shapeOf(this.#node)
  }

  /** The number of dimensions: 0 for one message. */
  get rank(): number {
    return rankOf(this.#node)
  }

  /** The length of the first dimension; 1 for one message. */
  get length(): number {
    return this.#node instanceof Leaf ? 1 : this.#node.length
  }

  /**
   * The messages of one conversation, oldest first; of a single message that one.
   * @throws {FulmarError} `SHAPE_MISMATCH` for a batch.
   */
  get messages(): readonly Message[] {
    this.#messages ??= Object.freeze(leavesOf(this.#node).map((leaf) => leaf.message))
    return this.#messages
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
    const of = (message: Message) => names.map((name) => message[name]).find((value) => value != null) ?? null
    return mapped(this.#node, of) as Nested<string | null>
  }

  /** Whether each message was written to its end; true where `is_complete` does not say otherwise. */
  get isComplete(): Nested<boolean> {
    return mapped(this.#node, (message) => message.is_complete !== false)
  }

  /** The field `key` of each message, `null` where a message has none. */
  column(key: string): Nested<unknown> {
    return mapped(this.#node, (message) => message[key] ?? null)
  }

  /**
   * The part at `index` of the first dimension, counted from the end if negative: a message, or a row of a batch.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is none; `SHAPE_MISMATCH` for one message.
   */
  at(index: number): History {
    const parts = partsOf(this.#node)
    const part = parts.at(index)
    if (part !== undefined && Number.isInteger(index)) return new History(part)
    throw new FulmarError(
      'OUT_OF_RANGE',
      `index must lie within the ${parts.length} that there are: got ${index}`,
    )
  }

  /**
   * The parts `start` up to and without `end` of the first dimension; negative counts from the end.
   * @throws {FulmarError} `EMPTY` if no row of a batch would be left; `SHAPE_MISMATCH` for one message.
   */
  slice(start: number, end?: number): History {
    const parts = partsOf(this.#node).slice(start, end)
    if (parts.length === 0 && this.rank > 1) {
      throw new FulmarError('EMPTY', `slice must keep a row: got ${start} to ${end ?? 'the end'}`)
    }
    return new History(parts)
  }

  /** The parts along the first dimension. @throws {FulmarError} `SHAPE_MISMATCH` for one message. */
  rows(): History[] {
    return partsOf(this.#node).map((part) => new History(part))
  }

  /**
   * One more message in each conversation: `item` is what this history is without `dim`.
   * @throws {FulmarError} `SHAPE_MISMATCH` if this is one message, or dimensions do not fit; as
   * {@link History.fromChats} for messages. Nothing has changed then.
   */
  append(item: Message | History | readonly Nested<Message>[], options: GrowOptions = {}): History {
    const node = nodeOf(item)
    if (this.rank === 0)
      throw mismatch('history must have a dimension to append along (unsqueeze it first): got one message')
    if (rankOf(node) + 1 !== this.rank) {
      throw mismatch(`the new message must have one dimension fewer than ${this.rank}: got ${rankOf(node)}`)
    }
    return this.#grown(unsqueezed(node, dimOf(options, this.rank)), options)
  }

  /**
   * More messages in each conversation: `items` has as many dimensions as this history.
   * @throws {FulmarError} As {@link History.append}.
   */
  extend(
    items: History | readonly Message[] | readonly Nested<Message>[],
    options: GrowOptions = {},
  ): History {
    const node = nodeOf(items)
    if (rankOf(node) !== this.rank || this.rank === 0) {
      const rule = 'the new history to extend with must have the rank of this one'
      throw mismatch(`${rule}, ${this.rank}, from 1: got ${rankOf(node)}`)
    }
    return this.#grown(node, options)
  }

  #grown(items: Node, options: GrowOptions): History {
    checkKnownKeys('options', options, ['dim', 'inPlace'])
    const node = joined(this.#node, items, dimOf(options, this.rank))
    if (!options.inPlace) return new History(node)
    this.#node = node
    this.#messages = undefined
    return this
  }

  /**
   * The same messages with a new dimension of length 1 at `dim`, 0 to the rank; negative counts from the end.
   * @throws {FulmarError} `OUT_OF_RANGE` for another `dim`; `LIMIT_EXCEEDED` past 8 dimensions.
   */
  unsqueeze(dim: number): History {
    return new History(checkedNode(unsqueezed(this.#node, dimOf({ dim }, this.rank + 1))))
  }

  /** The batch with conversations made equally long by messages of role `<none>` at the end; they are never rendered. */
  toPadded(): History {
    return new History(padded(this.#node, longest(this.#node)))
  }

  /** The history without messages of role `<none>`. */
  toRagged(): History {
    return new History(this.#node instanceof Leaf ? this.#node : withoutPadding(this.#node))
  }

  /**
   * The text that a template makes of each conversation, or its ids, with masks if asked for: TorchRL's return shapes.
   * Without `tokenize` a text, or a list of texts for a batch. With `tokenize: true` an `i64` tensor `[1, L]`, or a list
   * of them. With `returnDict: true` or a mask a dictionary with `input_ids` and `attention_mask`, both `i64`, and with a
   * mask `assistant_masks`: `[L]` for a conversation, ragged rows for a batch, `[B, L]` with `padding`.
   *
   * @throws {FulmarError} `INCOMPATIBLE` if nothing says which template, if ids are asked for without a tokenizer, if a
   * mask is asked for with `continueFinalMessage`, or if it cannot be told where the assistant's turns are; `EMPTY` if a
   * mask has no token; `SHAPE_MISMATCH` for one message; what rendering and encoding say.
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
    return textOf(this.#node)
  }

  /** The dictionaries, as they came: ready for JSON. */
  toJSON(): unknown {
    return mapped(this.#node, (message) => message)
  }

  [Symbol.iterator](): Iterator<Message> {
    return this.messages[Symbol.iterator]()
  }
}

const PADDING = new Leaf('{"role":"<none>","content":""}')

/** The checked node of what a caller gives. */
function nodeOf(given: unknown): Node {
  if (given instanceof History) return unwrap(given)
  return leaves(
    call(() => {
      const text = typeof given === 'string' ? wellFormed(given) : String(JSON.stringify(given))
      return raw.readMessages(text)
    }),
  )
}

/** Text that UTF-8 can hold: halves of surrogate pairs would silently become another character on the way to the core. */
function wellFormed(text: string): string {
  const index = text.search(/\p{Surrogate}/u)
  if (index < 0) return text
  throw new FulmarError('MALFORMED', `text must be well-formed: got half a surrogate pair at index ${index}`)
}

/** The node of nested lists of JSON texts. */
function leaves(json: string): Node {
  const wrap = (value: string | readonly unknown[]): Node =>
    typeof value === 'string'
      ? new Leaf(value)
      : value.map((item) => wrap(item as string | readonly unknown[]))
  return wrap(JSON.parse(json))
}

/** Refuses what is longer or deeper than a history may be. */
function checkedNode(node: Node): Node {
  // The core knows how deep: an empty history of the same rank asks it.
  call(() => raw.readMessages('['.repeat(rankOf(node)) + ']'.repeat(rankOf(node)) || '[]'))
  if (!(node instanceof Leaf) && rankOf(node) === 1) call(() => raw.checkNumMessages(node.length))
  return node
}

function rankOf(node: Node): number {
  if (node instanceof Leaf) return 0
  const [first] = node
  return first === undefined ? 1 : 1 + rankOf(first)
}

function shapeOf(node: Node): number[] {
  if (node instanceof Leaf) return []
  const [inner = [], ...others] = node.map(shapeOf)
  return [
    node.length,
    ...inner.map((length, dim) => (others.every((other) => other[dim] === length) ? length : -1)),
  ]
}

function leavesOf(node: Node): Leaf[] {
  const parts = node instanceof Leaf ? [node] : node
  return parts.map((part) => {
    if (part instanceof Leaf) return part
    throw mismatch(`messages must be one conversation, of rank 1: got rank ${rankOf(node)}`)
  })
}

function partsOf(node: Node): readonly Node[] {
  if (node instanceof Leaf) throw mismatch('history must have a dimension: got one message')
  return node
}

function mapped<T>(node: Node, of: (message: Message) => T): Nested<T> {
  return node instanceof Leaf ? of(node.message) : node.map((part) => mapped(part, of))
}

function textOf(node: Node): string {
  return node instanceof Leaf ? node.json : `[${node.map(textOf).join(',')}]`
}

function dimOf({ dim = -1 }: GrowOptions, rank: number): number {
  const at = dim < 0 ? dim + rank : dim
  if (Number.isInteger(at) && at >= 0 && at < rank) return at
  throw new FulmarError('OUT_OF_RANGE', `dim must lie within the ${rank} that there are: got ${dim}`)
}

function unsqueezed(node: Node, dim: number): Node {
  if (dim === 0) return [node]
  const parts = partsOf(node)
  if (parts.length === 0)
    throw new FulmarError('EMPTY', 'messages must be at least 1 for a new dimension: got 0')
  return parts.map((part) => unsqueezed(part, dim - 1))
}

function joined(held: Node, items: Node, dim: number): Node {
  const [left, right] = [partsOf(held), partsOf(items)]
  if (dim === 0) return checkedNode([...left, ...right])
  if (left.length !== right.length) {
    throw mismatch(`batches must have one length: got ${left.length} and ${right.length}`)
  }
  return left.map((part, index) => joined(part, right[index] ?? [], dim - 1))
}

function longest(node: Node): number {
  if (node instanceof Leaf) return 0
  return rankOf(node) === 1 ? node.length : node.reduce((most, part) => Math.max(most, longest(part)), 0)
}

function padded(node: Node, length: number): Node {
  if (node instanceof Leaf) return node
  if (rankOf(node) > 1) return node.map((part) => padded(part, length))
  return Array.from({ length }, (_, index) => node[index] ?? PADDING)
}

function withoutPadding(node: readonly Node[]): Node {
  const kept = node.filter((part) => !(part instanceof Leaf && part.message.role === '<none>'))
  return kept.map((part) => (part instanceof Leaf ? part : withoutPadding(part)))
}

function zeroOf(shape: readonly number[]): History {
  const lengths = shape.map((length) => (length === -1 ? 1 : length))
  call(() => raw.checkNumMessages(lengths.reduce((product, length) => product * length, 1)))
  const build = (dims: readonly number[]): unknown =>
    dims.length === 0
      ? { role: 'user', content: 'foo' }
      : Array.from({ length: dims[0] ?? 0 }, () => build(dims.slice(1)))
  return History.fromChats(JSON.stringify(build(lengths)))
}

function mismatch(detail: string): FulmarError {
  return new FulmarError('SHAPE_MISMATCH', detail)
}

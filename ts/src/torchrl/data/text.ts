/** The texts of prompts, responses and both. */

import { checkGiven, checkKnownKeys, FulmarError } from '../../core/index.js'
import { NonTensorData, NonTensorStack, TensorDict } from '../../tensor/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import { checkBatch, flatTexts, nestedLike, sizeOf, stackedLike } from './batch.js'
import { ChatHistory } from './chat-history.js'
import { History } from './history.js'
import type { FromTextOptions } from './history-options.js'
import type { Nested } from './nested.js'
import type { SequenceSpec } from './sequences.js'
import { fieldOf, responsesOf, Tokens } from './tokens.js'

/** The fields of {@link Text}: a text, or texts in lists nested as the batch is. */
export interface TextFields {
  readonly prompt?: Nested<string> | undefined
  readonly response?: Nested<string> | undefined
  readonly full?: Nested<string> | undefined
}

const NAMES = ['prompt', 'response', 'full'] as const
type Name = (typeof NAMES)[number]

/**
 * Texts that a template or a model wrote. `full` is `prompt` with `response` behind it.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { Text } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const text = new Text({ prompt: ['1+1=', '2+2='], response: ['2', '4'] })
 * assert.deepEqual([text.batchSize, text.full], [[2], ['1+1=2', '2+2=4']])
 * using tokenizer = new CharTokenizer()
 * const tokens = text.toTokens({ tokenizer })
 * assert.deepEqual(tokens.toText({ tokenizer }).response, ['2', '4'])
 * assert.throws(() => new Text({ prompt: 'a', full: 'b' }), { code: 'INCOMPATIBLE' })
 * ```
 */
export class Text {
  /** The batch dimensions; `[]` for one text. */
  readonly batchSize: readonly number[]
  readonly #flat: Readonly<Partial<Record<Name, readonly string[]>>>

  /**
   * `response` is what `full` holds behind `prompt`, and `full` the two together, where one of them is not given.
   * @throws {FulmarError} `SHAPE_MISMATCH` if batches differ or lists are ragged; `INCOMPATIBLE` if `full` is not
   * `prompt` and `response`; `MALFORMED` for what is no text; `UNKNOWN_NAME` for an unknown field.
   */
  constructor(fields: TextFields = {}) {
    checkKnownKeys('fields', fields, NAMES)
    const given = NAMES.filter((name) => fields[name] !== undefined).map(
      (name) => [name, flatTexts(name, fields[name])] as const,
    )
    this.batchSize = Object.freeze([...(given[0]?.[1].batchSize ?? [])])
    for (const [name, { batchSize }] of given) checkBatch(name, batchSize, this.batchSize)
    this.#flat = joined(Object.fromEntries(given.map(([name, { flat }]) => [name, flat])))
  }

  /**
   * One batch of containers of one batch, with the same fields.
   * @throws {FulmarError} `EMPTY` without containers; `SHAPE_MISMATCH` if batches differ; `INCOMPATIBLE` if fields differ.
   */
  static stack(all: readonly Text[]): Text {
    checkGiven('all', all)
    const [first] = all
    if (first === undefined) throw new FulmarError('EMPTY', 'containers must be at least 1: got 0')
    const fields = NAMES.filter((name) => first[name] !== undefined).map((name) => {
      const rows = all.map((one) => one[name])
      if (rows.includes(undefined))
        throw new FulmarError('INCOMPATIBLE', `containers must all have ${name}: got one without`)
      return [name, rows]
    })
    return new Text(Object.fromEntries(fields))
  }

  /** A plain description; the example's texts are `foo`. */
  static defaultSpec(
    options: { readonly shape?: readonly number[]; readonly keys?: readonly Name[] } = {},
  ): SequenceSpec<Text> {
    checkKnownKeys('options', options, ['shape', 'keys'])
    const { shape = [-1], keys = NAMES } = options
    const batchSize = shape.map((length) => (length === -1 ? 1 : length))
    const example = { prompt: 'foo', response: 'foo', full: keys.length === 3 ? 'foofoo' : 'foo' }
    const texts = (name: Name) =>
      nestedLike(new Array<string>(sizeOf(batchSize)).fill(example[name]), batchSize)
    const isOf = (text: Text) =>
      NAMES.every((name) => (text[name] !== undefined) === keys.includes(name)) &&
      text.batchSize.length === shape.length &&
      shape.every((length, dim) => length === -1 || length === text.batchSize[dim])
    return {
      shape,
      keys,
      zero: () => new Text(Object.fromEntries(keys.map((name) => [name, texts(name)]))),
      contains: (value) => value instanceof Text && isOf(value),
    }
  }

  get prompt(): Nested<string> | undefined {
    return this.#nested('prompt')
  }

  get response(): Nested<string> | undefined {
    return this.#nested('response')
  }

  get full(): Nested<string> | undefined {
    return this.#nested('full')
  }

  #nested(name: Name): Nested<string> | undefined {
    const flat = this.#flat[name]
    return flat && nestedLike(flat, this.batchSize)
  }

  /**
   * Returns an element of the first batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if it does not exist.
   */
  at(index: number): Text {
    const fields = NAMES.flatMap((name) => {
      const list = this[name]
      const part = Array.isArray(list) ? (list as readonly Nested<string>[]).at(index) : undefined
      return part === undefined ? [] : [[name, part]]
    })
    if (fields.length > 0 && Number.isInteger(index)) return new Text(Object.fromEntries(fields))
    const length = this.batchSize[0] ?? 0
    throw new FulmarError('OUT_OF_RANGE', `index must lie within the ${length} that there are: got ${index}`)
  }

  /**
   * The ids: ragged. Names of special tokens in the texts become their ids, for a template wrote them. The ids of
   * `response` are those of `full` behind those of `prompt`.
   * @throws {FulmarError} `INCOMPATIBLE` if the ids of `full` do not begin with those of `prompt`; the errors of encoding.
   */
  toTokens(options: { readonly tokenizer: NativeTokenizer; readonly addSpecialTokens?: boolean }): Tokens {
    checkKnownKeys('options', options, ['tokenizer', 'addSpecialTokens'])
    const { tokenizer, addSpecialTokens = false } = options
    const encode = (texts: readonly string[] | undefined) =>
      texts && tokenizer.encodeBatch(texts, { addedTokens: true, addSpecialTokens })
    const [prompt, full] = [encode(this.#flat.prompt), encode(this.#flat.full)]
    const response = prompt && full ? responsesOf(prompt, full) : encode(this.#flat.response)
    const fields = Object.entries({ prompt, response, full }).map(([name, rows]) => [
      name,
      rows && fieldOf(rows, this.batchSize),
    ])
    return new Tokens(Object.fromEntries(fields), { batchSize: this.batchSize })
  }

  /**
   * The messages. A bare opening at the end of a prompt is no message; responses are the messages of `full` behind those
   * of `prompt`.
   * @throws {FulmarError} As {@link History.fromText}.
   */
  toHistory(options: FromTextOptions = {}): ChatHistory {
    const parse = (texts: readonly string[] | undefined) =>
      texts?.map((text) => History.fromText(text, options))
    const prompts = parse(this.#flat.prompt)?.map(withoutOpening)
    const fulls = parse(this.#flat.full)
    const responses =
      prompts && fulls
        ? fulls.map((full, row) => full.slice(prompts[row]?.length ?? 0))
        : parse(this.#flat.response)
    const fields = Object.entries({ prompt: prompts, response: responses, full: fulls }).map(
      ([name, rows]) => [name, rows && stackedLike(rows, this.batchSize)],
    )
    return new ChatHistory(Object.fromEntries(fields))
  }

  /** Returns the texts by name. @throws {FulmarError} As {@link TensorDict.set}. */
  toTensorDict(): TensorDict {
    const dict = TensorDict.from({}, { batchSize: this.batchSize })
    for (const name of NAMES) {
      const texts = this[name]
      if (texts === undefined) continue
      dict.set(
        name,
        typeof texts === 'string' ? new NonTensorData(texts) : new NonTensorStack(texts as never),
      )
    }
    return dict
  }
}

/** Returns all three fields, if two of them determine the third. */
function joined(flat: Partial<Record<Name, readonly string[]>>): Partial<Record<Name, readonly string[]>> {
  const {
    prompt,
    response,
    full = prompt && response && prompt.map((text, row) => text + response[row]),
  } = flat
  if (prompt === undefined || full === undefined) return flat
  const parts = full.map((text, row) => {
    const [before = '', after] = [prompt[row], response?.[row]]
    const isWhole = after === undefined ? text.startsWith(before) : text === before + after
    if (isWhole) return text.slice(before.length)
    throw new FulmarError(
      'INCOMPATIBLE',
      `full must be prompt with response behind it: got another text at row ${row}`,
    )
  })
  return { prompt, response: parts, full }
}

function withoutOpening(prompt: History): History {
  const last = prompt.messages.at(-1)
  const isOpening = last !== undefined && last.is_complete === false && last.content === ''
  return isOpening ? prompt.slice(0, -1) : prompt
}

/** One id for each character. */

import { call, checkKnownKeys, checkTypedArray, describeValue, FulmarError, Handle } from '../core/index.js'
import { type RawCharTokenizer, raw } from '../native/index.js'
import type { DecodeOptions, Encoding, Tokenizer } from './tokenizer.js'

/** What a {@link CharTokenizer} is made of. */
export interface CharTokenizerOptions {
  /**
   * Every character that text may hold, each once, in the order of its id.
   * @default newline, then printable ASCII
   */
  readonly alphabet?: string
  /**
   * Names of the special tokens; their ids follow the alphabet.
   * @default ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
   */
  readonly specialTokens?: readonly string[]
}

/**
 * A tokenizer whose tokens are single characters (Unicode scalars), plus named special tokens.
 * Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer({ alphabet: 'abé', specialTokens: ['<|end|>'] })
 * const { ids, offsets } = tokenizer.encode('éa')
 * assert.deepEqual([...ids], [2, 0])
 * assert.deepEqual([...offsets], [0, 2, 2, 3])
 * assert.equal(tokenizer.decode(Uint32Array.of(0, 3)), 'a<|end|>')
 * assert.throws(() => tokenizer.encode('aX'), { code: 'UNKNOWN_TEXT' })
 * ```
 */
export class CharTokenizer implements Tokenizer {
  #native: Handle<RawCharTokenizer>

  /**
   * @throws {FulmarError} `EMPTY` for an empty alphabet or name; `MALFORMED` for a character or a name that occurs
   * twice; `LIMIT_EXCEEDED` past 2^22 tokens; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(options: CharTokenizerOptions = {}) {
    checkKnownKeys('options', options, ['alphabet', 'specialTokens'])
    this.#native = new Handle('CharTokenizer', () => new raw.CharTokenizer(JSON.stringify(options)))
  }

  /**
   * The tokenizer that {@link CharTokenizer.toJSON} described, as an object or as text.
   * @throws {FulmarError} `MALFORMED` if `json` is not that; `INCOMPATIBLE` for another kind or version.
   */
  static fromJSON(json: unknown): CharTokenizer {
    const text = call(() => (typeof json === 'string' ? json : String(JSON.stringify(json))))
    const read = new Handle('CharTokenizer', () => raw.CharTokenizer.fromJson(text))
    const tokenizer = new CharTokenizer()
    tokenizer.#native.free()
    tokenizer.#native = read
    return tokenizer
  }

  /** What this tokenizer is made of, with `version` and `kind`, ready for JSON. */
  toJSON(): CharTokenizerJson {
    return JSON.parse(this.#native.call((native) => native.toJson()))
  }

  get vocabSize(): number {
    return this.#native.call((native) => native.vocabSize())
  }

  encode(text: string): Encoding {
    checkText(text)
    const { ids, offsets } = this.#native.call((native) => native.encode(text))
    return { ids, offsets }
  }

  decode(ids: Uint32Array, options: DecodeOptions = {}): string {
    checkTypedArray('ids', ids, Uint32Array)
    checkKnownKeys('options', options, ['skipSpecial'])
    const { skipSpecial = false } = options
    return this.#native.call((native) => native.decode(ids, skipSpecial))
  }

  idOf(token: string): number | undefined {
    if (SURROGATE.test(token)) return undefined
    return this.#native.call((native) => native.idOf(token)) ?? undefined
  }

  tokenOf(id: number): string | undefined {
    return this.#native.call((native) => native.tokenOf(id)) ?? undefined
  }

  isSpecial(id: number): boolean {
    return this.#native.call((native) => native.isSpecial(id))
  }

  /** @internal Lets a renderer reach the native object. */
  withNative<R>(body: (native: RawCharTokenizer) => R): R {
    return this.#native.call(body)
  }

  /** Gives the native memory back. Renderers made with this tokenizer go on working. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** The JSON form of a {@link CharTokenizer}. */
export interface CharTokenizerJson {
  readonly version: number
  readonly kind: 'char'
  readonly alphabet: string
  readonly specialTokens: readonly string[]
}

/** Half of a surrogate pair, which JavaScript text may hold and UTF-8 cannot: it would silently become U+FFFD. */
const SURROGATE = /\p{Surrogate}/u

function checkText(text: unknown): void {
  if (typeof text !== 'string')
    throw new FulmarError('MALFORMED', `text must be text: got ${describeValue(text)}`)
  const index = text.search(SURROGATE)
  if (index < 0) return
  const code = text.charCodeAt(index).toString(16).toUpperCase()
  throw new FulmarError(
    'UNKNOWN_TEXT',
    `text must be well-formed: got half a pair, U+${code}, at index ${index}`,
  )
}

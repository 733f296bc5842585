/** One id for each character. */

import { call, checkKnownKeys } from '../core/index.js'
import { type RawTokenizer, raw } from '../native/index.js'
import { NativeTokenizer } from './native-tokenizer.js'

/** Options of {@link CharTokenizer}. */
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
export class CharTokenizer extends NativeTokenizer {
  /**
   * @throws {FulmarError} `EMPTY` for an empty alphabet or name; `MALFORMED` for a character or a name that occurs
   * twice; `LIMIT_EXCEEDED` past 2^22 tokens; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(options: CharTokenizerOptions = {}) {
    super('CharTokenizer', () => make(options))
  }

  /**
   * The tokenizer that {@link CharTokenizer.toJSON} described, as an object or as text.
   * @throws {FulmarError} `MALFORMED` if `json` is not that; `INCOMPATIBLE` for another kind or version.
   */
  static fromJSON(json: unknown): CharTokenizer {
    const text = call(() => (typeof json === 'string' ? json : String(JSON.stringify(json))))
    const read = call(() => raw.Tokenizer.charactersFromJson(text))
    const { alphabet, specialTokens }: CharTokenizerJson = JSON.parse(call(() => read.toJson()))
    read.free()
    return new CharTokenizer({ alphabet, specialTokens })
  }

  /** Returns the parts of this tokenizer as JSON, with `version` and `kind`. */
  toJSON(): CharTokenizerJson {
    return JSON.parse(this.withNative((native) => native.toJson()))
  }
}

function make(options: CharTokenizerOptions): RawTokenizer {
  checkKnownKeys('options', options, ['alphabet', 'specialTokens'])
  return raw.Tokenizer.characters(JSON.stringify(options))
}

/** The JSON form of a {@link CharTokenizer}. */
export interface CharTokenizerJson {
  readonly version: number
  readonly kind: 'char'
  readonly alphabet: string
  readonly specialTokens: readonly string[]
}

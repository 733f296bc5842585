/** A {@link TokenizerLike} whose tables live in the compiled core. */

import { checkKnownKeys, checkTypedArray, describeValue, FulmarError, Handle } from '../core/index.js'
import type { RawTokenizer } from '../native/index.js'
import { rearrangeBatch } from './pad-batch.js'
import type {
  DecodeOptions,
  EncodeBatchOptions,
  Encoding,
  EncodingBatch,
  NativeEncodeOptions,
  TokenizerLike,
} from './tokenizer-like.js'

/**
 * Base class of {@link CharTokenizer} and the other native tokenizers. Holds native memory: dispose it, or
 * declare
 * it with `using`.
 *
 * @example
 * ```ts
 * import { CharTokenizer, NativeTokenizer } from 'fulmar/tokenizer'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * assert.ok(tokenizer instanceof NativeTokenizer)
 * ```
 */
export abstract class NativeTokenizer implements TokenizerLike {
  readonly #native: Handle<RawTokenizer>

  /** @internal `make` makes the native object. */
  protected constructor(name: string, make: () => RawTokenizer) {
    this.#native = new Handle(name, make)
  }

  get vocabSize(): number {
    return this.#native.call((native) => native.vocabSize())
  }

  encode(text: string, options: NativeEncodeOptions = {}): Encoding {
    checkText(text)
    checkKnownKeys('options', options, ['addedTokens', 'addSpecialTokens'])
    const { addedTokens = false, addSpecialTokens = false } = options
    const { ids, offsets } = this.#native.call((native) => native.encode(text, addedTokens))
    if (!addSpecialTokens) return { ids, offsets }
    const whole = rearrangeBatch({ ids, offsets, rows: Uint32Array.of(0, ids.length) }, this.#surroundings())
    return { ids: whole.ids, offsets: whole.offsets }
  }

  /**
   * The ids of many texts, one behind the other. The native build uses every processor, and the event loop waits
   * meanwhile: about a second for 100 MB on each. {@link padBatch} gives rows of one length.
   * @throws {FulmarError} As {@link TokenizerLike.encode}, for the first text that is refused, with its index;
   * `OUT_OF_RANGE` if `truncation.maxLength` is not a length, or shorter than the special tokens.
   */
  encodeBatch(texts: readonly string[], options: EncodeBatchOptions = {}): EncodingBatch {
    for (const text of texts) checkText(text)
    checkKnownKeys('options', options, ['addedTokens', 'addSpecialTokens', 'truncation'])
    const { addedTokens = false, addSpecialTokens = false, truncation = false } = options
    const { ids, offsets, rows } = this.#native.call((native) => native.encodeBatch([...texts], addedTokens))
    if (!addSpecialTokens && truncation === false) return { ids, offsets, rows }
    return rearrangeBatch(
      { ids, offsets, rows },
      addSpecialTokens ? this.#surroundings() : [[], []],
      truncation,
    )
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

  /** Special tokens by their names in chat templates, such as `eos_token`. */
  get specialTokens(): Readonly<Record<string, string>> {
    return JSON.parse(this.#native.call((native) => native.specialTokens()))
  }

  /** The source of the chat template that came with the tokenizer. */
  get chatTemplate(): string | undefined {
    return this.namedTemplate('default')
  }

  /** The source of one of several chat templates that came with the tokenizer; some have one called `tool_use`. */
  namedTemplate(name: string): string | undefined {
    return this.#native.call((native) => native.chatTemplate(name)) ?? undefined
  }

  /** @internal Lets a renderer reach the native object. */
  withNative<R>(body: (native: RawTokenizer) => R): R {
    return this.#native.call(body)
  }

  #surroundings(): readonly [number[], number[]] {
    return JSON.parse(this.#native.call((native) => native.surroundings()))
  }

  /** Releases the native memory. Renderers made with this tokenizer keep working. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** Half of a surrogate pair, which JavaScript text may hold and UTF-8 cannot: it would silently become U+FFFD. */
const SURROGATE = /\p{Surrogate}/u

/** Refuses what is not text, or is not well-formed UTF-16. */
export function checkText(text: unknown): void {
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

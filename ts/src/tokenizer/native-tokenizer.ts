/** A {@link TokenizerLike} whose tables live in the compiled core. */

import { checkKnownKeys, checkTypedArray, describeValue, FulmarError, Handle } from '../core/index.js'
import type { RawTokenizer } from '../native/index.js'
import type { DecodeOptions, EncodeOptions, Encoding, TokenizerLike } from './tokenizer-like.js'

/**
 * What {@link CharTokenizer} and its siblings share. Not made by itself. Holds native memory: dispose it, or declare
 * it with `using`.
 *
 * @example
 * ```ts
 * import { CharTokenizer, NativeTokenizer } from 'fulmar'
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

  encode(text: string, options: EncodeOptions = {}): Encoding {
    checkText(text)
    checkKnownKeys('options', options, ['addedTokens'])
    const { addedTokens = false } = options
    const { ids, offsets } = this.#native.call((native) => native.encode(text, addedTokens))
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
  withNative<R>(body: (native: RawTokenizer) => R): R {
    return this.#native.call(body)
  }

  /** Gives the native memory back. Renderers made with this tokenizer go on working. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
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

/** Options of histories, and their specification. */

import type { TemplateRegistry } from '../../template/index.js'
import type { NativeTokenizer } from '../../tokenizer/index.js'
import type { History } from './history.js'

/** Options of {@link History.append} and {@link History.extend}. */
export interface GrowOptions {
  /**
   * The dimension along which to add; negative counts from the end.
   * @default -1, the messages
   */
  readonly dim?: number
  /**
   * If true, changes this history instead of returning a new one.
   * @default false
   */
  readonly inPlace?: boolean
}

/** Options of {@link History.fromText}. */
export interface FromTextOptions {
  /**
   * The template that wrote the text.
   * @default the one whose markers the text holds, else ChatML
   */
  readonly templateName?: string
  /** Its end-of-sequence token ends turns where the family has no marker of its own. */
  readonly tokenizer?: NativeTokenizer
  /**
   * Registry of parsers of custom templates by `templateName`, searched before the built-in families.
   * @default TemplateRegistry.builtin
   */
  readonly registry?: TemplateRegistry
  /** Reads the messages itself. */
  readonly parser?: (text: string) => readonly Readonly<Record<string, unknown>>[]
}

/** Specification of a history as a plain description. */
export interface HistorySpec {
  /** The length of each dimension; -1 is any. */
  readonly shape: readonly number[]
  /** A history of this shape whose messages hold the text `foo`; dimensions of any length have length 1. */
  zero(): History
  /** Returns true if `value` is a history of this shape. */
  contains(value: unknown): boolean
}

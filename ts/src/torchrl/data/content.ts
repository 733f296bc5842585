/** One typed piece of a message's content. */

import { call } from '../../core/index.js'
import { raw } from '../../native/index.js'

/** Fields of a {@link ContentBase}; only `type` is required. */
export interface ContentFields {
  /** Type of the piece. */
  readonly type: 'text' | 'image' | 'audio' | 'video' | 'file' | 'function_call'
  /** Its text. */
  readonly text?: string
  /** Its URL. */
  readonly url?: string
  /** Itself, in base64. */
  readonly data?: string
  /** Its media type, such as `image/png`. */
  readonly mime_type?: string
  /** Its file name. */
  readonly name?: string
  /** Its length in bytes. */
  readonly size?: number
  /** The function that is called. */
  readonly function_name?: string
  /** The arguments of the call. */
  readonly function_args?: Readonly<Record<string, unknown>>
}

/**
 * One piece of a message's content, checked: text, or something that a processor would turn into numbers. Templates see
 * it as a dictionary of the fields that are there; pixels and sound are never read here.
 *
 * @example
 * ```ts
 * import { ContentBase, History } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const picture = new ContentBase({ type: 'image', url: 'https://example.org/cat.png' })
 * const question = new ContentBase({ type: 'text', text: 'What is this?' })
 * const history = History.fromChats([{ role: 'user', content: [picture, question] }])
 * assert.deepEqual(history.messages[0]?.content, [
 *   { type: 'image', url: 'https://example.org/cat.png' },
 *   { type: 'text', text: 'What is this?' },
 * ])
 * ```
 */
export class ContentBase {
  /** Type of the piece. */
  readonly type!: ContentFields['type']
  readonly [key: string]: unknown

  /** @throws {FulmarError} `UNKNOWN_NAME` for a type or a field that pieces do not have; `MALFORMED` for a wrong value. */
  constructor(fields: ContentFields) {
    Object.assign(
      this,
      call(() => JSON.parse(raw.contentBase(String(JSON.stringify(fields))))),
    )
    Object.freeze(this)
  }
}

/** A conversation: messages in order. */

import { call } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Message } from './message.js'

/**
 * The messages of one conversation, oldest first. Immutable: `append` and `extend` return a new history. Messages are
 * copied on the way in, so later changes of the caller's objects do not reach it.
 *
 * @example
 * ```ts
 * import { History } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const history = History.fromChats([{ role: 'user', content: '1+1?' }])
 * const longer = history.append({ role: 'assistant', content: '2' })
 * assert.deepEqual([history.length, longer.length], [1, 2])
 * assert.equal(JSON.stringify(longer), '[{"role":"user","content":"1+1?"},{"role":"assistant","content":"2"}]')
 * assert.throws(() => History.fromChats([{ role: '', content: 'who?' }]), { code: 'EMPTY' })
 * ```
 */
export class History implements Iterable<Message> {
  /** The messages, oldest first. */
  readonly messages: readonly Message[]

  private constructor(messages: readonly Message[]) {
    this.messages = Object.freeze(messages)
  }

  /**
   * The history of these dictionaries; none at all is an empty history.
   * @throws {FulmarError} `MALFORMED` or `EMPTY` if one is no message, naming its index; `LIMIT_EXCEEDED` past 65,536
   * messages or 64 MiB of text in one.
   */
  static fromChats(messages: readonly Message[]): History {
    return new History(checkedCopy(0, messages))
  }

  /**
   * A new history with one more message.
   * @throws {FulmarError} as {@link History.fromChats}.
   */
  append(message: Message): History {
    return this.extend([message])
  }

  /**
   * A new history with more messages.
   * @throws {FulmarError} as {@link History.fromChats}; indices count from the first of `messages`.
   */
  extend(messages: readonly Message[]): History {
    return new History([...this.messages, ...checkedCopy(this.length, messages)])
  }

  /** How many messages there are. */
  get length(): number {
    return this.messages.length
  }

  /** The dictionaries, as they came. */
  toJSON(): readonly Message[] {
    return this.messages
  }

  [Symbol.iterator](): Iterator<Message> {
    return this.messages[Symbol.iterator]()
  }
}

function checkedCopy(numHeld: number, messages: readonly Message[]): Message[] {
  return call(() => {
    const text = String(JSON.stringify(messages))
    raw.checkMessages(numHeld, text)
    return JSON.parse(text)
  })
}

/** Messages on their way to the core, without escaping the contents that are most of them. */

import { call, FulmarError } from '../core/index.js'
import type { Message } from './message.js'
import type { JsonList } from './renderer.js'

/** Letters of the roles of plain messages in a packed text. */
const LETTERS: Readonly<Record<string, string>> = { system: 's', user: 'u', assistant: 'a', tool: 't' }

/** Checks each message that has more than a role and a text. */
export type CheckMessage = (message: Message, index: number) => void

/**
 * Calls `body` with `messages` in a packed form: for each plain message a letter for its role and the content, for others
 * their JSON, each followed by a NUL. Their number shows a content with a NUL. Messages that this form cannot hold, or that are refused in it, are passed as
 * ordinary JSON, whose errors are exact.
 */
export function withMessages<R>(
  messages: JsonList<Message>,
  body: (messages: string, numPacked: number | undefined) => R,
  check?: CheckMessage,
): R {
  if (typeof messages === 'string') return body(messages, undefined)
  const packed = pack(messages, check)
  if (packed !== undefined) {
    try {
      return body(packed, messages.length)
    } catch {
      // The slower path below reports these better, or accepts them: half a surrogate pair, a NUL, U+FFFD.
    }
  }
  try {
    return body(
      call(() => String(JSON.stringify(messages))),
      undefined,
    )
  } catch (cause) {
    throw brokenText(messages, cause) ?? cause
  }
}

/**
 * Returns the error for messages of which one holds half a surrogate pair: a JSON parser gives the position,
 * not the message.
 */
function brokenText(messages: unknown, cause: unknown): FulmarError | undefined {
  if (!Array.isArray(messages)) return undefined
  const index = messages.flat().findIndex((message) => {
    let isBroken = false
    JSON.stringify(message, (key, value: unknown) => {
      isBroken ||= HALF.test(key) || (typeof value === 'string' && HALF.test(value))
      return value
    })
    return isBroken
  })
  if (index < 0) return undefined
  const detail = `messages[${index}] must hold well-formed text: it has half a surrogate pair`
  return new FulmarError('MALFORMED', detail, { cause })
}

const HALF = /\p{Surrogate}/u

/** Returns the packed form of `messages`; `undefined` for values that are not lists of objects. */
export function pack(messages: readonly Message[], check?: CheckMessage): string | undefined {
  if (!Array.isArray(messages)) return undefined
  let packed = ''
  let index = 0
  for (const message of messages as readonly (Message | null)[]) {
    if (typeof message !== 'object' || message === null || Array.isArray(message)) return undefined
    const letter = letterOf(message)
    if (letter !== undefined) {
      packed += `${letter}${message.content}\0`
    } else {
      check?.(message, index)
      packed += `${call(() => String(JSON.stringify(message)))}\0`
    }
    index += 1
  }
  return packed
}

/** Returns the letter of the role of a message that has exactly a role and a text, in this order. */
function letterOf(message: Message): string | undefined {
  let numKeys = 0
  for (const key in message) {
    if (key !== (numKeys === 0 ? 'role' : 'content')) return undefined
    numKeys += 1
  }
  if (numKeys !== 2 || typeof message.content !== 'string') return undefined
  if (Object.getPrototypeOf(message) !== Object.prototype) return undefined
  return Object.hasOwn(LETTERS, message.role) ? LETTERS[message.role] : undefined
}

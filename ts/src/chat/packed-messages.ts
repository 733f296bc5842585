/** Messages on their way to the core, without escaping the contents that are most of them. */

import { call, FulmarError } from '../core/index.js'
import type { Message } from './message.js'
import type { JsonList } from './renderer.js'

/** Room for the contents of a conversation. Larger ones get their own. */
const SCRATCH_BYTES = 1 << 20
/** Most bytes that UTF-8 needs for one unit of UTF-16. */
const UNIT_BYTES_MAX = 3

const encoder = new TextEncoder()
const NONE = new Uint8Array()
let scratch = NONE

/**
 * Calls `body` with `messages` in a packed form: a JSON list in which a text is the role of a plain message, and the
 * contents of those as UTF-8, each followed by a NUL. Messages that this form cannot hold, or that are refused in it, are
 * passed as ordinary JSON, whose errors are exact. `check` gets each message that has more than a role and a text.
 */
export function withMessages<R>(
  messages: JsonList<Message>,
  body: (list: string, contents: Uint8Array | undefined) => R,
  check?: (message: Message, index: number) => void,
): R {
  const packed = typeof messages === 'string' ? undefined : pack(messages, check)
  if (packed !== undefined) {
    try {
      return body(packed.list, encode(packed.contents))
    } catch {
      // The slower path below reports these better, or accepts them: half a surrogate pair, a NUL, U+FFFD.
    }
  }
  if (typeof messages === 'string') return body(messages, undefined)
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

/** Returns `undefined` for values that are not lists of objects, and for lists that gain nothing. */
function pack(
  messages: readonly Message[],
  check?: (message: Message, index: number) => void,
): { readonly list: string; readonly contents: string } | undefined {
  if (!Array.isArray(messages)) return undefined
  let [list, contents] = ['', '']
  for (const [index, message] of (messages as readonly (Message | null)[]).entries()) {
    if (typeof message !== 'object' || message === null) return undefined
    if (isPlain(message)) {
      list += `${list === '' ? '[' : ','}${JSON.stringify(message.role)}`
      contents += `${message.content}\0`
    } else {
      check?.(message, index)
      const whole = call(() => String(JSON.stringify(message)))
      list += `${list === '' ? '[' : ','}${whole}`
    }
  }
  return contents === '' ? undefined : { list: `${list}]`, contents }
}

/** Returns true if a message has exactly a role and a text, in this order. */
function isPlain(message: Message): boolean {
  let numKeys = 0
  for (const key in message) {
    if (key !== (numKeys === 0 ? 'role' : 'content')) return false
    numKeys += 1
  }
  const { role, content } = message
  const isDictionary = Object.getPrototypeOf(message) === Object.prototype
  return numKeys === 2 && typeof role === 'string' && typeof content === 'string' && isDictionary
}

/** UTF-8, valid until the next call. */
function encode(text: string): Uint8Array {
  if (text.length > SCRATCH_BYTES / UNIT_BYTES_MAX) return encoder.encode(text)
  if (scratch.length === 0) scratch = new Uint8Array(SCRATCH_BYTES)
  return scratch.subarray(0, encoder.encodeInto(text, scratch).written)
}

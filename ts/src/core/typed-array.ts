/** Typed arrays on their way into the compiled core, where the two backends answer a wrong type differently. */

import { FulmarError } from './error.js'
import { describeValue } from './options.js'

/** The engine's own word for the type of a typed array, of any realm; nothing that only looks like one has it. */
const tagOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag)
  ?.get as () => string | undefined

/**
 * @throws {FulmarError} `MALFORMED` if `value` is not an array of `type`, or its memory was transferred away or shrunk below it. `name` is
 * the argument for the message.
 */
export function checkTypedArray(name: string, value: unknown, type: { readonly name: string }): void {
  const tag = tagOf.call(value)
  if (tag !== type.name) {
    const got = tag ?? describeValue(value)
    throw new FulmarError('MALFORMED', `${name} must be a ${type.name}: got ${got}`)
  }
  // Node 20 may go on telling the `length` of an array whose memory was given away; this asks the memory.
  try {
    Uint8Array.prototype.keys.call(value as Uint8Array)
  } catch (cause) {
    const got = `a ${tag} whose memory was transferred away or shrunk`
    throw new FulmarError('MALFORMED', `${name} must have its memory: got ${got}`, { cause })
  }
}

/**
 * A list of numbers as an array of its own.
 * @throws {FulmarError} `MALFORMED` if it is none, or its memory was transferred away. `name` is the argument for the message.
 */
export function numbersOf(name: string, values: ArrayLike<number>): Float64Array {
  try {
    return Float64Array.from(values)
  } catch (cause) {
    const got = tagOf.call(values) ?? describeValue(values)
    throw new FulmarError('MALFORMED', `${name} must be a list of numbers: got ${got}`, { cause })
  }
}

/**
 * Checks typed arrays before they reach the compiled core, as the two backends treat a wrong type
 * differently.
 */

import { FulmarError } from './error.js'
import { describeValue } from './options.js'

/** The engine's type tag of a typed array, of any realm; look-alike objects have none. */
const tagOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag)
  ?.get as () => string | undefined

/**
 * @throws {FulmarError} `MALFORMED` if `value` is not an array of `type`, or its memory was transferred away
 * or shrunk below it. `name` is the argument for the message.
 */
export function checkTypedArray(name: string, value: unknown, type: { readonly name: string }): void {
  const tag = tagOf.call(value)
  if (tag !== type.name) {
    const got = tag ?? describeValue(value)
    throw new FulmarError('MALFORMED', `${name} must be a ${type.name}: got ${got}`)
  }
  // In Node 20 the `length` of an array may be unchanged after its memory was transferred; this checks the
  // memory.
  try {
    Uint8Array.prototype.keys.call(value as Uint8Array)
  } catch (cause) {
    const got = `a ${tag} whose memory was transferred away or shrunk`
    throw new FulmarError('MALFORMED', `${name} must be attached to its memory: got ${got}`, { cause })
  }
}

/**
 * Copies a list of numbers to a new array.
 * @throws {FulmarError} `MALFORMED` if `values` is not a list of
 * numbers, or its memory was transferred away. `name` is the argument for the message.
 */
export function numbersOf(name: string, values: ArrayLike<number>): Float64Array {
  try {
    return Float64Array.from(values)
  } catch (cause) {
    const got = tagOf.call(values) ?? describeValue(values)
    throw new FulmarError('MALFORMED', `${name} must be a list of numbers: got ${got}`, { cause })
  }
}

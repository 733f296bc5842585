/** Typed arrays on their way into the compiled core, where the two backends answer a wrong type differently. */

import { FulmarError } from './error.js'
import { describeValue } from './options.js'

/** @throws {FulmarError} `MALFORMED` if `value` is not an instance of `type`. `name` is the argument for the message. */
export function checkTypedArray(
  name: string,
  value: unknown,
  type: (new (length: number) => ArrayBufferView) & { readonly name: string },
): void {
  if (value instanceof type) return
  // An array of another realm, such as a test runner's, is as good.
  if (Object.prototype.toString.call(value) === `[object ${type.name}]`) return
  throw new FulmarError('MALFORMED', `${name} must be a ${type.name}: got ${describeValue(value)}`)
}

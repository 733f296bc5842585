/** The one error type, and the door through which errors of the compiled core become it. */

import { lastPanic } from '../native/index.js'

/** Every {@link ErrorCode}: first those of the core, in its order, then those that only TypeScript gives. */
export const ERROR_CODES = [
  'SHAPE_MISMATCH',
  'OUT_OF_RANGE',
  'NON_FINITE',
  'EMPTY',
  'UNKNOWN_NAME',
  'MALFORMED',
  'CORRUPT',
  'LIMIT_EXCEEDED',
  'UNKNOWN_TEXT',
  'INCOMPATIBLE',
  'TEMPLATE_RAISED',
  'FORBIDDEN',
  'IO',
  'CLOSED',
  'PANIC',
  'USER_CODE',
  'UNAVAILABLE',
  'ABORTED',
  'TIMEOUT',
] as const

/**
 * What went wrong, stable across releases. `ABORTED`: a signal stopped the call. `UNAVAILABLE`: it cannot be had on
 * this machine. `TIMEOUT`: it took too long. `USER_CODE`: a function of the caller threw. `PANIC`: a bug in the core.
 * `TEMPLATE_RAISED`: a chat template called `raise_exception`. `FORBIDDEN`: a template left its sandbox.
 */
export type ErrorCode = (typeof ERROR_CODES)[number]

/**
 * Every failure of this package: a stable `code`, a sentence `<argument> must be <rule>: got <value>`, and the
 * error it came from as `cause`, if any.
 *
 * @example
 * ```ts
 * import { FulmarError, Rng } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(
 *   () => Rng.fromSeed(-1),
 *   (error) => error instanceof FulmarError && error.code === 'OUT_OF_RANGE',
 * )
 * ```
 */
export class FulmarError extends Error {
  override readonly name = 'FulmarError'
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/**
 * Calls the compiled core and returns its answer.
 *
 * @throws {FulmarError} With the core's code; `PANIC` for a bug in the core, after which the process goes on.
 */
export function call<T>(body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw toFulmarError(error)
  }
}

/**
 * Calls the compiled core and waits for an answer that may come at once or from another thread.
 *
 * @throws {FulmarError} As {@link call}; always as a rejection.
 */
export async function callAsync<T>(body: () => T | Promise<T>): Promise<T> {
  try {
    return await body()
  } catch (error) {
    throw toFulmarError(error)
  }
}

/** The sentence of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The same failure as a {@link FulmarError}; what has no code of ours is an argument that the boundary refused. */
function toFulmarError(error: unknown): FulmarError {
  if (error instanceof FulmarError) return error
  const message = messageOf(error)
  if (error instanceof Error && error.name === 'RuntimeError') {
    return new FulmarError('PANIC', lastPanic() || message, { cause: error })
  }
  const code = ERROR_CODES.find((known) => error instanceof Error && 'code' in error && known === error.code)
  return new FulmarError(code ?? 'MALFORMED', message, { cause: error })
}

/** The one error type, and the door through which errors of the compiled core become it. */

import { lastPanic } from '../native/index.js'

/** Codes of the core; a test holds this list against the core's own. */
export const CORE_ERROR_CODES = [
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
  'IO',
  'CLOSED',
  'PANIC',
] as const

/** Codes that only TypeScript gives: a call was stopped, cannot be had here, took too long, or the caller's code threw. */
export const OWN_ERROR_CODES = ['ABORTED', 'UNAVAILABLE', 'TIMEOUT', 'USER_CODE'] as const

/** What went wrong, stable across releases. */
export type ErrorCode = (typeof CORE_ERROR_CODES)[number] | (typeof OWN_ERROR_CODES)[number]

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

/** The same failure as a {@link FulmarError}; what has no code of ours is an argument that the boundary refused. */
function toFulmarError(error: unknown): FulmarError {
  if (error instanceof FulmarError) return error
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof Error && error.name === 'RuntimeError') {
    return new FulmarError('PANIC', lastPanic() || message, { cause: error })
  }
  const code = CORE_ERROR_CODES.find(
    (known) => error instanceof Error && 'code' in error && known === error.code,
  )
  return new FulmarError(code ?? 'MALFORMED', message, { cause: error })
}

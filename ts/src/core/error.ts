/** The error type, and the conversion of errors of the compiled core. */

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
 * Code of a failure, stable across releases. `ABORTED`: a signal stopped the call. `UNAVAILABLE`: this machine
 * or build lacks it. `TIMEOUT`: it took too long. `USER_CODE`: a function of the caller threw. `PANIC`: a bug
 * in the core. `TEMPLATE_RAISED`: a chat template called `raise_exception`. `FORBIDDEN`: a template left its
 * sandbox.
 */
export type ErrorCode = (typeof ERROR_CODES)[number]

/**
 * `<argument> must <rule>: got <value>`; other words may follow the colon, and a hint may follow a semicolon.
 */
const SENTENCE = /^([^\n]{1,256}?) (must .*?)(?:: (?:got (.*)|.*))?$/s

/** The opening words of a hint. */
const HINT = /; did you mean .*$/s

/** Errors whose message was written by the caller's code or by a dependency. */
const FOREIGN: readonly ErrorCode[] = ['PANIC', 'USER_CODE', 'TEMPLATE_RAISED']

/**
 * Every failure of this package: a stable `code`, a message, and as `cause` the error it came from, if any.
 * If the message reads `<argument> must <rule>: got <value>`, as most do, its parts are fields.
 *
 * @example
 * ```ts
 * import { FulmarError, Rng } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(
 *   () => Rng.fromSeed(-1),
 *   (error) => error instanceof FulmarError && error.code === 'OUT_OF_RANGE' && error.argument === 'seed' && error.value === '-1',
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

  /**
   * The argument, option or place that is wrong, such as `topP` or `config.grpo.groupSize`; `undefined` if
   * the message names none.
   */
  get argument(): string | undefined {
    return this.#parts()[1]
  }

  /** The rule that was broken, such as `must be in (0, 1]`; `undefined` if the message has none. */
  get rule(): string | undefined {
    return this.#parts()[2]
  }

  /**
   * The value that was given, as the message shows it: digits for a number, quotes around a text, else words.
   * `undefined` if it is not shown.
   */
  get value(): string | undefined {
    return this.#parts()[3]?.replace(HINT, '')
  }

  #parts(): readonly (string | undefined)[] {
    return (FOREIGN.includes(this.code) ? undefined : SENTENCE.exec(this.message)) ?? []
  }
}

/**
 * Calls the compiled core and returns its result.
 *
 * @throws {FulmarError} With the core's code; `PANIC` for a bug in the core, after which the process keeps
 * running.
 */
export function call<T>(body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw toFulmarError(error)
  }
}

/**
 * Calls the compiled core and waits for a result that may come at once or from another thread.
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

/** Returns the message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/**
 * Returns the same failure as a {@link FulmarError}. An error without one of our codes is an argument that
 * the binding rejected.
 */
function toFulmarError(error: unknown): FulmarError {
  if (error instanceof FulmarError) return error
  const message = messageOf(error)
  if (error instanceof Error && error.name === 'RuntimeError') {
    return new FulmarError('PANIC', lastPanic() || message, { cause: error })
  }
  const code = ERROR_CODES.find((known) => error instanceof Error && 'code' in error && known === error.code)
  return new FulmarError(code ?? 'MALFORMED', message, { cause: error })
}

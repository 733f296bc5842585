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

/** `<argument> must <rule>: got <value>`, or other words behind the colon; perhaps a hint behind a semicolon. */
const SENTENCE = /^([^\n]{1,256}?) (must .*?)(?:: (?:got (.*)|.*))?$/s

/** The opening words of a hint. */
const HINT = /; did you mean .*$/s

/** Errors whose sentences are those of others. */
const FOREIGN: readonly ErrorCode[] = ['PANIC', 'USER_CODE', 'TEMPLATE_RAISED']

/**
 * Every failure of this package: a stable `code`, a sentence, and the error it came from as `cause`, if any. Where the sentence reads
 * `<argument> must <rule>: got <value>`, as most do, its parts are fields.
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

  /** The argument, option or place that is wrong, such as `topP` or `config.grpo.groupSize`; `undefined` where the sentence names none. */
  get argument(): string | undefined {
    return this.#parts()[1]
  }

  /** The rule that was broken, such as `must be in (0, 1]`; `undefined` where the sentence names no rule. */
  get rule(): string | undefined {
    return this.#parts()[2]
  }

  /** The value that was given, as the sentence shows it: a number as its digits, a text in quotes, others in words. `undefined` where it is not shown. */
  get value(): string | undefined {
    return this.#parts()[3]?.replace(HINT, '')
  }

  #parts(): readonly (string | undefined)[] {
    return (FOREIGN.includes(this.code) ? undefined : SENTENCE.exec(this.message)) ?? []
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

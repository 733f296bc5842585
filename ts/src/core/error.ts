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
  'OUT_OF_MEMORY',
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
 * sandbox. `OUT_OF_MEMORY`: there is no memory left for what was asked.
 */
export type ErrorCode = (typeof ERROR_CODES)[number]

/**
 * `<argument> must <rule>: got <value>`; other words may follow the colon, and a hint may follow a semicolon. For messages that
 * TypeScript wrote: the core splits its own by the same grammar, and both pass `tests/golden/core/sentences.json`.
 */
const SENTENCE = /^([^\n]{1,256}?) (must .*?)(?:: (?:got (.*)|.*))?$/su

/** The opening words of a hint. */
const HINT = /; did you mean .*$/s

/** Words of the engines of JavaScript for an array that they cannot make. */
const NO_MEMORY = /\balloc(?:ate|ation)|out of memory|array length|buffer size|maximum memory/i

/** Errors whose message was written by the caller's code or by a dependency. */
const FOREIGN: readonly ErrorCode[] = ['PANIC', 'USER_CODE', 'TEMPLATE_RAISED']

/** The parts of a failure that are fields of its {@link FulmarError}. */
export interface ErrorParts {
  /** The argument, option or place that is wrong. @default what the message names before `must` */
  readonly argument?: string | undefined
  /** The rule that was broken, from `must` on. @default the message's */
  readonly rule?: string | undefined
  /** The value that was given. @default what the message shows after `got` */
  readonly value?: string | undefined
}

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
  readonly #given: ErrorParts | undefined

  /** Makes an error. If `options` names no part, the parts are those of the message. */
  constructor(code: ErrorCode, message: string, options: ErrorOptions & ErrorParts = {}) {
    const { argument, rule, value, ...causes } = options
    super(message, causes)
    this.code = code
    if (argument !== undefined) this.#given = { argument, rule, value }
  }

  /**
   * The argument, option or place that is wrong, such as `topP` or `config.grpo.groupSize`; `undefined` if
   * the message names none.
   */
  get argument(): string | undefined {
    return this.#parts().argument
  }

  /** The rule that was broken, such as `must be in (0, 1]`; `undefined` if the message has none. */
  get rule(): string | undefined {
    return this.#parts().rule
  }

  /**
   * The value that was given, as the message shows it: digits for a number, quotes around a text, else words.
   * `undefined` if it is not shown.
   */
  get value(): string | undefined {
    return this.#parts().value
  }

  #parts(): ErrorParts {
    if (this.#given !== undefined) return this.#given
    const found = FOREIGN.includes(this.code) ? null : SENTENCE.exec(this.message)
    const [, argument, rule, value] = found ?? []
    return { argument, rule: rule?.replace(HINT, ''), value: value?.replace(HINT, '') }
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

/** An error on its way through the core. It is not a `cause`, as the binding follows causes, and theirs may have no end. */
class Thrown extends Error {
  /** Its text is the message alone, which is what the binding takes. */
  override readonly name = ''
  readonly thrown: unknown

  constructor(thrown: unknown) {
    super(messageOf(thrown))
    this.thrown = thrown
  }
}

/** Returns `body` for the core to call: the error that the core makes of what it throws has that as its cause. */
export function calledBack<A extends readonly unknown[]>(body: (...args: A) => void): (...args: A) => void {
  return (...args) => {
    try {
      body(...args)
    } catch (thrown) {
      throw new Thrown(thrown)
    }
  }
}

/** Returns the message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/**
 * Returns the same failure as a {@link FulmarError}, with the parts and the cause that the core gave it. An
 * error without one of our codes is an argument that the binding rejected.
 */
function toFulmarError(error: unknown): FulmarError {
  if (error instanceof FulmarError) return error
  const message = messageOf(error)
  if (!(error instanceof Error)) return new FulmarError('MALFORMED', message, { cause: error })
  if (error.name === 'RuntimeError') return trapped(error)
  const coded: Error & { readonly code?: unknown } & ErrorParts = error
  const code = ERROR_CODES.find((known) => known === coded.code)
  if (code !== undefined) {
    const { argument, rule, value, cause = error } = coded
    const source = cause instanceof Thrown ? cause.thrown : cause
    return new FulmarError(code, message, { argument, rule, value, cause: source })
  }
  const hasNoMemory = error instanceof RangeError && NO_MEMORY.test(message)
  return new FulmarError(hasNoMemory ? 'OUT_OF_MEMORY' : 'MALFORMED', message, { cause: error })
}

/** Returns the failure behind a trap of WebAssembly. Of all ends of the core, a failed allocation alone leaves no text. */
function trapped(trap: Error): FulmarError {
  const text = lastPanic()
  if (text === '' && /unreachable/i.test(trap.message)) {
    const message = 'out of memory: WebAssembly has no room left for this call'
    return new FulmarError('OUT_OF_MEMORY', message, { cause: trap })
  }
  return new FulmarError('PANIC', text || trap.message, { cause: trap })
}

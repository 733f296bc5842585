/** Ownership of one native object. */

import type { RawOwner } from '../native/index.js'
import { call, callAsync, FulmarError } from './error.js'

/**
 * Owns a native object for the class around it. Converts its errors, throws `CLOSED` after `free`, and frees
 * its memory when V8 collects the owner.
 */
export class Handle<T extends RawOwner> {
  readonly #name: string
  #raw: T | undefined
  #before: (() => void) | undefined

  /**
   * `name` is the class for messages; `make` creates the native object.
   * @throws {FulmarError} Errors of
   * `make`.
   */
  constructor(name: string, make: () => T) {
    this.#name = name
    const raw = call(make)
    raw.watch?.()
    this.#raw = raw
  }

  /** @throws {FulmarError} `CLOSED` after `free`; else errors of the core. */
  call<R>(body: (raw: T) => R): R {
    return call(() => body(this.#open()))
  }

  /** @throws {FulmarError} `CLOSED` after `free`; else errors of the core. Always as a rejection. */
  callAsync<R>(body: (raw: T) => R | Promise<R>): Promise<R> {
    return callAsync(() => body(this.#open()))
  }

  /** False after `free`. */
  get isOpen(): boolean {
    return this.#raw !== undefined
  }

  /** Runs `before` ahead of each later use, behind what was given earlier: work that was put off. */
  precede(before: () => void): void {
    const earlier = this.#before
    this.#before = () => {
      earlier?.()
      before()
    }
  }

  /** Does the work that was put off. */
  settle(): void {
    if (this.#raw) this.#before?.()
  }

  /** Frees the native memory. A second call does nothing. */
  free(): void {
    const raw = this.#raw
    this.#raw = undefined
    if (raw) call(() => raw.free())
  }

  #open(): T {
    this.settle()
    if (this.#raw) return this.#raw
    throw new FulmarError('CLOSED', `${this.#name} must be open: it was disposed`)
  }
}

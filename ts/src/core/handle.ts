/** Ownership of one object of the compiled core. */

import type { RawOwner } from '../native/index.js'
import { call, callAsync, FulmarError } from './error.js'

/**
 * Holds a raw object for the class around it: converts its errors, refuses its use after `free` by name, and has the memory of one that was
 * forgotten given back when V8 collects it.
 */
export class Handle<T extends RawOwner> {
  readonly #name: string
  #raw: T | undefined

  /**
   * `name` is the class for messages, `make` makes the raw object.
   * @throws {FulmarError} What `make` says.
   */
  constructor(name: string, make: () => T) {
    this.#name = name
    const raw = call(make)
    raw.watch?.()
    this.#raw = raw
  }

  /** @throws {FulmarError} `CLOSED` after `free`; else what the core says. */
  call<R>(body: (raw: T) => R): R {
    return call(() => body(this.#open()))
  }

  /** @throws {FulmarError} `CLOSED` after `free`; else what the core says. Always as a rejection. */
  callAsync<R>(body: (raw: T) => R | Promise<R>): Promise<R> {
    return callAsync(() => body(this.#open()))
  }

  /** Gives the native memory back. A second call does nothing. */
  free(): void {
    const raw = this.#raw
    this.#raw = undefined
    if (raw) call(() => raw.free())
  }

  #open(): T {
    if (this.#raw) return this.#raw
    throw new FulmarError('CLOSED', `${this.#name} must be open: got a disposed one`)
  }
}

/** Bytes of several files that are fetched at once, as one sum. */

import type { FetchEvent } from '../telemetry/index.js'

/** Adds up the bytes of files and reports the sum. */
export class Tally {
  readonly #name: string
  readonly #onProgress: ((event: FetchEvent) => void) | undefined
  readonly #bytesOf = new Map<string, number>()
  readonly #sizeOf = new Map<string, number>()
  #bytes = 0
  #totalBytes = 0

  constructor(name: string, onProgress: ((event: FetchEvent) => void) | undefined) {
    this.#name = name
    this.#onProgress = onProgress
  }

  /** Takes note of a file before its first byte. A size that is unknown makes that of the sum unknown. */
  expect(file: string, sizeBytes: number | undefined): void {
    this.#bytesOf.set(file, 0)
    this.#measure(file, sizeBytes)
  }

  /** Takes note of the bytes of a file that are there. */
  update(file: string, bytes: number, sizeBytes?: number): void {
    this.#bytes += bytes - (this.#bytesOf.get(file) ?? 0)
    this.#bytesOf.set(file, bytes)
    this.#measure(file, sizeBytes)
    this.#report(false)
  }

  /** Reports the end. */
  end(): void {
    this.#report(true)
  }

  #measure(file: string, sizeBytes: number | undefined): void {
    if (sizeBytes === undefined) return
    this.#totalBytes += sizeBytes - (this.#sizeOf.get(file) ?? 0)
    this.#sizeOf.set(file, sizeBytes)
  }

  #report(isDone: boolean): void {
    if (this.#onProgress === undefined) return
    const isKnown = this.#sizeOf.size === this.#bytesOf.size
    const total = isKnown ? { totalBytes: this.#totalBytes } : {}
    this.#onProgress({ event: 'fetch', name: this.#name, bytes: this.#bytes, ...total, isDone })
  }
}

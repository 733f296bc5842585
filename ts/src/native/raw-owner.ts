/** The parts of the raw interface that no binding declares. */

/** An object that owns native memory until `free`. */
export interface RawOwner {
  free(): void
  /** Natively: has what the object holds given back as soon as V8 has collected it. */
  watch?(): void
}

/** A method's answer: at once in WebAssembly, later from a worker thread of the addon. Await both. */
export type Later<T> = T | Promise<T>

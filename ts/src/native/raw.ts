/**
 * The raw interface: what the addon and the WebAssembly module both offer, name by name.
 *
 * One section a crate. Long methods return a promise on the addon and the value itself in WebAssembly: `await` both.
 */

/** An object that owns native memory until `free`. */
export interface RawOwner {
  free(): void
}

/** A method's answer: at once in WebAssembly, later from a worker thread of the addon. */
export type Later<T> = T | Promise<T>

// core

export interface RawPanicProbe extends RawOwner {
  panic(): void
  panicLater(): Later<void>
}

export interface RawRng extends RawOwner {
  state(): BigUint64Array
  stream(name: string): RawRng
  fork(index: number): RawRng
  nextU32(): number
  uniform(): number
  normal(): number
  below(bound: number): number
  permutation(count: number): Uint32Array
}

export interface RawCore {
  describe(): string
  errorCodes(): string[]
  readonly PanicProbe: new (now: boolean) => RawPanicProbe
  readonly Rng: { new (seed: number): RawRng; fromState(state: BigUint64Array): RawRng }
}

/** Everything: a room adds its own interface above and its name here. */
export interface Raw extends RawCore {}

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

// model

export interface RawScores {
  readonly logProb: Float32Array
  readonly entropy: Float32Array
}

export interface RawDecoder extends RawOwner {
  configJson(): string
  numParameters(): number
  toSafetensors(): Later<Uint8Array>
  score(ids: Uint32Array, offsets: Uint32Array, mask: Uint8Array): Later<RawScores>
  forward(ids: Uint32Array, offsets: Uint32Array, mask: Uint8Array): Later<RawScores>
  backward(gradLogProb: Float32Array, gradEntropy?: Float32Array): Later<void>
}

export interface RawGenerated {
  readonly ids: Uint32Array
  readonly offsets: Uint32Array
  readonly logProb: Float32Array
  readonly sampledLogProb: Float32Array
  /** 0 live, 1 stopped, 2 at its length. */
  readonly finish: Uint8Array
}

export interface RawGeneration extends RawOwner {
  step(count: number): Later<number>
  sequences(): RawGenerated
}

export interface RawStepReport {
  readonly step: number
  readonly gradientNorm: number
  readonly clipCoefficient: number
}

export interface RawAdamW extends RawOwner {
  step(learningRate?: number, maxNorm?: number): Later<RawStepReport>
  toSafetensors(): Later<Uint8Array>
}

export interface RawModel {
  readonly Decoder: {
    new (configJson: string, seed: number): RawDecoder
    fromSafetensors(configJson: string, bytes: Uint8Array): RawDecoder
  }
  readonly Generation: new (
    decoder: RawDecoder,
    ids: Uint32Array,
    offsets: Uint32Array,
    seeds: Float64Array,
    optionsJson: string,
  ) => RawGeneration
  readonly AdamW: {
    new (decoder: RawDecoder, optionsJson: string): RawAdamW
    fromSafetensors(decoder: RawDecoder, optionsJson: string, bytes: Uint8Array): RawAdamW
  }
}

/** Everything: a room adds its own interface above and its name here. */
export interface Raw extends RawCore, RawModel {}

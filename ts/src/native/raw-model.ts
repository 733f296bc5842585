/** The raw interface of the decoder, its engine, optimisers and plans. */

import type { Later, RawOwner } from './raw.js'

export interface RawScores {
  readonly logProb: Float32Array
  readonly entropy: Float32Array
  readonly topIds: Uint32Array
  readonly topLogProb: Float32Array
}

export interface RawDecoder extends RawOwner {
  configJson(): string
  dtype(): string
  moveTo(device: string): void
  snapshot(): Later<RawDecoder>
  numParameters(): number
  toSafetensors(): Later<Uint8Array>
  /** Only the addon has it: WebAssembly has no files. */
  saveFolder?(path: string): Later<void>
  /** Only the addon has it. */
  saveAdapter?(path: string): Later<void>
  /** Only the addon has it. */
  loadAdapter?(path: string): Later<number>
  folderFileNames(): Later<string[]>
  folderFile(name: string): Later<Uint8Array>
  setExtraFile(name: string, bytes: Uint8Array): void
  /** Nothing where there is no adapter. */
  numLoraParameters(): number | null | undefined
  scoreBase(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array,
  ): Later<RawScores>
  addLora(configJson: string, seed: number): Later<number>
  loadLora(configJson: string, bytes: Uint8Array): Later<number>
  mergeLora(): Later<void>
  loraToSafetensors(): Later<Uint8Array>
  loraConfigJson(): Later<string>
  score(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array,
    topK?: number,
  ): Later<RawScores>
  forward(ids: Uint32Array, offsets: Uint32Array, mask: Uint8Array, positions?: Uint32Array): Later<RawScores>
  /** `[3 T]`: log-probs, entropies, and logarithms of sums of squared probabilities. */
  forwardWithSquares(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array,
  ): Later<Float32Array>
  backward(gradLogProb: Float32Array, gradEntropy?: Float32Array): Later<void>
  withScalarHead(headJson: string, seed: number): Later<RawDecoder>
  values(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array,
  ): Later<Float32Array>
  forwardValues(
    ids: Uint32Array,
    offsets: Uint32Array,
    mask: Uint8Array,
    positions?: Uint32Array,
  ): Later<Float32Array>
  backwardValues(gradValue: Float32Array): Later<void>
  recomputeActivations(recomputes: boolean): Later<void>
  traceBytes(): number
  flops(length: number): number
}

export interface RawPackPlan extends RawOwner {
  items(): Uint32Array
  offsets(): Uint32Array
}

export interface RawStreamPacker extends RawOwner {
  /** Empty if no row leaves. */
  push(item: number, length: number): Uint32Array
  flush(): RawPackPlan
}

export interface RawUnpaddedTokenBatch extends RawOwner {
  ids(): Uint32Array
  offsets(): Uint32Array
  mask(): Uint8Array
  positions(): Uint32Array
  pad(values: Float32Array): Float32Array
  unpad(padded: Float32Array): Float32Array
}

export interface RawEngineOutputs {
  readonly requests: Float64Array
  readonly ids: Uint32Array
  readonly logProb: Float32Array
  readonly sampledLogProb: Float32Array
  readonly versions: Float64Array
  readonly topOffsets: Uint32Array
  readonly topIds: Uint32Array
  readonly topLogProb: Float32Array
  readonly finished: Float64Array
  /** 0 aborted, 1 stopped, 2 at its length, 3 for logits that are not finite. */
  readonly finish: Uint8Array
}

export interface RawEngine extends RawOwner {
  add(promptIds: Uint32Array, seed: number, paramsJson: string): number
  abort(request: number): boolean
  turn(): Later<number>
  outputs(): RawEngineOutputs
  numFreePages(): number
}

export interface RawStepReport {
  readonly step: number
  readonly gradientNorm: number
  readonly clipCoefficient: number
}

export interface RawOptimizer extends RawOwner {
  step(learningRate?: number, maxNorm?: number): Later<RawStepReport>
  toSafetensors(): Later<Uint8Array>
}

export interface RawModel {
  /** `tokenizer.json`, `tokenizer_config.json`, and `chat_template.jinja` if there is one. */
  ggufTokenizer(bytes: Uint8Array): string[]
  readonly Decoder: {
    new (configJson: string, seed: number, dtype: string): RawDecoder
    fromSafetensors(configJson: string, bytes: Uint8Array, dtype: string): RawDecoder
    fromGguf(bytes: Uint8Array, dtype: string): Later<RawDecoder>
    /** Only the addon has it: WebAssembly has no files. */
    fromFolder?(path: string, dtype: string): Later<RawDecoder>
  }
  readonly Engine: new (decoder: RawDecoder, optionsJson: string) => RawEngine
  readonly Optimizer: {
    new (decoder: RawDecoder, name: string, optionsJson: string): RawOptimizer
    fromSafetensors(decoder: RawDecoder, name: string, optionsJson: string, bytes: Uint8Array): RawOptimizer
  }
  readonly PackPlan: {
    pack(lengths: Uint32Array, capacity: number, strategyJson: string | undefined): RawPackPlan
    balance(costs: Float64Array, numWorkers: number): RawPackPlan
  }
  readonly StreamPacker: { create(capacity: number, maxOpen: number): RawStreamPacker }
  readonly UnpaddedTokenBatch: {
    /** Empty positions count from each row's first token. */
    create(
      ids: Uint32Array,
      attentionMask: Uint8Array,
      mask: Uint8Array,
      positions: Uint32Array,
      width: number,
    ): RawUnpaddedTokenBatch
  }
  scheduledRate(scheduleJson: string, step: number, numSteps: number): number
}

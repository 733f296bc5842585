/**
 * The raw interface: what the addon and the WebAssembly module both offer, name by name.
 *
 * One section a crate; those of the decoder, of losses and of replay buffers have files of their own. Long methods return a promise on the addon and the value
 * itself in WebAssembly: `await` both.
 */

import type { RawModel } from './raw-model.js'
import type { RawObjective } from './raw-objective.js'
import type { RawReplay } from './raw-replay.js'

export type * from './raw-model.js'
export type * from './raw-objective.js'
export type * from './raw-replay.js'

/** An object that owns native memory until `free`. */
export interface RawOwner {
  free(): void
  /** Natively: has what the object holds given back as soon as V8 has collected it. */
  watch?(): void
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
  belowAt(path: Float64Array, bound: number): number
  permutation(count: number): Uint32Array
}

export interface RawCore {
  describe(): string
  gpus(): string
  placeDevice(name: string): string
  errorCodes(): string[]
  readonly PanicProbe: new (now: boolean) => RawPanicProbe
  readonly Rng: { new (seed: number): RawRng; fromState(state: BigUint64Array): RawRng }
}

// template

export interface RawRenderedText {
  readonly text: string
  readonly spans?: Uint32Array | null | undefined
}

export interface RawTemplate extends RawOwner {
  hasGeneration(): boolean
  render(input: string): RawRenderedText
}

/** Entries, queries and choices are JSON text. */
export interface RawTemplateRegistry extends RawOwner {
  register(name: string, entry: string): void
  names(): string[]
  source(name: string): string
  select(query: string): string
}

export interface RawTemplates {
  readonly Template: new (source: string, limits: string) => RawTemplate
  readonly TemplateRegistry: new () => RawTemplateRegistry
}

// tokenizer

export interface RawEncoding {
  readonly ids: Uint32Array
  readonly offsets: Uint32Array
}

export interface RawEncodingBatch extends RawEncoding {
  readonly rows: Uint32Array
}

export interface RawTokenizer extends RawOwner {
  toJson(): string
  /** A JSON object. */
  specialTokens(): string
  /** Two JSON lists of ids. */
  surroundings(): string
  chatTemplate(name: string): string | null | undefined
  vocabSize(): number
  /** `added`: markers that the text spells become ids. */
  encode(text: string, added: boolean): RawEncoding
  encodeBatch(texts: string[], added: boolean): RawEncodingBatch
  decode(ids: Uint32Array, skipSpecial: boolean): string
  idOf(token: string): number | null | undefined
  tokenOf(id: number): string | null | undefined
  isSpecial(id: number): boolean
}

export interface RawDecodeStream extends RawOwner {
  push(id: number): string
  finish(): string
}

export interface RawTokenizers {
  readonly Tokenizer: {
    characters(options: string): RawTokenizer
    charactersFromJson(text: string): RawTokenizer
    /** `files`: JSON of the other files in the folder of `tokenizer.json`. */
    huggingFace(tokenizer: string, files: string): RawTokenizer
    /** `special`: JSON list of `[name, id]`. */
    tiktoken(ranks: Uint8Array, pattern: string, special: string): RawTokenizer
    tiktokenFromJson(text: string): RawTokenizer
    trainByteBpe(texts: string[], vocabSize: number, special: string[]): string
    offsetsIn(text: string, offsets: Uint32Array, unit: string): Uint32Array
  }
  readonly DecodeStream: new (tokenizer: RawTokenizer, skipSpecial: boolean) => RawDecodeStream
}

// chat

export interface RawRenderer extends RawOwner {
  /** With contents the messages are packed, see `History::from_packed`; for the answer see `Rendered::to_words`. */
  render(messages: string, contents: Uint8Array | undefined, options: string): Uint32Array
  renderText(messages: string, contents: Uint8Array | undefined, options: string): string
  /** Returns the addition of the next prompt, see `Extension::to_words`, or the name of a refusal. */
  bridge(
    prompt: Uint32Array,
    completion: Uint32Array,
    messages: string,
    contents: Uint8Array | undefined,
    tools: string,
  ): Uint32Array | string
  parse(ids: Uint32Array, prompt: Uint32Array | undefined, tools: string): string
  /** A JSON object. */
  facts(): string
}

export interface RawSamples {
  readonly offsets: Uint32Array
  readonly ids: Uint32Array
  readonly mask: Uint8Array
  readonly logProbs: Float32Array
  readonly sampledLogProbs: Float32Array
  readonly versions: Uint32Array
  readonly advantages: Float32Array
  readonly turnIds: Uint32Array
  readonly minPolicyVersions: Uint32Array
  readonly maxPolicyVersions: Uint32Array
}

export interface RawLedger extends RawOwner {
  toJson(): string
  toBytes(): Uint8Array
  /** By position: an object of arrays takes ten times as long to read. */
  recordTurn(
    promptIds: Uint32Array,
    completionIds: Uint32Array,
    logProbs: Float32Array,
    sampledLogProbs: Float32Array,
    versions: Uint32Array | undefined,
    origins: Uint8Array | undefined,
    messageIndices: Int32Array | undefined,
    options: string,
  ): string
  numTokens(): number
  numTurns(): number
  pathIds(): Uint32Array
  samples(): RawSamples
  trainingSamples(advantage?: number | null): RawSamples
}

export interface RawEncodedChats {
  /** `[S + 1]`. */
  readonly offsets: Uint32Array
  readonly ids: Uint32Array
  /** Empty if no mask was asked for. */
  readonly assistantMask: Uint8Array
}

export interface RawHistory extends RawOwner {
  /** -1 where rows differ. */
  shape(): Int32Array
  toJson(): string
  copy(): RawHistory
  at(index: number): RawHistory
  slice(start: number, end: number): RawHistory
  unsqueeze(dim: number): RawHistory
  padded(): RawHistory
  unpadded(): RawHistory
  /** In place. */
  append(dim: number, item: RawHistory): void
  /** In place. */
  extend(dim: number, items: RawHistory): void
  render(template: RawTemplate, options: string): string[]
  encode(template: RawTemplate, tokenizer: RawTokenizer, options: string): RawEncodedChats
}

export interface RawRenderedColumns {
  readonly ids: Uint32Array
  readonly messageIndices: Int32Array
  readonly sampledMask: Uint8Array
  readonly isContent: Uint8Array
  readonly origins: Uint8Array
}

export interface RawTokenMasks {
  readonly assistant: Uint8Array
  readonly sampled: Uint8Array
  readonly endOfTurn: Uint8Array
}

export interface RawChat {
  contentBase(piece: string): string
  tokenMasks(rendered: RawRenderedColumns, stopIds: Uint32Array, options: string): RawTokenMasks
  readonly History: {
    /** With contents the messages are packed, see `History::from_packed`. */
    new (messages: string, contents?: Uint8Array): RawHistory
    fromText(text: string, template?: string, eosToken?: string): RawHistory
    zero(shape: Float64Array): RawHistory
  }
  readonly Renderer: new (tokenizer: RawTokenizer, config: string) => RawRenderer
  readonly Ledger: {
    new (): RawLedger
    fromJson(text: string): RawLedger
    fromBytes(bytes: Uint8Array): RawLedger
  }
}

// tensor

export interface RawTensor extends RawOwner {
  dtype(): string
  shape(): Float64Array
  bytes(): Uint8Array
  toFloat32(): Float32Array
  select(dim: number, index: number): RawTensor
  slice(dim: number, start: number, end: number): RawTensor
  reshape(shape: Float64Array): RawTensor
  transpose(left: number, right: number): RawTensor
  indexSelect(dim: number, indices: Float64Array): RawTensor
  to(dtype: string): RawTensor
  device(): string
  toDevice(device: string): RawTensor
  view(shape: Float64Array): RawTensor
  permute(order: Float64Array): RawTensor
  squeeze(dim: number): RawTensor
  unsqueeze(dim: number): RawTensor
  expand(shape: Float64Array): RawTensor
  repeat(counts: Float64Array): RawTensor
  at(indexJson: string): RawTensor
  sum(): RawTensor
  sumDim(dim: number): RawTensor
  equals(other: RawTensor): boolean
}

export interface RawTensorList extends RawOwner {
  push(tensor: RawTensor): void
  stack(dim: number): RawTensor
  cat(dim: number): RawTensor
  ragged(): RawRagged
}

export interface RawRagged extends RawOwner {
  values(): RawTensor
  offsets(): Uint32Array
  row(index: number): RawTensor
  slice(start: number, end: number): RawRagged
  indexSelect(indices: Float64Array): RawRagged
  toPadded(side: string, fill: number): RawTensor
  equals(other: RawRagged): boolean
}

export interface RawTensorDict extends RawOwner {
  device(): string | null | undefined
  saveMemmap(path: string): void
  toArchive(): Uint8Array
  toConsolidated(): Uint8Array
  sizeBytes(): number
  batchSize(): Float64Array
  names(): string[]
  nestedKeys(): string
  leafKeys(): string
  kind(path: string[]): string | null | undefined
  tensor(path: string[]): RawTensor
  ragged(path: string[]): RawRagged
  dict(path: string[]): RawTensorDict
  value(path: string[]): string
  setTensor(path: string[], tensor: RawTensor): void
  setRagged(path: string[], ragged: RawRagged): void
  setDict(path: string[], dict: RawTensorDict): void
  setShared(path: string[], valueJson: string): void
  setEach(path: string[], valuesJson: string): void
  remove(path: string[]): boolean
  index(at: number): RawTensorDict
  slice(start: number, end: number): RawTensorDict
  indexSelect(indices: Float64Array): RawTensorDict
  select(pathsJson: string): RawTensorDict
  exclude(pathsJson: string): RawTensorDict
  operate(operationJson: string): RawTensorDict
  part(partitionJson: string): RawTensorDictList
  setAt(indexJson: string, part: RawTensorDict): void
  writeAt(path: string[], indexJson: string, value: RawTensor): void
  writeAll(other: RawTensorDict): void
  fillAt(indexJson: string, value: number): void
  whereElse(mask: RawTensor, other: RawTensorDict): RawTensorDict
  dimNames(): string
  setDimNames(namesJson: string): void
  refineDimNames(namesJson: string): void
  update(other: RawTensorDict): void
  rename(old: string[], new_: string[], safe: boolean): void
  setLocked(locked: boolean): void
  locked(): boolean
  equals(other: RawTensorDict): boolean
}

export interface RawTensorDictList extends RawOwner {
  push(dict: RawTensorDict): void
  count(): number
  get(at: number): RawTensorDict
  padSequence(dim: number, value: number, mask: string | undefined): RawTensorDict
  lazyStack(dim: number): RawLazyStack
  stack(dim: number): RawTensorDict
  cat(dim: number): RawTensorDict
}

export interface RawLazyStack extends RawOwner {
  dim(): number
  batchSize(): Float64Array
  names(): string
  leafKeys(): string
  parts(): RawTensorDictList
  at(indexJson: string): RawStacked
  ragged(path: string[]): RawRagged
  padded(path: string[], side: string, fill: number): RawTensor
  set(path: string[], holder: RawTensorDict): void
  setPart(at: number, item: RawTensorDict): void
  insert(at: number, part: RawTensorDict): void
  cat(other: RawLazyStack): RawLazyStack
  stack(other: RawLazyStack): RawLazyStack
  select(pathsJson: string): RawLazyStack
  dense(): RawTensorDict
  densify(): RawTensorDict
  maybeDense(): RawStacked
  equals(other: RawLazyStack): boolean
}

export interface RawStacked extends RawOwner {
  isDict(): boolean
  dict(): RawTensorDict
  lazy(): RawLazyStack
}

export interface RawSafetensorsFile extends RawOwner {
  names(): string[]
  tensor(name: string): RawTensor
  set(name: string, tensor: RawTensor): void
  metadata(): string
  unread(): string
  bytes(): Uint8Array
}

export interface RawTensors {
  readonly Tensor: {
    fromBytes(dtype: string, shape: Float64Array, bytes: Uint8Array): RawTensor
    zeros(dtype: string, shape: Float64Array): RawTensor
  }
  readonly TensorList: { empty(): RawTensorList }
  readonly Ragged: { fromValues(values: RawTensor, offsets: Uint32Array): RawRagged }
  readonly TensorDict: {
    empty(batchSize: Float64Array): RawTensorDict
    loadMemmap(path: string): RawTensorDict
    readArchive(bytes: Uint8Array): RawTensorDict
    readConsolidated(bytes: Uint8Array): RawTensorDict
  }
  readonly TensorDictList: { empty(): RawTensorDictList }
  readonly SafetensorsFile: {
    empty(metadataJson: string): RawSafetensorsFile
    read(bytes: Uint8Array): RawSafetensorsFile
  }
}

// spec

/** A tensor, rows, a dictionary or JSON values on their way to a spec or from it. */
export interface RawSpecValue extends RawOwner {
  kind(): string
  tensor(): RawTensor | null | undefined
  ragged(): RawRagged | null | undefined
  dict(): RawTensorDict | null | undefined
  json(): string | null | undefined
}

export interface RawTensorSpec extends RawOwner {
  toJson(): string
  kind(): string
  /** -1 for a dynamic dimension. */
  shape(): Float64Array
  dtype(): string | null | undefined
  check(value: RawSpecValue, strict: boolean): void
  explain(value: RawSpecValue, strict: boolean): string | null | undefined
  project(value: RawSpecValue): RawSpecValue
  rand(seed: number, batch: Float64Array): RawSpecValue
  zero(batch: Float64Array): RawSpecValue
  one(batch: Float64Array): RawSpecValue
  encode(valueJson: string): RawSpecValue
  decode(value: RawSpecValue): string
  enumerate(useMask: boolean): RawSpecValue
  cardinality(): string | null | undefined
  toOneHot(value: RawTensor): RawTensor
  toCategorical(value: RawTensor): RawTensor
  index(value: RawTensor, table: RawTensor): RawTensor
  low(): RawTensor | null | undefined
  high(): RawTensor | null | undefined
  nvec(): RawTensor | null | undefined
  mask(): RawTensor | null | undefined
  setMask(mask: RawTensor): void
  clearMask(): void
  operate(operationJson: string): RawTensorSpec
  unbind(dim: number): RawTensorSpecList
  parts(): RawTensorSpecList
  stackDim(): number | null | undefined
  keys(): string
  nestedKeys(): string
  leafKeys(): string
  has(path: string[]): boolean
  get(path: string[]): RawTensorSpec | null | undefined
  set(path: string[], entry: RawTensorSpec): void
  setAny(path: string[]): void
  remove(path: string[]): boolean
  update(other: RawTensorSpec): void
  containsLazy(): boolean
  noExclusiveKeys(): boolean
  equals(other: RawTensorSpec): boolean
}

export interface RawTensorSpecList extends RawOwner {
  push(spec: RawTensorSpec): void
  count(): number
  get(at: number): RawTensorSpec | null | undefined
  stack(dim: number): RawTensorSpec
  choice(): RawTensorSpec
  stacked(dim: number): RawTensorSpec
}

export interface RawSpecs {
  readonly SpecValue: {
    fromTensor(tensor: RawTensor): RawSpecValue
    fromRagged(ragged: RawRagged): RawSpecValue
    fromDict(dict: RawTensorDict): RawSpecValue
    fromShared(valueJson: string): RawSpecValue
    fromEach(shape: Float64Array, valuesJson: string): RawSpecValue
  }
  readonly TensorSpec: {
    fromJson(json: string): RawTensorSpec
    fromDict(dict: RawTensorDict, unsqueezeNullShapes: boolean, dynamicShape: boolean): RawTensorSpec
  }
  readonly TensorSpecList: { empty(): RawTensorSpecList }
}

// transform

/** Transforms that run one after another. */
export interface RawTransforms extends RawOwner {
  push(other: RawTransforms): void
  forward(dict: RawTensorDict): RawTensorDict
  inverse(dict: RawTensorDict): RawTensorDict | null | undefined
  flush(): RawTensorDict | null | undefined
  clear(): void
  state(): RawTensorDict
  loadState(state: RawTensorDict): void
  setPolicyVersion(version: number): void
}

export interface RawTrajectorySplit extends RawOwner {
  padded(dict: RawTensorDict): RawTensorDict
  ragged(dict: RawTensorDict): RawTensorDict
}

export interface RawTransformRoom {
  readonly Transforms: { create(transformsJson: string): RawTransforms }
  readonly TrajectorySplit: { create(optionsJson: string): RawTrajectorySplit }
}

// ted

/** Keys of the entries of steps that are not observations. A ring crosses as JSON. */
export interface RawTedKeys extends RawOwner {
  flat(steps: RawTensorDict, ringJson: string): RawTensorDict
  nested(steps: RawTensorDict, ringJson: string): RawTensorDict
  stepsOfFlat(flat: RawTensorDict): RawTensorDict
  stepsOfNested(nested: RawTensorDict): RawTensorDict
  split(nested: RawTensorDict): RawTensorDict
  combine(split: RawTensorDict): RawTensorDict
}

export interface RawHdf5File extends RawOwner {
  dict(): RawTensorDict
  bytes(): Uint8Array
}

export interface RawTed {
  readonly TedKeys: { create(optionsJson: string): RawTedKeys }
  readonly Hdf5File: { read(bytes: Uint8Array): RawHdf5File; of(dict: RawTensorDict): RawHdf5File }
}

/** Everything: a room adds its own interface above and its name here. */
export interface Raw
  extends RawCore,
    RawTemplates,
    RawModel,
    RawTensors,
    RawSpecs,
    RawReplay,
    RawTransformRoom,
    RawTed,
    RawObjective,
    RawTokenizers,
    RawChat {}

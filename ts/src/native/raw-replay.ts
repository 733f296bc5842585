/** The raw interface of replay buffers and their parts. */

import type { RawOwner, RawTensor, RawTensorDict, RawTensorDictList } from './raw.js'

/** Storage of the items of buffers. Rows are doubles. */
export interface RawStorage extends RawOwner {
  capacity(): number
  shape(): Float64Array
  count(): number
  set(rows: Float64Array, items: RawTensorDict): void
  get(rows: Float64Array): RawTensorDict
  clear(): void
}

/** Exchange of data between the core and a part in JavaScript. */
export interface RawMailbox extends RawOwner {
  putItems(items: RawTensorDict): void
  takeItems(): RawTensorDict | null | undefined
  putNumbers(numbers: Float64Array): void
  putText(text: string): void
  takeText(): string | null | undefined
}

/** Callback of a part in JavaScript. */
export type RawAnswer = (operation: string, numbers: Float64Array) => void

export interface RawReplayBatch extends RawOwner {
  items(): RawTensorDict
  rows(): Float64Array
  info(): RawTensorDict
}

/** A batch that was drawn and may still have to be copied. */
export interface RawPendingBatch extends RawOwner {
  isLast(): boolean
  isReady(): boolean
  batch(): RawReplayBatch
}

export interface RawReplayState extends RawOwner {
  parts(): string
  items(): RawTensorDictList
  ahead(): RawTensorDictList
}

/** Indices are JSON text, rows doubles, -1 for an item that was not kept. */
export interface RawReplayBuffer extends RawOwner {
  storage(): RawStorage
  count(): number
  stats(): string
  add(item: RawTensorDict): number
  extend(items: RawTensorDict, prioritized: boolean): Float64Array
  sample(count: number | undefined): RawReplayBatch
  nextBatch(): RawPendingBatch
  sampleInto(count: number | undefined, out: RawReplayBatch): void
  batchOf(rows: Float64Array): RawReplayBatch
  at(indexJson: string): RawTensorDict
  setAt(indexJson: string, items: RawTensorDict): void
  setKeyAt(path: string[], value: RawTensor, indexJson: string): void
  updatePriority(rows: Float64Array, priorities: Float32Array): void
  updateTensorDictPriority(batch: RawTensorDict): void
  markUpdate(rows: Float64Array): void
  generationsOf(rows: Float64Array): Float64Array
  updateIfPresent(
    rows: Float64Array,
    generations: Float64Array,
    patch: RawTensorDict,
    versionPath: string[],
    versions: Float64Array,
    requireNewer: boolean,
  ): string
  writeAt(rows: Float64Array, items: RawTensorDict): void
  readAll(end: number | undefined): RawTensorDict
  writeAll(items: RawTensorDict, end: number | undefined): void
  query(predicateJson: string, trajectoriesJson: string): RawTensorDictList
  parameter(name: string): number
  setParameter(name: string, value: number): void
  ranOut(): boolean
  clear(keepsCount: boolean): void
  state(): RawReplayState
  restore(state: RawReplayState): void
}

export interface RawReplayBufferList extends RawOwner {
  push(buffer: RawReplayBuffer): void
  ensemble(optionsJson: string): RawReplayBufferEnsemble
}

export interface RawReplayBufferEnsemble extends RawOwner {
  sample(count: number | undefined): RawEnsembleBatch
  at(indexJson: string): RawTensorDict
  /** Buffer and row of each item, one after the other. */
  extend(items: RawTensorDict): Float64Array
}

export interface RawEnsembleBatch extends RawOwner {
  items(): RawTensorDict
  bufferIds(): Float64Array
  part(at: number): RawReplayBatch
}

export interface RawHindsight extends RawOwner {
  check(items: RawTensorDict): void
  extend(rows: Float64Array, items: RawTensorDict): void
  relabel(buffer: RawReplayBuffer, batch: RawReplayBatch): number
  setRewards(batch: RawReplayBatch, count: number, rewards: RawTensor): void
  clear(): void
}

export interface RawRateLimiter extends RawOwner {
  sample(count: number): void
  insert(count: number): void
  remove(count: number): void
  counts(): Float64Array
}

export interface RawPriorityTree extends RawOwner {
  update(rows: Float64Array, leaves: Float64Array): void
  sumIn(start: number, end: number): number
  minIn(start: number, end: number): number | null | undefined
  max(): Float64Array
  leaves(rows: Float64Array): Float64Array
  lowerBound(sums: Float64Array): Float64Array
  clear(): void
}

export interface RawParameterScheduler extends RawOwner {
  step(buffer: RawReplayBuffer): void
}

/** A storage over a folder. Syncs are at intervals in milliseconds: 0 for every write, none at all if absent. */
export interface RawDurableStorage extends RawOwner {
  storage(): RawStorage
  commit(): void
  tick(nowMs: number): void
  sync(): void
  damagedRows(): Float64Array
  stats(): string
}

/** A storage in files that processes share. */
export interface RawLazyMemmapStorage extends RawOwner {
  storage(): RawStorage
  path(): string
  cleanup(): boolean
}

/** Functions that only the addon has: WebAssembly has no files and no sockets. */
export interface RawReplayDisk {
  storeStorage(shape: Float64Array, optionsJson: string): RawStorage
  dumpReplayBuffer(buffer: RawReplayBuffer, path: string, checkpointerJson: string): void
  loadReplayBuffer(buffer: RawReplayBuffer, path: string, checkpointerJson: string): void
  dumpReplayBufferEnsemble(ensemble: RawReplayBufferEnsemble, path: string, memberJson: string): void
  loadReplayBufferEnsemble(ensemble: RawReplayBufferEnsemble, path: string, memberJson: string): void
  readonly LazyMemmapStorage: { open(shape: Float64Array, optionsJson: string): RawLazyMemmapStorage }
  readonly DurableStorage: {
    open(
      path: string,
      shape: Float64Array,
      intervalMs: number | undefined,
      segmentBytes: number | undefined,
    ): RawDurableStorage
  }
}

/** Functions that only the addon has: WebAssembly has one thread. */
export interface RawReplayThreads {
  /** Returns the id of the shared buffer: `id`, or an earlier one. */
  shareReplayBuffer(buffer: RawReplayBuffer, id: string): string
  attachReplayBuffer(id: string): RawReplayBuffer
  copyAhead(buffer: RawReplayBuffer): Promise<void>
  copyBatch(pending: RawPendingBatch): Promise<void>
}

/** Lane, first step, last step and length of each trajectory, one after the other. */
export interface RawTrajectories extends RawOwner {
  spans(): Float64Array
}

export interface RawReplay extends Partial<RawReplayDisk>, Partial<RawReplayThreads> {
  foreignStorage(capacity: number, mailbox: RawMailbox, answer: RawAnswer): RawStorage
  bufferOfParts(
    storage: RawStorage,
    optionsJson: string,
    mailbox: RawMailbox,
    ownSampler: boolean,
    ownWriter: boolean,
    answer: RawAnswer,
  ): RawReplayBuffer
  readonly Mailbox: { empty(): RawMailbox }
  readonly Storage: { create(optionsJson: string): RawStorage; over(items: RawTensorDict): RawStorage }
  readonly ReplayBatch: { empty(): RawReplayBatch }
  readonly ReplayState: {
    of(partsJson: string, items: RawTensorDictList, ahead: RawTensorDictList): RawReplayState
  }
  readonly Trajectories: {
    ofEnds(ends: Float64Array, numLanes: number, isFull: boolean, newest: number | undefined): RawTrajectories
    ofIds(ids: Float64Array, numLanes: number, isFull: boolean, newest: number | undefined): RawTrajectories
  }
  readonly ReplayBuffer: { create(storage: RawStorage, optionsJson: string): RawReplayBuffer }
  readonly ReplayBufferList: { empty(): RawReplayBufferList }
  readonly Hindsight: { create(buffer: RawReplayBuffer, optionsJson: string, seed: number): RawHindsight }
  readonly PriorityTree: { create(capacity: number): RawPriorityTree }
  readonly RateLimiter: { create(optionsJson: string): RawRateLimiter }
  readonly ParameterScheduler: { create(optionsJson: string): RawParameterScheduler }
}

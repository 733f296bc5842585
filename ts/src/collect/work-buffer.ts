/**
 * State of all running groups: which wait, run, or have finished, and how many more may start.
 *
 * ```text
 * producer: waitForSlot -> addWork ... workers: claimNext -> finalizeWork ... consumer: takeFinalized -> lease.release
 * ```
 *
 * A slot is a lease that travels with its group. It is released once, with a reason, at the end of the group:
 * trained and served, filtered out, failed, too old, or cancelled.
 */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import { type Metric, metric } from '../telemetry/index.js'
import type { StalenessPolicy, WorkEntry } from './staleness.js'

/** Reason why a slot was released. */
export type ReleaseReason = 'trained' | 'filtered' | 'oversized' | 'error' | 'stale' | 'cancelled'

/** The slot of one group. */
export interface Lease {
  /** True if the slot was released. */
  readonly isReleased: boolean
  /** Releases the slot; later calls do nothing. */
  release(reason: ReleaseReason): void
}

/** Work that a worker has taken. */
export interface ClaimedWork<Work> {
  readonly work: Work
  /** Fires when the work is cancelled: it became too old, or the buffer was closed. */
  readonly signal: AbortSignal
}

/** Finished work on its way to the trainer. */
export interface FinalizedWork<Work, Result> {
  readonly work: Work
  readonly result: Result
  /** Lease of the slot: release it after use of the result, or once its training is served. */
  readonly lease: Lease
}

/** Options of {@link WorkBuffer}. */
export interface WorkBufferOptions<Work, Result> {
  /** Limits the number of running groups and selects the next one. Its capacity is 1 to 65,536. */
  readonly staleness: StalenessPolicy
  /** Called with a result that is dropped: the group became too old, or the buffer was closed. */
  readonly onDropped?: (work: Work, result: Result) => void
}

/** Most slots of a {@link WorkBuffer}. */
export const ACTIVE_GROUPS_MAX = 65_536

interface Entry<Work, Result> extends WorkEntry {
  readonly work: Work
  readonly lease: SlotLease
  readonly controller: AbortController
  state: WorkEntry['state']
  version: number
  finishOrder: number
  result: Result | undefined
}

/**
 * Groups between the data and the trainer, at most `staleness.capacity` at once.
 *
 * @example
 * ```ts
 * import { strictFifo, WorkBuffer } from 'fulmar/collect'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new WorkBuffer<string, number>({ staleness: strictFifo({ groupsPerStep: 1, offPolicySteps: 0 }) })
 * assert.ok(await buffer.waitForSlot())
 * buffer.addWork('Norway')
 * const claimed = await buffer.claimNext()
 * if (claimed) buffer.finalizeWork(claimed, 42)
 * const taken = await buffer.takeFinalized()
 * assert.equal(taken?.result, 42)
 * assert.equal(buffer.numActive, 1) // until its training is served
 * taken?.lease.release('trained')
 * assert.equal(buffer.numActive, 0)
 * ```
 */
export class WorkBuffer<Work, Result> {
  readonly #staleness: StalenessPolicy
  readonly #onDropped: (work: Work, result: Result) => void
  readonly #claims = new WeakMap<ClaimedWork<Work>, Entry<Work, Result>>()
  readonly #leases = new Map<SlotLease, Work>()
  readonly #released = new Map<ReleaseReason, number>()
  readonly #slotWaiters = new WaitList<true>(() => (this.numActive < this.capacity ? true : undefined))
  readonly #claimWaiters = new WaitList(() => this.#claimOldest())
  readonly #takeWaiters = new WaitList(() => this.#takeSelected())
  #entries: Entry<Work, Result>[] = []
  #numAdded = 0
  #numFinished = 0
  #version = 0
  #peak = 0

  /** @throws {FulmarError} `OUT_OF_RANGE` for a capacity below 1, `LIMIT_EXCEEDED` for one over the limit. */
  constructor(options: WorkBufferOptions<Work, Result>) {
    checkKnownKeys('options', options, ['staleness', 'onDropped'], ['staleness'])
    const { staleness, onDropped = () => {} } = options
    const { capacity } = staleness
    if (!Number.isSafeInteger(capacity) || capacity < 1)
      throw new FulmarError('OUT_OF_RANGE', `capacity must be a positive integer: got ${capacity}`)
    if (capacity > ACTIVE_GROUPS_MAX)
      throw new FulmarError('LIMIT_EXCEEDED', `capacity must be <= ${ACTIVE_GROUPS_MAX}: got ${capacity}`)
    this.#staleness = staleness
    this.#onDropped = onDropped
  }

  /** Slots in all. */
  get capacity(): number {
    return this.#staleness.capacity
  }

  /** Slots that are taken. */
  get numActive(): number {
    return this.#leases.size
  }

  /** Work of every taken slot, in the order of admission, for checkpoints. */
  get active(): readonly Work[] {
    return [...this.#leases.values()]
  }

  /**
   * Returns `true` once a slot is free, `false` once the buffer is closed. For one producer: it reserves
   * nothing.
   */
  async waitForSlot(): Promise<boolean> {
    return (await this.#slotWaiters.wait()) ?? false
  }

  /** Admits work. @throws {FulmarError} `LIMIT_EXCEEDED` if no slot is free; `CLOSED` once the buffer is. */
  addWork(work: Work): void {
    if (this.#slotWaiters.isClosed) throw new FulmarError('CLOSED', 'work buffer must be open: it was closed')
    if (this.numActive >= this.capacity)
      throw new FulmarError('LIMIT_EXCEEDED', `groups under way must be <= ${this.capacity}: got one more`)
    const lease = new SlotLease((reason) => this.#release(lease, reason))
    this.#leases.set(lease, work)
    this.#peak = Math.max(this.#peak, this.numActive)
    const entry = { work, lease, controller: new AbortController(), result: undefined }
    const sequence = this.#numAdded++
    this.#entries.push({ ...entry, sequence, state: 'waiting', version: 0, finishOrder: 0 })
    this.#claimWaiters.notify()
  }

  /** Returns the oldest waiting work, as soon as there is one; `null` once the buffer is closed. */
  claimNext(): Promise<ClaimedWork<Work> | null> {
    return this.#claimWaiters.wait()
  }

  /** Submits a result. Returns `false` if the work was cancelled: the result then went to `onDropped`. */
  finalizeWork(claimed: ClaimedWork<Work>, result: Result): boolean {
    const entry = this.#claims.get(claimed)
    if (entry === undefined || !this.#entries.includes(entry)) {
      this.#onDropped(claimed.work, result)
      return false
    }
    entry.state = 'finalized'
    entry.result = result
    entry.finishOrder = this.#numFinished++
    this.#takeWaiters.notify()
    return true
  }

  /** Releases the slot of work that has failed or was stopped. */
  abandonWork(claimed: ClaimedWork<Work>, reason: ReleaseReason): void {
    const entry = this.#claims.get(claimed)
    if (entry && this.#entries.includes(entry)) this.#remove(entry, reason)
  }

  /**
   * Returns the finished work that the policy selects, as soon as there is one; `null` once the buffer is
   * closed.
   */
  takeFinalized(): Promise<FinalizedWork<Work, Result> | null> {
    return this.#takeWaiters.wait()
  }

  /** Sets the served `version`; work that is now too old is cancelled or dropped. */
  advance(version: number): void {
    this.#version = version
    const entries = this.#entries
    const places = this.#staleness.evict?.(entries, version) ?? []
    const evicted = entries.filter((_, place) => places.includes(place))
    for (const entry of evicted) this.#remove(entry, 'stale')
  }

  /** Cancels and drops all work and ends all waits. Repeated calls are harmless. */
  close(): void {
    for (const waiters of [this.#slotWaiters, this.#claimWaiters, this.#takeWaiters]) waiters.close()
    for (const entry of [...this.#entries]) this.#remove(entry, 'cancelled')
  }

  /**
   * Returns the metrics since the last call: `rollout_buffer/num_groups_waiting`, `_inflight`, `_finalized`,
   * `active_slots_in_use_peak`, `available_active_slots` and `released/<reason>`.
   */
  flushMetrics(): Metric[] {
    const count = (state: WorkEntry['state']) => this.#entries.filter((entry) => entry.state === state).length
    const single = (name: string, value: number) => metric(`rollout_buffer/${name}`, 'max', value)
    const metrics = [
      single('num_groups_waiting', count('waiting')),
      single('num_groups_inflight', count('inflight')),
      single('num_groups_finalized', count('finalized')),
      single('active_slots_in_use_peak', this.#peak),
      single('available_active_slots', this.capacity - this.numActive),
      ...[...this.#released].map(([reason, times]) =>
        metric(`rollout_buffer/released/${reason}`, 'sum', times),
      ),
    ]
    this.#peak = this.numActive
    this.#released.clear()
    return metrics
  }

  #claimOldest(): ClaimedWork<Work> | undefined {
    const entry = this.#entries.find(({ state }) => state === 'waiting')
    if (entry === undefined) return undefined
    entry.state = 'inflight'
    entry.version = this.#version
    const claimed = { work: entry.work, signal: entry.controller.signal }
    this.#claims.set(claimed, entry)
    return claimed
  }

  #takeSelected(): FinalizedWork<Work, Result> | undefined {
    const place = this.#staleness.select(this.#entries)
    const entry = this.#entries[place]
    if (entry === undefined) return undefined
    this.#entries.splice(place, 1)
    return { work: entry.work, result: entry.result as Result, lease: entry.lease }
  }

  #remove(entry: Entry<Work, Result>, reason: ReleaseReason): void {
    this.#entries = this.#entries.filter((other) => other !== entry)
    if (entry.state === 'finalized') this.#onDropped(entry.work, entry.result as Result)
    entry.controller.abort(new FulmarError('ABORTED', `work must not be cancelled: it was (${reason})`))
    entry.lease.release(reason)
    this.#takeWaiters.notify()
  }

  #release(lease: SlotLease, reason: ReleaseReason): void {
    this.#leases.delete(lease)
    this.#released.set(reason, (this.#released.get(reason) ?? 0) + 1)
    this.#slotWaiters.notify()
  }
}

class SlotLease implements Lease {
  isReleased = false
  readonly #onRelease: (reason: ReleaseReason) => void

  constructor(onRelease: (reason: ReleaseReason) => void) {
    this.#onRelease = onRelease
  }

  release(reason: ReleaseReason): void {
    if (this.isReleased) return
    this.isReleased = true
    this.#onRelease(reason)
  }
}

/** Callers that wait for the same event, in order of arrival. */
class WaitList<T> {
  readonly #ready: () => T | undefined
  readonly #waiting: ((value: T | null) => void)[] = []
  isClosed = false

  constructor(ready: () => T | undefined) {
    this.#ready = ready
  }

  /** The thing as soon as it is there, `null` once the list is closed. */
  wait(): Promise<T | null> {
    if (this.isClosed) return Promise.resolve(null)
    const value = this.#waiting.length === 0 ? this.#ready() : undefined
    if (value !== undefined) return Promise.resolve(value)
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** Serves as many as can be. */
  notify(): void {
    while (this.#waiting.length > 0 && !this.isClosed) {
      const value = this.#ready()
      if (value === undefined) return
      this.#waiting.shift()?.(value)
    }
  }

  close(): void {
    this.isClosed = true
    for (const resolve of this.#waiting.splice(0)) resolve(null)
  }
}

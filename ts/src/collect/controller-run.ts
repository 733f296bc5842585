/** The loops of one run of a controller: groups are admitted, run and batched while the trainer trains. */

import { FulmarError } from '../core/index.js'
import { checkTeaches } from '../rollout/check-teaches.js'
import {
  buildTrainingSamples,
  type GroupCursor,
  type GroupWork,
  type RolloutGroup,
} from '../rollout/index.js'
import { type Clock, type Metric, reduceMetrics } from '../telemetry/index.js'
import { Batcher, type StepBatch } from './batcher.js'
import type { ControllerOptions } from './controller-options.js'
import { limitAge } from './over-stale.js'
import { RunScope } from './run-scope.js'
import type { StalenessPolicy } from './staleness.js'
import { type ClaimedWork, type Lease, type ReleaseReason, WorkBuffer } from './work-buffer.js'

const EMPTY_GROUPS_STEPS = 100

/** Finished groups and the batch that they filled. */
interface FilledBatch<Sample> {
  readonly batch: StepBatch
  readonly groups: readonly RolloutGroup<Sample>[]
}

/** The loops of one iteration of a `Controller`: they admit, run and batch groups. */
export class ControllerRun<Sample> {
  readonly #options: ControllerOptions<Sample>
  readonly #staleness: StalenessPolicy
  readonly #begun: Map<number, GroupCursor>
  readonly #recycled: GroupCursor[]
  readonly #buffer: WorkBuffer<GroupWork<Sample>, RolloutGroup<Sample>>
  readonly #batcher: Batcher
  readonly #scope: RunScope
  readonly #clock: Clock
  readonly #running = new Set<Promise<void>>()
  readonly #dropped = new Map<string, number>()
  #loops: Promise<void>[] = []
  #groups: RolloutGroup<Sample>[] = []
  #ready: FilledBatch<Sample> | undefined
  #onReady: () => void = () => {}
  #onTaken: () => void = () => {}
  #numEmpty = 0
  /** Groups in a row of batches whose samples were all withheld. */
  #numTooOld = 0
  /** Groups that are still to be begun: a run does not begin what it will not train. */
  /** Step whose batch is being filled, from 1. */
  #step: number
  #numWanted: number
  #onWanted: () => void = () => {}
  #stopWatch: () => void = () => {}

  constructor(
    options: ControllerOptions<Sample>,
    staleness: StalenessPolicy,
    begun: Map<number, GroupCursor>,
    recycled: GroupCursor[],
    clock: Clock,
  ) {
    const { groupsPerStep, steps, firstStep = 0, dynamicSampling = false, batching } = options
    this.#options = options
    this.#step = firstStep + 1
    this.#staleness = staleness
    this.#numWanted = dynamicSampling ? Number.POSITIVE_INFINITY : (steps - firstStep) * groupsPerStep
    this.#begun = begun
    this.#recycled = recycled
    this.#clock = clock
    this.#scope = new RunScope()
    for (const cursor of recycled) begun.set(cursor.groupId, cursor)
    this.#buffer = new WorkBuffer({ staleness, onDropped: (work, group) => this.#drop(work, group) })
    this.#batcher = new Batcher({
      ...batching,
      groupsPerBatch: groupsPerStep,
      countsEmptyGroups: !dynamicSampling,
    })
  }

  get signal(): AbortSignal {
    return this.#scope.signal
  }

  start(signal: AbortSignal | undefined): void {
    this.#scope.follow(signal)
    this.#progress()
    this.#loops = [this.#admit(), this.#dispatch(), this.#fill()]
    for (const loop of this.#loops) loop.catch((error: unknown) => this.#scope.fail(error))
  }

  /** `promise`, unless a part of the run fails first. */
  guard<T>(promise: Promise<T>): Promise<T> {
    return this.#scope.guard(promise)
  }

  /** The next batch, without what is too old for a trainer of this version. */
  async nextBatch(version: number): Promise<FilledBatch<Sample>> {
    while (this.#ready === undefined)
      await this.guard(new Promise<void>((resolve) => (this.#onReady = resolve)))
    const filled = this.#ready
    this.#ready = undefined
    this.#onTaken()
    return { ...filled, batch: this.#limitAge(filled.batch, version) }
  }

  /** Marks groups as trained: they do not run again, whatever happens to the weights. */
  markTrained({ leases }: StepBatch): void {
    this.#progress()
    for (const lease of leases) if (lease instanceof GroupLease) this.#begun.delete(lease.groupId)
  }

  /** Gives the slots of a trained batch back once its weights are served. */
  serve({ leases }: StepBatch, version: number): void {
    const onServed = () => {
      for (const lease of leases) lease.release('trained')
      this.#buffer.advance(version)
    }
    const { weightSync } = this.#options
    if (weightSync === undefined) onServed()
    else weightSync.start(version, { signal: this.signal, onServed })
  }

  /** Without the slots of the step before: a run that is resumed has none of those, and is to log the same. */
  flushMetrics(): Metric[] {
    return this.#buffer.flushMetrics().filter(({ key }) => key !== 'rollout_buffer/released/trained')
  }

  /** Ends every loop, waits for it, and releases its resources. */
  async stop(): Promise<void> {
    this.#stopWatch()
    this.#scope.end()
    this.#buffer.close()
    this.#onTaken()
    this.#onWanted()
    await Promise.allSettled([...this.#loops, ...this.#running])
  }

  async #admit(): Promise<void> {
    const { rollouter } = this.#options
    while (await this.#buffer.waitForSlot()) {
      if (this.#numWanted <= 0) {
        if (this.#scope.hasEnded) return
        await new Promise<void>((resolve) => (this.#onWanted = resolve))
        continue
      }
      this.#numWanted -= 1
      const again = this.#recycled.shift()
      const work = again ? rollouter.workAt(again) : rollouter.nextWork()
      this.#begun.set(work.groupId, { groupId: work.groupId, cursor: work.cursor })
      this.#buffer.addWork(work)
    }
  }

  async #dispatch(): Promise<void> {
    for (;;) {
      const claimed = await this.#buffer.claimNext()
      if (claimed === null) return
      const running = this.#runGroup(claimed).catch((error: unknown) => this.#scope.fail(error))
      this.#running.add(running)
      void running.then(() => this.#running.delete(running))
    }
  }

  async #runGroup(claimed: ClaimedWork<GroupWork<Sample>>): Promise<void> {
    const { sample, groupId } = claimed.work
    try {
      // Closing the buffer fires the signal of every claim, so this one is all that a group has to hear.
      const group = await this.#options.rollouter.runGroup({ sample, groupId, signal: claimed.signal })
      if (this.#buffer.finalizeWork(claimed, group)) this.#progress()
    } catch (error) {
      if (!claimed.signal.aborted) throw error
      this.#giveUp(groupId)
    }
  }

  async #fill(): Promise<void> {
    for (;;) {
      const taken = await this.#buffer.takeFinalized()
      if (taken === null) return
      const { work, result: group } = taken
      const lease = new GroupLease(work.groupId, taken.lease, this.#begun)
      const batch = this.#consume(group, lease)
      if (batch) await this.#offer({ batch, groups: this.#groups.splice(0) })
    }
  }

  /** Builds the samples of a group. Returns the batch if it is now full. */
  #consume(group: RolloutGroup<Sample>, lease: Lease): StepBatch | null {
    using owned = group
    const { onGroup, buildSamples = buildTrainingSamples, groupsPerStep } = this.#options
    onGroup?.(owned, { step: this.#step })
    const { samples, metrics } = buildSamples(owned)
    this.#groups.push(owned)
    this.#watchEmpty(samples.length, metrics)
    const batch = this.#batcher.addGroup({ samples, metrics, lease })
    if (batch) this.#step += 1
    if (batch || this.#groups.length % groupsPerStep === 0)
      checkTeaches(this.#groups.flatMap(({ rollouts }) => rollouts))
    return batch
  }

  #drop({ groupId }: GroupWork<Sample>, group: RolloutGroup<Sample>): void {
    group[Symbol.dispose]()
    this.#giveUp(groupId)
  }

  /** Begins another group for one that got too old; one that the end of the run caught is run again after a resume. */
  #giveUp(groupId: number): void {
    if (this.#scope.hasEnded || !this.#begun.delete(groupId)) return
    this.#numWanted += 1
    this.#onWanted()
  }

  #limitAge(batch: StepBatch, version: number): StepBatch {
    const { maxAge, overStale } = this.#staleness
    if (overStale === undefined) return batch
    const { samples, metrics } = limitAge(batch.samples, { version, maxAge, overStale })
    this.#watchTooOld(samples.length === 0 && batch.samples.length > 0)
    if (samples === batch.samples) return batch
    const limited = this.#batcher.withSamples(batch, samples)
    return { ...limited, metrics: [...limited.metrics, ...metrics] }
  }

  /** Back-pressure: one batch waits for the trainer, and nothing is consumed behind it. */
  async #offer(filled: FilledBatch<Sample>): Promise<void> {
    const taken = new Promise<void>((resolve) => (this.#onTaken = resolve))
    this.#ready = filled
    this.#onReady()
    await taken
  }

  /** @throws {FulmarError} `EMPTY` once too many groups in a row had nothing to train. */
  #watchEmpty(numSamples: number, metrics: readonly Metric[]): void {
    const { groupsPerStep, maxEmptyGroups = EMPTY_GROUPS_STEPS * groupsPerStep } = this.#options
    if (numSamples > 0) {
      this.#numEmpty = 0
      this.#dropped.clear()
      return
    }
    this.#numEmpty += 1
    for (const { key } of metrics.filter(({ key }) => key.includes('num_groups_dropped')))
      this.#dropped.set(key, (this.#dropped.get(key) ?? 0) + 1)
    if (this.#numEmpty <= maxEmptyGroups) return
    const [worst = ['no sample at all']] = [...this.#dropped].sort(([, a], [, b]) => b - a)
    throw new FulmarError(
      'EMPTY',
      `a group must have something to train within ${maxEmptyGroups} groups: got ${worst[0]}`,
    )
  }

  /** @throws {FulmarError} `EMPTY` once as many groups in a row were too old to train. */
  #watchTooOld(isTooOld: boolean): void {
    const { groupsPerStep, maxEmptyGroups = EMPTY_GROUPS_STEPS * groupsPerStep } = this.#options
    this.#numTooOld = isTooOld ? this.#numTooOld + groupsPerStep : 0
    if (this.#numTooOld <= maxEmptyGroups) return
    const detail = `a group must have something to train within ${maxEmptyGroups} groups: got samples that are too old`
    throw new FulmarError('EMPTY', detail)
  }

  /** Restarts the stall timer. */
  #progress(): void {
    const { stallTimeoutMs = null } = this.#options
    this.#stopWatch()
    if (stallTimeoutMs === null || this.#scope.hasEnded) return
    this.#stopWatch = this.#clock.startTimer(stallTimeoutMs, () => {
      const states = reduceMetrics(this.#buffer.flushMetrics()).values
      const got = ['waiting', 'inflight', 'finalized'].map(
        (state) => `${states[`rollout_buffer/num_groups_${state}/max`]} ${state}`,
      )
      const detail = `a group must finish or a step end within ${stallTimeoutMs} ms: got ${got.join(', ')}`
      this.#scope.fail(new FulmarError('TIMEOUT', detail))
    })
  }
}

/** A slot with its group: once it is finally released, the group does not run again. */
class GroupLease implements Lease {
  readonly groupId: number
  readonly #lease: Lease
  readonly #begun: Map<number, GroupCursor>

  constructor(groupId: number, lease: Lease, begun: Map<number, GroupCursor>) {
    this.groupId = groupId
    this.#lease = lease
    this.#begun = begun
  }

  get isReleased(): boolean {
    return this.#lease.isReleased
  }

  release(reason: ReleaseReason): void {
    if (reason !== 'cancelled') this.#begun.delete(this.groupId)
    this.#lease.release(reason)
  }
}

/**
 * Rollouts and training side by side: one engine for both, synchronous and asynchronous.
 *
 * ```text
 * admit:  slot free? -> next sample -> buffer          as many groups run as there are slots
 * run:    oldest waiting group -> rollouter -> buffer
 * batch:  finished group -> samples -> batcher -> at most one batch waits
 * train:  batch -> age within bound? -> train -> weights served -> slots back, so the next groups are born fresh
 * ```
 *
 * Training is the only loop that ends; whichever part fails ends all of them. Synchronous is a staleness of 0: there is
 * no second path.
 */

import { checkKnownKeys, FulmarError, field } from '../core/index.js'
import type { Policy } from '../policy/index.js'
import { checkTeaches } from '../rollout/check-teaches.js'
import {
  buildTrainingSamples,
  type GroupCursor,
  type GroupWork,
  type Rollouter,
  type RollouterState,
  type RolloutGroup,
  type TrainingSamples,
} from '../rollout/index.js'
import { type Clock, type Metric, reduceMetrics, systemClock } from '../telemetry/index.js'
import { Batcher, type BatcherOptions, type StepBatch } from './batcher.js'
import { groupCursor } from './group-cursor.js'
import { limitAge } from './over-stale.js'
import { policyAge } from './policy-age.js'
import { RunScope } from './run-scope.js'
import { type StalenessPolicy, strictFifo } from './staleness.js'
import type { WeightSync } from './weight-sync.js'
import { type ClaimedWork, type Lease, type ReleaseReason, WorkBuffer } from './work-buffer.js'

/** Context of a training step, besides its batch. */
export interface TrainContext {
  /** Counts from 0. */
  readonly step: number
  /** Await it before the weights change: weights in transfer to other policies are copied by then. */
  readonly beforeUpdate: () => Promise<void>
  /** Fires when the run is stopped or another part of it fails. */
  readonly signal: AbortSignal
}

/** Result of a training step. */
export interface TrainOutcome {
  /** Policy version after the step. */
  readonly version: number
  /** Metrics of the step, by name. */
  readonly metrics: Readonly<Record<string, number>>
}

/** Options of {@link Controller}. */
export interface ControllerOptions<Sample> {
  /** Gives groups of scored rollouts. */
  readonly rollouter: Rollouter<Sample>
  /** The policy that the rollouter samples from: its version is that of the trainer when the run begins. */
  readonly policy: Pick<Policy, 'version'>
  /** Trains one batch. Called once a step; a batch whose groups had nothing to train has no samples. */
  readonly train: (batch: StepBatch, context: TrainContext) => Promise<TrainOutcome>
  /** Groups of a step, >= 1. */
  readonly groupsPerStep: number
  /** The step to end before, counted from 0. */
  readonly steps: number
  /**
   * The step to begin with, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * Policy for how far rollouts run ahead of training.
   * @default strictFifo with offPolicySteps 0: synchronous
   */
  readonly staleness?: StalenessPolicy
  /**
   * Takes new weights to policies that hold their own.
   * @default the rollouter's policy shares the trainer's weights
   */
  readonly weightSync?: WeightSync<never>
  /**
   * Builds the samples of a group before its ledgers are freed.
   * @default buildTrainingSamples
   */
  readonly buildSamples?: (group: RolloutGroup<Sample>) => TrainingSamples
  /**
   * If true, draws more groups until `groupsPerStep` of them have something to train, instead of a fixed
   * number of groups.
   * @default false
   */
  readonly dynamicSampling?: boolean
  /** Layout of samples in rows and micro-batches. */
  readonly batching?: Omit<BatcherOptions, 'groupsPerBatch' | 'countsEmptyGroups'>
  /** Called with each finished group, before anything is left out and while its ledgers are alive. */
  readonly onGroup?: (group: RolloutGroup<Sample>) => void
  /**
   * Groups in a row without anything to train, after which the run ends with `EMPTY` and the commonest reason.
   * @default 100 steps of them
   */
  readonly maxEmptyGroups?: number
  /**
   * Ends the run with `TIMEOUT` when no group has finished and no step has ended for so many milliseconds; `null` for never.
   * @default null
   */
  readonly stallTimeoutMs?: number | null
  /** Stops everything with `ABORTED`. */
  readonly signal?: AbortSignal
  /** @default systemClock */
  readonly clock?: Clock
}

/** One step of a {@link Controller}. */
export interface ControllerStep<Sample> {
  /** Counts from 0. */
  readonly index: number
  /** The groups behind it, those without anything to train too, in the order of their training. Their ledgers are gone. */
  readonly groups: readonly RolloutGroup<Sample>[]
  /** Result of {@link ControllerOptions.train}. */
  readonly outcome: TrainOutcome
  /** All metrics by name, except those that depend on the clock. */
  readonly metrics: Readonly<Record<string, number>>
  /** Time that the trainer waited for its batch, and total time of the step. */
  readonly seconds: { readonly waiting: number; readonly total: number }
}

/** Position of a {@link Controller}: plain JSON, for a checkpoint. */
export interface ControllerState {
  /** The rollouter's. */
  readonly rollouter: RollouterState
  /** Groups that were started and not trained; they run again. */
  readonly pending: readonly GroupCursor[]
}

const EMPTY_GROUPS_STEPS = 100

const STATE = field.section({ rollouter: field.record(), pending: field.list(groupCursor) })

/**
 * Runs rollouts and training. Iterate it once.
 *
 * @example
 * ```ts
 * import { CharTokenizer, Controller, createRenderer, Rollouter, sumDigits, windowedFifo } from 'fulmar'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const says = (text: string) => [...tokenizer.encode(text).ids, renderer.stopIds[0] ?? 0]
 * const policy = new ScriptedPolicy({ reply: (_, call) => says(call % 2 === 0 ? '[ANSWER] 10' : 'what?') })
 * const rollouter = new Rollouter({ policy, task: sumDigits(), renderer, groupSize: 2, maxTokens: 32 })
 * const controller = new Controller({
 *   rollouter,
 *   policy,
 *   groupsPerStep: 2,
 *   steps: 3,
 *   staleness: windowedFifo({ groupsPerStep: 2, offPolicySteps: 1 }),
 *   train: async ({ numTrained }) => ({ version: ++policy.version, metrics: { numTrained } }),
 * })
 * const ages: number[] = []
 * for await (const step of controller) ages.push(step.metrics['train_batch/policy_age/max'])
 * assert.deepEqual(ages.slice(0, 2), [0, 1]) // the rollouts run one step ahead
 * ```
 */
export class Controller<Sample> implements AsyncIterable<ControllerStep<Sample>> {
  readonly #options: ControllerOptions<Sample>
  readonly #staleness: StalenessPolicy
  readonly #clock: Clock
  /** Groups that were begun and are neither trained nor dropped. */
  readonly #begun = new Map<number, GroupCursor>()
  #recycled: GroupCursor[] = []

  /** @throws {FulmarError} `OUT_OF_RANGE` if a number is outside its range. */
  constructor(options: ControllerOptions<Sample>) {
    checkKnownKeys(
      'options',
      options,
      [
        'rollouter',
        'policy',
        'train',
        'groupsPerStep',
        'steps',
        'firstStep',
        'staleness',
        'weightSync',
        'buildSamples',
        'dynamicSampling',
        'batching',
        'onGroup',
        'maxEmptyGroups',
        'stallTimeoutMs',
        'signal',
        'clock',
      ],
      ['rollouter', 'policy', 'train', 'groupsPerStep', 'steps'],
    )
    const { groupsPerStep, steps, firstStep = 0, staleness, maxEmptyGroups = 1 } = options
    for (const [name, value, min] of [
      ['groupsPerStep', groupsPerStep, 1],
      ['steps', steps, 0],
      ['firstStep', firstStep, 0],
      ['maxEmptyGroups', maxEmptyGroups, 1],
    ] as const) {
      if (!Number.isSafeInteger(value) || value < min)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be an integer >= ${min}: got ${value}`)
    }
    // Each iteration creates its own batcher; this one only checks the options early.
    new Batcher({ ...options.batching, groupsPerBatch: groupsPerStep })
    this.#options = options
    this.#staleness = staleness ?? strictFifo({ groupsPerStep, offPolicySteps: 0 })
    this.#clock = options.clock ?? systemClock
    if (this.#staleness.capacity < groupsPerStep) {
      const detail = `capacity of staleness must be >= groupsPerStep: got ${this.#staleness.capacity}`
      throw new FulmarError('OUT_OF_RANGE', detail)
    }
  }

  /** Returns the position of the run: between two steps, or after its end or failure. */
  stateDict(): ControllerState {
    const { rollouter } = this.#options
    return { rollouter: rollouter.stateDict(), pending: [...this.#recycled, ...this.#begun.values()] }
  }

  /**
   * Restores the position of `state`. Before the first step only.
   * @throws {FulmarError} `MALFORMED`, `OUT_OF_RANGE` or `UNKNOWN_NAME`.
   */
  loadStateDict(state: unknown): void {
    const { rollouter, pending } = STATE.read('state', state)
    this.#options.rollouter.loadStateDict(rollouter)
    this.#recycled = [...pending]
  }

  /**
   * Runs the steps.
   * @throws {FulmarError} `ABORTED` if the signal fires; `EMPTY` after too many groups without anything to train; `TIMEOUT` if
   * nothing moves; `OUT_OF_RANGE` if a batch is older than the staleness policy promises; `UNAVAILABLE` if weights cannot be
   * served; what rollouter and training say. What was begun and not trained is in {@link Controller.stateDict} then.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<ControllerStep<Sample>, void, undefined> {
    const { steps, firstStep = 0, weightSync, policy, signal } = this.#options
    const run = new Run(this.#options, this.#staleness, this.#begun, this.#recycled.splice(0), this.#clock)
    const overlaps = this.#staleness.maxAge > 0
    let version = policy.version
    try {
      run.start(signal)
      for (let index = firstStep; index < steps; index++) {
        const { step, batch } = await this.#step(run, index, version)
        version = step.outcome.version
        if (overlaps) run.serve(batch, version)
        yield step
        // Synchronous: nothing runs while the caller has the step, so a checkpoint has nothing pending.
        if (!overlaps) run.serve(batch, version)
      }
      await weightSync?.waitServed()
    } finally {
      await run.stop()
    }
  }

  async #step(
    run: Run<Sample>,
    index: number,
    version: number,
  ): Promise<{ step: ControllerStep<Sample>; batch: StepBatch }> {
    const { train, weightSync } = this.#options
    const startMs = this.#clock.nowMs()
    const { batch, groups } = await run.nextBatch(version)
    const waitedMs = this.#clock.nowMs() - startMs
    const age = policyAge(version, batch.minPolicyVersions, this.#staleness.maxAge)
    const beforeUpdate = async () => void (await weightSync?.waitCaptured())
    const outcome = await run.guard(train(batch, { step: index, beforeUpdate, signal: run.signal }))
    await run.guard(weightSync?.waitServed() ?? Promise.resolve(0))
    run.markTrained(batch)
    const seconds = { waiting: waitedMs / 1000, total: (this.#clock.nowMs() - startMs) / 1000 }
    const { values } = reduceMetrics([...batch.metrics, ...run.flushMetrics(), ...age])
    const metrics = { ...values, ...outcome.metrics }
    return { step: { index, groups, outcome, metrics, seconds }, batch }
  }
}

/** Finished groups and the batch that they filled. */
interface FilledBatch<Sample> {
  readonly batch: StepBatch
  readonly groups: readonly RolloutGroup<Sample>[]
}

/** The loops of one iteration. */
class Run<Sample> {
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
    onGroup?.(owned)
    const { samples, metrics } = buildSamples(owned)
    this.#groups.push(owned)
    this.#watchEmpty(samples.length, metrics)
    const batch = this.#batcher.addGroup({ samples, metrics, lease })
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

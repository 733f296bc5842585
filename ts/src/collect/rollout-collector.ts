/**
 * Batches of rollouts for a trainer: one after another, or with a limited number of groups that run ahead.
 *
 * Groups are complete, as their members are compared with each other, and come in the order in which they
 * started by default. In the order of finishing, short ones come first, which biases a trainer that stops
 * early.
 */

import { checkGiven, checkKnownKeys, FulmarError, field } from '../core/index.js'
import type { ReplayBuffer } from '../replay/index.js'
import { checkTeaches } from '../rollout/check-teaches.js'
import type {
  GroupCursor,
  GroupWork,
  Rollout,
  Rollouter,
  RollouterState,
  RolloutGroup,
} from '../rollout/index.js'
import { groupCursor } from './group-cursor.js'
import { type RolloutRowKind, rolloutRows } from './rollout-rows.js'
import { RunScope } from './run-scope.js'

/** Unit of a batch: rollouts, their turns, or their sampled tokens. */
export type CollectorUnit = 'trajectories' | 'turns' | 'tokens'

/** Options of {@link RolloutCollector}. */
export interface RolloutCollectorOptions<Sample> {
  /** Runs the rollouts; stays the caller's. */
  readonly rollouter: Rollouter<Sample>
  /**
   * Minimum size of a batch, rounded up to whole groups. The number of turns and tokens of a group is unknown
   * in advance, so without `prefetch` such batches run one group after another.
   * @default one group
   */
  readonly batch?: { readonly unit: CollectorUnit; readonly size: number }
  /**
   * Ends once any of these is reached; the last batch is complete and may exceed it. No group starts after
   * that.
   * @default never
   */
  readonly budget?: { readonly [Unit in CollectorUnit]?: number }
  /**
   * Number of groups that are running or finished ahead of the consumer. With 0, every batch is sampled by
   * the current weights.
   * @default 0
   */
  readonly prefetch?: number
  /**
   * Order of groups: as they started or as they finish. The order of finishing needs `prefetch`.
   * @default 'start'
   */
  readonly order?: 'start' | 'finish'
  /**
   * Second destination for the rows of each batch.
   * @default none
   */
  readonly sink?: { readonly buffer: Pick<ReplayBuffer, 'extend'>; readonly rows: RolloutRowKind }
  /** Stops collecting with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Maximum number of groups that run ahead. */
export const PREFETCH_MAX = 65_536

const COUNT = field.integer({ min: 0 })

const STATE = field.section({
  numBatches: COUNT,
  numTrajectories: COUNT,
  numTurns: COUNT,
  numTokens: COUNT,
  rollouter: field.record(),
  pending: field.list(groupCursor),
})

/**
 * Groups that were collected together. Owns their ledgers: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { CollectorBatch } from 'fulmar/collect'
 * import { RolloutGroup } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const group = new RolloutGroup({ groupId: 0, sample: 'Norway', rollouts: [], metrics: [] })
 * using batch = new CollectorBatch(0, [group])
 * assert.deepEqual([batch.numTrajectories, batch.numTurns, batch.numTokens], [0, 0, 0])
 * ```
 */
export class CollectorBatch<Sample = unknown> {
  /** Counts the batches from 0. */
  readonly index: number
  /** In the order in which they were taken. */
  readonly groups: readonly RolloutGroup<Sample>[]
  /** Rollouts of all groups. */
  readonly numTrajectories: number
  /** Turns of all rollouts. */
  readonly numTurns: number
  /** Sampled tokens of all rollouts. */
  readonly numTokens: number

  constructor(index: number, groups: readonly RolloutGroup<Sample>[]) {
    checkGiven('index', index)
    this.index = index
    this.groups = groups
    const { trajectories, turns, tokens } = countsOf(groups)
    this.numTrajectories = trajectories
    this.numTurns = turns
    this.numTokens = tokens
  }

  /** Gives the memory of the ledgers back. */
  [Symbol.dispose](): void {
    for (const group of this.groups) group[Symbol.dispose]()
  }
}

/** Position of an {@link RolloutCollector}: plain JSON, for a checkpoint. */
export interface RolloutCollectorState {
  /** The rollouter's. */
  readonly rollouter: RollouterState
  /** Groups that were started and not collected; they run again. */
  readonly pending: readonly GroupCursor[]
  /** Batches so far. */
  readonly numBatches: number
  /** Finished rollouts so far. */
  readonly numTrajectories: number
  /** Turns so far. */
  readonly numTurns: number
  /** Sampled tokens so far. */
  readonly numTokens: number
}

/** A running group, and how to start it again. */
interface Ahead<Sample> {
  readonly cursor: GroupCursor
  readonly group: Promise<RolloutGroup<Sample>>
}

/**
 * Yields batches of finished, scored rollouts. Iterate it once; a second loop continues after the first. With
 * `prefetch`, groups keep running between batches: stop them by leaving the loop, or by
 * {@link RolloutCollector.stop}.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer, RolloutCollector, Rollouter, sumDigits } from 'fulmar'
 * import { LazyStackStorage, ReplayBuffer } from 'fulmar/replay'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const policy = new ScriptedPolicy({ reply: () => [...tokenizer.encode('[ANSWER] 10').ids, renderer.stopIds[0] ?? 0] })
 * const rollouter = new Rollouter({ policy, task: sumDigits(), renderer, groupSize: 2, maxTokens: 32 })
 * using buffer = new ReplayBuffer({ storage: new LazyStackStorage(100) })
 * const collector = new RolloutCollector({
 *   rollouter,
 *   batch: { unit: 'trajectories', size: 4 },
 *   budget: { trajectories: 8 },
 *   prefetch: 2,
 *   sink: { buffer, rows: 'branches' },
 * })
 * const sizes: number[] = []
 * for await (const batch of collector) {
 *   using owned = batch
 *   sizes.push(owned.numTrajectories)
 * }
 * assert.deepEqual([sizes, buffer.length], [[4, 4], 8])
 * ```
 */
export class RolloutCollector<Sample> implements AsyncIterable<CollectorBatch<Sample>> {
  readonly #options: RolloutCollectorOptions<Sample>
  readonly #unit: CollectorUnit
  readonly #size: number
  readonly #prefetch: number
  readonly #counts = { trajectories: 0, turns: 0, tokens: 0 }
  #scope: RunScope
  #ahead: Ahead<Sample>[] = []
  #recycled: GroupCursor[] = []
  #numBatches = 0

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if a size or budget is not a positive integer, or `prefetch` not a non-negative one;
   * `LIMIT_EXCEEDED` for more than 65,536; `INCOMPATIBLE` for the order of finishing without `prefetch`.
   */
  constructor(options: RolloutCollectorOptions<Sample>) {
    checkKnownKeys(
      'options',
      options,
      ['rollouter', 'batch', 'budget', 'prefetch', 'order', 'sink', 'signal'],
      ['rollouter'],
    )
    const { rollouter, batch, budget = {}, prefetch = 0, order = 'start' } = options
    if (batch !== undefined) checkKnownKeys('options.batch', batch, ['unit', 'size'], ['unit', 'size'])
    checkKnownKeys('options.budget', budget, ['trajectories', 'turns', 'tokens'])
    if (options.sink !== undefined)
      checkKnownKeys('options.sink', options.sink, ['buffer', 'rows'], ['buffer', 'rows'])
    const { unit, size } = batch ?? { unit: 'trajectories', size: rollouter.groupSize }
    const budgets = Object.entries(budget).map(([name, value]) => [`budget.${name}`, value, 1] as const)
    for (const [name, value, min] of [
      ['batch.size', size, 1],
      ['prefetch', prefetch, 0],
      ...budgets,
    ] as const) {
      if (!Number.isSafeInteger(value) || value < min)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be an integer >= ${min}: got ${value}`)
    }
    if (prefetch > PREFETCH_MAX)
      throw new FulmarError('LIMIT_EXCEEDED', `prefetch must be <= ${PREFETCH_MAX}: got ${prefetch}`)
    if (order === 'finish' && prefetch === 0)
      throw new FulmarError('INCOMPATIBLE', 'order "finish" must be used with prefetch > 0: prefetch is 0')
    this.#options = options
    this.#unit = unit
    this.#size = size
    this.#prefetch = prefetch
    this.#scope = this.#newScope()
  }

  /** Finished rollouts collected so far. */
  get numTrajectories(): number {
    return this.#counts.trajectories
  }

  /** Turns collected so far. */
  get numTurns(): number {
    return this.#counts.turns
  }

  /** Tokens sampled so far. */
  get numTokens(): number {
    return this.#counts.tokens
  }

  /** Groups under way or finished ahead. */
  get numAhead(): number {
    return this.#ahead.length
  }

  /**
   * Collects one batch.
   * @throws {FulmarError} `ABORTED` if the signal fires; errors of the task's dataset and of the sink; the
   * first cause if no rollout of a batch sampled anything (`USER_CODE`) or none could be scored
   * (`NON_FINITE`, `TIMEOUT`, `USER_CODE`, or `EMPTY` if the functions declined).
   */
  async collect(): Promise<CollectorBatch<Sample>> {
    const groups: RolloutGroup<Sample>[] = []
    try {
      await this.#gather(groups)
      checkTeaches(groups.flatMap(({ rollouts }) => rollouts))
      const { sink } = this.#options
      const rows = sink && rolloutRows(groups, sink.rows)
      if (rows) sink?.buffer.extend(rows)
    } catch (error) {
      for (const group of groups) group[Symbol.dispose]()
      throw error
    }
    const batch = new CollectorBatch(this.#numBatches, groups)
    this.#numBatches += 1
    return batch
  }

  /** Yields batches until the budget is reached. The caller disposes each batch. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CollectorBatch<Sample>, void, void> {
    try {
      while (!this.#isSpent()) yield await this.collect()
    } finally {
      await this.stop()
    }
  }

  /** Collects until the budget is reached, for callers that only use the sink. */
  async fill(): Promise<void> {
    for await (const batch of this) batch[Symbol.dispose]()
  }

  /** Stops what runs ahead and waits for it; it is run again by the next batch, or after a resume. Harmless when done twice. */
  async stop(): Promise<void> {
    const stopped = this.#ahead.splice(0)
    this.#recycled = [...stopped.map(({ cursor }) => cursor), ...this.#recycled]
    this.#scope.end()
    this.#scope = this.#newScope()
    for (const { group } of stopped) {
      await group.then(
        (one) => one[Symbol.dispose](),
        () => undefined,
      )
    }
  }

  /** Returns the position of the collector and its rollouter. Call it between batches. */
  stateDict(): RolloutCollectorState {
    return {
      rollouter: this.#options.rollouter.stateDict(),
      pending: [...this.#ahead.map(({ cursor }) => cursor), ...this.#recycled],
      numBatches: this.#numBatches,
      numTrajectories: this.#counts.trajectories,
      numTurns: this.#counts.turns,
      numTokens: this.#counts.tokens,
    }
  }

  /**
   * Restores the position of `state`. Needs that no group runs.
   * @throws {FulmarError} `MALFORMED`, `OUT_OF_RANGE` or `UNKNOWN_NAME`.
   */
  loadStateDict(state: unknown): void {
    const { rollouter, pending, numBatches, ...counts } = STATE.read('state', state)
    this.#options.rollouter.loadStateDict(rollouter)
    this.#recycled = [...pending]
    this.#numBatches = numBatches
    const { numTrajectories: trajectories, numTurns: turns, numTokens: tokens } = counts
    Object.assign(this.#counts, { trajectories, turns, tokens })
  }

  #newScope(): RunScope {
    const scope = new RunScope()
    scope.follow(this.#options.signal)
    return scope
  }

  /** Takes groups until the batch is full; those of a batch whose size is known run side by side. */
  async #gather(groups: RolloutGroup<Sample>[]): Promise<void> {
    const start = this.#counts[this.#unit]
    while (this.#counts[this.#unit] - start < this.#size) {
      if (this.#ahead.length === 0) this.#launch()
      this.#launchUntil(this.#prefetch > 0 ? this.#prefetch : this.#numLacking(start))
      const group = await this.#take()
      groups.push(group)
      const { trajectories, turns, tokens } = countsOf([group])
      this.#counts.trajectories += trajectories
      this.#counts.turns += turns
      this.#counts.tokens += tokens
    }
    this.#launchUntil(this.#prefetch)
  }

  /** Least number of groups that the batch still needs; `start` is the count of its unit when it began. */
  #numLacking(start: number): number {
    if (this.#unit !== 'trajectories') return 1
    return Math.ceil((this.#size - (this.#counts.trajectories - start)) / this.#options.rollouter.groupSize)
  }

  /** Begins groups until `count` are ahead, or those that are spend the budget. */
  #launchUntil(count: number): void {
    const { rollouter, budget = {} } = this.#options
    const { trajectories = Number.POSITIVE_INFINITY } = budget
    const numBegun = () => this.#counts.trajectories + this.#ahead.length * rollouter.groupSize
    while (this.#ahead.length < count && !this.#isSpent() && numBegun() < trajectories) this.#launch()
  }

  #launch(): void {
    const { rollouter } = this.#options
    const again = this.#recycled.shift()
    const work = again ? rollouter.workAt(again) : rollouter.nextWork()
    this.#ahead.push({ cursor: { groupId: work.groupId, cursor: work.cursor }, group: this.#run(work) })
  }

  #run({ sample, groupId }: GroupWork<Sample>): Promise<RolloutGroup<Sample>> {
    const { rollouter } = this.#options
    const group = rollouter.runGroup({ sample, groupId, signal: this.#scope.signal })
    // The caller that takes the group gets the failure; without a caller it is not an unhandled rejection.
    group.catch(() => undefined)
    return group
  }

  async #take(): Promise<RolloutGroup<Sample>> {
    const { order = 'start' } = this.#options
    const first = () => Promise.race(this.#ahead.map(({ group }, place) => group.then(() => place)))
    const place = order === 'start' ? 0 : await first()
    const taken = this.#ahead[place]
    if (taken === undefined)
      throw new FulmarError('CLOSED', 'collector must have a group to run: it has none')
    const group = await taken.group
    this.#ahead.splice(this.#ahead.indexOf(taken), 1)
    return group
  }

  #isSpent(): boolean {
    const { budget = {} } = this.#options
    return (['trajectories', 'turns', 'tokens'] as const).some(
      (unit) => this.#counts[unit] >= (budget[unit] ?? Number.POSITIVE_INFINITY),
    )
  }
}

function countsOf(groups: readonly RolloutGroup[]): Readonly<Record<CollectorUnit, number>> {
  const rollouts: readonly Rollout[] = groups.flatMap((group) => group.rollouts)
  const turns = rollouts.flatMap((rollout) => rollout.turns)
  const tokens = turns.reduce((sum, { completionIds }) => sum + completionIds.length, 0)
  return { trajectories: rollouts.length, turns: turns.length, tokens }
}

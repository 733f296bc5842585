/**
 * Batches of rollouts, one after another: collect, train, collect again. Nothing runs ahead, so every batch is sampled
 * by the weights that the last training step left.
 */

import { ConfigReader, FulmarError } from '../core/index.js'
import type { Rollout, Rollouter, RollouterState, RolloutGroup } from '../rollout/index.js'

/** Options of {@link LLMCollector}. */
export interface LLMCollectorOptions<Sample> {
  /** Runs the rollouts; stays the caller's. */
  readonly rollouter: Rollouter<Sample>
  /**
   * Finished dialogs in a batch, rounded up to whole groups. TorchRL's `dialog_turns_per_batch` counts turns, which is
   * the same where a dialog has one turn; where it has more, a batch of whole groups has no fixed number of them.
   * @default one group
   */
  readonly dialogsPerBatch?: number
  /**
   * Ends once this many dialogs were collected; the last batch is whole and may go beyond. -1 never ends.
   * @default -1
   */
  readonly totalDialogs?: number
  /** Stops collecting with `ABORTED`. */
  readonly signal?: AbortSignal
}

/**
 * Groups that were collected together. Owns their ledgers: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { CollectorBatch, RolloutGroup } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const group = new RolloutGroup({ groupId: 0, sample: 'Norway', rollouts: [], metrics: [] })
 * using batch = new CollectorBatch(0, [group])
 * assert.deepEqual([batch.numDialogs, batch.numTurns, batch.numTokens], [0, 0, 0])
 * ```
 */
export class CollectorBatch<Sample = unknown> {
  /** Counts the batches from 0. */
  readonly index: number
  /** In the order of their ids. */
  readonly groups: readonly RolloutGroup<Sample>[]
  /** Rollouts of all groups. */
  readonly numDialogs: number
  /** Turns of all rollouts. */
  readonly numTurns: number
  /** Sampled tokens of all rollouts. */
  readonly numTokens: number

  constructor(index: number, groups: readonly RolloutGroup<Sample>[]) {
    this.index = index
    this.groups = groups
    const rollouts = rolloutsOf(groups)
    const turns = rollouts.flatMap((rollout) => rollout.turns)
    this.numDialogs = rollouts.length
    this.numTurns = turns.length
    this.numTokens = turns.reduce((sum, { completionIds }) => sum + completionIds.length, 0)
  }

  /** Gives the memory of the ledgers back. */
  [Symbol.dispose](): void {
    for (const group of this.groups) group[Symbol.dispose]()
  }
}

/** Where a {@link LLMCollector} stands: plain JSON, for a checkpoint. */
export interface LLMCollectorState {
  /** The rollouter's. */
  readonly rollouter: RollouterState
  /** Batches so far. */
  readonly numBatches: number
  /** Finished dialogs so far. */
  readonly numDialogs: number
  /** Turns so far. */
  readonly numTurns: number
  /** Sampled tokens so far. */
  readonly numTokens: number
}

/**
 * Yields batches of finished, scored rollouts. Iterate it once; a second loop goes on where the first one stopped.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer, LLMCollector, Rollouter, ScriptedPolicy, sumDigits } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const policy = new ScriptedPolicy({ reply: () => [...tokenizer.encode('[ANSWER] 10').ids, renderer.stopIds[0] ?? 0] })
 * const rollouter = new Rollouter({ policy, task: sumDigits(), renderer, groupSize: 2, maxTokens: 32 })
 * const collector = new LLMCollector({ rollouter, dialogsPerBatch: 4, totalDialogs: 8 })
 * const sizes: number[] = []
 * for await (const batch of collector) {
 *   using owned = batch
 *   sizes.push(owned.groups.length)
 * }
 * assert.deepEqual(sizes, [2, 2])
 * ```
 */
export class LLMCollector<Sample> implements AsyncIterable<CollectorBatch<Sample>> {
  readonly #rollouter: Rollouter<Sample>
  readonly #groupsPerBatch: number
  readonly #totalDialogs: number
  readonly #signal: AbortSignal | undefined
  #numBatches = 0
  #numDialogs = 0
  #numTurns = 0
  #numTokens = 0

  /** @throws {FulmarError} `OUT_OF_RANGE` if a number of dialogs is neither a positive integer nor, for the total, -1. */
  constructor(options: LLMCollectorOptions<Sample>) {
    const { rollouter, dialogsPerBatch = rollouter.groupSize, totalDialogs = -1, signal } = options
    const total = totalDialogs === -1 ? 1 : totalDialogs
    for (const [name, value] of Object.entries({ dialogsPerBatch, totalDialogs: total })) {
      if (!Number.isSafeInteger(value) || value < 1) {
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
      }
    }
    this.#rollouter = rollouter
    this.#groupsPerBatch = Math.ceil(dialogsPerBatch / rollouter.groupSize)
    this.#totalDialogs = totalDialogs === -1 ? Number.POSITIVE_INFINITY : totalDialogs
    this.#signal = signal
  }

  /** Finished dialogs collected so far. */
  get numDialogs(): number {
    return this.#numDialogs
  }

  /** Turns collected so far. */
  get numTurns(): number {
    return this.#numTurns
  }

  /** Tokens sampled so far. */
  get numTokens(): number {
    return this.#numTokens
  }

  /**
   * Collects one batch.
   * @throws {FulmarError} `ABORTED` if the signal fires; what the task's dataset says; and where going on would train
   * nothing for ever: the first cause if no rollout of a batch sampled anything (`USER_CODE`) or none of a batch
   * could be scored (`NON_FINITE`, `TIMEOUT`, `USER_CODE`, or `EMPTY` if the functions declined).
   */
  async collect(): Promise<CollectorBatch<Sample>> {
    const groups = await this.#rollouter.runNextGroups(
      this.#groupsPerBatch,
      this.#signal ? { signal: this.#signal } : {},
    )
    const batch = new CollectorBatch(this.#numBatches, groups)
    this.#numBatches += 1
    this.#numDialogs += batch.numDialogs
    this.#numTurns += batch.numTurns
    this.#numTokens += batch.numTokens
    return batch
  }

  /** Batches until the total is reached. Whoever takes a batch disposes it. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CollectorBatch<Sample>, void, void> {
    while (this.#numDialogs < this.#totalDialogs) yield await this.collect()
  }

  /** Where the collector and its rollouter stand. Take it between batches. */
  stateDict(): LLMCollectorState {
    return {
      rollouter: this.#rollouter.stateDict(),
      numBatches: this.#numBatches,
      numDialogs: this.#numDialogs,
      numTurns: this.#numTurns,
      numTokens: this.#numTokens,
    }
  }

  /** Goes to where `state` was taken. @throws {FulmarError} `MALFORMED`, `OUT_OF_RANGE` or `UNKNOWN_NAME`. */
  loadStateDict(state: unknown): void {
    const reader = new ConfigReader('state', state)
    const count = (name: string) => reader.integer(name, { min: 0, fallback: -1 })
    const totals = [count('numBatches'), count('numDialogs'), count('numTurns'), count('numTokens')] as const
    const rollouter = reader.object('rollouter')
    reader.end()
    this.#rollouter.loadStateDict(rollouter)
    ;[this.#numBatches, this.#numDialogs, this.#numTurns, this.#numTokens] = totals
  }
}

function rolloutsOf(groups: readonly RolloutGroup[]): readonly Rollout[] {
  return groups.flatMap(({ rollouts }) => rollouts)
}

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
import type { GroupCursor, RollouterState } from '../rollout/index.js'
import { type Clock, reduceMetrics, systemClock } from '../telemetry/index.js'
import { Batcher, type StepBatch } from './batcher.js'
import type { ControllerOptions, ControllerStep } from './controller-options.js'
import { ControllerRun } from './controller-run.js'
import { groupCursor } from './group-cursor.js'
import { policyAge } from './policy-age.js'
import { type StalenessPolicy, strictFifo } from './staleness.js'

/** Position of a {@link Controller}: plain JSON, for a checkpoint. */
export interface ControllerState {
  /** The rollouter's. */
  readonly rollouter: RollouterState
  /** Groups that were started and not trained; they run again. */
  readonly pending: readonly GroupCursor[]
}

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
    const run = new ControllerRun(
      this.#options,
      this.#staleness,
      this.#begun,
      this.#recycled.splice(0),
      this.#clock,
    )
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
    run: ControllerRun<Sample>,
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

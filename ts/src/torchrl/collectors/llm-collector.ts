/** TorchRL's collector of language models: batches of turns of an environment over dictionaries. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError, yieldToEventLoop } from '../../core/index.js'
import type { ReplayBuffer } from '../../replay/index.js'
import { type Clock, systemClock } from '../../telemetry/index.js'
import { type LazyStack, lazyStack, Tensor, TensorDict } from '../../tensor/index.js'
import { sizeOf } from '../data/batch.js'
import { type DictPolicyLike, dictPolicyOf, type EnvBase } from '../envs/env.js'
import { flagsAt } from '../envs/flag.js'
import { PolicyVersion } from '../envs/policy-version.js'
import { TransformedEnv } from '../envs/transformed-env.js'
import { TurnLoop } from '../envs/turn-loop.js'

/** A batch of an {@link LLMCollector}; `null` if it was written to the replay buffer. */
export type LLMCollectorBatch = TensorDict | LazyStack | null

/** Options of {@link LLMCollector}. */
export interface LLMCollectorOptions {
  /** Environment, of one batch dimension. */
  readonly env: EnvBase
  /** Policy: an `LLMWrapperBase`, or a function of dictionaries. */
  readonly policy: DictPolicyLike
  /**
   * Turns of a batch, rounded up to a multiple of the environment's batch; with `yieldOnlyLastSteps`
   * trajectories. A positive integer.
   * @default one turn of each element; with `yieldCompletedTrajectories` one trajectory
   */
  readonly dialogTurnsPerBatch?: number
  /**
   * Turns in all, from 1; looked at between batches, so the last batch may exceed it. -1 collects without end.
   * @default -1
   */
  readonly totalDialogTurns?: number
  /**
   * If true, a batch holds whole trajectories, one behind the other: `[turns]`. Those that are not over wait
   * for a later batch.
   * @default the value of `yieldOnlyLastSteps`
   */
  readonly yieldCompletedTrajectories?: boolean
  /** If true, a batch holds the last turn of each trajectory: `[trajectories]`. @default false */
  readonly yieldOnlyLastSteps?: boolean
  /**
   * If true, batches of turns are `[batch * turns]`, a `TensorDict`, instead of a `LazyStack [batch, turns]`.
   * @default true with a `replayBuffer`, else false
   */
  readonly flattenData?: boolean
  /** If true, every batch begins with a reset of all elements. @default false */
  readonly resetAtEachIter?: boolean
  /** Changes each batch before it is given out or written. */
  readonly postproc?: (batch: TensorDict | LazyStack) => TensorDict | LazyStack
  /** Destination of the rows of batches, which are then given out as `null`. */
  readonly replayBuffer?: Pick<ReplayBuffer, 'extend'>
  /** If true, turns have the column `policy_version`, as {@link PolicyVersion} writes it. @default false */
  readonly trackPolicyVersion?: boolean | PolicyVersion
  /** Input of resets. @default nothing */
  readonly dict?: TensorDict
  /**
   * Milliseconds for one answer of policy or environment, above 0: an element that is late, or throws, ends
   * alone, as in `rollout`.
   * @default no deadline, and one call for the batch
   */
  readonly timeoutMs?: number
  /** @default systemClock */
  readonly clock?: Clock
  /** Stops collecting with `ABORTED`, between turns. */
  readonly signal?: AbortSignal
}

const OPTION_KEYS = [
  'env',
  'policy',
  'dialogTurnsPerBatch',
  'totalDialogTurns',
  'yieldCompletedTrajectories',
  'yieldOnlyLastSteps',
  'flattenData',
  'resetAtEachIter',
  'postproc',
  'replayBuffer',
  'trackPolicyVersion',
  'dict',
  'timeoutMs',
  'clock',
  'signal',
] as const

/** Maximum number of turns of a trajectory that waits for its end. */
const TRAJECTORY_TURNS_MAX = 65_536

/**
 * Collects turns of a policy in an environment: TorchRL's `LLMCollector`. Elements that are done begin anew,
 * and an element continues where the last batch ended. Turns carry `['collector', 'traj_ids']`, `i64`, the
 * number of their trajectory. For training of a `Task`, with deadlines, retries and groups that run ahead, a
 * `RolloutCollector` does the same over a `Rollouter`.
 *
 * @example
 * ```ts
 * import { sumDigits } from 'fulmar'
 * import { LazyStackStorage, ReplayBuffer } from 'fulmar/replay'
 * import { ChatEnv, LLMCollector, replyPolicy } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = ChatEnv.of(sumDigits(), { numEnvs: 4, maxTurns: 2 })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '[ANSWER] 7' })
 * using buffer = new ReplayBuffer({ storage: new LazyStackStorage(100) })
 * const collector = new LLMCollector({ env, policy, replayBuffer: buffer, dialogTurnsPerBatch: 4, totalDialogTurns: 10 })
 * for await (const batch of collector) assert.equal(batch, null)
 * assert.deepEqual([collector.numTurns, buffer.length], [12, 12]) // 10 turns are two batches and a half
 * await env.close()
 * ```
 */
export class LLMCollector implements AsyncIterable<LLMCollectorBatch> {
  readonly #options: LLMCollectorOptions
  readonly #env: EnvBase
  readonly #loop: TurnLoop
  readonly #version: PolicyVersion | undefined
  readonly #size: number
  readonly #total: number
  #postproc: LLMCollectorOptions['postproc']
  #numTurns = 0
  #numTrajectories = 0
  #numYielded = 0
  #numBegun = 0
  /** The trajectory of each element. */
  #trajectories: number[] = []
  /** Turns of the trajectory that each element is in. */
  #open: TensorDict[][] = []
  /** Trajectories that are over and were not given out. */
  #ended: TensorDict[][] = []
  #running: Promise<void> | undefined
  /** The error of the background run, once it has ended. */
  #failure: Promise<{ readonly error: unknown } | undefined> = Promise.resolve(undefined)
  #stopping = new AbortController()

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `OUT_OF_RANGE` for a number outside its range;
   * `SHAPE_MISMATCH` for an environment of several batch dimensions; `INCOMPATIBLE` for `yieldOnlyLastSteps`
   * without whole trajectories, or with `flattenData` or `resetAtEachIter`, which whole trajectories do not have.
   */
  constructor(options: LLMCollectorOptions) {
    checkKnownKeys('options', options, OPTION_KEYS, ['env', 'policy'])
    const { env, trackPolicyVersion = false, totalDialogTurns = -1, timeoutMs, signal } = options
    const { clock = systemClock } = options
    checkGiven('options.env', env)
    checkForm(options)
    const numElements = sizeOf(env.batchSize)
    const { dialogTurnsPerBatch = wholeTrajectories(options) ? 1 : numElements } = options
    checkCount('dialogTurnsPerBatch', dialogTurnsPerBatch)
    if (totalDialogTurns !== -1) checkCount('totalDialogTurns', totalDialogTurns)
    if (timeoutMs !== undefined && !(timeoutMs > 0))
      throw new FulmarError('OUT_OF_RANGE', `timeoutMs must be above 0: got ${timeoutMs}`)
    this.#options = options
    this.#version = trackPolicyVersion === true ? new PolicyVersion() : trackPolicyVersion || undefined
    this.#env = this.#version ? new TransformedEnv(env, [this.#version]) : env
    const patience = timeoutMs === undefined ? undefined : { clock, timeoutMs, signal }
    const policy = dictPolicyOf(options.policy)
    this.#loop = new TurnLoop({ env: this.#env, policy, dict: options.dict, patience })
    this.#size = dialogTurnsPerBatch
    this.#total = totalDialogTurns === -1 ? Number.POSITIVE_INFINITY : totalDialogTurns
    this.#postproc = options.postproc
  }

  /** Turns of the batches so far; with `yieldOnlyLastSteps` those of the whole trajectories. */
  get numTurns(): number {
    return this.#numTurns
  }

  /** Trajectories that came to an end so far. */
  get numTrajectories(): number {
    return this.#numTrajectories
  }

  /** Rows given out or written so far. */
  get numYielded(): number {
    return this.#numYielded
  }

  /** Version of the policy, as turns have it; `undefined` if it is not tracked. */
  get policyVersion(): number | string | undefined {
    return this.#version?.version
  }

  /**
   * Counts new weights of the policy: turns that are shown from now on have the next version.
   * @throws {FulmarError} `INCOMPATIBLE` without `trackPolicyVersion`.
   */
  incrementVersion(): number | string {
    if (this.#version) return this.#version.incrementVersion()
    throw new FulmarError('INCOMPATIBLE', 'trackPolicyVersion must be set to count versions: it is not')
  }

  /**
   * Sets the function that changes batches. It can be set once.
   * @throws {FulmarError} `INCOMPATIBLE` if there is one.
   */
  setPostproc(postproc: NonNullable<LLMCollectorOptions['postproc']>): void {
    if (this.#postproc) throw new FulmarError('INCOMPATIBLE', 'postproc must be set once: it is set')
    this.#postproc = postproc
  }

  /**
   * Collects one batch.
   * @throws {FulmarError} `ABORTED` if the signal fires; `LIMIT_EXCEEDED` for a trajectory of more than 65,536
   * turns; errors of the environment, the policy, `postproc` and the replay buffer.
   */
  async rollout(): Promise<LLMCollectorBatch> {
    if (this.#options.resetAtEachIter) this.#reset()
    const collected = wholeTrajectories(this.#options) ? await this.#whole() : await this.#turns()
    const batch = this.#postproc?.(collected) ?? collected
    this.#numYielded += sizeOf(batch.batchSize)
    const { replayBuffer } = this.#options
    if (replayBuffer === undefined) return batch
    replayBuffer.extend(batch instanceof TensorDict ? batch : batch.dense())
    return null
  }

  /** Yields batches until `totalDialogTurns`. A second loop continues after the first. */
  async *[Symbol.asyncIterator](): AsyncGenerator<LLMCollectorBatch, void, void> {
    while (this.#numTurns < this.#total) yield await this.rollout()
  }

  /**
   * Fills the replay buffer in the background, until `totalDialogTurns` or {@link LLMCollector.shutdown}.
   * @throws {FulmarError} `INCOMPATIBLE` without a replay buffer, or if it runs already.
   */
  start(): void {
    if (this.#options.replayBuffer === undefined)
      throw new FulmarError(
        'INCOMPATIBLE',
        'replayBuffer must be given to collect in the background: it is undefined',
      )
    if (this.#running) throw new FulmarError('INCOMPATIBLE', 'collector must not run twice: it is running')
    this.#stopping = new AbortController()
    const { signal } = this.#stopping
    const run = async () => {
      while (!signal.aborted && this.#numTurns < this.#total) {
        await this.rollout()
        // A policy that answers at once would leave the caller no turn of its own.
        await yieldToEventLoop()
      }
    }
    const running = run().finally(() => {
      if (this.#running === running) this.#running = undefined
    })
    this.#running = running
    // `shutdown` reports a failure; until then it is not an unhandled rejection.
    this.#failure = running.then(
      () => undefined,
      (error: unknown) => ({ error }),
    )
  }

  /** True between {@link LLMCollector.start} and its end. */
  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /**
   * Stops what {@link LLMCollector.start} began, after the batch under way. Harmless when done twice.
   * @throws The error that ended it, once.
   */
  async shutdown(): Promise<void> {
    this.#stopping.abort()
    const failed = await this.#failure
    this.#failure = Promise.resolve(undefined)
    if (failed) throw failed.error
  }

  #reset(): void {
    this.#loop.reset()
    this.#trajectories = []
  }

  /** Turns of all elements until there are enough. */
  async #turns(): Promise<TensorDict | LazyStack> {
    const numElements = sizeOf(this.#env.batchSize)
    const steps: TensorDict[] = []
    while (steps.length * numElements < this.#size) steps.push(await this.#take())
    this.#numTurns += steps.length * numElements
    const { flattenData = this.#options.replayBuffer !== undefined } = this.#options
    return flattenData ? flat(steps) : lazyStack(steps, this.#env.batchSize.length)
  }

  /** Whole trajectories, or their last turns, until there are enough. */
  async #whole(): Promise<TensorDict> {
    const rows: TensorDict[] = []
    while (rows.length < this.#size) {
      while (this.#ended.length === 0) this.#sort(await this.#take())
      const ended = this.#ended.shift() ?? []
      this.#numTurns += ended.length
      rows.push(...(this.#options.yieldOnlyLastSteps ? ended.slice(-1) : ended))
    }
    return TensorDict.cat(rows)
  }

  /** Puts each element's turn behind those of its trajectory. */
  #sort(step: TensorDict): void {
    const isDone = flagsAt(step.dict('next'), 'done')
    for (const [at, done] of isDone.entries()) {
      const turns = [...(this.#open[at] ?? []), step.indexSelect([at])]
      if (turns.length > TRAJECTORY_TURNS_MAX) {
        const detail = `a trajectory must have at most ${TRAJECTORY_TURNS_MAX} turns: got one more`
        throw new FulmarError('LIMIT_EXCEEDED', detail)
      }
      this.#open[at] = done ? [] : turns
      if (done) this.#ended.push(turns)
    }
  }

  async #take(): Promise<TensorDict> {
    const { signal } = this.#options
    if (signal?.aborted)
      throw new FulmarError(
        'ABORTED',
        `signal must not have fired: got an abort after ${this.#numTurns} turns`,
      )
    const step = await this.#loop.take()
    const isDone = flagsAt(step.dict('next'), 'done')
    const ids = isDone.map((_, at) => this.#trajectories[at] ?? this.#numBegun++)
    this.#trajectories = []
    for (const [at, done] of isDone.entries()) if (!done) this.#trajectories[at] = ids[at] ?? 0
    this.#numTrajectories += isDone.filter(Boolean).length
    const column = Tensor.from(BigInt64Array.from(ids, BigInt), { shape: step.batchSize })
    return step.set(['collector', 'traj_ids'], column)
  }
}

/** The turns of each element, those of the first before those of the second. */
function flat(steps: readonly TensorDict[]): TensorDict {
  const [first] = steps
  if (first === undefined) throw new FulmarError('EMPTY', 'batch must hold a turn: it is empty')
  const width = sizeOf(first.batchSize)
  const joined = TensorDict.cat(steps)
  if (width === 1 || steps.length === 1) return joined
  const order = Array.from({ length: width }, (_, at) => steps.map((_, step) => step * width + at))
  return joined.indexSelect(order.flat())
}

function wholeTrajectories(options: LLMCollectorOptions): boolean {
  const { yieldOnlyLastSteps = false, yieldCompletedTrajectories = yieldOnlyLastSteps } = options
  return yieldCompletedTrajectories
}

/** Refuses options that contradict each other. */
function checkForm(options: LLMCollectorOptions): void {
  const { yieldOnlyLastSteps = false, yieldCompletedTrajectories, env } = options
  if (yieldOnlyLastSteps && yieldCompletedTrajectories === false) {
    const detail = 'yieldCompletedTrajectories must be true with yieldOnlyLastSteps: got false'
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  for (const name of ['flattenData', 'resetAtEachIter'] as const) {
    if (!wholeTrajectories(options) || options[name] === undefined) continue
    const detail = `${name} must not be given with whole trajectories: got ${describeValue(options[name])}`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  if (env.batchSize.length !== 1) {
    const detail = `env.batchSize must have one dimension: got ${env.batchSize.length}`
    throw new FulmarError('SHAPE_MISMATCH', detail)
  }
}

function checkCount(name: string, value: number): void {
  if (Number.isSafeInteger(value) && value >= 1) return
  throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${describeValue(value)}`)
}

/**
 * Runs samples of a task as scored groups of rollouts.
 *
 * ```text
 * group: sample -> groupSize environments -> rollouts side by side -> score -> advantages -> close environments
 * ```
 *
 * The seed of each completion is a function of (run seed, split, group, member, turn), so samples do not
 * depend on concurrent rollouts, their order, or a resume. Environments are closed after scoring, so that a
 * reward may inspect them.
 */

import { aborted, Slots } from '../async/index.js'
import { checkKnownKeys, FulmarError, field, messageOf, Rng } from '../core/index.js'
import type { Dataset, DatasetState } from '../data/index.js'
import { isError, type MessageEnv, messagesOf, type Split, type Task } from '../env/index.js'
import { type Clock, metric, systemClock } from '../telemetry/index.js'
import { estimateAdvantages } from './advantage.js'
import { allOrNone, settle } from './all-or-none.js'
import { checkTeaches } from './check-teaches.js'
import { type Evaluation, evaluationOf } from './evaluation.js'
import { groupMetrics } from './group-metrics.js'
import { lazyEnv, OpenEnvs } from './open-envs.js'
import { Pacer } from './pacer.js'
import { type Rollout, RolloutGroup } from './rollout.js'
import { RolloutLimit } from './rollout-limit.js'
import { runRollout, type SamplingOptions, type UnscoredRollout } from './rollout-loop.js'
import {
  MEASURE_KEYS,
  type MeasureOptions,
  ROLLOUTER_KEYS,
  type RollouterOptions,
  type RunGroupOptions,
} from './rollouter-options.js'
import { Rubric } from './rubric.js'
import { TokenEnv } from './token-env.js'

/** Identifies a training group: plain JSON, enough to run it again. */
export interface GroupCursor {
  /** Index of the group in the run. */
  readonly groupId: number
  /** Position of the training stream before its sample was taken. */
  readonly cursor: DatasetState
}

/** A training group before it runs. */
export interface GroupWork<Sample> extends GroupCursor {
  readonly sample: Sample
}

/** Position of a {@link Rollouter}: plain JSON, for a checkpoint. */
export interface RollouterState {
  /** Position of the training stream. */
  readonly train: DatasetState
  /** Number of training groups that were started. */
  readonly numGroups: number
}

/** Reason why a rollout with an error has no reward, if `onError` drops it. */
const DROPPED = {
  error: { code: 'DECLINED', message: 'rollout must end without an error: it was dropped' },
} as const

/** Shared by all rollouters, as they share the event loop. */
const PACER = new Pacer()

const CLOSE_TIMEOUT_MS_DEFAULT = 60_000
const CONCURRENCY_DEFAULT = 1024

const STATE = field.section({ numGroups: field.integer({ min: 0 }), train: field.record() })

/**
 * Runs groups of rollouts and evaluates a policy.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer, Rollouter, sumDigits } from 'fulmar'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const says = (text: string) => [...tokenizer.encode(text).ids, renderer.stopIds[0] ?? 0]
 * const policy = new ScriptedPolicy({ reply: (_, call) => says(call === 0 ? '[ANSWER] 10' : '[ANSWER] 11') })
 * const rollouter = new Rollouter({ policy, task: sumDigits(), renderer, groupSize: 2, maxTokens: 32 })
 * using group = await rollouter.runGroup({ sample: { numbers: [24, 13], target: 10 }, groupId: 0 })
 * assert.deepEqual(group.rollouts.map(({ reward }) => reward?.toFixed(3)), ['1.000', '0.231'])
 * assert.deepEqual(group.rollouts.map(({ advantage }) => advantage?.toFixed(3)), ['0.385', '-0.385'])
 * ```
 */
export class Rollouter<Sample> {
  readonly #options: RollouterOptions<Sample>
  readonly #task: Task<Sample>
  readonly #rubric: Rubric<Sample>
  readonly #groupSize: number
  readonly #rngs: Readonly<Record<Split, Rng>>
  readonly #slots: Slots
  readonly #clock: Clock
  readonly #train: Dataset<Sample>
  readonly #validation: Dataset<Sample>
  #numGroups = 0

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if a number is outside its range; errors of {@link Rubric} for the
   * rewards; errors of the task when it creates its datasets.
   */
  constructor(options: RollouterOptions<Sample>) {
    checkKnownKeys('options', options, ROLLOUTER_KEYS, ['policy', 'task', 'renderer', 'maxTokens'])
    const { task, groupSize = 8, seed = 0, concurrency = CONCURRENCY_DEFAULT, clock = systemClock } = options
    const { maxTokens, maxTotalTokens = 1, retries = 0, onError = 'keep' } = options
    if (typeof onError === 'object') checkKnownKeys('options.onError', onError, ['minViable'], ['minViable'])
    const minViable = typeof onError === 'object' ? onError.minViable : 1
    const counts = {
      groupSize,
      concurrency,
      maxTokens,
      maxTotalTokens,
      minViable,
      'retries + 1': retries + 1,
    }
    for (const [name, value] of Object.entries(counts)) {
      if (!Number.isSafeInteger(value) || value < 1) {
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
      }
    }
    this.#options = options
    this.#task = task
    this.#rubric = new Rubric({ ...options.rubric, rewardFns: task.rewardFns, clock })
    this.#groupSize = groupSize
    const rng = Rng.fromSeed(seed).stream('rollouts')
    this.#rngs = { train: rng.stream('train'), validation: rng.stream('validation') }
    this.#slots = new Slots(concurrency)
    this.#clock = clock
    this.#train = task.makeDataset('train')
    this.#validation = task.makeDataset('validation')
  }

  /** Number of rollouts of a group. */
  get groupSize(): number {
    return this.#groupSize
  }

  /**
   * Returns the next training sample.
   * @throws {FulmarError} Errors of the task's dataset, such as `EMPTY`.
   */
  getTrainingSample(): Sample {
    return this.#train.next()
  }

  /**
   * Returns the next held-out sample. Independent of {@link Rollouter.evaluate}, which has its own stream.
   */
  getValidationSample(): Sample {
    return this.#validation.next()
  }

  /**
   * Returns the next training sample, with the id of its group and the position of its stream, to restore it
   * later.
   */
  nextWork(): GroupWork<Sample> {
    const cursor = this.#train.stateDict()
    return { sample: this.#train.next(), groupId: this.#numGroups++, cursor }
  }

  /**
   * Restores work of {@link Rollouter.nextWork}, perhaps from another process. Does not advance the stream.
   */
  workAt({ groupId, cursor }: GroupCursor): GroupWork<Sample> {
    const dataset = this.#task.makeDataset('train')
    dataset.loadStateDict(cursor)
    return { sample: dataset.next(), groupId, cursor }
  }

  /**
   * Runs the rollouts of one sample. Failures of a rollout are recorded in it, and never end the group.
   * @throws {FulmarError} `ABORTED` if `signal` fires.
   */
  async runGroup(options: RunGroupOptions<Sample>): Promise<RolloutGroup<Sample>> {
    checkKnownKeys('options', options, ['sample', 'groupId', 'split', 'signal'], ['groupId'])
    const { rollouts, numCloseFailures } = await this.#runSiblings(options, this.#groupSize, {})
    const { sample, groupId, split = 'train' } = options
    const advantages = estimateAdvantages(
      rollouts.map(({ reward }) => reward),
      { stdNormalize: this.#options.stdNormalize ?? false },
    )
    const prefix = split === 'train' ? 'rollout' : 'validation'
    const compared = rollouts.map((rollout, index) => ({ ...rollout, advantage: advantages[index] ?? null }))
    const closeFailures = metric(`${prefix}/close_failures`, 'sum', numCloseFailures)
    return new RolloutGroup({
      groupId,
      sample,
      rollouts: compared,
      metrics: [...groupMetrics(prefix, compared), closeFailures],
    })
  }

  /**
   * Runs the next `numGroups` training samples concurrently. Their ids continue those of the last call.
   * @throws {FulmarError} `ABORTED` if `signal` fires; errors of the task's dataset; `USER_CODE` if no
   * rollout sampled anything; if none could be scored, the reason: `NON_FINITE`, `TIMEOUT`, `USER_CODE`, or
   * `EMPTY` if the functions declined.
   */
  async runNextGroups(
    numGroups: number,
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<RolloutGroup<Sample>[]> {
    checkKnownKeys('options', options, ['signal'])
    const { signal } = options
    const works = Array.from({ length: numGroups }, () => this.nextWork())
    const runs = works.map(({ sample, groupId }) =>
      this.runGroup({ sample, groupId, ...(signal && { signal }) }),
    )
    const groups = await allOrNone(runs, (group) => group[Symbol.dispose]())
    try {
      checkTeaches(groups.flatMap(({ rollouts }) => rollouts))
    } catch (error) {
      for (const group of groups) group[Symbol.dispose]()
      throw error
    }
    return groups
  }

  /**
   * Evaluates the policy on the first `numProblems` held-out samples, always the same samples and the same
   * seeds.
   * @throws {FulmarError} `OUT_OF_RANGE` if `numProblems` or `numAnswers` is not a positive integer;
   * `ABORTED` if `signal` fires; errors of the task's dataset; `USER_CODE` if the task's `isSolved` throws.
   */
  async evaluate(options: MeasureOptions): Promise<Evaluation<Sample>> {
    checkKnownKeys('options', options, MEASURE_KEYS, ['numProblems'])
    const { numProblems, numAnswers = 1, temperature, signal } = options
    for (const [name, value] of Object.entries({ numProblems, numAnswers })) {
      if (!Number.isSafeInteger(value) || value < 1)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
    }
    const dataset = this.#task.makeDataset('validation')
    const samples = Array.from({ length: numProblems }, () => dataset.next())
    const runs = samples.map(async (sample, problemIndex) => {
      const group = { sample, groupId: problemIndex, split: 'validation' as const, ...(signal && { signal }) }
      const sampling = temperature === undefined ? {} : { temperature }
      const { rollouts } = await this.#runSiblings(group, numAnswers, sampling)
      rollouts.forEach(disposeLedger)
      return rollouts.map((rollout) => {
        const { reward, rewardBreakdown, status } = rollout
        const isSolved = this.#isSolved(rollout, sample)
        return {
          sample,
          problemIndex,
          messages: messagesOf(rollout),
          reward,
          rewardBreakdown,
          isSolved,
          status,
        }
      })
    })
    const answers = await allOrNone(runs, () => undefined)
    return evaluationOf(answers.flat(), numProblems)
  }

  /** Returns the position of the training stream. */
  stateDict(): RollouterState {
    return { train: this.#train.stateDict(), numGroups: this.#numGroups }
  }

  /**
   * Restores the position of `state`.
   * @throws {FulmarError} `MALFORMED`, `OUT_OF_RANGE` or `UNKNOWN_NAME`.
   */
  loadStateDict(state: unknown): void {
    const { numGroups, train } = STATE.read('state', state)
    this.#train.loadStateDict(train)
    this.#numGroups = numGroups
  }

  #isSolved(rollout: Rollout, sample: Sample): boolean {
    try {
      return this.#task.isSolved(rollout, sample)
    } catch (error) {
      throw new FulmarError('USER_CODE', `isSolved must not throw: got ${messageOf(error)}`, { cause: error })
    }
  }

  /** Runs, scores and closes the rollouts, in this order; always closes. */
  async #runSiblings(
    { sample, groupId, split = 'train', signal }: RunGroupOptions<Sample>,
    count: number,
    sampling: Partial<SamplingOptions>,
  ): Promise<{ rollouts: Rollout[]; numCloseFailures: number }> {
    using groupRng = this.#rngs[split].fork(groupId)
    const { closeTimeoutMs = CLOSE_TIMEOUT_MS_DEFAULT } = this.#options
    const envs = new OpenEnvs(this.#clock, closeTimeoutMs)
    const runs = Array.from({ length: count }, (_, rolloutId) => {
      const sibling = { sample, envs, groupId, rolloutId, groupRng, sampling, signal }
      return this.#slots.run(() => this.#runAttempts(sibling))
    })
    const rollouts = await settle(async () => {
      const ran = await allOrNone(runs, (rollout) => rollout && disposeLedger(rollout))
      const unscored = ran.filter((rollout) => rollout !== undefined)
      if (unscored.length < count) {
        unscored.forEach(disposeLedger)
        throw aborted(signal)
      }
      return await allOrNone(
        this.#judged(unscored).map((rollout) => this.#score(rollout, sample, signal)),
        disposeLedger,
      )
    })
    await envs.closeAll()
    if (!rollouts.ok) throw rollouts.error
    return { rollouts: rollouts.value, numCloseFailures: envs.numFailures }
  }

  /**
   * Runs one rollout, and again with a new environment after an error while there are retries; `undefined` if
   * it was aborted.
   */
  async #runAttempts(sibling: Sibling<Sample>): Promise<UnscoredRollout | undefined> {
    const { retries = 0, rolloutTimeoutMs = null } = this.#options
    for (let attempt = 0; ; attempt++) {
      const pause = PACER.pass()
      if (pause) await pause
      const env = lazyEnv(() => this.#task.makeEnv(sibling.sample))
      sibling.envs.add(env)
      const limit = new RolloutLimit(this.#clock, rolloutTimeoutMs, sibling.signal)
      try {
        const rollout = await this.#runOne(sibling, attempt, env, limit)
        if (attempt >= retries || !rollout || !isError(rollout.status)) return rollout
        disposeLedger(rollout)
      } finally {
        // Not `using`, whose generated code dominates the time here.
        limit[Symbol.dispose]()
      }
      await sibling.envs.close(env)
    }
  }

  #runOne(
    sibling: Sibling<Sample>,
    attempt: number,
    messageEnv: MessageEnv,
    { signal, hasExpired }: RolloutLimit,
  ): Promise<UnscoredRollout | undefined> {
    const { policy, renderer, maxTokens, temperature = 1, topK = 0, topP = 1 } = this.#options
    const { stopStrings = [], generateTimeoutMs = null } = this.#options
    const { maxRolloutTokens = Number.POSITIVE_INFINITY } = this.#options
    const { maxTotalTokens = Number.POSITIVE_INFINITY } = this.#options
    const { groupId, rolloutId } = sibling
    return runRollout({
      policy,
      env: this.#makeTokenEnv(messageEnv, signal),
      groupId,
      rolloutId,
      attempt,
      seedOf: (turnId) => seedOf(sibling, attempt, turnId),
      sampling: { maxTokens, temperature, topK, topP, stopStrings, ...sibling.sampling },
      stopIds: renderer.stopIds,
      maxRolloutTokens,
      maxTotalTokens,
      generateTimeoutMs,
      clock: this.#clock,
      pacer: PACER,
      signal,
      hasExpired,
    })
  }

  /** Marks rollouts that `onError` leaves unscored. */
  #judged(rollouts: readonly UnscoredRollout[]): readonly (UnscoredRollout & { isDropped: boolean })[] {
    const { onError = 'keep' } = this.#options
    const numViable = rollouts.filter(({ status }) => !isError(status)).length
    const isLost = typeof onError === 'object' && numViable < onError.minViable
    return rollouts.map((rollout) => {
      return { ...rollout, isDropped: isLost || (onError !== 'keep' && isError(rollout.status)) }
    })
  }

  async #score(
    { isDropped, ...rollout }: UnscoredRollout & { readonly isDropped: boolean },
    sample: Sample,
    signal: AbortSignal | undefined,
  ): Promise<Rollout> {
    try {
      if (isDropped)
        return { ...rollout, reward: null, rewardBreakdown: {}, unscored: DROPPED, advantage: null }
      return { ...rollout, ...(await this.#rubric.score(rollout, sample, signal)), advantage: null }
    } catch (error) {
      disposeLedger(rollout)
      throw error
    }
  }

  #makeTokenEnv(messageEnv: MessageEnv, signal: AbortSignal | undefined): TokenEnv {
    const { renderer, maxRolloutTokens, maxTurns, stepTimeoutMs, onTruncation, minCompletionTokens } =
      this.#options
    return new TokenEnv({
      messageEnv,
      renderer,
      clock: this.#clock,
      ...(maxRolloutTokens !== undefined && { maxRolloutTokens }),
      ...(maxTurns !== undefined && { maxTurns }),
      ...(minCompletionTokens !== undefined && { minCompletionTokens }),
      ...(stepTimeoutMs !== undefined && { stepTimeoutMs }),
      ...(onTruncation && { onTruncation }),
      ...(signal && { signal }),
    })
  }
}

/** One rollout of a group, before it runs. */
interface Sibling<Sample> {
  readonly sample: Sample
  readonly envs: OpenEnvs
  readonly groupId: number
  readonly rolloutId: number
  readonly groupRng: Rng
  readonly sampling: Partial<SamplingOptions>
  readonly signal: AbortSignal | undefined
}

function seedOf({ groupRng, rolloutId }: Sibling<unknown>, attempt: number, turnId: number): number {
  const path = [rolloutId, turnId]
  if (attempt === 0) return groupRng.belowAt(path, Number.MAX_SAFE_INTEGER)
  return retrySeed(groupRng, attempt, path)
}

/** Returns the seed of a later attempt, which has its own stream. */
function retrySeed(groupRng: Rng, attempt: number, path: readonly number[]): number {
  using stream = groupRng.stream(`attempt ${attempt}`)
  return stream.belowAt(path, Number.MAX_SAFE_INTEGER)
}

function disposeLedger({ ledger }: Pick<Rollout, 'ledger'>): void {
  ledger[Symbol.dispose]()
}

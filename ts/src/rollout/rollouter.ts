/**
 * Runs samples of a task as scored groups of rollouts.
 *
 * ```text
 * group: sample -> groupSize environments -> rollouts side by side -> score -> advantages -> close environments
 * ```
 *
 * `sibling-runner.ts` runs, scores and closes; here are the streams of samples and the groups.
 */

import { checkKnownKeys, field } from '../core/index.js'
import type { Dataset, DatasetState } from '../data/index.js'
import type { MessageEnv, Task } from '../env/index.js'
import { type Clock, metric } from '../telemetry/index.js'
import { estimateAdvantages } from './advantage.js'
import { allOrNone } from './all-or-none.js'
import { checkTeaches } from './check-teaches.js'
import type { Evaluation } from './evaluation.js'
import { groupMetrics } from './group-metrics.js'
import { measure } from './measure.js'
import { RolloutGroup } from './rollout.js'
import { runRollout, type UnscoredRollout } from './rollout-loop.js'
import {
  MEASURE_KEYS,
  type MeasureOptions,
  ROLLOUTER_KEYS,
  type RollouterOptions,
  type RunGroupOptions,
} from './rollouter-options.js'
import { checkCounts, type Play, SiblingRunner } from './sibling-runner.js'
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
  readonly #groupSize: number
  readonly #runner: SiblingRunner<Sample>
  readonly #train: Dataset<Sample>
  readonly #validation: Dataset<Sample>
  #numGroups = 0

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if a number is outside its range; errors of {@link Rubric} for the
   * rewards; errors of the task when it creates its datasets.
   */
  constructor(options: RollouterOptions<Sample>) {
    checkKnownKeys('options', options, ROLLOUTER_KEYS, ['policy', 'task', 'renderer', 'maxTokens'])
    const { task, groupSize = 8, maxTokens, maxTotalTokens = 1 } = options
    checkCounts({ groupSize, maxTokens, maxTotalTokens })
    this.#options = options
    this.#task = task
    this.#runner = new SiblingRunner(options, (play) => this.#play(play))
    this.#groupSize = groupSize
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
    const members = Array.from({ length: this.#groupSize }, (_, rolloutId) => rolloutId)
    const { rollouts, numCloseFailures } = await this.#runner.run(options, members)
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
   * `ABORTED` if `signal` fires; errors of the task's dataset and of `onAnswer`; `USER_CODE` if the task's
   * `isSolved` throws.
   */
  async evaluate(options: MeasureOptions<Sample>): Promise<Evaluation<Sample>> {
    checkKnownKeys('options', options, MEASURE_KEYS, ['numProblems'])
    return await measure(this.#runner, options)
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

  #play(play: Play): Promise<UnscoredRollout | undefined> {
    const { policy, renderer, maxTokens, topK = 0, topP = 1 } = this.#options
    const { temperature = this.#options.temperature ?? 1 } = play
    const { stopStrings = [], generateTimeoutMs = null } = this.#options
    const { maxRolloutTokens = Number.POSITIVE_INFINITY } = this.#options
    const { maxTotalTokens = Number.POSITIVE_INFINITY, maxTurns = Number.POSITIVE_INFINITY } = this.#options
    const sampling = { maxTokens, temperature, topK, topP, stopStrings }
    const limits = { maxRolloutTokens, maxTotalTokens, generateTimeoutMs }
    const own = play.env.own()
    if (own) return own.playRollout({ ...play, policy, renderer, ...sampling, maxTurns, ...limits })
    const env = this.#makeTokenEnv(play.env, play.clock, play.signal)
    return runRollout({ ...play, policy, env, sampling, stopIds: renderer.stopIds, ...limits })
  }

  #makeTokenEnv(messageEnv: MessageEnv, clock: Clock, signal: AbortSignal | undefined): TokenEnv {
    const { renderer, maxRolloutTokens, maxTurns, stepTimeoutMs, onTruncation, minCompletionTokens } =
      this.#options
    return new TokenEnv({
      messageEnv,
      renderer,
      clock,
      ...(maxRolloutTokens !== undefined && { maxRolloutTokens }),
      ...(maxTurns !== undefined && { maxTurns }),
      ...(minCompletionTokens !== undefined && { minCompletionTokens }),
      ...(stepTimeoutMs !== undefined && { stepTimeoutMs }),
      ...(onTruncation && { onTruncation }),
      ...(signal && { signal }),
    })
  }
}

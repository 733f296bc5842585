/**
 * Runs rollouts of one sample side by side: with retries and deadlines, scored, and with their environments
 * closed after scoring, so that a reward may inspect them.
 *
 * The seed of each completion is a function of (run seed, split, group, member, turn), so samples do not
 * depend on concurrent rollouts, their order, or a resume.
 */

import { aborted, Slots } from '../async/index.js'
import { checkKnownKeys, FulmarError, Rng } from '../core/index.js'
import { isError, type Split, type Task } from '../env/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import { allOrNone, settle } from './all-or-none.js'
import { LazyEnv, OpenEnvs } from './open-envs.js'
import { Pacer } from './pacer.js'
import type { Rollout } from './rollout.js'
import { RolloutLimit } from './rollout-limit.js'
import type { UnscoredRollout } from './rollout-loop.js'
import type { RollouterOptions, RunGroupOptions } from './rollouter-options.js'
import { Rubric } from './rubric.js'

/** One attempt of a rollout. */
export interface Play {
  /** Environment, which the caller closes. */
  readonly env: LazyEnv
  readonly groupId: number
  readonly rolloutId: number
  /** Number of failed attempts before this one. */
  readonly attempt: number
  /** Returns a turn's seed. */
  readonly seedOf: (turnId: number) => number
  /** Temperature that replaces the player's own. */
  readonly temperature?: number
  /** Shared by all rollouts of the process, as they share the event loop. */
  readonly pacer: Pacer
  readonly clock: Clock
  readonly signal: AbortSignal | undefined
  /** Returns true if `signal` fired because of the rollout's deadline. */
  readonly hasExpired: () => boolean
}

/** Plays one rollout to its end; `undefined` if it was aborted. */
export type Player = (play: Play) => Promise<UnscoredRollout | undefined>

/** Options of a {@link SiblingRunner}. */
export type SiblingOptions<Sample> = Pick<
  RollouterOptions<Sample>,
  | 'task'
  | 'seed'
  | 'rubric'
  | 'concurrency'
  | 'rolloutTimeoutMs'
  | 'retries'
  | 'onError'
  | 'closeTimeoutMs'
  | 'clock'
>

/** Reason why a rollout with an error has no reward, if `onError` drops it. */
const DROPPED = {
  error: { code: 'DECLINED', message: 'rollout must end without an error: it was dropped' },
} as const

const PACER = new Pacer()

const CLOSE_TIMEOUT_MS_DEFAULT = 60_000
const CONCURRENCY_DEFAULT = 1024

/** Rollouts of the samples of one task. */
export class SiblingRunner<Sample> {
  readonly task: Task<Sample>
  readonly #options: SiblingOptions<Sample>
  readonly #play: Player
  readonly #rubric: Rubric<Sample>
  readonly #rngs: Readonly<Record<Split, Rng>>
  readonly #slots: Slots
  readonly #clock: Clock

  /** @throws {FulmarError} `OUT_OF_RANGE` if a number is outside its range; errors of a {@link Rubric}. */
  constructor(options: SiblingOptions<Sample>, play: Player) {
    const { task, seed = 0, concurrency = CONCURRENCY_DEFAULT, clock = systemClock } = options
    const { retries = 0, onError = 'keep' } = options
    if (typeof onError === 'object') checkKnownKeys('options.onError', onError, ['minViable'], ['minViable'])
    const minViable = typeof onError === 'object' ? onError.minViable : 1
    checkCounts({ concurrency, minViable, 'retries + 1': retries + 1 })
    this.task = task
    this.#options = options
    this.#play = play
    this.#rubric = new Rubric({ ...options.rubric, rewardFns: task.rewardFns, clock })
    const rng = Rng.fromSeed(seed).stream('rollouts')
    this.#rngs = { train: rng.stream('train'), validation: rng.stream('validation') }
    this.#slots = new Slots(concurrency)
    this.#clock = clock
  }

  /** Runs, scores and closes the rollouts with these indices in the group, in this order; always closes. */
  async run(
    { sample, groupId, split = 'train', signal }: RunGroupOptions<Sample>,
    rolloutIds: readonly number[],
    sampling: { readonly temperature?: number } = {},
  ): Promise<{ rollouts: Rollout[]; numCloseFailures: number }> {
    using groupRng = this.#rngs[split].fork(groupId)
    const { closeTimeoutMs = CLOSE_TIMEOUT_MS_DEFAULT } = this.#options
    const envs = new OpenEnvs(this.#clock, closeTimeoutMs)
    const runs = rolloutIds.map((rolloutId) => {
      const sibling = { sample, envs, groupId, rolloutId, groupRng, sampling, signal }
      return this.#slots.run(() => this.#runAttempts(sibling))
    })
    const rollouts = await settle(async () => {
      const ran = await allOrNone(runs, (rollout) => rollout && disposeLedger(rollout))
      const unscored = ran.filter((rollout) => rollout !== undefined)
      if (unscored.length < rolloutIds.length) {
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
    const { groupId, rolloutId, sampling } = sibling
    for (let attempt = 0; ; attempt++) {
      const pause = PACER.pass()
      if (pause) await pause
      const env = new LazyEnv(() => this.task.makeEnv(sibling.sample))
      sibling.envs.add(env)
      const limit = new RolloutLimit(this.#clock, rolloutTimeoutMs, sibling.signal)
      try {
        const { signal, hasExpired } = limit
        const rollout = await this.#play({
          ...{ env, groupId, rolloutId, attempt, ...sampling, pacer: PACER, clock: this.#clock },
          seedOf: (turnId) => seedOf(sibling, attempt, turnId),
          ...{ signal, hasExpired },
        })
        if (attempt >= retries || !rollout || !isError(rollout.status)) return rollout
        disposeLedger(rollout)
      } finally {
        // Not `using`, whose generated code dominates the time here.
        limit[Symbol.dispose]()
      }
      await sibling.envs.close(env)
    }
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
}

/** @throws {FulmarError} `OUT_OF_RANGE` if one is not a positive integer. */
export function checkCounts(counts: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(counts)) {
    if (Number.isSafeInteger(value) && value >= 1) continue
    throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
  }
}

/** Frees the native memory of a rollout. */
export function disposeLedger({ ledger }: Pick<Rollout, 'ledger'>): void {
  ledger[Symbol.dispose]()
}

/** One rollout of a group, before it runs. */
interface Sibling<Sample> {
  readonly sample: Sample
  readonly envs: OpenEnvs
  readonly groupId: number
  readonly rolloutId: number
  readonly groupRng: Rng
  readonly sampling: { readonly temperature?: number }
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

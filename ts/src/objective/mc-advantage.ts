/** Advantages of groups whose rollouts arrive one by one, and selection of rollouts. */

import {
  call,
  checkGiven,
  checkKnownKeys,
  FulmarError,
  field,
  numbersOf,
  type OnDevice,
} from '../core/index.js'
import { type RawGroupQueues, type RawTopKQueues, raw } from '../native/index.js'
import type { TensorDict } from '../tensor/index.js'
import { optionsJson } from './argument.js'
import { groupIdOf, joined, type TrajectoryKeys, trajectoriesOf, withAdvantages } from './trajectories.js'

/** Options of the selection of a group among candidates. */
export interface MCAdvantageSelectorOptions {
  /**
   * `balanced` takes the subset whose mean is nearest to the middle of the bounds, and of these the one with
   * the widest spread; `first` takes the first candidates; `uniform` takes evenly spaced ones in the order of
   * returns.
   * @default 'balanced'
   */
  readonly strategy?: 'balanced' | 'first' | 'uniform'
  /**
   * Maximum number of subsets that `balanced` compares; above it, rollouts are exchanged one at a time.
   * @default 100000
   */
  readonly maxCombinations?: number
}

/** Bounds of the mean return of a kept group, both exclusive. */
export type ReturnBounds = readonly [low: number, high: number]

/**
 * Selects `groupSize` of the candidates by their indices, or returns nothing if no selection is acceptable
 * yet.
 */
export type CandidateSelector<T> = (candidates: {
  readonly returns: readonly number[]
  readonly items: readonly T[]
  readonly groupSize: number
  readonly keepReturnBounds?: ReturnBounds
}) => readonly number[] | undefined

/** Options of {@link MCAdvantage}. */
export interface MCAdvantageOptions<T> extends OnDevice, TrajectoryKeys {
  /** Number of rollouts of a group; at least 2. */
  readonly grpoSize: number
  /**
   * Compares rollouts by the sum, maximum or mean of their rewards; without it single rewards are compared.
   * @default none
   */
  readonly trajectoryReturn?: 'sum' | 'max' | 'mean'
  /**
   * Keeps a group only if its mean return is within these bounds; needs `trajectoryReturn`.
   * @default all are kept
   */
  readonly keepReturnBounds?: ReturnBounds
  /**
   * Number of rollouts after which a group without an acceptable selection is dropped; needs
   * `trajectoryReturn`.
   * @default grpoSize
   */
  readonly candidateGroupSize?: number
  /** Number of rollouts before the first selection is tried. @default grpoSize */
  readonly candidateSelectionMinSize?: number
  /** Strategy of the selection, or a function that makes it. */
  readonly candidateSelector?: MCAdvantageSelectorOptions | CandidateSelector<T>
}

/** A rollout of a complete group. */
export interface AdvantageOf<T> {
  /** The item that was pushed. */
  readonly item: T
  /** The advantage of each of its rewards. */
  readonly advantage: Float64Array
}

/** Counts of {@link MCAdvantage.stats}. */
export interface MCAdvantageStats {
  readonly completedTrajectories: number
  readonly completedDecisions: number
  /** Sum of the sums of rewards; counted only with `trajectoryReturn`, as the next two. */
  readonly trajectoryReturnSum: number
  /** Largest of these sums; null before the first. */
  readonly trajectoryReturnMax: number | null
  /** Number of rollouts whose sum is above 0. */
  readonly successfulTrajectories: number
  readonly completedGroups: number
  readonly writtenGroups: number
  readonly droppedGroups: number
  /** Number of groups that needed more candidates than the first selection had. */
  readonly rescuedGroups: number
  readonly selectedTrajectories: number
  readonly unselectedTrajectories: number
  readonly queuedGroups: number
  readonly queuedTrajectories: number
  readonly maxQueuedTrajectoriesPerGroup: number
}

/** State of {@link MCAdvantage}: plain JSON, for a checkpoint, if the items are. */
export interface MCAdvantageState<T> {
  /** Waiting rollouts and counts, as the core writes them. */
  readonly queues: string
  /** Items of waiting rollouts, by ticket. */
  readonly items: readonly (readonly [ticket: number, item: T])[]
}

type Group = { tickets: number[]; advantages: number[][]; released: number[] }

const STATE = field.section({ queues: field.text(), items: field.list(field.json()) })

const SELECTOR_KEYS = { strategy: true, maxCombinations: true } as const
const MC_KEYS = {
  device: true,
  grpoSize: true,
  trajectoryReturn: true,
  keepReturnBounds: true,
  candidateGroupSize: true,
  candidateSelectionMinSize: true,
  candidateSelector: SELECTOR_KEYS,
} as const

/**
 * Collects rollouts by group and returns a group with its advantages once it is complete: without
 * `trajectoryReturn` `(r - mean) / max(std, 1e-6)` over all rewards of the group, else the same over the
 * returns of its rollouts. Groups are identified by an id of the caller's, never by the prompt's text. A
 * group of equal returns gets exactly 0. At most 65,536 groups wait. Holds native memory: dispose it, or
 * declare it with `using`.
 *
 * Among the `transforms` of a replay buffer it is TorchRL's: a write is held back until its group is whole, and
 * then stored with `advantage`. Emptying the buffer leaves waiting rollouts in their queues.
 *
 * @example
 * ```ts
 * import { MCAdvantage } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * using queues = new MCAdvantage<string>({ grpoSize: 2, trajectoryReturn: 'sum', keepReturnBounds: [0.1, 0.9], candidateGroupSize: 3 })
 * assert.equal(queues.push('prompt 7', [0], 'wrong'), undefined)
 * assert.equal(queues.push('prompt 7', [0], 'wrong again'), undefined) // nothing to learn from: one more may come
 * const group = queues.push('prompt 7', [0, 1], 'right')
 * assert.deepEqual(group?.map(({ item }) => item), ['wrong', 'right'])
 * assert.deepEqual(group?.[1]?.advantage.map(Math.sign), Float64Array.of(1, 1)) // one for each of its rewards
 *
 * queues.push('prompt 8', [1], 'half of a group')
 * using resumed = new MCAdvantage<string>({ grpoSize: 2, trajectoryReturn: 'sum', keepReturnBounds: [0.1, 0.9], candidateGroupSize: 3 })
 * resumed.loadStateDict(JSON.parse(JSON.stringify(queues.stateDict())))
 * assert.equal(resumed.push('prompt 8', [0], 'the other')?.length, 2)
 * ```
 */
export class MCAdvantage<T = TensorDict> {
  #raw: RawGroupQueues
  #items = new Map<number, T>()
  #waiting = new Map<string, number[]>()
  readonly #json: string
  readonly #select: CandidateSelector<T> | undefined
  readonly #rule: Pick<MCAdvantageOptions<T>, 'grpoSize' | 'keepReturnBounds'>
  readonly #keys: Required<TrajectoryKeys>

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` for an option outside its range, or without one that it needs; `MALFORMED` for a value of another
   * type; `UNKNOWN_NAME` for an unknown key.
   */
  constructor(options: MCAdvantageOptions<T>) {
    checkGiven('options', options)
    const {
      candidateSelector,
      promptKey = 'query',
      rewardsKey = ['next', 'reward'],
      doneKey = ['next', 'done'],
      advantageKey = 'advantage',
      ...rest
    } = options
    this.#keys = { promptKey, rewardsKey, doneKey, advantageKey }
    this.#select = typeof candidateSelector === 'function' ? candidateSelector : undefined
    const selector = typeof candidateSelector === 'function' ? {} : { candidateSelector }
    this.#json = optionsJson('MCAdvantage', { ...rest, ...selector }, MC_KEYS)
    this.#rule = options
    this.#raw = call(() => raw.GroupQueues.create(this.#json))
  }

  /**
   * Adds a rollout with its rewards, one or more. Returns the whole group in order if it is complete now.
   *
   * @throws {FulmarError} `EMPTY` without rewards; `NON_FINITE` for a reward that is not finite;
   * `LIMIT_EXCEEDED` if too many groups wait; errors of a custom selector, or `OUT_OF_RANGE` and
   * `SHAPE_MISMATCH` for its result: the rollout then waits.
   */
  push(groupId: string, rewards: ArrayLike<number>, item: T): readonly AdvantageOf<T>[] | undefined {
    const values = numbersOf('rewards', rewards)
    if (this.#select === undefined) {
      const [ticket, group]: [number, Group] = JSON.parse(call(() => this.#raw.push(groupId, values)))
      this.#items.set(ticket, item)
      return this.#given(group)
    }
    const ticket = call(() => this.#raw.enqueue(groupId, values))
    this.#items.set(ticket, item)
    const tickets = [...(this.#waiting.get(groupId) ?? []), ticket]
    this.#waiting.set(groupId, tickets)
    const returns: number[] | null = JSON.parse(call(() => this.#raw.candidates(groupId)))
    if (returns === null) return undefined
    const { grpoSize: groupSize, keepReturnBounds } = this.#rule
    const items = tickets.map((ticket) => this.#itemOf(ticket))
    const chosen = this.#select({ returns, items, groupSize, ...(keepReturnBounds && { keepReturnBounds }) })
    const json = JSON.stringify(chosen ?? null)
    const group: Group = JSON.parse(call(() => this.#raw.settle(groupId, json)))
    if (group.released.length > 0) this.#waiting.delete(groupId)
    return this.#given(group)
  }

  /**
   * Takes whole trajectories of turns, `[turns]` or `[trajectories, turns]`, and returns the groups that are
   * complete now, with their advantages; `undefined` without one.
   * @throws {FulmarError} `INCOMPATIBLE` if the last turn is not done, or other items than dictionaries wait;
   * `UNKNOWN_NAME` without the group, the rewards or the ends; errors of {@link MCAdvantage.push}, such as
   * `NON_FINITE` for a turn that could not be scored: leave those out before. Then nothing is taken.
   */
  inverse(this: MCAdvantage<TensorDict>, items: TensorDict): TensorDict | undefined {
    const { promptKey, rewardsKey, doneKey } = this.#keys
    const rollouts = trajectoriesOf(items, doneKey).map((trajectory) => ({
      trajectory,
      groupId: groupIdOf(trajectory, promptKey),
      rewards: numbersOf('rewards', trajectory.tensor(rewardsKey).toFloat32()),
    }))
    for (const { groupId, rewards } of rollouts) checkScored(groupId, rewards)
    const groups = rollouts.flatMap(
      ({ trajectory, groupId, rewards }) => this.push(groupId, rewards, trajectory) ?? [],
    )
    return joined(groups.map(({ item, advantage }) => withAdvantages(item, advantage, this.#keys)))
  }

  /** Returns counts since the start or {@link MCAdvantage.resetStats}; counts of queues are current. */
  stats(): MCAdvantageStats {
    return JSON.parse(call(() => this.#raw.stats()))
  }

  /** Resets all counts to 0; queues are unchanged. */
  resetStats(): void {
    call(() => this.#raw.resetStats())
  }

  /** Removes all waiting rollouts and returns them; the counts stay. */
  clearQueues(): T[] {
    this.#waiting.clear()
    return this.#taken(JSON.parse(call(() => this.#raw.clearQueues())))
  }

  /** Returns the state, with the items as they are. */
  stateDict(): MCAdvantageState<T> {
    return { queues: call(() => this.#raw.state()), items: [...this.#items] }
  }

  /**
   * Restores a state of an instance with the same options: half-filled groups keep filling.
   * @throws {FulmarError} `MALFORMED` or `UNKNOWN_NAME` for an invalid state; `CORRUPT` for one that
   * contradicts itself or these options. After an error nothing has changed.
   */
  loadStateDict(state: MCAdvantageState<T>): void {
    const { queues, items: pairs } = STATE.read('state', state)
    const items = new Map(pairs.map(readItem<T>))
    const next = call(() => raw.GroupQueues.create(this.#json))
    try {
      call(() => next.loadState(queues))
      const waiting = waitingOf(call(() => next.state()))
      checkItems(items, [...waiting.values()].flat())
      this.#waiting = this.#select === undefined ? new Map() : waiting
    } catch (error) {
      next.free()
      throw error
    }
    this.#raw.free()
    this.#raw = next
    this.#items = items
  }

  /** Frees the queues. */
  [Symbol.dispose](): void {
    this.#items.clear()
    this.#raw.free()
  }

  #given({ tickets, advantages, released }: Group): readonly AdvantageOf<T>[] | undefined {
    const given = tickets.map((ticket, at) => ({
      item: this.#itemOf(ticket),
      advantage: Float64Array.from(advantages[at] ?? []),
    }))
    this.#taken(released)
    return given.length > 0 ? given : undefined
  }

  #taken(tickets: readonly number[]): T[] {
    const items = tickets.map((ticket) => this.#itemOf(ticket))
    for (const ticket of tickets) this.#items.delete(ticket)
    return items
  }

  #itemOf(ticket: number): T {
    return this.#items.get(ticket) as T
  }
}

function checkScored(groupId: string, rewards: Float64Array): void {
  const wrong = rewards.find((reward) => !Number.isFinite(reward))
  if (wrong !== undefined)
    throw new FulmarError('NON_FINITE', `rewards of group ${groupId} must be finite: got ${wrong}`)
}

function readItem<T>(pair: unknown): [number, T] {
  if (Array.isArray(pair) && pair.length === 2 && Number.isSafeInteger(pair[0])) return [pair[0], pair[1]]
  throw new FulmarError('MALFORMED', `state.items must be pairs of a ticket and an item: got ${String(pair)}`)
}

/** Returns the tickets of each group in a state of the core. */
function waitingOf(state: string): Map<string, number[]> {
  const { queues }: { queues: Record<string, readonly { ticket: number }[]> } = JSON.parse(state)
  return new Map(Object.entries(queues).map(([group, queue]) => [group, queue.map(({ ticket }) => ticket)]))
}

function checkItems(items: ReadonlyMap<number, unknown>, tickets: readonly number[]): void {
  if (items.size === tickets.length && tickets.every((ticket) => items.has(ticket))) return
  const rule = `state.items must match the ${tickets.length} waiting rollouts`
  throw new FulmarError('CORRUPT', `${rule}: got tickets ${[...items.keys()].slice(0, 8).join(', ')}`)
}

/**
 * Selects `groupSize` of candidates by their returns as {@link MCAdvantage} does. Returns their indices, or
 * nothing if no selection has a mean within the bounds.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` for fewer candidates than `groupSize` or an option outside its range;
 * `NON_FINITE` for a return that is not finite; `LIMIT_EXCEEDED` for more than 1,024 candidates;
 * `UNKNOWN_NAME` for an unknown key.
 *
 * @example
 * ```ts
 * import { MCAdvantageSelector } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const selector = new MCAdvantageSelector()
 * assert.deepEqual(selector.select([0, 0, 0, 1], { groupSize: 2, keepReturnBounds: [0.1, 0.9] }), [0, 3])
 * assert.equal(selector.select([0, 0, 0], { groupSize: 2, keepReturnBounds: [0.1, 0.9] }), undefined)
 * ```
 */
export class MCAdvantageSelector {
  readonly #json: string

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or strategy; `OUT_OF_RANGE` for a bad `maxCombinations`. */
  constructor(options: MCAdvantageSelectorOptions = {}) {
    this.#json = optionsJson('MCAdvantageSelector', options, SELECTOR_KEYS)
    // The core checks the options when it selects: one of one candidate is the cheapest selection.
    call(() => raw.selectRollouts(this.#json, Float64Array.of(0, 1), 2, 'null'))
  }

  /** Returns the indices of the selected candidates. */
  select(
    returns: ArrayLike<number>,
    options: { readonly groupSize: number; readonly keepReturnBounds?: ReturnBounds },
  ): number[] | undefined {
    checkKnownKeys('select', options, ['groupSize', 'keepReturnBounds'])
    const { groupSize, keepReturnBounds } = options
    const bounds = JSON.stringify(keepReturnBounds ?? null)
    const values = numbersOf('returns', returns)
    return JSON.parse(call(() => raw.selectRollouts(this.#json, values, groupSize, bounds))) ?? undefined
  }
}

/** Options of {@link TopKRewardSelector}. */
export interface TopKRewardSelectorOptions {
  /** Number of rollouts of a prompt to compare; at most 1,024. */
  readonly totalDialogTurns: number
  /** Maximum number of rollouts to keep; no more than `totalDialogTurns`. */
  readonly topkSize: number
}

/**
 * Keeps the best of `totalDialogTurns` rollouts of a prompt: those above the (lower) median reward, at most
 * `topkSize`, in descending order. A prompt's rollouts are removed once compared. Holds native memory:
 * dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { TopKRewardSelector } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * using selector = new TopKRewardSelector<string>({ totalDialogTurns: 4, topkSize: 1 })
 * for (const reward of [0, 1, 3]) assert.equal(selector.push('prompt', reward, `worth ${reward}`), undefined)
 * assert.deepEqual(selector.push('prompt', 2, 'worth 2'), ['worth 3'])
 * ```
 */
export class TopKRewardSelector<T> {
  readonly #raw: RawTopKQueues
  readonly #items = new Map<number, T>()

  /** @throws {FulmarError} `OUT_OF_RANGE` unless `1 <= topkSize <= totalDialogTurns`. */
  constructor(options: TopKRewardSelectorOptions) {
    const json = optionsJson('TopKRewardSelector', options, { totalDialogTurns: true, topkSize: true })
    this.#raw = call(() => raw.TopKQueues.create(json))
  }

  /**
   * Adds a rollout with the mean of its rewards. Returns the kept rollouts if it is the last to compare; an
   * empty list if all rewards are equal.
   * @throws {FulmarError} `NON_FINITE` for a reward that is not finite; `LIMIT_EXCEEDED` if too many prompts
   * wait.
   */
  push(promptId: string, reward: number, item: T): T[] | undefined {
    const answer: { ticket: number; compared: number[] | null; released: number[] } = JSON.parse(
      call(() => this.#raw.push(promptId, reward)),
    )
    this.#items.set(answer.ticket, item)
    const kept = answer.compared?.map((ticket) => this.#items.get(ticket) as T)
    for (const ticket of answer.released) this.#items.delete(ticket)
    return kept
  }

  /** Frees the native memory. */
  [Symbol.dispose](): void {
    this.#items.clear()
    this.#raw.free()
  }
}

/** Routes requests to servers. */

import { checkKnownKeys, FulmarError } from '../core/index.js'

/** Maximum number of servers of a {@link Router}. */
export const ROUTER_TARGETS_MAX = 4096

/** Options of {@link Router}. */
export interface RouterOptions {
  /** Number of servers, which are named by their index. 1 to 4096. */
  readonly numTargets: number
  /**
   * `sticky` keeps a session on its server, and else takes the least loaded; `leastLoaded` takes, among
   * equals, the server that was chosen longest ago; `roundRobin` takes them in turn.
   * @default 'sticky'
   */
  readonly strategy?: 'sticky' | 'leastLoaded' | 'roundRobin'
  /**
   * Maximum number of remembered sessions; the least recently used is dropped.
   * @default 4096
   */
  readonly maxSessions?: number
}

/** A request to route. */
export interface RoutingContext {
  /** Session of the request. @default none */
  readonly sessionId?: string | undefined
  /** Load that it adds to its server, at least 0. @default 1 */
  readonly cost?: number
  /** Servers to avoid while another is available. @default none */
  readonly avoid?: ReadonlySet<number> | undefined
}

/** A reservation on a server. Release it once the request has ended. */
export interface Reservation {
  /** Index of the server. */
  readonly target: number
  /** Subtracts the request's cost from the server's load. A second call does nothing. */
  release(): void
}

interface Target {
  load: number
  chosenAt: number
  serves: boolean
}

/**
 * Routes requests by the load that it has reserved itself, without calls to the servers. Skips unavailable
 * servers; a session on such a server moves, and stays on the new one.
 *
 * @example
 * ```ts
 * import { Router } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * const router = new Router({ numTargets: 2 })
 * const first = router.reserve({ sessionId: 'a', cost: 5 })
 * assert.equal(first?.target, 0)
 * assert.equal(router.reserve({ sessionId: 'b' })?.target, 1) // the idle one
 * assert.equal(router.reserve({ sessionId: 'a' })?.target, 0) // where it was, though loaded
 * first?.release()
 * assert.deepEqual(router.loads, [1, 1])
 * ```
 */
export class Router {
  readonly #targets: Target[]
  readonly #strategy: NonNullable<RouterOptions['strategy']>
  readonly #maxSessions: number
  /** Server of each session, the most recently used last. */
  readonly #sessions = new Map<string, number>()
  #numChoices = 0
  #next = 0

  /** @throws {FulmarError} `OUT_OF_RANGE` for a count that is not an integer from 1, or too many targets; `UNKNOWN_NAME` for an unknown key or strategy. */
  constructor(options: RouterOptions) {
    checkKnownKeys('options', options, ['numTargets', 'strategy', 'maxSessions'])
    const { numTargets, strategy = 'sticky', maxSessions = 4096 } = options
    for (const [name, value, most] of [
      ['numTargets', numTargets, ROUTER_TARGETS_MAX],
      ['maxSessions', maxSessions, Number.MAX_SAFE_INTEGER],
    ] as const) {
      if (!Number.isSafeInteger(value) || value < 1 || value > most)
        throw new FulmarError('OUT_OF_RANGE', `${name} must be an integer from 1 to ${most}: got ${value}`)
    }
    if (!['sticky', 'leastLoaded', 'roundRobin'].includes(strategy))
      throw new FulmarError(
        'UNKNOWN_NAME',
        `strategy must be sticky, leastLoaded or roundRobin: got ${strategy}`,
      )
    this.#targets = Array.from({ length: numTargets }, () => ({ load: 0, chosenAt: 0, serves: true }))
    this.#strategy = strategy
    this.#maxSessions = maxSessions
  }

  /** Load of each server: the reserved cost that is not released. */
  get loads(): readonly number[] {
    return this.#targets.map(({ load }) => load)
  }

  /** True for each server that accepts requests. */
  get serving(): readonly boolean[] {
    return this.#targets.map(({ serves }) => serves)
  }

  /**
   * Takes a server out, or puts it back. Its load is kept.
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such server.
   */
  setServing(target: number, serves: boolean): void {
    const found = this.#targets[target]
    if (found === undefined)
      throw new FulmarError('OUT_OF_RANGE', `target must be below ${this.#targets.length}: got ${target}`)
    found.serves = serves
  }

  /**
   * Reserves a server; `undefined` while none is available.
   * @throws {FulmarError} `OUT_OF_RANGE` if the cost is negative or not finite.
   */
  reserve({ sessionId, cost = 1, avoid }: RoutingContext = {}): Reservation | undefined {
    if (!Number.isFinite(cost) || cost < 0)
      throw new FulmarError('OUT_OF_RANGE', `cost must be finite and >= 0: got ${cost}`)
    const index = this.#choose(sessionId, avoid)
    const target = index === undefined ? undefined : this.#targets[index]
    if (index === undefined || target === undefined) return undefined
    this.#numChoices += 1
    target.load += cost
    target.chosenAt = this.#numChoices
    let held = true
    const release = () => {
      if (held) target.load -= cost
      held = false
    }
    return { target: index, release }
  }

  #choose(sessionId: string | undefined, avoid: ReadonlySet<number> | undefined): number | undefined {
    if (this.#strategy === 'roundRobin') return this.#inTurn(avoid)
    if (this.#strategy === 'leastLoaded' || sessionId === undefined) return this.#leastLoaded(avoid)
    const pinned = this.#sessions.get(sessionId)
    const stays = pinned !== undefined && this.#targets[pinned]?.serves && !avoid?.has(pinned)
    const target = stays ? pinned : this.#leastLoaded(avoid)
    if (target !== undefined) this.#remember(sessionId, target)
    return target
  }

  #remember(sessionId: string, target: number): void {
    this.#sessions.delete(sessionId)
    this.#sessions.set(sessionId, target)
    const [oldest] = this.#sessions.keys()
    if (this.#sessions.size > this.#maxSessions && oldest !== undefined) this.#sessions.delete(oldest)
  }

  #inTurn(avoid: ReadonlySet<number> | undefined): number | undefined {
    const serving = this.#candidates(avoid)
    const count = this.#targets.length
    const later = serving.find((index) => index >= this.#next % count) ?? serving[0]
    if (later !== undefined) this.#next = later + 1
    return later
  }

  #leastLoaded(avoid: ReadonlySet<number> | undefined): number | undefined {
    return this.#idlest((index) => !avoid?.has(index)) ?? this.#idlest(() => true)
  }

  #idlest(counts: (index: number) => boolean): number | undefined {
    let [best, chosen]: [number | undefined, Target | undefined] = [undefined, undefined]
    for (const [index, target] of this.#targets.entries()) {
      if (!target.serves || !counts(index)) continue
      const [less, equal] = [target.load < (chosen?.load ?? 0), target.load === chosen?.load]
      if (chosen !== undefined && !less && !(equal && target.chosenAt < chosen.chosenAt)) continue
      best = index
      chosen = target
    }
    return best
  }

  /** Returns the available servers; without those to avoid, if any is left. */
  #candidates(avoid: ReadonlySet<number> | undefined): number[] {
    const serving = [...this.#targets.keys()].filter((index) => this.#targets[index]?.serves)
    const others = serving.filter((index) => !avoid?.has(index))
    return others.length > 0 ? others : serving
  }
}

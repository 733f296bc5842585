/** A policy and an environment taking turns, in which elements that are done begin anew. */

import { FulmarError } from '../../core/index.js'
import { TensorDict } from '../../tensor/index.js'
import { type DictPolicy, type EnvBase, nextRoot } from './env.js'
import { flagsAt } from './flag.js'
import { answered, type Patience, type Turn, takeTurnApart } from './turn-apart.js'

/** Options of {@link TurnLoop}. */
export interface TurnLoopOptions {
  readonly env: EnvBase
  readonly policy: DictPolicy
  /** Input of resets. */
  readonly dict: TensorDict | undefined
  /** With it, elements are asked one by one, and one that fails ends alone. */
  readonly patience: Patience | undefined
}

/**
 * Maximum number of resets of an element whose first prompt is already done, such as one too long for the
 * policy.
 */
const RESETS_MAX = 64

/** The one loop over dictionaries: `rollout` and `LLMCollector` both take their turns from it. */
export class TurnLoop {
  readonly #options: TurnLoopOptions
  #turn: Turn | undefined

  constructor(options: TurnLoopOptions) {
    this.#options = options
  }

  /**
   * Takes one turn, after a reset of what was done, or of everything at first: the dictionary with the
   * actions, and the result at `next`.
   * @throws {FulmarError} `TIMEOUT` if a reset, or the whole first turn, is late; `LIMIT_EXCEEDED` if 64
   * resets in a row give an element that is done; errors of policy and environment.
   */
  async take(): Promise<TensorDict> {
    const { env, policy, patience } = this.#options
    const dict = await this.#begun()
    const turn = patience
      ? await takeTurnApart(env, policy, dict, patience, this.#turn)
      : await takeTurn(env, policy, dict)
    this.#turn = turn
    return turn.root.clone().set('next', turn.next)
  }

  /** The next turn begins with a reset of all elements. */
  reset(): void {
    this.#turn = undefined
  }

  #begun(): Promise<TensorDict> {
    const { env, dict: given, patience } = this.#options
    const run = async () => await begun(env, this.#root() ?? (await env.reset(given)), given)
    return patience ? answered('reset', patience, run) : run()
  }

  #root(): TensorDict | undefined {
    const { env, patience } = this.#options
    if (this.#turn === undefined) return undefined
    const { root, next } = this.#turn
    return nextRoot(env, root, next.exclude(patience ? ['error'] : []))
  }
}

async function takeTurn(env: EnvBase, policy: DictPolicy, dict: TensorDict): Promise<Turn> {
  const root = await policy(dict)
  return { root, next: await env.step(root) }
}

/** The dictionary with a fresh turn in place of each that is done, until none is. */
async function begun(env: EnvBase, from: TensorDict, given: TensorDict | undefined): Promise<TensorDict> {
  let dict = from
  for (let count = 0; count <= RESETS_MAX; count++) {
    const isDone = flagsAt(dict, 'done')
    if (!isDone.includes(true)) return dict
    if (count < RESETS_MAX) dict = await begunAnew(env, dict, isDone, given)
  }
  const detail = `a reset must show a turn that is not over within ${RESETS_MAX} tries: all were over`
  throw new FulmarError('LIMIT_EXCEEDED', detail)
}

/** The dictionary with a fresh turn in place of each that is done. */
async function begunAnew(
  env: EnvBase,
  dict: TensorDict,
  isDone: readonly boolean[],
  given: TensorDict | undefined,
): Promise<TensorDict> {
  checkOneDimension(env)
  const places = (done: boolean) => isDone.flatMap((bit, at) => (bit === done ? [at] : []))
  const [ended, running] = [places(true), places(false)]
  const from = given ?? TensorDict.from({}, { batchSize: env.batchSize })
  const whole = from.batchSize.length === 0 ? from.expand(env.batchSize) : from
  const fresh = await env.reset(whole.indexSelect(ended))
  if (running.length === 0) return fresh
  const kept = dict.indexSelect(running)
  const shared = fresh.leafKeys().filter((key) => kept.has(key))
  const joined = TensorDict.cat([kept.select(shared), fresh.select(shared)])
  const order = [...running, ...ended]
  return joined.indexSelect(order.map((_, at) => order.indexOf(at)))
}

/** Refuses an environment of several dimensions, whose elements cannot begin anew. */
export function checkOneDimension({ batchSize }: EnvBase): void {
  if (batchSize.length === 1) return
  const detail = `batchSize must have one dimension where elements begin anew: got ${batchSize.length}`
  throw new FulmarError('SHAPE_MISMATCH', detail)
}

/** Monte-Carlo tree search over many trees at once. */

import { checkKnownKeys, FulmarError, Handle, yieldToEventLoop } from '../core/index.js'
import { type RawSearch, raw } from '../native/index.js'
import { Tensor } from '../tensor/tensor.js'
import { dictAround, type TensorDict } from '../tensor/tensor-dict.js'
import type { QTransform } from './qtransform.js'
import { TableModel } from './table-model.js'

/** The rule by which simulations choose actions. */
export type SearchPolicy = 'muzero' | 'gumbel' | 'ucb' | 'ucb1Tuned' | 'exp3'

/** Numbers, `[B]` or `[B, A]`, row-major. */
export type SearchNumbers = Tensor | ArrayLike<number>

/** Roots of B trees of A actions. */
export interface SearchRoot<State> {
  /** Logits of the priors, `[B, A]`. */
  readonly logits: SearchNumbers
  /** `[B]`. */
  readonly value: SearchNumbers
  /** The state of each root, `[B]`. */
  readonly states: readonly State[]
}

/** One simulation of all trees. */
export interface SearchStep<State> {
  /** The state in which each tree takes its action, `[B]`. */
  readonly states: readonly State[]
  /** `[B]`. */
  readonly actions: Uint32Array
}

/** The outcome of an action for each tree. */
export interface SearchOutcome<State> extends SearchRoot<State> {
  /** `[B]`. */
  readonly reward: SearchNumbers
  /** `[B]`: 0 at an end; -1, or its product with a discount, where the other player moves next. */
  readonly discount: SearchNumbers
}

/** A model: the outcomes of one action for each tree. One call a simulation. */
export type SearchModel<State> = (
  step: SearchStep<State>,
) => SearchOutcome<State> | Promise<SearchOutcome<State>>

/** Options of {@link search}. Defaults are those of mctx. */
export interface SearchOptions<State> {
  readonly root: SearchRoot<State>
  /** The model. A table needs numbers as states. */
  readonly model: SearchModel<State> | TableModel
  /** Simulations of each tree, from 1. @default 32 */
  readonly numSimulations?: number
  /** @default 'gumbel' */
  readonly policy?: SearchPolicy
  /** Most actions from the root to a node. @default no bound */
  readonly maxDepth?: number
  /** Other than 0 where an action of the root is not allowed, `[B, A]`. @default all are allowed */
  readonly invalidActions?: SearchNumbers
  /** Share of noise in the priors of the root, in [0, 1]; `'muzero'` alone. @default 0.25 */
  readonly dirichletFraction?: number
  /** Concentration of the noise, above 0. @default 0.3 */
  readonly dirichletAlpha?: number
  /** The answer is drawn by `visits ** (1 / temperature)`; the most visited action at 0. Not for `'gumbel'`. @default 1 */
  readonly temperature?: number
  /** Constant of PUCT; `'muzero'` alone. @default 1.25 */
  readonly pbCInit?: number
  /** Constant of PUCT, above 0; `'muzero'` alone. @default 19652 */
  readonly pbCBase?: number
  /** Factor of the Gumbel draws, from 0; `'gumbel'` alone. @default 1 */
  readonly gumbelScale?: number
  /** Gumbel numbers in place of drawn ones, already scaled, `[B, A]`. @default drawn by `seed` */
  readonly rootGumbel?: SearchNumbers
  /** Most actions that sequential halving begins with, from 1; `'gumbel'` alone. @default 16 */
  readonly maxNumConsideredActions?: number
  /** Scale of values. @default `byParentAndSiblings` for `'muzero'`, `completedByMixValue` for `'gumbel'`, otherwise values as they are */
  readonly qtransform?: QTransform
  /** Weight of exploration of `'ucb'`; of the estimate of the variance of `'ucb1Tuned'`. @default the square root of 2; 2 */
  readonly explorationConstant?: number
  /** Share of uniform exploration of `'exp3'`, above 0 and up to 1. @default 0.1 */
  readonly exp3Gamma?: number
  /** Least and largest return, which `'exp3'` scales to [0, 1]. @default [-1, 1] */
  readonly valueRange?: readonly [number, number]
  /** Seed of noise, draws and ties, an integer from 0. @default 0 */
  readonly seed?: number
  /** Continues with what an earlier search found below an action of each of its roots. @default roots alone */
  readonly reuse?: { readonly result: SearchResult<State>; readonly actions: ArrayLike<number> }
  /** Ends the search with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Visits and values of the roots after a search: `f32`. */
export interface SearchSummary {
  /** `[B, A]`. */
  readonly visitCounts: Tensor<'f32'>
  /** `[B, A]`. */
  readonly visitProbs: Tensor<'f32'>
  /** `[B]`. */
  readonly value: Tensor<'f32'>
  /** `[B, A]`. */
  readonly qvalues: Tensor<'f32'>
}

/** Simulations of all trees of a table between two looks at the signal. */
const SIMULATIONS_PER_TURN = 1 << 14

const CORE_OPTIONS = [
  'numSimulations',
  'policy',
  'maxDepth',
  'dirichletFraction',
  'dirichletAlpha',
  'temperature',
  'pbCInit',
  'pbCBase',
  'gumbelScale',
  'maxNumConsideredActions',
  'qtransform',
  'explorationConstant',
  'exp3Gamma',
  'valueRange',
  'seed',
] as const
const OPTIONS = ['root', 'model', 'invalidActions', 'rootGumbel', 'reuse', 'signal', ...CORE_OPTIONS]

// Doors between the function and the result.
let wrap: <State>(native: Handle<RawSearch>, states: State[][]) => SearchResult<State>
let unwrap: <State>(result: SearchResult<State>) => [Handle<RawSearch>, readonly State[][]]

/**
 * The answers of a search, and its trees.
 *
 * @example
 * ```ts
 * import { search, SearchResult } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const root = { logits: [0, 0], value: [0], states: ['start'] }
 * const model = () => ({ states: ['end'], reward: [1], discount: [0], value: [0], logits: [0, 0] })
 * const result = await search({ root, model, numSimulations: 4 })
 * assert.ok(result instanceof SearchResult)
 * assert.deepEqual(result.tree.tensor('node_visits').shape, [1, 5])
 * ```
 */
export class SearchResult<State> {
  /** The action of each tree, `[B]`. */
  readonly action: Uint32Array
  /** The improved policy, `[B, A]`: shares of visits; of `'gumbel'` the softmax of logits and completed values. */
  readonly actionWeights: Tensor<'f32'>
  readonly #native: Handle<RawSearch>
  readonly #states: State[][]

  private constructor(native: Handle<RawSearch>, states: State[][]) {
    const answer = dictAround(() => native.call((one) => one.answer()))
    this.action = answer.tensor('action').data as Uint32Array
    this.actionWeights = answer.tensor('action_weights') as Tensor<'f32'>
    this.#native = native
    this.#states = states
  }

  static {
    wrap = (native, states) => new SearchResult(native, states)
    unwrap = (result) => [result.#native, result.#states]
  }

  /** Visits and values of the roots. */
  get summary(): SearchSummary {
    const summary = dictAround(() => this.#native.call((one) => one.summary()))
    const column = (name: string) => summary.tensor(name) as Tensor<'f32'>
    const [visitCounts, visitProbs] = [column('visit_counts'), column('visit_probs')]
    return { visitCounts, visitProbs, value: column('value'), qvalues: column('qvalues') }
  }

  /**
   * All nodes under the names of mctx: `node_visits`, `raw_values`, `node_values`, `parents` and `action_from_parent` are `[B, N]`,
   * `children_index`, `children_prior_logits`, `children_visits`, `children_rewards`, `children_discounts` and `children_values` `[B, N, A]`.
   * -1 marks a missing parent or child. A copy.
   */
  get tree(): TensorDict {
    return dictAround(() => this.#native.call((one) => one.arrays()))
  }

  /** The state of a node of a tree, if the model is a function; a node that was never added has none. */
  stateOf(tree: number, node: number): State | undefined {
    return this.#states[tree]?.[node]
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/**
 * Searches B trees at once. Each simulation goes down each tree by the policy to an action that was never taken, asks the model for its
 * outcome, adds a node, and adds its value to all nodes above it. Equal seeds give equal trees on every backend.
 *
 * A table runs in the core; a function is called once a simulation with the states and actions of all trees, and may be async. Logits of
 * `-Infinity` are actions that are not allowed in that state.
 *
 * @throws {FulmarError} `EMPTY` without trees or actions; `SHAPE_MISMATCH` if lengths differ; `NON_FINITE` if a number is NaN or infinite,
 *   except logits of `-Infinity`; `OUT_OF_RANGE` if an option is not in its range; `LIMIT_EXCEEDED` if trees x (simulations + 1) x actions is
 *   above 2^28; `UNKNOWN_NAME` for an unknown option, policy or transform; `INCOMPATIBLE` if `reuse` is of another policy; `ABORTED` by the
 *   signal; what the model throws.
 *
 * @example
 * ```ts
 * import { search } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * // Players count to 10 by 1 or 2 in turn; saying 10 wins.
 * const moves = (count: number) => [0, count + 2 > 10 ? -Infinity : 0]
 * const { action, summary } = await search({
 *   root: { logits: moves(5), value: [0], states: [5] },
 *   model: ({ states, actions }) => {
 *     const next = states.map((count, tree) => count + Number(actions[tree]) + 1)
 *     const isEnd = next.map((count) => count >= 10)
 *     return {
 *       states: next,
 *       reward: isEnd.map(Number),
 *       discount: isEnd.map((end) => (end ? 0 : -1)),
 *       value: next.map(() => 0),
 *       logits: next.flatMap(moves),
 *     }
 *   },
 *   policy: 'ucb',
 *   numSimulations: 200,
 *   temperature: 0,
 * })
 * assert.deepEqual(action, Uint32Array.of(1)) // 7 wins: from there the other player cannot reach 10
 * assert.ok(Number(summary.value.item()) > 0)
 * ```
 */
export async function search<State>(options: SearchOptions<State>): Promise<SearchResult<State>> {
  checkKnownKeys('options', options, OPTIONS)
  const { root, model, signal } = options
  const numTrees = root.states.length
  const native = new Handle('Search', () => rawSearch(options))
  try {
    const states = rootStates(native, options)
    if (model instanceof TableModel) await runTable(native, model, root, signal)
    else await runFunction(native, model, states, numTrees, signal)
    return wrap(native, states)
  } catch (error) {
    native.free()
    throw error
  }
}

function rawSearch<State>(options: SearchOptions<State>): RawSearch {
  const { root, invalidActions = [], rootGumbel = [], reuse } = options
  const json = JSON.stringify(Object.fromEntries(CORE_OPTIONS.map((name) => [name, options[name]])))
  const values = floats('value', root.value)
  if (values.length !== root.states.length) {
    const detail = `states must be ${values.length}, one for each value: got ${root.states.length}`
    throw new FulmarError('SHAPE_MISMATCH', detail)
  }
  const invalid = Uint8Array.from(floats('invalidActions', invalidActions), (one) => Number(one !== 0))
  const columns = [floats('logits', root.logits), values, invalid, floats('rootGumbel', rootGumbel)] as const
  if (!reuse) return raw.Search.create(...columns, json)
  const [earlier] = unwrap(reuse.result)
  return earlier.call((one) => raw.Search.reuse(one, Uint32Array.from(reuse.actions), ...columns, json))
}

/** The states of the nodes that there are: of the roots, and of those of an earlier search. */
function rootStates<State>(native: Handle<RawSearch>, { root, reuse }: SearchOptions<State>): State[][] {
  const earlier = reuse ? unwrap(reuse.result)[1] : []
  return root.states.map((state, tree) => {
    const kept = reuse ? [...native.call((one) => one.kept(tree))] : []
    return [state, ...kept.slice(1).map((node) => earlier[tree]?.[node] as State)]
  })
}

async function runTable<State>(
  native: Handle<RawSearch>,
  model: TableModel,
  root: SearchRoot<State>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const states = Uint32Array.from(root.states, Number)
  const perTurn = Math.max(1, Math.floor(SIMULATIONS_PER_TURN / states.length))
  for (let isFirst = true; native.call((one) => one.numLeft()) > 0; isFirst = false) {
    if (!isFirst) await yieldToEventLoop()
    checkSignal(signal)
    native.call((one) => model.use((table) => one.runTable(table, states, perTurn)))
  }
}

async function runFunction<State>(
  native: Handle<RawSearch>,
  model: SearchModel<State>,
  states: State[][],
  numTrees: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (let left = native.call((one) => one.numLeft()); left > 0; left--) {
    checkSignal(signal)
    const chosen = native.call((one) => one.select())
    const parents = states.map((known, tree) => known[chosen[tree] as number] as State)
    const outcome = await model({ states: parents, actions: chosen.slice(numTrees, 2 * numTrees) })
    if (outcome?.states?.length !== numTrees)
      throw new FulmarError(
        'USER_CODE',
        `model must return ${numTrees} states: got ${outcome?.states?.length}`,
      )
    const column = (name: 'reward' | 'discount' | 'value' | 'logits') => floats(name, outcome[name])
    const [reward, discount, value, logits] = [
      column('reward'),
      column('discount'),
      column('value'),
      column('logits'),
    ]
    native.call((one) => one.expand(reward, discount, value, logits))
    states.forEach((known, tree) => {
      known[chosen[2 * numTrees + tree] as number] = outcome.states[tree] as State
    })
  }
}

function checkSignal(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new FulmarError('ABORTED', 'search was aborted', { cause: signal.reason })
}

function floats(name: string, numbers: SearchNumbers): Float32Array {
  if (numbers instanceof Tensor) return numbers.toFloat32()
  if (typeof numbers !== 'object' || numbers === null || typeof numbers.length !== 'number')
    throw new FulmarError('MALFORMED', `${name} must be a Tensor or numbers: got ${typeof numbers}`)
  return numbers instanceof Float32Array ? numbers : Float32Array.from(numbers)
}

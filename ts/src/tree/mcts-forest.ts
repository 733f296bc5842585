/** A forest of rollouts. */

import { checkKnownKeys, describeValue, FulmarError, Handle } from '../core/index.js'
import { type RawMctsForest, raw } from '../native/index.js'
import type { Tensor } from '../tensor/tensor.js'
import { dictAround, pathOf, type TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'
import { loadMemmap, saveMemmap } from '../tensor/torch-files.js'
import { Tree, treeAround } from './tree.js'

/** Options of {@link MCTSForest}. Keys are those of a step at the root; below `next` they are the same. */
export interface MCTSForestOptions {
  /** Most pairs of a state and an action, from 1 to 2^28. @default 1000 */
  readonly maxSize?: number
  /** Keys of the entries that make up a state. @default 'observation' */
  readonly observationKeys?: readonly TensorKey[]
  /** Keys of the entries that make up an action. @default 'action' */
  readonly actionKeys?: readonly TensorKey[]
  /** Keys of the rewards of a step. @default 'reward' */
  readonly rewardKeys?: readonly TensorKey[]
  /** Keys of the marks of an end; a vertex is terminal by the first of them that its last step has. @default 'done', 'truncated', 'terminated' */
  readonly doneKeys?: readonly TensorKey[]
  /** Keys of entries that are not kept. @default none */
  readonly excludedKeys?: readonly TensorKey[]
  /** If true, states are compared by their bytes, and the hashes of children ascend, as in torchrl. @default false */
  readonly compatible?: boolean
}

/** An environment that names its entries. */
export interface NamesKeys {
  readonly observationKeys?: readonly TensorKey[]
  readonly actionKeys?: readonly TensorKey[]
  readonly rewardKeys?: readonly TensorKey[]
  readonly doneKeys?: readonly TensorKey[]
}

/** Options of {@link MCTSForest.getTree}. */
export interface GetTreeOptions {
  /** Bound of the depth of vertices that branch. @default none */
  readonly maxDepth?: number
  /** If false, each step leads to a vertex; otherwise only those that branch or end do. @default true */
  readonly compact?: boolean
}

const KEYS = ['observationKeys', 'actionKeys', 'rewardKeys', 'doneKeys', 'excludedKeys'] as const
const OPTIONS = ['maxSize', 'compatible', ...KEYS] as const
const DEFAULTS = {
  observationKeys: ['observation'],
  actionKeys: ['action'],
  rewardKeys: ['reward'],
  doneKeys: ['done', 'truncated', 'terminated'],
} as const

/**
 * All steps of some rollouts, each pair of a state and an action once. A pair that comes again keeps its row and takes the new outcome. Any
 * tree that begins at a known state can be read from it: a state that several paths reach is shared, and cycles end.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `maxSize` is not in its range; `EMPTY` without keys of observations or actions; `UNKNOWN_NAME` for
 *   an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { MCTSForest } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const step = (state: number, action: number, next: number) =>
 *   TensorDict.from({ observation: Tensor.from([state]), action: Tensor.from([action]) }, { batchSize: [1] })
 *     .set(['next', 'observation'], Tensor.from([next]))
 * const forest = new MCTSForest({ maxSize: 100 })
 * for (const action of [0, 1, 1]) forest.extend(step(0, action, 10 + action))
 * assert.equal(forest.length, 2)
 * assert.deepEqual(forest.node(step(0, 0, 0).index(0)).visits, [1, 2])
 * assert.equal(forest.getTree(step(0, 0, 0).index(0)).numChildren, 2)
 * ```
 */
export class MCTSForest {
  readonly observationKeys: readonly TensorKey[]
  readonly actionKeys: readonly TensorKey[]
  readonly rewardKeys: readonly TensorKey[]
  readonly doneKeys: readonly TensorKey[]
  /** Most pairs of a state and an action. */
  readonly maxSize: number
  readonly #native: Handle<RawMctsForest>

  constructor(options: MCTSForestOptions = {}) {
    checkKnownKeys('options', options, OPTIONS)
    const { maxSize = 1000, compatible = false } = options
    const paths = KEYS.map((key) => [key, options[key]?.map(pathOf)])
    const json = JSON.stringify({ maxSize, compatible, ...Object.fromEntries(paths) })
    this.#native = new Handle('MCTSForest', () => raw.MctsForest.create(json))
    this.maxSize = maxSize
    this.observationKeys = options.observationKeys ?? DEFAULTS.observationKeys
    this.actionKeys = options.actionKeys ?? DEFAULTS.actionKeys
    this.rewardKeys = options.rewardKeys ?? DEFAULTS.rewardKeys
    this.doneKeys = options.doneKeys ?? DEFAULTS.doneKeys
  }

  /** Makes a forest with the keys of an environment; `options` go before them. @throws {FulmarError} As the constructor. */
  static fromEnv(env: NamesKeys, options: MCTSForestOptions = {}): MCTSForest {
    checkKnownKeys('options', options, OPTIONS)
    if (typeof env !== 'object' || env === null)
      throw new FulmarError('MALFORMED', `env must be an object: got ${describeValue(env)}`)
    const { observationKeys, actionKeys, rewardKeys, doneKeys } = env
    const given = Object.entries({ observationKeys, actionKeys, rewardKeys, doneKeys }).filter(
      ([, keys]) => keys,
    )
    return new MCTSForest({ ...Object.fromEntries(given), ...options })
  }

  /** Number of pairs of a state and an action. */
  get length(): number {
    return this.#native.call((forest) => forest.count())
  }

  /**
   * Adds the steps of a rollout, or one step without a batch dimension. Returns the row of the edge of each. With `returnNode` returns the
   * tree of the first step's state.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE`, with the key, if an observation, an action or a next observation is missing or not
   *   a tensor; `SHAPE_MISMATCH` or `INCOMPATIBLE` if it is not like the first; `LIMIT_EXCEEDED` above `maxSize`. After an error nothing has
   *   changed.
   */
  extend(rollout: TensorDict, options: { readonly returnNode: true }): Tree
  extend(rollout: TensorDict, options?: { readonly returnNode?: false }): number[]
  extend(rollout: TensorDict, options: { readonly returnNode?: boolean } = {}): Tree | number[] {
    checkKnownKeys('options', options, ['returnNode'])
    const rows = this.#native.call((forest) => withRawDict(rollout, (steps) => forest.extend(steps)))
    if (!options.returnNode) return [...rows]
    return this.getTree(rollout.batchSize.length === 0 ? rollout : rollout.index(0))
  }

  /** Adds one step. Returns the row of its edge. @throws {FulmarError} As {@link MCTSForest.extend}; `SHAPE_MISMATCH` for several. */
  add(step: TensorDict): number {
    if (step.batchSize.length > 0)
      throw new FulmarError('SHAPE_MISMATCH', `step must have no batch dimension: got [${step.batchSize}]`)
    return this.extend(step)[0] as number
  }

  /**
   * Returns the known edges of a state without a batch dimension: their rows, ascending, their hashes, and how often each was written; `count`
   * is the sum. All are empty for an unknown state.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE`, with the key, if an observation is missing or not a tensor; `SHAPE_MISMATCH` or
   *   `INCOMPATIBLE` if it is not like the first.
   */
  node(root: TensorDict): { index: number[]; hash: bigint[]; visits: number[]; count: number } {
    const dict = dictAround(() => this.#native.call((forest) => withRawDict(root, (one) => forest.node(one))))
    const numbers = (key: string) => [...(dict.tensor(key) as Tensor<'i64'>).data]
    const visits = numbers('visits').map(Number)
    const count = visits.reduce((sum, one) => sum + one, 0)
    return { index: numbers('_index').map(Number), hash: numbers('_hash'), visits, count }
  }

  /**
   * Returns the outcome `next` of the state and the action of each element of a batch, with the action.
   * @throws {FulmarError} `OUT_OF_RANGE` if one is not known; those of {@link MCTSForest.node} for wrong keys.
   */
  getChild(root: TensorDict): TensorDict {
    return dictAround(() => this.#native.call((forest) => withRawDict(root, (one) => forest.child(one))))
  }

  /**
   * Reads the tree below the state of `root`, which has no batch dimension.
   * @throws {FulmarError} `OUT_OF_RANGE` if no action of the state is known, or `maxDepth` is not an integer from 0; those of
   *   {@link MCTSForest.node}.
   */
  getTree(root: TensorDict, options: GetTreeOptions = {}): Tree {
    checkKnownKeys('options', options, ['maxDepth', 'compact'])
    const { maxDepth, compact = true } = options
    if (maxDepth !== undefined && !(Number.isInteger(maxDepth) && maxDepth >= 0))
      throw new FulmarError('OUT_OF_RANGE', `maxDepth must be an integer from 0: got ${maxDepth}`)
    return treeAround(() =>
      this.#native.call((forest) => withRawDict(root, (one) => forest.tree(one, maxDepth ?? -1, compact))),
    )
  }

  /** Yields each path of a tree to a vertex without children. */
  static validPaths(tree: Tree): Iterable<readonly number[]> {
    if (!(tree instanceof Tree))
      throw new FulmarError('MALFORMED', `tree must be a Tree: got ${describeValue(tree)}`)
    return tree.validPaths()
  }

  /** Returns {@link Tree.toString} of the tree below a state. @throws {FulmarError} As {@link MCTSForest.getTree}. */
  toString(root?: TensorDict, label?: (vertex: Tree) => string): string {
    return root ? this.getTree(root).toString(label) : `MCTSForest of ${this.length} edges`
  }

  /** Removes all steps. */
  clear(): void {
    this.#native.call((forest) => forest.clear())
  }

  /** Returns the content; without entries if the forest is empty. */
  stateDict(): TensorDict {
    return dictAround(() => this.#native.call((forest) => forest.state()))
  }

  /**
   * Replaces the content by what {@link MCTSForest.stateDict} returned.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE` if an entry is missing or of another kind; `CORRUPT` if numbers of edges differ;
   *   those of {@link MCTSForest.extend}. After an error nothing has changed.
   */
  loadStateDict(state: TensorDict): void {
    this.#native.call((forest) => withRawDict(state, (one) => forest.loadState(one)))
  }

  /** Writes the content into a folder. Native backend only. @throws {FulmarError} As {@link saveMemmap}. */
  dumps(path: string): void {
    saveMemmap(path, this.stateDict())
  }

  /** Reads a folder of {@link MCTSForest.dumps}. Native backend only. @throws {FulmarError} As {@link loadMemmap} and {@link MCTSForest.loadStateDict}. */
  loads(path: string): void {
    this.loadStateDict(loadMemmap(path))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

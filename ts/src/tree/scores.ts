/** Scores of the actions of nodes. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawMctsScore, raw } from '../native/index.js'
import { type Tensor, tensorAround, withRawTensor } from '../tensor/tensor.js'
import { pathOf, type TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'

/** Keys of the entries of {@link PUCTScore} and {@link UCBScore}; `[.., K]` for K actions of each node. */
export interface ScoreKeys {
  /** Sum of the returns of each action. @default 'win_count' */
  readonly winCountKey?: TensorKey
  /** Visits of each action. @default 'visits' */
  readonly visitsKey?: TensorKey
  /** Visits of each node, `[]`, `[..]` or `[.., 1]`. @default 'total_visits' */
  readonly totalVisitsKey?: TensorKey
  /** Key of the scores. @default 'score' */
  readonly scoreKey?: TensorKey
}

/** Options of {@link PUCTScore}. */
export interface PUCTScoreOptions extends ScoreKeys {
  /** Weight of the prior, from 0. */
  readonly c: number
  /** Prior of each action. @default 'prior_prob' */
  readonly priorProbKey?: TensorKey
  /** The mean of an action without visits; 0 as in AlphaZero. @default NaN, as in torchrl */
  readonly unvisited?: number
}

/** Options of {@link UCBScore}. */
export interface UCBScoreOptions extends ScoreKeys {
  /** Weight of exploration, from 0. */
  readonly c: number
  /** The mean of an action without visits. @default NaN, as in torchrl */
  readonly unvisited?: number
  /** If true, `w/n + c sqrt(ln N / n)`, infinite without visits. @default false */
  readonly ucb1?: boolean
}

/** Options of {@link UCB1TunedScore}. */
export interface UCB1TunedScoreOptions extends ScoreKeys {
  /** Weight of exploration in the estimate of the variance, from 0. @default 2 */
  readonly explorationConstant?: number
  /** Sum of the squares of the returns of each action. @default 'sum_squared_rewards' */
  readonly sumSquaredRewardsKey?: TensorKey
}

/** Options of {@link EXP3Score}. */
export interface EXP3ScoreOptions {
  /** Share of uniform exploration, in [0, 1]. @default 0.1 */
  readonly gamma?: number
  /** Weight of each action, `[.., K]`; ones where there is no such entry. @default 'weights' */
  readonly weightsKey?: TensorKey
  /** Second key of the probabilities. @default 'action_prob' */
  readonly actionProbKey?: TensorKey
  /** Key of the probabilities. @default 'score' */
  readonly scoreKey?: TensorKey
  /** Number of actions. @default 'num_actions' */
  readonly numActionsKey?: TensorKey
}

/** A score of the actions of nodes. */
export interface MCTSScore {
  /** Writes the scores of all actions of all nodes into `node`, and returns it. */
  forward(node: TensorDict): TensorDict
}

const SHARED_KEYS = ['winCountKey', 'visitsKey', 'totalVisitsKey', 'scoreKey']

function sharedKeys({
  winCountKey,
  visitsKey,
  totalVisitsKey,
}: ScoreKeys): Record<string, TensorKey | undefined> {
  return { winCount: winCountKey, visits: visitsKey, totalVisits: totalVisitsKey }
}

function makeScore(options: object, keys: Record<string, TensorKey | undefined>): Handle<RawMctsScore> {
  const paths = Object.entries(keys).map(([name, key]) => [name, key === undefined ? undefined : pathOf(key)])
  const keysJson = JSON.stringify(Object.fromEntries(paths))
  return new Handle('MCTSScore', () => raw.MctsScore.create(JSON.stringify(options), keysJson))
}

function scored(native: Handle<RawMctsScore>, node: TensorDict): Tensor {
  return tensorAround(() => native.call((score) => withRawDict(node, (one) => score.forward(one))))
}

/**
 * PUCT: `w/n + c P sqrt(N) / (1 + n)`, with n visits and returns w of an action, its prior P and N visits of its node. For many nodes at once,
 * `[.., K]`.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` or `NON_FINITE` if `c` is not a number from 0; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { PUCTScore } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const node = TensorDict.from({
 *   win_count: Tensor.from([3, 0]),
 *   visits: Tensor.from([4, 0]),
 *   total_visits: Tensor.from([4], { shape: [] }),
 *   prior_prob: Tensor.from([0.5, 0.5]),
 * })
 * const { data } = new PUCTScore({ c: 2, unvisited: 0 }).forward(node).tensor('score')
 * assert.ok(Math.abs(Number(data[0]) - (0.75 + 0.4)) < 1e-6)
 * assert.equal(data[1], 2)
 * ```
 */
export class PUCTScore implements MCTSScore {
  readonly #native: Handle<RawMctsScore>
  readonly #scoreKey: TensorKey

  constructor(options: PUCTScoreOptions) {
    checkKnownKeys('options', options, ['c', 'priorProbKey', 'unvisited', ...SHARED_KEYS])
    const { c, unvisited, priorProbKey, scoreKey = 'score' } = options
    this.#native = makeScore(
      { kind: 'puct', c, unvisited },
      { ...sharedKeys(options), priorProb: priorProbKey },
    )
    this.#scoreKey = scoreKey
  }

  /**
   * Writes the scores into `node` and returns it.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE`, with the key, if an entry is missing or not a tensor; `SHAPE_MISMATCH` if two
   *   shapes do not agree.
   */
  forward(node: TensorDict): TensorDict {
    return node.set(this.#scoreKey, scored(this.#native, node))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/**
 * UCB as torchrl has it, `w/n + c sqrt(N) / (1 + n)`, or with `ucb1` [UCB1](https://doi.org/10.1023/A:1013689704352),
 * `w/n + c sqrt(ln N / n)`. For many nodes at once, `[.., K]`.
 *
 * @throws {FulmarError} As {@link PUCTScore}.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { UCBScore } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const node = TensorDict.from({
 *   win_count: Tensor.from([3, 0]),
 *   visits: Tensor.from([4, 0]),
 *   total_visits: Tensor.from([4], { shape: [] }),
 * })
 * const { data } = new UCBScore({ c: Math.SQRT2, ucb1: true }).forward(node).tensor('score')
 * assert.ok(Math.abs(Number(data[0]) - (0.75 + Math.sqrt((2 * Math.log(4)) / 4))) < 1e-6)
 * assert.equal(data[1], Infinity)
 * ```
 */
export class UCBScore implements MCTSScore {
  readonly #native: Handle<RawMctsScore>
  readonly #scoreKey: TensorKey

  constructor(options: UCBScoreOptions) {
    checkKnownKeys('options', options, ['c', 'unvisited', 'ucb1', ...SHARED_KEYS])
    const { c, unvisited, ucb1 = false, scoreKey = 'score' } = options
    this.#native = makeScore({ kind: 'ucb', c, unvisited, ucb1 }, sharedKeys(options))
    this.#scoreKey = scoreKey
  }

  /** Writes the scores into `node` and returns it. @throws {FulmarError} As {@link PUCTScore.forward}. */
  forward(node: TensorDict): TensorDict {
    return node.set(this.#scoreKey, scored(this.#native, node))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/**
 * UCB1-tuned: `m + sqrt(ln N / n * min(1/4, V))`, where m is the mean of the returns and V, at least 0, their variance plus
 * `sqrt(c ln N / n)`. An action without visits has a tenth of the largest number of the dtype. For many nodes at once, `[.., K]`.
 *
 * @throws {FulmarError} As {@link PUCTScore}.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { UCB1TunedScore } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const node = TensorDict.from({
 *   win_count: Tensor.from([3, 0]),
 *   visits: Tensor.from([4, 0]),
 *   total_visits: Tensor.from([4], { shape: [] }),
 *   sum_squared_rewards: Tensor.from([3, 0]),
 * })
 * const { data } = new UCB1TunedScore().forward(node).tensor('score')
 * assert.ok(Math.abs(Number(data[0]) - (0.75 + Math.sqrt((Math.log(4) / 4) * 0.25))) < 1e-6)
 * assert.ok(Number(data[1]) > 1e37)
 * ```
 */
export class UCB1TunedScore implements MCTSScore {
  readonly #native: Handle<RawMctsScore>
  readonly #scoreKey: TensorKey

  constructor(options: UCB1TunedScoreOptions = {}) {
    checkKnownKeys('options', options, ['explorationConstant', 'sumSquaredRewardsKey', ...SHARED_KEYS])
    const { explorationConstant = 2, sumSquaredRewardsKey, scoreKey = 'score' } = options
    const keys = { ...sharedKeys(options), sumSquaredRewards: sumSquaredRewardsKey }
    this.#native = makeScore({ kind: 'ucb1Tuned', explorationConstant }, keys)
    this.#scoreKey = scoreKey
  }

  /** Writes the scores into `node` and returns it. @throws {FulmarError} As {@link PUCTScore.forward}. */
  forward(node: TensorDict): TensorDict {
    return node.set(this.#scoreKey, scored(this.#native, node))
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/**
 * EXP3: the score of an action is its probability, `(1 - gamma) weight / sum(weights) + gamma / K`. For many nodes at once, `[.., K]`.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` or `NON_FINITE` if `gamma` is not in [0, 1]; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { EXP3Score } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const score = new EXP3Score({ gamma: 0.1 })
 * const node = score.forward(TensorDict.from({ num_actions: Tensor.from([2], { shape: [] }) }))
 * assert.deepEqual(node.tensor('score').data, Float32Array.of(0.5, 0.5))
 * score.updateWeights(node, 1, 1) // action 1 gave the reward 1
 * const { data } = score.forward(node).tensor('score')
 * assert.ok(Number(data[1]) > 0.5)
 * ```
 */
export class EXP3Score implements MCTSScore {
  readonly #native: Handle<RawMctsScore>
  readonly #weightsKey: TensorKey
  readonly #actionProbKey: TensorKey
  readonly #scoreKey: TensorKey

  constructor(options: EXP3ScoreOptions = {}) {
    checkKnownKeys('options', options, ['gamma', 'weightsKey', 'actionProbKey', 'scoreKey', 'numActionsKey'])
    const { gamma = 0.1, weightsKey = 'weights', actionProbKey = 'action_prob', scoreKey = 'score' } = options
    this.#native = makeScore(
      { kind: 'exp3', gamma },
      { weights: weightsKey, numActions: options.numActionsKey },
    )
    this.#weightsKey = weightsKey
    this.#actionProbKey = actionProbKey
    this.#scoreKey = scoreKey
  }

  /**
   * Writes the probabilities into `node`, and weights of 1 where it has none, and returns it.
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE`, with the key, if an entry is missing or not a tensor; `SHAPE_MISMATCH` if there is
   *   not one weight for each action; `OUT_OF_RANGE` if the number of actions is not an integer from 1.
   */
  forward(node: TensorDict): TensorDict {
    if (!node.has(this.#weightsKey)) {
      const weights = tensorAround(() =>
        this.#native.call((score) => withRawDict(node, (one) => score.weights(one))),
      )
      node.set(this.#weightsKey, weights)
    }
    const probability = scored(this.#native, node)
    node.set(this.#scoreKey, probability)
    return node.set(this.#actionProbKey, probability)
  }

  /**
   * Multiplies the weight of an action by `exp(gamma / K * reward / p)`, in all nodes of the batch; unchanged where its probability is 0. The
   * formula is for rewards in [0, 1].
   * @throws {FulmarError} `OUT_OF_RANGE` if there is no such action; `NON_FINITE` if the reward is not finite; those of {@link EXP3Score.forward}.
   */
  updateWeights(node: TensorDict, action: number, reward: number): void {
    const [weights, probability] = [node.tensor(this.#weightsKey), node.tensor(this.#scoreKey)]
    const updated = tensorAround(() =>
      this.#native.call((score) =>
        withRawTensor(weights, (one) =>
          withRawTensor(probability, (two) => score.updated(one, two, action, reward)),
        ),
      ),
    )
    node.set(this.#weightsKey, updated)
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/**
 * Makes each score with the constants of torchrl.
 *
 * @example
 * ```ts
 * import { MCTSScores, UCBScore } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(Object.keys(MCTSScores), ['PUCT', 'UCB', 'UCB1_TUNED', 'EXP3'])
 * assert.ok(MCTSScores.UCB() instanceof UCBScore)
 * ```
 */
export const MCTSScores = {
  /** {@link PUCTScore} with c = 5. */
  PUCT: (options: Partial<PUCTScoreOptions> = {}) => new PUCTScore({ c: 5, ...options }),
  /** {@link UCBScore} with the square root of 2. */
  UCB: (options: Partial<UCBScoreOptions> = {}) => new UCBScore({ c: Math.SQRT2, ...options }),
  /** {@link UCB1TunedScore} with 2. */
  UCB1_TUNED: (options: UCB1TunedScoreOptions = {}) =>
    new UCB1TunedScore({ explorationConstant: 2, ...options }),
  /** {@link EXP3Score} with gamma = 0.1. */
  EXP3: (options: EXP3ScoreOptions = {}) => new EXP3Score({ gamma: 0.1, ...options }),
} as const

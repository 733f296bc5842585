/**
 * Rollouts of a policy over prompts, with a reward at the end and a penalty for leaving a reference at each token.
 *
 * ```text
 * reward_bt = clip(score(answer_b) - score(label_b)) at the last token - klCoef * (log p(token_bt) - log p_ref(token_bt))
 * ```
 * B prompts, N steps, L tokens of a row, W = L + N. D. Ziegler and others, https://arxiv.org/abs/1909.08593
 */

import { aborted } from '../../async/index.js'
import { checkKnownKeys, describeValue, FulmarError, Rng } from '../../core/index.js'
import { type AdaptiveKLController, ConstantKLController } from '../../objective/index.js'
import type { Completion, Policy } from '../../policy/index.js'
import type { ReplayBuffer } from '../../replay/index.js'
import { Tensor, type TensorDict } from '../../tensor/index.js'
import type { ScoringPolicy } from '../envs/log-prob-rows.js'
import type { PromptData } from './prompt-data.js'
import { type Answer, checkShape, checkSize, clipped, rewardsOf, rowsOf, stepsOf } from './rollout-steps.js'

/** Scores whole texts, ids without their ends: one number for each. */
export type RewardModelLike = (rows: readonly Uint32Array[]) => ArrayLike<number> | Promise<ArrayLike<number>>

/** Options of {@link RolloutFromModel}. */
export interface RolloutFromModelOptions {
  /** Policy that answers. It must have `score` if its completions have no log-probabilities. */
  readonly model: Policy
  /** Reference that the policy shall stay near. */
  readonly refModel: ScoringPolicy
  /** Scores prompts with answers, and prompts with labels. */
  readonly rewardModel: RewardModelLike
  /** Factor of the penalty, from 0; not with `klScheduler`. @default 0.1 */
  readonly klCoef?: number
  /** Tokens of an answer, from 1. @default 50 */
  readonly maxNewTokens?: number
  /** Largest reward of an answer, above 0. @default 10 */
  readonly scoreClip?: number
  /** Gives the factor, and is updated by the divergences of rollouts. @default a constant */
  readonly klScheduler?: AdaptiveKLController | ConstantKLController
  /** Rollouts between two updates of `klScheduler`, from 1. @default only by `stepScheduler` */
  readonly numSteps?: number
  /** Id that ends an answer, and pads. @default 50256 */
  readonly endId?: number
  /** Divisor of the logits; 0 takes the most likely token. @default 1 */
  readonly temperature?: number
  /** Fixes all draws: a non-negative safe integer. @default 0 */
  readonly seed?: number
  /** Stops the rollouts. */
  readonly signal?: AbortSignal
}

/** Answers of one batch. */
export interface GeneratedRows {
  /** Prompts with their answers, `i64` `[B, W]`, padded on the right. */
  readonly tokens: Tensor<'i64'>
  /** Log-probabilities of the drawn tokens under the distribution that drew them, `f32` `[B, N, 1]`; 0 behind the end. */
  readonly logProbs: Tensor<'f32'>
  /** Log-probabilities under the policy minus those under the reference, `f32` `[B, N]`; 0 behind the end. */
  readonly logRatio: Tensor<'f32'>
}

const KEYS = [
  ...['model', 'refModel', 'rewardModel', 'klCoef', 'maxNewTokens', 'scoreClip', 'klScheduler'],
  ...['numSteps', 'endId', 'temperature', 'seed', 'signal'],
]

/** Most divergences that wait for `stepScheduler`; the oldest are dropped. */
const QUEUE_MAX = 65_536

/** Id of GPT-2's end of text. */
const END_ID = 50_256

/**
 * TorchRL's rollouts of prompts, over any {@link Policy}. A row of a batch is a trajectory of N steps; step `t` has the prompt with the first
 * `t` drawn tokens at `input_ids`, the next one at `action` and at `next` what came of it.
 *
 * @example
 * ```ts
 * import { Decoder, DecoderPolicy } from 'fulmar'
 * import { Tensor } from 'fulmar/tensor'
 * import { PromptData, RolloutFromModel } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * const model = new DecoderPolicy(Decoder.fromSeed(shape, { seed: 1 }))
 * const refModel = new DecoderPolicy(Decoder.fromSeed(shape, { seed: 2 }))
 * const rewardModel = (rows: readonly Uint32Array[]) => rows.map((ids) => ids.filter((id) => id === 3).length)
 * const rollouts = new RolloutFromModel({ model, refModel, rewardModel, maxNewTokens: 4, endId: 0 })
 *
 * const input_ids = Tensor.from(BigInt64Array.of(1n, 2n, 3n, 1n, 4n, 0n), { shape: [2, 3] })
 * const attention_mask = Tensor.from(BigInt64Array.of(1n, 1n, 1n, 1n, 1n, 0n), { shape: [2, 3] })
 * const prompt_rindex = Tensor.from(BigInt64Array.of(2n, 1n)) // the tokens behind them are labels
 * const prompts = PromptData.from({ input_ids, attention_mask, prompt_rindex }, { batchSize: [2] })
 * const steps = await rollouts.rolloutFromData(prompts)
 * assert.deepEqual([steps.batchSize, steps.tensor('input_ids').shape], [[2, 4], [2, 4, 7]])
 * assert.deepEqual(steps.tensor(['next', 'reward']).shape, [2, 4, 1])
 * ```
 */
export class RolloutFromModel {
  readonly #options: RolloutFromModelOptions
  readonly #scheduler: AdaptiveKLController | ConstantKLController
  readonly #draws: Rng
  #numDraws = 0
  #divergences: number[] = []

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `OUT_OF_RANGE` for a number outside its range; `INCOMPATIBLE` for
   *   `klCoef` with `klScheduler`, `numSteps` without it, or a reference without `score`; `MALFORMED` for a reward model that is no function.
   */
  constructor(options: RolloutFromModelOptions) {
    checkKnownKeys('options', options, KEYS, ['model', 'refModel', 'rewardModel'])
    const { refModel, rewardModel, klCoef, klScheduler, numSteps, seed = 0 } = options
    const { maxNewTokens = 50, scoreClip = 10, endId = END_ID, temperature = 1 } = options
    checkInteger('maxNewTokens', maxNewTokens, 1)
    checkInteger('endId', endId, 0)
    checkInteger('seed', seed, 0)
    if (numSteps !== undefined) checkInteger('numSteps', numSteps, 1)
    checkNumber('numSteps', numSteps ?? 1, (numSteps ?? 1) <= QUEUE_MAX, `at most ${QUEUE_MAX}`)
    checkNumber('scoreClip', scoreClip, scoreClip > 0, 'above 0')
    checkNumber('klCoef', klCoef ?? 0, (klCoef ?? 0) >= 0, 'from 0')
    checkNumber('temperature', temperature, temperature >= 0, 'from 0')
    if (typeof rewardModel !== 'function')
      throw new FulmarError(
        'MALFORMED',
        `options.rewardModel must be a function: got ${describeValue(rewardModel)}`,
      )
    if (typeof refModel?.score !== 'function')
      throw new FulmarError(
        'INCOMPATIBLE',
        `options.refModel must have score: got ${describeValue(refModel?.score)}`,
      )
    if (klCoef !== undefined && klScheduler !== undefined)
      throw new FulmarError('INCOMPATIBLE', `options.klCoef must be left out with klScheduler: got ${klCoef}`)
    if (numSteps !== undefined && klScheduler === undefined)
      throw new FulmarError(
        'INCOMPATIBLE',
        `options.numSteps must be left out without klScheduler: got ${numSteps}`,
      )
    this.#options = options
    this.#scheduler = klScheduler ?? new ConstantKLController({ klCoef: klCoef ?? 0.1 })
    this.#draws = Rng.fromSeed(seed).stream('RolloutFromModel')
  }

  /** Factor of the penalty. */
  get klCoef(): number {
    return this.#scheduler.coefficient
  }

  /** Mean divergence of each rollout since the last update, in nats a drawn token. */
  get klQueue(): readonly number[] {
    return this.#divergences.slice()
  }

  /**
   * Draws an answer for each prompt and computes the rewards, `[B, N]`: `action`, `input_ids`, `attention_mask`, `sample_log_prob`, and below
   * `next` `input_ids`, `attention_mask`, `done`, `terminated`, `reward`, `reward_raw` and `reward_kl`.
   *
   * @throws {FulmarError} `EMPTY` for a prompt without tokens; `SHAPE_MISMATCH` or `OUT_OF_RANGE` for a batch of another form;
   *   `LIMIT_EXCEEDED` for more than 2^27 ids; `USER_CODE` for scores that are not one finite number a row; `NON_FINITE` for a token
   *   without log-probability; `ABORTED` if the signal fires; those of the policies.
   */
  async rolloutFromData(batch: PromptData): Promise<TensorDict> {
    return await this.createRolloutTd(batch, await this.generate(batch))
  }

  /** Draws an answer for each prompt, and scores it under both policies. @throws {FulmarError} As {@link RolloutFromModel.rolloutFromData}. */
  async generate(batch: PromptData): Promise<GeneratedRows> {
    const { maxNewTokens: steps = 50, endId = END_ID, signal } = this.#options
    const rows = rowsOf(batch)
    const [numRows, width] = [rows.length, (batch.input_ids.shape[1] ?? 0) + steps]
    checkSize(numRows, steps, width)
    if (signal?.aborted) throw aborted(signal)
    const drawn = await Promise.all(rows.map(({ prompt }) => this.#answer(prompt)))
    const tokens = new BigInt64Array(numRows * width).fill(BigInt(endId))
    const [logProbs, logRatio] = [new Float32Array(numRows * steps), new Float32Array(numRows * steps)]
    for (const [row, { ids, sampled, ratio }] of drawn.entries()) {
      const prompt = rows[row]?.prompt ?? new Uint32Array()
      tokens.set(BigInt64Array.from([...prompt, ...ids], BigInt), row * width)
      logProbs.set(sampled, row * steps)
      logRatio.set(ratio, row * steps)
    }
    return {
      tokens: Tensor.from(tokens, { shape: [numRows, width] }),
      logProbs: Tensor.from(logProbs, { shape: [numRows, steps, 1] }),
      logRatio: Tensor.from(logRatio, { shape: [numRows, steps] }),
    }
  }

  /** Makes the steps of answers, and their rewards. @throws {FulmarError} As {@link RolloutFromModel.rolloutFromData}. */
  async createRolloutTd(batch: PromptData, generated: GeneratedRows): Promise<TensorDict> {
    const { maxNewTokens: steps = 50, endId = END_ID, scoreClip = 10 } = this.#options
    const rows = rowsOf(batch)
    const { tokens, logProbs, logRatio } = generated
    const width = tokens.shape[1] ?? 0
    checkShape('tokens', tokens, [rows.length, width])
    checkShape('logProbs', logProbs, [rows.length, steps, 1])
    checkShape('logRatio', logRatio, [rows.length, steps])
    checkSize(rows.length, steps, width)
    const answers = rows.map(({ prompt }, row) => {
      const ids = Uint32Array.from(tokens.data.subarray(row * width, (row + 1) * width), Number)
      const end = ids.indexOf(endId, prompt.length)
      const length = Math.min(end < 0 ? width : end, prompt.length + steps)
      return { ids, start: prompt.length, length, last: Math.min(length - prompt.length, steps - 1) }
    })
    for (const { start } of answers)
      if (start + steps > width)
        throw new FulmarError('SHAPE_MISMATCH', `tokens must have ${start + steps} in each row: got ${width}`)
    const scores = await this.#scored(answers.map(({ ids, length }) => ids.slice(0, length)))
    const labels = await this.#scored(rows.map(({ whole }) => whole))
    const gains = scores.map((score, row) => clipped(score - (labels[row] ?? 0), scoreClip))
    const reward = rewardsOf({ answers, gains, logRatio, klCoef: this.klCoef, steps })
    this.#note(answers, logRatio.data, steps)
    return stepsOf({ answers, steps, width, endId, logProbs, reward })
  }

  /**
   * Adds rollouts of batches to a buffer, a trajectory an item, until there are `numTrajectories`; returns their number, which is
   * smaller where the prompts end.
   * @throws {FulmarError} As {@link RolloutFromModel.rolloutFromData} and `ReplayBuffer.extend`; `OUT_OF_RANGE` for another number.
   */
  async fill(
    buffer: ReplayBuffer,
    prompts: AsyncIterable<PromptData> | Iterable<PromptData>,
    options: { readonly numTrajectories: number },
  ): Promise<number> {
    checkKnownKeys('options', options, ['numTrajectories'], ['numTrajectories'])
    const { numTrajectories } = options
    checkInteger('numTrajectories', numTrajectories, 1)
    let count = 0
    for await (const batch of prompts) {
      const rollout = await this.rolloutFromData(batch)
      const rows = rollout.slice(0, Math.min(rollout.batchSize[0] ?? 0, numTrajectories - count))
      buffer.extend(rows)
      count += rows.batchSize[0] ?? 0
      if (count === numTrajectories) break
    }
    return count
  }

  /** Updates `klScheduler` by the divergences since the last update, if there are some, and returns the factor. */
  stepScheduler(): number {
    if (this.#divergences.length > 0) this.#scheduler.update(this.#divergences)
    this.#divergences = []
    return this.klCoef
  }

  async #answer(
    prompt: Uint32Array,
  ): Promise<{ ids: Uint32Array; sampled: Float32Array; ratio: Float32Array }> {
    const { model, refModel, maxNewTokens = 50, endId = END_ID, temperature = 1, signal } = this.#options
    this.#numDraws += 1
    const requestId = `rollout-${this.#numDraws}`
    const seed = this.#draws.belowAt([this.#numDraws], 2 ** 31)
    const completion = await model.generate({
      ...{ requestId, promptIds: prompt, seed, maxTokens: maxNewTokens, temperature, stopIds: [endId] },
      ...(signal && { signal }),
    })
    if (completion.finishReason === 'abort') throw aborted(signal)
    const ids = Uint32Array.of(...prompt, ...completion.ids)
    const request = { requestId, ids, ...(signal && { signal }) }
    const own = await this.#ownLogProbs(completion, request, prompt.length)
    const other = (await refModel.score(request)).logProbs.subarray(prompt.length)
    const ratio = own.map((logProb, at) => logProb - (other[at] ?? Number.NaN))
    const wrong = ratio.findIndex((one) => !Number.isFinite(one))
    if (wrong >= 0) {
      const got = `${own[wrong]} and ${other[wrong]}`
      throw new FulmarError(
        'NON_FINITE',
        `token ${wrong} must have log-probabilities under both policies: got ${got}`,
      )
    }
    const { sampledLogProbs } = completion
    const sampled = sampledLogProbs.map((one, at) => (Number.isNaN(one) ? (own[at] ?? one) : one))
    return { ids: completion.ids, sampled, ratio }
  }

  /** Log-probabilities of the drawn tokens under the policy itself. */
  async #ownLogProbs(
    { logProbs }: Completion,
    request: { readonly requestId: string; readonly ids: Uint32Array },
    start: number,
  ): Promise<Float32Array> {
    const { model } = this.#options
    if (!logProbs.some(Number.isNaN) || model.score === undefined) return logProbs
    return (await model.score(request)).logProbs.slice(start)
  }

  async #scored(rows: readonly Uint32Array[]): Promise<number[]> {
    const scores = Array.from(await this.#options.rewardModel(rows), Number)
    if (scores.length === rows.length && scores.every(Number.isFinite)) return scores
    const got =
      scores.length === rows.length ? scores.find((one) => !Number.isFinite(one)) : `${scores.length} numbers`
    throw new FulmarError('USER_CODE', `rewardModel must give ${rows.length} finite numbers: got ${got}`)
  }

  /** Keeps the mean divergence of the drawn tokens, and updates the scheduler when it is due. */
  #note(answers: readonly Answer[], logRatio: Float32Array, steps: number): void {
    let [sum, count] = [0, 0]
    for (const [row, { last }] of answers.entries()) {
      for (let step = 0; step <= last; step++) sum += logRatio[row * steps + step] ?? 0
      count += last + 1
    }
    if (count === 0) return
    this.#divergences.push(sum / count)
    if (this.#divergences.length > QUEUE_MAX) this.#divergences.shift()
    if (this.#divergences.length === this.#options.numSteps) this.stepScheduler()
  }
}

function checkInteger(name: string, value: unknown, least: number): void {
  if (Number.isSafeInteger(value) && Number(value) >= least) return
  const got = describeValue(value)
  throw new FulmarError('OUT_OF_RANGE', `options.${name} must be an integer from ${least}: got ${got}`)
}

function checkNumber(name: string, value: unknown, holds: boolean, rule: string): void {
  if (Number.isFinite(value) && holds) return
  throw new FulmarError(
    'OUT_OF_RANGE',
    `options.${name} must be finite and ${rule}: got ${describeValue(value)}`,
  )
}

/**
 * Reward models: of two answers to one prompt, the preferred one earns more. L. Ouyang et al., https://arxiv.org/abs/2203.02155
 *
 * ```text
 * each step: batchSize pairs -> whole conversations -> one number at the last token of each -> Bradley-Terry loss -> backward -> update
 * ```
 */

import type { Renderer } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import { BradleyTerryLoss, type RewardLossResult, type RewardPairs } from '../objective/index.js'
import { readPairs } from './dpo.js'
import {
  checkModelTraining,
  MODEL_TRAINING_KEYS,
  type ModelTrainingOptions,
  only,
  stepsOf,
  trainModel,
} from './model-training.js'
import { checkObjective, checkSignal, type TrainStepResult } from './train-step.js'
import {
  batchOf,
  checkCounts,
  conversationTokens,
  type PreferencePair,
  pairMessages,
  type RowTrainingOptions,
  rowsOf,
} from './training-rows.js'

/** A loss of the rewards of pairs: `BradleyTerryLoss`, or one of your own. */
export interface RewardObjective {
  /** Returns the loss of a batch and its gradients by the rewards. */
  readonly forward: (
    pairs: RewardPairs,
  ) => Pick<RewardLossResult, 'loss' | 'gradChosen' | 'gradRejected'> & Partial<RewardLossResult>
}

/** Options of {@link rewardModel}. */
export interface RewardModelOptions extends RowTrainingOptions {
  /** Makes tokens of conversations. */
  readonly renderer: Renderer
  /** Pairs of answers. A list is taken in its order, again and again. */
  readonly pairs: Dataset<PreferencePair> | readonly PreferencePair[]
  /** Pairs per step. */
  readonly batchSize: number
  /**
   * The loss of a step.
   * @default new BradleyTerryLoss()
   */
  readonly loss?: RewardObjective
}

/** Options of {@link rewardModel} with a model. */
export interface RewardModelModelOptions
  extends Omit<ModelTrainingOptions, 'lora'>,
    Pick<RewardModelOptions, 'firstStep' | 'loss' | 'schedule' | 'maxGradNorm' | 'signal'> {
  /** As {@link RewardModelOptions.pairs}, or the path of a file of JSON lines `{ prompt, chosen, rejected }`, as texts or messages. */
  readonly pairs: RewardModelOptions['pairs'] | string
  /**
   * Pairs per step.
   * @default 8
   */
  readonly batchSize?: number
  /**
   * Passes over the pairs.
   * @default 1
   */
  readonly epochs?: number
  /**
   * The step to end before, in place of `epochs`; must be given with a data set.
   * @default as many as `epochs` takes
   */
  readonly steps?: number
}

/** One step of {@link rewardModel}. */
export interface RewardModelStep extends TrainStepResult {
  /** Counts from 0. */
  readonly index: number
  /** The step that the run ends before. */
  readonly numSteps: number
  /** Share of the pairs of this step in which the chosen answer earned more, before the update. From 0 to 1. */
  readonly accuracy: number
  /** Tokens of all answers of this step, with their prompts. */
  readonly numTokens: number
}

/**
 * Trains a model to give the preferred one of two answers the larger number, one optimizer step at a time. Takes a model with a scalar head
 * (`Model.withScalarHead`) and pairs (rows, or a file of them); or the parts: a decoder with the head `score`, an optimizer and a renderer.
 * All weights are trained. `Model.rewards` then scores conversations.
 *
 * @throws {FulmarError} At once `UNKNOWN_NAME` for an unknown option, `MALFORMED` or `OUT_OF_RANGE` for a bad one, `EMPTY` without a
 * pair; while it runs `INCOMPATIBLE` for a decoder without the head, `ABORTED` if the signal fires, `MALFORMED` for a pair of another form,
 * `NON_FINITE` for a loss that is not finite; errors of the data set, the renderer, the decoder and the optimizer.
 *
 * @example
 * ```ts
 * import { createModel, rewardModel } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const judge = await model.withScalarHead({ seed: 2 })
 * const pairs = [{ prompt: 'Tea?', chosen: 'Yes', rejected: 'No' }] // texts, or lists of messages
 * let accuracy = 0
 * for await (const step of rewardModel({ model: judge, pairs, batchSize: 1, epochs: 5, learningRate: 0.01 })) accuracy = step.accuracy
 * assert.equal(accuracy, 1)
 *
 * const answered = (content: string) => [{ role: 'user', content: 'Tea?' }, { role: 'assistant', content }]
 * const [yes, no] = await judge.rewards([answered('Yes'), answered('No')])
 * assert.ok(yes > no)
 * ```
 */
export function rewardModel(
  options: RewardModelModelOptions | RewardModelOptions,
): AsyncGenerator<RewardModelStep, void, undefined> {
  checkGiven('options', options)
  if ('model' in options) return trainOnPairs(options)
  checkKnownKeys('options', options, KEYS, REQUIRED)
  const { pairs, batchSize, firstStep = 0, loss = new BradleyTerryLoss() } = options
  checkCounts({ ...options, firstStep })
  checkObjective(loss as never)
  return train(options, rowsOf('pairs', pairs, firstStep * batchSize), loss)
}

const REQUIRED = ['decoder', 'optimizer', 'renderer', 'pairs', 'batchSize', 'steps']
/** Options that mean the same with a model and with parts. */
const SHARED = ['firstStep', 'loss', 'schedule', 'maxGradNorm', 'signal']
const KEYS = [...REQUIRED, ...SHARED]
const MODEL_KEYS = [
  ...MODEL_TRAINING_KEYS.filter((key) => key !== 'lora'),
  ...SHARED,
  'pairs',
  'batchSize',
  'epochs',
  'steps',
]

/** TRL's learning rate. */
const RATE = 1e-4

function trainOnPairs(options: RewardModelModelOptions): AsyncGenerator<RewardModelStep, void, undefined> {
  checkKnownKeys('options', options, MODEL_KEYS, ['model', 'pairs'])
  checkModelTraining(options)
  const { model, pairs, batchSize = 8, epochs, steps } = options
  const { decoder, renderer } = model
  return (async function* () {
    const taken = typeof pairs === 'string' ? await readPairs(pairs) : pairs
    const counts = { batchSize, steps: stepsOf(taken, { steps, epochs, batchSize }) }
    yield* trainModel(options, { all: RATE, adapter: RATE }, (optimizer) =>
      rewardModel({ ...only(options, SHARED), ...counts, decoder, renderer, optimizer, pairs: taken }),
    )
  })()
}

async function* train(
  { decoder, optimizer, renderer, batchSize, steps, ...rest }: RewardModelOptions,
  pairs: Dataset<PreferencePair>,
  objective: RewardObjective,
): AsyncGenerator<RewardModelStep, void, undefined> {
  const { firstStep = 0, schedule, maxGradNorm = 1, signal } = rest
  for (let index = firstStep; index < steps; index++) {
    const rows = Array.from({ length: batchSize }, (_, row) => pairTokens(renderer, pairs.next(), row))
    const batch = batchOf(rows.flat())
    checkSignal(signal)
    const values = await decoder.forwardValues(batch)
    // The chosen and the rejected answer of a pair follow each other.
    const lastOf = (pair: number, answer: number) => (batch.offsets[2 * pair + answer + 1] ?? 0) - 1
    const rewardsOf = (answer: number) =>
      Float32Array.from({ length: batchSize }, (_, pair) => values[lastOf(pair, answer)] ?? 0)
    const [chosen, rejected] = [rewardsOf(0), rewardsOf(1)]
    const result = objective.forward({ chosen, rejected })
    if (!Number.isFinite(result.loss))
      throw new FulmarError('NON_FINITE', `loss must be finite: got ${result.loss}`)
    const gradient = new Float32Array(values.length)
    for (let pair = 0; pair < batchSize; pair++) {
      gradient[lastOf(pair, 0)] = result.gradChosen[pair] ?? 0
      gradient[lastOf(pair, 1)] = result.gradRejected[pair] ?? 0
    }
    await decoder.backwardValues(gradient)
    checkSignal(signal)
    const { gradientNorm } = await optimizer.step({
      maxGradNorm,
      ...(schedule && { learningRate: schedule(index, steps) }),
    })
    const accuracy = chosen.filter((reward, pair) => reward > (rejected[pair] ?? 0)).length / batchSize
    const measured = { loss: result.loss, metrics: result.metrics ?? {}, gradientNorm, accuracy }
    yield { index, numSteps: steps, ...measured, numTokens: batch.ids.length }
  }
}

/** The chosen conversation, then the rejected one. @throws {FulmarError} `MALFORMED`. */
function pairTokens(renderer: Renderer, pair: PreferencePair, row: number) {
  const { prompt, chosen, rejected } = pairMessages(pair, row)
  return [chosen, rejected].map((answer) => conversationTokens(renderer, [...prompt, ...answer]))
}

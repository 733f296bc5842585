/**
 * Direct preference optimization: makes preferred answers more likely than rejected ones, near a reference.
 * R. Rafailov et al., https://arxiv.org/abs/2305.18290
 */

import type { Renderer } from '../chat/index.js'
import { checkKnownKeys, FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import { DPOLoss, type Objective, type PreferenceBatch } from '../objective/index.js'
import { readRows } from '../task/index.js'
import { COMPARISON_RATES } from './default-rates.js'
import {
  isOfModel,
  MODEL_TRAINING_KEYS,
  type ModelReferenceOptions,
  only,
  trainNearReference,
} from './model-training.js'
import { checkReference, type Reference, referenceLogProb } from './reference.js'
import { checkObjective, type TrainStepResult, trainStep } from './train-step.js'
import {
  checkCounts,
  completionTokens,
  messagesOf,
  nextBatch,
  type PreferencePair,
  pairMessages,
  type RowTokens,
  type RowTrainingOptions,
  rowsOf,
} from './training-rows.js'

/** A loss of {@link dpo}: a `DPOLoss`, or a custom one. */
export interface PreferenceObjective extends Objective<PreferenceBatch> {
  /**
   * True if `forward` reads `logSumSqProb`, which costs time to compute.
   * @default false
   */
  readonly readsLogSumSqProb?: boolean
}

/** Options of {@link dpo}. */
export interface DpoOptions extends RowTrainingOptions {
  /** Frozen reference policy: a decoder, or `'base'` for the weights without their adapter. */
  readonly reference: Reference
  /** Converts conversations to tokens. */
  readonly renderer: Renderer
  /** Pairs of answers. A list is repeated in its order. */
  readonly pairs: Dataset<PreferencePair> | readonly PreferencePair[]
  /** Pairs per step. */
  readonly batchSize: number
  /**
   * Loss of the pairs, from this package or custom.
   * @default new DPOLoss()
   */
  readonly loss?: PreferenceObjective
}

/** Options of {@link dpo} with a model. */
export interface DpoModelOptions
  extends ModelReferenceOptions,
    Pick<DpoOptions, 'firstStep' | 'loss' | 'schedule' | 'maxGradNorm' | 'signal'> {
  /** As {@link DpoOptions.pairs}, or the path of a file of JSON lines `{ prompt, chosen, rejected }`, as texts or messages. */
  readonly pairs: DpoOptions['pairs'] | string
}

/** One step of {@link dpo}. */
export interface DpoStep extends TrainStepResult {
  /** Counts from 0. */
  readonly index: number
  /** Index of the first step after the run. */
  readonly numSteps: number
  /** Tokens of all answers of this step, with their prompts. */
  readonly numTokens: number
}

/**
 * Trains on pairs of answers, one optimizer step at a time. Takes a model and pairs (rows, or a file of them)
 * and makes the other parts; or takes the parts: a decoder, a reference, an optimizer and a renderer.
 *
 * @throws {FulmarError} At once `UNKNOWN_NAME` for an unknown option, `MALFORMED` or `OUT_OF_RANGE` for an
 * invalid one, `EMPTY` without a pair. While it runs, `ABORTED` if the signal fires, `EMPTY` if an answer has
 * no assistant token, `MALFORMED` for a pair of another form, `INCOMPATIBLE` if a template changes a prompt
 * when an answer follows; errors of dataset, decoders and optimizer.
 *
 * @example
 * ```ts
 * import { createModel, dpo } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const pairs = [{ prompt: 'Tea?', chosen: 'Yes', rejected: 'No' }] // texts, or lists of messages
 * const losses: number[] = []
 * for await (const step of dpo({ model, pairs, batchSize: 1, epochs: 5, learningRate: 0.01 })) losses.push(step.loss)
 * assert.equal(losses.length, 5)
 * assert.ok(losses[4] < losses[0])
 * ```
 */
export function dpo(options: DpoModelOptions | DpoOptions): AsyncGenerator<DpoStep, void, undefined> {
  if (isOfModel(options)) return trainOnPairs(options)
  checkKnownKeys('options', options, KEYS, REQUIRED)
  const { pairs, batchSize, firstStep = 0, loss = new DPOLoss() } = options
  checkCounts({ ...options, firstStep })
  checkObjective(loss)
  return train(options, rowsOf('pairs', pairs, firstStep * batchSize), loss)
}

const REQUIRED = ['decoder', 'optimizer', 'reference', 'renderer', 'pairs', 'batchSize', 'steps']
const KEYS = [...REQUIRED, 'firstStep', 'loss', 'schedule', 'maxGradNorm', 'signal']

/** Options that mean the same with a model and with parts. */
const SHARED = ['firstStep', 'loss', 'schedule', 'maxGradNorm', 'signal']
const MODEL_KEYS = [...MODEL_TRAINING_KEYS, ...SHARED, 'pairs', 'reference', 'batchSize', 'epochs', 'steps']

function trainOnPairs(options: DpoModelOptions): AsyncGenerator<DpoStep, void, undefined> {
  checkKnownKeys('options', options, MODEL_KEYS, ['model', 'pairs'])
  const shared = only(options, SHARED)
  const { decoder, renderer } = options.model
  return trainNearReference(
    options,
    { rows: options.pairs, read: readPairs, rates: COMPARISON_RATES },
    ({ rows: pairs, ...parts }) => dpo({ ...shared, ...parts, decoder, renderer, pairs }),
  )
}

async function* train(
  { decoder, optimizer, reference, renderer, batchSize, steps, ...rest }: DpoOptions,
  pairs: Dataset<PreferencePair>,
  objective: PreferenceObjective,
): AsyncGenerator<DpoStep, void, undefined> {
  const { firstStep = 0, schedule, maxGradNorm = 1, signal } = rest
  checkReference(reference, decoder)
  for (let index = firstStep; index < steps; index++) {
    const batch = nextBatch(pairs, batchSize, (pair, row) => pairTokens(renderer, pair, row))
    const { mask, offsets } = batch
    const refLogProb = await referenceLogProb(reference, decoder, batch)
    const result = await trainStep({
      decoder,
      optimizer,
      batch,
      scores: { logSumSqProb: objective.readsLogSumSqProb ?? false },
      loss: ({ logProb, logSumSqProb }) =>
        objective.forward({ logProb, refLogProb, mask, offsets, logSumSqProb }),
      maxGradNorm,
      ...(schedule && { learningRate: schedule(index, steps) }),
      ...(signal && { signal }),
    })
    yield { index, numSteps: steps, ...result, numTokens: batch.ids.length }
  }
}

/**
 * Reads the pairs of a JSON Lines file.
 * @throws {FulmarError} `IO` if it cannot be read; `EMPTY` if it has no line; `MALFORMED` for a line that is
 * not a pair; `LIMIT_EXCEEDED` as `readRows`.
 */
export async function readPairs(path: string): Promise<PreferencePair[]> {
  const rows = await readRows(path)
  if (rows.length === 0) throw new FulmarError('EMPTY', `${path} must hold a pair: it is empty`)
  return rows.map((row, index) => {
    const columns = new Map(Object.entries(row))
    const messages = (name: string, role: 'user' | 'assistant') =>
      messagesOf(`${name} of line ${index + 1} of ${path}`, columns.get(name), role)
    return {
      prompt: messages('prompt', 'user'),
      chosen: messages('chosen', 'assistant'),
      rejected: messages('rejected', 'assistant'),
    }
  })
}

/**
 * Returns the chosen answer, then the rejected one, each after its prompt.
 * @throws {FulmarError} `MALFORMED` or `EMPTY`.
 */
function pairTokens(renderer: Renderer, pair: PreferencePair, row: number): readonly RowTokens[] {
  const { prompt, ...answers } = pairMessages(pair, row)
  return (['chosen', 'rejected'] as const).map((name) => {
    const tokens = completionTokens(renderer, prompt, answers[name])
    if (tokens.mask.includes(1)) return tokens
    const place = `${name} of pair ${row} of the batch`
    throw new FulmarError(
      'EMPTY',
      `${place} must hold an assistant's message to train: it has no assistant token`,
    )
  })
}

/**
 * Direct preference optimisation: answers that were preferred become likelier than those that were not, near a reference.
 * R. Rafailov et al., https://arxiv.org/abs/2305.18290
 */

import type { Renderer } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import { DPOLoss, type Objective, type PreferenceBatch } from '../objective/index.js'
import { readRows } from '../task/index.js'
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
  type RowTokens,
  type RowTrainingOptions,
  rowsOf,
} from './training-rows.js'

/** A loss of {@link dpo}: a `DPOLoss`, or one of your own. */
export interface PreferenceObjective extends Objective<PreferenceBatch> {
  /**
   * True if `forward` reads `logSumSqProb`, which costs time to compute.
   * @default false
   */
  readonly readsLogSumSqProb?: boolean
}

/** Options of {@link dpo}. */
export interface DpoOptions extends RowTrainingOptions {
  /** The frozen policy to stay near: the decoder as it was, or `'base'` for the weights under its adapter. */
  readonly reference: Reference
  /** Makes tokens of conversations. */
  readonly renderer: Renderer
  /** Pairs of answers. A list is taken in its order, again and again. */
  readonly pairs: Dataset<PreferencePair> | readonly PreferencePair[]
  /** Pairs per step. */
  readonly batchSize: number
  /**
   * One of this package or of your own.
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
  /** The step that the run ends before. */
  readonly numSteps: number
  /** Tokens of all answers of this step, with their prompts. */
  readonly numTokens: number
}

/**
 * Trains on pairs of answers, one optimiser step at a time. Takes a model and pairs (rows, or a file of them), and makes the rest; or the
 * parts: a decoder, a reference, an optimiser and a renderer.
 *
 * @throws {FulmarError} At once `UNKNOWN_NAME` for an unknown option, `MALFORMED` or `OUT_OF_RANGE` for a bad one, `EMPTY` without a
 * pair; while it runs `ABORTED` if the signal fires, `EMPTY` if an answer holds nothing that an assistant samples, `MALFORMED` for a pair of
 * another form, `INCOMPATIBLE` if a template changes a prompt when an answer follows; what dataset, decoders and optimiser say.
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

/** TRL's learning rate, and ten times as much for an adapter. */
const RATES = { all: 1e-6, adapter: 1e-5 }
/** Options that mean the same with a model and with parts. */
const SHARED = ['firstStep', 'loss', 'schedule', 'maxGradNorm', 'signal']
const MODEL_KEYS = [...MODEL_TRAINING_KEYS, ...SHARED, 'pairs', 'reference', 'batchSize', 'epochs', 'steps']

function trainOnPairs(options: DpoModelOptions): AsyncGenerator<DpoStep, void, undefined> {
  checkKnownKeys('options', options, MODEL_KEYS, ['model', 'pairs'])
  const shared = only(options, SHARED)
  const { decoder, renderer } = options.model
  return trainNearReference(
    options,
    { rows: options.pairs, read: readPairs, rates: RATES },
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
 * The pairs of a file of JSON lines.
 * @throws {FulmarError} `IO` if it cannot be read; `EMPTY` if it holds none; `MALFORMED` for a line that is no pair; `LIMIT_EXCEEDED` as
 * `readRows`.
 */
export async function readPairs(path: string): Promise<PreferencePair[]> {
  const rows = await readRows(path)
  if (rows.length === 0) throw new FulmarError('EMPTY', `${path} must hold a pair: it has no line`)
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

/** The chosen answer, then the rejected one, each behind its prompt. @throws {FulmarError} `MALFORMED` or `EMPTY`. */
function pairTokens(renderer: Renderer, pair: PreferencePair, row: number): readonly RowTokens[] {
  if (typeof pair !== 'object' || pair === null) {
    const detail = `pair ${row} of the batch must be { prompt, chosen, rejected }: got ${describeValue(pair)}`
    throw new FulmarError('MALFORMED', detail)
  }
  const prompt = messagesOf(`prompt of pair ${row} of the batch`, pair.prompt, 'user')
  return (['chosen', 'rejected'] as const).map((name) => {
    const place = `${name} of pair ${row} of the batch`
    const tokens = completionTokens(renderer, prompt, messagesOf(place, pair[name], 'assistant'))
    if (tokens.mask.includes(1)) return tokens
    throw new FulmarError(
      'EMPTY',
      `${place} must hold an assistant's message to train: it holds no such token`,
    )
  })
}

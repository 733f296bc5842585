/**
 * Kahneman-Tversky optimization: makes desirable answers more likely and undesirable ones less likely, near a
 * reference.
 * K. Ethayarajh et al., https://arxiv.org/abs/2402.01306
 *
 * ```text
 * each step: batchSize answers -> log-ratios; each prompt with the next one's answer -> log-ratios of answers that do not belong,
 *            whose mean is where an answer counts as good as the reference -> KTO loss -> backward -> update
 * ```
 */

import type { Renderer } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import type { TokenBatch } from '../model/index.js'
import { type KTOBatch, KTOLoss, type Objective } from '../objective/index.js'
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
  batchOf,
  checkCounts,
  completionTokens,
  messagesOf,
  type RowTokens,
  type RowTrainingOptions,
  rowsOf,
  type Said,
} from './training-rows.js'

/** An answer with a label. Other columns of a row are ignored. */
export interface LabelledAnswer {
  /** The question. */
  readonly prompt: Said
  /** An assistant's message, and any messages after it. */
  readonly completion: Said
  /** True for a desirable answer. */
  readonly label: boolean
}

/** Options of {@link kto}. */
export interface KtoOptions extends RowTrainingOptions {
  /** Frozen reference policy: a decoder, or `'base'` for the weights without their adapter. */
  readonly reference: Reference
  /** Converts conversations to tokens. */
  readonly renderer: Renderer
  /** Answers of both labels. A list is repeated in its order. */
  readonly examples: Dataset<LabelledAnswer> | readonly LabelledAnswer[]
  /** Answers per step, at least 2: each prompt is scored with the answer of the next one too. */
  readonly batchSize: number
  /**
   * Loss of the answers, from this package or custom.
   * @default new KTOLoss()
   */
  readonly loss?: Objective<KTOBatch>
}

/** Options of {@link kto} with a model. */
export interface KtoModelOptions
  extends ModelReferenceOptions,
    Pick<KtoOptions, 'firstStep' | 'loss' | 'schedule' | 'maxGradNorm' | 'signal'> {
  /** As {@link KtoOptions.examples}, or the path of a file of JSON lines `{ prompt, completion, label }`. */
  readonly examples: KtoOptions['examples'] | string
}

/** One step of {@link kto}. */
export interface KtoStep extends TrainStepResult {
  /** Counts from 0. */
  readonly index: number
  /** Index of the first step after the run. */
  readonly numSteps: number
  /** Tokens of all answers of this step with their prompts. */
  readonly numTokens: number
}

/**
 * Trains on single labelled answers, one optimizer step at a time. Takes a model and examples (rows, or a
 * file of them) and makes the other parts; or takes the parts: a decoder, a reference, an optimizer and a
 * renderer. Each step scores the batch, and its answers after other prompts, under both policies: three
 * passes besides that of training.
 *
 * @throws {FulmarError} At once `UNKNOWN_NAME` for an unknown option, `MALFORMED` or `OUT_OF_RANGE` for an
 * invalid one, `EMPTY` without a row. While it runs, `ABORTED` if the signal fires, `EMPTY` if an answer has
 * no assistant token, `MALFORMED` for a row of another form; errors of dataset, decoders and optimizer.
 *
 * @example
 * ```ts
 * import { createModel, kto } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const examples = [
 *   { prompt: 'Tea?', completion: 'Yes', label: true },
 *   { prompt: 'Coffee?', completion: 'No', label: false },
 * ]
 * const losses: number[] = []
 * for await (const step of kto({ model, examples, batchSize: 2, epochs: 5, learningRate: 0.01 })) losses.push(step.loss)
 * assert.ok(losses[4] < losses[0])
 * ```
 */
export function kto(options: KtoModelOptions | KtoOptions): AsyncGenerator<KtoStep, void, undefined> {
  if (isOfModel(options)) return trainOnAnswers(options)
  checkKnownKeys('options', options, KEYS, REQUIRED)
  const { examples, batchSize, firstStep = 0, loss = new KTOLoss() } = options
  checkCounts({ ...options, firstStep })
  if (batchSize < 2) {
    const detail = `options.batchSize must be at least 2, to pair each prompt with another answer: got ${batchSize}`
    throw new FulmarError('OUT_OF_RANGE', detail)
  }
  checkObjective(loss)
  return train(options, rowsOf('examples', examples, firstStep * batchSize), loss)
}

const REQUIRED = ['decoder', 'optimizer', 'reference', 'renderer', 'examples', 'batchSize', 'steps']
/** Options that mean the same with a model and with parts. */
const SHARED = ['firstStep', 'loss', 'schedule', 'maxGradNorm', 'signal']
const KEYS = [...REQUIRED, ...SHARED]
const MODEL_KEYS = [
  ...MODEL_TRAINING_KEYS,
  ...SHARED,
  'examples',
  'reference',
  'batchSize',
  'epochs',
  'steps',
]

function trainOnAnswers(options: KtoModelOptions): AsyncGenerator<KtoStep, void, undefined> {
  checkKnownKeys('options', options, MODEL_KEYS, ['model', 'examples'])
  const shared = only(options, SHARED)
  const { decoder, renderer } = options.model
  // Rows of a file are checked one by one, as they are taken.
  const read = async (path: string) => (await readRows(path)) as unknown as readonly LabelledAnswer[]
  return trainNearReference(
    options,
    { rows: options.examples, read, rates: COMPARISON_RATES },
    ({ rows: examples, ...parts }) => kto({ ...shared, ...parts, decoder, renderer, examples }),
  )
}

async function* train(
  { decoder, optimizer, reference, renderer, batchSize, steps, ...rest }: KtoOptions,
  examples: Dataset<LabelledAnswer>,
  objective: Objective<KTOBatch>,
): AsyncGenerator<KtoStep, void, undefined> {
  const { firstStep = 0, schedule, maxGradNorm = 1, signal } = rest
  checkReference(reference, decoder)
  for (let index = firstStep; index < steps; index++) {
    const rows = Array.from({ length: batchSize }, (_, row) => checkedRow(examples.next(), row))
    const batch = batchOf(rows.map((row, at) => answerTokens(renderer, row, row, at)))
    const others = batchOf(
      rows.map((row, at) => answerTokens(renderer, row, rows[(at + 1) % batchSize] ?? row, at)),
    )
    const { mask, offsets } = batch
    const refLogProb = await referenceLogProb(reference, decoder, batch)
    const klLogRatio = logRatios(
      (await decoder.score(others)).logProb,
      await referenceLogProb(reference, decoder, others),
      others,
    )
    const desirable = Uint8Array.from(rows, ({ label }) => Number(label))
    const result = await trainStep({
      ...{ decoder, optimizer, batch, maxGradNorm },
      loss: ({ logProb }) => objective.forward({ logProb, refLogProb, desirable, klLogRatio, mask, offsets }),
      ...(schedule && { learningRate: schedule(index, steps) }),
      ...(signal && { signal }),
    })
    yield { index, numSteps: steps, ...result, numTokens: batch.ids.length }
  }
}

/** `log p - log p_ref` of each whole answer. */
function logRatios(
  logProb: Float32Array,
  refLogProb: Float32Array,
  { mask, offsets }: TokenBatch,
): Float32Array {
  return Float32Array.from({ length: offsets.length - 1 }, (_, row) => {
    let sum = 0
    for (let at = offsets[row] ?? 0; at < (offsets[row + 1] ?? 0); at++)
      if (mask[at] === 1) sum += (logProb[at] ?? 0) - (refLogProb[at] ?? 0)
    return sum
  })
}

function checkedRow(row: LabelledAnswer, at: number): LabelledAnswer {
  const isRow = typeof row === 'object' && row !== null
  if (isRow && typeof row.label === 'boolean') return row
  const found = isRow ? `label ${describeValue(row.label)}` : describeValue(row)
  throw new FulmarError(
    'MALFORMED',
    `row ${at} of the batch must be { prompt, completion, label: true or false }: got ${found}`,
  )
}

/**
 * Returns the tokens of the prompt of one row with the answer of another.
 * @throws {FulmarError} `MALFORMED` or `EMPTY`.
 */
function answerTokens(
  renderer: Renderer,
  asked: LabelledAnswer,
  answered: LabelledAnswer,
  at: number,
): RowTokens {
  const prompt = messagesOf(`prompt of row ${at} of the batch`, asked.prompt, 'user')
  const completion = messagesOf(`completion of row ${at} of the batch`, answered.completion, 'assistant')
  const tokens = completionTokens(renderer, prompt, completion)
  if (tokens.mask.includes(1)) return tokens
  const detail = `completion of row ${at} of the batch must hold an assistant's message to train: it has no assistant token`
  throw new FulmarError('EMPTY', detail)
}

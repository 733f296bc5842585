/** Supervised fine-tuning on worked conversations. */

import type { Message, Renderer, ToolSpec } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import type { Task } from '../env/index.js'
import { type Objective, type SFTBatch, SFTLoss } from '../objective/index.js'
import { readRows } from '../task/index.js'
import { EXAMPLE_RATES } from './default-rates.js'
import {
  checkModelTraining,
  isOfModel,
  MODEL_TRAINING_KEYS,
  type ModelTrainingOptions,
  only,
  stepsOf,
  trainModel,
} from './model-training.js'
import { checkObjective, type TrainStepResult, trainStep } from './train-step.js'
import {
  type CompletionRow,
  type ConversationRow,
  checkCounts,
  completionTokens,
  isMessage,
  messagesOf,
  nextBatch,
  type RowTokens,
  type RowTrainingOptions,
  rowsOf,
} from './training-rows.js'

/** A worked example: a conversation, or a row of a data set. */
export type SftExample = readonly Message[] | ConversationRow | CompletionRow

/** Options of {@link sft}. */
export interface SftOptions extends RowTrainingOptions {
  /** Converts conversations to tokens and marks those of the assistant, which are trained. */
  readonly renderer: Renderer
  /**
   * Conversations with the assistant's answers, or rows of prompts and completions. A list is repeated in its
   * order.
   */
  readonly examples: Dataset<SftExample> | readonly SftExample[]
  /** Conversations per step. */
  readonly batchSize: number
  /**
   * Loss of the tokens, from this package or custom.
   * @default new SFTLoss()
   */
  readonly loss?: Objective<SFTBatch>
}

/** Options of {@link sft} with a model. */
export interface SftModelOptions<Sample>
  extends ModelTrainingOptions,
    Omit<SftOptions, 'decoder' | 'optimizer' | 'renderer' | 'examples' | 'batchSize' | 'steps'> {
  /** As {@link SftOptions.examples}, or the path of a file of JSON lines: `{ messages }`, or `{ prompt, completion }` as text or messages. */
  readonly examples?: SftOptions['examples'] | string
  /** A task whose worked examples are trained, in place of `examples`. */
  readonly task?: Task<Sample>
  /**
   * Conversations per step.
   * @default 8
   */
  readonly batchSize?: number
  /**
   * Passes over the examples.
   * @default 1
   */
  readonly epochs?: number
  /**
   * Index of the first step after the run, instead of `epochs`; must be given with a task or a data set.
   * @default as many as `epochs` takes
   */
  readonly steps?: number
}

/** One step of {@link sft}. */
export interface SftStep extends TrainStepResult {
  /** Counts from 0. */
  readonly index: number
  /** Index of the first step after the run. */
  readonly numSteps: number
  /** Tokens of all conversations of this step. */
  readonly numTokens: number
}

/**
 * Trains on worked conversations, one optimizer step at a time. Takes a model and examples (rows, a file of
 * them, or a task with worked examples) and makes the other parts; or takes the parts: a decoder, an
 * optimizer and a renderer.
 *
 * @throws {FulmarError} At once `UNKNOWN_NAME` for an unknown option, `MALFORMED` or `OUT_OF_RANGE` for an
 * invalid one, `EMPTY` without an example. While it runs, `ABORTED` if the signal fires, `EMPTY` if a batch
 * has no token to train, `MALFORMED` for an example of another form; errors of dataset, renderer, decoder and
 * optimizer.
 *
 * @example
 * ```ts
 * import { createModel, sft } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const model = createModel({ seed: 1 }, { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1 })
 * const examples = [
 *   { messages: [{ role: 'user', content: 'Hi' }, { role: 'assistant', content: 'Yes' }] },
 *   { prompt: 'Tea?', completion: 'Yes' },
 * ]
 * const losses: number[] = []
 * for await (const step of sft({ model, examples, epochs: 20, batchSize: 2, learningRate: 0.01 })) losses.push(step.loss)
 * assert.equal(losses.length, 20)
 * assert.ok(losses[19] < losses[0])
 * ```
 */
export function sft<Sample>(
  options: SftModelOptions<Sample> | SftOptions,
): AsyncGenerator<SftStep, void, undefined> {
  if (isOfModel(options)) return trainOnExamples(options)
  checkKnownKeys('options', options, KEYS, [
    'decoder',
    'optimizer',
    'renderer',
    'examples',
    'batchSize',
    'steps',
  ])
  const { examples, batchSize, firstStep = 0, loss = new SFTLoss() } = options
  checkCounts({ ...options, firstStep })
  checkObjective(loss)
  return train(options, rowsOf('examples', examples, firstStep * batchSize), loss)
}

const KEYS = [
  'decoder',
  'optimizer',
  'renderer',
  'examples',
  'batchSize',
  'steps',
  'firstStep',
  'loss',
  'schedule',
  'maxGradNorm',
  'signal',
]

async function* train(
  {
    decoder,
    optimizer,
    renderer,
    batchSize,
    steps,
    firstStep = 0,
    schedule,
    maxGradNorm = 1,
    signal,
  }: SftOptions,
  examples: Dataset<SftExample>,
  objective: Objective<SFTBatch>,
): AsyncGenerator<SftStep, void, undefined> {
  for (let index = firstStep; index < steps; index++) {
    const batch = nextBatch(examples, batchSize, (example, row) => [exampleTokens(renderer, example, row)])
    const { mask, offsets } = batch
    if (!mask.includes(1)) {
      const detail = `no assistant's message in the ${batchSize} of step ${index}`
      throw new FulmarError('EMPTY', `examples must hold an assistant's message to train: there is ${detail}`)
    }
    const result = await trainStep({
      decoder,
      optimizer,
      batch,
      loss: ({ logProb }) => objective.forward({ logProb, mask, offsets }),
      maxGradNorm,
      ...(schedule && { learningRate: schedule(index, steps) }),
      ...(signal && { signal }),
    })
    yield { index, numSteps: steps, ...result, numTokens: batch.ids.length }
  }
}

/** Options that mean the same with a model and with parts. */
const SHARED = ['firstStep', 'loss', 'schedule', 'maxGradNorm', 'signal']
const MODEL_KEYS = [...MODEL_TRAINING_KEYS, ...SHARED, 'examples', 'task', 'batchSize', 'epochs', 'steps']

function trainOnExamples<Sample>(options: SftModelOptions<Sample>): AsyncGenerator<SftStep, void, undefined> {
  checkKnownKeys('options', options, MODEL_KEYS, ['model'])
  checkModelTraining(options)
  const { model, examples, task, batchSize = 8, epochs, steps } = options
  if ((examples === undefined) === (task === undefined)) {
    const detail = `options must have either examples or a task: got ${task ? 'both' : 'neither'}`
    throw new FulmarError('MALFORMED', detail)
  }
  const shared = only(options, SHARED)
  const given = task ? workedExamples(task) : (examples ?? [])
  return (async function* () {
    // Rows of a file are checked one by one, as they are taken.
    const rows =
      typeof given === 'string' ? ((await readRows(given)) as unknown as readonly SftExample[]) : given
    const numSteps = stepsOf(rows, { steps, epochs, batchSize })
    const parts = {
      decoder: model.decoder,
      renderer: model.renderer,
      examples: rows,
      batchSize,
      steps: numSteps,
    }
    yield* trainModel(options, EXAMPLE_RATES, (optimizer) => sft({ ...shared, ...parts, optimizer }))
  })()
}

/**
 * Returns the worked examples of a task as a data set.
 * @throws {FulmarError} `INCOMPATIBLE` if it has none.
 */
function workedExamples<Sample>(task: Task<Sample>): Dataset<readonly Message[]> {
  if (typeof task.workedExample !== 'function')
    throw new FulmarError('INCOMPATIBLE', `task must have worked examples: got ${task.name}, which has none`)
  const samples = task.makeDataset('train')
  return {
    next: () => task.workedExample?.(samples.next()) ?? [],
    stateDict: () => samples.stateDict(),
    loadStateDict: (state) => samples.loadStateDict(state),
  }
}

/**
 * Returns the tokens of one row of any supported form.
 * @throws {FulmarError} `MALFORMED` for another form.
 */
function exampleTokens(renderer: Renderer, example: SftExample, row: number): RowTokens {
  const place = `example ${row} of the batch`
  if (isConversation(example)) return conversationTokens(renderer, example)
  if (typeof example === 'object' && example !== null && 'messages' in example)
    return conversationTokens(
      renderer,
      messagesOf(`messages of ${place}`, example.messages, 'user'),
      example.tools,
    )
  if (typeof example === 'object' && example !== null && 'completion' in example) {
    const prompt = messagesOf(`prompt of ${place}`, example.prompt, 'user')
    const completion = messagesOf(`completion of ${place}`, example.completion, 'assistant')
    return completionTokens(renderer, prompt, completion, example.tools)
  }
  const forms = 'a list of messages, { messages } or { prompt, completion }'
  throw new FulmarError('MALFORMED', `${place} must be ${forms}: got ${describeRow(example)}`)
}

function conversationTokens(
  renderer: Renderer,
  messages: readonly Message[],
  tools: readonly ToolSpec[] = [],
): RowTokens {
  const { ids, sampledMask: mask } = renderer.render(messages, { tools })
  return { ids, mask }
}

function isConversation(example: SftExample): example is readonly Message[] {
  return Array.isArray(example) && example.every(isMessage)
}

function describeRow(row: unknown): string {
  const isRow = typeof row === 'object' && row !== null && !Array.isArray(row)
  return isRow ? `an object with ${Object.keys(row).join(', ') || 'no keys'}` : describeValue(row)
}

/** Rows of supervised and preference data in the common forms, and their tokens. */

import { buildTrajectoryStep, type Message, type Renderer, type ToolSpec } from '../chat/index.js'
import { describeValue, FulmarError, field } from '../core/index.js'
import { type Dataset, listDataset } from '../data/index.js'
import type { Decoder, Optimizer, TokenBatch } from '../model/index.js'
import type { Schedule } from './schedule.js'

/** Messages, or a text for a single message: the user's in a prompt, the assistant's in an answer. */
export type Said = string | readonly Message[]

/** A conversation whose assistant's messages are trained. Other columns of a row are ignored. */
export interface ConversationRow {
  /** The conversation. */
  readonly messages: readonly Message[]
  /**
   * The tools on offer.
   * @default none
   */
  readonly tools?: readonly ToolSpec[]
}

/** A prompt, which is not trained, and its completion. Other columns of a row are ignored. */
export interface CompletionRow {
  readonly prompt: Said
  /** Completion, whose assistant's messages are trained. */
  readonly completion: Said
  /**
   * The tools on offer.
   * @default none
   */
  readonly tools?: readonly ToolSpec[]
}

/** Two answers to one prompt. Other columns of a row are ignored. */
export interface PreferencePair {
  /** Prompt of both answers. */
  readonly prompt: Said
  /** Preferred answer: an assistant's message, and any messages after it. */
  readonly chosen: Said
  /** Rejected answer. */
  readonly rejected: Said
}

/** Shared options of the recipes over rows. */
export interface RowTrainingOptions {
  /** The decoder to train. */
  readonly decoder: Decoder
  /** The optimizer of its weights. */
  readonly optimizer: Optimizer
  /** Index of the first step after the run. */
  readonly steps: number
  /**
   * Index of the first step, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * The learning rate of each step.
   * @default the optimizer's learningRate
   */
  readonly schedule?: Schedule
  /**
   * Maximum L2 norm of the gradient; larger ones are scaled down.
   * @default 1
   */
  readonly maxGradNorm?: number
  /** Stops between steps. */
  readonly signal?: AbortSignal
}

/** Tokens of one row, and the mask of the trained ones. */
export interface RowTokens {
  readonly ids: Uint32Array
  readonly mask: Uint8Array
}

/**
 * Returns `rows` as a stream: a list repeats from its start and continues at row `numTaken`; a data set
 * continues at its position.
 * @throws {FulmarError} `EMPTY` for an empty list; `MALFORMED` for another value.
 */
export function rowsOf<Row>(
  name: string,
  rows: Dataset<Row> | readonly Row[],
  numTaken: number,
): Dataset<Row> {
  if (Array.isArray(rows)) {
    if (rows.length === 0)
      throw new FulmarError('EMPTY', `options.${name} must hold a row: the list is empty`)
    const dataset = listDataset<Row>({ items: rows })
    dataset.loadStateDict({ position: numTaken })
    return dataset
  }
  if (typeof rows === 'object' && rows !== null && 'next' in rows && typeof rows.next === 'function')
    return rows
  const detail = `options.${name} must be a list of rows or a data set: got ${describeValue(rows)}`
  throw new FulmarError('MALFORMED', detail)
}

/** Checks the counts of the recipes. @throws {FulmarError} `MALFORMED` or `OUT_OF_RANGE`. */
export function checkCounts(counts: {
  readonly batchSize?: number
  readonly steps: number
  readonly firstStep: number
}): void {
  const { batchSize = 1, steps, firstStep } = counts
  field.integer({ min: 1 }).read('options.batchSize', batchSize)
  field.integer({ min: 0 }).read('options.steps', steps)
  field.integer({ min: 0 }).read('options.firstStep', firstStep)
}

/** Returns the next `count` rows as one batch. `tokensOf` returns the sequences of a row. */
export function nextBatch<Row>(
  rows: Dataset<Row>,
  count: number,
  tokensOf: (row: Row, index: number) => readonly RowTokens[],
): TokenBatch {
  return batchOf(Array.from({ length: count }, (_, index) => tokensOf(rows.next(), index)).flat())
}

/** Joins sequences to one batch. */
export function batchOf(sequences: readonly RowTokens[]): TokenBatch {
  const offsets = new Uint32Array(sequences.length + 1)
  for (const [index, { ids }] of sequences.entries()) offsets[index + 1] = (offsets[index] ?? 0) + ids.length
  const ids = new Uint32Array(offsets.at(-1) ?? 0)
  const mask = new Uint8Array(ids.length)
  for (const [index, sequence] of sequences.entries()) {
    ids.set(sequence.ids, offsets[index])
    mask.set(sequence.mask, offsets[index])
  }
  return { ids, offsets, mask }
}

/** Returns the tokens of a prompt and its completion; the assistant's tokens are trained. */
export function completionTokens(
  renderer: Renderer,
  prompt: readonly Message[],
  completion: readonly Message[],
  tools: readonly ToolSpec[] = [],
): RowTokens {
  const { promptIds, completionIds, completionMask } = buildTrajectoryStep(renderer, prompt, completion, {
    tools,
  })
  const ids = new Uint32Array(promptIds.length + completionIds.length)
  const mask = new Uint8Array(ids.length)
  ids.set(promptIds)
  ids.set(completionIds, promptIds.length)
  mask.set(completionMask, promptIds.length)
  return { ids, mask }
}

/** Returns a whole conversation with a mask of its last token, where the reward is read. @throws {FulmarError} `EMPTY` without a token. */
export function conversationTokens(renderer: Renderer, messages: readonly Message[]): RowTokens {
  const { ids } = renderer.render(messages)
  if (ids.length === 0)
    throw new FulmarError('EMPTY', 'a conversation must have a token to score: it has none')
  const mask = new Uint8Array(ids.length)
  mask[ids.length - 1] = 1
  return { ids, mask }
}

/**
 * Returns the messages of one column of a row; `place` is its path.
 * @throws {FulmarError} `MALFORMED` for another value.
 */
export function messagesOf(place: string, said: unknown, role: 'user' | 'assistant'): readonly Message[] {
  if (typeof said === 'string') return [{ role, content: said }]
  if (Array.isArray(said) && said.length > 0 && said.every(isMessage)) return said
  throw new FulmarError(
    'MALFORMED',
    `${place} must be a list of messages or a text: got ${describeValue(said)}`,
  )
}

/** Returns the messages of a pair. @throws {FulmarError} `MALFORMED` for a pair of another form; `row` is its place in the batch. */
export function pairMessages(pair: PreferencePair, row: number) {
  if (typeof pair !== 'object' || pair === null) {
    const detail = `pair ${row} of the batch must be { prompt, chosen, rejected }: got ${describeValue(pair)}`
    throw new FulmarError('MALFORMED', detail)
  }
  return {
    prompt: messagesOf(`prompt of pair ${row} of the batch`, pair.prompt, 'user'),
    chosen: messagesOf(`chosen of pair ${row} of the batch`, pair.chosen, 'assistant'),
    rejected: messagesOf(`rejected of pair ${row} of the batch`, pair.rejected, 'assistant'),
  }
}

/** Returns true if a value has the form of a message; the renderer checks the rest. */
export function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'role' in value && typeof value.role === 'string'
}

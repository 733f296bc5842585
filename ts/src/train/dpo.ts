/**
 * Direct preference optimisation: answers that were preferred become likelier than those that were not, near a reference.
 * R. Rafailov et al., https://arxiv.org/abs/2305.18290
 */

import { buildTrajectoryStep, type Message, type Renderer } from '../chat/index.js'
import { describeValue, FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import type { Decoder, Optimizer, TokenBatch } from '../model/index.js'
import { DPOLoss } from '../objective/index.js'
import { readRows } from '../task/index.js'
import type { Schedule } from './schedule.js'
import { type TrainStepResult, trainStep } from './train-step.js'

/** Two answers to one prompt. */
export interface PreferencePair {
  /** The conversation that both answer. */
  readonly prompt: readonly Message[]
  /** What was preferred: an assistant's message, and what may follow it. */
  readonly chosen: readonly Message[]
  /** What was not. */
  readonly rejected: readonly Message[]
}

/** Options of {@link dpo}. */
export interface DpoOptions {
  /** Whose weights change. */
  readonly decoder: Decoder
  /** Changes them. */
  readonly optimizer: Optimizer
  /** The frozen policy to stay near: the decoder as it was. */
  readonly reference: Decoder
  /** Makes tokens of conversations. */
  readonly renderer: Renderer
  /** Pairs of answers. */
  readonly pairs: Dataset<PreferencePair>
  /** Pairs per step. */
  readonly batchSize: number
  /** The step to end before, counted from 0. */
  readonly steps: number
  /**
   * The step to begin with, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * @default new DPOLoss()
   */
  readonly loss?: DPOLoss
  /**
   * The learning rate of each step.
   * @default the optimiser's learningRate
   */
  readonly schedule?: Schedule
  /**
   * Gradients are scaled down to this L2 norm.
   * @default 1
   */
  readonly maxGradNorm?: number
  /** Stops between steps. */
  readonly signal?: AbortSignal
}

/** One step of {@link dpo}. */
export interface DpoStep extends TrainStepResult {
  /** Counts from 0. */
  readonly index: number
  /** Tokens of all answers of this step, with their prompts. */
  readonly numTokens: number
}

/**
 * Trains on pairs of answers, one optimiser step at a time.
 *
 * @throws {FulmarError} `ABORTED` if the signal fires; `EMPTY` if an answer holds nothing that an assistant samples;
 * `INCOMPATIBLE` if a template changes a prompt when an answer follows; what dataset, decoders and optimiser say.
 *
 * @example
 * ```ts
 * import { AdamW, CharTokenizer, createRenderer, Decoder, dpo, listDataset } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const shape = { model_type: 'qwen2', hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, vocab_size: tokenizer.vocabSize } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using reference = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new AdamW(decoder, { learningRate: 0.01 })
 * const say = (content: string) => [{ role: 'assistant', content }]
 * const pairs = listDataset({ items: [{ prompt: [{ role: 'user', content: 'Tea?' }], chosen: say('Yes'), rejected: say('No') }] })
 * const losses: number[] = []
 * for await (const step of dpo({ decoder, reference, optimizer, renderer, pairs, batchSize: 1, steps: 5 })) losses.push(step.loss)
 * assert.ok(losses[4] < losses[0])
 * ```
 */
export async function* dpo(options: DpoOptions): AsyncGenerator<DpoStep, void, undefined> {
  const { decoder, optimizer, reference, renderer, pairs, batchSize, steps } = options
  const { firstStep = 0, loss: objective = new DPOLoss(), schedule, maxGradNorm = 1, signal } = options
  for (let index = firstStep; index < steps; index++) {
    const batch = renderPairs(
      renderer,
      Array.from({ length: batchSize }, () => pairs.next()),
    )
    const { mask, offsets } = batch
    const { logProb: refLogProb } = await reference.score(batch)
    const result = await trainStep({
      decoder,
      optimizer,
      batch,
      scores: { logSumSqProb: objective.readsLogSumSqProb },
      loss: ({ logProb, logSumSqProb }) =>
        objective.forward({ logProb, refLogProb, mask, offsets, logSumSqProb }),
      maxGradNorm,
      ...(schedule && { learningRate: schedule(index, steps) }),
      ...(signal && { signal }),
    })
    yield { index, ...result, numTokens: batch.ids.length }
  }
}

/**
 * The pairs of a file of JSON lines.
 * @throws {FulmarError} `IO` if it cannot be read; `EMPTY` if it holds none; `MALFORMED` for a line that is no pair; `LIMIT_EXCEEDED` as
 * `readRows`.
 */
export async function readPairs(path: string): Promise<PreferencePair[]> {
  const rows = await readRows(path)
  if (rows.length === 0) throw new FulmarError('EMPTY', `${path} must hold a pair: got none`)
  return rows.map((row, index) => {
    const messages = (name: string): readonly Message[] => {
      const value = Object.entries(row).find(([key]) => key === name)?.[1]
      if (Array.isArray(value) && value.length > 0 && value.every(isMessage)) return value
      const rule = `${name} of line ${index + 1} of ${path} must be a list of messages`
      throw new FulmarError('MALFORMED', `${rule}: got ${describeValue(value)}`)
    }
    return { prompt: messages('prompt'), chosen: messages('chosen'), rejected: messages('rejected') }
  })
}

function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'role' in value && typeof value.role === 'string'
}

/** Chosen and rejected by turns, masked where an assistant would have sampled. */
function renderPairs(renderer: Renderer, pairs: readonly PreferencePair[]): TokenBatch {
  const answers = pairs.flatMap(({ prompt, chosen, rejected }) =>
    [chosen, rejected].map((answer) => buildTrajectoryStep(renderer, prompt, answer)),
  )
  const offsets = new Uint32Array(answers.length + 1)
  for (const [index, { promptIds, completionIds }] of answers.entries())
    offsets[index + 1] = (offsets[index] ?? 0) + promptIds.length + completionIds.length
  const ids = new Uint32Array(offsets.at(-1) ?? 0)
  const mask = new Uint8Array(ids.length)
  for (const [index, { promptIds, completionIds, completionMask }] of answers.entries()) {
    const start = offsets[index] ?? 0
    ids.set(promptIds, start)
    ids.set(completionIds, start + promptIds.length)
    mask.set(completionMask, start + promptIds.length)
    if (!completionMask.includes(1))
      throw new FulmarError('EMPTY', `answer ${index} must hold an assistant message to train: got none`)
  }
  return { ids, offsets, mask }
}

/** Supervised fine-tuning on worked conversations. */

import type { Message, Renderer } from '../chat/index.js'
import { FulmarError } from '../core/index.js'
import type { Dataset } from '../data/index.js'
import type { Decoder, Optimizer, TokenBatch } from '../model/index.js'
import { SFTLoss } from '../objective/index.js'
import type { Schedule } from './schedule.js'
import { type TrainStepResult, trainStep } from './train-step.js'

/** Options of {@link sft}. */
export interface SftOptions {
  /** Whose weights change. */
  readonly decoder: Decoder
  /** Changes them. */
  readonly optimizer: Optimizer
  /** Makes tokens of conversations, and says which of them an assistant would have sampled: those are trained. */
  readonly renderer: Renderer
  /** Conversations with the assistant's answers in them. */
  readonly examples: Dataset<readonly Message[]>
  /** Conversations per step. */
  readonly batchSize: number
  /** The step to end before, counted from 0. */
  readonly steps: number
  /**
   * The step to begin with, for a run that is resumed.
   * @default 0
   */
  readonly firstStep?: number
  /**
   * @default new SFTLoss()
   */
  readonly loss?: SFTLoss
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

/** One step of {@link sft}. */
export interface SftStep extends TrainStepResult {
  /** Counts from 0. */
  readonly index: number
  /** Tokens of all conversations of this step. */
  readonly numTokens: number
}

/**
 * Trains on worked conversations, one optimiser step at a time.
 *
 * @throws {FulmarError} `ABORTED` if the signal fires; `EMPTY` if a batch holds nothing to train; what dataset, renderer,
 * decoder and optimiser say.
 *
 * @example
 * ```ts
 * import { AdamW, CharTokenizer, createRenderer, Decoder, listDataset, sft } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const shape = { model_type: 'qwen2', hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed({ ...shape, vocab_size: tokenizer.vocabSize }, { seed: 1 })
 * using optimizer = new AdamW(decoder, { learningRate: 0.01 })
 * const examples = listDataset({ items: [[{ role: 'user', content: 'Hi' }, { role: 'assistant', content: 'Yes' }]] })
 * const losses: number[] = []
 * for await (const step of sft({ decoder, optimizer, renderer, examples, batchSize: 2, steps: 20 })) losses.push(step.loss)
 * assert.ok(losses[19] < losses[0])
 * ```
 */
export async function* sft(options: SftOptions): AsyncGenerator<SftStep, void, undefined> {
  const {
    decoder,
    optimizer,
    renderer,
    examples,
    batchSize,
    steps,
    firstStep = 0,
    schedule,
    signal,
  } = options
  const { loss: objective = new SFTLoss(), maxGradNorm = 1 } = options
  for (let index = firstStep; index < steps; index++) {
    const batch = renderBatch(
      renderer,
      Array.from({ length: batchSize }, () => examples.next()),
    )
    const { mask, offsets } = batch
    const result = await trainStep({
      decoder,
      optimizer,
      batch,
      loss: ({ logProb }) => objective.forward({ logProb, mask, offsets }),
      maxGradNorm,
      ...(schedule && { learningRate: schedule(index, steps) }),
      ...(signal && { signal }),
    })
    yield { index, ...result, numTokens: batch.ids.length }
  }
}

/** Conversations one after another, masked where an assistant would have sampled. */
function renderBatch(renderer: Renderer, conversations: readonly (readonly Message[])[]): TokenBatch {
  const rendered = conversations.map((messages) => renderer.render(messages))
  const offsets = new Uint32Array(rendered.length + 1)
  for (const [index, { ids }] of rendered.entries()) offsets[index + 1] = (offsets[index] ?? 0) + ids.length
  const ids = new Uint32Array(offsets[rendered.length] ?? 0)
  const mask = new Uint8Array(ids.length)
  for (const [index, one] of rendered.entries()) {
    ids.set(one.ids, offsets[index])
    mask.set(one.sampledMask, offsets[index])
  }
  if (!mask.includes(1))
    throw new FulmarError('EMPTY', 'examples must hold an assistant message to train: got none')
  return { ids, offsets, mask }
}

/** Generation of many sequences at once. */

import { Handle, yieldToEventLoop } from '../core/index.js'
import { type RawGeneration, raw } from '../native/index.js'
import type { Decoder } from './decoder.js'

/** How to generate; the same for all prompts of a call. */
export interface GenerationOptions {
  /** Most tokens to draw for a sequence, the stop token included. */
  readonly maxTokens: number
  /**
   * Divides the logits; 0 takes the likeliest token.
   * @default 1
   */
  readonly temperature?: number
  /**
   * Draws among the `topK` likeliest tokens; 0 means all.
   * @default 0
   */
  readonly topK?: number
  /**
   * Draws among the likeliest tokens that reach this probability together, in (0, 1].
   * @default 1
   */
  readonly topP?: number
  /**
   * Ids that end a sequence once drawn.
   * @default []
   */
  readonly stopIds?: readonly number[]
  /** Stops between two steps; what was drawn so far is returned, its `finishReason` is `abort`. */
  readonly signal?: Pick<AbortSignal, 'aborted'>
}

/** One prompt with the seed of its draws. */
export interface Prompt {
  /** At least one token. */
  readonly ids: Uint32Array
  /** Names the random stream: a sequence depends on its prompt, its seed, the options and the weights alone. */
  readonly seed: number
}

/** What was drawn for one prompt. The arrays are new and have one entry a drawn token. */
export interface Generated {
  /** Drawn ids, the stop id included. */
  readonly ids: Uint32Array
  /** The model's own log-prob (temperature 1): the bits that `Decoder.forward` gives. */
  readonly logProbs: Float32Array
  /** Log-prob under the distribution that the id was drawn from. */
  readonly sampledLogProbs: Float32Array
  /** A stop id, `maxTokens`, or the signal. */
  readonly finishReason: 'stop' | 'length' | 'abort'
}

/** Tokens between two looks at the signal and, in WebAssembly, at the event loop. */
const STEPS_PER_TURN = 8
const REASONS = ['abort', 'stop', 'length'] as const

/**
 * Draws a completion for every prompt, all together. The event loop stays free between steps.
 *
 * @throws {FulmarError} `EMPTY` without prompts or for an empty one; `OUT_OF_RANGE` for an id or option;
 * `LIMIT_EXCEEDED` where a prompt with `maxTokens` is longer than the model's positions.
 *
 * @example
 * ```ts
 * import { Decoder, generate } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const prompt = { ids: Uint32Array.of(1, 2), seed: 7 }
 * const [alone] = await generate(decoder, [prompt], { maxTokens: 6 })
 * const [, beside] = await generate(decoder, [{ ids: Uint32Array.of(4), seed: 0 }, prompt], { maxTokens: 6 })
 * assert.deepEqual(alone, beside)
 * ```
 */
export async function generate(
  decoder: Decoder,
  prompts: readonly Prompt[],
  options: GenerationOptions,
): Promise<Generated[]> {
  const { signal, topK = 0, ...rest } = options
  const json = JSON.stringify(topK > 0 ? { ...rest, topK } : rest)
  const offsets = new Uint32Array(prompts.length + 1)
  for (const [index, { ids }] of prompts.entries()) offsets[index + 1] = (offsets[index] ?? 0) + ids.length
  const ids = new Uint32Array(offsets[prompts.length] ?? 0)
  for (const [index, prompt] of prompts.entries()) ids.set(prompt.ids, offsets[index])
  const seeds = Float64Array.from(prompts, ({ seed }) => seed)
  const native = new Handle<RawGeneration>('Generation', () =>
    decoder.withNative((inner) => new raw.Generation(inner, ids, offsets, seeds, json)),
  )
  try {
    while (
      !signal?.aborted &&
      (await native.callAsync((generation) => generation.step(STEPS_PER_TURN))) > 0
    ) {
      await yieldToEventLoop()
    }
    return split(native.call((generation) => generation.sequences()))
  } finally {
    native.free()
  }
}

function split(flat: ReturnType<RawGeneration['sequences']>): Generated[] {
  const { ids, offsets, logProb, sampledLogProb, finish } = flat
  return Array.from(finish, (reason, index) => {
    const [first, end] = [offsets[index], offsets[index + 1]]
    return {
      ids: ids.slice(first, end),
      logProbs: logProb.slice(first, end),
      sampledLogProbs: sampledLogProb.slice(first, end),
      finishReason: REASONS[reason] ?? 'abort',
    }
  })
}

/** Generation of many sequences at once. */

import { checkGiven, FulmarError } from '../core/index.js'
import type { Decoder } from './decoder.js'
import { Engine, type EngineOptions } from './engine.js'
import type { Generated } from './generated.js'
import type { GenerationOptions, Prompt } from './generation-options.js'

/**
 * Draws a completion for every prompt, all together in an {@link Engine} of their own. The event loop stays free between steps.
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
 * const [, together] = await generate(decoder, [{ ids: Uint32Array.of(4), seed: 0 }, prompt], { maxTokens: 6 })
 * assert.deepEqual(alone, together)
 * ```
 */
export async function generate(
  decoder: Decoder,
  prompts: readonly Prompt[],
  options: GenerationOptions & Pick<EngineOptions, 'decodeStream'>,
): Promise<Generated[]> {
  checkGiven('decoder', decoder)
  if (prompts.length === 0) throw new FulmarError('EMPTY', 'prompts must hold at least one: they are empty')
  const { decodeStream, ...each } = options
  using engine = new Engine(decoder, decodeStream && { decodeStream })
  return await Promise.all(prompts.map((prompt) => engine.generate(prompt, each)))
}

/**
 * One GRPO step of SmolLM2-135M-Instruct from prompts to new weights, 8 prompts x 4 rollouts x 64 tokens, with an adapter and with all
 * weights trained; against TRL's GRPOTrainer. Goal 23.
 *
 * A turn is one step: it is so long that nothing of it is in the caches when the next begins.
 */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { createRenderer, HfTokenizer } from 'fulmar'
import { AdamW, Decoder, type LoraConfig } from 'fulmar/model'
import { endless, measureGrpo, together } from './grpo-case.js'
import { type Goal, hand, type Report, ROOT, readOptions } from './measure.js'

const MODEL = fileURLToPath(new URL('models/SmolLM2-135M-Instruct.Q4_1.gguf', ROOT))
const LORA: LoraConfig = {
  ...{ r: 16, lora_alpha: 32 },
  target_modules: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'],
}
const LEARNING_RATE = 1e-6

const options = readOptions({ rounds: 7 })
if (!existsSync(MODEL)) throw new Error(`${MODEL} must be there: node scripts/smollm2.mjs gets it`)
const file = await readFile(MODEL)
using tokenizer = HfTokenizer.fromGguf(file)
using renderer = createRenderer(tokenizer, { name: 'chatml' })

// The adapter first: the most memory that a process held never falls.
const adapter = await measure('GRPO step, LoRA', { atLeast: 3 }, LORA)
const all = await measure('GRPO step, all weights', { atLeast: 2 })
hand(together({ adapter, all }))

async function measure(work: string, goal: Goal, lora?: LoraConfig): Promise<Report> {
  using decoder = await Decoder.fromGguf(file)
  if (lora) await decoder.addLora(lora, { seed: 1 })
  using optimizer = new AdamW(decoder, { learningRate: LEARNING_RATE })
  return await measureGrpo(
    {
      ...{ work, goal, decoder, optimizer, renderer: endless(renderer) },
      // Digits are tokens of their own, so all prompts have one length.
      questions: Array.from({ length: 64 }, (_, at) => `Write a story about room ${4821 + 7 * at}.`),
      // Half of all words.
      rewardIds: Array.from({ length: tokenizer.vocabSize / 2 }, (_, at) => 2 * at),
      ...{ promptsPerStep: 8, groupSize: 4, maxTokens: 64, learningRate: LEARNING_RATE },
      ...{ turnSteps: 1, warmup: 1, variants: ['tuned'], ...(lora && { lora }) },
    },
    options,
  )
}

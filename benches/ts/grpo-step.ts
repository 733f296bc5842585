/**
 * One GRPO step from prompts to new weights, of decoders with 0.95 M and 10.7 M weights, against TRL's GRPOTrainer in the setting of its
 * measured figures; goal 15.
 *
 * A turn is two steps, of which the second is timed: as in a run, each follows a step of its own program and not one
 * that left the caches to another program.
 */

import { AdamW, CharTokenizer, createRenderer, Decoder } from 'fulmar'
import { TINY_DECODER } from 'fulmar/train'
import { endless, measureGrpo, together } from './grpo-case.js'
import { type Goal, hand, type Report, readOptions } from './measure.js'

/** So small that no group ties in some hundreds of steps, as one does where all of its rollouts are perfect. */
const LEARNING_RATE = 2e-5

/** 10.7 M weights. */
const SMALL_DECODER = {
  ...TINY_DECODER,
  ...{
    hidden_size: 384,
    intermediate_size: 1024,
    num_hidden_layers: 6,
    num_attention_heads: 6,
    num_key_value_heads: 6,
  },
}

const options = readOptions({ rounds: 15 })
using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
hand(
  together({
    tiny: await measure('GRPO step, 0.95 M', TINY_DECODER, { atLeast: 3 }),
    small: await measure('GRPO step, 10.7 M', SMALL_DECODER, { atLeast: 1.3 }),
  }),
)

async function measure(
  work: string,
  shape: typeof TINY_DECODER | typeof SMALL_DECODER,
  goal: Goal,
): Promise<Report> {
  using decoder = Decoder.fromSeed({ ...shape, vocab_size: tokenizer.vocabSize }, { seed: 1 })
  using optimizer = new AdamW(decoder, { learningRate: LEARNING_RATE })
  return await measureGrpo(
    {
      ...{ work, goal, decoder, optimizer, renderer: endless(renderer) },
      questions: Array.from({ length: 64 }, (_, index) => `Sum of digits: [${10 + index}, ${99 - index}]`),
      rewardIds: [...'0123456789'].map((digit) => tokenizer.idOf(digit) ?? -1),
      ...{ promptsPerStep: 4, groupSize: 8, maxTokens: 32, learningRate: LEARNING_RATE },
      ...{ turnSteps: 2, warmup: 2, variants: ['tuned', 'shipped'] },
    },
    options,
  )
}

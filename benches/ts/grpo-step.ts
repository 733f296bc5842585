/**
 * One GRPO step from prompts to new weights, against TRL's GRPOTrainer in the setting of its measured figures; goal 15.
 *
 * A turn is two steps, of which the second is timed: as in a run, each follows a step of its own program and not one
 * that left the caches to somebody else.
 */

import { AdamW, CharTokenizer, createRenderer, Decoder, TINY_DECODER } from 'fulmar'
import { endless, measureGrpo } from './grpo-case.js'
import { hand, readOptions } from './measure.js'

const LEARNING_RATE = 2e-4

using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
using decoder = Decoder.fromSeed({ ...TINY_DECODER, vocab_size: tokenizer.vocabSize }, { seed: 1 })
using optimizer = new AdamW(decoder, { learningRate: LEARNING_RATE })

hand(
  await measureGrpo(
    {
      work: 'GRPO step',
      ...{ decoder, optimizer, renderer: endless(renderer) },
      questions: Array.from({ length: 64 }, (_, index) => `Sum of digits: [${10 + index}, ${99 - index}]`),
      rewardIds: [...'0123456789'].map((digit) => tokenizer.idOf(digit) ?? -1),
      ...{ promptsPerStep: 4, groupSize: 8, maxTokens: 32, learningRate: LEARNING_RATE },
      ...{ turnSteps: 2, warmup: 2, variants: ['tuned', 'shipped'], goal: { atLeast: 3 } },
    },
    readOptions({ rounds: 15 }),
  ),
)

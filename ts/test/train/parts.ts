import { createRenderer } from '../../src/chat/index.js'
import type { Task } from '../../src/env/index.js'
import { AdamW, Decoder } from '../../src/model/index.js'
import { DecoderPolicy } from '../../src/policy/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { sumDigits } from '../../src/task/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { TINY } from '../model/tiny.js'

/** Everything that a recipe needs, small. The task rewards answers that hold many `a`s, which a model learns within a few steps. */
export function makeParts({ seed = 1, score }: { seed?: number; score?: (text: string) => number } = {}) {
  const tokenizer = new CharTokenizer({ alphabet: '\nabcdefghijklmnopqrstuvwxyz' })
  const renderer = createRenderer(tokenizer, { name: 'chatml' })
  const decoder = Decoder.fromSeed(
    { ...TINY, vocab_size: tokenizer.vocabSize, initializer_range: 0.1 },
    { seed },
  )
  const optimizer = new AdamW(decoder, { learningRate: 0.01 })
  const policy = new DecoderPolicy(decoder)
  const countA = (text: string) => [...text].filter((letter) => letter === 'a').length / 8
  const scoreText = score ?? countA
  const task: Task<string> = {
    name: 'letters',
    makeDataset: () => sumDigits().makeDataset('train') as never,
    makeEnv: () => ({
      init: () => ({ initPromptMessages: [{ role: 'user', content: 'say' }] }),
      step: () => ({ done: true }),
      close: () => undefined,
    }),
    rewardFns: [
      {
        name: 'letters',
        score: ({ turns }) => scoreText(String(turns[0]?.completionMessage?.content ?? '')),
      },
    ],
    isSolved: () => false,
  }
  const newRollouter = () => new Rollouter({ policy, task, renderer, groupSize: 4, maxTokens: 8, seed })
  const rollouter = newRollouter()
  const dispose = () => {
    for (const owner of [optimizer, decoder, renderer, tokenizer]) owner[Symbol.dispose]()
  }
  return {
    tokenizer,
    renderer,
    decoder,
    optimizer,
    policy,
    task,
    rollouter,
    newRollouter,
    /** The options of recipes that are the same for all calls. */
    forStep: { decoder, optimizer },
    forSft: { decoder, optimizer, renderer },
    forGrpo: { policy, rollouter, optimizer },
    [Symbol.dispose]: dispose,
  }
}

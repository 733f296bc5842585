// Prints what the build of this process's conditions answers to one set of questions: ids, texts, masks, losses, draws.

import { readFileSync } from 'node:fs'
import * as main from 'fulmar'
import * as chat from 'fulmar/chat'
import * as objective from 'fulmar/objective'
import { extractBoxed } from 'fulmar/reward'
import * as tokenizer from 'fulmar/tokenizer'

const fulmar = { ...main, ...chat, ...objective, ...tokenizer }

const {
  createRenderer,
  drawToken,
  GRPOLoss,
  groupAdvantage,
  HfTokenizer,
  Ledger,
  Rng,
  tokenMasks,
  trainByteBpe,
} = fulmar
const golden = (path) => new URL(`../../../tests/golden/${path}`, import.meta.url)
const TEXTS = ['the quick brown fox', 'naïve 🐈 日本語\n\t  12345', '<|im_start|>user\nhi<|im_end|>']
const MESSAGES = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'What is 17 + 25? é' },
  { role: 'assistant', content: 'It is 42.', reasoning_content: 'Add them.' },
  { role: 'user', content: 'And twice that?' },
]
/** Every family; its markers, which errors name, are added below. */
const FAMILIES =
  'chatml qwen2_5 qwen3 qwen3_5 qwen3_6 llama3 glm4_5 gpt_oss kimi_k2 minimax_m2 deepseek_v3 deepseek_r1'.split(
    ' ',
  )

const attempt = (run) => {
  try {
    return run()
  } catch ({ code, message }) {
    return { code, message }
  }
}

function tokenizers() {
  return ['qwen2', 'smollm2', 'split_regex'].map((name) => {
    const tokenizer = HfTokenizer.fromJson(readFileSync(golden(`tokenizer/${name}/tokenizer.json`), 'utf8'))
    return TEXTS.map((text) => {
      const { ids, offsets } = tokenizer.encode(text, { addedTokens: true })
      return [[...ids], [...offsets], tokenizer.decode(ids)]
    })
  })
}

/** A byte-level tokenizer with the markers that the family asks for, one by one. */
function tokenizerFor(name) {
  const specialTokens = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
  for (;;) {
    const tokenizer = trainByteBpe(TEXTS, { vocabSize: 256 + specialTokens.length, specialTokens })
    const made = attempt(() => createRenderer(tokenizer, { name }))
    const [, marker] = /^tokenizer must have "(.+)" as a special token/.exec(made.message ?? '') ?? []
    if (marker === undefined) return made
    specialTokens.push(marker)
  }
}

function renderings() {
  return FAMILIES.map((name) =>
    attempt(() => {
      const renderer = tokenizerFor(name)
      const rendered = renderer.render(MESSAGES, { addGenerationPrompt: true })
      const { assistant } = tokenMasks(rendered, renderer.stopIds, { preset: 'trl' })
      return [[...rendered.ids], [...rendered.origins], [...rendered.messageIndices], [...assistant]]
    }),
  )
}

function numbers() {
  const { advantage } = groupAdvantage({ rewards: [1, 0, 0.5, 0], groupSize: 4 })
  const logProb = Float32Array.of(-0.5, -1.25, -0.125, -2)
  const { loss, gradLogProb } = new GRPOLoss({ clipEpsilon: [0.2, 0.28] }).forward({
    logProb,
    oldLogProb: Float32Array.of(-0.75, -1, -0.25, -1.5),
    advantage,
    mask: Uint8Array.of(1, 1, 1, 1),
    offsets: Uint32Array.of(0, 1, 2, 3, 4),
  })
  const logits = Float32Array.from({ length: 64 }, (_, index) => Math.sin(index))
  const draws = Array.from({ length: 8 }, (_, index) =>
    drawToken({ logits, seed: 7, drawIndex: index, temperature: 0.7, topP: 0.9 }),
  )
  return {
    words: [...Rng.fromSeed(7).permutation(20)],
    advantage: [...advantage],
    loss,
    gradLogProb: [...gradLogProb],
    draws,
  }
}

function ledger() {
  const kept = new Ledger()
  kept.recordTurn({
    promptIds: Uint32Array.of(1, 2, 3),
    completionIds: Uint32Array.of(4, 5),
    logProbs: Float32Array.of(-1, -2),
    sampledLogProbs: Float32Array.of(-1, -2),
    policyVersion: 3,
  })
  return kept.samples().map((sample) => [[...sample.ids], [...sample.mask]])
}

const other = attempt(
  () => HfTokenizer.fromJson(readFileSync(golden('tokenizer/unigram/tokenizer.json'), 'utf8')).vocabSize,
)
const absent = await import('fulmar/testing').then(
  () => 'there',
  ({ code, name }) => ({ code, name }),
)
const answers = {
  tokenizers: tokenizers(),
  renderings: renderings(),
  numbers: attempt(numbers),
  ledger: attempt(ledger),
  rewards: attempt(() => extractBoxed('So \\boxed{42}.')),
}
process.stdout.write(
  JSON.stringify({ answers, other, absent, main: Object.keys(main), names: Object.keys(fulmar) }),
)

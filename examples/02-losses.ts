/**
 * One group of answers, from rewards to the gradient of a loss: what each normalisation, clip and KL penalty does to
 * the same tokens, the supervised loss, and tokens drawn from the logits that a gradient moved.
 *
 * Run it with `npm run build && node scripts/examples.mjs native`.
 */

import assert from 'node:assert/strict'
import {
  drawProbabilities,
  drawToken,
  GRPOLoss,
  type GRPOLossOptions,
  groupAdvantage,
  klEstimate,
  type LossBatch,
  SFTLoss,
} from 'fulmar/objective'

const smoke = process.argv.includes('--smoke')

// Four answers to one question: the third one is right, the last one could not be scored.
const { advantage } = groupAdvantage({ rewards: [0, 0.1, 1, null], groupSize: 4 })
console.log(`advantages: ${[...advantage].map((value) => value.toFixed(3)).join('  ')}`)
assert.equal(advantage[3], 0)

// Their tokens, one answer after another: 4, 2, 3 and 1 of them. The first token of each is the prompt's.
const batch: LossBatch = {
  logProb: Float32Array.of(0, -0.7, -1.2, -0.4, 0, -0.9, 0, -1.5, -0.3, 0),
  oldLogProb: Float32Array.of(0, -0.9, -1.0, -0.4, 0, -0.5, 0, -2.2, -0.3, 0),
  refLogProb: Float32Array.of(0, -1.0, -1.0, -0.5, 0, -0.6, 0, -2.0, -0.4, 0),
  advantage,
  mask: Uint8Array.of(0, 1, 1, 1, 0, 1, 0, 1, 1, 0),
  offsets: Uint32Array.of(0, 4, 6, 9, 10),
}

const losses: Record<string, GRPOLossOptions> = {
  'token mean': {},
  'sequence mean': { normalization: 'sequenceMean' },
  'fixed length 8': { normalization: { fixedLength: 8 } },
  'clip higher': { clipEpsilon: [0.2, 1.2] },
  'KL to reference': { klToRef: { coefficient: 0.5 } },
  'KL mask': { klMaskThreshold: 0.05 },
}

console.log(
  `\n${'loss'.padEnd(16)} ${['value', 'clipped', 'KL ref', 'tokens'].map(column).join(' ')}  |gradient|`,
)
for (const [name, options] of Object.entries(losses)) {
  const { loss, metrics, gradLogProb } = new GRPOLoss(options).forward(batch)
  const norm = Math.hypot(...gradLogProb)
  const numbers = [loss, metrics.clipFraction, metrics.klToRef, metrics.numTokens].map(column)
  console.log(`${name.padEnd(16)} ${numbers.join(' ')}  ${norm.toFixed(4)}`)
  assert.ok(Number.isFinite(loss))
}

// Two halves of an optimiser step add up to the whole one, when both divide by the tokens of the step.
const whole = new GRPOLoss().forward(batch)
const step = new GRPOLoss({ normalization: { globalTokens: whole.metrics.numTokens ?? 0 } })
const halves = [step.forward(sequences(0, 2)), step.forward(sequences(2, 4))]
const sum = halves.reduce((total, { loss }) => total + loss, 0)
console.log(`\none batch ${whole.loss.toFixed(6)}, two micro-batches ${sum.toFixed(6)}`)
assert.ok(Math.abs(whole.loss - sum) < 1e-12)

// The older policy drew the tokens, so it is the one that the estimate is taken under.
const { mean, numTokens } = klEstimate({
  logProb: batch.oldLogProb,
  refLogProb: batch.logProb,
  mask: batch.mask,
})
console.log(`KL from the policy that drew the tokens: ${mean.toFixed(4)} over ${numTokens} tokens`)

// The right answer alone as a worked example.
const { logProb, mask, offsets } = sequences(2, 3)
const sft = new SFTLoss().forward({ logProb, mask, offsets })
console.log(`supervised loss of the right answer: ${sft.loss.toFixed(3)}`)

// Gradient descent on four logits: the loss says how the log-probability of token 2 should move, and softmax's own
// derivative, 1 at the token less the probabilities, carries it on.
const logits = Float32Array.of(1, 0.5, 0, -0.5)
const before = drawProbabilities({ logits })[2] ?? 0
for (let round = 0; round < (smoke ? 5 : 50); round++) {
  const probabilities = drawProbabilities({ logits })
  const tokenLogProb = Float32Array.of(Math.log(probabilities[2] ?? 0))
  const { gradLogProb } = new GRPOLoss().forward({
    logProb: tokenLogProb,
    oldLogProb: tokenLogProb,
    advantage: Float32Array.of(1),
    mask: Uint8Array.of(1),
    offsets: Uint32Array.of(0, 1),
  })
  for (const [id, probability] of probabilities.entries()) {
    logits[id] = (logits[id] ?? 0) - 0.5 * (gradLogProb[0] ?? 0) * (Number(id === 2) - probability)
  }
}
const after = drawProbabilities({ logits })[2] ?? 0
const drawn = Array.from({ length: 12 }, (_, drawIndex) => drawToken({ logits, seed: 42, drawIndex }).id)
console.log(
  `token 2: probability ${before.toFixed(3)} before, ${after.toFixed(3)} after; drawn ${drawn.join(' ')}`,
)
assert.ok(after > before)

/** The sequences `from..to` of the batch, as a batch of their own. */
function sequences(from: number, to: number): LossBatch {
  const bounds = batch.offsets.subarray(from, to + 1)
  const [start = 0, end = 0] = [bounds[0], bounds.at(-1)]
  return {
    logProb: batch.logProb.subarray(start, end),
    oldLogProb: batch.oldLogProb.subarray(start, end),
    advantage: batch.advantage.subarray(from, to),
    mask: batch.mask.subarray(start, end),
    offsets: bounds.map((bound) => bound - start),
  }
}

function column(value: string | number = 0): string {
  return (typeof value === 'number' ? value.toFixed(3) : value).padStart(8)
}

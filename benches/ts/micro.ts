/** Small calls of the library, alone: how long one takes, so that a change that makes it slower is seen. */

import { CharTokenizer, createRenderer, Ledger, type Message, Rng } from 'fulmar'
import { drawToken, GRPOLoss, groupAdvantage } from 'fulmar/objective'
import { Bench } from 'tinybench'
import { hand, quantile } from './measure.js'

const NUM_MESSAGES = 40
const NUM_SEQUENCES = 128
const SEQUENCE_TOKENS = 64
const VOCAB = 151_936
const NUM_REWARDS = 8192
/** The time for which each call is repeated. */
const TIME_MS = 500

using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
using rng = Rng.fromSeed(1)

const conversation: Message[] = Array.from({ length: NUM_MESSAGES }, (_, index) => ({
  role: index % 2 === 0 ? 'user' : 'assistant',
  content:
    `Message number ${index} of this conversation says what was said before, and a little more. `.repeat(4),
}))
const numRendered = renderer.render(conversation).ids.length

const peaked = Float32Array.from({ length: VOCAB }, () => 2.5 * rng.normal())
const flat = Float32Array.from({ length: VOCAB }, () => 0.01 * rng.normal())

const numTokens = NUM_SEQUENCES * SEQUENCE_TOKENS
const logProb = Float32Array.from({ length: numTokens }, () => -3 * rng.uniform())
const oldLogProb = logProb.map((value) => value + 0.1 * rng.normal())
const advantage = Float32Array.from({ length: NUM_SEQUENCES }, () => rng.normal())
const mask = Uint8Array.from({ length: numTokens }, (_, token) => Number(token % SEQUENCE_TOKENS >= 32))
const offsets = Uint32Array.from({ length: NUM_SEQUENCES + 1 }, (_, row) => row * SEQUENCE_TOKENS)
const loss = new GRPOLoss()
const rewards = Float64Array.from({ length: NUM_REWARDS }, () => rng.uniform())

const promptIds = Uint32Array.from({ length: 41 }, (_, index) => index)
const completionIds = Uint32Array.from({ length: 32 }, (_, index) => 90 - index)
const sampled = logProb.subarray(0, 32)

let drawIndex = 0
const bench = new Bench({ time: TIME_MS, warmupTime: 100, retainSamples: true })
bench
  .add(`render, ${NUM_MESSAGES} messages, ${numRendered} tokens`, () => renderer.render(conversation))
  .add('ledger: new, one turn of 41 + 32 tokens, its sample', () => {
    using ledger = new Ledger()
    const columns = { promptIds, completionIds, logProbs: sampled, sampledLogProbs: sampled }
    ledger.recordTurn({ ...columns, policyVersion: 1 })
    ledger.trainingSamples(0.5)
  })
  .add(`GRPO loss and gradient, ${numTokens} tokens`, () =>
    loss.forward({ logProb, oldLogProb, advantage, mask, offsets }),
  )
  .add(`group advantage, ${NUM_REWARDS} rewards`, () => groupAdvantage({ rewards, groupSize: 8 }))
  .add(`draw, V = ${VOCAB}, temperature 1`, () => draw(peaked, {}))
  .add(`draw, V = ${VOCAB}, top-p 0.9`, () => draw(peaked, { topP: 0.9 }))
  .add(`draw, V = ${VOCAB}, top-k 50 and top-p 0.9`, () => draw(peaked, { topK: 50, topP: 0.9 }))
  .add(`draw, V = ${VOCAB}, flat logits, top-p 0.9`, () => draw(flat, { topP: 0.9 }))
await bench.run()

hand({
  setting: { timeMsPerCall: TIME_MS, threads: 1 },
  checks: [],
  figures: bench.tasks.map(({ name, result }) => {
    if (result.state !== 'completed') throw new Error(`${name} must run: got ${result.state}`)
    const samples = result.latency.samples ?? []
    // A hundred points keep the shape of the distribution and the record small.
    const ours = Array.from({ length: 101 }, (_, percent) => 1000 * quantile(samples, percent / 100))
    return { work: name, unit: 'us', ours }
  }),
  notes: ['wall time on a machine that may do other work too; no rival is run beside these'],
  versions: {},
})

function draw(logits: Float32Array, cut: { readonly topK?: number; readonly topP?: number }): void {
  drawToken({ logits, seed: 7, drawIndex: drawIndex++, ...cut })
}

/**
 * Runs many calls on the backend of this process and writes what they gave, a JSON object a line: `name`, `type` of the values, `base64`
 * of their bytes. scripts/backends.mjs starts it once for each backend and says how near the answers must be.
 *
 * Names begin with what is compared: `exact` for ids, masks, indices, plans and draws, `ulps` for losses, advantages and estimates,
 * `model` for what goes through matrix products.
 */

import { readFileSync } from 'node:fs'
import { CharTokenizer, createRenderer, Rng, Tensor } from 'fulmar'
import { AdamW, Decoder, generate, pack } from 'fulmar/model'
import {
  BradleyTerryLoss,
  DistillationLoss,
  DPOLoss,
  drawProbabilities,
  drawToken,
  GRPOLoss,
  groupAdvantage,
  importanceWeights,
  KTOLoss,
  klEstimate,
  SFTLoss,
  tokenLogProbs,
  tokenLogProbsBackward,
} from 'fulmar/objective'
import { generalizedAdvantageEstimate, tdLambdaReturnEstimate, vtraceAdvantageEstimate } from 'fulmar/returns'

const ROUNDS = 40
const PRESETS = [
  'grpo',
  'bnpo',
  'dapo',
  'gspo',
  'gspoToken',
  'cispo',
  'sapo',
  'luspo',
  'vespo',
  'gmpo',
  'rloo',
]
const TYPES = [
  'sigmoid',
  'hinge',
  'ipo',
  'exoPair',
  'ncaPair',
  'robust',
  'bcoPair',
  'sppoHard',
  'aot',
  'aotUnpaired',
]
const MORE_TYPES = ['apoZero', 'apoDown', 'discopop', 'sft', 'sigmoidNorm']

const rng = Rng.fromSeed(11)
const normals = (length, scale) => Float32Array.from({ length }, () => scale * rng.normal())

/** Sequences of 1 to 40 tokens; each trains its last one at least. */
function layout(numSequences) {
  const offsets = new Uint32Array(numSequences + 1)
  for (let s = 0; s < numSequences; s++) offsets[s + 1] = offsets[s] + 1 + rng.below(40)
  const mask = Uint8Array.from({ length: offsets[numSequences] }, () => Number(rng.uniform() < 0.6))
  for (let s = 0; s < numSequences; s++) mask[offsets[s + 1] - 1] = 1
  return { offsets, mask, numTokens: mask.length }
}

function tell(name, values) {
  const array = ArrayBuffer.isView(values) ? values : Float64Array.from(values)
  const bytes = Buffer.from(array.buffer, array.byteOffset, array.byteLength)
  const line = { name, type: array.constructor.name, base64: bytes.toString('base64') }
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

const tellLoss = (name, { loss, metrics, gradLogProb }) => {
  tell(`ulps ${name} loss`, [loss])
  tell(`ulps ${name} metrics`, Object.values(metrics))
  tell(`ulps ${name} gradient`, gradLogProb)
}

for (let round = 0; round < ROUNDS; round++) {
  const numSequences = 2 * (1 + rng.below(6))
  const { offsets, mask, numTokens } = layout(numSequences)
  const logProb = normals(numTokens, 1).map((x) => -Math.abs(x))
  const near = (scale) => logProb.map((x) => Math.min(0, x + scale * rng.normal()))
  const [oldLogProb, samplerLogProb, refLogProb] = [near(0.2), near(0.3), near(0.5)]
  const advantage = normals(numSequences, 1)
  const batch = { logProb, oldLogProb, samplerLogProb, refLogProb, advantage, mask, offsets }
  const klToRef = { coefficient: 0.04 }
  for (const preset of PRESETS)
    tellLoss(`${round} ${preset}`, new GRPOLoss({ preset, klToRef }).forward(batch))
  for (const type of [...TYPES, ...MORE_TYPES]) {
    const labelSmoothing = ['exoPair', 'robust', 'aot'].includes(type) ? 0.1 : 0
    const loss = new DPOLoss({ lossWeights: { [type]: 1 }, labelSmoothing })
    tellLoss(`${round} ${type}`, loss.forward({ logProb, refLogProb, mask, offsets }))
  }
  const desirable = Uint8Array.from({ length: numSequences }, (_, s) => s % 2)
  const klLogRatio = normals(numSequences, 1)
  tellLoss(
    `${round} kto`,
    new KTOLoss().forward({ logProb, refLogProb, desirable, klLogRatio, mask, offsets }),
  )
  tellLoss(`${round} examples`, new SFTLoss().forward({ logProb, mask, offsets }))
  tellLoss(
    `${round} distillation`,
    new DistillationLoss().forward({ logProb, teacherLogProb: refLogProb, mask, offsets }),
  )
  const pairs = { chosen: normals(9, 1), rejected: normals(9, 1) }
  const { loss, gradChosen, gradRejected } = new BradleyTerryLoss().forward(pairs)
  tell(`ulps ${round} reward loss`, [loss])
  tell(`ulps ${round} reward gradients`, [...gradChosen, ...gradRejected])
  tell(`ulps ${round} kl`, klEstimate({ logProb, refLogProb, mask }).kl)
  tell(`ulps ${round} weights`, importanceWeights({ oldLogProb, samplerLogProb, mask, offsets }))
  const rewards = Float64Array.from({ length: 24 }, () => rng.below(3))
  const { advantage: found, std, degenerate } = groupAdvantage({ rewards, groupSize: 4 })
  tell(`ulps ${round} advantage`, found)
  tell(`ulps ${round} std`, std)
  tell(`exact ${round} degenerate`, degenerate.map(Number))
}

for (let round = 0; round < ROUNDS; round++) {
  const shape = [1 + rng.below(5), 1 + rng.below(60), 1]
  const size = shape[0] * shape[1]
  const column = (scale) => Tensor.from(normals(size, scale), { shape })
  const done = Tensor.from(
    Uint8Array.from({ length: size }, () => Number(rng.uniform() < 0.1)),
    { shape, dtype: 'bool' },
  )
  const steps = { reward: column(1), nextValue: column(1), done, gamma: 0.99 }
  const value = column(1)
  const gae = generalizedAdvantageEstimate({ ...steps, value, lambda: 0.95 })
  tell(`ulps ${round} gae`, gae.advantage.data)
  tell(`ulps ${round} tdLambda`, tdLambdaReturnEstimate({ ...steps, lambda: 0.95 }).data)
  const vtrace = vtraceAdvantageEstimate({ ...steps, value, logPi: column(0.3), logMu: column(0.3) })
  tell(`ulps ${round} vtrace`, vtrace.advantage.data)

  const [rows, vocabulary] = [1 + rng.below(4), 2 + rng.below(9000)]
  const logits = normals(rows * vocabulary, 3)
  const ids = Uint32Array.from({ length: rows }, () => rng.below(vocabulary))
  const { logProb, entropy } = tokenLogProbs({ logits, ids, temperature: 0.8 })
  tell(`ulps ${round} logProb`, logProb)
  tell(`ulps ${round} entropy`, entropy)
  tell(`ulps ${round} gradient`, tokenLogProbsBackward({ logits, ids, gradLogProb: logProb }))

  const row = logits.subarray(0, vocabulary)
  for (const rule of [
    {},
    { temperature: 0.6 },
    { topK: 7 },
    { topP: 0.8 },
    { minP: 0.05 },
    { typicalP: 0.7 },
  ]) {
    const name = Object.keys(rule).join() || 'plain'
    const draws = Array.from({ length: 8 }, (_, drawIndex) =>
      drawToken({ logits: row, seed: round, drawIndex, ...rule }),
    )
    tell(
      `exact ${round} draws ${name}`,
      draws.map(({ id }) => id),
    )
    tell(
      `ulps ${round} drawn ${name}`,
      Float32Array.from(draws.flatMap((draw) => [draw.logProb, draw.sampledLogProb])),
    )
    tell(
      `exact ${round} kept ${name}`,
      drawProbabilities({ logits: row, ...rule }).map((p) => Number(p > 0)),
    )
  }

  const lengths = Uint32Array.from({ length: 200 }, () => 1 + rng.below(100))
  for (const strategy of ['bestFit', 'firstFit']) {
    const { items, offsets } = pack(lengths, { capacity: 128, strategy })
    tell(`exact ${round} ${strategy} items`, items)
    tell(`exact ${round} ${strategy} rows`, offsets)
  }
}

const tokenizer = new CharTokenizer()
const renderer = createRenderer(tokenizer, { name: 'chatml' })
const rendered = renderer.render([
  { role: 'user', content: 'What is 2 + 2?' },
  { role: 'assistant', content: '4' },
])
tell('exact ids', rendered.ids)
tell('exact messages', rendered.messageIndices)
tell('exact mask', rendered.sampledMask)

const folder = new URL('../golden/model/qwen3_tied/', import.meta.url)
const read = (name) => readFileSync(new URL(name, folder))
const decoder = Decoder.fromSafetensors(JSON.parse(read('config.json')), read('model.safetensors'))
const sequence = Uint32Array.from({ length: 40 }, () => rng.below(decoder.config.vocab_size))
const offsets = Uint32Array.of(0, 17, 40)
const mask = Uint8Array.from(sequence, (_, at) => Number(at !== 0 && at !== 17))
const scored = await decoder.forward({ ids: sequence, offsets, mask })
tell('model log-probs', scored.logProb)
await decoder.backward(scored.logProb.map(() => -1))
const optimizer = new AdamW(decoder, { learningRate: 1e-3 })
await optimizer.step()
tell('model weights', await weights())
const prompts = [
  { ids: sequence.slice(0, 9), seed: 3 },
  { ids: sequence.slice(9, 14), seed: 4 },
]
const generated = await generate(decoder, prompts, { maxTokens: 12, stopIds: [] })
for (const [index, { ids }] of generated.entries()) tell(`exact generated ${index}`, ids)

const halves = Decoder.fromSafetensors(decoder.config, read('model.safetensors'), { dtype: 'bf16' })
tell('exact weights in bf16', await halves.toSafetensors())
tell('model log-probs in bf16', (await halves.score({ ids: sequence, offsets, mask })).logProb)
const drawn = await generate(halves, prompts, { maxTokens: 12, stopIds: [] })
for (const [index, { ids }] of drawn.entries()) tell(`exact generated in bf16 ${index}`, ids)

/** All floats of the saved file, behind its header. */
async function weights() {
  const file = await decoder.toSafetensors()
  const start = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true))
  return new Float32Array(file.slice(start).buffer)
}

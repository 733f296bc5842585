/**
 * RLHF from the data sets to the policy, as on Reddit's TL;DR (N. Stiennon and others, https://arxiv.org/abs/2009.01325), on a small set of its
 * form: 800 prompts whose subreddit decides the label, and 800 pairs of which the better one has more words such as "clear" and fewer such as
 * "vague". Three steps: supervised training until the model writes the label, a reward model of the pairs, and rollouts of the
 * policy with the reward at their end and a penalty for leaving the supervised model, whose factor is adapted to a target divergence.
 *
 *     npm run build && node scripts/examples.mjs native
 *     node build/examples/13-tldr.js
 */

import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AdamW, Decoder, DecoderPolicy, describeBuild, GRPOLoss, HfTokenizer, Rng } from 'fulmar'
import { AdaptiveKLController, BradleyTerryLoss } from 'fulmar/objective'
import { fromParquet } from 'fulmar/table'
import type { TensorDict } from 'fulmar/tensor'
import {
  PairwiseDataset,
  PromptData,
  PromptTensorDictTokenizer,
  preTokenizationHook,
  RewardData,
  RolloutFromModel,
  TensorDictTokenizer,
} from 'fulmar/torchrl'

const smoke = process.argv.includes('--smoke')
const NUM_UPDATES = smoke
  ? { supervised: 110, reward: 60, policy: 4 }
  : { supervised: 250, reward: 200, policy: 120 }
const BATCH = 32
const NUM_SUMMARIES = 8
const END_ID = 0
const MAX_NEW_TOKENS = 32
const TARGET_KL = 0.15
const DATA = 'examples/data/tldr'
const startMs = performance.now()

const rootDir = await mkdtemp(join(tmpdir(), 'fulmar-'))
using tokenizer = await openTokenizer()
const [prompts, heldOut] = [await openPrompts('train'), await openPrompts('valid')]
const [pairs, heldOutPairs] = [await openPairs('train'), await openPairs('valid')]
await rm(rootDir, { recursive: true })
say(`${prompts.batchSize[0]} prompts and ${pairs.batchSize[0]} pairs, ${tokenizer.vocabSize} tokens`)

using rng = Rng.fromSeed(1)
const shape = {
  model_type: 'llama',
  vocab_size: tokenizer.vocabSize,
  hidden_size: 64,
  intermediate_size: 192,
  num_hidden_layers: 2,
  num_attention_heads: 4,
} as const
using decoder = Decoder.fromSeed(shape, { seed: 1 })
const policy = new DecoderPolicy(decoder)
const labelled = await trainSupervised()

using judge = await decoder.withScalarHead('score', { seed: 2 })
const ranked = await trainReward()

using reference = await decoder.snapshot()
const { first, last } = await trainPolicy()
say('done')

assert.ok(labelled >= (smoke ? 0.3 : 0.98), `the supervised model must write the label: ${labelled}`)
assert.ok(ranked >= (smoke ? 0.7 : 0.9), `the reward model must rank the pairs: ${ranked}`)
if (!smoke) {
  assert.ok(last.reward > first.reward + 0.8, `the reward must rise: ${first.reward} to ${last.reward}`)
  assert.ok(
    last.kl > TARGET_KL / 2 && last.kl < 2 * TARGET_KL,
    `the divergence must be near its target: ${last.kl}`,
  )
}

/** Trains the labels behind their prompts, and the language of the summaries of pairs; returns the share of labels that are written. */
async function trainSupervised(): Promise<number> {
  using optimizer = new AdamW(decoder, { learningRate: 3e-3 })
  const examples = rowsOf(prompts).map(({ ids, end }) => ({
    ids: Uint32Array.of(...ids, END_ID),
    start: end,
  }))
  const summaries = [pairs.chosen_data, pairs.rejected_data].flatMap((texts) => textsOf(texts))
  for (let update = 1; update <= NUM_UPDATES.supervised; update += 1) {
    const rows = [
      ...drawn(BATCH - NUM_SUMMARIES).map((at) => examples[at % examples.length]),
      ...drawn(NUM_SUMMARIES).map((at) => ({
        ids: summaries[at % summaries.length] ?? new Uint32Array(),
        start: 1,
      })),
    ].filter((row) => row !== undefined)
    const batch = batchOf(rows)
    const numTrained = batch.mask.reduce((sum, one) => sum + one, 0)
    const { logProb } = await decoder.forward(batch)
    await decoder.backward(Float32Array.from(batch.mask, (isTrained) => -isTrained / numTrained))
    await optimizer.step({ maxGradNorm: 1, learningRate: 3e-3 * warm(update, NUM_UPDATES.supervised) })
    const loss = -logProb.reduce((sum, value, at) => sum + value * (batch.mask[at] ?? 0), 0) / numTrained
    if (update % 50 === 0) say(`supervised ${update}: loss ${loss.toFixed(3)}`)
  }
  const wanted = rowsOf(heldOut)
  const right = await Promise.all(
    wanted.map(async ({ ids, end }, row) => {
      // `prompt_rindex` is the last token of the prompt.
      const request = { requestId: `label-${row}`, promptIds: ids.slice(0, end + 1), seed: 0, temperature: 0 }
      const answer = await policy.generate({ ...request, maxTokens: 24, stopIds: [END_ID] })
      return (
        tokenizer.decode(answer.ids.filter((id) => id !== END_ID)) === tokenizer.decode(ids.slice(end + 1))
      )
    }),
  )
  const share = right.filter(Boolean).length / wanted.length
  say(`${(100 * share).toFixed(0)} % of ${wanted.length} held-out labels are written, greedily`)
  return share
}

/** Trains the reward of the better text above that of the other; returns the share of held-out pairs that are ranked so. */
async function trainReward(): Promise<number> {
  using optimizer = new AdamW(judge, { learningRate: 1e-3 })
  const objective = new BradleyTerryLoss({ centerCoefficient: 0.01 })
  const [better, worse] = [textsOf(pairs.chosen_data), textsOf(pairs.rejected_data)]
  for (let update = 1; update <= NUM_UPDATES.reward; update += 1) {
    const rows = drawn(BATCH).map((at) => at % better.length)
    const texts = [better, worse].flatMap((all) => rows.map((row) => all[row] ?? new Uint32Array()))
    const batch = lastOf(texts)
    const values = await judge.forwardValues(batch)
    const rewards = texts.map((_, row) => values[(batch.offsets[row + 1] ?? 0) - 1] ?? 0)
    const { loss, metrics, gradChosen, gradRejected } = objective.forward({
      chosen: Float32Array.from(rewards.slice(0, BATCH)),
      rejected: Float32Array.from(rewards.slice(BATCH)),
    })
    const gradient = new Float32Array(values.length)
    const grads = [...gradChosen, ...gradRejected]
    for (const [row, one] of grads.entries()) gradient[(batch.offsets[row + 1] ?? 0) - 1] = one
    await judge.backwardValues(gradient)
    await optimizer.step({ maxGradNorm: 1, learningRate: 1e-3 * warm(update, NUM_UPDATES.reward) })
    if (update % 50 === 0) say(`reward ${update}: loss ${loss.toFixed(3)}, accuracy ${metrics.accuracy}`)
  }
  const [high, low] = [heldOutPairs.chosen_data, heldOutPairs.rejected_data].map((texts) => textsOf(texts))
  const scores = await Promise.all([rewardsOf(high ?? []), rewardsOf(low ?? [])])
  const numRight = scores[0].filter((reward, pair) => reward > (scores[1][pair] ?? 0)).length
  const share = numRight / scores[0].length
  say(`${(100 * share).toFixed(1)} % of ${scores[0].length} held-out pairs are ranked right`)
  return share
}

/** Rollouts and updates of the policy; returns the mean reward and divergence of the first five and the last twenty. */
async function trainPolicy() {
  using optimizer = new AdamW(decoder, { learningRate: 5e-4 })
  using klScheduler = new AdaptiveKLController({ initKlCoef: 0.2, target: TARGET_KL, horizon: 4 })
  const rollouts = new RolloutFromModel({
    ...{ model: policy, refModel: new DecoderPolicy(reference), rewardModel: rewardsOf, klScheduler },
    ...{ maxNewTokens: MAX_NEW_TOKENS, endId: END_ID, seed: 3 },
  })
  const objective = new GRPOLoss()
  const history: { readonly reward: number; readonly kl: number }[] = []
  for (let update = 1; update <= NUM_UPDATES.policy; update += 1) {
    const rows = drawn(BATCH).map((at) => at % (prompts.batchSize[0] ?? 1))
    const steps = await rollouts.rolloutFromData(prompts.map((dict) => dict.indexSelect(rows)))
    const raw = steps.tensor(['next', 'reward_raw']).toFloat32()
    const reward = raw.reduce((sum, one) => sum + one, 0) / BATCH
    history.push({ reward, kl: rollouts.klQueue.at(-1) ?? 0 })
    const coefficient = rollouts.stepScheduler()
    const { batch, advantage } = answersOf(steps)
    const { logProb } = await decoder.forward(batch)
    const { mask, offsets } = batch
    const { gradLogProb } = objective.forward({ mask, offsets, advantage, logProb, oldLogProb: logProb })
    await decoder.backward(gradLogProb)
    await optimizer.step({ maxGradNorm: 1 })
    if (update % 10 === 0 || smoke) {
      const { kl } = history.at(-1) ?? { kl: 0 }
      say(
        `policy ${update}: reward ${reward.toFixed(2)}, divergence ${kl.toFixed(3)}, factor ${coefficient.toFixed(3)}`,
      )
    }
  }
  const mean = (part: typeof history, name: 'reward' | 'kl') =>
    part.reduce((sum, one) => sum + one[name], 0) / part.length
  const [begun, ended] = [history.slice(0, 5), history.slice(-20)]
  const [first, last] = [begun, ended].map((part) => ({ reward: mean(part, 'reward'), kl: mean(part, 'kl') }))
  say(
    `mean reward ${first?.reward.toFixed(2)} at first, ${last?.reward.toFixed(2)} at last; divergence ${last?.kl.toFixed(3)} of ${TARGET_KL} nats a token`,
  )
  return { first: first ?? { reward: 0, kl: 0 }, last: last ?? { reward: 0, kl: 0 } }
}

/** The answers of rollouts as sequences; the advantage of a token is the reward from it on, less the mean of the batch. */
function answersOf(steps: TensorDict) {
  const [numRows = 0, numSteps = 0, width = 0] = steps.tensor('input_ids').shape
  const ids = steps.tensor(['next', 'input_ids']).data
  const mask = steps.tensor('attention_mask').data
  const reward = steps.tensor(['next', 'reward']).toFloat32()
  const done = Array.from(steps.tensor(['next', 'done']).data, Number)
  const rows = Array.from({ length: numRows }, (_, row) => {
    const at = row * numSteps
    const numDrawn = done.slice(at, at + numSteps).indexOf(1) + 1
    const start = mask.slice(at * width, (at + 1) * width).filter((one) => one === 1).length
    const last = at + numDrawn - 1
    const whole = Uint32Array.from(ids.slice(last * width, last * width + start + numDrawn), Number)
    const returns = new Float32Array(numDrawn)
    for (let step = numDrawn - 1; step >= 0; step -= 1)
      returns[step] = (reward[at + step] ?? 0) + (returns[step + 1] ?? 0)
    return { ids: whole, start, returns }
  })
  const all = rows.flatMap(({ returns }) => [...returns])
  const mean = all.reduce((sum, one) => sum + one, 0) / all.length
  const deviation = Math.sqrt(all.reduce((sum, one) => sum + (one - mean) ** 2, 0) / all.length) + 1e-3
  const advantage = rows.flatMap(({ start, returns }) => [
    ...new Array<number>(start).fill(0),
    ...Array.from(returns, (one) => (one - mean) / deviation),
  ])
  return { batch: batchOf(rows), advantage: Float32Array.from(advantage) }
}

/** Sequences one behind the other; the tokens from `start` on are trained. */
function batchOf(rows: readonly { readonly ids: Uint32Array; readonly start: number }[]) {
  const offsets = new Uint32Array(rows.length + 1)
  for (const [row, { ids }] of rows.entries()) offsets[row + 1] = (offsets[row] ?? 0) + ids.length
  const ids = Uint32Array.from(rows.flatMap((row) => [...row.ids]))
  const mask = Uint8Array.from(rows.flatMap((row) => Array.from(row.ids, (_, at) => Number(at >= row.start))))
  return { ids, offsets, mask }
}

/** The same with the last token of each marked. */
function lastOf(texts: readonly Uint32Array[]) {
  return batchOf(texts.map((ids) => ({ ids, start: ids.length - 1 })))
}

async function rewardsOf(texts: readonly Uint32Array[]): Promise<number[]> {
  const batch = lastOf(texts)
  const values = await judge.values(batch)
  return texts.map((_, row) => values[(batch.offsets[row + 1] ?? 0) - 1] ?? 0)
}

/** Rows of prompts with their labels, and where the prompts end. */
function rowsOf(data: PromptData) {
  const ends = Array.from(data.prompt_rindex.data, Number)
  return textsOf(data).map((ids, row) => ({ ids, end: ends[row] ?? 0 }))
}

/** Texts without their padding. */
function textsOf({ input_ids, attention_mask }: PromptData | RewardData): Uint32Array[] {
  const width = input_ids.shape[1] ?? 0
  return Array.from({ length: input_ids.shape[0] ?? 0 }, (_, row) => {
    const own = (values: BigInt64Array) => values.subarray(row * width, (row + 1) * width)
    const mask = own(attention_mask.data)
    return Uint32Array.from(own(input_ids.data), Number).filter((_, at) => mask[at] === 1n)
  })
}

/** Random numbers to pick rows by. */
function drawn(count: number): number[] {
  return Array.from({ length: count }, () => rng.below(2 ** 20))
}

/** A rate that rises for ten updates and falls to a tenth. */
function warm(update: number, updates: number): number {
  return Math.min(update / 10, 1 - (0.9 * update) / updates)
}

function say(text: string): void {
  console.log(`${((performance.now() - startMs) / 1000).toFixed(1)} s: ${text}`)
}

async function openTokenizer(): Promise<HfTokenizer> {
  const [file, config] = await Promise.all(
    ['tokenizer.json', 'tokenizer_config.json'].map((name) => readFile(join(DATA, 'gpt2', name), 'utf8')),
  )
  return HfTokenizer.fromJson(file, config)
}

/** The prompts of a split, in a folder of ids; in WebAssembly, which has no files, from the bytes of the table. */
async function openPrompts(split: string): Promise<PromptData> {
  const datasetName = `${DATA}/openai_summarize_tldr`
  const [maxLength, shared] = [88, { tokenizer, value: END_ID }]
  if (describeBuild().backend === 'native')
    return await PromptData.fromDataset({ split, datasetName, maxLength, fromDisk: true, tokenizer, rootDir })
  const rows = await tableOf(datasetName, split)
  const map = new PromptTensorDictTokenizer({ ...shared, maxLength })
  const dict = map.apply({ prompt: rows.map(({ prompt }) => prompt), label: rows.map(({ label }) => label) })
  return PromptData.around(dict.exclude(['valid_sample']).withBatchSize([rows.length]))
}

/** The pairs of a split, likewise. */
async function openPairs(split: string): Promise<PairwiseDataset> {
  const datasetName = `${DATA}/openai_summarize_comparisons`
  const maxLength = 116
  if (describeBuild().backend === 'native')
    return await PairwiseDataset.fromDataset({
      split,
      datasetName,
      maxLength,
      fromDisk: true,
      tokenizer,
      rootDir,
    })
  const rows = await tableOf(datasetName, split)
  const texts: string[] = []
  const read = async function* () {
    yield* rows
  }
  for await (const { text } of preTokenizationHook(read)) texts.push(text)
  const options = { tokenizer, maxLength, value: END_ID, side: 'right', truncation: 'right' } as const
  const dict = new TensorDictTokenizer(options).apply({ text: texts })
  const half = texts.length / 2
  const [chosen_data, rejected_data] = [dict.slice(0, half), dict.slice(half)].map((part) =>
    RewardData.around(part),
  )
  if (chosen_data === undefined || rejected_data === undefined) throw new Error('no pairs')
  return PairwiseDataset.from({ chosen_data, rejected_data }, { batchSize: [half] })
}

async function tableOf(folder: string, split: string): Promise<Record<string, unknown>[]> {
  const bytes = await readFile(`${folder}/data/${split}-00000-of-00001.parquet`)
  const table = await fromParquet(new Uint8Array(bytes))
  const columns = table.keys().map((name) => [name, table.value(name)] as const)
  return Array.from({ length: table.batchSize[0] ?? 0 }, (_, row) =>
    Object.fromEntries(columns.map(([name, values]) => [name, Array.isArray(values) ? values[row] : values])),
  )
}

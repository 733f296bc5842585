/**
 * One GRPO step from prompts to new weights, against TRL's GRPOTrainer in the setting of its measured figures.
 *
 * A turn is two steps, of which the second is timed: as in a run, each follows a step of its own program and not one
 * that left the caches to somebody else.
 *
 * Ours is the recipe `grpo` as it stands: renderer, rollouter, ledger, reward, advantages, forward, loss, backward,
 * AdamW. A renderer without stop ids keeps every rollout at its full length. TRL gets the same prompts as ids, the same
 * weights, the same reward, the same loss (no KL, group-normalised advantages, mean over tokens) and learning rate.
 */

import {
  AdamW,
  CharTokenizer,
  createRenderer,
  Decoder,
  DecoderPolicy,
  describeBuild,
  GRPOLoss,
  type GrpoStep,
  grpo,
  lastCompletionText,
  listDataset,
  type Renderer,
  Rollouter,
  type Task,
  TINY_DECODER,
} from 'fulmar'
import {
  alternate,
  type Figure,
  hand,
  median,
  type Report,
  type Rounds,
  readOptions,
  type Sample,
  say,
  type Taken,
} from './measure.js'
import { installTrl, TrlProcess, type TrlSetting } from './trl.js'

const PROMPTS_PER_STEP = 4
const GROUP_SIZE = 8
const NUM_ROLLOUTS = PROMPTS_PER_STEP * GROUP_SIZE
const MAX_TOKENS = 32
const THREADS = 2
const LEARNING_RATE = 2e-4
const MAX_GRAD_NORM = 1
/** Turns that are dropped. */
const WARMUP = 2
/** The widest that two correct f32 forward passes of this size may lie apart, in nats. */
const LOG_PROB_TOLERANCE = 1e-3

const options = readOptions({ rounds: 15 })
using tokenizer = new CharTokenizer()
using chatMl = createRenderer(tokenizer, { name: 'chatml' })
using decoder = Decoder.fromSeed({ ...TINY_DECODER, vocab_size: tokenizer.vocabSize }, { seed: 1 })
using optimizer = new AdamW(decoder, { learningRate: LEARNING_RATE })
const questions = Array.from({ length: 64 }, (_, index) => `Sum of digits: [${10 + index}, ${99 - index}]`)
const renderer = endless(chatMl)

const weights = await decoder.toSafetensors()
const steps = ourSteps()
hand(await withRivals(weights))

/** Ours and every rival that there is, in turns. */
async function withRivals(exported: Uint8Array): Promise<Report> {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed) {
    const rounds = await alternate({ ours: steps.next }, { ...options, warmup: WARMUP })
    return report(rounds, [{ ...line(rounds.of('ours')), rival: { skipped: installed.skipped } }], [], {})
  }
  say('starting TRL twice, as shipped and tuned')
  const setting = trlSetting()
  using tuned = await TrlProcess.start(installed.python, 'tuned', setting, exported)
  using shipped = await TrlProcess.start(installed.python, 'shipped', setting, exported)
  await compareLogProbs(setting, shipped)
  const checks = [await compareLogProbs(setting, tuned)]
  const rewards = { tuned: [] as number[], shipped: [] as number[] }
  const trl = (rival: TrlProcess) => async () => {
    const turn = [await rival.step(), await rival.step()]
    for (const { numTokens, reward } of turn) {
      checkNumTokens('TRL', numTokens)
      rewards[rival.variant].push(reward)
    }
    const rivalCpuMs = turn.reduce((sum, { cpuMs }) => sum + cpuMs, 0)
    return { value: turn[1]?.ms ?? Number.NaN, rivalCpuMs }
  }
  say(`${options.rounds} rounds of ours, TRL tuned, TRL as shipped`)
  const contestants = { ours: steps.next, tuned: trl(tuned), shipped: trl(shipped) }
  const rounds = await alternate(contestants, { ...options, warmup: WARMUP })
  checks.push(`tokens sampled and trained in each step: ${NUM_ROLLOUTS * MAX_TOKENS} on both sides`)
  checks.push(
    `mean reward, first and last five steps: ours ${ends(steps.rewards)}, TRL ${ends(rewards.tuned)}`,
  )
  const goal = { atLeast: 3 }
  const ours = rounds.of('ours')
  const against = (variant: 'tuned' | 'shipped', name: string): Figure => {
    const { cold, warm } = rounds.of(variant)
    const rival = { name, samples: warm }
    return { ...line(ours), rival, goal, cold: { ours: ours.cold, rival: cold } }
  }
  const figures = [against('tuned', 'TRL tuned'), against('shipped', 'TRL as shipped')]
  return report(rounds, figures, checks, tuned.versions)
}

function line({ cold, warm }: Taken): Figure {
  return { work: 'GRPO step', unit: 'ms', ours: warm, cold: { ours: cold } }
}

function report(
  { kept, disturbance }: Pick<Rounds<string>, 'kept' | 'disturbance'>,
  figures: readonly Figure[],
  checks: readonly string[],
  versions: Readonly<Record<string, string>>,
): Report {
  const setting = {
    parameters: decoder.numParameters,
    rollouts: NUM_ROLLOUTS,
    groupSize: GROUP_SIZE,
    promptTokens: promptIds(questions[0] ?? '').length,
    newTokens: MAX_TOKENS,
    threads: describeBuild().threads,
    learningRate: LEARNING_RATE,
    decoder: decoder.config,
  }
  const notes = [
    disturbance,
    'ours: the recipe `grpo` on the addon, f32, with a renderer that has no stop id',
    'TRL tuned: no gradient checkpointing, no progress bar, MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000; both: f32, CPU',
  ]
  return { setting, checks, figures, profileMs: steps.profile(kept), notes, versions }
}

/** Steps of the recipe, a turn of two a call, with the time that each part of the second took. */
function ourSteps() {
  const profiles: ReadonlyMap<string, number>[] = []
  const current = new Map<string, number>()
  const policy = new DecoderPolicy(decoder)
  const loss = new GRPOLoss()
  const count = (part: string) => (ms: number) => current.set(part, (current.get(part) ?? 0) + ms)
  timeOverlapping(policy, 'generate', count('generation'))
  timeEach(decoder, 'forward', count('forward'))
  timeCall(loss, 'forward', count('loss'))
  timeEach(decoder, 'backward', count('backward'))
  timeEach(optimizer, 'step', count('optimiser'))
  const sampling = { groupSize: GROUP_SIZE, maxTokens: MAX_TOKENS, stdNormalize: true, seed: 1 }
  const rollouter = new Rollouter({ policy, task: digitsTask(), renderer, ...sampling })
  const training = { promptsPerStep: PROMPTS_PER_STEP, maxGradNorm: MAX_GRAD_NORM, steps: 1_000_000 }
  const run = grpo({ policy, rollouter, optimizer, loss, ...training })
  const rewards: number[] = []
  const step = async (): Promise<number> => {
    current.clear()
    const startMs = performance.now()
    const { value } = await run.next()
    const ms = performance.now() - startMs
    checkStep(value ?? undefined)
    rewards.push(value?.reward.mean ?? Number.NaN)
    return ms
  }
  const next = async (): Promise<Sample> => {
    await step()
    const value = await step()
    const known = [...current.values()].reduce((sum, part) => sum + part, 0)
    profiles.push(new Map([...current, ['render, ledger, reward, batch', value - known]]))
    return { value }
  }
  const profile = (kept: readonly number[]) => {
    const parts = [...(profiles[0]?.keys() ?? [])]
    return Object.fromEntries(
      parts.map((part) => [part, median(kept.map((round) => profiles[round]?.get(part) ?? 0))]),
    )
  }
  return { next, rewards, profile }
}

function checkStep(step: GrpoStep | undefined): void {
  if (!step?.update) throw new Error('every step must train: got groups with equal rewards')
  checkNumTokens('Fulmar', step.numTokens)
  const dropped = Object.keys(step.metrics).find((name) => name.includes('num_groups_dropped'))
  if (dropped) throw new Error(`every group must be trained: got ${dropped}`)
}

function checkNumTokens(who: string, numTokens: number): void {
  const wanted = NUM_ROLLOUTS * MAX_TOKENS
  if (numTokens !== wanted) throw new Error(`${who} must sample ${wanted} tokens a step: got ${numTokens}`)
}

/** Prompts of one length; the reward is the share of digits in what was said. */
function digitsTask(): Task<string> {
  return {
    name: 'digits',
    makeDataset: () => listDataset({ items: questions }),
    makeEnv: (question) => ({
      init: () => ({ initPromptMessages: [{ role: 'user', content: question }] }),
      step: () => ({ done: true }),
      close: () => {},
    }),
    rewardFns: [{ name: 'digits', score: (rollout) => shareOfDigits(lastCompletionText(rollout)) }],
    isSolved: () => false,
  }
}

function shareOfDigits(text: string): number {
  return (text.match(/\d/g)?.length ?? 0) / MAX_TOKENS
}

/** ChatML, but a rollout never stops and everything that was sampled is its text. */
function endless(inner: Renderer): Renderer {
  return {
    stopIds: [],
    prefixStability: inner.prefixStability,
    thinkingRetention: inner.thinkingRetention,
    render: (messages, renderOptions) => inner.render(messages, renderOptions),
    renderText: (messages, renderOptions) => inner.renderText(messages, renderOptions),
    bridge: (prompt, completion, messages) => inner.bridge(prompt, completion, messages),
    parse: (ids) => {
      const content = tokenizer.decode(ids)
      return {
        content,
        reasoningContent: null,
        reasoningComplete: true,
        toolCalls: [],
        finished: false,
        overran: false,
      }
    },
  }
}

function promptIds(question: string): Uint32Array {
  return renderer.render([{ role: 'user', content: question }], { addGenerationPrompt: true }).ids
}

function trlSetting(): TrlSetting {
  const prompts = questions.map((question) => [...promptIds(question)])
  const scored = prompts
    .slice(0, NUM_ROLLOUTS)
    .map((prompt, row) => [
      ...prompt,
      ...Array.from({ length: MAX_TOKENS }, (_, at) => (7 * row + 13 * at) % tokenizer.vocabSize),
    ])
  const rewardIds = [...'0123456789'].map((digit) => tokenizer.idOf(digit) ?? -1)
  const shape = { promptsPerStep: PROMPTS_PER_STEP, groupSize: GROUP_SIZE, maxTokens: MAX_TOKENS }
  const training = { learningRate: LEARNING_RATE, maxGradNorm: MAX_GRAD_NORM, threads: THREADS }
  // A key without a value means its default here, but a missing number there.
  const config = Object.fromEntries(Object.entries(decoder.config).filter(([, value]) => value !== null))
  return { config, prompts, scored, rewardIds, ...shape, ...training }
}

/** The same weights must say the same on both sides. */
async function compareLogProbs({ scored }: TrlSetting, trl: TrlProcess): Promise<string> {
  const length = scored[0]?.length ?? 0
  const ids = Uint32Array.from(scored.flat())
  const offsets = Uint32Array.from({ length: scored.length + 1 }, (_, row) => row * length)
  const mask = Uint8Array.from(ids, (_, at) => Number(at % length > 0))
  const { logProb } = await decoder.score({ ids, offsets, mask })
  const theirs = (await trl.score()).flatMap((row) => [0, ...row])
  const apart = theirs.reduce((most, value, at) => Math.max(most, Math.abs(value - (logProb[at] ?? NaN))), 0)
  if (theirs.length !== ids.length || !(apart <= LOG_PROB_TOLERANCE)) {
    throw new Error(`log-probs must agree within ${LOG_PROB_TOLERANCE} nats: got ${apart}`)
  }
  const tokens = mask.reduce((sum, flag) => sum + flag, 0)
  return `log-probs of ${tokens} tokens, same weights in PyTorch: at most ${apart.toExponential(1)} nats apart`
}

function ends(rewards: readonly number[]): string {
  const mean = (part: readonly number[]) => (part.reduce((sum, one) => sum + one, 0) / part.length).toFixed(3)
  return `${mean(rewards.slice(0, 5))} -> ${mean(rewards.slice(-5))}`
}

/** Gives `count` the wall time of each call of an asynchronous method. */
function timeEach<Name extends string>(
  owner: Record<Name, (...args: never[]) => Promise<unknown>>,
  name: Name,
  count: (ms: number) => void,
): void {
  const method = owner[name].bind(owner)
  owner[name] = async (...args) => {
    const startMs = performance.now()
    const value = await method(...args)
    count(performance.now() - startMs)
    return value
  }
}

/** As {@link timeEach}, for a synchronous method. */
function timeCall<Name extends string>(
  owner: Record<Name, (...args: never[]) => unknown>,
  name: Name,
  count: (ms: number) => void,
): void {
  const method = owner[name].bind(owner)
  owner[name] = (...args) => {
    const startMs = performance.now()
    const value = method(...args)
    count(performance.now() - startMs)
    return value
  }
}

/** As {@link timeEach}, for calls that overlap: the time in which at least one of them runs. */
function timeOverlapping<Name extends string>(
  owner: Record<Name, (...args: never[]) => Promise<unknown>>,
  name: Name,
  count: (ms: number) => void,
): void {
  const method = owner[name].bind(owner)
  let [running, startMs] = [0, 0]
  owner[name] = async (...args) => {
    if (running++ === 0) startMs = performance.now()
    try {
      return await method(...args)
    } finally {
      if (--running === 0) count(performance.now() - startMs)
    }
  }
}

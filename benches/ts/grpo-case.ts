/**
 * Steps of GRPO from prompts to new weights, compared with TRL's GRPOTrainer.
 *
 * Ours is the recipe `grpo` unchanged: renderer, rollouter, ledger, reward, advantages, forward, loss, backward,
 * AdamW. It is tuned by one option, `activationBytesMax`. A renderer without stop ids keeps every rollout at its full length. TRL gets the same prompts as ids, the same
 * weights, the same reward, the same loss (no KL, group-normalised advantages, mean over tokens) and learning rate.
 */

import {
  DecoderPolicy,
  describeBuild,
  GRPOLoss,
  type GrpoStep,
  grpo,
  listDataset,
  type Renderer,
  type Task,
} from 'fulmar'
import type { Decoder, LoraConfig, Optimizer } from 'fulmar/model'
import { lastCompletionText, Rollouter, type RolloutView } from 'fulmar/rollout'
import {
  alternate,
  type BenchOptions,
  type Figure,
  type Goal,
  median,
  type Report,
  type Rounds,
  type Sample,
  say,
  type Taken,
} from './measure.js'
import { installTrl, TrlProcess, type TrlSetting, type Variant } from './trl.js'

/** A training run. */
export interface GrpoCase {
  /** The name of the figures. */
  readonly work: string
  readonly decoder: Decoder
  readonly optimizer: Optimizer
  /** Stops nothing, see {@link endless}. */
  readonly renderer: Renderer
  /** Questions whose prompts have one length. */
  readonly questions: readonly string[]
  /** The reward is the share of drawn tokens among these, where the n-th counts n times: else siblings may tie, and teach nothing. */
  readonly rewardIds: readonly number[]
  readonly promptsPerStep: number
  readonly groupSize: number
  readonly maxTokens: number
  readonly learningRate: number
  /** The adapter that the decoder has, if it has one. */
  readonly lora?: LoraConfig
  /** Steps of a turn, of which the last is timed. */
  readonly turnSteps: number
  /** Turns that are dropped. */
  readonly warmup: number
  readonly variants: readonly Variant[]
  readonly goal: Goal
}

const THREADS = 2
const MAX_GRAD_NORM = 1
/** Room for the activations of all tokens of a step, which the update then computes no second time: the same bits. */
const KEPT_BYTES = 2 * 2 ** 30
/** The largest difference of two correct f32 forward passes, in nats. */
const LOG_PROB_TOLERANCE = 1e-3
const NAMES = { tuned: 'TRL tuned', shipped: 'TRL as shipped' } as const

/** Ours and every variant of TRL that there is, in turns. */
export async function measureGrpo(one: GrpoCase, options: BenchOptions): Promise<Report> {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  const steps = ourSteps(one)
  if ('skipped' in installed) {
    const rounds = await alternate({ ours: steps.next }, { ...options, warmup: one.warmup })
    const figure = { ...line(one, rounds.of('ours')), rival: { skipped: installed.skipped } }
    return report(one, steps.profile(rounds.kept), rounds, [figure], [], {})
  }
  const trls: TrlProcess[] = []
  try {
    const setting = trlSetting(one)
    for (const variant of one.variants) {
      say(`starting ${NAMES[variant]}`)
      trls.push(await TrlProcess.start(installed.python, variant, setting, one.decoder))
    }
    return await besideTrl(one, steps, trls, setting, options)
  } finally {
    for (const trl of trls) trl[Symbol.dispose]()
  }
}

/** One report of several cases. */
export function together(cases: Readonly<Record<string, Report>>): Report {
  const all = Object.values(cases)
  return {
    setting: Object.fromEntries(Object.entries(cases).map(([name, { setting }]) => [name, setting])),
    checks: all.flatMap(({ checks }) => checks),
    figures: all.flatMap(({ figures }) => figures),
    notes: [...new Set([...all.flatMap(({ notes }) => notes), ...all.map(profileText)])],
    versions: all.at(-1)?.versions ?? {},
  }
}

function profileText({ figures, profileMs = {} }: Report): string {
  const parts = Object.entries(profileMs).map(([part, ms]) => `${part} ${ms.toFixed(0)}`)
  return `${figures[0]?.work}, where our time goes, ms: ${parts.join(' | ')}`
}

async function besideTrl(
  one: GrpoCase,
  steps: ReturnType<typeof ourSteps>,
  trls: readonly TrlProcess[],
  setting: TrlSetting,
  options: BenchOptions,
): Promise<Report> {
  const checks: string[] = []
  for (const trl of trls) checks.push(await compareLogProbs(one, setting, trl))
  const rewards = new Map(trls.map(({ variant }) => [variant, [] as number[]]))
  const turn = (trl: TrlProcess) => async (): Promise<Sample> => {
    let [value, rivalCpuMs] = [Number.NaN, 0]
    for (let at = 0; at < one.turnSteps; at++) {
      const step = await trl.step()
      checkNumTokens(one, 'TRL', step.numTokens)
      rewards.get(trl.variant)?.push(step.reward)
      value = step.ms
      rivalCpuMs += step.cpuMs
    }
    return { value, rivalCpuMs }
  }
  say(`${options.rounds} rounds of ours, ${trls.map(({ variant }) => NAMES[variant]).join(', ')}`)
  const theirs = Object.fromEntries(trls.map((trl) => [trl.variant, turn(trl)]))
  const contestants: Readonly<Record<string, () => Promise<Sample>>> = { ours: steps.next, ...theirs }
  const rounds = await alternate(contestants, { ...options, warmup: one.warmup })
  checks.push(`tokens sampled and trained in each step: ${numTokensOf(one)} on both sides`)
  const curves = trls.map(({ variant }) => `${NAMES[variant]} ${ends(rewards.get(variant) ?? [])}`)
  checks.push(`mean reward, first and last five steps: ours ${ends(steps.rewards)}, ${curves.join(', ')}`)
  const ours = rounds.of('ours')
  const figures = trls.flatMap((trl): Figure[] => {
    const { cold, warm } = rounds.of(trl.variant)
    const rival = { name: NAMES[trl.variant], samples: warm }
    const memory = {
      ...{ work: `${one.work}: most resident memory`, unit: 'MiB' as const },
      ours: [process.resourceUsage().maxRSS / 1024],
      rival: { name: rival.name, samples: [trl.peakMiB] },
    }
    return [{ ...line(one, ours), rival, goal: one.goal, cold: { ours: ours.cold, rival: cold } }, memory]
  })
  return report(one, steps.profile(rounds.kept), rounds, figures, checks, trls[0]?.versions ?? {})
}

function line({ work }: GrpoCase, { cold, warm }: Taken): Figure {
  return { work, unit: 'ms', ours: warm, cold: { ours: cold } }
}

function report(
  one: GrpoCase,
  profileMs: Readonly<Record<string, number>>,
  { disturbance }: Pick<Rounds<string>, 'disturbance'>,
  figures: readonly Figure[],
  checks: readonly string[],
  versions: Readonly<Record<string, string>>,
): Report {
  const { decoder, lora } = one
  const setting = {
    parameters: decoder.numParameters,
    trained: decoder.numTrainable,
    rollouts: one.promptsPerStep * one.groupSize,
    groupSize: one.groupSize,
    promptTokens: promptIds(one, one.questions[0] ?? '').length,
    newTokens: one.maxTokens,
    threads: describeBuild().threads,
    learningRate: one.learningRate,
    decoder: decoder.config,
    ...(lora && { lora }),
  }
  const notes = [
    disturbance,
    'ours: the recipe `grpo` on the addon, f32, with a renderer that has no stop id; activations of sampling are kept for the update',
    'TRL tuned: no gradient checkpointing, no progress bar, MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000; both: f32, CPU',
  ]
  return { setting, checks, figures, profileMs, notes, versions }
}

/** Steps of the recipe, a turn a call, with the time that each part of the turn's last step took. */
function ourSteps(one: GrpoCase) {
  const { decoder, optimizer, renderer, groupSize, maxTokens, promptsPerStep } = one
  const profiles: ReadonlyMap<string, number>[] = []
  const current = new Map<string, number>()
  const policy = new DecoderPolicy(decoder, { activationBytesMax: KEPT_BYTES })
  const loss = new GRPOLoss()
  const count = (part: string) => (ms: number) => current.set(part, (current.get(part) ?? 0) + ms)
  timeOverlapping(policy, 'generate', count('generation'))
  timeEach(decoder, 'forward', count('forward'))
  timeCall(loss, 'forward', count('loss'))
  timeEach(decoder, 'backward', count('backward'))
  timeEach(optimizer, 'step', count('optimiser'))
  const sampling = { groupSize, maxTokens, stdNormalize: true, seed: 1 }
  const rollouter = new Rollouter({ policy, task: shareTask(one), renderer, ...sampling })
  const training = { promptsPerStep, maxGradNorm: MAX_GRAD_NORM, steps: 1_000_000 }
  const run = grpo({ policy, rollouter, optimizer, loss, ...training })
  const rewards: number[] = []
  const step = async (): Promise<number> => {
    current.clear()
    const startMs = performance.now()
    const { value } = await run.next()
    const ms = performance.now() - startMs
    checkStep(one, value ?? undefined)
    rewards.push(value?.reward.mean ?? Number.NaN)
    return ms
  }
  const next = async (): Promise<Sample> => {
    let value = Number.NaN
    for (let at = 0; at < one.turnSteps; at++) value = await step()
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

function checkStep(one: GrpoCase, step: GrpoStep | undefined): void {
  if (!step?.update) throw new Error('every step must train: got groups with equal rewards')
  checkNumTokens(one, 'Fulmar', step.numTokens)
  const dropped = Object.keys(step.metrics).find((name) => name.includes('num_groups_dropped'))
  if (dropped) throw new Error(`every group must be trained: got ${dropped}`)
}

function checkNumTokens(one: GrpoCase, who: string, numTokens: number): void {
  const wanted = numTokensOf(one)
  if (numTokens !== wanted) throw new Error(`${who} must sample ${wanted} tokens a step: got ${numTokens}`)
}

function numTokensOf({ promptsPerStep, groupSize, maxTokens }: GrpoCase): number {
  return promptsPerStep * groupSize * maxTokens
}

function shareTask({ questions, rewardIds }: GrpoCase): Task<string> {
  const counts = new Set(rewardIds)
  const score = (rollout: RolloutView) => {
    const ids = lastCompletionText(rollout).split(' ').map(Number)
    const worth = ids.reduce((sum, id, at) => sum + (counts.has(id) ? at + 1 : 0), 0)
    return worth / ((ids.length * (ids.length + 1)) / 2)
  }
  return {
    name: 'shareOfIds',
    makeDataset: () => listDataset({ items: questions }),
    makeEnv: (question) => ({
      init: () => ({ initPromptMessages: [{ role: 'user', content: question }] }),
      step: () => ({ done: true }),
      close: () => {},
    }),
    rewardFns: [{ name: 'shareOfIds', score }],
    isSolved: () => false,
  }
}

/** As `inner` renders, but a rollout never stops, and its text is the sampled ids, for the reward to read. */
export function endless(inner: Renderer): Renderer {
  return {
    stopIds: [],
    prefixStability: inner.prefixStability,
    thinkingRetention: inner.thinkingRetention,
    render: (messages, renderOptions) => inner.render(messages, renderOptions),
    renderText: (messages, renderOptions) => inner.renderText(messages, renderOptions),
    bridge: (prompt, completion, messages) => inner.bridge(prompt, completion, messages),
    parse: (ids) => ({
      content: ids.join(' '),
      reasoningContent: null,
      reasoningComplete: true,
      toolCalls: [],
      finished: false,
      overran: false,
    }),
  }
}

function promptIds({ renderer }: GrpoCase, question: string): Uint32Array {
  return renderer.render([{ role: 'user', content: question }], { addGenerationPrompt: true }).ids
}

function trlSetting(one: GrpoCase): TrlSetting {
  const { vocab_size: vocabSize } = one.decoder.config
  const prompts = one.questions.map((question) => [...promptIds(one, question)])
  const scored = prompts
    .slice(0, one.promptsPerStep * one.groupSize)
    .map((prompt, row) => [
      ...prompt,
      ...Array.from({ length: one.maxTokens }, (_, at) => (7 * row + 13 * at) % vocabSize),
    ])
  const { rewardIds, promptsPerStep, groupSize, maxTokens, learningRate, lora = null } = one
  const training = { learningRate, maxGradNorm: MAX_GRAD_NORM, threads: THREADS, lora }
  return { vocabSize, prompts, scored, rewardIds, promptsPerStep, groupSize, maxTokens, ...training }
}

/** The same weights must say the same on both sides. */
async function compareLogProbs(
  { decoder }: GrpoCase,
  { scored }: TrlSetting,
  trl: TrlProcess,
): Promise<string> {
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

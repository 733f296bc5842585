/** Summary of an evaluation: `summary.json`, and the table that people see. */

import type { Evaluation, EvaluationSample, Interval } from '../rollout/index.js'
import { formatDuration } from '../telemetry/index.js'
import type { EvaluationSetup } from './evaluation-folder.js'
import { percent } from './io.js'

/** Content of `summary.json` and of `--json`. Intervals are of 95 %, clustered by problem. */
export interface EvaluationSummary
  extends Pick<EvaluationSetup, 'task' | 'model' | 'isTrainable'>,
    Omit<Evaluation, 'samples' | 'passRate'> {
  /** Number of answers to each problem. */
  readonly numAnswers: number
  /** `null` if no answer was scored. */
  readonly passRate: number | null
  /** Mean score of each reward function, over the scored answers. */
  readonly rewards: Readonly<Record<string, number>>
  /** Number of answers by final status. */
  readonly statuses: Readonly<Record<string, number>>
  /** Number of answers by kind of failure, such as `generate UNAVAILABLE` or `judge TIMEOUT`. */
  readonly failures: Readonly<Record<string, number>>
  /** One sentence of the first failure of each kind. */
  readonly reasons: Readonly<Record<string, string>>
  /** Tokens of all answers; `null` if a server did not tell. */
  readonly numPromptTokens: number | null
  readonly numCompletionTokens: number | null
  /** Number of answers that this call sampled; others were there. */
  readonly numFresh: number
  /** Seconds of this call. */
  readonly seconds: number
  /** Sampled tokens per second of this call; `null` if a server did not tell. */
  readonly tokensPerSecond: number | null
}

/** Summarizes an evaluation. */
export function summaryOf(
  { task, model, isTrainable }: EvaluationSetup,
  { samples, passRate, ...evaluation }: Evaluation,
  call: {
    readonly numAnswers: number
    readonly fresh: readonly EvaluationSample[]
    readonly seconds: number
  },
): EvaluationSummary {
  const { numAnswers, fresh, seconds } = call
  const kinds = samples.flatMap(failureOf)
  const numFreshTokens = total(fresh.map(({ numCompletionTokens }) => numCompletionTokens))
  return {
    ...{ task, model, isTrainable, numAnswers, ...evaluation },
    passRate: evaluation.numScored === 0 ? null : passRate,
    rewards: meanScores(samples),
    statuses: counted(samples.map(({ status }) => status)),
    failures: counted(kinds.map(([kind]) => kind)),
    // The first of each kind wins.
    reasons: Object.fromEntries([...kinds].reverse()),
    numPromptTokens: total(samples.map(({ numPromptTokens }) => numPromptTokens)),
    numCompletionTokens: total(samples.map(({ numCompletionTokens }) => numCompletionTokens)),
    ...{ numFresh: fresh.length, seconds },
    tokensPerSecond: numFreshTokens === null || seconds <= 0 ? null : numFreshTokens / seconds,
  }
}

/** The rows of the table. */
export function tableOfSummary(summary: EvaluationSummary): (readonly [string, string])[] {
  const { task, model, isTrainable, numProblems, numAnswers, meanReward, meanRewardInterval } = summary
  const { passRate, interval, passAt, passAtIntervals, rewards, failures, reasons, seconds } = summary
  const passRows = Object.entries(passAt)
    .filter(([k]) => k !== '1')
    .map(([k, share]) => [`pass@${k}`, shareText(share, passAtIntervals[Number(k)])] as const)
  const names = Object.entries(rewards)
  const nothing = 'no answer could be scored'
  return [
    ['task', task],
    ['model', isTrainable ? model : `${model} (by messages alone: not to be trained on)`],
    ['problems', `${numProblems}, ${numAnswers} ${numAnswers === 1 ? 'answer' : 'answers'} each`],
    ['pass rate', passRate === null ? nothing : shareText(passRate, interval)],
    ...passRows,
    ['mean reward', meanReward === null ? nothing : rewardText(meanReward, meanRewardInterval)],
    ...(names.length > 1 ? names.map(([name, score]) => [`  ${name}`, score.toFixed(3)] as const) : []),
    ['answers', answersOf(summary)],
    ...Object.entries(failures).map(
      ([kind, count]) => [`  ${count} x ${kind}`, firstLine(reasons[kind])] as const,
    ),
    ['tokens', tokensOf(summary)],
    ['time', formatDuration(seconds * 1000) + rate(summary)],
  ]
}

function shareText(share: number, interval: Interval | undefined): string {
  const range = interval === undefined ? '' : ` (95 %: ${interval.map(percent).join(' to ')})`
  return `${percent(share)}${range}`
}

function rewardText(reward: number, interval: Interval | null): string {
  const range = interval === null ? '' : ` (95 %: ${interval.map((end) => end.toFixed(3)).join(' to ')})`
  return `${reward.toFixed(3)}${range}`
}

function answersOf({ numScored, numErrors, numUnscored }: EvaluationSummary): string {
  return `${numScored} scored, ${numErrors} ended with an error, ${numUnscored} unscored`
}

function tokensOf({ numPromptTokens, numCompletionTokens }: EvaluationSummary): string {
  if (numPromptTokens === null || numCompletionTokens === null) return 'the server did not tell'
  return `${numPromptTokens} in prompts, ${numCompletionTokens} sampled`
}

function rate({ tokensPerSecond, numFresh }: EvaluationSummary): string {
  const tokens = tokensPerSecond === null ? '' : `, ${tokensPerSecond.toFixed(0)} tokens/s`
  return `${tokens}, ${numFresh} ${numFresh === 1 ? 'answer' : 'answers'} sampled`
}

/** Returns the kind and the reason of each failure of an answer. */
function failureOf({ cause, unscored, status }: EvaluationSample): (readonly [string, string])[] {
  if (cause !== null) return [[`${cause.stage} ${cause.code ?? cause.kind}`, cause.message]]
  if (status.startsWith('error')) return [[status, status]]
  return Object.entries(unscored).map(([name, { code, message }]) => [`${name} ${code}`, message])
}

function meanScores(samples: readonly EvaluationSample[]): Record<string, number> {
  const sums = new Map<string, { sum: number; count: number }>()
  for (const { reward, rewardBreakdown } of samples) {
    if (reward === null) continue
    for (const [name, score] of Object.entries(rewardBreakdown)) {
      const { sum, count } = sums.get(name) ?? { sum: 0, count: 0 }
      sums.set(name, { sum: sum + score, count: count + 1 })
    }
  }
  return Object.fromEntries([...sums].map(([name, { sum, count }]) => [name, sum / count]))
}

function counted(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1
  return counts
}

function total(counts: readonly (number | null)[]): number | null {
  return counts.reduce((sum, count) => (sum === null || count === null ? null : sum + count), 0)
}

/** Messages of servers may hold anything: one line, without control characters. */
function firstLine(text = ''): string {
  const [line = ''] = text.split('\n')
  return line.replace(/\p{Cc}/gu, ' ').slice(0, 200)
}

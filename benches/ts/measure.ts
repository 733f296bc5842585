/** Shared code of the benches: samples taken in turns, figures, and the report that scripts/bench.mjs prints. */

import { cpus } from 'node:os'
import { parseArgs } from 'node:util'

/** The repository, from the compiled bench. */
export const ROOT = new URL('../../../', import.meta.url)

/** The goal for the worst tenth of the rounds: the least rival / ours, or the largest ours / rival. */
export type Goal = { readonly atLeast: number } | { readonly atMost: number }

/** One line of a bench: ours, and the rival's samples of the same rounds. */
export interface Figure {
  /** A description of the work. */
  readonly work: string
  /** Of all samples. */
  readonly unit: 's' | 'ms' | 'us' | 'ns' | 'MiB'
  /** Warm samples in their order. */
  readonly ours: readonly number[]
  /** Samples; sample `i` is of the same round as ours. Or the reason why they are missing. */
  readonly rival?:
    | { readonly name: string; readonly samples: readonly number[] }
    | { readonly skipped: string }
  readonly goal?: Goal
  /** The first call of each. */
  readonly cold?: { readonly ours: number; readonly rival?: number }
}

/** The result of a bench. */
export interface Report {
  /** Sizes and threads, by name. */
  readonly setting: Readonly<Record<string, unknown>>
  /** The comparisons before the measurement, with their results. */
  readonly checks: readonly string[]
  readonly figures: readonly Figure[]
  /** The time of each part in milliseconds, median over the rounds. */
  readonly profileMs?: Readonly<Record<string, number>>
  readonly notes: readonly string[]
  /** Versions of the rivals. */
  readonly versions: Readonly<Record<string, string>>
}

/** The options of the command line. */
export interface BenchOptions {
  /** Rounds that are kept. */
  readonly rounds: number
  /** If true, rivals are run. */
  readonly rival: boolean
  /** The longest wait, in total, for moments in which no other program computes. */
  readonly patienceMs: number
}

/** Reads `--rounds N`, `--patience SECONDS` and `--no-rival`. */
export function readOptions({ rounds: fallback }: { readonly rounds: number }): BenchOptions {
  const rival = { type: 'boolean', default: true } as const
  const patience = { type: 'string', default: '120' } as const
  const { values } = parseArgs({
    options: { rounds: { type: 'string' }, patience, rival },
    allowNegative: true,
  })
  const rounds = Number(values.rounds ?? fallback)
  return { rounds, rival: values.rival, patienceMs: 1000 * Number(values.patience) }
}

/** Hands the report to scripts/bench.mjs; as a program of its own the bench prints it. */
export function hand(report: Report): void {
  if (process.send) process.send(report)
  else console.log(JSON.stringify(report, null, 2))
}

/** One sample, and the processor time that another process took for it. */
export interface Sample {
  /** In the unit of the figure. */
  readonly value: number
  readonly rivalCpuMs?: number
}

/** Samples of one contestant. */
export interface Taken {
  /** The very first. */
  readonly cold: number
  readonly warm: readonly number[]
}

/** The samples of {@link alternate}. */
export interface Rounds<Name extends string> {
  readonly of: (name: Name) => Taken
  /** Rounds that were kept, counted from 0 with the warm-up. */
  readonly kept: readonly number[]
  /** A sentence on how much of the machine other programs took meanwhile. */
  readonly disturbance: string
}

/** Other programs may take this share of the machine in a round that counts as quiet. */
const DISTURBED_SHARE = 0.05
/** Most rounds tried for each round wanted, until enough are quiet. */
const TRIES = 4
const LOOK_MS = 200

/**
 * Samples all contestants in turns, A B A B, in `warmup` rounds that are dropped and then until `rounds` rounds were
 * quiet; where that cannot be had, the quietest of the rounds tried. Waits for a quiet machine before each.
 */
export async function alternate<Name extends string>(
  contestants: Readonly<Record<Name, () => Sample | Promise<Sample>>>,
  { rounds, warmup, patienceMs }: BenchOptions & { readonly warmup: number },
): Promise<Rounds<Name>> {
  const names = Object.keys(contestants) as Name[]
  const tried: { readonly index: number; readonly values: Map<Name, number>; readonly foreign: number }[] = []
  let patienceLeftMs = patienceMs
  const quiet = () => tried.filter(({ index, foreign }) => index >= warmup && foreign <= DISTURBED_SHARE)
  for (let index = 0; index < warmup + TRIES * rounds && quiet().length < rounds; index++) {
    if (index >= warmup) patienceLeftMs -= await quietMoment(patienceLeftMs)
    const watch = watchMachine()
    const values = new Map<Name, number>()
    let rivalCpuMs = 0
    for (const name of names) {
      const sample = await contestants[name]()
      values.set(name, sample.value)
      rivalCpuMs += sample.rivalCpuMs ?? 0
    }
    tried.push({ index, values, foreign: watch(rivalCpuMs) })
  }
  const best = tried.slice(warmup).sort((a, b) => a.foreign - b.foreign)
  const kept = best.slice(0, rounds).sort((a, b) => a.index - b.index)
  const of = (name: Name): Taken => {
    const value = (round: (typeof tried)[number] | undefined) => round?.values.get(name) ?? Number.NaN
    return { cold: value(tried[0]), warm: kept.map(value) }
  }
  const most = Math.max(...kept.map(({ foreign }) => foreign))
  const share = `other programs took at most ${(100 * most).toFixed(0)} % of the machine`
  const disturbance = `${kept.length} of ${tried.length - warmup} rounds kept; in these ${share}`
  return { of, kept: kept.map(({ index }) => index), disturbance }
}

/** Waits at most `limitMs` until no other program computes; resolves with the milliseconds that it waited. */
async function quietMoment(limitMs: number): Promise<number> {
  const startMs = performance.now()
  for (;;) {
    const watch = watchMachine()
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
    const waitedMs = performance.now() - startMs
    if (watch(0) <= DISTURBED_SHARE || waitedMs >= limitMs) return waitedMs
  }
}

/** A function that tells which share of all processors others used since now, given the rival's processor time. */
function watchMachine(): (rivalCpuMs: number) => number {
  const [busyMs, own, startMs] = [busyCpuMs(), process.cpuUsage(), performance.now()]
  return (rivalCpuMs) => {
    const used = process.cpuUsage(own)
    const foreignMs = busyCpuMs() - busyMs - (used.user + used.system) / 1000 - rivalCpuMs
    return Math.max(0, foreignMs) / ((performance.now() - startMs) * cpus().length)
  }
}

/** Milliseconds that all processors worked since the machine started. */
function busyCpuMs(): number {
  return cpus().reduce((sum, { times: { user, nice, sys, irq } }) => sum + user + nice + sys + irq, 0)
}

/** Returns the `q`-quantile of the samples, interpolated linearly between neighbours. */
export function quantile(samples: readonly number[], q: number): number {
  const sorted = [...samples].sort((a, b) => a - b)
  const place = q * (sorted.length - 1)
  const [low = Number.NaN, high = low] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]]
  return low + (high - low) * (place - Math.floor(place))
}

/** The middle one. */
export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5)
}

/** A note on a value without a rival. */
export function verdict(value: number, goal: number, unit: string): string {
  const said = value <= goal ? 'met' : `short by ${(value - goal).toFixed(2)}`
  return `goal ${goal} ${unit}, ${said}`
}

/** A progress line for whoever waits. */
export function say(text: string): void {
  process.stderr.write(`  ${text}\n`)
}

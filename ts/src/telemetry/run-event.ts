/** The lines of a run's `log.jsonl`, one JSON object each. The only thing that progress lines and reports read. */

/** The phases of a run, in their order. */
export type Phase = 'sft' | 'dpo' | 'grpo'

const PHASES: readonly Phase[] = ['sft', 'dpo', 'grpo']

/** One optimiser step. */
export interface StepEvent {
  readonly event: 'step'
  /** Phase of the run. */
  readonly phase: Phase
  /** Counts from 1 within the phase. */
  readonly step: number
  /** Steps of the phase. */
  readonly numSteps: number
  /** Metrics: `reward`, `kl`, `loss`, `tokensPerSecond` ... */
  readonly metrics: Readonly<Record<string, number>>
}

/** One measurement on held-out problems. */
export interface EvalEvent {
  readonly event: 'eval'
  /** The phase whose steps `step` counts. */
  readonly phase: Phase
  /** After this many steps of the phase; 0 is before the first. */
  readonly step: number
  /** Share of problems solved, in [0, 1]. */
  readonly passRate: number
  /** Problems tried. */
  readonly numProblems: number
  /** Mean reward of the answers with one; absent in logs of earlier versions, and if no answer has one. */
  readonly meanReward?: number
}

/** The end of a run, with its results. */
export interface ResultEvent {
  readonly event: 'result'
  /** Such as `passRateBefore`, `passRateAfter`, `secondsPerStep`. */
  readonly metrics: Readonly<Record<string, number>>
}

/** Any line of the log. */
export type RunEvent = StepEvent | EvalEvent | ResultEvent

/**
 * Returns true if a line of a log is an event of this version with all its fields; reports skip other lines.
 */
export function isRunEvent(line: unknown): line is RunEvent {
  if (!isRecord(line)) return false
  const { event, phase, step, numSteps, metrics, passRate, numProblems } = line
  const isPlaced = PHASES.some((known) => known === phase) && isCount(step)
  if (event === 'step') return isPlaced && isCount(numSteps) && isMetrics(metrics)
  if (event === 'eval') return isPlaced && typeof passRate === 'number' && isCount(numProblems)
  return event === 'result' && isMetrics(metrics)
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

/** JSON writes NaN and the infinities as `null`; such a metric is absent, not a number. */
function isMetrics(value: unknown): boolean {
  return isRecord(value) && Object.values(value).every((number) => typeof number === 'number')
}

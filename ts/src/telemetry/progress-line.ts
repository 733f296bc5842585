/** One line that lives on a terminal; a plain line now and then where there is no terminal. */

import { checkKnownKeys } from '../core/index.js'
import type { Clock } from './clock.js'
import { systemClock } from './clock.js'
import type { Phase, StepEvent } from './run-event.js'

/** Output of a {@link ProgressLine}: `process.stderr`, or a similar stream. */
export interface ProgressStream {
  /** True if the line may be overwritten. */
  readonly isTTY?: boolean | undefined
  /** Width of the terminal in characters. */
  readonly columns?: number | undefined
  write(text: string): unknown
}

/** Bytes of a fetch that are there. */
export interface FetchEvent {
  readonly event: 'fetch'
  /** Name of the transfer. */
  readonly name: string
  /** Bytes that are there, those of earlier fetches included. */
  readonly bytes: number
  /** @default unknown */
  readonly totalBytes?: number
  /** True once, at the end. */
  readonly isDone: boolean
}

/** A step of a run, an answer of an evaluation, or rows of a mapping. */
export interface ProgressStep extends Omit<StepEvent, 'phase'> {
  /** Phase of a run, `eval` or `map`. */
  readonly phase: Phase | 'eval' | 'map'
}

/** Options of {@link ProgressLine}. */
export interface ProgressLineOptions {
  readonly stream: ProgressStream
  /** @default systemClock */
  readonly clock?: Clock
}

const REDRAW_MS = 100
const PLAIN_LINE_MS = 5_000
const COLUMNS_DEFAULT = 80
/** Least weight of the newest step in the running mean of seconds per step. */
const PACE_WEIGHT_MIN = 0.1

/**
 * Shows phase, step, reward, KL, tokens per second and the time left of the phase; of a fetch its bytes, their rate and the
 * time left.
 *
 * On a terminal the line is drawn over at most every 100 ms and never wraps; elsewhere a line is written at most
 * every 5 s. The last step of a phase is always shown.
 *
 * @example
 * ```ts
 * import { ProgressLine } from 'fulmar'
 * import { ManualClock } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * let text = ''
 * const line = new ProgressLine({ stream: { write: (part) => { text += part } }, clock: new ManualClock() })
 * line.update({ event: 'step', phase: 'grpo', step: 1, numSteps: 1, metrics: { reward: 0.5, kl: 0.01 } })
 * assert.equal(text, 'grpo 1/1 | reward 0.500 | kl 0.0100\n')
 * ```
 */
export class ProgressLine {
  readonly #stream: ProgressStream
  readonly #clock: Clock
  #phase: string | undefined
  #lastStepMs = 0
  #numSteps = 0
  #paceMs = 0
  #shownMs = Number.NEGATIVE_INFINITY
  #isDrawn = false
  #fetchName: string | undefined
  #fetchStart = { ms: 0, bytes: 0 }

  constructor(options: ProgressLineOptions) {
    checkKnownKeys('options', options, ['stream', 'clock'], ['stream'])
    const { stream, clock = systemClock } = options
    this.#stream = stream
    this.#clock = clock
    this.#lastStepMs = clock.nowMs()
  }

  /** Takes note of a step or of bytes and shows them if it is time. */
  update(event: ProgressStep | FetchEvent): void {
    const nowMs = this.#clock.nowMs()
    if (event.event === 'fetch') this.#measureFetch(event, nowMs)
    else this.#measurePace(event.phase, nowMs)
    const isLast = event.event === 'fetch' ? event.isDone : event.step >= event.numSteps
    const restMs = this.#stream.isTTY ? REDRAW_MS : PLAIN_LINE_MS
    if (!isLast && nowMs - this.#shownMs < restMs) return
    this.#shownMs = nowMs
    this.#show(event.event === 'fetch' ? this.#formatFetch(event, nowMs) : this.#format(event))
    if (isLast) this.end()
  }

  /** Writes a whole line of its own; the living line is drawn again below it with the next step. */
  print(text: string): void {
    if (this.#isDrawn) this.#stream.write(CLEAR_LINE)
    this.#isDrawn = false
    this.#stream.write(`${text}\n`)
  }

  /** Finishes the current line and continues below it. Does nothing without one. */
  end(): void {
    if (this.#isDrawn) this.#stream.write('\n')
    this.#isDrawn = false
  }

  /** A running mean that forgets the first steps: they also paid for whatever came before the phase. */
  #measurePace(phase: string, nowMs: number): void {
    const stepMs = nowMs - this.#lastStepMs
    this.#lastStepMs = nowMs
    if (phase !== this.#phase) {
      this.#phase = phase
      this.#numSteps = 0
      this.#shownMs = Number.NEGATIVE_INFINITY
    }
    this.#numSteps += 1
    this.#paceMs += Math.max(PACE_WEIGHT_MIN, 1 / this.#numSteps) * (stepMs - this.#paceMs)
  }

  /** Bytes of earlier fetches took no time, so the rate begins behind them. */
  #measureFetch({ name, bytes }: FetchEvent, nowMs: number): void {
    if (name !== this.#fetchName) this.#shownMs = Number.NEGATIVE_INFINITY
    if (name === this.#fetchName && bytes >= this.#fetchStart.bytes) return
    this.#fetchName = name
    this.#fetchStart = { ms: nowMs, bytes }
  }

  #formatFetch({ name, bytes, totalBytes, isDone }: FetchEvent, nowMs: number): string {
    const megabytes = (value: number) => (value / 1e6).toFixed(1)
    const rest = totalBytes === undefined || isDone ? '' : ` of ${megabytes(totalBytes)}`
    const parts = [`${name} ${megabytes(bytes)}${rest} MB`]
    const { ms, bytes: startBytes } = this.#fetchStart
    const bytesPerMs = (bytes - startBytes) / (nowMs - ms)
    if (nowMs > ms) parts.push(`${(bytesPerMs / 1e3).toFixed(1)} MB/s`)
    if (rest !== '' && bytesPerMs > 0 && totalBytes !== undefined)
      parts.push(`${formatDuration((totalBytes - bytes) / bytesPerMs)} left`)
    return parts.join(' | ')
  }

  #format({ phase, step, numSteps, metrics }: ProgressStep): string {
    const parts = [`${phase} ${step}/${numSteps}`]
    for (const [key, label, digits] of SHOWN_METRICS) {
      const value = metrics[key]
      if (value !== undefined) parts.push(`${label} ${value.toFixed(digits)}`)
    }
    const leftMs = this.#paceMs * (numSteps - step)
    if (step < numSteps) parts.push(`${formatDuration(leftMs)} left`)
    return parts.join(' | ')
  }

  #show(line: string): void {
    if (!this.#stream.isTTY) {
      this.#stream.write(`${line}\n`)
      return
    }
    const width = Math.max(1, (this.#stream.columns ?? COLUMNS_DEFAULT) - 1)
    this.#stream.write(CLEAR_LINE + line.slice(0, width))
    this.#isDrawn = true
  }
}

const CLEAR_LINE = '\r\u001B[2K'

const SHOWN_METRICS: readonly (readonly [key: string, label: string, digits: number])[] = [
  ['loss', 'loss', 4],
  ['reward', 'reward', 3],
  ['passRate', 'pass rate', 3],
  ['numErrors', 'errors', 0],
  ['kl', 'kl', 4],
  ['tokensPerSecond', 'tokens/s', 0],
]

/**
 * A duration for people: `7 s`, `2 min 05 s`, `1 h 02 min`. Negative or unknown durations are `?`.
 */
export function formatDuration(durationMs: number): string {
  if (!Number.isFinite(durationMs) || durationMs < 0) return '?'
  const seconds = Math.round(durationMs / 1000)
  if (seconds < 60) return `${seconds} s`
  const two = (value: number) => String(Math.floor(value)).padStart(2, '0')
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`
  return `${Math.floor(seconds / 3600)} h ${two((seconds % 3600) / 60)} min`
}

/** Deadlines of many calls, which share one timer of their clock. */

import { type Clock, TIMER_DELAY_MS_MAX } from '../telemetry/index.js'

/** A call that waits, until it is removed. */
interface Deadline {
  readonly dueMs: number
  /** Number of deadlines that began before. */
  readonly order: number
  readonly onDue: () => void
  /** Removes it; false if it was removed before. */
  readonly stop: () => boolean
}

/** Lengths whose empty queues are kept, as the next call of that length is soon. */
const QUEUES_KEPT = 64

/**
 * The deadlines on one clock. Those of one length fall due in the order in which they began, so each length is a queue, and the
 * timer is set for the head of one of them. Beginning and removing a deadline sets no timer as long as an earlier one waits.
 */
export class Deadlines {
  readonly #clock: Clock
  /** Waiting calls by the length of their deadline, in the order in which they fall due. */
  readonly #queues = new Map<number, Set<Deadline>>()
  #numWaiting = 0
  #numStarted = 0
  #timer: { readonly dueMs: number; readonly stop: () => void } | undefined

  private constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns the deadlines on `clock`. */
  static of(clock: Clock): Deadlines {
    const known = DEADLINES.get(clock)
    if (known) return known
    const made = new Deadlines(clock)
    DEADLINES.set(clock, made)
    return made
  }

  /** Calls `onDue` once, `timeoutMs` from now, unless the returned function was called before. */
  start(timeoutMs: number, onDue: () => void): () => boolean {
    const queue = this.#queueOf(timeoutMs)
    const stop = () => {
      const wasWaiting = queue.delete(deadline)
      if (wasWaiting) this.#numWaiting -= 1
      const isSpare = wasWaiting && queue.size === 0 && this.#queues.size > QUEUES_KEPT
      if (isSpare) this.#queues.delete(timeoutMs)
      // A timer for nothing would keep the process from its end.
      if (this.#numWaiting === 0) this.#stopTimer()
      return wasWaiting
    }
    const deadline = { dueMs: this.#clock.nowMs() + timeoutMs, order: this.#numStarted++, onDue, stop }
    queue.add(deadline)
    this.#numWaiting += 1
    this.#setTimer(deadline.dueMs, timeoutMs)
    return stop
  }

  /** Number of lengths that have a queue. */
  get numQueues(): number {
    return this.#queues.size
  }

  #queueOf(timeoutMs: number): Set<Deadline> {
    const known = this.#queues.get(timeoutMs)
    if (known) return known
    const made = new Set<Deadline>()
    this.#queues.set(timeoutMs, made)
    return made
  }

  /** Sets the timer for a deadline in `leftMs`, unless it rings earlier. */
  #setTimer(dueMs: number, leftMs: number): void {
    if (this.#timer && this.#timer.dueMs <= dueMs) return
    this.#stopTimer()
    const delayMs = Math.min(Math.max(0, leftMs), TIMER_DELAY_MS_MAX)
    const timer = { dueMs: dueMs - leftMs + delayMs, stop: () => {} }
    this.#timer = timer
    timer.stop = this.#clock.startTimer(delayMs, () => this.#ring(timer.dueMs))
  }

  #stopTimer(): void {
    this.#timer?.stop()
    this.#timer = undefined
  }

  /** Calls what is due, the earliest first, and sets the timer for the next. A timer may ring a little early. */
  #ring(timerMs: number): void {
    this.#timer = undefined
    const nowMs = Math.max(timerMs, this.#clock.nowMs())
    const due = [...this.#queues.values()].flatMap((queue) => dueIn(queue, nowMs))
    due.sort((a, b) => a.dueMs - b.dueMs || a.order - b.order)
    try {
      for (const { stop, onDue } of due) if (stop()) onDue()
    } finally {
      for (const [next] of this.#queues.values()) if (next) this.#setTimer(next.dueMs, next.dueMs - nowMs)
    }
  }
}

/** The beginning of a queue that is due. */
function dueIn(queue: ReadonlySet<Deadline>, nowMs: number): Deadline[] {
  const due: Deadline[] = []
  for (const deadline of queue) {
    if (deadline.dueMs > nowMs) break
    due.push(deadline)
  }
  return due
}

const DEADLINES = new WeakMap<Clock, Deadlines>()

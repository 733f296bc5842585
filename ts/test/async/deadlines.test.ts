/** Deadlines that share one timer, against one timer for each. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Deadlines } from '../../src/async/index.js'
import { type Clock, ManualClock, TIMER_DELAY_MS_MAX } from '../../src/telemetry/index.js'

/** One event: a deadline begins, one is removed, or time passes. */
type Event = { readonly start: number } | { readonly stop: number } | { readonly advance: number }

const events: fc.Arbitrary<Event[]> = fc.array(
  fc.oneof(
    fc.record({ start: fc.constantFrom(0, 1, 5, 5, 30, 1000) }),
    fc.record({ stop: fc.nat(40) }),
    fc.record({ advance: fc.constantFrom(0, 1, 4, 25, 2000) }),
  ),
  { maxLength: 60 },
)

/** Returns which deadlines fell due at each event. */
function play(all: readonly Event[], clock: ManualClock, start: Clock['startTimer']): number[][] {
  const stops: (() => void)[] = []
  return all.map((event) => {
    const due: number[] = []
    if ('advance' in event) {
      rung = due
      clock.advance(event.advance)
    } else if ('stop' in event) {
      stops[event.stop]?.()
    } else {
      const number = stops.length
      stops.push(start(event.start, () => void rung.push(number)))
    }
    return due
  })
}

let rung: number[] = []

describe('Deadlines', () => {
  it('fall due as with a timer for each, and leave no timer', () => {
    fc.assert(
      fc.property(events, (all) => {
        const [one, each] = [new ManualClock(), new ManualClock()]
        const deadlines = Deadlines.of(one)
        const shared = play(all, one, (timeoutMs, onDue) => deadlines.start(timeoutMs, onDue))
        const alone = play(all, each, (timeoutMs, onDue) => each.startTimer(timeoutMs, onDue))
        expect(shared).toEqual(alone)
        expect(one.numTimers).toBe(Math.min(1, each.numTimers))
      }),
      { seed: 3, numRuns: 500 },
    )
  })

  it('are the same for a clock, and set its timer for the earliest alone', () => {
    let numStarted = 0
    const inner = new ManualClock()
    const clock: Clock = {
      nowMs: () => inner.nowMs(),
      startTimer: (delayMs, onDue) => {
        numStarted += 1
        return inner.startTimer(delayMs, onDue)
      },
    }
    const deadlines = Deadlines.of(clock)
    expect(Deadlines.of(clock)).toBe(deadlines)
    expect(Deadlines.of(inner)).not.toBe(deadlines)
    const stops = Array.from({ length: 100 }, () =>
      deadlines.start(50, () => expect.unreachable('was removed')),
    )
    expect([numStarted, inner.numTimers]).toEqual([1, 1])
    deadlines.start(20, () => {})
    expect([numStarted, inner.numTimers]).toEqual([2, 1])
    expect(stops.map((stop) => stop())).toEqual(stops.map(() => true))
    expect(stops[0]?.()).toBe(false)
    expect(inner.numTimers).toBe(1)
    inner.advance(20)
    expect(inner.numTimers).toBe(0)
  })

  it('may remove each other, throw, and begin others while they fall due', () => {
    const clock = new ManualClock()
    const deadlines = Deadlines.of(clock)
    const seen: string[] = []
    const second = { stop: () => false }
    deadlines.start(1, () => {
      seen.push('first')
      second.stop()
      deadlines.start(5, () => void seen.push('third'))
      throw new Error('of the first')
    })
    second.stop = deadlines.start(1, () => expect.unreachable('was removed'))
    deadlines.start(2, () => void seen.push('fourth'))
    expect(() => clock.advance(1)).toThrow('of the first')
    clock.advance(5)
    expect(seen).toEqual(['first', 'fourth', 'third'])
    expect(clock.numTimers).toBe(0)
  })

  it('of another length than timers can have still fall due', () => {
    const clock = new ManualClock()
    let rang = false
    Deadlines.of(clock).start(TIMER_DELAY_MS_MAX + 10, () => {
      rang = true
    })
    const forever = Deadlines.of(clock).start(Number.POSITIVE_INFINITY, () =>
      expect.unreachable('is never due'),
    )
    clock.advance(TIMER_DELAY_MS_MAX)
    expect([rang, clock.numTimers]).toEqual([false, 1])
    clock.advance(10)
    expect([rang, clock.numTimers]).toEqual([true, 1])
    forever()
    expect(clock.numTimers).toBe(0)
  })

  it('keeps few queues for lengths that come once', () => {
    const clock = new ManualClock()
    const deadlines = Deadlines.of(clock)
    for (let length = 1; length <= 1000; length++) deadlines.start(length, () => {})()
    expect(deadlines.numQueues).toBeLessThanOrEqual(64)
    for (let length = 1; length <= 100; length++) deadlines.start(length, () => {})
    expect(deadlines.numQueues).toBe(100)
    clock.advance(100)
    expect(clock.numTimers).toBe(0)
  })
})

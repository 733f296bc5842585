import { describe, expect, it, vi } from 'vitest'
import { ManualClock, systemClock, TIMER_DELAY_MS_MAX } from '../../src/telemetry/index.js'

describe('ManualClock', () => {
  it('rings timers that fall due, the earliest first, each once', () => {
    const clock = new ManualClock()
    const rung: string[] = []
    clock.startTimer(20, () => rung.push('late'))
    clock.startTimer(10, () => rung.push('early'))
    clock.startTimer(30, () => rung.push('later'))
    clock.advance(20)
    clock.advance(5)
    expect(rung).toEqual(['early', 'late'])
    expect(clock.nowMs()).toBe(25)
    expect(clock.numTimers).toBe(1)
  })

  it('does not ring a timer that was stopped, even by another one in the same moment', () => {
    const clock = new ManualClock()
    const rung: string[] = []
    const stops: (() => void)[] = []
    clock.startTimer(5, () => {
      rung.push('first')
      for (const stop of stops) stop()
    })
    stops.push(clock.startTimer(5, () => rung.push('second')))
    clock.advance(5)
    expect(rung).toEqual(['first'])
  })
})

describe('systemClock', () => {
  it('sets and stops timers of the machine, and never asks for more than they can express', () => {
    vi.useFakeTimers()
    try {
      const onDue = vi.fn()
      const stop = systemClock.startTimer(10, onDue)
      systemClock.startTimer(Number.POSITIVE_INFINITY, onDue)
      stop()
      vi.advanceTimersByTime(1_000_000)
      expect(onDue).not.toHaveBeenCalled()
      vi.advanceTimersByTime(TIMER_DELAY_MS_MAX)
      expect(onDue).toHaveBeenCalledTimes(1)
    } finally {
      vi.useRealTimers()
    }
  })
})

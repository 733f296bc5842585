import { describe, expect, it } from 'vitest'
import { formatDuration, ManualClock, ProgressLine, type StepEvent } from '../../src/telemetry/index.js'

const step = (number: number, numSteps = 100, metrics: Record<string, number> = {}): StepEvent => ({
  event: 'step',
  phase: 'grpo',
  step: number,
  numSteps,
  metrics,
})

function progress(isTTY: boolean, columns = 80) {
  const clock = new ManualClock()
  const writes: string[] = []
  const stream = { isTTY, columns, write: (text: string) => writes.push(text) }
  return { clock, writes, line: new ProgressLine({ stream, clock }) }
}

describe('ProgressLine', () => {
  it('shows phase, step, reward, KL, tokens per second and the time left', () => {
    const { clock, writes, line } = progress(false)
    clock.advance(500)
    line.update(step(1, 101, { reward: 0.25, kl: 0.00512, tokensPerSecond: 1234.5, other: 1 }))
    expect(writes).toEqual(['grpo 1/101 | reward 0.250 | kl 0.0051 | tokens/s 1235 | 50 s left\n'])
  })

  it('shows the bytes of a fetch, their rate without those of earlier fetches, and the time left', () => {
    const { clock, writes, line } = progress(false)
    const fetched = (bytes: number, totalBytes?: number, isDone = false) =>
      line.update({ event: 'fetch', name: 'a/b', bytes, ...(totalBytes && { totalBytes }), isDone })
    fetched(2e6, 10e6)
    clock.advance(5_000)
    fetched(7e6, 10e6)
    clock.advance(1_000)
    fetched(8e6, 10e6)
    clock.advance(4_000)
    fetched(8.5e6)
    fetched(10e6, 10e6, true)
    expect(writes).toEqual([
      'a/b 2.0 of 10.0 MB\n',
      'a/b 7.0 of 10.0 MB | 1.0 MB/s | 3 s left\n',
      'a/b 8.5 MB | 0.7 MB/s\n',
      'a/b 10.0 MB | 0.8 MB/s\n',
    ])
  })

  it('draws over one line on a terminal, not more often than every 100 ms', () => {
    const { clock, writes, line } = progress(true)
    for (let number = 1; number <= 50; number++) {
      clock.advance(10)
      line.update(step(number))
    }
    expect(writes).toHaveLength(5)
    expect(writes.every((text) => text.startsWith('\r\u001B[2K') && !text.includes('\n'))).toBe(true)
  })

  it('never fills the last column, so a narrow terminal does not wrap', () => {
    const { writes, line } = progress(true, 12)
    line.update(step(1))
    expect(writes[0]?.replace('\r\u001B[2K', '')).toHaveLength(11)
  })

  it('writes a plain line at most every 5 s where there is no terminal', () => {
    const { clock, writes, line } = progress(false)
    for (let number = 1; number <= 20; number++) {
      clock.advance(1000)
      line.update(step(number))
    }
    expect(writes).toHaveLength(4)
    expect(writes.join('')).not.toContain('\r')
  })

  it('always shows the last step and ends the line there', () => {
    const { writes, line } = progress(true)
    line.update(step(99))
    line.update(step(100))
    expect(writes.at(-1)).toBe('\n')
    expect(writes.join('')).toContain('grpo 100/100')
    line.end()
    expect(writes.filter((text) => text === '\n')).toHaveLength(1)
  })

  it('prints other lines above the living one', () => {
    const { writes, line } = progress(true)
    line.update(step(1))
    line.print('pass rate 25 %')
    expect(writes.slice(1)).toEqual(['\r\u001B[2K', 'pass rate 25 %\n'])
  })

  it('measures the pace of each phase by itself', () => {
    const { clock, writes, line } = progress(false)
    clock.advance(60_000)
    line.update({ ...step(300, 300), phase: 'sft' })
    clock.advance(1000)
    line.update(step(1, 11))
    expect(writes.at(-1)).toBe('grpo 1/11 | 10 s left\n')
  })
})

describe('formatDuration', () => {
  it('speaks of seconds, minutes and hours', () => {
    expect([0, 59_400, 60_000, 125_000, 3_720_000, -1, Number.NaN].map(formatDuration)).toEqual([
      '0 s',
      '59 s',
      '1 min 00 s',
      '2 min 05 s',
      '1 h 02 min',
      '?',
      '?',
    ])
  })
})

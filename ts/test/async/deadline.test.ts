import { describe, expect, it } from 'vitest'
import { aborted, bounded, type CallContext, withDeadline } from '../../src/async/index.js'
import { ManualClock } from '../../src/telemetry/clock.js'

const never = () => new Promise<never>(() => {})

describe('bounded', () => {
  it('gives what a call answers at once, without a promise and without a timer', () => {
    const clock = { nowMs: () => 0, startTimer: () => expect.unreachable('a timer was started') }
    const result = bounded({ clock, timeoutMs: 5, signal: undefined, run: () => 7 })
    expect(result).toEqual({ kind: 'value', value: 7 })
  })

  it('tells what a call throws, at once or later, apart from its own deadline', async () => {
    const clock = new ManualClock()
    const limits = { clock, timeoutMs: 5, signal: undefined }
    const error = new Error('mine')
    const atOnce = () => {
      throw error
    }
    expect(bounded({ ...limits, run: atOnce })).toEqual({ kind: 'thrown', error })
    expect(await bounded({ ...limits, run: () => Promise.reject(error) })).toEqual({ kind: 'thrown', error })
    const late = bounded({ ...limits, run: never })
    clock.advance(5)
    expect(await late).toEqual({ kind: 'timeout' })
  })

  it.each(['before', 'within', 'after'])(
    'says as data that its signal fired %s the call began',
    async (when) => {
      const abort = new AbortController()
      if (when === 'before') abort.abort('why')
      let context: CallContext | undefined
      const run = (given: CallContext) => {
        context = given
        if (when === 'within') abort.abort('why')
        return never()
      }
      const result = bounded({ clock: new ManualClock(), timeoutMs: 5, signal: abort.signal, run })
      if (when === 'after') abort.abort('why')
      expect(await result).toEqual({ kind: 'aborted' })
      expect(context?.signal.reason).toBe(when === 'before' ? undefined : 'why')
    },
  )
})

describe('withDeadline', () => {
  it('throws one error for all calls that a signal stops', async () => {
    const signal = AbortSignal.abort()
    const call = withDeadline({ clock: new ManualClock(), timeoutMs: null, signal, run: () => 7 })
    await expect(call).rejects.toBe(aborted(signal))
    expect(aborted(signal)).toMatchObject({ code: 'ABORTED' })
  })
})

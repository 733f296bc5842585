import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { WeightSync } from '../../src/collect/index.js'
import type { WeightReceiver } from '../../src/policy/index.js'
import { ManualClock } from '../../src/telemetry/index.js'

const code = (value: string) => expect.objectContaining({ code: value })

/** A receiver that fails on request, and records its calls. */
class Replica implements WeightReceiver<string> {
  readonly name: string
  readonly #log: string[]
  version = 0
  weights = 'w0'
  /** Fails this many times more, by phase. */
  failures: Record<string, number> = {}
  #staged: string | undefined
  #previous: string | undefined

  constructor(name = 'a', log: string[] = []) {
    this.name = name
    this.#log = log
  }

  stage(weights: string, version: number): void {
    this.#note(`stage ${version}`)
    this.#staged = weights
  }

  commit(version: number): void {
    this.#note(`commit ${version}`)
    this.#previous ??= this.weights
    this.weights = this.#staged ?? this.weights
    this.version = version
  }

  rollback(version: number): void {
    this.#note(`rollback ${version}`)
    this.weights = this.#previous ?? this.weights
    this.version = version
    this.settle()
  }

  settle(): void {
    this.#previous = undefined
    this.#staged = undefined
  }

  #note(what: string): void {
    this.#log.push(`${this.name} ${what}`)
    const phase = what.split(' ')[0] ?? ''
    const left = this.failures[phase] ?? 0
    this.failures[phase] = left - 1
    if (left > 0) throw new Error(`${this.name} has no memory left`)
  }
}

const capture = (version: number) => `w${version}`
const now = { retryDelayMs: 0, timeoutMs: null }
/** Rings timers as soon as they are set. */
const impatient = {
  nowMs: () => 0,
  startTimer: (_: number, onDue: () => void) => {
    queueMicrotask(onDue)
    return () => {}
  },
}

describe('WeightSync', () => {
  it('returns before it works, then captures, stages, commits and tells, in this order', async () => {
    const log: string[] = []
    const sync = new WeightSync({
      capture: (version) => {
        log.push(`capture ${version}`)
        return capture(version)
      },
      receivers: [new Replica('a', log)],
    })
    sync.start(42, { onServed: () => log.push('release') })
    expect(log).toEqual(['capture 42'])
    await sync.waitServed()
    expect(log).toEqual(['capture 42', 'a stage 42', 'a commit 42', 'release'])
    expect(sync.served).toEqual({ a: 42 })
  })

  it('answers waits before the first start with 0, and later ones with the seconds that it took', async () => {
    const clock = new ManualClock()
    const replica = new Replica()
    const sync = new WeightSync({
      capture: (version) => {
        clock.advance(1500)
        return capture(version)
      },
      receivers: [Object.assign(replica, { settle: () => clock.advance(250) })],
      clock,
    })
    expect([await sync.waitCaptured(), await sync.waitServed()]).toEqual([0, 0])
    sync.start(1)
    expect([await sync.waitCaptured(), await sync.waitServed()]).toEqual([1.5, 0.25])
  })

  it('serves each version from its own capture, one after another, whichever is captured first', async () => {
    const log: string[] = []
    let open: (weights: string) => void = () => {}
    const slow = new Promise<string>((resolve) => {
      open = resolve
    })
    const sync = new WeightSync({
      capture: (version) => (version === 1 ? slow : capture(version)),
      receivers: [new Replica('a', log)],
    })
    sync.start(1)
    sync.start(2)
    await sync.waitCaptured()
    expect(log).toEqual([])
    open('w1')
    await sync.waitServed()
    expect(log).toEqual(['a stage 1', 'a commit 1', 'a stage 2', 'a commit 2'])
  })

  it('tells the waits what capturing threw', async () => {
    const sync = new WeightSync<string>({
      capture: () => Promise.reject(new Error('no memory')),
      receivers: [new Replica()],
    })
    sync.start(1)
    await expect(sync.waitCaptured()).rejects.toThrow('no memory')
    await expect(sync.waitServed()).rejects.toThrow('no memory')
    expect(sync.served).toEqual({ a: 0 })
  })

  it('tries again, with delays that double', async () => {
    const clock = new ManualClock()
    const replica = new Replica()
    replica.failures = { stage: 2 }
    const sync = new WeightSync({ capture, receivers: [replica], clock, retryDelayMs: 100, timeoutMs: null })
    sync.start(1)
    const settle = () => new Promise((resolve) => setImmediate(resolve))
    for (const delayMs of [100, 200]) {
      await settle()
      clock.advance(delayMs - 1)
      await settle()
      expect(clock.numTimers).toBe(1)
      clock.advance(1)
    }
    await sync.waitServed()
    expect(replica.weights).toBe('w1')
    expect(clock.numTimers).toBe(0)
  })

  it.each(['stage', 'commit'])('rolls all receivers back when one cannot %s', async (phase) => {
    const [good, bad] = [new Replica('good'), new Replica('bad')]
    bad.failures = { [phase]: 3 }
    const sync = new WeightSync({ capture, receivers: [good, bad], clock: impatient, ...now })
    sync.start(1)
    await expect(sync.waitServed()).rejects.toThrow(code('UNAVAILABLE'))
    await expect(sync.waitServed()).rejects.toThrow(`${phase} at bad must succeed within 3 attempts`)
    expect(sync.served).toEqual({ good: 0, bad: 0 })
    expect([good.weights, bad.weights]).toEqual(['w0', 'w0'])
    sync.start(2)
    await sync.waitServed()
    expect(sync.served).toEqual({ good: 2, bad: 2 })
  })

  it('says of a receiver that cannot be rolled back that nobody knows what it serves, until it is served again', async () => {
    const [good, bad] = [new Replica('good'), new Replica('bad')]
    bad.failures = { commit: 3, rollback: 1 }
    const sync = new WeightSync({ capture, receivers: [good, bad], clock: impatient, ...now })
    sync.start(1)
    await expect(sync.waitServed()).rejects.toThrow(code('UNAVAILABLE'))
    expect(sync.served).toEqual({ good: 0, bad: null })
    sync.start(2)
    await sync.waitServed()
    expect(sync.served).toEqual({ good: 2, bad: 2 })
  })

  it('gives a receiver that never answers up at its deadline', async () => {
    const clock = new ManualClock()
    const replica = Object.assign(new Replica(), { stage: () => new Promise<void>(() => {}) })
    const sync = new WeightSync({ capture, receivers: [replica], clock, attempts: 1, timeoutMs: 50 })
    sync.start(1)
    await sync.waitCaptured()
    await new Promise((resolve) => setImmediate(resolve))
    clock.advance(50)
    await expect(sync.waitServed()).rejects.toThrow('got no answer in time')
  })

  it('rolls back and rejects with ABORTED when its signal fires', async () => {
    const controller = new AbortController()
    const replica = Object.assign(new Replica(), { commit: () => new Promise<void>(() => {}) })
    const sync = new WeightSync({ capture, receivers: [replica] })
    sync.start(1, { signal: controller.signal })
    await new Promise((resolve) => setImmediate(resolve))
    controller.abort()
    await expect(sync.waitServed()).rejects.toThrow(code('ABORTED'))
    expect(sync.served).toEqual({ a: 0 })
  })

  it('serves one version everywhere after every transaction, whatever fails when', async () => {
    const phases = fc.record({ stage: fc.nat(3), commit: fc.nat(3) })
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(phases, phases, phases), { maxLength: 6 }), async (plan) => {
        const replicas = ['a', 'b', 'c'].map((name) => new Replica(name))
        const sync = new WeightSync({ capture, receivers: replicas, clock: impatient, ...now, attempts: 3 })
        for (const [index, failures] of plan.entries()) {
          replicas.forEach((replica, at) => {
            replica.failures = { ...failures[at] }
          })
          const isDoomed = failures.some(({ stage, commit }) => stage >= 3 || commit >= 3)
          const before = replicas[0]?.version
          sync.start(index + 1)
          const served = await sync.waitServed().then(
            () => true,
            () => false,
          )
          expect(served).toBe(!isDoomed)
          const expected = served ? index + 1 : before
          expect(replicas.map(({ version }) => version)).toEqual([expected, expected, expected])
          expect(new Set(replicas.map(({ weights }) => weights))).toEqual(new Set([`w${expected}`]))
        }
      }),
      { seed: 11, numRuns: 100 },
    )
  })

  it('refuses receivers of one name and numbers outside their ranges', () => {
    const make = (options: object) => () => new WeightSync({ capture, receivers: [], ...options })
    expect(make({ receivers: [new Replica('a'), new Replica('a')] })).toThrow(code('INCOMPATIBLE'))
    expect(make({ attempts: 0 })).toThrow(code('OUT_OF_RANGE'))
    expect(make({ timeoutMs: -1 })).toThrow(code('OUT_OF_RANGE'))
  })
})

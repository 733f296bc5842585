import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type ClaimedWork,
  capacityRule,
  type FinalizedWork,
  readyFirst,
  type StalenessPolicy,
  strictFifo,
  type WorkEntry,
  windowedFifo,
} from '../../src/collect/index.js'
import { WorkBuffer } from '../../src/collect/work-buffer.js'

const finalized = (sequence: number, version = 0, finishOrder = sequence): WorkEntry => {
  return { sequence, state: 'finalized', version, finishOrder }
}
const inflight = (sequence: number, version = 0): WorkEntry => {
  return { sequence, state: 'inflight', version, finishOrder: 0 }
}

describe('windowedFifo', () => {
  it.each([
    [3, 2, 0.3, 9, 2, 3],
    [3, 2, null, 9, 1, 2],
    [3, 2, 4 / 9, 9, 4, 3],
    [3, 2, 1 / 9, 9, 1, 2],
    [3, 2, 1, 9, 9, 5],
    [8, 3, 1, 32, 32, 7],
    [3, 1, 0.5, 6, 3, 2],
    [8, 3, 0.3, 32, 9, 4],
    [8, 0, 0.01, 8, 1, 0],
  ])(
    'derives P %i, S %i, f %f to B %i, W %i, age %i',
    (groupsPerStep, offPolicySteps, fraction, capacity, window, maxAge) => {
      const policy = windowedFifo({ groupsPerStep, offPolicySteps, windowFraction: fraction })
      expect(policy).toMatchObject({ capacity, window, maxAge })
    },
  )

  it('warns of a window of less than one group, and only then', () => {
    const tiny = windowedFifo({ groupsPerStep: 8, offPolicySteps: 0, windowFraction: 0.01 })
    expect(tiny.warnings).toEqual([
      'windowFraction must give a window of at least one group: got 0.08, and 1 is used',
    ])
    expect(windowedFifo({ groupsPerStep: 8 }).warnings).toEqual([])
  })

  it('refuses fractions and counts outside their ranges', () => {
    const make = (options: object) => () => windowedFifo({ groupsPerStep: 2, ...options })
    for (const options of [
      { windowFraction: 0 },
      { windowFraction: 1.1 },
      { windowFraction: Number.NaN },
      { groupsPerStep: 0 },
      { offPolicySteps: -1 },
      { offPolicySteps: 0.5 },
    ]) {
      expect(make(options)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    }
  })

  it('lets finished groups overtake within the window alone', () => {
    const { select } = windowedFifo({ groupsPerStep: 2, offPolicySteps: 3, windowFraction: 0.375 })
    expect(select([inflight(0), inflight(1), finalized(2), finalized(3)])).toBe(2)
    expect(select([inflight(0), inflight(1), finalized(3)])).toBe(-1)
    expect(select([])).toBe(-1)
  })

  it('never lets a group get older than it promises, whoever finishes when', async () => {
    const schedule = fc.record({
      groupsPerStep: fc.integer({ min: 1, max: 4 }),
      offPolicySteps: fc.integer({ min: 0, max: 3 }),
      windowFraction: fc.constantFrom(null, 0.1, 0.3, 0.7, 1),
      picks: fc.array(fc.nat(1000), { minLength: 200, maxLength: 200 }),
    })
    await fc.assert(
      fc.asyncProperty(schedule, async ({ picks, ...options }) => {
        const staleness = windowedFifo(options)
        const finishes = [...picks]
        const pick = (running: readonly number[]) => (finishes.pop() ?? 0) % running.length
        const oldest = await oldestConsumed(staleness, options.groupsPerStep, pick)
        expect(oldest).toBeLessThanOrEqual(staleness.maxAge)
      }),
      { seed: 7, numRuns: 100 },
    )
  })

  it('promises no more than it must: a group that finishes last of all gets as old as its bound', async () => {
    for (const [groupsPerStep, offPolicySteps, windowFraction] of [
      [3, 2, 1],
      [3, 2, 4 / 9],
      [2, 1, null],
    ] as const) {
      const staleness = windowedFifo({ groupsPerStep, offPolicySteps, windowFraction })
      const straggler = staleness.capacity - 1
      const pick = (running: readonly number[]) => Number(running[0] === straggler && running.length > 1)
      expect(await oldestConsumed(staleness, groupsPerStep, pick)).toBe(staleness.maxAge)
    }
  })
})

/** Runs a buffer whose workers finish as `pick` says, given the groups that run; tells the greatest age consumed. */
async function oldestConsumed(
  staleness: StalenessPolicy,
  groupsPerStep: number,
  pick: (running: readonly number[]) => number,
): Promise<number> {
  const buffer = new WorkBuffer<number, number>({ staleness })
  const running: { readonly claimed: ClaimedWork<number>; readonly version: number }[] = []
  const batch: FinalizedWork<number, number>[] = []
  const take = () => {
    void buffer.takeFinalized().then((taken) => {
      if (taken === null) return
      batch.push(taken)
      take()
    })
  }
  take()
  let [version, oldest, numAdded] = [0, 0, 0]
  for (let finish = 0; finish < 200; finish++) {
    while (buffer.numActive < buffer.capacity) {
      buffer.addWork(numAdded++)
      const claimed = await buffer.claimNext()
      if (claimed) running.push({ claimed, version })
    }
    const [done] = running.splice(pick(running.map(({ claimed }) => claimed.work)), 1)
    if (done) buffer.finalizeWork(done.claimed, done.version)
    await new Promise((resolve) => setImmediate(resolve))
    while (batch.length >= groupsPerStep) {
      const trained = batch.splice(0, groupsPerStep)
      oldest = Math.max(oldest, ...trained.map(({ result }) => version - result))
      version += 1
      for (const { lease } of trained) lease.release('trained')
      buffer.advance(version)
    }
  }
  buffer.close()
  return oldest
}

describe('strictFifo', () => {
  it('consumes in the order of admission', () => {
    const { select } = strictFifo({ groupsPerStep: 2, offPolicySteps: 1 })
    expect(select([inflight(0), finalized(1)])).toBe(-1)
    expect(select([finalized(0), finalized(1)])).toBe(0)
  })
})

describe('capacityRule', () => {
  it('consumes in the order of finishing, however old', () => {
    const { select, evict } = capacityRule({ groupsPerStep: 2, offPolicySteps: 1 })
    expect(select([inflight(0), finalized(1, 0, 5), finalized(2, 9, 3)])).toBe(2)
    expect(evict).toBeUndefined()
  })
})

describe('readyFirst', () => {
  it('consumes the oldest weights first, the first admitted of equals', () => {
    const { select } = readyFirst({ groupsPerStep: 2, offPolicySteps: 1 })
    expect(select([inflight(0, 0), finalized(1, 3), finalized(2, 1), finalized(3, 1)])).toBe(2)
  })

  it('gives up what is older than its steps, running or finished, where that is asked for', () => {
    const { evict } = readyFirst({ groupsPerStep: 2, offPolicySteps: 1, overStale: 'cancel' })
    const waiting: WorkEntry = { sequence: 3, state: 'waiting', version: 0, finishOrder: 0 }
    expect(evict?.([inflight(0, 0), finalized(1, 1), finalized(2, 0), waiting], 2)).toEqual([0, 2])
  })
})

describe('overStale', () => {
  const options = { groupsPerStep: 2, offPolicySteps: 3 }

  it.each([
    ['continue', Number.POSITIVE_INFINITY, false],
    ['maskPrefix', 3, false],
    ['withhold', 3, false],
    ['cancel', 3, true],
  ] as const)('%s promises %d steps, and gives groups up: %s', (overStale, maxAge, evicts) => {
    for (const make of [readyFirst, capacityRule]) {
      const policy = make({ ...options, overStale })
      expect(policy).toMatchObject({ overStale, maxAge, capacity: 8 })
      expect(policy.evict !== undefined).toBe(evicts)
    }
  })

  it('withholds by default where a bound is promised, and continues where only the sum is', () => {
    expect(readyFirst(options).overStale).toBe('withhold')
    expect(capacityRule(options).overStale).toBe('continue')
    expect(windowedFifo(options).overStale).toBeUndefined()
  })

  it('refuses another word', () => {
    const make = () => readyFirst({ ...options, overStale: 'mask' as 'cancel' })
    expect(make).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
  })
})

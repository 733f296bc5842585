import { describe, expect, it } from 'vitest'
import {
  type ClaimedWork,
  readyFirst,
  type StalenessPolicy,
  strictFifo,
  windowedFifo,
} from '../../src/collect/index.js'
import { ACTIVE_GROUPS_MAX, WorkBuffer } from '../../src/collect/work-buffer.js'
import { reduceMetrics } from '../../src/telemetry/index.js'

/** A window of `window` in `capacity` slots. */
function fifo(capacity: number, window: number): StalenessPolicy {
  return windowedFifo({ groupsPerStep: 1, offPolicySteps: capacity - 1, windowFraction: window / capacity })
}

async function claim<Work, Result>(buffer: WorkBuffer<Work, Result>): Promise<ClaimedWork<Work>> {
  const claimed = await buffer.claimNext()
  if (claimed === null) throw new Error('the buffer must be open')
  return claimed
}

/** Adds groups `0..count` and claims them all. */
async function inflight(buffer: WorkBuffer<number, string>, count: number): Promise<ClaimedWork<number>[]> {
  for (let group = 0; group < count; group++) buffer.addWork(group)
  return await Promise.all(Array.from({ length: count }, () => claim(buffer)))
}

/** Returns true if a promise is still pending after all queued tasks have run. */
async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const open = Symbol('open')
  const later = new Promise((resolve) => setImmediate(() => resolve(open)))
  return (await Promise.race([promise, later])) === open
}

describe('WorkBuffer', () => {
  it('keeps a slot taken from admission until its lease is released, not until it is consumed', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(1, 1) })
    const [claimed] = await inflight(buffer, 1)
    if (claimed) buffer.finalizeWork(claimed, 'done')
    const taken = await buffer.takeFinalized()
    const waiting = buffer.waitForSlot()
    expect(await isPending(waiting)).toBe(true)
    taken?.lease.release('trained')
    expect(await waiting).toBe(true)
  })

  it('gives a slot back once, however often its lease is released', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(2, 1) })
    const [first] = await inflight(buffer, 2)
    if (first) buffer.finalizeWork(first, 'done')
    const taken = await buffer.takeFinalized()
    taken?.lease.release('filtered')
    taken?.lease.release('trained')
    expect(taken?.lease.isReleased).toBe(true)
    expect(buffer.numActive).toBe(1)
    expect(reduceMetrics(buffer.flushMetrics()).values).toMatchObject({
      'rollout_buffer/released/filtered/sum': 1,
    })
  })

  it('refuses work without a slot, and capacities outside their range', () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(1, 1) })
    buffer.addWork(0)
    expect(() => buffer.addWork(1)).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
    const sized = (capacity: number) => () => new WorkBuffer({ staleness: { ...fifo(1, 1), capacity } })
    expect(sized(0)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(sized(ACTIVE_GROUPS_MAX)).not.toThrow()
    expect(sized(ACTIVE_GROUPS_MAX + 1)).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
  })

  it('lets finished groups overtake a straggler as far as the window, then waits for it', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(8, 4) })
    const claims = await inflight(buffer, 5)
    for (const claimed of claims.slice(1)) buffer.finalizeWork(claimed, 'done')
    const order = async () => (await buffer.takeFinalized())?.work
    expect([await order(), await order(), await order()]).toEqual([1, 2, 3])
    const blocked = buffer.takeFinalized()
    expect(await isPending(blocked)).toBe(true)
    if (claims[0]) buffer.finalizeWork(claims[0], 'done')
    expect((await blocked)?.work).toBe(0)
    expect(await order()).toBe(4)
  })

  it('anchors the window at the oldest group, also at one that still waits', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(4, 3) })
    const claims = await inflight(buffer, 4)
    for (const place of [2, 3]) {
      const claimed = claims[place]
      if (claimed) buffer.finalizeWork(claimed, 'done')
    }
    expect((await buffer.takeFinalized())?.work).toBe(2)
    expect(await isPending(buffer.takeFinalized())).toBe(true)
  })

  it('wakes whoever waits when it is closed, and answers null from then on', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(1, 1) })
    buffer.addWork(0)
    const claimed = await claim(buffer)
    const waits = [buffer.waitForSlot(), buffer.claimNext(), buffer.takeFinalized()]
    buffer.close()
    buffer.close()
    expect(await Promise.all(waits)).toEqual([false, null, null])
    expect([await buffer.waitForSlot(), await buffer.claimNext()]).toEqual([false, null])
    expect(claimed.signal.aborted).toBe(true)
    expect(() => buffer.addWork(1)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    expect(buffer.numActive).toBe(0)
  })

  it('hands results that nobody will take to onDropped, finished or late', async () => {
    const dropped: string[] = []
    const onDropped = (work: number, result: string) => dropped.push(`${work} ${result}`)
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(2, 2), onDropped })
    const [first, second] = await inflight(buffer, 2)
    if (first) buffer.finalizeWork(first, 'finished')
    buffer.close()
    expect(second && buffer.finalizeWork(second, 'late')).toBe(false)
    expect(dropped).toEqual(['0 finished', '1 late'])
  })

  it('cancels what got too old, frees its slot, and lets the window move on', async () => {
    const staleness = readyFirst({ groupsPerStep: 1, offPolicySteps: 1, overStale: 'cancel' })
    const buffer = new WorkBuffer<number, string>({ staleness })
    const [old] = await inflight(buffer, 1)
    buffer.advance(1)
    expect(old?.signal.aborted).toBe(false)
    buffer.advance(2)
    expect(old?.signal.aborted).toBe(true)
    expect(buffer.numActive).toBe(0)
    expect(reduceMetrics(buffer.flushMetrics()).values['rollout_buffer/released/stale/sum']).toBe(1)
  })

  it('lets a worker give up its group, which frees the slot and moves the window', async () => {
    const buffer = new WorkBuffer<number, string>({
      staleness: strictFifo({ groupsPerStep: 1, offPolicySteps: 1 }),
    })
    const [first, second] = await inflight(buffer, 2)
    if (second) buffer.finalizeWork(second, 'done')
    const taking = buffer.takeFinalized()
    expect(await isPending(taking)).toBe(true)
    if (first) buffer.abandonWork(first, 'error')
    expect((await taking)?.work).toBe(1)
    expect(buffer.numActive).toBe(1)
  })

  it('knows the work behind every taken slot, also when it was consumed', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(3, 1) })
    const [first] = await inflight(buffer, 3)
    if (first) buffer.finalizeWork(first, 'done')
    const taken = await buffer.takeFinalized()
    expect(buffer.active).toEqual([0, 1, 2])
    taken?.lease.release('trained')
    expect(buffer.active).toEqual([1, 2])
  })

  it('measures states, peaks since the last look, and releases by reason', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(4, 4) })
    const [first, second] = await inflight(buffer, 2)
    buffer.addWork(2)
    if (first) buffer.finalizeWork(first, 'done')
    if (second) buffer.abandonWork(second, 'error')
    const values = () => reduceMetrics(buffer.flushMetrics()).values
    expect(values()).toEqual({
      'rollout_buffer/num_groups_waiting/max': 1,
      'rollout_buffer/num_groups_inflight/max': 0,
      'rollout_buffer/num_groups_finalized/max': 1,
      'rollout_buffer/active_slots_in_use_peak/max': 3,
      'rollout_buffer/available_active_slots/max': 2,
      'rollout_buffer/released/error/sum': 1,
    })
    expect(values()).toMatchObject({ 'rollout_buffer/active_slots_in_use_peak/max': 2 })
  })

  it('serves claims and takers in the order in which they came', async () => {
    const buffer = new WorkBuffer<number, string>({ staleness: fifo(2, 2) })
    const claims = [buffer.claimNext(), buffer.claimNext()]
    buffer.addWork(0)
    buffer.addWork(1)
    expect((await Promise.all(claims)).map((claimed) => claimed?.work)).toEqual([0, 1])
  })
})

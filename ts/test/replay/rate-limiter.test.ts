import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { RateLimiter } from '../../src/replay/index.js'

beforeEach(() => vi.useFakeTimers())
afterEach(() => vi.useRealTimers())

it('lets the longest waiting go first, and each that goes lets others', async () => {
  const limiter = new RateLimiter({ kind: 'queue', size: 2 })
  const order: string[] = []
  const waits = [
    limiter.sample(2).then(() => order.push('two samples')),
    limiter.sample(1).then(() => order.push('one sample')),
  ]
  limiter.tryInsert(2)
  await waits[0]
  limiter.tryInsert(1)
  await Promise.all(waits)
  expect(order).toEqual(['two samples', 'one sample'])
  expect(limiter.counts).toEqual({ inserts: 3, samples: 3, deletes: 0 })
})

it('makes inserts wait for samples, and samples for inserts', async () => {
  const limiter = new RateLimiter({ kind: 'queue', size: 1 })
  await limiter.insert(1)
  const second = limiter.insert(1)
  await limiter.sample(1)
  await second
  expect(limiter.counts).toEqual({ inserts: 2, samples: 1, deletes: 0 })
})

it('ends a wait with its reason when time is up or a signal says so', async () => {
  const limiter = new RateLimiter({ kind: 'minSize', minSize: 3 })
  const late = expect(limiter.sample(1, { timeoutMs: 50 })).rejects.toMatchObject({
    code: 'TIMEOUT',
    message: 'sample must be allowed within 50 ms: items must be >= 3 to sample: got 0',
  })
  await vi.advanceTimersByTimeAsync(50)
  await late
  const controller = new AbortController()
  const aborted = expect(limiter.sample(1, { signal: controller.signal })).rejects.toMatchObject({
    code: 'ABORTED',
  })
  controller.abort()
  await aborted
  await expect(limiter.sample(1, { signal: controller.signal })).rejects.toMatchObject({ code: 'ABORTED' })
  limiter.tryInsert(3)
  expect(limiter.counts).toEqual({ inserts: 3, samples: 0, deletes: 0 })
})

it('refuses options that let nothing be done, and counts that are none', async () => {
  expect(() => new RateLimiter({ kind: 'queue', size: 0 })).toThrow(
    expect.objectContaining({ code: 'OUT_OF_RANGE' }),
  )
  expect(() => new RateLimiter({ kind: 'quene' as 'queue', size: 1 })).toThrow(
    expect.objectContaining({ code: 'UNKNOWN_NAME' }),
  )
  const limiter = new RateLimiter({ kind: 'minSize', minSize: 1 })
  expect(() => limiter.tryInsert(-1)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  expect(() => limiter.delete(1)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
})

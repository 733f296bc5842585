import { describe, expect, it } from 'vitest'
import {
  BATCH_QUEUE_LENGTH_MAX,
  type BatchingOptions,
  RequestBatcher,
} from '../../src/policy/request-batcher.js'
import { ManualClock } from '../../src/telemetry/index.js'

/** Answers a row with itself and keeps the batches. */
function echo(options: BatchingOptions = {}) {
  const clock = new ManualClock()
  const batches: string[][] = []
  const run = (rows: readonly string[]) => {
    batches.push([...rows])
    return rows.map(async (row) => {
      if (row.startsWith('bad')) throw new Error(`no ${row}`)
      return row
    })
  }
  return { clock, batches, batcher: new RequestBatcher({ clock, ...options, run }) }
}

describe('RequestBatcher', () => {
  it('runs rows of two callers together once enough wait', async () => {
    const { batcher, batches } = echo({ minBatchSize: 4 })
    const first = batcher.submit(['a', 'b'])
    expect(batcher.state).toMatchObject({ minBatchSize: 4, queueSize: 2, numRunning: 0 })
    const second = batcher.submit(['c', 'd'])
    expect([await first, await second]).toEqual([
      ['a', 'b'],
      ['c', 'd'],
    ])
    expect(batches).toEqual([['a', 'b', 'c', 'd']])
    expect(batcher.state).toMatchObject({ queueSize: 0, numRunning: 0 })
  })

  it('gives each caller its own rows, in order, however they were gathered', async () => {
    const { batcher, clock, batches } = echo({ minBatchSize: 5, batchingTimeoutMs: 100 })
    const calls = [batcher.submit(['a']), batcher.submit(['b', 'c', 'd']), batcher.submit(['e', 'f'])]
    expect(batches).toEqual([['a', 'b', 'c', 'd', 'e', 'f']])
    expect(await Promise.all(calls)).toEqual([['a'], ['b', 'c', 'd'], ['e', 'f']])
    expect(clock.numTimers).toBe(0)
  })

  it('runs what has waited long enough, counted from the row that came first', async () => {
    const { batcher, clock, batches } = echo({ minBatchSize: 9, batchingTimeoutMs: 100 })
    const first = batcher.submit(['a'])
    clock.advance(60)
    const second = batcher.submit(['b'])
    clock.advance(39)
    expect(batches).toEqual([])
    clock.advance(1)
    expect(batches).toEqual([['a', 'b']])
    await Promise.all([first, second])
  })

  it('keeps batches within their bound, the first alone and later ones gathered', async () => {
    const { batcher, batches } = echo({ maxBatchSize: 3 })
    await Promise.all([batcher.submit(['a']), batcher.submit(['b', 'c', 'd', 'e'])])
    expect(batches).toEqual([['a'], ['b', 'c', 'd'], ['e']])
  })

  it('fails the rows that fail, and those of their caller alone', async () => {
    const { batcher } = echo({ minBatchSize: 3 })
    const [bad, good] = [batcher.submit(['bad', 'x']), batcher.submit(['y'])]
    await expect(bad).rejects.toThrow('no bad')
    expect(await good).toEqual(['y'])
    const again = Promise.all([batcher.submit(['p', 'q']), batcher.submit(['r'])])
    expect(await again).toEqual([['p', 'q'], ['r']])
  })

  it('fails the rows of a run that throws, and goes on', async () => {
    let calls = 0
    const run = (rows: readonly number[]) => {
      calls += 1
      if (calls === 1) throw new Error('broken')
      return rows.map(async (row) => row)
    }
    const batcher = new RequestBatcher({ run })
    await expect(batcher.submit([1])).rejects.toThrow('broken')
    expect(await batcher.submit([2])).toEqual([2])
    const forgetful = new RequestBatcher<number, number>({ run: () => [] })
    await expect(forgetful.submit([1])).rejects.toMatchObject({ code: 'USER_CODE' })
  })

  it('takes back or runs what waits when it is told to', async () => {
    const { batcher, clock } = echo({ minBatchSize: 5 })
    const [first, second] = [batcher.submit(['a']), batcher.submit(['b'])]
    batcher.clear()
    await expect(first).rejects.toMatchObject({ code: 'ABORTED' })
    await expect(second).rejects.toMatchObject({ code: 'ABORTED' })
    expect([batcher.state.queueSize, clock.numTimers]).toEqual([0, 0])
    const third = batcher.submit(['c'])
    batcher.flush()
    expect(await third).toEqual(['c'])
  })

  it('bounds how many rows wait', async () => {
    const { batcher } = echo({ minBatchSize: BATCH_QUEUE_LENGTH_MAX + 2 })
    const full = batcher.submit(new Array<string>(BATCH_QUEUE_LENGTH_MAX).fill('a'))
    await expect(batcher.submit(['b'])).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    batcher.flush()
    expect(await full).toHaveLength(BATCH_QUEUE_LENGTH_MAX)
  })

  it.each<[BatchingOptions, string, string]>([
    [{ minBatchSize: 5, maxBatchSize: 2 }, 'OUT_OF_RANGE', 'minBatchSize (5) must be <= maxBatchSize (2)'],
    [{ minBatchSize: 0 }, 'OUT_OF_RANGE', 'minBatchSize must be an integer >= 1: got 0'],
    [{ batchingTimeoutMs: -1 }, 'OUT_OF_RANGE', 'batchingTimeoutMs must be >= 0 or null: got -1'],
    [{ minBatch: 1 } as BatchingOptions, 'UNKNOWN_NAME', 'minBatch'],
  ])('refuses %j', (options, code, message) => {
    expect(() => echo(options)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(message) }),
    )
  })

  it('takes equal bounds, and one without the other', () => {
    expect(echo({ minBatchSize: 3, maxBatchSize: 3 }).batcher.state).toMatchObject({ maxBatchSize: 3 })
    expect(echo({ minBatchSize: 5 }).batcher.state.maxBatchSize).toBeNull()
    expect(echo({ maxBatchSize: 2 }).batcher.state).toMatchObject({ minBatchSize: 1, maxBatchSize: 2 })
  })
})

import { describe, expect, it, vi } from 'vitest'
import { renderOnce } from '../../src/native/sandbox.js'
import { jobQueue } from '../../src/native/sandbox-queue.js'

const MIB = 2 ** 20

describe('jobQueue', () => {
  it('runs as many jobs at once as it may, the others in their order', async () => {
    const queue = jobQueue({ runningMax: 2, waitingMax: 8 })
    const started: number[] = []
    const ends: (() => void)[] = []
    const jobs = [0, 1, 2, 3].map((id) =>
      queue(async () => {
        started.push(id)
        await new Promise<void>((resolve) => ends.push(resolve))
        return id
      }),
    )
    expect(started).toEqual([0, 1])
    ends[1]?.()
    expect(await jobs[1]).toBe(1)
    await vi.waitFor(() => expect(started).toEqual([0, 1, 2]))
    ends[0]?.()
    await vi.waitFor(() => expect(started).toEqual([0, 1, 2, 3]))
    ends[2]?.()
    ends[3]?.()
    expect(await Promise.all(jobs)).toEqual([0, 1, 2, 3])
  })

  it('gives the place of a job that fails to the next', async () => {
    const queue = jobQueue({ runningMax: 1, waitingMax: 2 })
    const failed = queue(() => Promise.reject(new Error('no')))
    const next = queue(() => Promise.resolve('yes'))
    await expect(failed).rejects.toThrow('no')
    expect(await next).toBe('yes')
    expect(await queue(() => Promise.resolve('again'))).toBe('again')
  })

  it('refuses a job beyond those that may wait', async () => {
    const queue = jobQueue({ runningMax: 1, waitingMax: 1 })
    let end: () => void = () => undefined
    const running = queue(() => new Promise<void>((resolve) => (end = resolve)))
    const waiting = queue(() => Promise.resolve(1))
    await expect(queue(() => Promise.resolve(2))).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    end()
    await running
    expect(await waiting).toBe(1)
  })
})

describe('renderOnce', () => {
  it('refuses an input that would fill half of the memory before it takes any', () => {
    const memory = vi.spyOn(WebAssembly, 'Memory')
    const request = { input: '{}', memoryBytes: 8 * MIB, steps: 1, outputBytes: 1, timeoutMs: 1 }
    const half = 4 * MIB - request.input.length
    const refused = { code: 'LIMIT_EXCEEDED' }
    expect(renderOnce({}, { ...request, source: 'x'.repeat(half + 1) })).toMatchObject(refused)
    expect(memory).not.toHaveBeenCalled()
    // At the bound the memory is made, with its cap; there is no module to run in it.
    expect(renderOnce({}, { ...request, source: 'x'.repeat(half) })).toMatchObject(refused)
    expect(memory).toHaveBeenCalledExactlyOnceWith({ initial: 64, maximum: 128 })
    memory.mockRestore()
  })
})

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Handle } from '../../src/core/handle.js'

const owner = () => {
  let numFreed = 0
  return { free: () => void numFreed++, numFreed: () => numFreed, answer: () => 42 }
}

describe('Handle', () => {
  it('hands its object to each call until it is freed, and frees it once', async () => {
    const object = owner()
    const handle = new Handle('Answer', () => object)
    expect(handle.call((raw) => raw.answer())).toBe(42)
    expect(await handle.callAsync((raw) => raw.answer())).toBe(42)
    handle.free()
    handle.free()
    expect(object.numFreed()).toBe(1)
  })

  it('does work that was put off before each use, the earliest first, and none once it is freed', () => {
    const handle = new Handle('Answer', owner)
    const done: string[] = []
    handle.precede(() => void done.push('first'))
    handle.precede(() => void done.push('second'))
    handle.call(() => done.push('use'))
    handle.settle()
    expect(done).toEqual(['first', 'second', 'use', 'first', 'second'])
    expect(handle.isOpen).toBe(true)
    handle.free()
    handle.settle()
    expect([done.length, handle.isOpen]).toEqual([5, false])
  })

  it('says CLOSED with its name after that', async () => {
    const handle = new Handle('Answer', owner)
    handle.free()
    const closed = { code: 'CLOSED', message: 'Answer must be open: it was disposed' }
    expect(() => handle.call((raw) => raw.answer())).toThrow(expect.objectContaining(closed))
    await expect(handle.callAsync((raw) => raw.answer())).rejects.toMatchObject(closed)
  })
})

/** The most bytes that a process held which forgot so many batches of a megabyte; it runs what `dist/` holds. */
async function memoryOf(way: string, numBatches: number): Promise<number> {
  const path = fileURLToPath(new URL('./handle-process.mjs', import.meta.url))
  const { stdout } = await promisify(execFile)(process.execPath, [path, way, String(numBatches)])
  return Number(stdout)
}

// WebAssembly's memory is V8's own; a process of its own loads the addon.
describe.skipIf(process.env.FULMAR_TEST_BACKEND !== 'native')('what was forgotten', () => {
  it.each(['draw', 'iterate', 'await'])('is given back in time, without `using`, by %s', async (way) => {
    expect(await memoryOf(way, 2000)).toBeLessThan(1_000_000_000)
  })

  it('is given back only once nobody has it', async () => {
    expect(await memoryOf('keep', 300)).toBeGreaterThan(300_000_000)
  })
})

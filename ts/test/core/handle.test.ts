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

  it('says CLOSED with its name after that', async () => {
    const handle = new Handle('Answer', owner)
    handle.free()
    const closed = { code: 'CLOSED', message: 'Answer must be open: got a disposed one' }
    expect(() => handle.call((raw) => raw.answer())).toThrow(expect.objectContaining(closed))
    await expect(handle.callAsync((raw) => raw.answer())).rejects.toMatchObject(closed)
  })
})

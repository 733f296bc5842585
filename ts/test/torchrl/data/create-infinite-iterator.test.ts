import { describe, expect, it } from 'vitest'
import { createInfiniteIterator } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

async function* letters(count: number) {
  for (let at = 0; at < count; at++) yield 'abc'[at]
}

describe('createInfiniteIterator', () => {
  it('begins again behind the last item', async () => {
    const numbers = createInfiniteIterator(new Set([1, 2, 3]))
    expect(Array.from({ length: 7 }, () => numbers.next().value)).toEqual([1, 2, 3, 1, 2, 3, 1])
    const source = { [Symbol.asyncIterator]: () => letters(2) }
    const got = []
    for await (const letter of createInfiniteIterator(source)) if (got.push(letter) === 5) break
    expect(got).toEqual(['a', 'b', 'a', 'b', 'a'])
  })

  it('refuses a source without an item, and one that has a single pass', async () => {
    expect(() => createInfiniteIterator([]).next()).toThrow(failing('EMPTY', /it is empty/))
    const once = createInfiniteIterator([7].values())
    expect(once.next().value).toBe(7)
    expect(() => once.next()).toThrow(failing('EMPTY', /pass 2 is empty/))
    const later = createInfiniteIterator(letters(1))
    expect((await later.next()).value).toBe('a')
    await expect(later.next()).rejects.toThrow(failing('EMPTY', /pass 2/))
  })

  it('refuses what cannot be iterated', () => {
    for (const source of [undefined, null, 7, {}])
      expect(() => createInfiniteIterator(source as never)).toThrow(failing('MALFORMED', /source/))
  })
})

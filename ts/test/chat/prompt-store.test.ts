import { describe, expect, it } from 'vitest'
import { PromptStore } from '../../src/chat/prompt-store.js'

describe('PromptStore', () => {
  it('keeps every prompt as it was, however many follow it', () => {
    const store = new PromptStore()
    const prompts = Array.from({ length: 50 }, (_, turn) =>
      Uint32Array.from({ length: 7 * (turn + 1) }, (_, t) => t * 3),
    )
    const placed = prompts.map((prompt, turn) => {
      const before = 7 * turn
      return turn === 0
        ? store.start(prompt)
        : store.extend(prompt.subarray(before, before + 3), prompt.subarray(before + 3))
    })
    expect(placed).toEqual(prompts)
  })

  it('holds memory for the tokens, not for their square', () => {
    const store = new PromptStore()
    const placed = Array.from({ length: 200 }, (_, turn) =>
      turn === 0 ? store.start(new Uint32Array(10)) : store.extend(new Uint32Array(10)),
    )
    const numBytes = [...new Set(placed.map(({ buffer }) => buffer))].reduce(
      (sum, one) => sum + one.byteLength,
      0,
    )
    expect(numBytes).toBeLessThan(4 * 4 * 2000)
  })

  it('holds no more of a first prompt than its tokens, where those are a part of something larger', () => {
    const columns = Uint32Array.of(9, 1, 2, 3, 9, 9, 9, 9)
    const first = new PromptStore().start(columns.subarray(1, 4))
    expect([[...first], first.buffer.byteLength]).toEqual([[1, 2, 3], 12])
  })

  it('begins anew with a prompt that does not extend the last, and leaves that one alone', () => {
    const store = new PromptStore()
    const first = store.start(Uint32Array.of(1, 2, 3))
    const second = store.start(Uint32Array.of(7, 8))
    const third = store.extend(Uint32Array.of(9))
    expect([[...first], [...second], [...third]]).toEqual([
      [1, 2, 3],
      [7, 8],
      [7, 8, 9],
    ])
  })
})

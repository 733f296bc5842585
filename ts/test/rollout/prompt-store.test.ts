import { describe, expect, it } from 'vitest'
import { PromptStore } from '../../src/rollout/prompt-store.js'

describe('PromptStore', () => {
  it('keeps every prompt as it was, however many follow it', () => {
    const store = new PromptStore()
    const prompts = Array.from({ length: 50 }, (_, turn) =>
      Uint32Array.from({ length: 7 * (turn + 1) }, (_, t) => t * 3),
    )
    const placed = prompts.map((prompt, turn) => store.place(prompt, { extendsLast: turn > 0 }))
    expect(placed).toEqual(prompts)
  })

  it('holds memory for the tokens, not for their square', () => {
    const store = new PromptStore()
    const placed = Array.from({ length: 200 }, (_, turn) =>
      store.place(new Uint32Array(10 * (turn + 1)), { extendsLast: turn > 0 }),
    )
    const numBytes = [...new Set(placed.map(({ buffer }) => buffer))].reduce(
      (sum, one) => sum + one.byteLength,
      0,
    )
    expect(numBytes).toBeLessThan(4 * 4 * 2000)
  })

  it('begins anew with a prompt that does not extend the last, and leaves that one alone', () => {
    const store = new PromptStore()
    const first = store.place(Uint32Array.of(1, 2, 3), { extendsLast: false })
    const second = store.place(Uint32Array.of(7, 8), { extendsLast: false })
    const third = store.place(Uint32Array.of(7, 8, 9), { extendsLast: true })
    expect([[...first], [...second], [...third]]).toEqual([
      [1, 2, 3],
      [7, 8],
      [7, 8, 9],
    ])
  })
})

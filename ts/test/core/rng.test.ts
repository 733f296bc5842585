import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/rng.js'

describe('Rng', () => {
  it('gives the known answers of Philox4x32-10 for seed 0', () => {
    using rng = Rng.fromSeed(0)
    const words = Array.from({ length: 4 }, () => rng.nextU32())
    expect(words).toEqual([0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8])
  })

  it('gives the same stream for the same name and another for another', () => {
    using rng = Rng.fromSeed(7)
    using draws = rng.stream('draws')
    using again = rng.stream('draws')
    using weights = rng.stream('weights')
    const first = draws.nextU32()
    expect(again.nextU32()).toBe(first)
    expect(weights.nextU32()).not.toBe(first)
  })

  it('does not advance when it forks', () => {
    using rng = Rng.fromSeed(7)
    const before = rng.state
    rng.fork(3)[Symbol.dispose]()
    expect(rng.state).toEqual(before)
  })

  it('draws at a path what forks one below the other draw, and does not advance', () => {
    using rng = Rng.fromSeed(7)
    const before = rng.state
    for (const path of [[], [3], [3, 0, 2 ** 53 - 1]]) {
      using fork = path.reduce((parent, index) => parent.fork(index), Rng.fromSeed(7))
      expect(rng.belowAt(path, Number.MAX_SAFE_INTEGER)).toBe(fork.below(Number.MAX_SAFE_INTEGER))
    }
    expect(rng.state).toEqual(before)
    expect(() => rng.belowAt([1, -1], 6)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(() => rng.belowAt([1], 0)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })

  it('continues at every position from a state that went through JSON', () => {
    using rng = Rng.fromSeed(2 ** 53 - 1).stream('long')
    for (let drawn = 0; drawn < 9; drawn++) {
      using resumed = Rng.fromState(JSON.parse(JSON.stringify(rng.state)))
      expect(resumed.nextU32()).toBe(rng.nextU32())
    }
  })

  it('spreads bounded integers evenly', () => {
    using rng = Rng.fromSeed(11)
    const counts = new Float64Array(7)
    for (let drawn = 0; drawn < 14_000; drawn++) {
      const face = rng.below(7)
      counts[face] = (counts[face] ?? 0) + 1
    }
    const chiSquare = counts.reduce((sum, count) => sum + (count - 2_000) ** 2 / 2_000, 0)
    expect(chiSquare).toBeLessThan(22.46) // 6 degrees of freedom, p = 0.001
  })

  it('draws uniform numbers below 1 and normals around 0', () => {
    using rng = Rng.fromSeed(3)
    const uniforms = Array.from({ length: 4_000 }, () => rng.uniform())
    expect(Math.max(...uniforms)).toBeLessThan(1)
    expect(Math.min(...uniforms)).toBeGreaterThanOrEqual(0)
    const normals = Array.from({ length: 4_000 }, () => rng.normal())
    const mean = normals.reduce((sum, value) => sum + value, 0) / normals.length
    expect(Math.abs(mean)).toBeLessThan(0.07) // 4 standard errors
  })

  it('permutes every index once', () => {
    using rng = Rng.fromSeed(5)
    const order = rng.permutation(100)
    expect(order).toBeInstanceOf(Uint32Array)
    expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, index) => index))
    expect([...order]).not.toEqual(Array.from({ length: 100 }, (_, index) => index))
    expect(rng.permutation(0)).toHaveLength(0)
  })

  it.each([-1, 0.5, Number.NaN, 2 ** 53])('refuses the seed %s', (seed) => {
    expect(() => Rng.fromSeed(seed)).toThrow(
      expect.objectContaining({
        code: 'OUT_OF_RANGE',
        message: expect.stringMatching(/^seed must be an integer/),
      }),
    )
  })

  it('refuses bounds, indices and counts outside their range', () => {
    using rng = Rng.fromSeed(1)
    expect(() => rng.below(0)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(() => rng.fork(-1)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(() => rng.permutation(1.5)).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(() => rng.permutation(2 ** 24 + 1)).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
  })

  it.each(['7', '0x', '0xg', '0x11111111111111111'])('refuses the state word %s', (key) => {
    expect(() => Rng.fromState({ key, stream: '0x0', wordIndex: '0x0' })).toThrow(
      expect.objectContaining({ code: 'MALFORMED', message: expect.stringMatching(/^state\.key must be/) }),
    )
  })

  it('says CLOSED once disposed, and may be disposed twice', () => {
    const rng = Rng.fromSeed(1)
    rng[Symbol.dispose]()
    rng[Symbol.dispose]()
    expect(() => rng.nextU32()).toThrow(
      expect.objectContaining({ code: 'CLOSED', message: 'Rng must be open: it was disposed' }),
    )
  })
})

import { describe, expect, it } from 'vitest'
import { findStartStopTraj } from '../../src/replay/index.js'
import { Tensor } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'

const flags = (bits: readonly number[], ...shape: number[]) =>
  Tensor.from(Uint8Array.from(bits), { dtype: 'bool', ...(shape.length > 0 && { shape }) })

describe('findStartStopTraj', () => {
  it.each([
    [true, 4, [8, 3, 5], [2, 4, 7], [5, 2, 3]],
    [false, undefined, [0, 3, 8], [2, 7, 9], [3, 5, 2]],
  ])('cuts a ring behind flags: full is %s', (atCapacity, cursor, start, stop, length) => {
    const end = flags([0, 0, 1, 0, 0, 0, 0, 1, 0, 0])
    const found = findStartStopTraj({ end, atCapacity, ...(cursor !== undefined && { cursor }) })
    expect(found.map((one) => one.start[0])).toEqual(start)
    expect(found.map((one) => one.stop[0])).toEqual(stop)
    expect(found.map((one) => one.length)).toEqual(length)
  })

  it('cuts each lane by its ids', () => {
    const ids = [0, 3, 0, 3, 1, 3, 1, 4, 1, 4]
    const trajectory = Tensor.from(BigInt64Array.from(ids, BigInt), { shape: [5, 2] })
    expect(findStartStopTraj({ trajectory, atCapacity: false })).toEqual([
      { start: [0, 0], stop: [1, 0], length: 2 },
      { start: [2, 0], stop: [4, 0], length: 3 },
      { start: [0, 1], stop: [2, 1], length: 3 },
      { start: [3, 1], stop: [4, 1], length: 2 },
    ])
  })

  it('says where a lane of several dimensions lies', () => {
    const end = flags([1, 1, 1, 1, 1, 1], 1, 2, 3)
    expect(findStartStopTraj({ end, atCapacity: false }).map(({ start }) => start)).toEqual([
      [0, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
      [0, 1, 1],
      [0, 0, 2],
      [0, 1, 2],
    ])
  })

  it('refuses what holds no trajectory', () => {
    const end = flags([1, 0])
    expect(codeOf(() => findStartStopTraj({ atCapacity: true }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => findStartStopTraj({ end, trajectory: end, atCapacity: true }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => findStartStopTraj({ end: flags([]), atCapacity: true }))).toBe('EMPTY')
    expect(codeOf(() => findStartStopTraj({ end: end.at(0), atCapacity: true }))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => findStartStopTraj({ end, atCapacity: true, cursor: 2 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => findStartStopTraj({ end, atCapacity: true, cursors: 0 } as never))).toBe(
      'UNKNOWN_NAME',
    )
  })
})

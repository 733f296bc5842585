import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { H5Combine, H5Split, Nested2TED, readHdf5, TED2Nested, writeHdf5 } from '../../src/ted/index.js'
import { TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { drawnRing, ringOf } from './ring.js'

describe('H5Split and H5Combine', () => {
  it('bring every ring back, through a file too', () => {
    fc.assert(
      fc.property(drawnRing, (drawn) => {
        const { steps, ring } = ringOf(drawn)
        const split = new H5Split().forward(new TED2Nested().forward(steps, ring))
        const nested = new H5Combine().forward(readHdf5(writeHdf5(split)))
        expect(new Nested2TED().forward(nested).equals(steps)).toBe(true)
      }),
      { numRuns: 40 },
    )
  })

  it('number trajectories so that names sort like numbers', () => {
    const { steps } = ringOf({ capacity: 12, ends: Array(12).fill(true) })
    const split = new H5Split().forward(new TED2Nested().forward(steps))
    const names = split.keys().filter((name) => name.startsWith('traj_'))
    expect(names).toEqual([...names].sort())
    expect([names[0], names.length]).toEqual(['traj_00', 12])
  })

  it('refuse other keys than those of the ring, and what is no such form', () => {
    const { steps } = ringOf({ capacity: 3, ends: [false, true, false] })
    const split = new H5Split({ shiftKey: 'at' }).forward(new TED2Nested({ shiftKey: 'at' }).forward(steps))
    expect(new H5Combine({ shiftKey: 'at' }).forward(split).has('at')).toBe(true)
    expect(codeOf(() => new H5Combine().forward(split))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => new H5Split(JSON.parse('{"doneKey": "done"}')))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => new H5Split().forward(TensorDict.from()))).toBe('UNKNOWN_NAME')
  })
})

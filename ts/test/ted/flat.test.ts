import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Flat2TED, TED2Flat, type TEDOptions } from '../../src/ted/index.js'
import { Tensor } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'
import { drawnRing, ringOf } from './ring.js'

describe('TED2Flat and Flat2TED', () => {
  it('bring every ring back, and keep each observation once', () => {
    fc.assert(
      fc.property(drawnRing, (drawn) => {
        const { steps, ring, numRows } = ringOf(drawn)
        const flat = new TED2Flat().forward(steps, ring)
        expect(flat.tensor('action').shape).toEqual([drawn.capacity])
        expect(flat.tensor('observation').shape).toEqual([numRows])
        expect(new Flat2TED().forward(flat).equals(steps)).toBe(true)
      }),
      { numRuns: 60 },
    )
  })

  it('say where the ring stood under the keys that they are given', () => {
    const { steps, ring } = ringOf({ capacity: 3, ends: [false, true, false, false] })
    const keys: TEDOptions = { shiftKey: ['meta', 'at'], isFullKey: 'whole' }
    const flat = new TED2Flat(keys).forward(steps, ring)
    expect([flat.get(['meta', 'at']), flat.get('whole')]).toMatchObject([{ value: 1 }, { value: true }])
    expect(flat.has('shift') || flat.has('is_full')).toBe(false)
    expect(new Flat2TED(keys).forward(flat).equals(steps)).toBe(true)
    expect(codeOf(() => new Flat2TED().forward(flat))).toBe('UNKNOWN_NAME')
  })

  it('take a whole ring that begins with the oldest step, unless told', () => {
    const { steps } = ringOf({ capacity: 3, ends: [false, true, false] })
    const flat = new TED2Flat().forward(steps)
    expect(flat.equals(new TED2Flat().forward(steps, { shift: 0, isFull: true }))).toBe(true)
    expect(flat.tensor('observation').data).toEqual(Float32Array.of(0, 1, 2, 10, 11))
  })

  it('know ends and rewards by other names', () => {
    const { steps } = ringOf({ capacity: 2, ends: [true, false] })
    const renamed = steps
      .rename(['next', 'done'], ['next', 'over'])
      .rename(['next', 'reward'], ['next', 'gain'])
      .exclude(['done'])
    const keys: TEDOptions = { doneKey: 'over', doneKeys: ['over'], rewardKeys: ['gain'] }
    const flat = new TED2Flat(keys).forward(renamed)
    expect(flat.tensor('gain').data).toEqual(Float32Array.of(0.5, 0.5))
    expect(codeOf(() => new TED2Flat().forward(renamed))).toBe('UNKNOWN_NAME')
  })

  it.each<[string, object, object]>([
    ['UNKNOWN_NAME', { doneKeyz: 'done' }, {}],
    ['UNKNOWN_NAME', {}, { cursor: 1 }],
    ['MALFORMED', { shiftKey: [1] }, {}],
    ['MALFORMED', {}, { shift: -1 }],
    ['MALFORMED', {}, { isFull: 'yes' }],
    ['OUT_OF_RANGE', {}, { shift: 4 }],
    ['EMPTY', {}, { shift: 0, isFull: false }],
    ['INCOMPATIBLE', { shiftKey: 'action' }, {}],
  ])('refuse with %s the options %j and the ring %j', (code, options, ring) => {
    const { steps } = ringOf({ capacity: 3, ends: [false, true, false] })
    expect(codeOf(() => new TED2Flat(options).forward(steps, ring))).toBe(code)
  })

  it('refuse steps that the form would not bring back', () => {
    const { steps } = ringOf({ capacity: 3, ends: [false, true, false] })
    steps.set(['next', 'observation'], Tensor.from([9, 9, 9]))
    expect(codeOf(() => new TED2Flat().forward(steps))).toBe('INCOMPATIBLE')
    expect(codeOf(() => new Flat2TED().forward(steps))).toBe('UNKNOWN_NAME')
  })
})

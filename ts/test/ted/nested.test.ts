import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Flat2TED, Nested2TED, TED2Flat, TED2Nested } from '../../src/ted/index.js'
import { codeOf } from '../tensor/code-of.js'
import { drawnRing, ringOf } from './ring.js'

describe('TED2Nested and Nested2TED', () => {
  it('bring every ring back, and hold what the flat form holds', () => {
    fc.assert(
      fc.property(drawnRing, (drawn) => {
        const { steps, ring } = ringOf(drawn)
        const [nested, flat] = [new TED2Nested().forward(steps, ring), new TED2Flat().forward(steps, ring)]
        for (const key of ['observation', 'action', 'reward', 'done']) {
          expect(nested.ragged(key).values.equals(flat.tensor(key))).toBe(true)
        }
        expect(new Nested2TED().forward(nested).equals(steps)).toBe(true)
        expect(new Flat2TED().forward(flat).equals(steps)).toBe(true)
      }),
      { numRuns: 60 },
    )
  })

  it('refuse a form of another kind', () => {
    const { steps, ring } = ringOf({ capacity: 3, ends: [false, true, false] })
    const flat = new TED2Flat().forward(steps, ring)
    const nested = new TED2Nested().forward(steps, ring)
    expect(codeOf(() => new Nested2TED().forward(flat))).toBe('INCOMPATIBLE')
    expect(codeOf(() => new Flat2TED().forward(nested))).toBe('INCOMPATIBLE')
    expect(codeOf(() => new Nested2TED().forward(steps))).toBe('UNKNOWN_NAME')
  })
})

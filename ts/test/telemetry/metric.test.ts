import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { metric, type Reducer, reduceMetrics } from '../../src/telemetry/index.js'

describe('reduceMetrics', () => {
  it('gives one number per key and statistic', () => {
    const values = [1, 2, 6]
    const reducers: Reducer[] = ['mean', 'max', 'min', 'sum', 'std', 'summary', 'single']
    const reduce = (reducer: Reducer) =>
      reduceMetrics([metric('x', reducer, reducer === 'single' ? 4 : values)]).values
    expect(reducers.map(reduce)).toEqual([
      { 'x/mean': 3 },
      { 'x/max': 6 },
      { 'x/min': 1 },
      { 'x/sum': 9 },
      { 'x/std': Math.sqrt(14 / 3) },
      { 'x/mean': 3, 'x/max': 6, 'x/min': 1, 'x/std': Math.sqrt(14 / 3), 'x/sum': 9 },
      { x: 4 },
    ])
  })

  it('treats many contributions as one list', () => {
    const parts = fc.array(fc.array(fc.integer({ min: -1000, max: 1000 }), { maxLength: 5 }), {
      maxLength: 6,
    })
    fc.assert(
      fc.property(
        parts,
        fc.constantFrom<Reducer>('mean', 'max', 'min', 'sum', 'std', 'summary'),
        (lists, reducer) => {
          const apart = reduceMetrics(lists.map((list) => metric('x', reducer, list)))
          expect(apart).toEqual(reduceMetrics([metric('x', reducer, lists.flat())]))
        },
      ),
    )
  })

  it('leaves out a key without values, and never lets an empty contribution erase a maximum', () => {
    expect(reduceMetrics([metric('x', 'max', [])]).values).toEqual({})
    expect(
      reduceMetrics([metric('x', 'max', []), metric('x', 'max', -5), metric('x', 'max', [])]).values,
    ).toEqual({
      'x/max': -5,
    })
  })

  it('drops NaN and says how many', () => {
    const reduced = reduceMetrics([metric('x', 'mean', [1, Number.NaN, 3]), metric('y', 'mean', Number.NaN)])
    expect(reduced).toEqual({ values: { 'x/mean': 2 }, droppedNaN: { x: 1, y: 1 } })
  })

  it('refuses two metrics of one logged name', () => {
    const incompatible = expect.objectContaining({ code: 'INCOMPATIBLE' })
    expect(() => reduceMetrics([metric('x', 'single', 1), metric('x', 'single', 2)])).toThrow(incompatible)
    expect(() => reduceMetrics([metric('x', 'summary', 1), metric('x', 'mean', 2)])).toThrow(incompatible)
    expect(() => reduceMetrics([metric('x/mean', 'single', 1), metric('x', 'mean', 2)])).toThrow(incompatible)
  })
})

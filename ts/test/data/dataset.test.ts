import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Dataset, generatedDataset, listDataset, positionedDataset } from '../../src/data/index.js'

const take = <T>(dataset: Dataset<T>, count: number): T[] =>
  Array.from({ length: count }, () => dataset.next())

const dice = (seed: number, name = 'dice') =>
  generatedDataset({ seed, name, make: (rng) => `${rng.below(1000)} ${rng.below(1000)}` })

describe('Dataset', () => {
  const makers: [string, () => Dataset<unknown>][] = [
    ['generatedDataset', () => dice(7)],
    ['listDataset', () => listDataset({ items: ['a', 'b', 'c'] })],
    ['a shuffled listDataset', () => listDataset({ items: [1, 2, 3, 4, 5], shuffleSeed: 3 })],
    ['positionedDataset', () => positionedDataset((position) => position)],
  ]

  it.each(makers)('%s goes on after a resume as if it had never stopped', (_, make) => {
    fc.assert(
      fc.property(fc.nat({ max: 20 }), (numTaken) => {
        const whole = make()
        take(whole, numTaken)
        const state: unknown = JSON.parse(JSON.stringify(whole.stateDict()))
        const resumed = make()
        take(resumed, 2)
        resumed.loadStateDict(state)
        expect(take(resumed, 8)).toEqual(take(whole, 8))
      }),
    )
  })

  it.each(makers)('%s refuses a state that is none', (_, make) => {
    const load = (state: unknown) => () => make().loadStateDict(state)
    expect(load(null)).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
    expect(load({})).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(load({ position: 1.5 })).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
    expect(load({ position: 1, postion: 2 })).toThrow(/did you mean 'position'/)
  })
})

describe('generatedDataset', () => {
  it('is fixed by seed and name', () => {
    expect(take(dice(7), 5)).toEqual(take(dice(7), 5))
    expect(take(dice(8), 5)).not.toEqual(take(dice(7), 5))
    expect(take(dice(7, 'other'), 5)).not.toEqual(take(dice(7), 5))
  })
})

describe('listDataset', () => {
  it('repeats a list as it is, or each pass in an order of its own', () => {
    expect(take(listDataset({ items: new Set(['a', 'b']) }), 5)).toEqual(['a', 'b', 'a', 'b', 'a'])
    const items = Array.from({ length: 20 }, (_, index) => index)
    const shuffled = listDataset({ items, shuffleSeed: 1 })
    const [first, second] = [take(shuffled, 20), take(shuffled, 20)]
    expect([...first].sort((a, b) => a - b)).toEqual(items)
    expect([...second].sort((a, b) => a - b)).toEqual(items)
    expect(second).not.toEqual(first)
  })

  it('keeps samples that are undefined', () => {
    expect(take(listDataset({ items: [undefined, 1] }), 3)).toEqual([undefined, 1, undefined])
  })

  it('refuses an empty list', () => {
    expect(() => listDataset({ items: [] })).toThrow(expect.objectContaining({ code: 'EMPTY' }))
  })

  it('does not see later changes of its list', () => {
    const items = ['a', 'b']
    const dataset = listDataset({ items })
    items.length = 0
    expect(dataset.next()).toBe('a')
  })
})

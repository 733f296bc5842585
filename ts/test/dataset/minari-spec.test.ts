import { describe, expect, it } from 'vitest'
import { specOf } from '../../src/dataset/minari-spec.js'
import {
  Binary,
  BoundedContinuous,
  BoundedDiscrete,
  Categorical,
  Composite,
  MultiCategorical,
  NonTensor,
  UnboundedContinuous,
  UnboundedDiscrete,
} from '../../src/spec/index.js'
import type { Json } from '../../src/tensor/index.js'
import { failing } from '../torchrl/envs/chats.js'

const specIn = (space: Json) => specOf(space, 'observation_space')
const box = (low: Json, high: Json, shape: number[], dtype = 'float32') => ({
  type: 'Box',
  low,
  high,
  shape,
  dtype,
})

describe('specOf', () => {
  it('bounds a box, and leaves one without numbers unbounded', () => {
    const spec = specIn(box([-1, '-Infinity'], [1, 'Infinity'], [2])) as BoundedContinuous
    expect(spec).toBeInstanceOf(BoundedContinuous)
    expect([[...spec.low.data], [...spec.high.data]]).toEqual([
      [-1, Number.NEGATIVE_INFINITY],
      [1, Number.POSITIVE_INFINITY],
    ])
    const free = box(['-Infinity', '-Infinity'], ['Infinity', 'Infinity'], [2], 'float64')
    expect(specIn(free)).toBeInstanceOf(UnboundedContinuous)
    expect((specIn(free) as UnboundedContinuous<'f64'>).dtype).toBe('f64')
    const pixels = specIn(box([[0, 0]], [[255, 255]], [1, 2], 'uint8')) as BoundedDiscrete<'u8'>
    expect(pixels).toBeInstanceOf(BoundedDiscrete)
    expect([pixels.dtype, pixels.shape]).toEqual(['u8', [1, 2]])
    expect(specIn(box('-Infinity', 'Infinity', [], 'int64'))).toBeInstanceOf(UnboundedDiscrete)
  })

  it('counts the choices of discrete spaces', () => {
    expect((specIn({ type: 'Discrete', n: 4 }) as Categorical).cardinality()).toBe(4n)
    const shifted = specIn({ type: 'Discrete', n: 3, start: -1 }) as BoundedDiscrete
    expect([Number(shifted.low.data[0]), Number(shifted.high.data[0])]).toEqual([-1, 1])
    expect(specIn({ type: 'MultiDiscrete', nvec: [3, 2] })).toBeInstanceOf(MultiCategorical)
    expect(specIn({ type: 'MultiBinary', n: 3 })).toBeInstanceOf(Binary)
    expect(specIn({ type: 'MultiBinary', n: [2, 2] })?.shape).toEqual([2, 2])
  })

  it('goes into dictionaries and tuples, and takes texts and what is not described', () => {
    const spaces = {
      mission: { type: 'Text' },
      pair: { type: 'Tuple', subspaces: [{ type: 'Discrete', n: 2 }, null] },
    }
    const spec = specIn({ type: 'Dict', subspaces: spaces }) as Composite
    expect(spec).toBeInstanceOf(Composite)
    expect(spec.get('mission')).toBeInstanceOf(NonTensor)
    expect(spec.get(['pair', '0'])).toBeInstanceOf(Categorical)
    expect(specIn(null)).toBe(null)
  })

  it('refuses other spaces by their place', () => {
    const refuse = (space: Json, code: string, message: RegExp) =>
      expect(() => specIn(space)).toThrow(failing(code, message))
    refuse({ type: 'Graph' }, 'INCOMPATIBLE', /observation_space\.type must be one of Box, .*got "Graph"/)
    refuse({ type: 'constructor' }, 'INCOMPATIBLE', /got "constructor"/)
    refuse(7, 'INCOMPATIBLE', /got undefined/)
    refuse({ type: 'Dict', subspaces: { a: { type: 7 } } }, 'INCOMPATIBLE', /observation_space\.a\.type/)
    refuse({ type: 'Discrete', n: 0 }, 'OUT_OF_RANGE', /n/)
    refuse(box([0], [1, 2, 3], [2]), 'SHAPE_MISMATCH', /high|shape/)
    let deep: Json = { type: 'Discrete', n: 2 }
    for (let depth = 0; depth < 20; depth++) deep = { type: 'Dict', subspaces: { a: deep } }
    refuse(deep, 'LIMIT_EXCEEDED', /16 spaces deep/)
  })
})

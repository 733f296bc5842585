import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Rng } from '../../src/core/index.js'
import {
  Binary,
  Bounded,
  BoundedContinuous,
  BoundedDiscrete,
  Categorical,
  Choice,
  MultiCategorical,
  MultiOneHot,
  NonTensor,
  OneHot,
  Stacked,
  TensorSpec,
  Unbounded,
  UnboundedContinuous,
  UnboundedDiscrete,
} from '../../src/spec/index.js'
import { NonTensorData, NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'

/** One of every class, with masks and bounds that vary. */
const EVERY: readonly (() => TensorSpec)[] = [
  () => new Unbounded({ shape: [2, 3] }),
  () => new Unbounded({ shape: [3], dtype: 'u8' }),
  () => new Bounded([-1, 0, -5], [1, 2, 5], { shape: [2, 3] }),
  () => new Bounded(-2, 2, { shape: [2], dtype: 'i32' }),
  () => new Categorical(4),
  () => new Categorical(3, { shape: [2], mask: [true, false, true] }),
  () => new OneHot(5),
  () => new OneHot(3, { shape: [2, 3], mask: [true, true, false] }),
  () => new MultiCategorical([2, 3]),
  () => new MultiOneHot([2, 3], { shape: [4, 5] }),
  () => new Binary(3),
  () => new Choice([new Bounded(0, 1, { shape: [2] }), new Bounded(4, 5, { shape: [2] })]) as TensorSpec,
]

const anySpec = fc.constantFrom(...EVERY).map((make) => make())
const seeds = fc.integer({ min: 0, max: 2 ** 31 })

test('draws are in the domain, projections leave them alone, and a seed fixes them', () => {
  fc.assert(
    fc.property(
      anySpec,
      seeds,
      fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 2 }),
      (spec, seed, batch) => {
        const value = spec.rand(Rng.fromSeed(seed), batch) as Tensor
        expect(spec.explain(value)).toBeUndefined()
        expect(value.shape).toEqual([...batch, ...spec.shape])
        expect((spec.project(value) as Tensor).equals(value)).toBe(true)
        expect((spec.rand(Rng.fromSeed(seed), batch) as Tensor).equals(value)).toBe(true)
      },
    ),
  )
})

test('a draw moves the generator on', () => {
  using rng = Rng.fromSeed(3)
  const spec = new Unbounded({ shape: [4] })
  expect(spec.rand(rng).data).not.toEqual(spec.rand(rng).data)
})

test('plain JSON and the JSON of a spec go there and back', () => {
  fc.assert(
    fc.property(anySpec, seeds, (spec, seed) => {
      const value = spec.rand(Rng.fromSeed(seed)) as Tensor
      expect((spec.encode(spec.decode(value)) as Tensor).equals(value)).toBe(true)
      const again = TensorSpec.fromJson(JSON.parse(JSON.stringify(spec.toJson())))
      expect(again.equals(spec)).toBe(true)
      expect(again.constructor).toBe(spec.constructor)
    }),
  )
})

test('what reshapes a value reshapes its spec', () => {
  fc.assert(
    fc.property(anySpec, seeds, (spec, seed) => {
      const wide = spec.expand([4, 2, ...spec.shape])
      const value = wide.rand(Rng.fromSeed(seed)) as Tensor
      expect(wide.constructor).toBe(spec.constructor)
      expect(wide.at(-1).contains(value.select(0, 3))).toBe(true)
      expect(wide.at('...').equals(wide)).toBe(true)
      expect(wide.at([3, 0]).contains(value.indexSelect(0, [3, 0]))).toBe(true)
      expect(wide.at({ start: 1, stop: -1 }).contains(value.slice({ start: 1, end: 3 }))).toBe(true)
      expect(wide.at({ step: 2 }).contains(value.indexSelect(0, [0, 2]))).toBe(true)
      expect(wide.at([true, false, false, true]).contains(value.indexSelect(0, [0, 3]))).toBe(true)
      expect(wide.flatten(0, 1).contains(value.reshape([8, ...spec.shape]))).toBe(true)
      expect(wide.flatten(0, 1).unflatten(0, [4, 2]).equals(wide)).toBe(true)
      expect(wide.reshape([2, 4, ...spec.shape]).shape).toEqual([2, 4, ...spec.shape])
      expect(wide.unsqueeze(0).squeeze(0).equals(wide)).toBe(true)
      expect(TensorSpec.stack(wide.unbind(0)).equals(wide)).toBe(true)
      expect(wide.unbind(1).map((part) => part.shape)).toEqual([wide.at({}, 0).shape, wide.at({}, 1).shape])
    }),
  )
})

test('indices that are not there are refused', () => {
  const spec = new Unbounded({ shape: [2, -1] })
  for (const index of [
    [2],
    [-3],
    [0, 0, 0],
    [0, { stop: 1 }],
    [[0, 1], [0]],
    [null, '...', '...'],
  ] as const) {
    expect(codeOf(() => spec.at(...(index as unknown as never[])))).toMatch(/OUT_OF_RANGE|INCOMPATIBLE/)
  }
  expect(codeOf(() => spec.at({ step: 0 }))).toBe('OUT_OF_RANGE')
  expect(codeOf(() => spec.at([true, false, true]))).toBe('SHAPE_MISMATCH')
  expect(codeOf(() => spec.unsqueeze(4))).toBe('OUT_OF_RANGE')
  expect(codeOf(() => spec.unbind(1))).toBe('OUT_OF_RANGE')
  expect(codeOf(() => spec.expand([3, 3, 4]))).toBe('SHAPE_MISMATCH')
})

test('a wrong value is explained by path, rule, expectation and what it is', () => {
  const spec = new Bounded(0, 1, { shape: [2] })
  const of = (value: Tensor) => spec.explain(value)
  expect(of(Tensor.from([0, 7]))).toEqual({ path: [], rule: 'domain', expected: 'from 0 to 1', got: '7' })
  expect(of(Tensor.from([0]))).toMatchObject({ rule: 'shape', expected: 'end with [2]', got: '[1]' })
  expect(of(Tensor.from(Int32Array.of(0, 1)))).toMatchObject({ rule: 'dtype', expected: 'f32', got: 'i32' })
  expect(of(Tensor.from([0, Number.NaN]))?.rule).toBe('domain')
  expect(new Unbounded({ shape: [] }).explain(Tensor.from([Number.NaN], { shape: [] }))?.rule).toBe('nan')
  expect(spec.explain(TensorDict.from())).toMatchObject({ rule: 'kind', expected: 'a tensor', got: 'dict' })
  expect(() => spec.check(Tensor.from([0, 7]))).toThrow('value must be from 0 to 1: got 7')
})

test('a stack explains which of its specs a value breaks', () => {
  const spec = new Stacked([new Categorical(2), new Categorical(9)])
  const value = Tensor.from(BigInt64Array.of(1n, 9n))
  expect(spec.explain(value)).toMatchObject({ path: [1], rule: 'domain', got: '9' })
})

test('all values are enumerated and counted', () => {
  const five = new Categorical(5, { shape: [3] })
  expect(five.decode(five.enumerate())).toEqual([0, 1, 2, 3, 4].map((value) => [value, value, value]))
  expect(new MultiOneHot([3, 4, 5]).enumerate().shape).toEqual([60, 12])
  expect(new Binary(10).cardinality()).toBe(1024n)
  expect(new Binary(127).cardinality()).toBe(2n ** 127n)
  expect(new Unbounded().cardinality()).toBeUndefined()
  const masked = new Categorical(3, { mask: [true, false, true] })
  expect(masked.enumerate({ useMask: true }).data).toEqual(BigInt64Array.of(0n, 2n))
  expect(codeOf(() => new Unbounded().enumerate())).toBe('INCOMPATIBLE')
  expect(codeOf(() => new MultiCategorical([1 << 15, 1 << 15]).enumerate())).toBe('LIMIT_EXCEEDED')
})

test('masks are set, kept by structure and taken away', () => {
  const spec = new OneHot(3, { shape: [2, 3] })
  expect(spec.mask).toBeUndefined()
  const mask = Tensor.from(Uint8Array.of(1, 0, 0, 0, 1, 1), { shape: [2, 3], dtype: 'bool' })
  spec.updateMask(mask)
  expect(spec.at(0).mask?.data).toEqual(Uint8Array.of(1, 0, 0))
  expect(
    spec
      .at(0)
      .rand(Rng.fromSeed(1), [50])
      .data.filter((_, at) => at % 3 > 0),
  ).not.toContain(1)
  const none = Tensor.from(Uint8Array.of(0, 0, 0), { dtype: 'bool' })
  expect(codeOf(() => spec.updateMask(none))).toBe('EMPTY')
  expect(spec.mask?.equals(mask)).toBe(true)
  expect(spec.updateMask(undefined).mask).toBeUndefined()
  expect(spec.clone().updateMask(mask).equals(spec)).toBe(false)
})

test('choices are written as indices and as blocks', () => {
  const action = new Categorical(3)
  const blocks = action.toOneHot(Tensor.from(BigInt64Array.of(2n, 0n)))
  expect(blocks.data).toEqual(Uint8Array.of(0, 0, 1, 1, 0, 0))
  expect(action.toOneHotSpec().contains(blocks)).toBe(true)
  expect(action.toOneHotSpec().toCategoricalSpec().equals(action)).toBe(true)
  expect(new OneHot(3).toCategorical(blocks).data).toEqual(BigInt64Array.of(2n, 0n))
  expect(codeOf(() => action.toOneHot(Tensor.from(BigInt64Array.of(3n))))).toBe('OUT_OF_RANGE')
  const table = Tensor.from([-1, 0, 1])
  expect(new OneHot(3).index(blocks, table).data).toEqual(Float32Array.of(1, -1))
  expect(codeOf(() => action.index(Tensor.from(BigInt64Array.of(0n)), Tensor.from([1])))).toBe(
    'SHAPE_MISMATCH',
  )
  expect(codeOf(() => new MultiCategorical([2]).index(Tensor.from(BigInt64Array.of(0n)), table))).toBe(
    'INCOMPATIBLE',
  )
})

test('bounds are read back, infinities and all', () => {
  const spec = new Bounded(Number.NEGATIVE_INFINITY, [1, 2], { dtype: 'f64' })
  expect([spec.low.data, spec.high.data, spec.shape]).toEqual([
    Float64Array.of(Number.NEGATIVE_INFINITY),
    Float64Array.of(1, 2),
    [2],
  ])
  const wide = new Bounded(Tensor.from(BigInt64Array.of(-(2n ** 63n)), { shape: [] }), 2n ** 63n - 1n, {
    shape: [],
    dtype: 'i64',
  })
  expect(wide.high.data).toEqual(BigInt64Array.of(2n ** 63n - 1n))
  const infinite = new Unbounded({ shape: [1] })
  const value = infinite.encode([Number.NEGATIVE_INFINITY])
  expect(infinite.decode(value)).toEqual([Number.NEGATIVE_INFINITY])
  expect(
    new MultiCategorical([
      [2, 3],
      [4, 5],
    ]).nvec.shape,
  ).toEqual([2, 2])
})

test('JSON values are kept as they are', () => {
  const spec = new NonTensor({ shape: [2], example: { a: [1] }, batched: true })
  expect([spec.example, spec.batched, spec.dtype]).toEqual([{ a: [1] }, true, undefined])
  const drawn = spec.rand(Rng.fromSeed(1), [3]) as NonTensorStack
  expect(drawn.values).toHaveLength(3)
  expect(spec.contains(drawn)).toBe(true)
  expect(spec.contains(new NonTensorStack(['x', 'y', 'z']))).toBe(false)
  expect(spec.encode(['x', 'y'])).toEqual(new NonTensorStack(['x', 'y']))
  expect(codeOf(() => spec.cardinality())).toBe('INCOMPATIBLE')
  const words = new Choice([new NonTensorData('a'), new NonTensorData('b')])
  expect(words.contains(words.rand(Rng.fromSeed(1)))).toBe(true)
  expect(words.explain(new NonTensorData('c'))?.rule).toBe('domain')
})

test('bad constructions are refused with a code', () => {
  const refusals: [string, () => unknown][] = [
    ['OUT_OF_RANGE', () => new Categorical(0)],
    ['OUT_OF_RANGE', () => new Categorical(300, { dtype: 'u8' })],
    ['MALFORMED', () => new Categorical(1.5)],
    ['OUT_OF_RANGE', () => new Bounded(1, 0, { shape: [] })],
    ['OUT_OF_RANGE', () => new Bounded(Number.NaN, 0, { shape: [] })],
    ['SHAPE_MISMATCH', () => new Bounded(0, 1)],
    ['SHAPE_MISMATCH', () => new Bounded([0, 1], 1, { shape: [3] })],
    ['SHAPE_MISMATCH', () => new OneHot(3, { shape: [4] })],
    ['EMPTY', () => new MultiCategorical([])],
    ['SHAPE_MISMATCH', () => new Binary()],
    ['MALFORMED', () => new Unbounded({ dtype: 'f31' as 'f32' })],
    ['UNKNOWN_NAME', () => new Unbounded({ shap: [1] } as object)],
    ['INCOMPATIBLE', () => new UnboundedContinuous({ dtype: 'i64' as 'f32' })],
    ['INCOMPATIBLE', () => new UnboundedDiscrete({ dtype: 'f32' as 'i64' })],
    ['INCOMPATIBLE', () => new BoundedContinuous(0, 1, { dtype: 'i64' as 'f32' })],
    ['INCOMPATIBLE', () => new BoundedDiscrete(0, 1, { dtype: 'f32' as 'i64' })],
    ['MALFORMED', () => new Unbounded({ shape: [-2] })],
    ['EMPTY', () => new Choice([])],
    ['MALFORMED', () => new Choice('abc' as never)],
    ['MALFORMED', () => new Choice([1, 2] as never)],
    ['INCOMPATIBLE', () => new Choice([new Categorical(2), new OneHot(2)])],
    ['SHAPE_MISMATCH', () => new Choice([new Categorical(2), new Categorical(2, { shape: [1] })])],
    ['EMPTY', () => TensorSpec.stack([])],
    ['INCOMPATIBLE', () => TensorSpec.stack([new Categorical(2), new OneHot(2)])],
    ['UNKNOWN_NAME', () => TensorSpec.fromJson({ type: 'Nothing' })],
    ['MALFORMED', () => TensorSpec.fromJson('{')],
    ['LIMIT_EXCEEDED', () => new Unbounded({ shape: [2 ** 29] }).zero()],
  ]
  for (const [code, make] of refusals)
    expect([codeOf(make), make.toString()]).toEqual([code, make.toString()])
})

test('a disposed spec says so', () => {
  const spec = new Categorical(2)
  spec[Symbol.dispose]()
  spec[Symbol.dispose]()
  expect(codeOf(() => spec.zero())).toBe('CLOSED')
})

test('a spec is cast leaf by leaf, as far as it keeps its values', () => {
  expect(new Categorical(200).to('u8').dtype).toBe('u8')
  expect(codeOf(() => new Categorical(300).to('u8'))).toBe('OUT_OF_RANGE')
})

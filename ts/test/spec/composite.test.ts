import { expect, test } from 'vitest'
import { Rng } from '../../src/core/index.js'
import {
  Binary,
  Bounded,
  Categorical,
  Composite,
  checkNoExclusiveKeys,
  consolidateSpec,
  containsLazySpec,
  makeCompositeFromTd,
  NonTensor,
  OneHot,
  StackedComposite,
  TensorSpec,
  Unbounded,
} from '../../src/spec/index.js'
import { NonTensorData, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from '../tensor/code-of.js'

const step = () =>
  new Composite({
    observation: new Unbounded({ shape: [4] }),
    action: new OneHot(3),
    next: new Composite({ done: new Binary(1, { dtype: 'bool' }) }),
  })

test('keys are set, read, merged and taken out', () => {
  const spec: Composite = step()
  expect(spec.keys()).toEqual(['observation', 'action', 'next'])
  expect(spec.nestedKeys()).toEqual([['observation'], ['action'], ['next', 'done'], ['next']])
  expect(spec.leafKeys()).toEqual([['observation'], ['action'], ['next', 'done']])
  spec.set(['next', 'deep', 'x'], new Categorical(2)).set('any', null)
  expect(spec.get(['next', 'deep', 'x'])).toBeInstanceOf(Categorical)
  expect([spec.get('any'), spec.get('none'), spec.has('any'), spec.has('none')]).toEqual([
    null,
    undefined,
    true,
    false,
  ])
  spec.update({ action: new Categorical(9), next: new Composite({ reward: new Unbounded() }) })
  expect(spec.get('action')).toBeInstanceOf(Categorical)
  expect(spec.leafKeys()).toContainEqual(['next', 'done'])
  expect(spec.leafKeys()).toContainEqual(['next', 'reward'])
  expect(spec.pop('observation')).toBeInstanceOf(Unbounded)
  expect(codeOf(() => spec.pop('observation'))).toBe('UNKNOWN_NAME')
  expect(() => new Composite({}).pop('action')).toThrow(
    'key must be one of the entries, and there are none: got action',
  )
  expect([spec.delete(['next', 'reward']), spec.delete('none')]).toEqual([true, false])
  const apart = spec.separates('action', ['next', 'done'], 'none')
  expect(apart.nestedKeys()).toEqual([['action'], ['next', 'done'], ['next']])
  expect(spec.has(['next', 'done'])).toBe(false)
  expect([spec.isEmpty, spec.empty().isEmpty]).toEqual([false, true])
})

test('what comes out is a copy', () => {
  const spec: Composite = step()
  const next = spec.get('next') as Composite
  next.set('more', null)
  expect(spec.has(['next', 'more'])).toBe(false)
  expect(spec.clone().set('more', null).equals(spec)).toBe(false)
})

test('an error leaves everything as it was', () => {
  const spec: Composite = new Composite({ a: new Unbounded({ shape: [2, 3] }) }, { shape: [2] })
  for (const [key, entry, code] of [
    ['b', new Unbounded({ shape: [3] }), 'SHAPE_MISMATCH'],
    ['shape', null, 'OUT_OF_RANGE'],
    [['a', 'x'], null, 'INCOMPATIBLE'],
    [[], null, 'EMPTY'],
  ] as const) {
    expect(codeOf(() => spec.set(key, entry))).toBe(code)
  }
  expect(codeOf(() => spec.update({ c: new Unbounded({ shape: [2] }), device: null }))).toBe('OUT_OF_RANGE')
  expect(spec.keys()).toEqual(['a'])
  expect(() => new Composite({ b: new Unbounded() }, { shape: [2] })).toThrow(
    '"b": shape must begin with the batch size [2]: got [1]',
  )
})

test('a locked dictionary keeps its entries, and so does what is taken out of it', () => {
  const spec: Composite = step().lock()
  expect(spec.isLocked).toBe(true)
  for (const change of [
    () => spec.set('x', null),
    () => spec.set(['next', 'x'], null),
    () => spec.delete('action'),
    () => spec.pop('action'),
    () => spec.update({}),
    () => (spec.get('next') as Composite).set('x', null),
    () => (spec.get('next') as Composite).unlock(),
  ]) {
    expect(codeOf(change)).toBe('CLOSED')
  }
  expect(spec.equals(step())).toBe(true)
  expect(spec.expand([2]).isLocked).toBe(false)
  spec.unlock().lock({ recurse: false })
  expect(codeOf(() => spec.set('x', null))).toBe('CLOSED')
  expect(spec.set(['next', 'x'], null).has(['next', 'x'])).toBe(true)
  expect(spec.unlock().set('x', null).has('x')).toBe(true)
})

test('names go with their dimensions', () => {
  const spec = new Composite({ x: new Unbounded({ shape: [2, 3] }) }, { shape: [2, 3], names: ['a', 'b'] })
  expect(spec.expand([5, 2, 3]).names).toEqual([null, 'a', 'b'])
  expect(spec.unsqueeze(1).names).toEqual(['a', null, 'b'])
  expect(spec.unsqueeze(0).squeeze(0).names).toEqual(['a', 'b'])
  expect(spec.at(0).names).toEqual(['b'])
  expect(spec.at({}, [0, 2]).names).toEqual(['a', 'b'])
  expect(spec.unbind(1)[0]?.names).toEqual(['a'])
  expect(spec.reshape([6]).names).toBeUndefined()
  expect(TensorSpec.stack([spec, spec], 1)).toHaveProperty('names', ['a', null, 'b'])
  expect(spec.clone().names).toEqual(['a', 'b'])
  expect(spec.equals(new Composite({ x: new Unbounded({ shape: [2, 3] }) }, { shape: [2, 3] }))).toBe(false)
  expect(TensorSpec.fromJson(spec.toJson()).equals(spec)).toBe(true)
  expect(spec.refineNames(null, 'b').names).toEqual(['a', 'b'])
  expect(codeOf(() => spec.refineNames('c', 'b'))).toBe('INCOMPATIBLE')
  expect(codeOf(() => spec.refineNames('a'))).toBe('SHAPE_MISMATCH')
  expect(codeOf(() => spec.refineNames('...', 'a', 'b', 'c'))).toMatch(/SHAPE_MISMATCH|INCOMPATIBLE/)
  expect(codeOf(() => new Composite({}, { shape: [2], names: ['a', 'b'] }))).toBe('SHAPE_MISMATCH')
  expect(codeOf(() => new Composite({}, { shape: [2, 2], names: ['a', 'a'] }))).toBe('OUT_OF_RANGE')
})

test('keys that are missing or one too many are named by their path', () => {
  const spec = step()
  const value: TensorDict = spec.rand(Rng.fromSeed(2))
  value.set(['next', 'more'], Tensor.from([1]))
  expect(spec.contains(value)).toBe(true)
  expect(spec.explain(value, { strict: true })).toMatchObject({ path: ['next', 'more'], rule: 'key' })
  expect(codeOf(() => spec.check(value, { strict: true }))).toBe('UNKNOWN_NAME')
  value.delete(['next', 'done'])
  expect(spec.explain(value)).toMatchObject({ path: ['next', 'done'], rule: 'key' })
  value.set(['next', 'done'], Tensor.from([1]))
  expect(spec.explain(value)).toEqual({
    path: ['next', 'done'],
    rule: 'dtype',
    expected: 'bool',
    got: 'f32',
  })
  expect(codeOf(() => spec.explain(value, { strickt: true } as object))).toBe('UNKNOWN_NAME')
})

test('dictionaries are drawn, projected, enumerated and written as plain JSON', () => {
  const spec = new Composite({
    x: new Categorical(2),
    y: new OneHot(3),
    z: new Composite({ b: new Bounded(0, 1, { shape: [], dtype: 'i64' }) }),
    w: null,
  })
  expect(new Composite({ x: new Categorical(2), y: new OneHot(3) }).cardinality()).toBe(6n)
  expect(new Composite({ x: new Categorical(2), y: new OneHot(3) }).enumerate().batchSize).toEqual([6])
  const plain = { x: 1, y: 2, z: { b: 1 } }
  expect(spec.decode(spec.encode(plain))).toEqual(plain)
  expect(codeOf(() => spec.encode({ x: 1, y: 2 } as never))).toBe('UNKNOWN_NAME')
  const wild = TensorDict.from({
    x: Tensor.from([7], { shape: [] }),
    y: Tensor.from([0, 9, 1]),
    z: TensorDict.from({ b: Tensor.from([-3], { shape: [] }) }),
  })
  expect(spec.decode(spec.project(wild))).toEqual({ x: 1, y: 1, z: { b: 0 } })
  expect(wild.tensor('x').dtype, 'the input stays as it is').toBe('f32')
  const infinite = new Composite({
    a: new Bounded(0, Number.POSITIVE_INFINITY, { shape: [1] }),
    t: new NonTensor(),
  })
  const value = infinite.encode({ a: [Number.POSITIVE_INFINITY], t: 'Infinity' })
  expect(infinite.decode(value)).toEqual({ a: [Number.POSITIVE_INFINITY], t: 'Infinity' })
})

test('a dictionary of values is filled in place', () => {
  const spec = new Composite({ a: new Categorical(3, { shape: [2] }) }, { shape: [2] })
  const dict = TensorDict.from({ kept: Tensor.from([1], { shape: [1, 1] }) }, { batchSize: [] })
  expect(codeOf(() => spec.zerosUpdate(dict))).toBe('SHAPE_MISMATCH')
  const batch = TensorDict.from({}, { batchSize: [5, 2] })
  expect(spec.onesUpdate(batch)).toBe(batch)
  expect(batch.tensor('a').data).toEqual(new BigInt64Array(10).fill(1n))
  expect(spec.zerosUpdate(batch).tensor('a').shape).toEqual([5, 2])
  expect(spec.contains(spec.randUpdate(batch, Rng.fromSeed(1)))).toBe(true)
})

test('stacked dictionaries have the keys of all, until they are consolidated', () => {
  const robot = (name: string) =>
    new Composite({ [name]: new Unbounded({ shape: [2] }), both: new Categorical(2) })
  const robots = TensorSpec.stack([robot('camera'), robot('lidar')]) as StackedComposite
  expect(robots).toBeInstanceOf(StackedComposite)
  expect([robots.keys(), robots.leafKeys(), robots.nestedKeys()]).toEqual([['both'], [['both']], [['both']]])
  expect([robots.get('both')?.shape, robots.get('camera'), robots.has('camera')]).toEqual([
    [2],
    undefined,
    false,
  ])
  expect(robots.empty().equals(new Composite({}, { shape: [2] }))).toBe(true)
  expect([containsLazySpec(robots), checkNoExclusiveKeys(robots)]).toEqual([true, false])
  expect(codeOf(() => robots.rand(Rng.fromSeed(1)))).toBe('UNKNOWN_NAME')
  const whole = consolidateSpec(robots) as StackedComposite
  expect([containsLazySpec(whole), checkNoExclusiveKeys(whole)]).toEqual([true, true])
  const value = whole.rand(Rng.fromSeed(1)) as TensorDict
  expect(value.get('camera')).toBeInstanceOf(Ragged)
  expect(whole.contains(value)).toBe(true)
})

test('a spec is made of what a dictionary holds', () => {
  const dict = TensorDict.from({ a: Tensor.from([1], { shape: [] }), t: new NonTensorData('x') })
  const spec = makeCompositeFromTd(dict)
  expect(spec.get('a')?.equals(new Unbounded())).toBe(true)
  expect(spec.get('t')).toBeInstanceOf(NonTensor)
  const kept = makeCompositeFromTd(dict, { unsqueezeNullShapes: false })
  expect(kept.contains(dict)).toBe(true)
  const rows = TensorDict.from({ a: Tensor.from([1, 2], { shape: [1, 2] }) }, { batchSize: [1] })
  expect(makeCompositeFromTd(rows, { dynamicShape: true }).get('a')?.shape).toEqual([1, -1])
})

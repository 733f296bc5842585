import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import {
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
} from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const batch = () =>
  TensorDict.from(
    {
      reward: Tensor.from([0.5, 1]),
      ids: Ragged.from(Tensor.from(Uint32Array.of(1, 2, 3)), Uint32Array.of(0, 1, 3)),
      task: new NonTensorData({ name: 'sum' }),
      text: new NonTensorStack(['a', 'b']),
    },
    { batchSize: [2] },
  ).set(['next', 'done'], Tensor.from([0, 1], { dtype: 'bool' }))

describe('TensorDict', () => {
  it('keeps keys in the order in which they were first set', () => {
    using dict = batch()
    dict.set('reward', Tensor.from([2, 3]))
    expect(dict.keys()).toEqual(['reward', 'ids', 'task', 'text', 'next'])
    expect(dict.nestedKeys()).toEqual([['reward'], ['ids'], ['task'], ['text'], ['next', 'done'], ['next']])
    expect(dict.leafKeys().at(-1)).toEqual(['next', 'done'])
  })

  it('takes a path for a nested key and a dot for an ordinary character', () => {
    using dict = TensorDict.from({ 'a.b': Tensor.from([1]) })
    dict.set(['a', 'b'], Tensor.from([2]))
    expect(dict.keys()).toEqual(['a.b', 'a'])
    expect([...dict.tensor('a.b').data, ...dict.tensor(['a', 'b']).data]).toEqual([1, 2])
  })

  it('gives each entry back as what it is', () => {
    using dict = batch()
    expect((dict.get('reward') as Tensor).data).toEqual(Float32Array.of(0.5, 1))
    expect((dict.get('ids') as Ragged).numRows).toBe(2)
    expect(dict.get('task')).toEqual(new NonTensorData({ name: 'sum' }))
    expect(dict.get('text')).toEqual(new NonTensorStack(['a', 'b']))
    expect((dict.get('next') as TensorDict).batchSize).toEqual([2])
    expect(dict.get('nothing')).toBeUndefined()
    expect(dict.get(['reward', 'below'])).toBeUndefined()
    expect([dict.has(['next', 'done']), dict.has('done')]).toEqual([true, false])
  })

  it('gives a nested dictionary with a structure of its own', () => {
    using dict = batch()
    using next = dict.dict('next')
    next.set('more', Tensor.from([1, 2]))
    expect(dict.has(['next', 'more'])).toBe(false)
  })

  it('takes a copy of its own structure when it is set in itself', () => {
    using dict = TensorDict.from({ a: Tensor.from([1]) })
    dict.set('copy', dict)
    expect(dict.leafKeys()).toEqual([['a'], ['copy', 'a']])
    expect(dict.equals(dict)).toBe(true)
  })

  it('indexes, slices and picks every entry', () => {
    using dict = batch()
    using last = dict.index(1)
    expect(last.batchSize).toEqual([])
    expect([last.tensor('ids').data, last.value('text'), last.value('task')]).toEqual([
      Uint32Array.of(2, 3),
      'b',
      { name: 'sum' },
    ])
    using swapped = dict.indexSelect([1, 0])
    expect([swapped.tensor('reward').data, swapped.value('text')]).toEqual([
      Float32Array.of(1, 0.5),
      ['b', 'a'],
    ])
    expect(TensorDict.cat([dict.slice(0, 1), dict.slice(1)]).equals(dict)).toBe(true)
    expect(swapped.equals(dict)).toBe(false)
  })

  it('stacks what can be stacked', () => {
    const dense = batch()
    dense.delete('ids')
    using stacked = TensorDict.stack([dense, dense])
    expect([stacked.batchSize, stacked.tensor('reward').shape]).toEqual([
      [2, 2],
      [2, 2],
    ])
    expect(stacked.value('text')).toEqual([
      ['a', 'b'],
      ['a', 'b'],
    ])
    expect(TensorDict.stack([dense, dense], 1).tensor('reward').data).toEqual(Float32Array.of(0.5, 0.5, 1, 1))
    expect(codeOf(() => TensorDict.stack([batch(), batch()]))).toBe('INCOMPATIBLE')
  })

  it('selects and excludes', () => {
    using dict = batch()
    expect(dict.select(['reward', ['next', 'done']]).leafKeys()).toEqual([['reward'], ['next', 'done']])
    expect(dict.exclude(['reward', 'nothing', ['next', 'done']]).keys()).toEqual([
      'ids',
      'task',
      'text',
      'next',
    ])
    expect(codeOf(() => dict.select(['nothing']))).toBe('UNKNOWN_NAME')
    expect([dict.delete('reward'), dict.delete('reward')]).toEqual([true, false])
  })

  it('names the key and both shapes of what does not fit', () => {
    using dict = batch()
    expect(() => dict.set(['next', 'x'], Tensor.from([1, 2, 3]))).toThrow(
      '["next", "x"]: shape must begin with the batch size [2]: got [3]',
    )
    expect(codeOf(() => dict.set('x', Tensor.from([1, 2, 3])))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => dict.set('x', new NonTensorStack(['a'])))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => dict.set(['reward', 'x'], Tensor.from([1, 2])))).toBe('INCOMPATIBLE')
    expect(codeOf(() => dict.set([], Tensor.from([1, 2])))).toBe('EMPTY')
    expect(codeOf(() => dict.set('x', new NonTensorData(undefined as unknown as Json)))).toBe('MALFORMED')
    expect(codeOf(() => dict.tensor('nothing'))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => dict.ragged('reward'))).toBe('INCOMPATIBLE')
    expect(codeOf(() => dict.value('reward'))).toBe('INCOMPATIBLE')
    expect(codeOf(() => dict.index(2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => dict.slice(1, 3))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => dict.indexSelect([0.5]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => TensorDict.from().index(0))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => TensorDict.from({}, { batchSize: [-1] }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => TensorDict.stack([]))).toBe('EMPTY')
    expect(codeOf(() => TensorDict.stack([dict, dict.slice(1)]))).toBe('SHAPE_MISMATCH')
  })

  it('limits the depth of keys', () => {
    using dict = TensorDict.from()
    dict.set(new Array(32).fill('k'), Tensor.from([1]))
    expect(codeOf(() => dict.set(new Array(33).fill('k'), Tensor.from([1])))).toBe('LIMIT_EXCEEDED')
  })

  it('says that it, or the entry, is closed after disposal', () => {
    const dict = batch()
    const gone = Tensor.from([1, 2])
    gone[Symbol.dispose]()
    expect(codeOf(() => dict.set('x', gone))).toBe('CLOSED')
    expect(dict.has('x')).toBe(false)
    dict[Symbol.dispose]()
    expect(codeOf(() => dict.keys())).toBe('CLOSED')
    expect(() => dict.keys()).toThrow(FulmarError)
  })
})

it('refuses an entry that is none, with its key', () => {
  const refusal = (got: string) =>
    expect.objectContaining({ code: 'MALFORMED', message: expect.stringContaining(`got ${got}`) })
  const dict = TensorDict.from({}, { batchSize: [2] })
  expect(() => dict.set('reward', [1, 2] as never)).toThrow(
    refusal('an array of 2; Tensor.from makes a tensor of numbers'),
  )
  expect(() => dict.set(['a', 'b'], undefined as never)).toThrow(refusal('undefined'))
  expect(() => TensorDict.from({ f: (() => 1) as never })).toThrow(refusal('a function'))
  expect(dict.keys()).toEqual([])
})

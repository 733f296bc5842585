import { describe, expect, it } from 'vitest'
import {
  LazyStack,
  lazyStack,
  maybeDenseStack,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
} from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const ints = (...values: number[]) => Tensor.from(Int32Array.from(values))
const episode = (...ids: number[]) => TensorDict.from({ ids: ints(...ids), task: new NonTensorData('sum') })
const ragged = () => lazyStack([episode(1, 2), episode(3)])
const grids = () =>
  [2, 3].map((length) => TensorDict.from({ id: ints(...Array(length).keys()) }, { batchSize: [length] }))

describe('a stack that was not made', () => {
  it('knows its parts, its batch size and the keys that all parts have', () => {
    const stack = lazyStack([...grids(), TensorDict.from({}, { batchSize: [2] })], -2)
    expect([stack.dim, stack.batchSize, stack.keys(), stack.leafKeys()]).toEqual([0, [3, -1], [], []])
    expect(ragged().keys()).toEqual(['ids', 'task'])
    expect(ragged().leafKeys()).toEqual([['ids'], ['task']])
    expect(ragged().parts.map((part) => part.tensor('ids').shape)).toEqual([[2], [1]])
  })

  it('gives an entry stacked, as a list, as rows or padded', () => {
    const stack = ragged()
    expect(codeOf(() => stack.get('ids'))).toBe('SHAPE_MISMATCH')
    expect(
      stack.get('ids', { asList: true }).map((entry) => entry instanceof Tensor && [...entry.data]),
    ).toEqual([[1, 2], [3]])
    expect(stack.get('ids', { asNestedTensor: true }).equals(Ragged.fromRows([ints(1, 2), ints(3)]))).toBe(
      true,
    )
    expect([...stack.get('ids', { asPaddedTensor: true }).data]).toEqual([1, 2, 3, 0])
    const left = stack.get('ids', { asPaddedTensor: true, paddingValue: -1, paddingSide: 'left' })
    expect([...left.data]).toEqual([1, 2, -1, 3])
    const same = lazyStack([episode(1), episode(2)]).get('ids')
    expect(same instanceof Tensor && same.shape).toEqual([2, 1])
    const task = stack.get('task')
    expect(task instanceof NonTensorStack && task.values).toEqual(['sum', 'sum'])
  })

  it('refuses what it cannot give by code', () => {
    const stack = ragged()
    expect(codeOf(() => stack.get('none'))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => stack.get('ids', { asList: true, asPaddedTensor: true }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => stack.get('ids', { asPaddedTensor: true, paddingValue: 0.5 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => stack.get('task', { asNestedTensor: true }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => stack.get('ids', { ['pad' as never]: 1 }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => lazyStack([]))).toBe('EMPTY')
    expect(codeOf(() => lazyStack(grids(), 2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => lazyStack([...grids(), episode()]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => stack.at(2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => stack.dense())).toBe('SHAPE_MISMATCH')
  })

  it('is indexed along its parts and within them', () => {
    const stack = lazyStack(grids())
    expect(stack.at(1).batchSize).toEqual([3])
    expect(stack.at(1, 2).batchSize).toEqual([])
    expect(stack.at([1, 0]).batchSize).toEqual([2, -1])
    expect(stack.at([true, false]).batchSize).toEqual([1, 2])
    expect(stack.at(null).batchSize).toEqual([1, 2, -1])
    expect(stack.at('...', 0).batchSize).toEqual([2])
  })

  it('deals an entry to its parts, or to none', () => {
    const stack = ragged()
    stack.set('reward', Tensor.from([0.5, 1])).set('answer', new NonTensorStack(['a', 'b']))
    stack.set(['in', 'x'], Ragged.fromRows([ints(1), ints(2, 3)])).set('all', new NonTensorData(7))
    const last = stack.at(1) as TensorDict
    expect([last.tensor('reward').shape, last.value('answer'), last.value('all')]).toEqual([[], 'b', 7])
    expect([...last.tensor(['in', 'x']).data]).toEqual([2, 3])
    expect(codeOf(() => stack.set('new', Tensor.from([1, 2, 3])))).toBe('SHAPE_MISMATCH')
    expect(stack.keys()).not.toContain('new')
  })

  it('grows, joins and is written part by part', () => {
    const stack = ragged()
      .append(episode(4, 5, 6))
      .insert(0, episode())
    expect(stack.parts.map((part) => part.tensor('ids').shape[0])).toEqual([0, 2, 1, 3])
    stack.setPart(2, TensorDict.from({ ids: ints(9) }))
    expect([...stack.get('ids', { asNestedTensor: true }).values.data]).toEqual([1, 2, 9, 4, 5, 6])
    expect(codeOf(() => stack.insert(5, episode()))).toBe('OUT_OF_RANGE')
    expect(stack.cat(ragged()).batchSize).toEqual([6])
    expect(ragged().stack(ragged()).batchSize).toEqual([2, 2])
    expect(ragged().stack(ragged()).dim).toBe(1)
    expect(codeOf(() => stack.stack(ragged()))).toBe('SHAPE_MISMATCH')
    expect(stack.select(['task']).keys()).toEqual(['task'])
    expect(codeOf(() => stack.select(['none']))).toBe('UNKNOWN_NAME')
    const doubles = ragged().apply((tensor) => tensor.to('f64'))
    expect(doubles.get('ids', { asNestedTensor: true }).values.dtype).toBe('f64')
  })

  it('becomes one dictionary where it can', () => {
    const dense = ragged().densify()
    expect([...dense.ragged('ids').offsets]).toEqual([0, 2, 3])
    const same = [episode(1), episode(2)]
    const made = maybeDenseStack(same)
    expect(made instanceof TensorDict && made.equals(TensorDict.stack(same))).toBe(true)
    expect(lazyStack(same).dense().batchSize).toEqual([2])
    const kept = maybeDenseStack([episode(1, 2), episode(3)])
    expect(kept instanceof LazyStack && kept.equals(ragged())).toBe(true)
    expect(ragged().equals(lazyStack(same))).toBe(false)
  })

  it('is closed once disposed, its parts are not', () => {
    const stack = ragged()
    const [first] = stack.parts
    stack[Symbol.dispose]()
    expect(codeOf(() => stack.keys())).toBe('CLOSED')
    expect(first?.keys()).toEqual(['ids', 'task'])
  })
})

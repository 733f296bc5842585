/** Tests what `TensorDict` does with the whole batch and with keys: index, shape, parts, padding, renaming and locking. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { NonTensorData, NonTensorStack, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const numbered = (shape: readonly number[]) => {
  const count = shape.reduce((product, length) => product * length, 1)
  return Tensor.from(
    Int32Array.from({ length: count }, (_, at) => at),
    { shape },
  )
}

const grid = () =>
  TensorDict.from({ id: numbered([2, 3]), all: new NonTensorData('x') }, { batchSize: [2, 3] })
    .set(['in', 'x'], numbered([2, 3, 2]))
    .set(
      'each',
      new NonTensorStack([
        ['a', 'b', 'c'],
        ['d', 'e', 'f'],
      ]),
    )

const ids = (dict: TensorDict) => [...dict.tensor('id').as('i32').data]

describe('an index of the batch', () => {
  it('takes positions, ranges, lists, masks, new dimensions and the rest', () => {
    const batch = grid()
    expect(ids(batch.at(1))).toEqual([3, 4, 5])
    expect(ids(batch.at('...', -1))).toEqual([2, 5])
    expect(ids(batch.at({}, { start: -2 }))).toEqual([1, 2, 4, 5])
    expect(ids(batch.at({}, { step: 2 }))).toEqual([0, 2, 3, 5])
    expect(ids(batch.at([1, 0], [-1, 0]))).toEqual([5, 0])
    expect(ids(batch.at([false, true]))).toEqual([3, 4, 5])
    expect(batch.at(null, [], '...').batchSize).toEqual([1, 0, 3])
    const mask = Tensor.from([1, 0, 0, 0, 0, 1], { shape: [2, 3], dtype: 'bool' })
    expect(ids(batch.at(mask))).toEqual([0, 5])
    expect(ids(batch.maskedSelect(mask))).toEqual([0, 5])
    const square = Tensor.from(Uint32Array.of(0, 1, 1, 0), { shape: [2, 2] })
    expect(batch.at(square).batchSize).toEqual([2, 2, 3])
    expect(batch.at(Tensor.from(BigInt64Array.of(-1n))).batchSize).toEqual([1, 3])
  })

  it('moves nested dictionaries and values with the batch', () => {
    const column = grid().at('...', 1)
    expect([...column.tensor(['in', 'x']).data]).toEqual([2, 3, 8, 9])
    expect([column.value('each'), column.value('all')]).toEqual([['b', 'e'], 'x'])
  })

  it('moves the rows of ragged entries, which keep one batch dimension', () => {
    const rows = Ragged.from(Tensor.from(Uint32Array.of(1, 2, 3)), Uint32Array.of(0, 1, 3))
    const batch = TensorDict.from({ rows }, { batchSize: [2] })
    expect([...batch.at([1, 1]).ragged('rows').values.data]).toEqual([2, 3, 2, 3])
    expect(codeOf(() => batch.unsqueeze(0))).toBe('INCOMPATIBLE')
  })

  it('is refused by code where it does not fit', () => {
    const batch = grid()
    expect(codeOf(() => batch.at(2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => batch.at(0, 0, 0))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => batch.at({ step: 0 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => batch.at([true, false, true]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => batch.at(1.5))).toBe('MALFORMED')
    expect(codeOf(() => batch.at({ begin: 1 } as never))).toBe('MALFORMED')
    expect(codeOf(() => batch.at(Tensor.from([1])))).toBe('INCOMPATIBLE')
  })

  it('is written to by a part, in a copy where elements are shared', () => {
    const batch = grid()
    const before = batch.tensor('id')
    batch.setAt([0, [2, 0]], TensorDict.from({ id: Tensor.from(Int32Array.of(8, 9)) }, { batchSize: [2] }))
    expect(ids(batch)).toEqual([9, 1, 8, 3, 4, 5])
    expect([...before.data]).toEqual([0, 1, 2, 3, 4, 5])
    const wrong = TensorDict.from({ id: Tensor.from([1, 2]) }, { batchSize: [2] })
    expect(codeOf(() => batch.setAt([0, [2, 0]], wrong))).toBe('INCOMPATIBLE')
    expect(codeOf(() => batch.setAt([0], wrong))).toBe('SHAPE_MISMATCH')
  })

  it('reads with a list what reading one by one and stacking reads', () => {
    const batch = grid()
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -2, max: 1 }), { minLength: 1, maxLength: 5 }), (positions) => {
        const tensors = positions.map((position) => batch.at(position).tensor('id'))
        expect(batch.at(positions).tensor('id').equals(Tensor.stack(tensors))).toBe(true)
      }),
      { seed: 5 },
    )
  })
})

describe('the shape of the batch', () => {
  it('changes for every entry at once', () => {
    const batch = grid()
    expect(batch.reshape([-1]).batchSize).toEqual([6])
    expect(batch.view([3, 2]).tensor(['in', 'x']).shape).toEqual([3, 2, 2])
    expect(ids(batch.permute([1, 0]))).toEqual([0, 3, 1, 4, 2, 5])
    expect(ids(batch.transpose(0, -1))).toEqual([0, 3, 1, 4, 2, 5])
    expect(batch.flatten().unflatten(0, [2, -1]).equals(batch)).toBe(true)
    expect(batch.unsqueeze(-1).batchSize).toEqual([2, 3, 1])
    expect(batch.unsqueeze(0).squeeze(0).equals(batch)).toBe(true)
    expect(batch.unsqueeze(0).squeeze().equals(batch)).toBe(true)
    expect(batch.expand([2, 2, 3]).batchSize).toEqual([2, 2, 3])
    expect(ids(batch.repeat([1, 2]))).toEqual([0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5])
    expect(ids(batch.repeatInterleave(2, 1))).toEqual([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    expect(codeOf(() => batch.reshape([4, -1]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => batch.permute([1, 0]).view([6]))).toBe('INCOMPATIBLE')
    expect(codeOf(() => batch.expand([2 ** 30, 2, 3]))).toBe('LIMIT_EXCEEDED')
  })

  it('parts and joins again', () => {
    const batch = grid().select(['id'])
    expect(batch.split(2, 1).map((part) => part.batchSize)).toEqual([
      [2, 2],
      [2, 1],
    ])
    expect(TensorDict.cat(batch.split([1, 2], 1), 1).equals(batch)).toBe(true)
    expect(TensorDict.cat(batch.chunk(2, -1), 1).equals(batch)).toBe(true)
    expect(TensorDict.stack(batch.unbind(1), 1).equals(batch)).toBe(true)
    expect(batch.unbind().map(ids)).toEqual([
      [0, 1, 2],
      [3, 4, 5],
    ])
    expect(codeOf(() => batch.split(0))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => batch.split([1, 3], 1))).toBe('SHAPE_MISMATCH')
  })

  it('gathers, fills and pads', () => {
    const batch = grid().select(['id'])
    const index = Tensor.from(Int32Array.of(2, 0), { shape: [2, 1] })
    expect(ids(batch.gather(1, index))).toEqual([2, 3])
    const mask = Tensor.from([1, 0, 0, 0, 0, 1], { shape: [2, 3], dtype: 'bool' })
    expect(ids(batch.maskedFill(mask, -1))).toEqual([-1, 1, 2, 3, 4, -1])
    expect(
      ids(
        batch.pad(
          [
            [0, 0],
            [1, 0],
          ],
          7,
        ),
      ),
    ).toEqual([7, 0, 1, 2, 7, 3, 4, 5])
    expect(codeOf(() => batch.pad([[0, 1]], 0.5))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => batch.pad([[0, 1]], Number.NaN))).toBe('MALFORMED')
    expect(codeOf(() => batch.gather(1, Tensor.from([1])))).toBe('INCOMPATIBLE')
  })

  it('grows to the longest of several', () => {
    const batch = grid().select(['id'])
    const padded = TensorDict.padSequence([batch, batch.slice(0, 1)], { value: 9, mask: 'masks' })
    expect(padded.batchSize).toEqual([2, 2, 3])
    expect(ids(padded)).toEqual([0, 1, 2, 3, 4, 5, 0, 1, 2, 9, 9, 9])
    expect([...padded.tensor(['masks', 'id']).data]).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0])
    expect(codeOf(() => TensorDict.padSequence([]))).toBe('EMPTY')
    expect(codeOf(() => TensorDict.padSequence([batch], { fill: 1 } as never))).toBe('UNKNOWN_NAME')
  })
})

describe('keys', () => {
  it('flatten and unflatten', () => {
    const flat = grid().flattenKeys()
    expect(flat.keys()).toEqual(['id', 'all', 'in.x', 'each'])
    expect(flat.unflattenKeys().equals(grid())).toBe(true)
    expect(
      codeOf(() =>
        grid()
          .set('in.x', numbered([2, 3]))
          .flattenKeys(),
      ),
    ).toBe('INCOMPATIBLE')
    expect(codeOf(() => flat.unflattenKeys(''))).toBe('EMPTY')
  })

  it('are renamed and merged', () => {
    const batch = grid().rename('id', ['in', 'id'])
    expect(batch.dict('in').keys()).toEqual(['x', 'id'])
    expect(codeOf(() => batch.rename('gone', 'id'))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => batch.rename('all', 'each', { safe: true }))).toBe('INCOMPATIBLE')
    batch.update(grid().select(['id']))
    expect(batch.keys()).toEqual(['all', 'in', 'each', 'id'])
  })

  it('stay while the dictionary is locked', () => {
    const batch = grid().lock()
    expect(batch.isLocked).toBe(true)
    expect(codeOf(() => batch.set('new', numbered([2, 3])))).toBe('CLOSED')
    expect(codeOf(() => batch.delete('id'))).toBe('CLOSED')
    expect(codeOf(() => batch.rename('id', 'z'))).toBe('CLOSED')
    batch.setAt([0], grid().at(1))
    expect(ids(batch)).toEqual([3, 4, 5, 3, 4, 5])
    expect(batch.select(['id']).isLocked).toBe(false)
    expect(batch.unlock().delete('id')).toBe(true)
  })
})

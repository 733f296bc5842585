/** Tests what `TensorDict` does with every leaf: functions, sums, choices and writes; and the names of its dimensions. */

import { describe, expect, it } from 'vitest'
import { NonTensorData, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const batch = () =>
  TensorDict.from(
    { reward: Tensor.from([0.5, 2]), note: new NonTensorData('x') },
    { batchSize: [2], names: ['time'] },
  ).set(['in', 'id'], Tensor.from(Int32Array.of(1, 2, 3, 4), { shape: [2, 2] }))

const mask = (...bits: number[]) => Tensor.from(Uint8Array.from(bits), { dtype: 'bool' })

describe('a function of every leaf', () => {
  it('sees keys in order, and keeps values, names and rows', () => {
    const seen: (readonly string[])[] = []
    const rows = Ragged.fromRows([Tensor.from([1]), Tensor.from([2, 3])])
    const made = batch()
      .set('rows', rows)
      .apply((tensor, key) => {
        seen.push(key)
        return tensor.to('f64')
      })
    expect(seen).toEqual([['reward'], ['in', 'id'], ['rows']])
    expect([made.tensor(['in', 'id']).dtype, made.ragged('rows').values.dtype]).toEqual(['f64', 'f64'])
    expect([made.value('note'), made.names, made.dict('in').names]).toEqual(['x', ['time'], ['time']])
  })

  it('drops entries, and dictionaries with their last one', () => {
    const floats = batch().apply((tensor) => (tensor.dtype === 'f32' ? tensor : undefined))
    expect(floats?.keys()).toEqual(['reward', 'note'])
    const kept = batch().apply(() => undefined, { keepEmpty: true })
    expect(kept.nestedKeys()).toEqual([['note'], ['in']])
    expect(
      batch()
        .exclude(['note'])
        .apply(() => undefined),
    ).toBeUndefined()
    expect(
      TensorDict.from()
        .apply((tensor) => tensor)
        .keys(),
    ).toEqual([])
  })

  it('may change leading dimensions under another batch size', () => {
    const sums = batch().apply((tensor) => tensor.sum(), { batchSize: [] })
    expect([sums.batchSize, sums.dict('in').batchSize]).toEqual([[], []])
    expect(codeOf(() => batch().apply((tensor) => tensor.sum()))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => batch().apply((tensor) => tensor, { ['inplace' as never]: true }))).toBe(
      'UNKNOWN_NAME',
    )
    expect(() =>
      batch().apply(() => {
        throw new RangeError('mine')
      }),
    ).toThrow(RangeError)
  })

  it('casts, zeroes and adds up', () => {
    expect(batch().to('f16').tensor(['in', 'id']).dtype).toBe('f16')
    expect(codeOf(() => batch().fillAt([], -1).to('u8'))).toBe('OUT_OF_RANGE')
    expect([...batch().zerosLike().tensor('reward').data]).toEqual([0, 0])
    expect([...batch().sum(0).tensor(['in', 'id']).data]).toEqual([4n, 6n])
    expect([...batch().sum().tensor('reward').data]).toEqual([2.5])
    expect(codeOf(() => batch().sum(1))).toBe('OUT_OF_RANGE')
    expect(batch().structure().nestedKeys()).toEqual([['note'], ['in']])
  })
})

describe('a choice between dictionaries', () => {
  it('takes one where the mask is true and the other elsewhere', () => {
    const chosen = batch().where(mask(0, 1), batch().zerosLike())
    expect([...chosen.tensor('reward').data, ...chosen.tensor(['in', 'id']).data]).toEqual([0, 2, 0, 0, 3, 4])
  })

  it('needs two of one form', () => {
    expect(codeOf(() => batch().where(mask(1), batch()))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => batch().where(mask(1, 0), batch().to('f64')))).toBe('INCOMPATIBLE')
    expect(codeOf(() => batch().where(mask(1, 0), batch().exclude(['note'])))).toBe('UNKNOWN_NAME')
  })
})

describe('writing in place', () => {
  it('reaches entries of a locked dictionary, and not what was taken out of it', () => {
    const dict = batch().lock()
    const before = dict.tensor('reward')
    dict
      .write('reward', Tensor.from([7], { shape: [] }))
      .writeAt(['in', 'id'], [0], Tensor.from(Int32Array.of(9, 9)))
    expect([...dict.tensor('reward').data, ...dict.tensor(['in', 'id']).data]).toEqual([7, 7, 9, 9, 3, 4])
    expect([...before.data]).toEqual([0.5, 2])
    dict.fillAt([1], 5).writeAll(TensorDict.from({ note: new NonTensorData('y') }, { batchSize: [2] }))
    expect([...dict.tensor('reward').data, dict.value('note')]).toEqual([7, 5, 'y'])
  })

  it('is refused whole', () => {
    const dict = batch()
    const other = TensorDict.from(
      { reward: Tensor.zeros('f32', [2]), more: Tensor.zeros('f32', [2]) },
      { batchSize: [2] },
    )
    expect(codeOf(() => dict.writeAll(other))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => dict.write('none', Tensor.from([1])))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => dict.write('note', Tensor.from([1])))).toBe('INCOMPATIBLE')
    expect(codeOf(() => dict.write('reward', Tensor.from([1, 2, 3])))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => dict.fillAt([2], 1))).toBe('OUT_OF_RANGE')
    expect(dict.equals(batch())).toBe(true)
  })

  it('loads a state of exactly its names', () => {
    const state = batch().stateDict()
    expect(Object.keys(state)).toEqual(['reward', 'in.id'])
    const dict = batch().zerosLike().lock().loadStateDict(state)
    expect(dict.equals(batch())).toBe(true)
    const { reward, ...rest } = state
    expect(codeOf(() => dict.loadStateDict(rest))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => dict.loadStateDict({ ...state, more: Tensor.from([1]) }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => dict.loadStateDict({ ...rest, reward: Tensor.zeros('f64', [2]) }))).toBe(
      'INCOMPATIBLE',
    )
    expect(codeOf(() => dict.loadStateDict({ ...rest, reward: Tensor.zeros('f32', [3]) }))).toBe(
      'SHAPE_MISMATCH',
    )
    expect(reward).toBeDefined()
  })
})

describe('keys', () => {
  it('are split, passed over, popped and copied with a structure of their own', () => {
    const [rewards, rest] = batch().splitKeys(['reward'])
    expect([rewards?.keys(), rest?.keys()]).toEqual([['reward'], ['note', 'in']])
    expect(batch().select(['none', 'reward'], { strict: false }).keys()).toEqual(['reward'])
    expect(codeOf(() => batch().select(['none']))).toBe('UNKNOWN_NAME')
    const dict = batch()
    expect(dict.pop('note')).toEqual(new NonTensorData('x'))
    expect([dict.pop('note'), dict.has('note')]).toEqual([undefined, false])
    const copy = dict.lock().clone()
    copy.delete('reward')
    expect([copy.isLocked, dict.keys(), dict.dict('in').isLocked]).toEqual([false, ['reward', 'in'], true])
    expect(codeOf(() => dict.pop('reward'))).toBe('CLOSED')
  })
})

describe('names of dimensions', () => {
  it('follow them', () => {
    const grid = TensorDict.from({}, { batchSize: [2, 3] })
    expect(grid.names).toEqual([null, null])
    grid.names = ['x', null]
    expect(grid.refineNames('...', 'time').names).toEqual(['x', 'time'])
    expect(grid.unsqueeze(0).names).toEqual([null, 'x', 'time'])
    expect(grid.index(0).names).toEqual(['time'])
    expect(TensorDict.stack([grid, grid], -1).names).toEqual(['x', 'time', null])
  })

  it('are refused by code', () => {
    const grid = TensorDict.from({}, { batchSize: [2, 3], names: ['x', 'time'] })
    const set = (names: (string | null)[]) => codeOf(() => Object.assign(grid, { names }))
    expect([set(['x']), set(['x', 'x'])]).toEqual(['SHAPE_MISMATCH', 'INCOMPATIBLE'])
    expect(codeOf(() => grid.refineNames('x', 'step'))).toBe('INCOMPATIBLE')
    expect(grid.names).toEqual(['x', 'time'])
  })
})

describe('joining', () => {
  it('counts dimensions from the end too, and pads a later one', () => {
    const grid = (length: number) =>
      TensorDict.from({ id: Tensor.zeros('i32', [2, length]) }, { batchSize: [2, length] })
    expect(TensorDict.stack([grid(3), grid(3)], -2).batchSize).toEqual([2, 2, 3])
    expect(TensorDict.cat([grid(3), grid(1)], -1).batchSize).toEqual([2, 4])
    expect(codeOf(() => TensorDict.cat([grid(3)], -3))).toBe('OUT_OF_RANGE')
    const padded = TensorDict.padSequence([grid(1), grid(3)], { dim: 1, mask: 'masks' })
    expect([...padded.at(0, 1).tensor(['masks', 'id']).data]).toEqual([1, 0, 0])
  })
})

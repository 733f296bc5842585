import { describe, expect, expectTypeOf, it } from 'vitest'
import { Ragged, Tensor, TensorDict, tensorClass } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const Next = tensorClass({ reward: 'f32', done: 'bool' })
const Step = tensorClass({ action: 'i64', note: 'json?', next: Next })

const next = () =>
  Next.from({ reward: Tensor.from([0.5, 1]), done: Tensor.zeros('bool', [2]) }, { batchSize: [2] })
const step = () => Step.from({ action: Tensor.zeros('i64', [2]), next: next() }, { batchSize: [2] })

describe('a class around a dictionary', () => {
  it('gives its fields, typed', () => {
    const made = step()
    expectTypeOf(made.action).toEqualTypeOf<Tensor<'i64'>>()
    expectTypeOf(made.next.reward).toEqualTypeOf<Tensor<'f32'>>()
    expect([...made.next.reward.data]).toEqual([0.5, 1])
    expect([made.note, made.batchSize, Object.keys(Step.fields)]).toEqual([
      undefined,
      [2],
      ['action', 'note', 'next'],
    ])
    made.note = { ids: [1] }
    expect([made.note, made.dict.value('note')]).toEqual([{ ids: [1] }, { ids: [1] }])
    made.note = undefined
    expect(made.dict.has('note')).toBe(false)
  })

  it('follows the batch', () => {
    const both = Step.stack([step(), step()])
    expect([both.batchSize, both.next.done.shape]).toEqual([
      [2, 2],
      [2, 2],
    ])
    expect(both.at(0).equals(step())).toBe(true)
    expect(Step.cat([step(), step()]).batchSize).toEqual([4])
    expect(step().map((dict) => dict.unsqueeze(0)).action.shape).toEqual([1, 2])
  })

  it('holds rows, dictionaries and tensors of any dtype', () => {
    const Any = tensorClass({ rows: 'ragged', rest: 'dict', any: 'tensor' })
    const rows = Ragged.fromRows([Tensor.from([1])])
    const made = Any.from({ rows, rest: TensorDict.from(), any: Tensor.zeros('u8', []) })
    expect([made.rows.numRows, made.rest.keys(), made.any.dtype]).toEqual([1, [], 'u8'])
  })

  it('refuses fields that are missing, unknown or of another kind, by name', () => {
    const wrong = (fields: object) => codeOf(() => Next.from(fields as never, { batchSize: [2] }))
    const done = Tensor.zeros('bool', [2])
    expect(wrong({ done })).toBe('UNKNOWN_NAME')
    expect(wrong({ done, reward: Tensor.zeros('f32', [2]), more: done })).toBe('UNKNOWN_NAME')
    expect(wrong({ done, reward: Tensor.zeros('f64', [2]) })).toBe('INCOMPATIBLE')
    expect(wrong({ done, reward: 3 })).toBe('INCOMPATIBLE')
    expect(wrong({ done, reward: Tensor.zeros('f32', [3]) })).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => Next.around(TensorDict.from({ done })))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => Step.from({ action: Tensor.zeros('i64', []), next: 1 as never }))).toBe(
      'INCOMPATIBLE',
    )
    expect(codeOf(() => tensorClass({ dict: 'f32' }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => tensorClass({}, { ['shadow' as never]: true }))).toBe('UNKNOWN_NAME')
    const made = next()
    expect(() => Object.assign(made, { more: done })).toThrow(TypeError)
    expect(codeOf(() => Object.assign(made, { done: made.reward }))).toBe('INCOMPATIBLE')
    expect(made.equals(next())).toBe(true)
  })

  it('casts or freezes where it was told to', () => {
    const Cast = tensorClass({ reward: 'f32' }, { autocast: true })
    expect(Cast.from({ reward: Tensor.zeros('f64', [2]) as never }).reward.dtype).toBe('f32')
    const Frozen = tensorClass({ reward: 'f32' }, { frozen: true })
    const made = Frozen.from({ reward: Tensor.from([1]) })
    expect(codeOf(() => Object.assign(made, { reward: Tensor.from([2]) }))).toBe('CLOSED')
    expect([...made.reward.data]).toEqual([1])
  })

  it('gives its memory back', () => {
    const made = next()
    made[Symbol.dispose]()
    expect(codeOf(() => made.reward)).toBe('CLOSED')
  })
})

/** The keys and dtypes that the types of dictionaries and tensors have. */

import { describe, expect, expectTypeOf, it } from 'vitest'
import {
  NonTensorData,
  Ragged,
  Tensor,
  TensorDict,
  type TensorDictEntry,
  type TensorKey,
} from '../../src/tensor/index.js'

const batch = TensorDict.from(
  {
    reward: Tensor.from([0.5, 1]),
    id: Tensor.from(BigInt64Array.of(1n, 2n)),
    note: new NonTensorData('a'),
    next: TensorDict.from({ done: Tensor.zeros('bool', [2]) }, { batchSize: [2] }),
  },
  { batchSize: [2] },
)

describe('TensorDict', () => {
  it('has the keys of the literal that it was made from', () => {
    expectTypeOf(batch.get('reward')).toEqualTypeOf<Tensor<'f32'>>()
    expectTypeOf(batch.tensor('id')).toEqualTypeOf<Tensor<'i64'>>()
    expectTypeOf(batch.get('note')).toEqualTypeOf<NonTensorData>()
    expectTypeOf(batch.get('next').get('done')).toEqualTypeOf<Tensor<'bool'>>()
    expectTypeOf(batch.get(['next', 'done'])).toEqualTypeOf<Tensor<'bool'>>()
    expectTypeOf(batch.tensor(['next', 'done'])).toEqualTypeOf<Tensor<'bool'>>()
    expectTypeOf(batch.dict('next').tensor('done')).toEqualTypeOf<Tensor<'bool'>>()
    const reward: number | undefined = batch.get('reward').data[1]
    const id: bigint | undefined = batch.tensor('id').data[1]
    expect([reward, id, batch.get(['next', 'done']).data[0]]).toEqual([1, 2n, 0])
  })

  it('has any entry or none at other keys', () => {
    const key: string = 'reward'
    const path: TensorKey = ['next', 'reward'] as string[]
    expectTypeOf(batch.get('value')).toEqualTypeOf<TensorDictEntry | undefined>()
    expectTypeOf(batch.get(key)).toEqualTypeOf<TensorDictEntry | undefined>()
    expectTypeOf(batch.get(path)).toEqualTypeOf<TensorDictEntry | undefined>()
    expectTypeOf(batch.get(['next', 'value'])).toEqualTypeOf<TensorDictEntry | undefined>()
    expectTypeOf(batch.tensor(key)).toEqualTypeOf<Tensor>()
    const columns: Record<string, Tensor> = { reward: Tensor.from([1]) }
    for (const open of [
      TensorDict.from(),
      TensorDict.from(columns),
      TensorDict.from({}).set('reward', Tensor.from([1])),
    ]) {
      expectTypeOf(open).toExtend<TensorDict>()
      expectTypeOf(open.get('reward')).toEqualTypeOf<TensorDictEntry | undefined>()
    }
  })

  it('is taken where fewer keys or none are asked, not where more are', () => {
    expectTypeOf(batch).toExtend<TensorDict>()
    expectTypeOf(batch).toExtend<TensorDict<{ reward: Tensor }>>()
    expectTypeOf<TensorDict>().not.toExtend<TensorDict<{ reward: Tensor }>>()
    expectTypeOf(batch).not.toExtend<TensorDict<{ reward: Tensor<'f64'> }>>()
    interface Step {
      readonly reward: Tensor<'f32'>
    }
    expectTypeOf(batch).toExtend<TensorDict<Step>>()
    const copies = <Shape extends object>(dict: TensorDict<Shape>) => TensorDict.stack([dict, dict])
    expectTypeOf(copies(batch).get('reward')).toEqualTypeOf<Tensor<'f32'>>()
    expect(copies(batch).batchSize).toEqual([2, 2])
  })

  it('keeps keys and dtypes through views, joins and parts', () => {
    const rows = [
      ...[batch.index(0), batch.at([0]), batch.slice(0, 1), batch.indexSelect([1]), batch.reshape([1, 2])],
      ...[batch.clone().lock(), batch.zerosLike(), batch.unsqueeze(0), TensorDict.cat([batch, batch])],
      ...[...batch.unbind(), ...batch.split(1)],
    ]
    for (const row of rows) {
      expectTypeOf(row.get('reward')).toEqualTypeOf<Tensor<'f32'>>()
      expectTypeOf(row.get(['next', 'done'])).toEqualTypeOf<Tensor<'bool'>>()
      expect(row.get('reward').dtype).toBe('f32')
    }
    expectTypeOf(batch.index(0).get('note')).toEqualTypeOf<TensorDictEntry>()
    expectTypeOf(batch.select(['reward']).get('reward')).toEqualTypeOf<Tensor<'f32'>>()
    expectTypeOf(batch.select(['reward']).get('id')).toEqualTypeOf<TensorDictEntry | undefined>()
    expectTypeOf(batch.exclude(['reward']).get('id')).toEqualTypeOf<Tensor<'i64'>>()
    expectTypeOf(batch.exclude(['reward']).get('reward')).toEqualTypeOf<TensorDictEntry | undefined>()
    const keys: string[] = ['id']
    expectTypeOf(batch.exclude(keys)).toEqualTypeOf<TensorDict<object>>()
    expectTypeOf(batch.select(keys)).toEqualTypeOf<TensorDict<object>>()
  })

  it('takes entries of the known type at known keys', () => {
    batch
      .clone()
      .set('reward', Tensor.from([1, 2]))
      .set('value', Tensor.zeros('i64', [2]))
      .set(['next', 'x'], batch)
    const wrong = () => {
      // @ts-expect-error the rewards are f32
      batch.set('reward', Tensor.zeros('i64', [2]))
      // @ts-expect-error numbers are no entry
      batch.set('value', [1, 2])
      // @ts-expect-error nor are they in a literal
      TensorDict.from({ reward: [1, 2] })
      // @ts-expect-error the elements of an i64 are bigints
      const count: number | undefined = batch.get('id').data[0]
      return count
    }
    expectTypeOf(wrong).toBeFunction()
  })
})

describe('Tensor', () => {
  it('gives numbers of floats, bigints of i64 and booleans of bool', () => {
    expectTypeOf(Tensor.from([1]).item()).toEqualTypeOf<number>()
    expectTypeOf(Tensor.from([1]).data[0]).toEqualTypeOf<number | undefined>()
    expectTypeOf(Tensor.from(BigInt64Array.of(1n)).item()).toEqualTypeOf<bigint>()
    expectTypeOf(Tensor.zeros('bool', []).item()).toEqualTypeOf<boolean>()
    expectTypeOf(Tensor.from([1, 2]).sum()).toEqualTypeOf<Tensor<'f32'>>()
    expectTypeOf(Tensor.from(Uint8Array.of(1)).sum(0).item()).toEqualTypeOf<bigint>()
    expectTypeOf(Tensor.from([1]).to('i64').data).toEqualTypeOf<BigInt64Array>()
    expectTypeOf(Ragged.from(Tensor.from([1]), Uint32Array.of(0, 1)).row(0)).toEqualTypeOf<Tensor<'f32'>>()
    expectTypeOf<ReturnType<Tensor['item']>>().toEqualTypeOf<number | bigint | boolean>()
  })
})

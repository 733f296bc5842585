import { expectTypeOf, test } from 'vitest'
import {
  Binary,
  Bounded,
  Categorical,
  Choice,
  Composite,
  NonTensor,
  OneHot,
  type PlainOf,
  Unbounded,
  UnboundedDiscrete,
  type ValueOf,
} from '../../src/spec/index.js'
import type { NonTensorData, NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'

const step = new Composite({
  observation: new Unbounded({ shape: [4] }),
  action: new OneHot(3),
  force: new Bounded(-1, 1, { shape: [2, 3], dtype: 'f64' }),
  task: new NonTensor({ shape: [] }),
  any: null,
  next: new Composite({
    done: new Binary(1, { dtype: 'bool' }),
    count: new UnboundedDiscrete({ shape: [] }),
  }),
})

test('the type of a value follows from the literal of its spec', () => {
  expectTypeOf<ValueOf<Unbounded>>().toEqualTypeOf<Tensor<'f32'>>()
  expectTypeOf(new Categorical(4).zero()).toEqualTypeOf<Tensor<'i64'>>()
  expectTypeOf(new Categorical(4, { dtype: 'u8' }).zero()).toEqualTypeOf<Tensor<'u8'>>()
  expectTypeOf(new NonTensor().zero()).toEqualTypeOf<NonTensorData | NonTensorStack>()
  const value = step.zero()
  expectTypeOf(value).toExtend<TensorDict>()
  expectTypeOf(value.get('force')).toEqualTypeOf<Tensor<'f64'>>()
  expectTypeOf(value.tensor('observation')).toEqualTypeOf<Tensor<'f32'>>()
  expectTypeOf(value.get('next').get('done')).toEqualTypeOf<Tensor<'bool'>>()
  expectTypeOf(step.get('action')).toEqualTypeOf<OneHot<'bool', readonly [number]>>()
})

test('the type of plain JSON follows too, as deep as the shape is long', () => {
  expectTypeOf<PlainOf<Categorical>>().toEqualTypeOf<number>()
  expectTypeOf<PlainOf<Unbounded<'bool', readonly [2, 3]>>>().toEqualTypeOf<readonly (readonly boolean[])[]>()
  type Plain = PlainOf<typeof step>
  expectTypeOf<Plain['action']>().toEqualTypeOf<number>()
  expectTypeOf<Plain['force']>().toEqualTypeOf<readonly (readonly number[])[]>()
  expectTypeOf<Plain['next']>().toEqualTypeOf<{ readonly done: readonly boolean[]; readonly count: number }>()
  expectTypeOf<Plain>().not.toHaveProperty('any')
  // @ts-expect-error an action is one index
  const wrong = () => new OneHot(3).encode([0])
  expectTypeOf(wrong).toBeFunction()
})

test('structure keeps the class and the types of values', () => {
  expectTypeOf(new Categorical(4).expand([2]).zero()).toEqualTypeOf<Tensor<'i64'>>()
  expectTypeOf(new Categorical(4).expand([2]).toOneHot).toBeFunction()
  const rows = step.expand([5])
  expectTypeOf(rows.zero().get('force')).toEqualTypeOf<Tensor<'f64'>>()
  expectTypeOf(rows.unbind()[0]?.zero().get('next').get('count')).toEqualTypeOf<Tensor<'i64'> | undefined>()
})

test('a choice has the values of its specs', () => {
  const gear = new Choice([new Bounded(0, 1, { shape: [1] }), new Bounded(2, 3, { shape: [1] })])
  expectTypeOf(gear.zero()).toEqualTypeOf<Tensor<'f32'>>()
})

test('an unknown option or dtype is no type', () => {
  // @ts-expect-error the option is called dtype
  const option = () => new Unbounded({ type: 'f32' })
  // @ts-expect-error floats are not discrete
  const dtype = () => new UnboundedDiscrete({ dtype: 'f32' })
  expectTypeOf([option, dtype]).toBeArray()
})

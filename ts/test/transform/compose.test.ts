import { expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import {
  Compose,
  MultiStepTransform,
  PolicyAgeFilter,
  RandomCropTensorDict,
  RenameTransform,
  RewardClipping,
  RewardScaling,
} from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { bools, numbersAt, stepsOf } from './steps.js'

it('reads in order and writes in reverse', () => {
  using both = new Compose([new RewardScaling({ loc: 0, scale: 10 }), new RewardClipping({ clampMax: 5 })])
  const batch = TensorDict.from({ reward: Tensor.from([1, 0.25]) }, { batchSize: [2] })
  expect(numbersAt(both.forward(batch), 'reward')).toEqual([5, 2.5])
  using names = new Compose([
    new RenameTransform({ inKeysInv: 'c', outKeysInv: 'b' }),
    new RenameTransform({ inKeysInv: 'b', outKeysInv: 'a' }),
  ])
  expect(names.inverse(TensorDict.from({ a: Tensor.from([1]) }))?.keys()).toEqual(['c'])
  expect(new Compose([]).forward(batch).equals(batch)).toBe(true)
})

it('lets what one of them held back pass the others', () => {
  const steps = new MultiStepTransform({ nSteps: 2, gamma: 1 })
  using both = new Compose([new RenameTransform({ inKeysInv: 'score', outKeysInv: 'gamma' }), steps])
  expect(both.inverse(stepsOf(1, [1, 2], [false, false]).dict)).toBe(undefined)
  const held = both.stateDict()
  expect(numbersAt(both.flush() as TensorDict, 'score')).toEqual([1, 1])
  expect(both.flush()).toBe(undefined)
  both.loadStateDict(held)
  // The state is that of the transform itself.
  expect(steps.stateDict().leafKeys().length).toBeGreaterThan(0)
  both.clear()
  expect(both.flush()).toBe(undefined)
  expect(steps.stateDict().leafKeys()).toEqual([])
})

it('goes on where its state was taken', () => {
  const crops = () => new Compose([new RandomCropTensorDict({ subSeqLen: 1, seed: 5 })])
  const steps = TensorDict.from({ id: Tensor.from([...Array(50).keys()]) }, { batchSize: [50] })
  const draw = (compose: Compose) => numbersAt(compose.forward(steps), 'id')[0]
  using left = crops()
  for (let step = 0; step < 7; step++) draw(left)
  const state = left.stateDict()
  const rest = Array.from({ length: 20 }, () => draw(left))
  using right = crops()
  right.loadStateDict(state)
  expect(Array.from({ length: 20 }, () => draw(right))).toEqual(rest)
  expect(new Set(rest).size).toBeGreaterThan(5)
  expect(codeOf(() => new Compose([]).loadStateDict(state))).toBe('INCOMPATIBLE')
})

it('asks for the version of the policy before each use, also inside another one', () => {
  let version = 0
  using filter = new Compose([new Compose([new PolicyAgeFilter({ version: () => version })])])
  const rows = TensorDict.from({ policy_version: Tensor.from(Int32Array.of(0, 1)) }, { batchSize: [2] })
  expect(filter.forward(rows).batchSize).toEqual([2])
  version = 1
  expect(filter.forward(rows).batchSize).toEqual([1])
  expect(filter.inverse(rows)?.batchSize).toEqual([1])
  using told = new Compose([new PolicyAgeFilter()])
  told.setPolicyVersion(2)
  expect(told.forward(rows).batchSize).toEqual([0])
})

it('needs transforms that are open, and keeps theirs after they are disposed', () => {
  const scaling = new RewardScaling({ loc: 0, scale: 2, inKeys: [['next', 'reward']] })
  using both = new Compose([scaling])
  scaling[Symbol.dispose]()
  const steps = TensorDict.from()
    .set(['next', 'reward'], Tensor.from([1]))
    .set('ends', bools([true]))
  expect(numbersAt(both.forward(steps), 'next', 'reward')).toEqual([2])
  expect(codeOf(() => new Compose([scaling]))).toBe('CLOSED')
  const own = { forward: (batch: TensorDict) => batch } as RewardScaling
  expect(codeOf(() => new Compose([own]))).toBe('INCOMPATIBLE')
})

import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import {
  BinarizeReward,
  DensifyReward,
  Reward2GoTransform,
  RewardClipping,
  RewardScaling,
  SignTransform,
  type Transform,
} from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { drawnSteps, numbersAt, stepsOf, trajectoryOf } from './steps.js'

it('changes rewards one by one, in place or elsewhere', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -40, max: 40 }), { minLength: 1 }), (rewards) => {
      const batch = TensorDict.from({ reward: Tensor.from(rewards) }, { batchSize: [rewards.length] })
      const outKeys = [['next', 'changed']] as const
      const pairs: [Transform, (reward: number) => number][] = [
        [new RewardScaling({ loc: 1, scale: -2, outKeys }), (reward) => -2 * reward + 1],
        [
          new RewardClipping({ clampMin: -3, clampMax: 4, outKeys }),
          (reward) => Math.max(-3, Math.min(4, reward)),
        ],
        [new BinarizeReward({ outKeys }), (reward) => Number(reward > 0)],
        [new SignTransform({ outKeys }), (reward) => Math.sign(reward)],
      ]
      for (const [transform, change] of pairs) {
        const changed = transform.forward(batch)
        expect(numbersAt(changed, 'next', 'changed')).toEqual(rewards.map((reward) => change(reward) + 0))
        expect(numbersAt(changed, 'reward')).toEqual(rewards)
      }
    }),
    { numRuns: 30 },
  )
})

it('sums what is still to come, when rows are written and when they are read', () => {
  fc.assert(
    fc.property(drawnSteps, (steps) => {
      const want = steps.rewards.map((_, at) =>
        trajectoryOf(steps, at)
          .filter((step) => step >= at)
          .reduce((sum, step) => sum + 0.5 ** (step - at) * (steps.rewards[step] as number), 0),
      )
      const dense = new DensifyReward({ discount: 0.5 }).forward(steps.dict)
      expect(numbersAt(dense, 'next', 'reward')).toEqual(want)
      using toGo = new Reward2GoTransform({ gamma: 0.5 })
      const lanes = Array.from({ length: steps.lanes }, (_, lane) =>
        steps.done.slice(lane * steps.length, (lane + 1) * steps.length),
      )
      if (lanes.every((done) => done.includes(true))) {
        expect(numbersAt(toGo.inverse(steps.dict) as TensorDict, 'rtg')).toEqual(want)
      } else expect(codeOf(() => toGo.inverse(steps.dict))).toBe('INCOMPATIBLE')
    }),
    { numRuns: 60 },
  )
})

it('sums along the dimension that is told', () => {
  const { dict } = stepsOf(2, [1, 2, 4, 8], [false, false, false, false])
  const sums = (timeDim: number) => numbersAt(new DensifyReward({ timeDim }).forward(dict), 'next', 'reward')
  expect(sums(0)).toEqual([5, 10, 4, 8])
  expect(sums(1)).toEqual([3, 2, 12, 8])
  expect(codeOf(() => sums(2))).toBe('OUT_OF_RANGE')
})

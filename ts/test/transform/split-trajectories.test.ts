import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { splitTrajectories, splitTrajectoriesRagged } from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { drawnSteps, numbersAt, trajectoryOf } from './steps.js'

it('cuts steps behind each end, which joined again are the steps', () => {
  fc.assert(
    fc.property(drawnSteps, (steps) => {
      const whole = steps.rewards.map((_, at) => trajectoryOf(steps, at))
      const trajectories = whole.filter((trajectory, at) => trajectory[0] === at)
      const split = splitTrajectories(steps.dict)
      const longest = Math.max(...trajectories.map((trajectory) => trajectory.length))
      expect(split.batchSize).toEqual([trajectories.length, longest])
      const mask = split.tensor(['collector', 'mask'])
      const joined = split.maskedSelect(mask).exclude(['collector'])
      expect(joined.equals(steps.dict.reshape([-1]))).toBe(true)
      const ragged = splitTrajectoriesRagged(steps.dict).ragged('observation')
      const rows = trajectories.map((_, at) => [...ragged.row(at).data].map(Number))
      expect(rows).toEqual(trajectories)
    }),
    { numRuns: 60 },
  )
})

it('goes by integers where there are some, or by what it is told', () => {
  const steps = TensorDict.from(
    { id: Tensor.from([1, 2, 3]), other: Tensor.from(Int32Array.of(1, 1, 2)) },
    { batchSize: [3] },
  )
    .set(['meta', 'traj_ids'], Tensor.from(Int32Array.of(4, 5, 5)))
    .set(['next', 'over'], Tensor.from(Uint8Array.of(1, 1, 1), { dtype: 'bool' }))
  const lengths = (options: object) => numbersAt(splitTrajectories(steps, options), 'id')
  expect(lengths({ prefix: 'meta' })).toEqual([1, 0, 2, 3])
  expect(lengths({ trajectoryKey: 'other' })).toEqual([1, 2, 3, 0])
  expect(lengths({ doneKey: 'over' })).toEqual([1, 2, 3])
  expect(splitTrajectories(steps, { doneKey: 'over', prefix: ['a', 'b'] }).has(['a', 'b', 'mask'])).toBe(true)
  expect(codeOf(() => lengths({}))).toBe('UNKNOWN_NAME')
  expect(codeOf(() => lengths({ key: 'over' }))).toBe('UNKNOWN_NAME')
  expect(codeOf(() => splitTrajectories(TensorDict.from()))).toBe('SHAPE_MISMATCH')
  expect(codeOf(() => splitTrajectories(TensorDict.from({}, { batchSize: [0] })))).toBe('EMPTY')
})

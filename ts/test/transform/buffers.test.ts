// Buffers whose items and batches pass transforms.
import { describe, expect, it } from 'vitest'
import { LazyTensorStorage, ReplayBuffer } from '../../src/replay/index.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import {
  MultiStepTransform,
  PolicyAgeFilter,
  RenameTransform,
  Reward2GoTransform,
  SelectTransform,
  ToTensorImage,
  type Transform,
} from '../../src/transform/index.js'
import { numbersAt, stepsOf } from './steps.js'

const buffered = (transforms: Transform[]) =>
  new ReplayBuffer({ storage: new LazyTensorStorage(100), transforms, seed: 1 })

describe('a buffer with transforms', () => {
  it('writes what inverse makes of items, the last transform first', () => {
    using buffer = buffered([
      new RenameTransform({ inKeysInv: 'score', outKeysInv: 'rtg', inKeys: 'score', outKeys: 'value' }),
      new Reward2GoTransform({ gamma: 0.5 }),
    ])
    buffer.extend(stepsOf(1, [1, 2, 4], [false, false, true]).dict.index(0))
    expect(numbersAt(buffer.readAllInOrder(), 'score')).toEqual([3, 4, 4])
    expect(numbersAt(buffer.at({}), 'value')).toEqual([3, 4, 4])
    expect(buffer.sample(5).keys()).toEqual(expect.arrayContaining(['observation', 'value']))
  })

  it('keeps frames as bytes and reads them as networks take them', () => {
    using buffer = buffered([new SelectTransform({ keys: 'pixels' }), new ToTensorImage()])
    const frames = TensorDict.from(
      { pixels: Tensor.zeros('u8', [6, 4, 5, 3]), id: Tensor.zeros('f32', [6]) },
      { batchSize: [6] },
    )
    buffer.extend(frames)
    const pixels = buffer.sample(2).tensor('pixels')
    expect([pixels.dtype, pixels.shape]).toEqual(['f32', [2, 3, 4, 5]])
    expect(buffer.storage.get([0]).tensor('pixels').dtype).toBe('u8')
    expect(buffer.sample(2).keys()).toEqual(['pixels'])
  })

  it('holds the last steps back, and says so with no rows', () => {
    const steps = new MultiStepTransform({ nSteps: 2, gamma: 1 })
    using buffer = buffered([steps])
    const { dict } = stepsOf(1, [1, 2, 4, 8], [false, false, false, false])
    expect(buffer.extend(dict.index(0).slice(0, 2))).toEqual([])
    expect(buffer.extend(dict.index(0).slice(2, 4))).toEqual([0, 1])
    expect(numbersAt(buffer.readAllInOrder(), 'next', 'reward')).toEqual([3, 6])
    expect(numbersAt(steps.flush() as TensorDict, 'next', 'reward')).toEqual([12, 8])
  })

  it('leaves rows out that are too old, when they are written and when they are drawn', () => {
    let version = 3
    using buffer = buffered([new PolicyAgeFilter({ version: () => version, maxPolicyLag: 1 })])
    const rows = TensorDict.from(
      { policy_version: Tensor.from(Int32Array.of(0, 2, 2, 3)) },
      { batchSize: [4] },
    )
    expect(buffer.extend(rows)).toEqual([0, 1, 2])
    expect(buffer.sample(4).batchSize).toEqual([4])
    version = 10
    expect(buffer.sample(4).batchSize).toEqual([0])
  })
})

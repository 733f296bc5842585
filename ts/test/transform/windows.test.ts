import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import {
  ActionChunkTransform,
  BurnInTransform,
  CatFrames,
  NextStateReconstructor,
  RandomCropTensorDict,
} from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { bools, drawnSteps, numbersAt, trajectoryOf } from './steps.js'

it('CatFrames is a walk back from every step', () => {
  fc.assert(
    fc.property(drawnSteps, fc.integer({ min: 1, max: 4 }), fc.boolean(), (steps, n, isSame) => {
      const { lanes, length, dict } = steps
      const ids = dict.tensor('observation').reshape([lanes, length, 1])
      dict.set('observation', ids)
      const padding = isSame ? 'same' : 'constant'
      using stack = new CatFrames({ n, dim: -1, inKeys: 'observation', padding, paddingValue: -7 })
      const got = stack.forward(dict).tensor('observation')
      expect(got.shape).toEqual([lanes, length, n])
      const want = steps.rewards.flatMap((_, at) => {
        const seen = trajectoryOf(steps, at).filter((step) => step <= at)
        return [...Array<number>(n).fill(isSame ? (seen[0] as number) : -7), ...seen].slice(-n)
      })
      expect([...got.data].map(Number)).toEqual(want)
    }),
    { numRuns: 60 },
  )
})

it('ActionChunkTransform is a walk on from every step', () => {
  fc.assert(
    fc.property(drawnSteps, fc.integer({ min: 1, max: 4 }), (steps, chunkSize) => {
      const { lanes, length, dict } = steps
      dict.set('action', dict.tensor('observation').reshape([lanes, length, 1]))
      using chunks = new ActionChunkTransform({ chunkSize, outKey: 'chunk' })
      const got = chunks.forward(dict)
      const walks = steps.rewards.map((_, at) => trajectoryOf(steps, at).filter((step) => step >= at))
      const places = [...Array(chunkSize).keys()]
      expect(got.tensor('chunk').shape).toEqual([lanes, length, chunkSize, 1])
      expect(numbersAt(got, 'chunk')).toEqual(
        walks.flatMap((walk) => places.map((place) => walk[Math.min(place, walk.length - 1)])),
      )
      expect(numbersAt(got, 'action_is_pad')).toEqual(
        walks.flatMap((walk) => places.map((place) => Number(place >= walk.length))),
      )
    }),
    { numRuns: 60 },
  )
})

it('RandomCropTensorDict draws every start of a sequence, as its seed says', () => {
  const steps = TensorDict.from({ id: Tensor.from([0, 1, 2, 3, 4]) }, { batchSize: [5] }).set(
    'mask',
    bools([true, true, true, true, false]),
  )
  const starts = (seed: number, maskKey?: string) => {
    using crop = new RandomCropTensorDict({ subSeqLen: 3, seed, ...(maskKey && { maskKey }) })
    return Array.from({ length: 90 }, () => {
      const [first, ...rest] = numbersAt(crop.forward(steps), 'id') as [number, ...number[]]
      expect(rest).toEqual([first + 1, first + 2])
      return first
    })
  }
  expect(starts(1)).toEqual(starts(1))
  expect(starts(1)).not.toEqual(starts(2))
  const counts = [0, 1, 2].map((start) => starts(1).filter((drawn) => drawn === start).length)
  // 30 of each are expected; five standard deviations are allowed.
  expect(counts.every((count) => Math.abs(count - 30) < 23)).toBe(true)
  expect(new Set(starts(1, 'mask'))).toEqual(new Set([0, 1]))
  using long = new RandomCropTensorDict({ subSeqLen: 6 })
  expect(codeOf(() => long.forward(steps))).toBe('OUT_OF_RANGE')
})

it('NextStateReconstructor takes the next row of the trajectory', () => {
  const sample = () =>
    TensorDict.from(
      { observation: Tensor.from([1, 2, 3, 4]), count: Tensor.from(Int32Array.of(0, 5, 6, 7)) },
      { batchSize: [4] },
    )
      .set(['collector', 'traj_ids'], Tensor.from(Int32Array.of(3, 3, 3, 1)))
      .set(['next', 'done'], bools([false, true, false, false]))
  const filled = (options: object) =>
    numbersAt(new NextStateReconstructor(options).forward(sample()), 'next', 'observation')
  const none = Number.NaN
  expect(filled({})).toEqual([2, none, none, none])
  expect(filled({ fillValue: Number.NaN })).toEqual([2, none, none, none])
  expect(filled({ doneKey: null, fillValue: -1 })).toEqual([2, 3, -1, -1])
  expect(filled({ doneKey: null, trajKey: null, fillValue: -1 })).toEqual([2, 3, 4, -1])
  expect(filled({ doneKey: null, trajKey: null, stepCountKey: 'count' })).toEqual([none, 3, 4, none])
  expect(codeOf(() => filled({ keys: 'count' }))).toBe('OUT_OF_RANGE')
  expect(codeOf(() => filled({ trajKey: 'other' }))).toBe('UNKNOWN_NAME')
  expect(filled({ trajKey: 'other', strict: false })).toEqual([2, none, 4, none])
  const batch = TensorDict.from({}, { batchSize: [2, 4] })
  expect(codeOf(() => new NextStateReconstructor().forward(batch))).toBe('SHAPE_MISMATCH')
})

it('BurnInTransform hands on the steps behind the first, which begin where the model left', () => {
  const shape = [2, 4]
  const steps = () =>
    TensorDict.from(
      { x: Tensor.from([1, 2, 3, 4, 5, 6, 7, 8], { shape }), h: Tensor.zeros('f32', shape) },
      { batchSize: shape },
    )
  const summing = (dict: TensorDict) => {
    const [lanes, length] = dict.batchSize as [number, number]
    const x = numbersAt(dict, 'x')
    for (let at = 0; at < x.length; at++)
      if (at % length > 0) x[at] = (x[at] as number) + (x[at - 1] as number)
    return dict.set(['next', 'h'], Tensor.from(x, { shape: [lanes, length] }))
  }
  const warm = (burnIn: number, outKeys: string | string[] = 'h') =>
    new BurnInTransform({ module: summing, burnIn, outKeys })
  const given = steps()
  const rest = warm(2).forward(given)
  expect(rest.batchSize).toEqual([2, 2])
  expect(numbersAt(rest, 'x')).toEqual([3, 4, 7, 8])
  expect(numbersAt(rest, 'h')).toEqual([3, 0, 11, 0])
  expect(rest.keys()).toEqual(['x', 'h'])
  expect(given.equals(steps())).toBe(true)
  expect([steps()].map(warm(0).forward)[0]?.equals(steps())).toBe(true)
  expect(codeOf(() => warm(4).forward(steps()))).toBe('OUT_OF_RANGE')
  expect(codeOf(() => warm(1, ['h', 'c']).forward(steps()))).toBe('UNKNOWN_NAME')
  expect(codeOf(() => warm(1.5))).toBe('OUT_OF_RANGE')
  expect(codeOf(() => new BurnInTransform({ burn: 1 } as never))).toBe('UNKNOWN_NAME')
})

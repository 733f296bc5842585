/** Types of `fulmar/transform`: options of each transform, and dictionaries in and out. */

import { expectTypeOf, test } from 'vitest'
import type { BufferTransform } from '../../src/entry/replay.js'
import {
  ActionChunkTransform,
  BinarizeReward,
  type BurnInTransform,
  CatFrames,
  CatTensors,
  Compose,
  MultiStep,
  type MultiStepOptions,
  type PolicyAgeFilter,
  RandomCropTensorDict,
  Resize,
  RewardScaling,
  SelectTransform,
  splitTrajectories,
  splitTrajectoriesRagged,
  ToTensorImage,
  Transform,
} from '../../src/entry/transform.js'
import type { TensorDict, TensorKey } from '../../src/tensor/index.js'

test('a transform takes and returns dictionaries, and may hold rows back', () => {
  expectTypeOf<Transform['forward']>().returns.toEqualTypeOf<TensorDict>()
  expectTypeOf<Transform['inverse']>().returns.toEqualTypeOf<TensorDict | undefined>()
  expectTypeOf<Transform['flush']>().returns.toEqualTypeOf<TensorDict | undefined>()
  expectTypeOf<Transform['stateDict']>().returns.toEqualTypeOf<TensorDict>()
  expectTypeOf<Transform>().toExtend<Disposable>()
  expectTypeOf(splitTrajectories).returns.toEqualTypeOf<TensorDict>()
  expectTypeOf(splitTrajectoriesRagged).returns.toEqualTypeOf<TensorDict>()
})

test('every transform goes into a buffer, those of the core into Compose', () => {
  expectTypeOf<MultiStep>().toExtend<Transform>()
  expectTypeOf<Transform>().toExtend<BufferTransform>()
  expectTypeOf<BurnInTransform>().toExtend<BufferTransform>()
  expectTypeOf<BurnInTransform>().not.toExtend<Transform>()
  expectTypeOf<Compose['transforms']>().toEqualTypeOf<readonly Transform[]>()
})

test('keys are names or paths, choices are closed unions', () => {
  expectTypeOf<MultiStepOptions['rewardKeys']>().toEqualTypeOf<string | readonly TensorKey[] | undefined>()
  expectTypeOf<ConstructorParameters<typeof Resize>[0]['interpolation']>().toEqualTypeOf<
    'bilinear' | 'bicubic' | 'nearest' | 'nearest-exact' | undefined
  >()
  expectTypeOf<NonNullable<ConstructorParameters<typeof PolicyAgeFilter>[0]>['version']>().toEqualTypeOf<
    number | (() => number) | undefined
  >()
  const make = () => [
    new RewardScaling({ loc: 0, scale: 1, inKeys: ['reward', ['next', 'reward']] }),
    new BinarizeReward(),
    new ActionChunkTransform({ chunkSize: 2, doneKey: null }),
  ]
  expectTypeOf(make).returns.items.toExtend<Transform>()
})

test('unknown options, missing numbers and plain functions are refused', () => {
  const wrong = () => {
    // @ts-expect-error a number of steps and a factor are needed
    new MultiStep({ nSteps: 2 })
    // @ts-expect-error TorchRL's name of `inKeys`
    new RewardScaling({ loc: 0, scale: 1, in_keys: ['reward'] })
    // @ts-expect-error no such interpolation
    new Resize({ w: 4, interpolation: 'lanczos' })
    // @ts-expect-error no such padding
    new CatFrames({ n: 2, dim: -1, inKeys: 'pixels', padding: 'zero' })
    // @ts-expect-error a joined tensor has a key
    new CatTensors({ inKeys: ['a', 'b'] })
    // @ts-expect-error keys are names
    new SelectTransform({ keys: [1] })
    // @ts-expect-error images are floats
    new ToTensorImage({ dtype: 'i64' })
    // @ts-expect-error no such option
    new RandomCropTensorDict({ subSeqLen: 2, sub_seq_len: 3 })
    // @ts-expect-error plain functions go into a buffer
    new Compose([(batch: TensorDict) => batch])
    // @ts-expect-error a transform is a class of its own
    new Transform(() => null as never)
  }
  expectTypeOf(wrong).toBeFunction()
})

import { describe, expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import * as transforms from '../../src/transform/index.js'
import { codeOf } from '../tensor/code-of.js'
import { bools, numbersAt } from './steps.js'

const {
  ActionChunkTransform,
  BinarizeReward,
  CatFrames,
  CatTensors,
  CenterCrop,
  DensifyReward,
  DoubleToFloat,
  ExcludeTransform,
  FlattenObservation,
  GrayScale,
  MultiStep,
  MultiStepTransform,
  NextStateReconstructor,
  PolicyAgeFilter,
  RandomCropTensorDict,
  RenameTransform,
  Resize,
  Reward2GoTransform,
  RewardClipping,
  RewardScaling,
  SelectTransform,
  SignTransform,
  ToTensorImage,
  UnsqueezeTransform,
} = transforms

/** Every class with the least options. */
const CLASSES: readonly [string, (more: object) => transforms.Transform][] = [
  ['ActionChunkTransform', (more) => new ActionChunkTransform({ chunkSize: 2, ...more })],
  ['BinarizeReward', (more) => new BinarizeReward(more)],
  ['CatFrames', (more) => new CatFrames({ n: 2, dim: -1, inKeys: 'observation', ...more })],
  ['CatTensors', (more) => new CatTensors({ inKeys: ['a', 'b'], outKey: 'c', ...more })],
  ['CenterCrop', (more) => new CenterCrop({ w: 2, ...more })],
  ['DensifyReward', (more) => new DensifyReward(more)],
  ['DoubleToFloat', (more) => new DoubleToFloat(more)],
  ['ExcludeTransform', (more) => new ExcludeTransform({ keys: 'a', ...more })],
  ['FlattenObservation', (more) => new FlattenObservation({ firstDim: -2, lastDim: -1, ...more })],
  ['GrayScale', (more) => new GrayScale(more)],
  ['MultiStep', (more) => new MultiStep({ nSteps: 2, gamma: 1, ...more })],
  ['MultiStepTransform', (more) => new MultiStepTransform({ nSteps: 2, gamma: 1, ...more })],
  ['NextStateReconstructor', (more) => new NextStateReconstructor(more)],
  ['PolicyAgeFilter', (more) => new PolicyAgeFilter(more)],
  ['RandomCropTensorDict', (more) => new RandomCropTensorDict({ subSeqLen: 2, ...more })],
  ['RenameTransform', (more) => new RenameTransform(more)],
  ['Resize', (more) => new Resize({ w: 2, ...more })],
  ['Reward2GoTransform', (more) => new Reward2GoTransform(more)],
  ['RewardClipping', (more) => new RewardClipping(more)],
  ['RewardScaling', (more) => new RewardScaling({ loc: 0, scale: 1, ...more })],
  ['SelectTransform', (more) => new SelectTransform({ keys: 'a', ...more })],
  ['SignTransform', (more) => new SignTransform(more)],
  ['ToTensorImage', (more) => new ToTensorImage(more)],
  ['UnsqueezeTransform', (more) => new UnsqueezeTransform({ dim: -1, inKeys: 'a', ...more })],
]

describe.each(CLASSES)('%s', (name, make) => {
  it('has closed options, and its type is not among them', () => {
    expect(make({}).constructor.name).toBe(name)
    expect(codeOf(() => make({ colour: 1 }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => make({ type: 'SignTransform' }))).toBe('UNKNOWN_NAME')
  })

  it('says that it was disposed', () => {
    const transform = make({})
    transform[Symbol.dispose]()
    expect(codeOf(() => transform.forward(TensorDict.from()))).toBe('CLOSED')
    expect(codeOf(() => transform.inverse(TensorDict.from()))).toBe('CLOSED')
    expect(codeOf(() => transform.stateDict())).toBe('CLOSED')
  })

  it('holds nothing before it is used, and takes only a state of its own', () => {
    using transform = make({})
    expect(transform.flush()).toBe(undefined)
    const state = transform.stateDict()
    transform.loadStateDict(state)
    const strange = TensorDict.from({ 9: TensorDict.from({ held: Tensor.from([1]) }) })
    expect(codeOf(() => transform.loadStateDict(strange))).toBe('INCOMPATIBLE')
    expect(transform.stateDict().equals(state)).toBe(true)
  })
})

describe('Transform', () => {
  it.each([
    ['OUT_OF_RANGE', () => new MultiStep({ nSteps: 0, gamma: 1 })],
    ['OUT_OF_RANGE', () => new MultiStepTransform({ nSteps: 1, gamma: 0 })],
    ['MALFORMED', () => new MultiStep({ nSteps: 1.5, gamma: 1 })],
    ['NON_FINITE', () => new MultiStep({ nSteps: 1, gamma: Number.NaN })],
    ['NON_FINITE', () => new Resize({ w: 1, h: Number.POSITIVE_INFINITY })],
    ['NON_FINITE', () => new NextStateReconstructor({ fillValue: Number.NEGATIVE_INFINITY })],
    ['OUT_OF_RANGE', () => new CatFrames({ n: 0, dim: -1, inKeys: 'a' })],
    ['OUT_OF_RANGE', () => new ActionChunkTransform({ chunkSize: 0 })],
    ['OUT_OF_RANGE', () => new RandomCropTensorDict({ subSeqLen: 0 })],
    ['OUT_OF_RANGE', () => new Reward2GoTransform({ gamma: 1.5 })],
    ['OUT_OF_RANGE', () => new DensifyReward({ discount: -0.5 })],
    ['OUT_OF_RANGE', () => new RewardClipping({ clampMin: 2 })],
    ['OUT_OF_RANGE', () => new CenterCrop({ w: 0 })],
    ['OUT_OF_RANGE', () => new PolicyAgeFilter({ maxPolicyLag: -1 })],
    ['LIMIT_EXCEEDED', () => new Resize({ w: 1e6 })],
    ['EMPTY', () => new CatTensors({ inKeys: [], outKey: 'a' })],
    ['SHAPE_MISMATCH', () => new RenameTransform({ inKeys: 'a' })],
    ['INCOMPATIBLE', () => new RenameTransform({ inKeys: 'a', outKeys: 'a' })],
    ['INCOMPATIBLE', () => new ToTensorImage({ dtype: 'i64' as 'f32' })],
    ['MALFORMED', () => new SelectTransform(null as unknown as transforms.SelectTransformOptions)],
  ])('refuses with %s what makes no sense: %s', (code, make) => {
    expect(codeOf(make)).toBe(code)
  })

  it('takes a name, or a list of names and paths, as keys', () => {
    const dict = () =>
      TensorDict.from({ a: Tensor.from([1]), b: Tensor.from([2]) }).set(['next', 'a'], Tensor.from([3]))
    expect(new ExcludeTransform({ keys: 'a' }).forward(dict()).leafKeys()).toEqual([['b'], ['next', 'a']])
    expect(new ExcludeTransform({ keys: ['b', ['next', 'a']] }).forward(dict()).leafKeys()).toEqual([['a']])
    // Two names, no path.
    expect(new ExcludeTransform({ keys: ['next', 'a'] }).forward(dict()).leafKeys()).toEqual([['b']])
  })

  it('leaves what came in as it was, and can be taken out of the object', () => {
    const batches = [1, 2].map((reward) => TensorDict.from({ reward: Tensor.from([reward]) }))
    using scaling = new RewardScaling({ loc: 1, scale: 10 })
    expect(batches.map(scaling.forward).map((batch) => numbersAt(batch, 'reward'))).toEqual([[11], [21]])
    expect(batches.map(scaling.inverse).map((batch) => batch && numbersAt(batch, 'reward'))).toEqual([
      [1],
      [2],
    ])
    expect(batches.map((batch) => numbersAt(batch, 'reward'))).toEqual([[1], [2]])
  })

  it('says what is missing from a dictionary, by its key', () => {
    using binarize = new BinarizeReward({ inKeys: [['next', 'reward']] })
    expect(codeOf(() => binarize.forward(TensorDict.from()))).toBe('UNKNOWN_NAME')
    using densify = new DensifyReward()
    const steps = TensorDict.from({}, { batchSize: [1] })
      .set(['next', 'reward'], Tensor.from([1]))
      .set(['next', 'done'], Tensor.from([1]))
    expect(codeOf(() => densify.forward(steps))).toBe('INCOMPATIBLE')
    expect(numbersAt(densify.forward(steps.set(['next', 'done'], bools([true]))), 'next', 'reward')).toEqual([
      1,
    ])
  })
})

/** Types of `fulmar/replay`: buffers, their parts, and parts of the caller's own. */

import { expectTypeOf, test } from 'vitest'
import {
  type BatchMemory,
  type ConditionalUpdateResult,
  type DurableStorage,
  type EnsembleRow,
  HERReplayBuffer,
  LazyTensorStorage,
  ListStorage,
  PrioritizedReplayBuffer,
  PrioritizedSampler,
  type PriorityTree,
  RateLimiter,
  type ReplayBatch,
  ReplayBuffer,
  type ReplayBufferEnsemble,
  type ReplayBufferState,
  type RoundRobinWriter,
  Sampler,
  Sequence,
  type SliceSampler,
  SliceSamplerWithoutReplacement,
  Storage,
  TensorDictReplayBuffer,
  type TrajectoryPredicate,
  traj,
  Writer,
} from '../../src/entry/replay.js'
import type { Tensor, TensorDict } from '../../src/tensor/index.js'

test('a batch is a dictionary, with rows and information where they are asked', () => {
  expectTypeOf<ReplayBuffer['sample']>().returns.toEqualTypeOf<TensorDict>()
  expectTypeOf<ReplayBuffer['sampleWithInfo']>().returns.toEqualTypeOf<ReplayBatch>()
  expectTypeOf<ReplayBatch>().toEqualTypeOf<{
    readonly items: TensorDict
    readonly index: readonly number[]
    readonly info: TensorDict
  }>()
  expectTypeOf<ReplayBuffer['extend']>().returns.toEqualTypeOf<number[]>()
  expectTypeOf<ReplayBuffer['add']>().returns.toEqualTypeOf<number>()
  expectTypeOf<ReplayBufferEnsemble['extend']>().returns.toEqualTypeOf<EnsembleRow[]>()
  expectTypeOf<ReplayBuffer['updateIfPresent']>().returns.toEqualTypeOf<ConditionalUpdateResult>()
  expectTypeOf<ReplayBuffer>().toExtend<Iterable<TensorDict>>()
})

test('the iteration has the type that collate gives', () => {
  const plain = (buffer: ReplayBuffer) => buffer.batches()
  expectTypeOf(plain).returns.toEqualTypeOf<AsyncGenerator<TensorDict, void, undefined>>()
  const ids = (buffer: ReplayBuffer) => buffer.batches({ collate: (batch) => batch.tensor('id').data.length })
  expectTypeOf(ids).returns.toEqualTypeOf<AsyncGenerator<number, void, undefined>>()
})

test('kinds of buffers and parts are classes of their own', () => {
  expectTypeOf<PrioritizedReplayBuffer>().toExtend<ReplayBuffer>()
  expectTypeOf(TensorDictReplayBuffer.attach).returns.toEqualTypeOf<TensorDictReplayBuffer>()
  expectTypeOf<DurableStorage>().toExtend<Storage>()
  expectTypeOf<RoundRobinWriter>().toExtend<Writer>()
  expectTypeOf<SliceSampler>().toExtend<Sampler>()
  expectTypeOf<Storage>().not.toExtend<Sampler>()
  expectTypeOf<Sampler>().not.toExtend<Writer>()
  for (const disposable of [{} as ReplayBuffer, {} as Storage, {} as BatchMemory, {} as PriorityTree])
    expectTypeOf(disposable).toExtend<Disposable>()
})

test('parts of the caller see rows and items', () => {
  const sampler = () =>
    Sampler.from({
      extend: (rows, items) => {
        expectTypeOf(rows).toEqualTypeOf<readonly number[]>()
        expectTypeOf(items).toEqualTypeOf<TensorDict>()
      },
      sample: (length, count) => ({ rows: Array.from({ length: count }, () => length - 1) }),
      clear: () => {},
    })
  expectTypeOf(sampler).returns.toEqualTypeOf<Sampler>()
  const writer = () =>
    Writer.from({
      plan: (items, maxSize, freed) => [...freed, items.batchSize[0] ?? maxSize],
      clear: () => {},
    })
  expectTypeOf(writer).returns.toEqualTypeOf<Writer>()
  const her = () =>
    new HERReplayBuffer({
      storage: new LazyTensorStorage(4),
      rewardFn: (rows) => {
        expectTypeOf(rows).toEqualTypeOf<TensorDict>()
        return rows.tensor('reward')
      },
    })
  expectTypeOf(her).returns.toEqualTypeOf<HERReplayBuffer>()
})

test('questions about trajectories and states are plain data', () => {
  expectTypeOf(traj.totalReward.above).returns.toEqualTypeOf<TrajectoryPredicate>()
  expectTypeOf(traj.of)
    .parameter(1)
    .toEqualTypeOf<'sum' | 'mean' | 'max' | 'min' | 'first' | 'last' | 'any' | 'all'>()
  expectTypeOf<ReplayBufferState['parts']>().toEqualTypeOf<string>()
  expectTypeOf<PriorityTree['min']>().returns.toEqualTypeOf<number | undefined>()
  expectTypeOf<PriorityTree['max']>().returns.toEqualTypeOf<
    { readonly row: number; readonly leaf: number } | undefined
  >()
})

test('unknown options and other parts are refused', () => {
  const wrong = (buffer: ReplayBuffer, reward: Tensor) => {
    // @ts-expect-error TorchRL's name of `batchSize`
    new ReplayBuffer({ batch_size: 3 })
    // @ts-expect-error a sampler is no storage
    new ReplayBuffer({ storage: new PrioritizedSampler() })
    // @ts-expect-error a prioritised buffer has its sampler
    new PrioritizedReplayBuffer({ sampler: new PrioritizedSampler() })
    // @ts-expect-error no span without replacement
    new SliceSamplerWithoutReplacement({ sliceLen: 2, span: true })
    // @ts-expect-error no such boundary
    new Sequence({ length: 2, episodeBoundary: 'wrap' })
    // @ts-expect-error a kind decides the options
    new RateLimiter({ kind: 'queue', minSize: 3 })
    // @ts-expect-error items are dictionaries
    buffer.extend({ reward })
    // @ts-expect-error a size is a number
    new ListStorage('10')
    // @ts-expect-error storages are made by their classes
    new Storage(() => null as never)
    // @ts-expect-error a source of rows must sample
    Sampler.from({ extend: () => {}, clear: () => {} })
  }
  expectTypeOf(wrong).toBeFunction()
})

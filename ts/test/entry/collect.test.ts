/** Types of `fulmar/collect`: samples, weights and works are generic, states are plain data. */

import { expectTypeOf, test } from 'vitest'
import {
  type ClaimedWork,
  type CollectorBatch,
  type CollectorUnit,
  Controller,
  type ControllerStep,
  type OverStale,
  type ParkingPolicy,
  padRows,
  RolloutCollector,
  type RowLayout,
  readyFirst,
  rolloutRows,
  type StalenessPolicy,
  strictFifo,
  type TrainOutcome,
  WeightSync,
  type WindowedFifo,
  WorkBuffer,
  windowedFifo,
} from '../../src/entry/collect.js'
import type { Policy, WeightReceiver } from '../../src/policy/index.js'
import type { Rollouter, RolloutGroup } from '../../src/rollout/index.js'
import type { TensorDict } from '../../src/tensor/index.js'

interface Colour {
  readonly colour: string
}

test('a controller and a collector have the samples of their rollouter', () => {
  const control = (rollouter: Rollouter<Colour>, policy: Policy) =>
    new Controller({
      ...{ rollouter, policy, groupsPerStep: 2, steps: 3 },
      train: async (batch, { beforeUpdate }) => {
        expectTypeOf(batch.numTrained).toEqualTypeOf<number>()
        expectTypeOf(beforeUpdate).toEqualTypeOf<() => Promise<void>>()
        return { version: 1, metrics: {} }
      },
      onGroup: (group) => expectTypeOf(group).toEqualTypeOf<RolloutGroup<Colour>>(),
    })
  expectTypeOf(control).returns.toEqualTypeOf<Controller<Colour>>()
  expectTypeOf<ControllerStep<Colour>['groups']>().toEqualTypeOf<readonly RolloutGroup<Colour>[]>()
  expectTypeOf<ControllerStep<Colour>['outcome']>().toEqualTypeOf<TrainOutcome>()
  const collect = (rollouter: Rollouter<Colour>) => new RolloutCollector({ rollouter })
  expectTypeOf(collect).returns.toEqualTypeOf<RolloutCollector<Colour>>()
  expectTypeOf<RolloutCollector<Colour>['collect']>().returns.resolves.toEqualTypeOf<CollectorBatch<Colour>>()
  expectTypeOf<CollectorBatch>().toExtend<Disposable>()
})

test('weights have the type that is captured, at every receiver', () => {
  const sync = (receiver: WeightReceiver<string>) =>
    new WeightSync({ capture: (version) => `v${version}`, receivers: [receiver] })
  expectTypeOf(sync).returns.toEqualTypeOf<WeightSync<string>>()
  const other = (paths: WeightReceiver<string>) =>
    // @ts-expect-error this receiver takes paths
    new WeightSync({ capture: () => 7, receivers: [paths] })
  expectTypeOf(other).toBeFunction()
  expectTypeOf<ParkingPolicy>().toExtend<WeightReceiver<Policy>>()
  expectTypeOf<ParkingPolicy>().toExtend<Policy>()
  expectTypeOf<WeightSync<string>['served']>().toEqualTypeOf<Readonly<Record<string, number | null>>>()
})

test('a work buffer keeps the types of works and results', () => {
  expectTypeOf<
    WorkBuffer<Colour, number>['claimNext']
  >().returns.resolves.toEqualTypeOf<ClaimedWork<Colour> | null>()
  expectTypeOf<WorkBuffer<Colour, number>['finalizeWork']>().parameter(1).toEqualTypeOf<number>()
  const dropped = (staleness: StalenessPolicy) =>
    new WorkBuffer({ staleness, onDropped: (_work: Colour, _result: number) => {} })
  expectTypeOf(dropped).returns.toEqualTypeOf<WorkBuffer<Colour, number>>()
})

test('staleness policies, units and rows are closed unions', () => {
  expectTypeOf(strictFifo).returns.toEqualTypeOf<WindowedFifo>()
  expectTypeOf(readyFirst).returns.toEqualTypeOf<StalenessPolicy>()
  expectTypeOf<OverStale>().toEqualTypeOf<'continue' | 'maskPrefix' | 'withhold' | 'cancel'>()
  expectTypeOf<CollectorUnit>().toEqualTypeOf<'trajectories' | 'turns' | 'tokens'>()
  expectTypeOf(rolloutRows).returns.toEqualTypeOf<TensorDict | null>()
  expectTypeOf(rolloutRows).parameter(1).toEqualTypeOf<'branches' | 'turns' | 'lastTurns'>()
  expectTypeOf(padRows).returns.toEqualTypeOf<RowLayout>()
})

test('unknown options and units are refused', () => {
  const wrong = (rollouter: Rollouter<Colour>) => {
    // @ts-expect-error the option is called `offPolicySteps`
    windowedFifo({ groupsPerStep: 8, staleness: 1 })
    // @ts-expect-error no window here
    strictFifo({ groupsPerStep: 8, windowFraction: 0.3 })
    // @ts-expect-error no such treatment
    readyFirst({ groupsPerStep: 8, overStale: 'drop' })
    // @ts-expect-error no such unit
    new RolloutCollector({ rollouter, batch: { unit: 'rows', size: 2 } })
    // @ts-expect-error no such budget
    new RolloutCollector({ rollouter, budget: { rows: 2 } })
    // @ts-expect-error a policy, a function that trains and counts are needed
    new Controller({ rollouter })
  }
  expectTypeOf(wrong).toBeFunction()
})

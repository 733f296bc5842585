/** Types of `fulmar/rollout`: rollouts of typed samples, statuses, training batches. */

import { expectTypeOf, test } from 'vitest'
import type { Message, Renderer } from '../../src/chat/index.js'
import type { TrainingSample } from '../../src/entry/chat.js'
import {
  buildTrainingSamples,
  type Evaluation,
  estimateAdvantages,
  type GroupWork,
  keepExtremeRewards,
  messagesOf,
  packTrainingBatch,
  type Rollout,
  type RolloutCause,
  Rollouter,
  type RolloutGroup,
  type RolloutStatus,
  type RolloutView,
  Rubric,
  type RubricOutput,
  type TokenEnv,
  type TokenEnvOutput,
  type TrainingBatch,
} from '../../src/entry/rollout.js'
import type { RewardFn, Task } from '../../src/entry/task.js'
import type { Policy } from '../../src/policy/index.js'

interface Colour {
  readonly colour: string
}

test('a rollouter takes the samples of its task through works, groups and evaluations', () => {
  const make = (policy: Policy, task: Task<Colour>, renderer: Renderer) =>
    new Rollouter({ policy, task, renderer, maxTokens: 4 })
  expectTypeOf(make).returns.toEqualTypeOf<Rollouter<Colour>>()
  expectTypeOf<Rollouter<Colour>['nextWork']>().returns.toEqualTypeOf<GroupWork<Colour>>()
  expectTypeOf<Rollouter<Colour>['runGroup']>().returns.resolves.toEqualTypeOf<RolloutGroup<Colour>>()
  expectTypeOf<RolloutGroup<Colour>['sample']>().toEqualTypeOf<Colour>()
  expectTypeOf<Rollouter<Colour>['evaluate']>().returns.resolves.toEqualTypeOf<Evaluation<Colour>>()
  expectTypeOf<RolloutGroup>().toExtend<Disposable>()
})

test('a rubric has the samples of its rewards', () => {
  const rubric = (exact: RewardFn<Colour>) => new Rubric({ rewardFns: [exact] })
  expectTypeOf(rubric).returns.toEqualTypeOf<Rubric<Colour>>()
  expectTypeOf<Rubric<Colour>['score']>().parameters.toEqualTypeOf<
    [rollout: RolloutView, sample: Colour, signal?: AbortSignal | undefined]
  >()
  expectTypeOf<Rubric<Colour>['score']>().returns.resolves.toEqualTypeOf<RubricOutput>()
})

test('a rollout may have no reward, and its status and cause are closed unions', () => {
  expectTypeOf<Rollout['reward']>().toEqualTypeOf<number | null>()
  expectTypeOf<Rollout['advantage']>().toEqualTypeOf<number | null>()
  expectTypeOf<Rollout['rewardBreakdown']>().toEqualTypeOf<Readonly<Record<string, number>>>()
  expectTypeOf<'truncated_length'>().toExtend<RolloutStatus>()
  expectTypeOf<'truncated'>().not.toExtend<RolloutStatus>()
  expectTypeOf<RolloutCause['kind']>().toEqualTypeOf<
    'no_completion' | 'deadline' | 'abort' | 'user_code' | 'renderer' | 'invalid_output'
  >()
  expectTypeOf<Rollout>().toExtend<RolloutView>()
  expectTypeOf(messagesOf).returns.toEqualTypeOf<readonly Message[]>()
  expectTypeOf<TokenEnv['step']>().returns.resolves.toEqualTypeOf<TokenEnvOutput>()
})

test('training batches are typed arrays, advantages keep what is unknown', () => {
  expectTypeOf(packTrainingBatch).returns.toEqualTypeOf<TrainingBatch>()
  expectTypeOf(packTrainingBatch).parameters.toEqualTypeOf<[samples: readonly TrainingSample[]]>()
  expectTypeOf<TrainingBatch['advantages']>().toEqualTypeOf<Float32Array>()
  expectTypeOf(buildTrainingSamples)
    .returns.toHaveProperty('samples')
    .toEqualTypeOf<readonly TrainingSample[]>()
  expectTypeOf(estimateAdvantages).returns.toEqualTypeOf<(number | null)[]>()
  const best = (rollouts: readonly Rollout[]) => keepExtremeRewards(rollouts, 2)
  expectTypeOf(best).returns.toEqualTypeOf<Rollout[]>()
})

test('unknown options, other samples and changes are refused', () => {
  const wrong = (
    rollouter: Rollouter<Colour>,
    parts: { policy: Policy; task: Task<Colour>; renderer: Renderer },
  ) => {
    // @ts-expect-error a length is needed
    new Rollouter(parts)
    // @ts-expect-error the option is called `groupSize`
    new Rollouter({ ...parts, maxTokens: 4, numGenerations: 8 })
    // @ts-expect-error no such treatment
    new Rollouter({ ...parts, maxTokens: 4, onError: 'retry' })
    // @ts-expect-error this task has other samples
    rollouter.runGroup({ sample: 'red', groupId: 0 })
    // @ts-expect-error no such split
    rollouter.runGroup({ sample: { colour: 'red' }, groupId: 0, split: 'test' })
    // @ts-expect-error scores have a reward
    keepExtremeRewards([{ score: 1 }], 1)
    // @ts-expect-error a rollout cannot be changed
    const change = (rollout: Rollout) => (rollout.reward = 1)
    return change
  }
  expectTypeOf(wrong).toBeFunction()
})

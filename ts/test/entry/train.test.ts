/** Types of `fulmar/train`: recipes over a model or over parts, configurations, run logs. */

import { expectTypeOf, test } from 'vitest'
import type { AdamW, Decoder } from '../../src/entry/model.js'
import { DPOLoss, KTOLoss, SFTLoss } from '../../src/entry/objective.js'
import type { Evaluation, Rollouter } from '../../src/entry/rollout.js'
import type { Task } from '../../src/entry/task.js'
import {
  type Checkpoint,
  checkTrainConfig,
  cosineSchedule,
  createModel,
  type DpoStep,
  dpo,
  type ExpertIterationStep,
  evaluate,
  expertIteration,
  type GrpoOptions,
  grpo,
  type KtoStep,
  kto,
  loadCheckpoint,
  loadModel,
  loadOptimizer,
  type Model,
  metric,
  type Phase,
  type RewardModelStep,
  type RunEvent,
  type RunLog,
  rewardModel,
  runTraining,
  type SftStep,
  sft,
  type TrainConfig,
  type TrainResult,
  trainStep,
} from '../../src/entry/train.js'

interface Colour {
  readonly colour: string
}

test('each recipe yields steps of its own', () => {
  const examples = [{ prompt: 'a', completion: 'b' }]
  const pairs = [{ prompt: 'a', chosen: 'b', rejected: 'c' }]
  const supervised = (model: Model) => sft({ model, examples })
  expectTypeOf(supervised).returns.toEqualTypeOf<AsyncGenerator<SftStep, void, undefined>>()
  const preferred = (model: Model) => dpo({ model, pairs })
  expectTypeOf(preferred).returns.toEqualTypeOf<AsyncGenerator<DpoStep, void, undefined>>()
  const labelled = (model: Model) => kto({ model, examples: [{ prompt: 'a', completion: 'b', label: true }] })
  expectTypeOf(labelled).returns.toEqualTypeOf<AsyncGenerator<KtoStep, void, undefined>>()
  const judged = (model: Model) => rewardModel({ model, pairs })
  expectTypeOf(judged).returns.toEqualTypeOf<AsyncGenerator<RewardModelStep, void, undefined>>()
  expectTypeOf<RewardModelStep['accuracy']>().toEqualTypeOf<number>()
  const experts = (model: Model, task: Task<Colour>) => expertIteration({ model, task, numExperts: 2 })
  expectTypeOf(experts).returns.toEqualTypeOf<AsyncGenerator<ExpertIterationStep, void, undefined>>()
})

test('samples are inferred from a task or a rollouter', () => {
  const measure = (model: Model, task: Task<Colour>) => evaluate({ model, task })
  expectTypeOf(measure).returns.resolves.toEqualTypeOf<Evaluation<Colour>>()
  const parts = (options: GrpoOptions<Colour>) =>
    grpo({ ...options, onGroup: ({ sample }) => expectTypeOf(sample).toEqualTypeOf<Colour>() })
  expectTypeOf(parts).toBeFunction()
  expectTypeOf<GrpoOptions<Colour>['rollouter']>().toEqualTypeOf<Rollouter<Colour>>()
})

test('a model, a checkpoint and an optimizer come back as what they were', () => {
  expectTypeOf(loadModel).returns.resolves.toEqualTypeOf<Model>()
  expectTypeOf(createModel).returns.toEqualTypeOf<Model>()
  expectTypeOf(loadCheckpoint).returns.resolves.toEqualTypeOf<Checkpoint>()
  expectTypeOf<Checkpoint['decoder']>().toEqualTypeOf<Decoder>()
  const optimizer = (make: (state: Uint8Array) => AdamW) => loadOptimizer('folder', make)
  expectTypeOf(optimizer).returns.resolves.toEqualTypeOf<AdamW>()
  expectTypeOf<Model>().toExtend<Disposable>()
  expectTypeOf<RunLog>().toExtend<Disposable>()
})

test('a configuration is whole once it is checked, and events are a closed union', () => {
  expectTypeOf(checkTrainConfig).parameter(0).toBeUnknown()
  expectTypeOf(checkTrainConfig).returns.toEqualTypeOf<TrainConfig>()
  expectTypeOf<TrainConfig['grpo']['steps']>().toEqualTypeOf<number>()
  expectTypeOf<TrainConfig['grpo']['recipe']>().toEqualTypeOf<'grpo' | 'expertIteration'>()
  expectTypeOf(runTraining).returns.resolves.toEqualTypeOf<TrainResult>()
  expectTypeOf<RunEvent['event']>().toEqualTypeOf<'step' | 'eval' | 'result'>()
  expectTypeOf<Phase>().toEqualTypeOf<'sft' | 'dpo' | 'grpo'>()
  expectTypeOf(metric)
    .parameter(1)
    .toEqualTypeOf<'mean' | 'max' | 'min' | 'sum' | 'std' | 'summary' | 'single'>()
  expectTypeOf(cosineSchedule).returns.toEqualTypeOf<(step: number, numSteps: number) => number>()
  expectTypeOf(trainStep).returns.resolves.toHaveProperty('gradientNorm').toEqualTypeOf<number>()
})

test('unknown options, losses of another kind and rows of another form are refused', () => {
  const wrong = (model: Model, task: Task<Colour>) => {
    // @ts-expect-error TRL's name of `groupSize`
    grpo({ model, task, numGenerations: 8 })
    // @ts-expect-error PEFT's name of `rank`
    grpo({ model, task, lora: { r: 8 } })
    // @ts-expect-error the loss reads pairs
    sft({ model, examples: 'rows.jsonl', loss: new DPOLoss() })
    // @ts-expect-error the loss reads labels
    dpo({ model, pairs: 'rows.jsonl', loss: new KTOLoss() })
    // @ts-expect-error the loss of a step is its value
    const loss: DpoStep['loss'] = new SFTLoss()
    // @ts-expect-error a row has a label
    kto({ model, examples: [{ prompt: 'a', completion: 'b' }] })
    // @ts-expect-error a reward model has no adapter
    rewardModel({ model, pairs: 'rows.jsonl', lora: { rank: 8 } })
    // @ts-expect-error the loss reads tokens, not rewards of pairs
    rewardModel({ model, pairs: 'rows.jsonl', loss: new SFTLoss() })
    // @ts-expect-error experts are counted
    expertIteration({ model, task })
    // @ts-expect-error no such dtype
    loadModel('folder', { dtype: 'f16' })
    // @ts-expect-error no such form of an adapter
    model.save('folder', { adapter: 'both' })
    return loss
  }
  expectTypeOf(wrong).toBeFunction()
})

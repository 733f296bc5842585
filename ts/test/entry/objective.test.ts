/** Types of `fulmar/objective`: losses, their batches and presets, and queues of any item. */

import { expectTypeOf, test } from 'vitest'
import {
  type AdaptiveKLController,
  type AdvantageOf,
  type BradleyTerryLoss,
  type DistillationLoss,
  DPOLoss,
  type DPOLossType,
  type Draw,
  drawToken,
  GRPOLoss,
  type GRPOPreset,
  groupAdvantage,
  importanceWeights,
  KTOLoss,
  klEstimate,
  type LossBatch,
  type LossResult,
  MCAdvantage,
  type Objective,
  type ObjectiveResult,
  type PreferenceBatch,
  type RewardLossResult,
  type SFTBatch,
  SFTLoss,
  type SFTLossOutput,
  type TopKRewardSelector,
} from '../../src/entry/objective.js'
import type { TensorDict } from '../../src/tensor/index.js'

test('a loss gives its value and the gradient by log-probs', () => {
  expectTypeOf<GRPOLoss['forward']>().returns.toEqualTypeOf<LossResult>()
  expectTypeOf<DPOLoss['forward']>().returns.toEqualTypeOf<LossResult>()
  expectTypeOf<KTOLoss['forward']>().returns.toEqualTypeOf<LossResult>()
  expectTypeOf<SFTLoss['forward']>().returns.toEqualTypeOf<SFTLossOutput>()
  expectTypeOf<BradleyTerryLoss['forward']>().returns.toEqualTypeOf<RewardLossResult>()
  expectTypeOf<ReturnType<DistillationLoss['forward']>['sequenceLoss']>().toEqualTypeOf<Float64Array>()
  expectTypeOf<LossResult['gradLogProb']>().toEqualTypeOf<Float32Array>()
  expectTypeOf<LossResult['metrics']>().toEqualTypeOf<Readonly<Record<string, number>>>()
  expectTypeOf<RewardLossResult>().not.toHaveProperty('gradLogProb')
})

test('a loss of the caller needs a value and a gradient, and no metrics', () => {
  expectTypeOf<GRPOLoss>().toExtend<Objective<LossBatch>>()
  expectTypeOf<SFTLoss>().toExtend<Objective<SFTBatch>>()
  expectTypeOf<DPOLoss>().not.toExtend<Objective<SFTBatch>>()
  expectTypeOf<{ loss: number; gradLogProb: Float32Array }>().toExtend<ObjectiveResult>()
  expectTypeOf<{ loss: number }>().not.toExtend<ObjectiveResult>()
})

test('presets and losses of pairs are closed unions', () => {
  expectTypeOf<'drGrpo'>().toExtend<GRPOPreset>()
  expectTypeOf<'dr_grpo'>().not.toExtend<GRPOPreset>()
  expectTypeOf<'sigmoid'>().toExtend<DPOLossType>()
  expectTypeOf<'sigmoid_norm'>().not.toExtend<DPOLossType>()
})

test('queues keep the type of their items', () => {
  const queue = () => new MCAdvantage<string>({ grpoSize: 2 })
  expectTypeOf(queue).returns.toEqualTypeOf<MCAdvantage<string>>()
  expectTypeOf<MCAdvantage<string>['push']>().returns.toEqualTypeOf<
    readonly AdvantageOf<string>[] | undefined
  >()
  expectTypeOf<AdvantageOf<string>>().toEqualTypeOf<{
    readonly item: string
    readonly advantage: Float64Array
  }>()
  expectTypeOf<MCAdvantage['clearQueues']>().returns.toEqualTypeOf<TensorDict[]>()
  expectTypeOf<TopKRewardSelector<Date>['push']>().returns.toEqualTypeOf<Date[] | undefined>()
  expectTypeOf<MCAdvantage>().toExtend<Disposable>()
  expectTypeOf<AdaptiveKLController>().toExtend<Disposable>()
})

test('advantages, estimates and draws are numbers in typed arrays', () => {
  expectTypeOf(groupAdvantage).returns.toHaveProperty('advantage').toEqualTypeOf<Float32Array>()
  expectTypeOf(groupAdvantage).returns.toHaveProperty('degenerate').toEqualTypeOf<readonly boolean[]>()
  expectTypeOf(importanceWeights).returns.toEqualTypeOf<Float64Array>()
  expectTypeOf(klEstimate).returns.toHaveProperty('mean').toEqualTypeOf<number>()
  expectTypeOf(drawToken).returns.toEqualTypeOf<Draw>()
  const rewards = () => groupAdvantage({ rewards: [1, null, 0, 1], groupSize: 2 })
  expectTypeOf(rewards).toBeFunction()
})

test('unknown options, presets and batches are refused', () => {
  const wrong = (queue: MCAdvantage<string>, batch: SFTBatch, pairs: PreferenceBatch) => {
    // @ts-expect-error no such preset
    new GRPOLoss({ preset: 'dr_grpo' })
    // @ts-expect-error TRL's name of `clipEpsilon`
    new GRPOLoss({ epsilon: 0.2 })
    // @ts-expect-error no such loss
    new DPOLoss({ lossWeights: { sigmoid_norm: 1 } })
    // @ts-expect-error no such divergence
    new DPOLoss({ fDivergence: 'kl' })
    // @ts-expect-error a policy gradient needs advantages
    new GRPOLoss().forward(batch)
    // @ts-expect-error a supervised loss has no weight of importance
    new SFTLoss({ klToRef: { importanceWeighted: true } })
    // @ts-expect-error labels are needed
    new KTOLoss().forward(pairs)
    // @ts-expect-error the items of this queue are texts
    queue.push('prompt', [1], 7)
    // @ts-expect-error a queue of texts is no transform of dictionaries
    queue.inverse(null as never as TensorDict)
    // @ts-expect-error a draw has a seed and an index
    drawToken({ logits: new Float32Array(4) })
    // @ts-expect-error no such baseline
    groupAdvantage({ rewards: [1, 0], baseline: 'mean' })
  }
  expectTypeOf(wrong).toBeFunction()
})

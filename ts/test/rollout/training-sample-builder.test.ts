import { describe, expect, it } from 'vitest'
import { Ledger } from '../../src/chat/index.js'
import {
  buildTrainingSamples,
  packTrainingBatch,
  type Rollout,
  RolloutGroup,
  type RolloutTurn,
} from '../../src/rollout/index.js'
import { reduceMetrics } from '../../src/telemetry/index.js'

/** A rollout of one turn: prompt `[1, 2]`, these sampled tokens, this reward and advantage. */
function rollout(
  completion: readonly number[],
  reward: number | null,
  advantage: number | null = 0,
): Rollout {
  const ledger = new Ledger()
  const promptIds = Uint32Array.of(1, 2)
  const completionIds = Uint32Array.from(completion)
  const completionLogProbs = new Float32Array(completion.length).fill(-0.5)
  const logProbs = { logProbs: completionLogProbs, sampledLogProbs: completionLogProbs }
  ledger.recordTurn({ promptIds, completionIds, ...logProbs, policyVersion: 3 })
  const turn: RolloutTurn = {
    id: { groupId: 0, rolloutId: 0, turnId: 0 },
    promptIds,
    completionIds,
    completionLogProbs,
    finishReason: 'stop',
    minPolicyVersion: 3,
    maxPolicyVersion: 3,
    promptMessages: [],
    completionMessage: null,
    envMessages: [],
    envRewards: {},
    bridgeRefusal: null,
  }
  const scored = { reward, rewardBreakdown: {}, unscored: {}, advantage }
  return {
    groupId: 0,
    rolloutId: 0,
    attempt: 0,
    status: 'completed',
    cause: null,
    turns: [turn],
    ledger,
    ...scored,
  }
}

function groupOf(...rollouts: Rollout[]): RolloutGroup<null> {
  return new RolloutGroup({ groupId: 0, sample: null, rollouts, metrics: [] })
}

function valuesOf(built: ReturnType<typeof buildTrainingSamples>) {
  return reduceMetrics(built.metrics).values
}

describe('buildTrainingSamples', () => {
  it('gives nothing for an empty group', () => {
    expect(buildTrainingSamples(groupOf())).toEqual({ samples: [], metrics: [] })
  })

  it('drops a group in which a sibling sampled nothing', () => {
    using group = groupOf(rollout([4], 1), rollout([], 0))
    const built = buildTrainingSamples(group)
    expect(built.samples).toEqual([])
    expect(valuesOf(built)['training_sample_builder/num_groups_dropped_untrainable/sum']).toBe(1)
  })

  it('drops a group of equal rewards, or keeps it with advantages of 0', () => {
    using group = groupOf(...[1, 1, 1, 1].map((reward) => rollout([4], reward)))
    const dropped = valuesOf(buildTrainingSamples(group))
    expect(dropped).toEqual({
      'rollout_reward/group_zero_std_frac/mean': 1,
      'training_sample_builder/num_groups_dropped_zero_std/sum': 1,
    })
    const kept = buildTrainingSamples(group, { dropZeroStdRewardGroups: false })
    expect(kept.samples).toHaveLength(4)
    expect(valuesOf(kept)['rollout_reward/group_zero_std_frac/mean']).toBe(1)
    expect(kept.samples.flatMap(({ advantages }) => [...advantages])).toEqual(new Array(12).fill(0))
  })

  it('never calls a group of one zero-std', () => {
    using group = groupOf(rollout([4], 1))
    const built = buildTrainingSamples(group)
    expect(built.samples).toHaveLength(1)
    expect(valuesOf(built)['rollout_reward/group_zero_std_frac/mean']).toBe(0)
  })

  it('drops a group that nobody could score', () => {
    using group = groupOf(rollout([4], null, null), rollout([5], null, null))
    expect(valuesOf(buildTrainingSamples(group))).toEqual({
      'training_sample_builder/num_groups_dropped_unscored/sum': 1,
    })
  })

  it('puts the advantage on sampled tokens only and measures what it made', () => {
    using group = groupOf(rollout([4, 5], 1, 0.5), rollout([6], 0, -0.5))
    const built = buildTrainingSamples(group)
    expect(built.samples.map(({ ids, advantages }) => [[...ids], [...advantages]])).toEqual([
      [
        [1, 2, 4, 5],
        [0, 0, 0.5, 0.5],
      ],
      [
        [1, 2, 6],
        [0, 0, -0.5],
      ],
    ])
    expect(valuesOf(built)).toMatchObject({
      'training_sample_builder/num_training_samples/sum': 2,
      'rollout/branches_per_rollout/max': 1,
      'rollout/min_policy_version/min': 3,
      'advantage/std': 0.5,
    })
  })
})

describe('packTrainingBatch', () => {
  it('lays samples one after another and counts what is trained', () => {
    using group = groupOf(rollout([4, 5], 1, 0.5), rollout([6], 0, -0.5))
    const batch = packTrainingBatch(buildTrainingSamples(group).samples)
    expect([...batch.ids]).toEqual([1, 2, 4, 5, 1, 2, 6])
    expect([...batch.offsets]).toEqual([0, 4, 7])
    expect([...batch.mask]).toEqual([0, 0, 1, 1, 0, 0, 1])
    expect([...batch.logProbs]).toEqual([0, 0, -0.5, -0.5, 0, 0, -0.5])
    expect([...batch.sampledLogProbs]).toEqual([...batch.logProbs])
    expect([...batch.advantages]).toEqual([0, 0, 0.5, 0.5, 0, 0, -0.5])
    expect(batch).toMatchObject({ numTrained: 3, minPolicyVersion: 3, maxPolicyVersion: 3 })
  })

  it('stays whole after the ledgers are gone', () => {
    const group = groupOf(rollout([4], 1, 1), rollout([5], 0, -1))
    const { samples } = buildTrainingSamples(group)
    group[Symbol.dispose]()
    expect([...packTrainingBatch(samples).ids]).toEqual([1, 2, 4, 1, 2, 5])
  })

  it('refuses nothing at all', () => {
    expect(() => packTrainingBatch([])).toThrow(expect.objectContaining({ code: 'EMPTY' }))
  })
})

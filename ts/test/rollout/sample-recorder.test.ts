import { describe, expect, it } from 'vitest'
import { Ledger } from '../../src/chat/index.js'
import {
  keepExtremeRewards,
  type Rollout,
  RolloutGroup,
  type RolloutSample,
  RolloutSampleRecorder,
  type RolloutSampleRecorderOptions,
} from '../../src/rollout/index.js'

const rewardsOf = (rewards: readonly (number | null)[], count: number) => {
  const kept = keepExtremeRewards(
    rewards.map((reward) => ({ reward })),
    count,
  )
  return kept.map(({ reward }) => reward)
}

function rollout(reward: number | null): Rollout {
  return {
    groupId: 3,
    rolloutId: 0,
    attempt: 0,
    status: 'completed',
    cause: null,
    turns: [
      {
        id: { groupId: 3, rolloutId: 0, turnId: 0 },
        promptIds: Uint32Array.of(1, 2),
        completionIds: Uint32Array.of(4),
        completionLogProbs: Float32Array.of(-0.5),
        finishReason: 'stop',
        minPolicyVersion: 3,
        maxPolicyVersion: 3,
        promptMessages: [{ role: 'user', content: 'Hi' }],
        completionMessage: null,
        envMessages: [],
        envRewards: {},
        bridgeRefusal: null,
      },
    ],
    reward,
    rewardBreakdown: {},
    unscored: {},
    advantage: 0,
    ledger: new Ledger(),
  }
}

function recorded(options: Omit<RolloutSampleRecorderOptions, 'file'>, ...rollouts: Rollout[]): unknown[] {
  const lines: unknown[] = []
  const recorder = new RolloutSampleRecorder({ file: { append: (line) => lines.push(line) }, ...options })
  using group = new RolloutGroup({ groupId: 3, sample: null, rollouts, metrics: [] })
  recorder.record(group)
  return lines
}

describe('keepExtremeRewards', () => {
  it('keeps the lowest and the highest scored rollouts', () => {
    expect(rewardsOf([0.9, 0.9, 0.2, null, -0.3, -1, -1], 2)).toEqual([-1, -1, 0.9, 0.9])
    expect(rewardsOf([0.1, 0.9, 0.5, 0.2], 1)).toEqual([0.1, 0.9])
  })

  it('keeps each rollout once where there are few', () => {
    expect(rewardsOf([0.5, 0.2], 5)).toEqual([0.2, 0.5])
    expect(rewardsOf([null], 1)).toEqual([])
  })
})

describe('RolloutSampleRecorder', () => {
  it('writes conversations without token arrays unless they are asked for', () => {
    const [line] = recorded({}, rollout(1))
    expect(line).toMatchObject({ isValidation: false, groupId: 3, status: 'completed', reward: 1 })
    expect(JSON.stringify(line)).not.toMatch(/promptIds|completionIds|LogProbs|step/)
    expect(line).toMatchObject({
      turns: [{ turnId: 0, numPromptTokens: 2, numCompletionTokens: 1, completionMessage: null }],
    })
  })

  it('writes token arrays as plain numbers where they are asked for', () => {
    const [line] = recorded({ logTokens: true, logLogProbs: true }, rollout(1))
    expect(JSON.parse(JSON.stringify(line))).toMatchObject({
      turns: [{ promptIds: [1, 2], completionIds: [4], completionLogProbs: [-0.5] }],
    })
  })

  it('writes the ledger, the advantage and the text of each token where they are asked for', () => {
    const sampled = rollout(1)
    const logProbs = Float32Array.of(-0.5)
    const turn = { completionIds: Uint32Array.of(4), logProbs, sampledLogProbs: logProbs, policyVersion: 3 }
    sampled.ledger.recordTurn({ promptIds: Uint32Array.of(1, 2, 1), ...turn })
    const expected = sampled.ledger.toJSON()
    const tokenizer = { decode: (ids: Uint32Array) => `<${[...ids].join()}>` }
    const [line] = recorded({ logLedger: true, tokenizer }, sampled) as RolloutSample[]
    expect(line).toMatchObject({ advantage: 0, tokenTexts: { 1: '<1>', 2: '<2>', 4: '<4>' } })
    using read = Ledger.fromBytes(Buffer.from(line?.ledger ?? '', 'base64'))
    expect(read.toJSON()).toEqual(expected)
    expect(recorded({ tokenizer }, rollout(1))[0]).not.toHaveProperty('tokenTexts')
  })

  it('keeps every rollout of a group, also the unscored, where all are asked for, with its step', () => {
    const lines: unknown[] = []
    const recorder = new RolloutSampleRecorder({ file: { append: (line) => lines.push(line) }, keep: 'all' })
    const rollouts = [rollout(0.5), rollout(null), rollout(0.1), rollout(0.2)]
    using group = new RolloutGroup({ groupId: 3, sample: null, rollouts, metrics: [] })
    recorder.record(group, { step: 9 })
    expect(lines).toMatchObject([0.5, null, 0.1, 0.2].map((reward) => ({ reward, step: 9 })))
    expect(
      () => new RolloutSampleRecorder({ file: { append: () => undefined }, keep: 'some' as 'all' }),
    ).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }))
  })

  it('appends two lines for each group of many', () => {
    expect(recorded({}, rollout(0.1), rollout(0.9), rollout(0.5))).toHaveLength(2)
  })
})

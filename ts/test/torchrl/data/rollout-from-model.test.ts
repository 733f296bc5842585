import { describe, expect, it } from 'vitest'
import { Decoder } from '../../../src/model/index.js'
import { AdaptiveKLController, ConstantKLController } from '../../../src/objective/index.js'
import { DecoderPolicy, type Policy, type ScoreRequest } from '../../../src/policy/index.js'
import { LazyTensorStorage, TensorDictReplayBuffer } from '../../../src/replay/index.js'
import { Tensor } from '../../../src/tensor/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { PromptData, RolloutFromModel, type RolloutFromModelOptions } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const END = 0

/** Rows of prompts and labels; 0 pads. */
function promptsOf(rows: readonly (readonly [prompt: number[], label: number[]])[], width = 4) {
  const ids = rows.flatMap(([prompt, label]) => {
    const whole = [...prompt, ...label]
    return [...whole, ...new Array(width - whole.length).fill(END)]
  })
  const shape = [rows.length, width]
  const fields = {
    input_ids: Tensor.from(BigInt64Array.from(ids, BigInt), { shape }),
    attention_mask: Tensor.from(
      BigInt64Array.from(ids, (id) => BigInt(Number(id !== END))),
      { shape },
    ),
    prompt_rindex: Tensor.from(BigInt64Array.from(rows, ([prompt]) => BigInt(prompt.length))),
  }
  return PromptData.from(fields, { batchSize: [rows.length] })
}

/** Gives each token the same log-probability. */
const scoring = (logProb: number) => ({
  score: async ({ requestId, ids }: ScoreRequest) => ({
    ...{ requestId, policyVersion: 0 },
    logProbs: Float32Array.from(ids, (_, at) => (at === 0 ? Number.NaN : logProb)),
  }),
})

const replies: Readonly<Record<number, readonly number[]>> = {
  1: [5, 6, 7],
  2: [8, END],
  3: [END],
  4: [9, 9, END],
}
const model = new ScriptedPolicy({
  reply: ({ promptIds }) => {
    const ids = replies[promptIds[0] ?? 0] ?? []
    return { ids, logProbs: ids.map(() => -1) }
  },
})

/** The sum of the ids. */
const rewardModel = (rows: readonly Uint32Array[]) => rows.map((ids) => ids.reduce((sum, id) => sum + id, 0))

const rollouts = (options: Partial<RolloutFromModelOptions> = {}) =>
  new RolloutFromModel({
    ...{ model, refModel: scoring(-1.5), rewardModel, maxNewTokens: 3, endId: END, ...options },
  })

const four = promptsOf([
  [[1], [5, 6]],
  [[2, 2], [2]],
  [[3], [1, 1]],
  [[4], []],
])

describe('RolloutFromModel', () => {
  it('rewards an answer at its last token and each drawn token by the divergence', async () => {
    const steps = await rollouts({ klCoef: 0.5 }).rolloutFromData(four)
    expect(steps.batchSize).toEqual([4, 3])
    const numbers = (...key: string[]) => Array.from(steps.tensor(key).data, Number)
    expect(numbers('action')).toEqual([5, 6, 7, 8, 0, 0, 0, 0, 0, 9, 9, 0])
    // Sums: 19 - 12, 12 - 6, 3 - 5, 22 - 4, which is more than the largest reward.
    expect(numbers('next', 'reward_raw')).toEqual([0, 0, 7, 0, 6, 0, -2, 0, 0, 0, 0, 10])
    const kl = [1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1].map((isDrawn) => isDrawn * -0.25)
    expect(numbers('next', 'reward_kl').map((one) => one + 0)).toEqual(kl.map((one) => one + 0))
    expect(numbers('next', 'reward')).toEqual(
      numbers('next', 'reward_raw').map((raw, at) => raw + (kl[at] ?? 0)),
    )
    expect(numbers('next', 'done')).toEqual([0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1])
    expect(numbers('next', 'terminated')).toEqual([0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0])
    expect(numbers('sample_log_prob')).toEqual([-1, -1, -1, -1, -1, 0, -1, 0, 0, -1, -1, -1])
  })

  it('shows each step the tokens before it', async () => {
    const steps = await rollouts().rolloutFromData(promptsOf([[[1], [5]]], 2))
    expect(steps.tensor('input_ids').shape).toEqual([1, 3, 5])
    const rows = (...key: string[]) => Array.from(steps.tensor(key).data, Number).join(' ')
    expect(rows('input_ids')).toBe('1 0 0 0 0 1 5 0 0 0 1 5 6 0 0')
    expect(rows('next', 'input_ids')).toBe('1 5 0 0 0 1 5 6 0 0 1 5 6 7 0')
    expect(rows('attention_mask')).toBe('1 0 0 0 0 1 1 0 0 0 1 1 1 0 0')
    expect(rows('next', 'attention_mask')).toBe('1 1 0 0 0 1 1 1 0 0 1 1 1 1 0')
  })

  it('draws by its seed, and scores as the decoders do', async () => {
    const shape = {
      model_type: 'llama',
      ...{ vocab_size: 11, hidden_size: 8, intermediate_size: 8 },
      ...{ num_hidden_layers: 1, num_attention_heads: 2 },
    } as const
    using decoder = Decoder.fromSeed(shape, { seed: 1 })
    using other = Decoder.fromSeed(shape, { seed: 2 })
    const policies = { model: new DecoderPolicy(decoder), refModel: new DecoderPolicy(other) }
    const drawn = (seed: number) => rollouts({ ...policies, seed, maxNewTokens: 6 }).generate(four)
    const [one, again, another] = [await drawn(1), await drawn(1), await drawn(2)]
    expect(again.tokens.data).toEqual(one.tokens.data)
    expect(another.tokens.data).not.toEqual(one.tokens.data)
    const ids = Uint32Array.from(one.tokens.data.subarray(0, 7), Number)
    const end = ids.indexOf(END)
    const whole = ids.slice(0, end < 0 ? 7 : end + 1)
    const request = { requestId: 'a', ids: whole }
    const own = (await policies.model.score(request)).logProbs
    const reference = (await policies.refModel.score(request)).logProbs
    const ratio = [...whole.keys()].slice(1).map((at) => (own[at] ?? 0) - (reference[at] ?? 0))
    for (const [at, value] of ratio.entries()) expect(one.logRatio.data[at]).toBeCloseTo(value, 5)
  })

  it('asks the policy for scores where completions have none', async () => {
    const blind: Policy = {
      version: 0,
      capabilities: { logProbs: false },
      generate: async (request) => {
        const completion = await model.generate(request)
        const missing = completion.logProbs.map(() => Number.NaN)
        return { ...completion, logProbs: missing, sampledLogProbs: missing }
      },
    }
    const asked = await rollouts({ model: { ...blind, ...scoring(-2) } }).generate(four)
    expect(asked.logRatio.data[0]).toBe(-0.5)
    expect(asked.logProbs.data[0]).toBe(-2)
    await expect(rollouts({ model: blind }).generate(four)).rejects.toThrow(
      failing('NON_FINITE', /NaN and -1.5/),
    )
  })

  it('updates the factor by the divergences of its rollouts', async () => {
    using klScheduler = new AdaptiveKLController({ initKlCoef: 0.1, target: 0.25, horizon: 10 })
    using same = new AdaptiveKLController({ initKlCoef: 0.1, target: 0.25, horizon: 10 })
    const scheduled = rollouts({ klScheduler, numSteps: 2 })
    await scheduled.rolloutFromData(four)
    expect([scheduled.klQueue, scheduled.klCoef]).toEqual([[0.5], 0.1])
    await scheduled.rolloutFromData(four)
    expect(scheduled.klQueue).toEqual([])
    expect(scheduled.klCoef).toBe(same.update([0.5, 0.5]))
    expect(scheduled.klCoef).toBeGreaterThan(0.1)
    const manual = rollouts({ klScheduler: new ConstantKLController({ klCoef: 2 }) })
    await manual.rolloutFromData(four)
    expect([manual.stepScheduler(), manual.klQueue, manual.stepScheduler()]).toEqual([2, [], 2])
  })

  it('fills a buffer with as many trajectories as are asked for', async () => {
    const buffer = new TensorDictReplayBuffer({ storage: new LazyTensorStorage(10), batchSize: 5 })
    expect(await rollouts().fill(buffer, [four, four, four], { numTrajectories: 6 })).toBe(6)
    expect(buffer.length).toBe(6)
    expect(buffer.sample().tensor(['next', 'reward']).shape).toEqual([5, 3, 1])
    expect(await rollouts().fill(buffer, [four], { numTrajectories: 6 })).toBe(4)
    expect(buffer.length).toBe(10)
  })

  it('stops when the signal fires', async () => {
    const stopped = AbortSignal.abort()
    await expect(rollouts({ signal: stopped }).generate(four)).rejects.toThrow(failing('ABORTED'))
    const late = new ScriptedPolicy({ reply: () => ({ ids: [5], finishReason: 'abort' }) })
    await expect(rollouts({ model: late }).generate(four)).rejects.toThrow(failing('ABORTED'))
  })

  it('says what is wrong', async () => {
    const adaptive = new ConstantKLController({ klCoef: 1 })
    const cases: [Partial<RolloutFromModelOptions>, string, RegExp][] = [
      [{ maxNewTokens: 0 }, 'OUT_OF_RANGE', /maxNewTokens/],
      [{ endId: -1 }, 'OUT_OF_RANGE', /endId/],
      [{ seed: 0.5 }, 'OUT_OF_RANGE', /seed/],
      [{ scoreClip: 0 }, 'OUT_OF_RANGE', /scoreClip/],
      [{ klCoef: -1 }, 'OUT_OF_RANGE', /klCoef/],
      [{ temperature: Number.NaN }, 'OUT_OF_RANGE', /temperature/],
      [{ klScheduler: adaptive, numSteps: 0 }, 'OUT_OF_RANGE', /numSteps/],
      [{ klScheduler: adaptive, numSteps: 65_537 }, 'OUT_OF_RANGE', /numSteps .* 65536/],
      [{ klScheduler: adaptive, klCoef: 1 }, 'INCOMPATIBLE', /klCoef/],
      [{ numSteps: 2 }, 'INCOMPATIBLE', /numSteps/],
      [{ refModel: model as never }, 'INCOMPATIBLE', /refModel must have score/],
      [{ rewardModel: 7 as never }, 'MALFORMED', /rewardModel/],
      [{ eosTokenId: 7 } as never, 'UNKNOWN_NAME', /eosTokenId/],
    ]
    for (const [part, code, message] of cases)
      expect(() => rollouts(part), JSON.stringify(part)).toThrow(failing(code, message))
    const bad: [Partial<RolloutFromModelOptions>, PromptData, string, RegExp][] = [
      [{ rewardModel: () => [1] }, four, 'USER_CODE', /4 finite numbers: got 1 numbers/],
      [{ rewardModel: (rows) => rows.map(() => Number.NaN) }, four, 'USER_CODE', /got NaN/],
      [{}, promptsOf([[[], [5]]]), 'EMPTY', /promptIds/],
      [{ maxNewTokens: 20_000 }, four, 'LIMIT_EXCEEDED', /134217728 ids: got 4 rows of 20000 steps/],
    ]
    for (const [part, batch, code, message] of bad)
      await expect(rollouts(part).rolloutFromData(batch), String(message)).rejects.toThrow(
        failing(code, message),
      )
  })

  it('refuses answers of another shape', async () => {
    const own = rollouts()
    const drawn = await own.generate(four)
    const cases: [object, RegExp][] = [
      [{ logProbs: drawn.logRatio }, /logProbs must be of \[4, 3, 1\]: got \[4, 3\]/],
      [{ logRatio: drawn.logRatio.slice({ end: 2 }) }, /logRatio/],
      [{ tokens: drawn.tokens.slice({ dim: 1, end: 3 }) }, /tokens must have 4 in each row: got 3/],
    ]
    for (const [part, message] of cases)
      await expect(own.createRolloutTd(four, { ...drawn, ...part })).rejects.toThrow(
        failing('SHAPE_MISMATCH', message),
      )
  })
})

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { Decoder } from '../../../src/model/index.js'
import { klEstimate } from '../../../src/objective/index.js'
import { DecoderPolicy } from '../../../src/policy/index.js'
import { Composite, Unbounded } from '../../../src/spec/index.js'
import { Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  ChatEnv,
  DatasetChatEnv,
  type EnvTransform,
  KLComputation,
  KLRewardTransform,
  LLMWrapperBase,
  RetrieveKL,
  RetrieveLogProb,
  replyPolicy,
  rollout,
  type ScoringPolicy,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, failing, template } from './chats.js'

const tokenizer = new CharTokenizer()
const decoderOf = (seed: number) =>
  Decoder.fromSeed(
    {
      model_type: 'llama',
      vocab_size: tokenizer.vocabSize,
      hidden_size: 8,
      intermediate_size: 16,
      num_hidden_layers: 1,
      num_attention_heads: 2,
    },
    { seed },
  )
const rows = (...all: readonly (readonly number[])[]) => Ragged.fromRows(all.map((row) => Tensor.from(row)))
const idRows = (...all: readonly number[]) =>
  Ragged.fromRows(all.map((length) => Tensor.from(BigInt64Array.from({ length }, (_, t) => BigInt(t)))))
/** A reward for each element. */
const paid = (rewards: readonly number[]): EnvTransform => ({
  afterStep: (next) => next.set('reward', Tensor.from(rewards, { shape: [rewards.length, 1, 1] })),
  transformSpecs: (env) => {
    const shape = [rewards.length, 1, 1]
    return {
      ...env,
      rewardSpec: new Composite({ reward: new Unbounded({ shape }) }, { shape: [rewards.length] }),
    }
  },
})
/** Returns fixed scores of each sequence, identified by its length. */
const oracle = (all: readonly (readonly number[])[]): ScoringPolicy => {
  let at = 0
  return {
    score: async ({ requestId }) => ({
      requestId,
      logProbs: Float32Array.from(all[at++] ?? []),
      policyVersion: 0,
    }),
  }
}
const close = (got: Ragged, want: readonly (readonly number[])[]) => {
  expect(got.numRows).toBe(want.length)
  for (const [at, row] of want.entries()) {
    const values = got.row(at).data
    expect(values.length).toBe(row.length)
    for (const [t, value] of row.entries()) expect(Number(values[t])).toBeCloseTo(value, 5)
  }
}

interface KlRow {
  readonly kind: string
  readonly log_probs: number[][]
  readonly ref_log_probs: number[][]
  readonly assistant_mask: boolean[][] | null
  readonly prompt_lengths: number[]
  readonly rewards: number[]
  readonly coef: number
  readonly upstream_bug?: boolean
  readonly outputs: {
    readonly kl_penalty: number[][]
    readonly ref_log_probs: number[][]
    readonly reward: number[][]
  }
}

describe('KLRewardTransform', () => {
  const path = new URL('../../../../tests/golden/objective/kl.jsonl', import.meta.url)
  const lines = readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
  const golden = lines
    .map((line) => JSON.parse(line) as KlRow)
    .filter(({ kind }) => kind === 'KLRewardTransform')

  it('gives what TorchRL gives, row by row, with the reward at every token', async () => {
    expect(golden.length).toBe(4)
    for (const row of golden) {
      // Upstream cannot stack rewards of unequal length.
      if (row.upstream_bug) continue
      const { log_probs: gen, rewards, coef, assistant_mask: marks } = row
      const kl = new KLRewardTransform({ refModel: oracle(row.ref_log_probs), coef, place: 'everyToken' })
      const env = new TransformedEnv(
        new ChatEnv({ inputMode: 'tokens', tokenizer, template, batchSize: rewards.length }),
        [paid(rewards), kl],
      )
      const root = TensorDict.from({}, { batchSize: [rewards.length] })
      root.set(['tokens', 'full'], idRows(...gen.map(({ length }) => length)))
      root.set(['tokens', 'prompt'], idRows(...row.prompt_lengths))
      root.set(['log_probs', 'full'], rows(...gen))
      if (marks) {
        const bits = marks.map((mask) => Tensor.from(Uint8Array.from(mask, Number), { dtype: 'bool' }))
        root.set(['masks', 'all_assistant_mask'], Ragged.fromRows(bits))
      }
      const next = await env.step(root)
      // A first token follows none, so we give it no log-probability; the golden rows score it if it is in the mask.
      const known = (values: number[][]) => values.map((all, at) => (marks?.[at]?.[0] ? all.slice(1) : all))
      const got = (key: string) => {
        const all = next.ragged(key)
        return Ragged.fromRows(
          known(row.outputs.kl_penalty).map((want, at) => {
            const values = all.row(at)
            return values.slice({ start: (values.shape[0] ?? 0) - want.length })
          }),
        )
      }
      close(got('kl_penalty'), known(row.outputs.kl_penalty))
      close(got('ref_log_probs'), known(row.outputs.ref_log_probs))
      close(got('reward'), known(row.outputs.reward))
    }
  })
})

describe('KLComputation', () => {
  it('gives what TorchRL gives for the contract, and puts the reward once where it is not told otherwise', () => {
    const next = () =>
      TensorDict.from({ reward: Tensor.from([1, 0], { shape: [2, 1, 1] }) }, { batchSize: [2] })
        .set(['log_probs', 'full'], rows([-1, -2], [-1, -2, -3]))
        .set(['ref_log_probs', 'full'], rows([-1.5, -1], [-1.5, -1, -1]))
    const every = new KLComputation({ coeff: 0.5, place: 'everyToken' }).afterStep(next())
    close(every.ragged('kl_penalty'), [
      [0.5, -1],
      [0.5, -1, -2],
    ])
    close(every.ragged('reward'), [
      [0.75, 1.5],
      [-0.25, 0.5, 1],
    ])
    const once = new KLComputation({ coeff: 0.5 }).afterStep(next())
    close(once.ragged('reward'), [
      [-0.25, 1.5],
      [-0.25, 0.5, 1],
    ])
    const apart = new KLComputation({ addToReward: false }).afterStep(next())
    expect(apart.tensor('reward').shape).toEqual([2, 1, 1])
  })

  it('says what is missing or does not fit', () => {
    expect(() => new KLComputation({ refLogProbsFullKey: ['log_probs', 'full'] })).toThrow(
      failing('INCOMPATIBLE'),
    )
    expect(() => new KLComputation({ coeff: -1 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => new KLComputation({ coef: 1 } as never)).toThrow(failing('UNKNOWN_NAME', /coeff/))
    const next = TensorDict.from({}, { batchSize: [1] })
    expect(() => new KLComputation().afterStep(next)).toThrow(failing('UNKNOWN_NAME', /log_probs/))
    next.set(['log_probs', 'full'], rows([-1, -2])).set(['ref_log_probs', 'full'], rows([-1]))
    expect(() => new KLComputation().afterStep(next)).toThrow(failing('SHAPE_MISMATCH'))
    next.set(['ref_log_probs', 'full'], rows([-1, Number.NaN]))
    expect(() => new KLComputation({ addToReward: false }).afterStep(next)).toThrow(failing('NON_FINITE'))
    expect(() => new KLComputation().afterStep(next)).toThrow(failing('UNKNOWN_NAME', /reward/))
    expect(() => new TransformedEnv(new ChatEnv(), [new KLComputation()])).toThrow(
      failing('INCOMPATIBLE', /reward/),
    )
  })
})

describe('RetrieveKL', () => {
  it('takes the estimate between two models at the drawn tokens, whether their log-probs are stored or scored', async () => {
    using decoder = decoderOf(1)
    using reference = decoderOf(2)
    const [policy, refModel] = [new DecoderPolicy(decoder), new DecoderPolicy(reference)]
    for (const genModel of ['fromCollector', policy] as const) {
      const env = new DatasetChatEnv({
        dataset: [{ query: 'Hi' }, { query: 'Hello' }],
        numEnvs: 2,
        shuffle: false,
        inputMode: 'tokens',
        tokenizer,
        template,
        transforms: [paid([1, 1]), new RetrieveKL({ refModel, genModel, coeff: 0.1 })],
      })
      const wrapper = new LLMWrapperBase(policy, { inputMode: 'tokens', generateKwargs: { maxNewTokens: 5 } })
      const { parts } = await rollout(env, (dict) => wrapper.forward(dict), { maxSteps: 1 })
      const [step] = parts
      if (step === undefined) expect.unreachable()
      for (const at of [0, 1]) {
        const ids = Uint32Array.from(step.ragged(['tokens', 'full']).row(at).data, Number)
        const start = step.ragged(['tokens', 'prompt']).row(at).data.length
        const mask = Uint8Array.from(ids, (_, t) => Number(t >= start))
        const batch = { ids, offsets: Uint32Array.of(0, ids.length), mask }
        const { logProb } = await decoder.score(batch)
        const { logProb: refLogProb } = await reference.score(batch)
        const { kl } = klEstimate({ logProb, refLogProb, mask, estimator: 'k1' })
        const penalty = step.ragged(['next', 'kl_penalty']).row(at).data
        expect([...penalty]).toEqual([...kl])
        expect(penalty.some((value) => value !== 0)).toBe(true)
        const reward = step.ragged(['next', 'reward']).row(at).data
        const sum = Array.from(reward, Number).reduce((total, value) => total + value, 0)
        const drift = Array.from(kl).reduce((total, value) => total + value, 0)
        expect(sum).toBeCloseTo(1 - 0.1 * drift, 5)
      }
    }
  })

  it('wants log-probs of the length of the tokens, and some at all', async () => {
    const kl = new RetrieveKL({ refModel: oracle([[0, 0]]), addToReward: false })
    const root = TensorDict.from({}, { batchSize: [1] })
    root.set(['tokens', 'full'], idRows(2)).set(['tokens', 'prompt'], idRows(1))
    const next = TensorDict.from({}, { batchSize: [1] })
    await expect(kl.afterStep(next, root)).rejects.toThrow(failing('UNKNOWN_NAME', /log_probs.response/))
    root.set(['log_probs', 'full'], rows([-1]))
    await expect(kl.afterStep(next, root)).rejects.toThrow(failing('SHAPE_MISMATCH'))
  })
})

describe('RetrieveLogProb', () => {
  it('scores the turns of the assistant in messages, or all tokens', async () => {
    using decoder = decoderOf(3)
    const model = new DecoderPolicy(decoder)
    const counts: number[] = []
    for (const assistantOnly of [true, false]) {
      const scores = new RetrieveLogProb({ model, tokenizer, template, assistantOnly })
      const env = new TransformedEnv(new ChatEnv({ batchSize: 2 }), [scores])
      const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => 'abc'.slice(at) })
      const { parts } = await rollout(env, policy, { maxSteps: 2, dict: asked('q', 'r') })
      const logProbs = parts[1]?.ragged(['next', 'log_probs', 'full'])
      for (const at of [0, 1])
        counts.push([...(logProbs?.row(at).data ?? [])].filter((value) => value !== 0).length)
      expect(logProbs?.row(0).data[0]).toBe(0)
    }
    const length = (letters: string) => {
      const turn = `<|im_start|>assistant\n${letters}<|im_end|>\n`
      const ids = tokenizer.encode(`<|im_start|>user\nq<|im_end|>\n${turn}${turn}`, { addedTokens: true }).ids
      return ids.length - 1
    }
    expect(counts).toEqual([6, 4, length('abc'), length('bc')])
  })

  it('says what it lacks', async () => {
    const model = oracle([])
    const next = TensorDict.from({}, { batchSize: [1] })
    const scored = (root: TensorDict, options = {}) =>
      new RetrieveLogProb({ model, ...options }).afterStep(next, root)
    const root = TensorDict.from({}, { batchSize: [1] })
    await expect(scored(root)).rejects.toThrow(failing('UNKNOWN_NAME', /tokens.full or history.full/))
    await expect(scored(root.clone().set(['tokens', 'full'], idRows(2)))).rejects.toThrow(
      failing('UNKNOWN_NAME', /assistantOnly/),
    )
    const chat = await replyPolicy({ inputMode: 'history', reply: () => 'x' })(
      new ChatEnv().reset(asked('a')),
    )
    await expect(scored(chat)).rejects.toThrow(failing('INCOMPATIBLE', /tokenizer/))
    const short = root.clone().set(['tokens', 'full'], idRows(2))
    await expect(scored(short, { assistantOnly: false })).rejects.toThrow(
      failing('SHAPE_MISMATCH', /one entry per token/),
    )
    expect(() => new RetrieveLogProb({ model, key: 'x' } as never)).toThrow(failing('UNKNOWN_NAME'))
  })
})

import { describe, expect, it } from 'vitest'
import { GSM8KRewardParser } from '../../../src/reward/index.js'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { NonTensorData, Tensor } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  AnswerRewardTransform,
  ChatEnv,
  DatasetChatEnv,
  type InputMode,
  replyPolicy,
  rollout,
  specEnvOf,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, failing, template } from './chats.js'

const tokenizer = new CharTokenizer()
const parser = new GSM8KRewardParser()
// A prompt that holds an answer of its own, which must not be taken for the policy's.
const systemPrompt = 'For example <answer></answer> or <answer>1</answer>.'
const dataset = [
  { query: '1+1?', answer: '#### 2' },
  { query: '2+2?', answer: '#### 4' },
  { query: '3+3?', answer: '#### 6' },
]
const replies = ['<think>t</think><answer>2</answer>', '<answer>5</answer>', 'six']

async function nextIn(inputMode: InputMode) {
  const transforms = [new AnswerRewardTransform({ parser, tokenizer })]
  const options = {
    dataset,
    shuffle: false,
    numEnvs: 3,
    inputMode,
    systemPrompt,
    tokenizer,
    template,
    transforms,
  }
  const env = new DatasetChatEnv(options)
  const policy = replyPolicy({ inputMode, tokenizer, reply: (_, at) => replies[at] ?? '' })
  const { parts } = await rollout(env, policy, { maxSteps: 1 })
  return parts[0]?.dict('next') ?? expect.unreachable()
}

describe('AnswerRewardTransform', () => {
  it('scores what the policy said and not its prompt, in every form of a chat', async () => {
    for (const inputMode of ['history', 'text', 'tokens'] as const) {
      const next = await nextIn(inputMode)
      const floats = (name: string) =>
        [...next.tensor(name).toFloat32()].map((value) => Math.round(value * 10) / 10)
      expect(floats('reward')).toEqual([1, 0.1, 0])
      expect(floats('reward_answer')).toEqual([1, 1, 0])
      expect(floats('reward_think')).toEqual([1, 0, 0])
      expect([...next.tensor('success').data]).toEqual([1, 0, 0])
      expect([...next.tensor('done').data]).toEqual([1, 1, 0])
      expect(next.tensor('reward').shape).toEqual([3, 1, 1])
    }
  })

  it('gives no score, which is not 0, where a parser fails, and scores the others', async () => {
    const failingParser = {
      score: (response: string, answer: string) => {
        if (response === 'six') throw new Error('verifier broke')
        return parser.score(response, answer)
      },
    }
    const transforms = [new AnswerRewardTransform({ parser: failingParser })]
    const env = new DatasetChatEnv({ dataset, shuffle: false, numEnvs: 3, transforms })
    const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => replies[at] ?? '' })
    const { parts } = await rollout(env, policy, { maxSteps: 1 })
    const next = parts[0]?.dict('next')
    expect([...(next?.tensor('scored').data ?? [])]).toEqual([1, 1, 0])
    expect(next?.value('unscored')).toEqual([null, null, 'verifier broke'])
    expect([...(next?.tensor('reward').toFloat32() ?? [])].map(Number.isNaN)).toEqual([false, false, true])
  })

  it('adds to a reward that is there', async () => {
    const paid = new TransformedEnv(new ChatEnv(), [
      { afterStep: (next) => next.set('reward', Tensor.from([2], { shape: [1, 1, 1] })) },
      new AnswerRewardTransform({ parser }),
    ])
    const dict = await paid.reset(asked('q').set('answer', new NonTensorData('#### 2')))
    const next = await paid.step(
      await replyPolicy({ inputMode: 'history', reply: () => '<answer>2</answer>' })(dict),
    )
    expect(next.tensor('reward').data[0]).toBe(3)
  })

  it('does what its specs say', async () => {
    const env = new DatasetChatEnv({
      dataset,
      numEnvs: 2,
      transforms: [new AnswerRewardTransform({ parser })],
    })
    await checkEnvSpecs(specEnvOf(env))
  })

  it('says what it lacks', async () => {
    const env = new TransformedEnv(new ChatEnv(), [new AnswerRewardTransform({ parser })])
    const root = await replyPolicy({ inputMode: 'history', reply: () => 'x' })(await env.reset(asked('q')))
    await expect(env.step(root)).rejects.toThrow(failing('UNKNOWN_NAME', /answer/))
    const tokens = new ChatEnv({ inputMode: 'tokens', tokenizer, template })
    const around = () => new TransformedEnv(tokens, [new AnswerRewardTransform({ parser })])
    expect(around).toThrow(failing('INCOMPATIBLE', /tokenizer/))
  })
})

import { describe, expect, it } from 'vitest'
import { Composite, Unbounded } from '../../../src/spec/index.js'
import { Tensor, type TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  AddThinkingPrompt,
  type AddThinkingPromptOptions,
  ChatEnv,
  COGNITIVE_PROMPTS,
  DatasetChatEnv,
  type EnvTransform,
  replyPolicy,
  rollout,
  StepCounter,
  THINKING_PROMPTS,
  TransformedEnv,
  withSecondThought,
} from '../../../src/torchrl/index.js'
import { failing } from './chats.js'

/** Ends with a reward of 1 for 4, and of 0.1 for anything else. */
const graded: EnvTransform = {
  afterStep(next) {
    const chats = next.value(['history', 'prompt']) as { content: string }[][]
    const rewards = chats.map((chat) => (chat.at(-1)?.content.includes('4') ? 1 : 0.1))
    const bits = Tensor.from(new Uint8Array(rewards.length).fill(1), {
      shape: [rewards.length, 1],
      dtype: 'bool',
    })
    next.set('done', bits).set('terminated', bits)
    return next.set('reward', Tensor.from(rewards, { shape: [rewards.length, 1, 1] }))
  },
  transformSpecs(env) {
    const shape = [...env.batchSize, 1, 1]
    return {
      ...env,
      rewardSpec: new Composite({ reward: new Unbounded({ shape }) }, { shape: [...env.batchSize] }),
    }
  },
}
const isWrong = (next: TensorDict) => Number(next.tensor('reward').data[0]) < 0.5

async function nextOf(options: Partial<AddThinkingPromptOptions>, maxSteps = 3): Promise<TensorDict> {
  const thinking = new AddThinkingPrompt({ cond: isWrong, ...options })
  const env = new DatasetChatEnv({
    dataset: [{ query: '2+2?' }, { query: '1+3?' }],
    shuffle: false,
    numEnvs: 2,
    transforms: [new StepCounter({ maxSteps }), graded, thinking],
  })
  const reply = (_: unknown, at: number) => `<answer>${at === 0 ? 5 : 4}</answer>`
  const { parts } = await rollout(env, replyPolicy({ inputMode: 'history', reply }), { maxSteps: 1 })
  return parts[0]?.dict('next') ?? expect.unreachable()
}
const chatsOf = (next: TensorDict) =>
  next.value(['history', 'prompt']) as { role: string; content: string }[][]

describe('AddThinkingPrompt', () => {
  it('takes back the answer of elements that shall think again, their reward and their end, and of no other', async () => {
    const next = await nextOf({})
    expect(chatsOf(next).map((chat) => chat.at(-1)?.content)).toEqual([
      THINKING_PROMPTS[0],
      '<answer>4</answer>',
    ])
    expect([...next.tensor('reward').data]).toEqual([0, 1])
    expect([next.tensor('reward').dtype, next.tensor('reward').shape]).toEqual(['f32', [2, 1, 1]])
    expect([...next.tensor('done').data]).toEqual([0, 1])
    expect([...next.tensor('terminated').data]).toEqual([0, 1])
  })

  it('does what its options say, in every combination', async () => {
    const bools = [true, false]
    for (const [role, editLastTurn] of [
      ['assistant', true],
      ['assistant', false],
      ['user', false],
    ] as const) {
      for (const zeroReward of bools) {
        for (const undoDone of bools) {
          const next = await nextOf({ role, editLastTurn, zeroReward, undoDone })
          const [chat] = chatsOf(next)
          expect(chat?.length).toBe(editLastTurn ? 2 : 3)
          expect(chat?.at(-1)?.role).toBe(role)
          expect(chat?.at(-1)?.content).toBe((role === 'user' ? COGNITIVE_PROMPTS : THINKING_PROMPTS)[0])
          expect(Number(next.tensor('reward').data[0])).toBeCloseTo(zeroReward ? 0 : 0.1)
          expect(next.tensor('done').data[0]).toBe(undoDone ? 0 : 1)
        }
      }
    }
  })

  it('keeps the end of an episode that is truncated', async () => {
    const next = await nextOf({}, 1)
    expect([next.tensor('truncated').data[0], next.tensor('done').data[0]]).toEqual([1, 1])
  })

  it('draws its prompts by its seed', async () => {
    const said = async (seed: number) => {
      const seen: unknown[] = []
      const thinking = new AddThinkingPrompt({
        cond: () => true,
        randomPrompt: true,
        seed,
        editLastTurn: false,
      })
      const env = new DatasetChatEnv({ dataset: [{ query: 'q' }], transforms: [thinking] })
      const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })
      const { parts } = await rollout(env, policy, { maxSteps: 12 })
      for (const part of parts) seen.push(chatsOf(part.dict('next'))[0]?.at(-1)?.content)
      return seen
    }
    const [one, same, other] = [await said(1), await said(1), await said(2)]
    expect(one).toEqual(same)
    expect(one).not.toEqual(other)
    expect(one.every((prompt) => THINKING_PROMPTS.includes(String(prompt)))).toBe(true)
    expect(new Set(one).size).toBeGreaterThan(2)
  })

  it('leaves no answer behind, whatever follows it', () => {
    const cases: [content: string, thought: string][] = [
      ['<answer>1</answer>', 'W'],
      ['a<answer>1</answer> b<|im_end|>', 'aW'],
      ['<answer>1</answer>x<answer>2</answer>', '<answer>1</answer>xW'],
      ['open <answer>1', 'open <answer>1\n\nW'],
      ['</answer>', '</answer>\n\nW'],
      ['none<|im_end|>\n', 'none\n\nW'],
      ['', '\n\nW'],
    ]
    for (const [content, thought] of cases) expect(withSecondThought(content, 'W')).toBe(thought)
    expect(withSecondThought('none</s>', 'W', '</s>')).toBe('none\n\nW')
    expect(withSecondThought('none \n</s>\n', 'W', '</s>')).toBe('none\n\nW')
    expect(withSecondThought('none \n', 'W')).toBe('none\n\nW')
  })

  it('refuses what contradicts itself', () => {
    const made = (options: object) => () => new AddThinkingPrompt({ cond: isWrong, ...options })
    expect(made({ role: 'user' })).toThrow(failing('INCOMPATIBLE', /editLastTurn/))
    expect(made({ prompt: 'x', randomPrompt: true })).toThrow(failing('INCOMPATIBLE', /prompt/))
    expect(made({ role: 'tool' })).toThrow(failing('UNKNOWN_NAME'))
    expect(made({ cond: undefined })).toThrow(failing('MALFORMED'))
    expect(made({ condition: isWrong })).toThrow(failing('UNKNOWN_NAME'))
    const text = new ChatEnv({ inputMode: 'text', tokenizer: new CharTokenizer() })
    const around = () => new TransformedEnv(text, [new AddThinkingPrompt({ cond: isWrong })])
    expect(around).toThrow(failing('INCOMPATIBLE', /history/))
  })
})

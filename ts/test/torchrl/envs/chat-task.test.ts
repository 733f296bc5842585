import { describe, expect, it, vi } from 'vitest'
import { createRenderer } from '../../../src/chat/index.js'
import { listDataset } from '../../../src/data/index.js'
import { Rollouter } from '../../../src/rollout/index.js'
import { NonTensorStack } from '../../../src/tensor/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  AddThinkingPrompt,
  ChatEnv,
  chatTask,
  DatasetChatEnv,
  type EnvTransform,
  GSM8KEnv,
  messageEnvOf,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, assistant, failing } from './chats.js'

const context = { signal: new AbortController().signal }
const tokenizer = new CharTokenizer()
const items = [
  { question: '1+1?', answer: '#### 2' },
  { question: '2+2?', answer: '#### 4' },
]

/** Answers what the policy says until it says bye. */
const echo: EnvTransform = {
  afterStep(next, root) {
    const chats = next.value(['history', 'prompt']) as { role: string; content: string }[][]
    const said = chats.map((chat) => chat.at(-1)?.content ?? '')
    const answered = chats.map((chat, at) => [...chat, { role: 'user', content: `${said[at]}?` }])
    expect(root.value(['history', 'response'])).toEqual(chats.map((chat) => chat.slice(-1)))
    return next.set(['history', 'prompt'], new NonTensorStack(answered))
  },
}

describe('messageEnvOf', () => {
  it('takes turns as the environment does', async () => {
    const env = new TransformedEnv(new ChatEnv({ systemPrompt: 'S' }), [echo])
    const conversation = messageEnvOf({ env, dict: asked('Hi') })
    const { initPromptMessages } = await conversation.init(context)
    expect(initPromptMessages.map(({ content }) => content)).toEqual(['S', 'Hi'])
    const first = await conversation.step(assistant('a'), context)
    expect(first).toEqual({ envMessages: [{ role: 'user', content: 'a?' }], done: false, envRewards: {} })
    const second = await conversation.step({ ...assistant('b'), reasoning_content: 'hm' }, context)
    expect(second.envMessages).toEqual([{ role: 'user', content: 'b?' }])
    conversation.close()
    await expect(conversation.step(assistant('c'), context)).rejects.toThrow(failing('CLOSED'))
  })

  it('checks the messages that a transform adds, whatever they are', async () => {
    const adding = (message: unknown): EnvTransform => ({
      afterStep(next) {
        const [chat = []] = next.value(['history', 'prompt']) as unknown[][]
        return next.set(['history', 'prompt'], new NonTensorStack([[...chat, message]] as never))
      },
    })
    const answerTo = async (message: unknown) => {
      const env = new TransformedEnv(new ChatEnv(), [adding(message)])
      const conversation = messageEnvOf({ env, dict: asked('Hi') })
      await conversation.init(context)
      return (await conversation.step(assistant(']],[["'), context)).envMessages
    }
    const odd = { role: 'user', content: ']]', name: ',{' }
    expect(await answerTo(odd)).toEqual([odd])
    await expect(answerTo({ content: 'nobody' })).rejects.toThrow(failing('MALFORMED'))
    await expect(answerTo([])).rejects.toThrow(failing('MALFORMED'))
  })

  it('moves a conversation along without reading it again', async () => {
    const conversation = messageEnvOf({ env: new ChatEnv(), dict: asked('Hi') })
    await conversation.init(context)
    const read = vi.spyOn(JSON, 'parse')
    const lengths: number[] = []
    for (let turn = 0; turn < 20; turn += 1) {
      read.mockClear()
      await conversation.step(assistant('a'.repeat(100)), context)
      lengths.push(read.mock.calls.reduce((sum, [text]) => sum + text.length, 0))
    }
    read.mockRestore()
    expect(Math.max(...lengths)).toBe(lengths[0])
  })

  it('keeps conversations apart that share an environment', async () => {
    const env = new DatasetChatEnv({
      dataset: [{ query: 'a' }, { query: 'b' }],
      shuffle: false,
      transforms: [echo],
    })
    const [one, two] = [messageEnvOf({ env }), messageEnvOf({ env })]
    const opened = await Promise.all([one.init(context), two.init(context)])
    expect(opened.map(({ initPromptMessages }) => initPromptMessages[0]?.content)).toEqual(['a', 'b'])
    const answers = await Promise.all([one.step(assistant('x'), context), two.step(assistant('y'), context)])
    expect(answers.map(({ envMessages }) => envMessages?.[0]?.content)).toEqual(['x?', 'y?'])
  })

  it('refuses environments that are no chat of messages, and turns that were edited', async () => {
    const text = new ChatEnv({ inputMode: 'text', tokenizer })
    expect(() => messageEnvOf({ env: text })).toThrow(failing('INCOMPATIBLE', /messages/))
    expect(() => messageEnvOf({ env: new ChatEnv({ batchSize: [1, 1] }) })).toThrow(failing('INCOMPATIBLE'))
    const again = new AddThinkingPrompt({ cond: () => true })
    const edited = messageEnvOf({ env: new TransformedEnv(new ChatEnv(), [again]), dict: asked('Hi') })
    await edited.init(context)
    await expect(edited.step(assistant('x'), context)).rejects.toThrow(failing('INCOMPATIBLE', /message 1/))
  })
})

describe('chatTask', () => {
  const task = () =>
    chatTask({
      name: 'gsm8k',
      env: new GSM8KEnv({ dataset: items }),
      makeDataset: () => listDataset({ items }),
    })

  it('lets a Rollouter run groups over the environment, scored by its rewards', async () => {
    using renderer = createRenderer(tokenizer, { name: 'chatml' })
    const says = (text: string) => [...tokenizer.encode(text).ids, renderer.stopIds[0] ?? 0]
    const replies = ['<answer>2</answer>', '<answer>3</answer>', 'no answer']
    const policy = new ScriptedPolicy({ reply: (_, call) => says(replies[call % 3] ?? '') })
    const rollouter = new Rollouter({ policy, task: task(), renderer, groupSize: 3, maxTokens: 64 })
    using group = await rollouter.runGroup({ sample: items[0] ?? expect.unreachable(), groupId: 0 })
    const rewards = group.rollouts.map(({ reward }) => reward)
    expect(rewards[0]).toBe(1)
    expect(rewards[1]).toBeCloseTo(0.1)
    expect(rewards[2]).toBe(0)
    expect(group.rollouts.map(({ status }) => status)).toEqual(['completed', 'completed', 'completed'])
  })

  it('says when the environment gave no score', () => {
    const { rewardFns, isSolved } = task()
    const rollout = { status: 'error', turns: [] } as const
    expect(rewardFns[0]?.score(rollout, items[0] as never, context)).toEqual({
      unscored: 'the environment gave no reward',
    })
    expect(isSolved(rollout, items[0] as never)).toBe(false)
  })
})

import { describe, expect, it, vi } from 'vitest'
import { createRenderer } from '../../../src/chat/index.js'
import { listDataset } from '../../../src/data/index.js'
import { GSM8KRewardParser } from '../../../src/reward/index.js'
import { Rollouter } from '../../../src/rollout/index.js'
import { type Json, NonTensorStack, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  AddThinkingPrompt,
  AnswerRewardTransform,
  ChatEnv,
  chatTask,
  DatasetChatEnv,
  type EnvBase,
  type EnvTransform,
  ExecuteToolsInOrder,
  GSM8KEnv,
  IFEvalEnv,
  messageEnvOf,
  PolicyVersion,
  SimpleToolTransform,
  StepCounter,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, assistant, failing, user } from './chats.js'

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

  const gsm8k = { dataset: items, shuffle: false, maxSteps: 3 }
  const adder = { name: 'add', run: ({ a, b }: { a: number; b: number }) => a + b }
  const ifeval = {
    prompt: 'Say hello, without commas.',
    instruction_id_list: ['punctuation:no_comma'],
    kwargs: [{}],
  }
  const call = '<tool>add\n{"a": 1, "b": 2}</tool>'
  it.each<[string, (transforms: readonly EnvTransform[]) => EnvBase, string[]]>([
    ['GSM8K', (transforms) => new GSM8KEnv({ ...gsm8k, transforms }), ['hm', '<answer>3</answer>', 'x']],
    ['GSM8K, solved', (transforms) => new GSM8KEnv({ ...gsm8k, transforms }), ['<answer>2</answer>']],
    [
      'answers that no parser can score',
      (transforms) => {
        const score = (response: string) => {
          if (response === 'b') throw new Error('not this one')
          return new GSM8KRewardParser().score(response, '#### 2')
        }
        const scored = () => new AnswerRewardTransform({ parser: { score } })
        const both = [scored(), scored(), new PolicyVersion(), ...transforms]
        return new DatasetChatEnv({ dataset: [{ query: 'q', answer: '#### 2' }], transforms: both })
      },
      ['a', 'b', '<think>t</think><answer>2</answer>'],
    ],
    ['IFEval', (transforms) => new IFEvalEnv({ dataset: [ifeval], maxSteps: 2, transforms }), ['a, b', 'c']],
    [
      'tools',
      (transforms) =>
        new TransformedEnv(new ChatEnv({ systemPrompt: 'S' }), [
          new StepCounter({ maxSteps: 4 }),
          new SimpleToolTransform({ tools: [adder] }),
          new ExecuteToolsInOrder({ tools: [adder] }),
          ...transforms,
        ]),
      [call, 'hm', '<tool name="add">{"a": 3, "b": 4}</tool>', `${call} and ${call}`],
    ],
  ])('takes the same turns with and without dictionaries: %s', async (_, make, replies) => {
    const asDictionary: EnvTransform = { afterStep: (next) => next }
    const [plain, slow] = [make([]), make([asDictionary])]
    const dict = 'primer' in plain ? undefined : asked('Hi')
    const conversations = [plain, slow].map((env) => messageEnvOf({ env, ...(dict && { dict }) }))
    const opened = await Promise.all(conversations.map((one) => one.init(context)))
    expect(opened[0]).toEqual(opened[1])
    for (const reply of replies) {
      const before = vi.spyOn(TensorDict.prototype, 'set')
      const fast = await conversations[0]?.step(assistant(reply), context)
      expect(before).not.toHaveBeenCalled()
      const from = await conversations[1]?.step(assistant(reply), context)
      expect(before).toHaveBeenCalled()
      before.mockRestore()
      expect(fast).toEqual(from)
    }
  })

  it('makes dictionaries for a class that overrides a step', async () => {
    class Loud extends ChatEnv {
      override step(dict: TensorDict): TensorDict {
        const next = super.step(dict)
        const chats = next.value(['history', 'prompt']) as Json[][]
        return next.set(['history', 'prompt'], new NonTensorStack(chats.map((chat) => [...chat, user('!')])))
      }
    }
    class Done extends StepCounter {
      override afterStep(next: TensorDict, root: TensorDict): TensorDict {
        return super
          .afterStep(next, root)
          .set('done', Tensor.from(Uint8Array.of(1), { shape: [1, 1], dtype: 'bool' }))
      }
    }
    const stepOf = async (env: EnvBase) => {
      const conversation = messageEnvOf({ env, dict: asked('Hi') })
      await conversation.init(context)
      return await conversation.step(assistant('a'), context)
    }
    expect((await stepOf(new Loud())).envMessages).toEqual([user('!')])
    expect((await stepOf(new TransformedEnv(new ChatEnv(), [new Done()]))).done).toBe(true)
    expect((await stepOf(new TransformedEnv(new ChatEnv(), [new StepCounter()]))).done).toBe(false)
  })

  it('stops tools at the deadline of the step', async () => {
    const slow = {
      name: 'slow',
      run: (_: object, { signal }: { signal: AbortSignal }) =>
        new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason))),
    }
    const env = new TransformedEnv(new ChatEnv(), [new SimpleToolTransform({ tools: [slow] })])
    const conversation = messageEnvOf({ env, dict: asked('Hi') })
    const stop = new AbortController()
    await conversation.init(context)
    const step = conversation.step(assistant('<tool>slow\n{}</tool>'), stop)
    stop.abort()
    await expect(step).rejects.toThrow(failing('ABORTED'))
  })

  it('refuses a transform that replaces what was said', async () => {
    const hush: EnvTransform = {
      afterStep: (next) => next,
      chatTurns: () => (turn) => {
        turn.messages[turn.messages.length - 1] = assistant('hush')
      },
    }
    const conversation = messageEnvOf({ env: new TransformedEnv(new ChatEnv(), [hush]), dict: asked('Hi') })
    await conversation.init(context)
    expect(() => conversation.step(assistant('a'), context)).toThrow(failing('INCOMPATIBLE', /message 1/))
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

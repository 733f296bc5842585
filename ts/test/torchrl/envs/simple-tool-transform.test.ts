import { describe, expect, it } from 'vitest'
import { NonTensorStack, Tensor } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { JSONCallParser } from '../../../src/tools/index.js'
import {
  ChatEnv,
  chatsAt,
  type EnvTransform,
  replyPolicy,
  SimpleToolTransform,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { add, boom, echo } from '../../tools/tools.js'
import { asked, failing } from './chats.js'
import { answersTo } from './tools.js'

const tools = [add, boom, echo, { name: 'say', run: ({ text }: { text?: unknown }) => text }]
const two = '<tool>add\n{"a": 2, "b": 3}\n</tool> and <tool>add\n{"a": 4, "b": 5}\n</tool>'

describe('SimpleToolTransform', () => {
  it('answers each call with a message, and fills up no element that made fewer', async () => {
    const answers = await answersTo(
      new SimpleToolTransform({ tools }),
      two,
      'no call',
      '<tool>say\n{"text": "Hi"}</tool>',
    )
    expect(answers).toEqual([
      [
        { role: 'tool', content: 'Tool add executed successfully:\n{"sum":5}' },
        { role: 'tool', content: 'Tool add executed successfully:\n{"sum":9}' },
      ],
      [],
      [{ role: 'tool', content: 'Tool say executed successfully:\nHi' }],
    ])
  })

  it('says what went wrong', async () => {
    const contents = async (text: string) =>
      (await answersTo(new SimpleToolTransform({ tools }), text))[0]?.map(({ content }) => content)
    expect(await contents('<tool>boom\n</tool>')).toEqual(['Tool boom failed:\nTool execution failed: boom'])
    expect(await contents('<tool>nope\n</tool>')).toEqual(['Tool nope failed:\nTool nope not found'])
    expect(await contents('<tool>add\n{bad}</tool>')).toEqual([
      'Tool add failed:\nFailed to parse tool arguments: arguments must be an object of JSON: got "{bad}"',
    ])
    expect(await contents('<tool>add\n{"a": 1}</tool>')).toEqual([
      expect.stringMatching(
        /^Tool add failed:\nTool execution failed: arguments must fit the schema: got #: .*"b"/,
      ),
    ])
  })

  it('answers in text that templates take', async () => {
    const [answers] = await answersTo(
      new SimpleToolTransform({ tools }),
      '<tool>say\n{"text": "a\\ud800b"}</tool>',
    )
    expect(answers?.[0]?.content).toBe('Tool say executed successfully:\na\ufffdb')
  })

  it('reads other calls with another parser, and those of the message itself first', async () => {
    const transform = new SimpleToolTransform({ tools, parser: new JSONCallParser(), toolRole: 'user' })
    const said = JSON.stringify({ message: '', tools: [{ tool: 'say', args: { text: 'x' } }] })
    expect((await answersTo(transform, said))[0]).toEqual([
      { role: 'user', content: 'Tool say executed successfully:\nx' },
    ])

    const env = new TransformedEnv(new ChatEnv(), [transform])
    const root = (await env.reset(asked('q'))).clone()
    const call = { id: 'c1', type: 'function', function: { name: 'add', arguments: { a: 1, b: 1 } } }
    const message = { role: 'assistant', content: said, tool_calls: [call] }
    root.set(['history', 'full'], new NonTensorStack([[{ role: 'user', content: 'q' }, message]] as never))
    const [chat] = chatsAt(await env.step(root), ['history', 'prompt'])
    expect(chat?.slice(2)).toEqual([
      {
        role: 'user',
        content: 'Tool add executed successfully:\n{"sum":2}',
        name: 'add',
        tool_call_id: 'c1',
      },
    ])
  })

  it('runs nothing for an element that is done', async () => {
    const ends: EnvTransform = {
      afterStep: (next) =>
        next.set('done', Tensor.from(Uint8Array.of(1, 0), { shape: [2, 1], dtype: 'bool' })),
    }
    const env = new TransformedEnv(new ChatEnv({ batchSize: [2] }), [
      ends,
      new SimpleToolTransform({ tools }),
    ])
    const policy = replyPolicy({ inputMode: 'history', reply: () => two })
    const next = await env.step(await policy(await env.reset(asked('q', 'q'))))
    expect(chatsAt(next, ['history', 'prompt']).map((chat) => chat.length)).toEqual([2, 4])
  })

  it('stops with its signal', async () => {
    const stop = new AbortController()
    const hang = {
      name: 'hang',
      run: () => {
        stop.abort()
        return new Promise(() => {})
      },
    }
    const transform = new SimpleToolTransform({ tools: [hang], signal: stop.signal })
    await expect(answersTo(transform, '<tool>hang\n</tool>')).rejects.toEqual(failing('ABORTED'))
  })

  it('refuses options and environments that do not fit', () => {
    expect(() => new SimpleToolTransform({ tools, toolRole: 'assistant' })).toThrow(
      failing('INCOMPATIBLE', /toolRole/),
    )
    expect(() => new SimpleToolTransform({ tools, parser: {} as never })).toThrow(
      failing('MALFORMED', /parser/),
    )
    expect(() => new SimpleToolTransform({ tools, timeout: 3 } as never)).toThrow(
      failing('UNKNOWN_NAME', /timeoutMs/),
    )
    using tokenizer = new CharTokenizer()
    const text = new ChatEnv({ inputMode: 'text', tokenizer, template: { templateName: 'chatml_format' } })
    expect(() => new TransformedEnv(text, [new SimpleToolTransform({ tools })])).toThrow(
      failing('INCOMPATIBLE', /inputMode/),
    )
  })
})

import { describe, expect, it } from 'vitest'
import { createRenderer } from '../../src/chat/index.js'
import type { MessageEnv } from '../../src/env/index.js'
import { TokenEnv } from '../../src/rollout/index.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { ToolRunner, withTools, XMLBlockParser } from '../../src/tools/index.js'
import { assistant, failing, user } from '../torchrl/envs/chats.js'
import { add, boom, echo } from './tools.js'

const context = { signal: new AbortController().signal }
const runner = new ToolRunner({ tools: [add, boom] })
const call = (id: string, name: string, args: string) => ({
  id,
  type: 'function',
  function: { name, arguments: args },
})

/** Ends with the first message that it is handed, and tells which that was. */
const asks = (): MessageEnv & { seen: unknown[]; closed: number } => ({
  seen: [],
  closed: 0,
  init: () => ({ initPromptMessages: [user('2+3?')], tools: ['own'] }),
  step(message) {
    this.seen.push(message.content)
    return { done: true, envRewards: { right: 1 } }
  },
  close() {
    this.closed += 1
  },
})

describe('withTools', () => {
  it('tells of its tools behind those that are there, answers calls itself, and leaves the rest', async () => {
    const env = asks()
    const conversation = withTools({ env, runner })
    expect((await conversation.init(context)).tools).toEqual(['own', ...runner.tools.specs])
    const calls = [call('c1', 'add', '{"a": 2, "b": 3}'), call('c2', 'boom', '')]
    const answered = await conversation.step({ role: 'assistant', content: null, tool_calls: calls }, context)
    expect(answered).toEqual({
      envMessages: [
        {
          role: 'tool',
          content: 'Tool add executed successfully:\n{"sum":5}',
          name: 'add',
          tool_call_id: 'c1',
        },
        {
          role: 'tool',
          content: 'Tool boom failed:\nTool execution failed: boom',
          name: 'boom',
          tool_call_id: 'c2',
        },
      ],
      envRewards: { toolCalls: 2, toolErrors: 1 },
    })
    expect(env.seen).toEqual([])
    expect(await conversation.step(assistant('5'), context)).toEqual({ done: true, envRewards: { right: 1 } })
    await conversation.close()
    expect([env.seen, env.closed]).toEqual([['5'], 1])
  })

  it('reads calls in texts with a parser', async () => {
    const conversation = withTools({ env: asks(), runner, parser: new XMLBlockParser() })
    await conversation.init(context)
    const { envMessages } = await conversation.step(
      assistant('<tool name="add">{"a": 1, "b": 1}</tool>'),
      context,
    )
    expect(envMessages).toEqual([{ role: 'tool', content: 'Tool add executed successfully:\n{"sum":2}' }])
  })

  it('gives all calls of a conversation the same signal, which fires when it is closed', async () => {
    const seen: unknown[] = []
    const keep = {
      name: 'keep',
      perConversation: true,
      run: (_: unknown, { conversation }: { conversation: AbortSignal | undefined }) =>
        seen.push(conversation),
    }
    const runnerOfBoth = new ToolRunner({ tools: [keep] })
    expect([runnerOfBoth.tools.perConversation, runner.tools.perConversation]).toEqual([true, false])
    const [one, other] = [asks(), asks()].map((env) => withTools({ env, runner: runnerOfBoth }))
    const said = { role: 'assistant', content: null, tool_calls: [call('c', 'keep', '{}')] }
    for (const conversation of [one, one, other]) {
      if (seen.length !== 1) await conversation?.init(context)
      await conversation?.step(said, context)
    }
    const [first, again, third] = seen as AbortSignal[]
    expect([first === again, first === third, first?.aborted]).toEqual([true, false, false])
    await one?.close()
    expect([first?.aborted, third?.aborted]).toEqual([true, false])
  })

  it('stops at the deadline of a step, and leaves no tool running untold', async () => {
    const clock = new ManualClock()
    let isTold = false
    const hang = {
      name: 'hang',
      run: (_: unknown, { signal }: { signal: AbortSignal }) => {
        signal.addEventListener('abort', () => {
          isTold = true
        })
        return new Promise(() => {})
      },
    }
    const conversation = withTools({ env: asks(), runner: new ToolRunner({ tools: [hang], clock }) })
    const stop = new AbortController()
    await conversation.init(context)
    const step = conversation.step(
      { role: 'assistant', content: null, tool_calls: [call('c', 'hang', '{}')] },
      { signal: stop.signal },
    )
    await new Promise((resolve) => setImmediate(resolve))
    stop.abort()
    await expect(step).rejects.toEqual(failing('ABORTED'))
    expect([isTold, clock.numTimers]).toEqual([true, 0])
  })

  it('makes a conversation of tokens, in which calls are what the renderer parsed', async () => {
    const markers = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>']
    const calling = ['<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>']
    using tokenizer = new CharTokenizer({ specialTokens: [...markers, ...calling] })
    using renderer = createRenderer(tokenizer, { name: 'qwen3' })
    const env = { ...asks(), init: () => ({ initPromptMessages: [user('2+3?')] }) }
    const tokens = new TokenEnv({
      messageEnv: withTools({ env, runner: new ToolRunner({ tools: [add, echo] }) }),
      renderer,
    })
    await tokens.init()
    const said = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call><|im_end|>'
    const { ids } = tokenizer.encode(said, { addedTokens: true })
    const output = await tokens.step({ ids, finishReason: 'stop' })
    expect([output.status, output.envRewards]).toEqual(['ongoing', { toolCalls: 1, toolErrors: 0 }])
    expect(tokenizer.decode(output.nextPrompt?.ids ?? new Uint32Array())).toMatch(
      /Tool add executed successfully:\n\{"sum":5\}/,
    )
  })

  it('refuses what is no runner or parser', () => {
    expect(() => withTools({ env: asks(), runner: {} as never })).toThrow(failing('MALFORMED', /runner/))
    expect(() => withTools({ env: asks(), runner, parser: {} as never })).toThrow(
      failing('MALFORMED', /parser/),
    )
    expect(() => withTools({ env: asks(), runner, parsers: 1 } as never)).toThrow(
      failing('UNKNOWN_NAME', /parser/),
    )
  })
})

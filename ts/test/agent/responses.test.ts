/** `POST /v1/responses`: items in, items out, the same branches as chat completions. */

import OpenAI from 'openai'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { InterceptionServer } from '../../src/agent/index.js'
import { FulmarError } from '../../src/core/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { events, post } from './client.js'
import { renderer, scripted, streaming, tokenizer } from './scripted.js'

const TOOLS = [
  { type: 'function' as const, name: 'add', strict: null, parameters: { type: 'object', properties: {} } },
]
const CALL = `<think>\nso be it\n</think>\n\n${'Let me see. '.repeat(8)}\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>`

let server: InterceptionServer

beforeEach(async () => {
  server = await InterceptionServer.listen()
})

afterEach(async () => {
  await server.close()
})

describe('a response', () => {
  it('has reasoning, a message and calls as items, and continues by items', async () => {
    const policy = scripted(CALL, 'Two.')
    const rollout = server.open({ policy, renderer })
    const client = new OpenAI({ baseURL: rollout.baseURL, apiKey: rollout.apiKey, maxRetries: 0 })
    const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: '1+1?' }]
    const first = await client.responses.create({
      model: 'm',
      instructions: 'Be brief.',
      input,
      tools: TOOLS,
    })
    expect(first.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call'])
    expect(first.output_text).toBe('Let me see. '.repeat(8).trim())
    input.push(
      ...(first.output.filter(({ type }) => type !== 'reasoning') as OpenAI.Responses.ResponseInputItem[]),
    )
    const call = first.output.find((item) => item.type === 'function_call')
    input.push({ type: 'function_call_output', call_id: call?.call_id ?? '', output: '2' })
    const second = await client.responses.create({
      model: 'm',
      instructions: 'Be brief.',
      input,
      tools: TOOLS,
    })
    expect([second.output_text, second.status]).toEqual(['Two.', 'completed'])
    const { turns, ledger } = await rollout.end()
    using _ = ledger
    expect(turns.map(({ fork }) => fork)).toEqual([undefined, undefined])
    expect(ledger.samples()).toHaveLength(1)
    expect(second.usage?.output_tokens).toBe(turns[1]?.completionIds.length)
  })

  it('streams events whose end is the whole response', async () => {
    const open = () => server.open({ policy: streaming(CALL), renderer })
    const whole = (await post(open(), '/responses', { model: 'test', input: 'Hi', tools: TOOLS })).body
    const streamed = await events(open(), '/responses', { input: 'Hi', tools: TOOLS })
    expect(streamed.map(({ sequence_number: number }) => number)).toEqual(streamed.map((_, index) => index))
    expect(streamed.slice(0, 2).map(({ type }) => type)).toEqual(['response.created', 'response.in_progress'])
    const last = streamed.at(-1)
    const plain = (value: object) =>
      JSON.stringify(value)
        .replaceAll(/_\d+/g, '')
        .replaceAll(/"(created_at)":\d+/g, '')
    expect(last.type).toBe('response.completed')
    expect(plain(last.response.output)).toBe(plain(whole.output))
    const done = streamed.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item)
    expect(plain(done)).toBe(plain(whole.output))
    const deltas = streamed.filter(({ type }) => type === 'response.output_text.delta')
    expect(deltas.length).toBeGreaterThan(2)
    expect(deltas.map(({ delta }) => delta).join('')).toBe('Let me see. '.repeat(8).trim())
  })

  it('is read by the stream of the package openai', async () => {
    const rollout = server.open({ policy: streaming(CALL), renderer })
    const client = new OpenAI({ baseURL: rollout.baseURL, apiKey: rollout.apiKey })
    const stream = client.responses.stream({ model: 'm', input: 'Hi', tools: TOOLS })
    const final = await stream.finalResponse()
    expect(final.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call'])
  })

  it('is incomplete where its tokens ran out, and has log-probs where they are asked for', async () => {
    const rollout = server.open({
      policy: new ScriptedPolicy({
        reply: () => [...tokenizer.encode('</think>abcdef', { addedTokens: true }).ids],
      }),
      renderer,
    })
    const include = ['message.output_text.logprobs']
    const { body } = await post(rollout, '/responses', {
      model: 'm',
      input: 'Hi',
      max_output_tokens: 4,
      include,
    })
    expect([body.status, body.incomplete_details.reason]).toEqual(['incomplete', 'max_output_tokens'])
    expect(body.output.at(-1).content[0].logprobs).toHaveLength(4)
  })

  it('ends a stream with a failure where the policy fails', async () => {
    const policy = streaming(`</think>${'x'.repeat(80)}`, (numTokens) => {
      if (numTokens === 60) throw new FulmarError('UNAVAILABLE', 'server must answer: it does not')
    })
    const streamed = await events(server.open({ policy, renderer }), '/responses', { input: 'Hi' })
    expect([streamed.at(-1).type, streamed.at(-1).response.error.code]).toEqual([
      'response.failed',
      'server_error',
    ])
  })

  it.each([
    ['previous_response_id', { previous_response_id: 'resp_1' }],
    ['store', { store: true }],
    ['text.format', { text: { format: { type: 'json_schema' } } }],
    ['input[0].type', { input: [{ type: 'web_search_call' }] }],
    ['input[0].call_id', { input: [{ type: 'function_call_output', call_id: 'x', output: '' }] }],
    ['input[0].content[0].type', { input: [{ role: 'user', content: [{ type: 'input_image' }] }] }],
    ['input', { input: [] }],
    ['input', { input: [{ role: 'assistant', content: 'Hi' }] }],
    ['include', { include: ['reasoning.encrypted_content'] }],
    ['tools[0].type', { tools: [{ type: 'web_search' }] }],
    ['reasoning', { reasoning: { effort: 'high' } }],
    ['text.verbosity', { text: { verbosity: 'low' } }],
    ['top_logprobs', { top_logprobs: 2 }],
    ['tools[0].name', { tools: [{ type: 'function' }] }],
  ])('refuses %s by name', async (param, fields) => {
    const rollout = server.open({ policy: new ScriptedPolicy({ reply: () => [] }), renderer })
    const { status, body } = await post(rollout, '/responses', { model: 'm', input: 'Hi', ...fields })
    expect([status, body.error.param]).toEqual([400, param])
  })
})

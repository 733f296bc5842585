import { describe, expect, it } from 'vitest'
import { fetchClient } from '../../src/native/http-client.js'
import {
  CHAT_ANSWER_CHARS_MAX,
  ChatEndpoint,
  type ChatEndpointOptions,
} from '../../src/vllm/chat-endpoint.js'
import { failing } from '../torchrl/envs/chats.js'
import { TurningClock } from './turning-clock.js'

interface Sent {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Record<string, unknown>
}

/** An endpoint over a function, and what was sent to it. */
function endpointOver(
  answer: (count: number) => Response | Promise<Response>,
  options: Partial<ChatEndpointOptions> = {},
  url = 'http://localhost:1/v1',
) {
  const sent: Sent[] = []
  const client = fetchClient(async (to, { headers, body = '{}', signal }) => {
    sent.push({ url: to, headers, body: JSON.parse(body) })
    const given = Promise.resolve(answer(sent.length - 1))
    const ended = new Promise<never>((_, reject) => {
      signal?.addEventListener('abort', () => reject(new Error('closed')))
    })
    return await Promise.race([given, ended])
  })
  const endpoint = new ChatEndpoint(url, { model: 'tiny', client, clock: new TurningClock(), ...options })
  return { endpoint, sent }
}

const completion = (message: object, more: object = {}) =>
  Response.json({ choices: [{ message: { role: 'assistant', ...message }, finish_reason: 'stop', ...more }] })

const REQUEST = { requestId: 'a', messages: [{ role: 'user', content: 'Hi' }], tools: [], seed: 7 }

describe('ChatEndpoint', () => {
  it('sends the conversation, the tools and the key, and only the fields that were given', async () => {
    const { endpoint, sent } = endpointOver(() => completion({ content: 'Hello' }), { apiKey: 'secret' })
    await endpoint.reply(REQUEST)
    expect(sent[0]).toMatchObject({
      url: 'http://localhost:1/v1/chat/completions',
      headers: { authorization: 'Bearer secret', 'content-type': 'application/json' },
    })
    expect(sent[0]?.body).toEqual({ model: 'tiny', messages: REQUEST.messages })
    const tools = [{ type: 'function', function: { name: 'now', parameters: {} } }]
    await endpoint.reply({ ...REQUEST, tools, maxTokens: 5, temperature: 0 })
    expect(sent[1]?.body).toMatchObject({ tools, max_completion_tokens: 5, temperature: 0 })
  })

  it('puts fields of its body before those of a request, and sends seeds where it is asked to', async () => {
    const options = { body: { temperature: 0.3, max_tokens: 9, top_p: 0.5 }, sendSeeds: true }
    const { endpoint, sent } = endpointOver(() => completion({ content: '' }), options)
    await endpoint.reply({ ...REQUEST, maxTokens: 5, temperature: 1 })
    const { messages, ...fields } = sent[0]?.body ?? {}
    expect(fields).toEqual({ model: 'tiny', temperature: 0.3, max_tokens: 9, top_p: 0.5, seed: 7 })
  })

  it('sends no reasoning of earlier turns', async () => {
    const { endpoint, sent } = endpointOver(() => completion({ content: '' }))
    const said = { role: 'assistant', content: 'A', reasoning_content: 'because' }
    await endpoint.reply({ ...REQUEST, messages: [...REQUEST.messages, said] })
    expect(sent[0]?.body.messages).toEqual([...REQUEST.messages, { role: 'assistant', content: 'A' }])
  })

  it('reads content, reasoning, calls, ends and counts', async () => {
    const calls = [{ id: 'c', type: 'function', function: { name: 'now', arguments: '{}' } }]
    const usage = { prompt_tokens: 12, completion_tokens: 3 }
    const message = { role: 'assistant', content: null, reasoning_content: 'so', tool_calls: calls }
    const { endpoint } = endpointOver((count) => {
      if (count === 0) return Response.json({ choices: [{ message, finish_reason: 'tool_calls' }], usage })
      if (count === 1) return completion({ content: 'a', reasoning: 'b' }, { finish_reason: 'length' })
      return completion({ content: null, refusal: 'no' }, { finish_reason: 'content_filter' })
    })
    expect(await endpoint.reply(REQUEST)).toEqual({
      ...{ message, finishReason: 'stop', numPromptTokens: 12, numCompletionTokens: 3 },
    })
    expect(await endpoint.reply(REQUEST)).toMatchObject({
      ...{ message: { content: 'a', reasoning_content: 'b' }, finishReason: 'length', numPromptTokens: null },
    })
    expect(await endpoint.reply(REQUEST)).toMatchObject({ message: { content: 'no' }, finishReason: 'abort' })
  })

  it.each([
    ['http://localhost:1', 'http://localhost:1/v1'],
    ['http://localhost:1/', 'http://localhost:1/v1'],
    ['https://a.example/api/v1/', 'https://a.example/api/v1'],
    ['https://a.example/v1beta/openai', 'https://a.example/v1beta/openai'],
    ['https://a.example/v1/chat/completions', 'https://a.example/v1'],
  ])('asks %s at %s', async (url, address) => {
    const { endpoint, sent } = endpointOver(() => completion({ content: '' }), {}, url)
    await endpoint.reply(REQUEST)
    expect(sent[0]?.url).toBe(`${address}/chat/completions`)
  })

  it('retries what may pass, and gives the answer of the last attempt', async () => {
    const { endpoint, sent } = endpointOver((count) => {
      if (count === 0) return new Response('busy', { status: 503 })
      if (count === 1) return new Response('{"choices": [{"mess')
      if (count === 2) throw new Error('reset')
      return completion({ content: 'at last' })
    })
    expect((await endpoint.reply(REQUEST)).message.content).toBe('at last')
    expect(sent).toHaveLength(4)
    expect(endpoint.stats).toMatchObject({ numRefused: 1, numMalformed: 1, numUnreachable: 1 })
  })

  it.each([
    ['a refusal for now', () => new Response('boom', { status: 500 }), 'UNAVAILABLE', /500 boom/],
    ['no connection', () => Promise.reject(new Error('refused')), 'UNAVAILABLE', /refused/],
    ['JSON that is cut off', () => new Response('{"choices": ['), 'MALFORMED', /complete JSON/],
    ['no JSON', () => new Response('<html>'), 'MALFORMED', /complete JSON/],
    ['deep JSON', () => new Response('['.repeat(100_000)), 'LIMIT_EXCEEDED', /nested/],
    ['no choice', () => Response.json({ choices: [] }), 'MALFORMED', /choices must be one/],
    ['no message', () => Response.json({ choices: [{ finish_reason: 'stop' }] }), 'MALFORMED', /message/],
    ['content of another form', () => completion({ content: 7 }), 'MALFORMED', /content/],
    ['calls of another form', () => completion({ tool_calls: ['now'] }), 'MALFORMED', /a call/],
    [
      'an end without a reason',
      () => completion({ content: '' }, { finish_reason: null }),
      'MALFORMED',
      /finish/,
    ],
    ['a wrong key', () => new Response('no', { status: 401 }), 'FORBIDDEN', /401 no/],
    [
      'an unknown model',
      () => Response.json({ error: { message: 'who?' } }, { status: 404 }),
      'UNKNOWN_NAME',
      /who/,
    ],
    ['a refused field', () => new Response('field', { status: 400 }), 'INCOMPATIBLE', /400 field/],
  ] as const)('ends %s in a typed error', async (_, answer, code, message) => {
    const { endpoint } = endpointOver(answer, { maxAttempts: 2 })
    await expect(endpoint.reply(REQUEST)).rejects.toThrow(failing(code, message))
  })

  it('reads no more of an answer, or of a refusal, than its limit', async () => {
    const part = new Uint8Array(1_048_576).fill(97)
    let numPulled = 0
    const endless = () =>
      new ReadableStream<Uint8Array>({
        pull: (controller) => {
          numPulled += 1
          controller.enqueue(part)
        },
      })
    const huge = endpointOver(() => new Response(endless()), { maxAttempts: 1 })
    await expect(huge.endpoint.reply(REQUEST)).rejects.toThrow(failing('LIMIT_EXCEEDED', /16777216/))
    expect(numPulled).toBeLessThan(CHAT_ANSWER_CHARS_MAX / part.length + 4)
    numPulled = 0
    const refusing = endpointOver(() => new Response(endless(), { status: 500 }), { maxAttempts: 1 })
    await expect(refusing.endpoint.reply(REQUEST)).rejects.toThrow(failing('UNAVAILABLE', /500 aaa/))
    expect(numPulled).toBeLessThan(5)
  })

  it('ends a slow answer at its deadline, and all requests by their signal', async () => {
    const { endpoint } = endpointOver(() => new Promise<never>(() => {}), {
      attemptTimeoutMs: 20,
      maxAttempts: 2,
    })
    await expect(endpoint.reply(REQUEST)).rejects.toThrow(failing('TIMEOUT', /20 ms/))
    const stop = new AbortController()
    const { endpoint: other } = endpointOver(() => {
      queueMicrotask(() => stop.abort())
      return new Promise<never>(() => {})
    })
    await expect(other.reply({ ...REQUEST, signal: stop.signal })).rejects.toThrow(failing('ABORTED'))
    await other.close()
    await expect(other.reply(REQUEST)).rejects.toThrow(failing('CLOSED'))
  })

  it('refuses other addresses, unknown options, and fields that each request sets', () => {
    const make =
      (options: object, url = 'http://localhost:1') =>
      () =>
        new ChatEndpoint(url, { model: 'a', ...options })
    expect(make({}, 'localhost:1')).toThrow(failing('MALFORMED', /localhost:1/))
    expect(make({}, 'ftp://a')).toThrow(failing('MALFORMED', /http/))
    expect(make({ modle: 'b' })).toThrow(failing('UNKNOWN_NAME', /model/))
    expect(make({ model: '' })).toThrow(failing('EMPTY', /model/))
    expect(make({ body: { stream: true } })).toThrow(failing('INCOMPATIBLE', /stream/))
    expect(make({ maxAttempts: 0 })).toThrow(failing('OUT_OF_RANGE', /maxAttempts/))
    expect(make({ timeoutMs: Number.NaN })).toThrow(failing('OUT_OF_RANGE', /timeoutMs/))
    expect(make({ backoffMs: -1 })).toThrow(failing('OUT_OF_RANGE', /backoffMs/))
  })
})

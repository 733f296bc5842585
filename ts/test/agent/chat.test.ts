/** The dialect of chat completions: fields that are honoured, and fields that are refused by their name. */

import { describe, expect, it } from 'vitest'
import type { GenerateRequest, Policy } from '../../src/policy/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { chat, events } from './client.js'
import { ADD, callText, opened, says, scripted, streaming, textOf, tokenizer, user } from './scripted.js'

const HI = [user('Hi')]

describe('a chat completion', () => {
  it('has the text, the reason and the counts', async () => {
    const policy = scripted('Hello')
    await using endpoint = await opened(policy)
    const { status, body } = await chat(endpoint.rollout, { messages: HI })
    expect(status).toBe(200)
    expect(body).toMatchObject({ object: 'chat.completion', model: 'test' })
    expect(body.choices).toEqual([
      {
        index: 0,
        message: { role: 'assistant', content: 'Hello', refusal: null },
        logprobs: null,
        finish_reason: 'stop',
      },
    ])
    const numPrompt = policy.requests[0]?.promptIds.length ?? 0
    expect(body.usage).toEqual({
      prompt_tokens: numPrompt,
      completion_tokens: 6,
      total_tokens: numPrompt + 6,
    })
  })

  it('has reasoning apart from the content', async () => {
    await using endpoint = await opened(scripted('<think>\nhm\n</think>\n\nYes'))
    const { body } = await chat(endpoint.rollout, { messages: HI })
    expect(body.choices[0].message).toMatchObject({ content: 'Yes', reasoning_content: 'hm' })
  })

  it('has parallel calls with ids, and continues from their results', async () => {
    const policy = scripted(`${callText(1, 2)}\n${callText(3, 4)}`, 'Ten')
    await using endpoint = await opened(policy)
    const { body } = await chat(endpoint.rollout, { messages: HI, tools: [ADD] })
    const { message, finish_reason: reason } = body.choices[0]
    expect([reason, message.content]).toEqual(['tool_calls', null])
    expect(message.tool_calls.map((call: { function: object }) => call.function)).toEqual([
      { name: 'add', arguments: '{"a": 1, "b": 2}' },
      { name: 'add', arguments: '{"a": 3, "b": 4}' },
    ])
    const results = message.tool_calls.map(({ id }: { id: string }, at: number) => ({
      ...{ role: 'tool', tool_call_id: id, content: String(at) },
    }))
    const next = await chat(endpoint.rollout, { messages: [...HI, message, ...results], tools: [ADD] })
    expect(next.body.choices[0].message.content).toBe('Ten')
    const [first, second] = policy.requests
    const before = [...(first?.promptIds ?? []), ...says(`${callText(1, 2)}\n${callText(3, 4)}`)]
    expect([...(second?.promptIds.subarray(0, before.length) ?? [])]).toEqual(before)
  })

  it('leaves calls in the text if none are allowed', async () => {
    await using endpoint = await opened(scripted(callText(1, 2)))
    const { body } = await chat(endpoint.rollout, { messages: HI, tools: [ADD], tool_choice: 'none' })
    const { message, finish_reason: reason } = body.choices[0]
    expect([reason, message.tool_calls]).toEqual(['stop', undefined])
    expect(message.content).toContain('"arguments": {"a": 1, "b": 2}')
  })

  it('has n answers, which are siblings with draws of their own', async () => {
    const policy = scripted('a', 'b', 'c')
    await using endpoint = await opened(policy)
    const { body } = await chat(endpoint.rollout, { messages: HI, n: 3 })
    const texts = body.choices.map((choice: { message: { content: string } }) => choice.message.content)
    expect(texts).toEqual(['a', 'b', 'c'])
    expect(new Set(policy.requests.map(({ seed }) => seed)).size).toBe(3)
    const { turns, ledger } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork)).toEqual([
      undefined,
      ...[1, 2].map(() => ({ turnId: 0, reason: 'sibling' })),
    ])
    expect(ledger.numTurns).toBe(3)
  })

  it('ends before a stop text, which stays in the tokens', async () => {
    const policy = scripted('one END two')
    await using endpoint = await opened(policy, { stopStrings: ['own'] })
    const { body } = await chat(endpoint.rollout, { messages: HI, stop: 'END' })
    expect(body.choices[0].message.content).toBe('one ')
    expect(policy.requests[0]?.stopStrings).toEqual(['own', 'END'])
    const { turns } = await endpoint.rollout.end()
    expect(textOf(turns[0]?.completionIds ?? Uint32Array.of())).toBe('one END two')
  })

  it('passes sampling on, unless the rollout sets it', async () => {
    const policy = scripted('a')
    const asked = { temperature: 0.5, top_p: 0.9, top_k: 7, max_completion_tokens: 3, presence_penalty: 1 }
    await using endpoint = await opened(policy)
    await chat(endpoint.rollout, { messages: HI, ...asked })
    const kept: Partial<GenerateRequest> = {
      temperature: 0.5,
      topP: 0.9,
      topK: 7,
      maxTokens: 3,
      presencePenalty: 1,
    }
    expect(policy.requests[0]).toMatchObject(kept)
    await using fixed = await opened(policy, { temperature: 1, topP: 1, topK: 0, maxTokens: 2 })
    await chat(fixed.rollout, { messages: HI, ...asked })
    expect(policy.requests[1]).toMatchObject({ temperature: 1, topP: 1, topK: 0, maxTokens: 2 })
  })

  it('draws by its seed and its prompt, not by its order', async () => {
    const seeds = async (...asked: object[]) => {
      const policy = scripted('a')
      await using endpoint = await opened(policy)
      for (const body of asked) await chat(endpoint.rollout, body)
      return policy.requests.map(({ seed }) => seed)
    }
    const [one, two] = [
      { messages: HI, seed: 1 },
      { messages: HI, seed: 2 },
    ]
    const other = { messages: [user('Other')] }
    const [first, second] = await seeds(one, two)
    expect(first).not.toBe(second)
    expect(await seeds(other, one)).toEqual([expect.any(Number), first])
  })

  it('tells length as the reason where the limit ends it', async () => {
    await using endpoint = await opened(scripted('abcdef'))
    const { body } = await chat(endpoint.rollout, { messages: HI, max_tokens: 2 })
    expect(body.choices[0]).toMatchObject({ finish_reason: 'length', message: { content: 'ab' } })
  })

  it('tells the log-prob of each token, and refuses alternatives that the policy does not know', async () => {
    const textOfOne = (id: number) => tokenizer.decode(Uint32Array.of(id))
    await using endpoint = await opened(scripted('ab'), {}, { tokenText: textOfOne })
    const { body } = await chat(endpoint.rollout, { messages: HI, logprobs: true })
    const { content } = body.choices[0].logprobs
    expect(content.map(({ token }: { token: string }) => token)).toEqual(['a', 'b', '<|im_end|>'])
    expect(content[0]).toEqual({ token: 'a', logprob: Math.fround(-0.1), bytes: [97], top_logprobs: [] })
    const refused = await chat(endpoint.rollout, { messages: HI, logprobs: true, top_logprobs: 2 })
    expect([refused.status, refused.body.error.param]).toEqual([400, 'top_logprobs'])
  })

  it('tells the likeliest tokens of a policy that has its distribution', async () => {
    const ids = says('ab')
    const base = new ScriptedPolicy({ reply: () => ids })
    const logProbsAt = (at: number) => Float32Array.from({ length: 300 }, (_, id) => 0 - Math.abs(id - at))
    const distribution = async () => ({ logProbsAt })
    const policy = { version: 0, generate: base.generate.bind(base), distribution } as unknown as Policy
    await using endpoint = await opened(policy)
    const { body } = await chat(endpoint.rollout, { messages: HI, logprobs: true, top_logprobs: 3 })
    const numPrompt = body.usage.prompt_tokens
    const { top_logprobs: top } = body.choices[0].logprobs.content[1]
    expect(top.map(({ token }: { token: string }) => token)).toEqual(
      [1, 0, 2].map((offset) => `token_id:${numPrompt + offset}`),
    )
    expect(top.map(({ logprob }: { logprob: number }) => logprob)).toEqual([0, -1, -1])
  })
})

describe('a field that cannot be honoured', () => {
  const message = { role: 'user', content: 'Hi' }
  const cases: readonly (readonly [string, object])[] = [
    ['response_format', { response_format: { type: 'json_schema', json_schema: {} } }],
    ['tool_choice', { tool_choice: 'required' }],
    ['tool_choice', { tool_choice: { type: 'function', function: { name: 'add' } } }],
    ['parallel_tool_calls', { parallel_tool_calls: false }],
    ['logit_bias', { logit_bias: { 5: 1 } }],
    ['audio', { audio: { voice: 'x' } }],
    ['modalities', { modalities: ['audio'] }],
    ['reasoning_effort', { reasoning_effort: 'high' }],
    ['functions', { functions: [] }],
    ['temperatures', { temperatures: 1 }],
    ['temperature', { temperature: 3 }],
    ['temperature', { temperature: 'hot' }],
    ['n', { n: 0 }],
    ['n', { n: 129 }],
    ['max_tokens', { max_tokens: 1.5 }],
    ['stop', { stop: ['a', 'b', 'c', 'd', 'e'] }],
    ['stop[0]', { stop: [''] }],
    ['stop[1]', { stop: ['a', 'x'.repeat(1_025)] }],
    ['stop[0]', { stop: '\ud800' }],
    ['top_logprobs', { top_logprobs: 2 }],
    ['top_logprobs', { logprobs: true, top_logprobs: 21 }],
    ['stream_options', { stream_options: { include_usage: true } }],
    ['stream_options.usage', { stream: true, stream_options: { usage: true } }],
    ['messages', { messages: [] }],
    ['messages', { messages: 'Hi' }],
    ['messages', { messages: [message, { role: 'assistant', content: 'x' }] }],
    ['messages[0].role', { messages: [{ role: 'wizard', content: 'x' }] }],
    ['messages[0].mood', { messages: [{ ...message, mood: 'good' }] }],
    [
      'messages[0].content[0].type',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] },
    ],
    ['messages[0].tool_call_id', { messages: [{ role: 'tool', tool_call_id: 'nothing', content: 'x' }] }],
    ['tools[0].type', { tools: [{ type: 'web_search' }] }],
    ['tools[0].function.name', { tools: [{ type: 'function', function: {} }] }],
    ['model', { model: 7 }],
  ]

  it.each(cases)('is a 400 that names %s', async (param, fields) => {
    const policy = scripted('a')
    await using endpoint = await opened(policy)
    const { status, headers, body } = await chat(endpoint.rollout, { messages: [message], ...fields })
    expect(body).toMatchObject({ error: { type: 'invalid_request_error', param } })
    expect([status, headers.get('x-should-retry')]).toEqual([400, 'false'])
    expect(body.error.message.startsWith(param)).toBe(true)
    expect(policy.requests.length).toBe(0)
    expect((await endpoint.rollout.end()).turns).toEqual([])
  })

  it('comes with the nearest name', async () => {
    await using endpoint = await opened(scripted('a'))
    const { body } = await chat(endpoint.rollout, { messages: HI, temperatures: 1 })
    expect(body.error.message).toContain("did you mean 'temperature'?")
  })
})

describe('a stream', () => {
  it('has the deltas of the whole answer, with calls, reasoning and counts', async () => {
    const answer = `<think>\nlet me see, what is one and two\n</think>\n\nI shall add the two numbers up, and then tell you what came of it.\n${callText(1, 2)}`
    await using endpoint = await opened(streaming(answer))
    const asked = { messages: HI, tools: [ADD], logprobs: true, stream_options: { include_usage: true } }
    const chunks = await events(endpoint.rollout, '/chat/completions', asked)
    expect(chunks.pop()).toBe('data: [DONE]')
    const usage = chunks.at(-1)
    expect([usage.choices, usage.usage.completion_tokens]).toEqual([[], says(answer).length])
    const deltas = chunks.flatMap(({ choices }) => choices)
    const joined = (key: string) => deltas.map(({ delta }) => delta[key] ?? '').join('')
    expect(deltas[0].delta).toEqual({ role: 'assistant', content: '' })
    expect(joined('content')).toBe('I shall add the two numbers up, and then tell you what came of it.')
    expect(joined('reasoning_content')).toBe('let me see, what is one and two')
    expect(deltas.filter(({ delta }) => delta.content).length).toBeGreaterThan(1)
    const calls = deltas.flatMap(({ delta }) => delta.tool_calls ?? [])
    expect(calls.map((call: { function: object }) => call.function)).toEqual([
      { name: 'add', arguments: '{"a": 1, "b": 2}' },
    ])
    expect(deltas.at(-1).finish_reason).toBe('tool_calls')
    const tokens = deltas.flatMap(({ logprobs }) => logprobs?.content ?? [])
    expect(tokens.length).toBe(says(answer).length)
  })

  it('of n answers has each under its index', async () => {
    await using endpoint = await opened(scripted('a', 'b'))
    const chunks = await events(endpoint.rollout, '/chat/completions', { messages: HI, n: 2 })
    const deltas = chunks.slice(0, -1).flatMap(({ choices }) => choices)
    const of = (index: number) =>
      deltas
        .filter((choice) => choice.index === index)
        .map(({ delta }) => delta.content ?? '')
        .join('')
    expect([of(0), of(1)]).toEqual(['a', 'b'])
  })

  it('ends with an error event if the policy fails in its middle, and keeps the tokens untrained', async () => {
    const policy = streaming('a long answer that will not be finished, as it fails in the middle', (at) => {
      if (at === 60) throw new Error('the engine broke')
    })
    await using endpoint = await opened(policy)
    const chunks = await events(endpoint.rollout, '/chat/completions', { messages: HI })
    expect(chunks.at(-1)).toMatchObject({ error: { type: 'server_error', message: 'the engine broke' } })
    expect(chunks.some(({ choices }) => choices?.[0].delta.content)).toBe(true)
    const { turns, ledger, status, cause } = await endpoint.rollout.end()
    expect(turns.map(({ untrained, completionIds }) => [untrained, completionIds.length])).toEqual([
      ['failed', 60],
    ])
    expect([ledger.numTurns, status, cause?.stage]).toEqual([0, 'error', 'generate'])
  })

  it('that fails before its first part is an answer with a status', async () => {
    const policy = streaming('never', () => {
      throw new Error('down')
    })
    await using endpoint = await opened(policy)
    const { status, body } = await chat(endpoint.rollout, { messages: HI, stream: true })
    expect([status, body.error.message]).toEqual([500, 'down'])
  })
})

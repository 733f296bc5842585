/** The official client `openai` against the endpoint: it has an address and a key, and nothing of Fulmar. */

import OpenAI from 'openai'
import type { ChatCompletionMessageParam, ChatCompletionTool } from 'openai/resources/chat/completions'
import { describe, expect, it } from 'vitest'
import type { AgentRollout } from '../../src/agent/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { ADD, callText, gate, opened, says, scripted, streaming } from './scripted.js'

const TOOLS = [ADD] as unknown as ChatCompletionTool[]

function clientOf({ baseURL, apiKey }: AgentRollout, options: object = {}): OpenAI {
  return new OpenAI({ baseURL, apiKey, ...options })
}

/** Asks until there is no call left; returns the last words. */
async function agent(client: OpenAI, streams: boolean): Promise<string | null> {
  const messages: ChatCompletionMessageParam[] = [{ role: 'user', content: 'What is 2 + 3, and then + 4?' }]
  for (;;) {
    const asked = { model: 'any', messages, tools: TOOLS }
    const answer = streams
      ? await client.chat.completions.stream(asked).finalChatCompletion()
      : await client.chat.completions.create(asked)
    const message = answer.choices[0]?.message
    if (!message?.tool_calls?.length) return message?.content ?? null
    messages.push(message)
    for (const call of message.tool_calls) {
      if (call.type !== 'function') throw new Error('calls are of functions')
      const { a, b } = JSON.parse(call.function.arguments)
      messages.push({ role: 'tool', tool_call_id: call.id, content: String(a + b) })
    }
  }
}

describe('the client openai', () => {
  it.each([
    ['whole', false],
    ['streamed', true],
  ] as const)('runs a loop of tools on %s answers, on the tokens that were sampled', async (_, streams) => {
    const answers = [`<think>\nfirst two\n</think>\n\n${callText(2, 3)}`, callText(5, 4), 'It is 9.']
    const policy = scripted(...answers)
    await using endpoint = await opened(policy)
    expect(await agent(clientOf(endpoint.rollout), streams)).toBe('It is 9.')
    const { turns, ledger, status } = await endpoint.rollout.end()
    expect([status, turns.length, ledger.numTurns]).toEqual(['completed', 3, 3])
    expect(turns.map(({ fork }) => fork)).toEqual([undefined, undefined, undefined])
    for (const [at, { promptIds }] of turns.entries()) {
      if (at === 0) continue
      const before = turns[at - 1]
      const known = [...(before?.promptIds ?? []), ...says(answers[at - 1] ?? '')]
      expect([...promptIds.subarray(0, known.length)]).toEqual(known)
    }
  })

  it('reads the parts of a stream as they are sampled', async () => {
    const text =
      'A long answer, which comes in many parts, each of them sure to be the beginning of the whole.'
    await using endpoint = await opened(streaming(text))
    const stream = await clientOf(endpoint.rollout).chat.completions.create({
      ...{ model: 'any', messages: [{ role: 'user', content: 'Hi' }] },
      ...{ stream: true, stream_options: { include_usage: true } },
    })
    const parts: string[] = []
    let numTokens = 0
    for await (const { choices, usage } of stream) {
      parts.push(choices[0]?.delta.content ?? '')
      numTokens = usage?.completion_tokens ?? numTokens
    }
    expect([parts.join(''), numTokens]).toEqual([text, says(text).length])
    expect(parts.filter((part) => part !== '').length).toBeGreaterThan(2)
  })

  it('retries a request that takes too long, which is no second turn', async () => {
    const go = gate()
    const policy = new ScriptedPolicy({
      reply: async () => {
        await go.passed
        return says('late')
      },
    })
    await using endpoint = await opened(policy)
    let numSent = 0
    const counting: typeof fetch = (...request) => {
      numSent += 1
      if (numSent === 3) go.open()
      return fetch(...request)
    }
    const client = clientOf(endpoint.rollout, { timeout: 400, maxRetries: 8, fetch: counting })
    const answer = await client.chat.completions.create({
      model: 'any',
      messages: [{ role: 'user', content: 'Hi' }],
    })
    expect([answer.choices[0]?.message.content, policy.requests.length]).toEqual(['late', 1])
    expect(numSent).toBeGreaterThanOrEqual(3)
    const { turns, ledger } = await endpoint.rollout.end()
    expect([turns.length, ledger.numTurns]).toEqual([1, 1])
  })

  it('throws its own errors, and does not retry a limit', async () => {
    const policy = scripted('one')
    await using endpoint = await opened(policy, { maxTurns: 1 })
    const client = clientOf(endpoint.rollout)
    const ask = (content: string, more: object = {}) =>
      client.chat.completions.create({ model: 'any', messages: [{ role: 'user', content }], ...more })
    await expect(ask('a', { tool_choice: 'required' })).rejects.toBeInstanceOf(OpenAI.BadRequestError)
    await ask('a')
    const refused = ask('b')
    await expect(refused).rejects.toBeInstanceOf(OpenAI.RateLimitError)
    await expect(refused).rejects.toMatchObject({ status: 429, code: 'insufficient_quota' })
    const stranger = new OpenAI({ baseURL: endpoint.rollout.baseURL, apiKey: 'sk-guess' })
    await expect(stranger.models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError)
  })
})

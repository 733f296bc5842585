/** The record of an agent's requests: forks with their reasons, siblings, retries, aborted streams, limits. */

import { describe, expect, it } from 'vitest'
import { createRenderer } from '../../src/chat/index.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { chat, type Reply } from './client.js'
import {
  ADD,
  gate,
  opened as openedWith,
  renderer,
  says,
  scripted,
  streaming,
  tokenizer,
  user,
} from './scripted.js'

const HI = [user('Hi')]

/** Keeps the tokens of every turn, whatever comes after it. */
const stable = createRenderer(tokenizer, { name: 'qwen3', enableThinking: false })

const opened: typeof openedWith = (policy, options) => openedWith(policy, { renderer: stable, ...options })

/** The message of an answer. */
const said = ({ body }: Reply) => body.choices[0].message

describe('a history', () => {
  it('that is edited is a fork from the turn that it edits', async () => {
    const policy = scripted('one', 'two', 'three')
    await using endpoint = await opened(policy)
    const first = said(await chat(endpoint.rollout, { messages: HI }))
    const messages = [...HI, first, user('More')]
    await chat(endpoint.rollout, { messages })
    await chat(endpoint.rollout, { messages: [...HI, { ...first, content: 'ONE' }, user('More')] })
    const { turns, ledger } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork?.reason)).toEqual([undefined, undefined, 'history_edit'])
    expect(ledger.numTurns).toBe(3)
  })

  it('that is shortened is a compaction', async () => {
    await using endpoint = await opened(scripted('one', 'two', 'three'))
    const first = said(await chat(endpoint.rollout, { messages: HI }))
    const second = said(await chat(endpoint.rollout, { messages: [...HI, first, user('More')] }))
    await chat(endpoint.rollout, { messages: [second, user('Last')] })
    const { turns } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork?.reason)).toEqual([undefined, undefined, 'compaction'])
  })

  it('of other words is foreign, and departs from no turn', async () => {
    await using endpoint = await opened(scripted('one', 'two'))
    await chat(endpoint.rollout, { messages: HI })
    await chat(endpoint.rollout, { messages: [user('Summarize.')] })
    const { turns } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork)).toEqual([undefined, { turnId: null, reason: 'foreign' }])
  })

  it('with other tools is a fork that is named so', async () => {
    await using endpoint = await opened(scripted('one', 'two'))
    const first = said(await chat(endpoint.rollout, { messages: HI }))
    await chat(endpoint.rollout, { messages: [...HI, first, user('More')], tools: [ADD] })
    const { turns } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork?.reason)).toEqual([undefined, 'tools'])
  })

  it('that is continued twice has siblings that share their beginning in the ledger', async () => {
    const policy = scripted('one', 'two', 'three')
    await using endpoint = await opened(policy)
    const first = said(await chat(endpoint.rollout, { messages: HI }))
    const then = (words: string) => chat(endpoint.rollout, { messages: [...HI, first, user(words)] })
    await Promise.all([then('Left'), then('Right')])
    const { turns, ledger } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork?.reason)).toEqual([undefined, undefined, 'sibling'])
    const beginning = [...(policy.requests[0]?.promptIds ?? []), ...says('one')]
    for (const { promptIds } of policy.requests.slice(1))
      expect([...promptIds.subarray(0, beginning.length)]).toEqual(beginning)
    expect(ledger.numTurns).toBe(3)
  })

  it('whose reasoning the renderer drops is rendered anew, for that reason', async () => {
    const policy = scripted('<think>\nhm\n</think>\n\none', 'two')
    await using endpoint = await opened(policy, { renderer })
    const first = said(await chat(endpoint.rollout, { messages: HI }))
    await chat(endpoint.rollout, { messages: [...HI, first, user('More')] })
    const { turns } = await endpoint.rollout.end()
    expect(turns.map(({ fork }) => fork)).toEqual([undefined, { turnId: 0, reason: 'retention' }])
    expect(turns[1]?.bridgeRefusal).toBe('user_query_under_tool_cycle')
    expect(turns[0]?.envMessages).toEqual([user('More')])
  })

  it('keeps what the agent answered with the turn that it answers', async () => {
    await using endpoint = await opened(scripted('one', 'two'))
    const first = said(await chat(endpoint.rollout, { messages: HI }))
    await chat(endpoint.rollout, { messages: [...HI, first, user('More')] })
    const { turns } = await endpoint.rollout.end()
    expect(turns.map(({ envMessages }) => envMessages)).toEqual([[user('More')], []])
  })
})

describe('a request that is sent again', () => {
  it('by an SDK is no second turn', async () => {
    const policy = scripted('one', 'two')
    await using endpoint = await opened(policy)
    const first = await chat(endpoint.rollout, { messages: HI })
    const again = await chat(endpoint.rollout, { messages: HI }, { 'x-stainless-retry-count': '1' })
    expect(said(again)).toEqual(said(first))
    expect(policy.requests.length).toBe(1)
    expect((await endpoint.rollout.end()).turns.length).toBe(1)
  })

  it('with the same idempotency key is no second turn', async () => {
    const policy = scripted('one', 'two')
    await using endpoint = await opened(policy)
    const headers = { 'idempotency-key': 'k1' }
    const [first, again] = [
      await chat(endpoint.rollout, { messages: HI }, headers),
      await chat(endpoint.rollout, { messages: HI }, headers),
    ]
    expect([said(again), policy.requests.length]).toEqual([said(first), 1])
  })

  it('without a word of a retry is a second draw', async () => {
    const policy = scripted('one', 'two')
    await using endpoint = await opened(policy)
    await chat(endpoint.rollout, { messages: HI })
    expect(said(await chat(endpoint.rollout, { messages: HI })).content).toBe('two')
    const { turns } = await endpoint.rollout.end()
    expect(turns[1]?.fork).toEqual({ turnId: 0, reason: 'sibling' })
  })

  it('after a failure is drawn anew', async () => {
    const policy = new ScriptedPolicy({
      reply: (_, call) => {
        if (call === 0) throw new Error('down')
        return says('up')
      },
    })
    await using endpoint = await opened(policy)
    expect((await chat(endpoint.rollout, { messages: HI })).status).toBe(500)
    const again = await chat(endpoint.rollout, { messages: HI }, { 'x-stainless-retry-count': '1' })
    expect(said(again).content).toBe('up')
    const { status, turns } = await endpoint.rollout.end()
    expect([status, turns.length]).toEqual(['completed', 1])
  })
})

describe('a stream that its client leaves', () => {
  it('is not joined by the next request, which the policy answers anew', async () => {
    const [reached, left, held] = [gate(), gate(), gate()]
    const isFirst = (request: { requestId: string }) => request.requestId.endsWith('turn=0')
    const policy = streaming('a long answer', async (numTokens, request) => {
      if (!isFirst(request) || numTokens < 3) return
      request.signal?.addEventListener('abort', left.open)
      reached.open()
      await held.passed
    })
    await using endpoint = await opened(policy)
    const { baseURL, apiKey } = endpoint.rollout
    const stop = new AbortController()
    const body = JSON.stringify({ model: 'test', messages: HI, stream: true })
    const headers = { authorization: `Bearer ${apiKey}` }
    const first = fetch(`${baseURL}/chat/completions`, { method: 'POST', headers, body, signal: stop.signal })
    first.catch(() => {})
    await reached.passed
    stop.abort()
    await left.passed
    const again = await fetch(`${baseURL}/chat/completions`, { method: 'POST', headers, body })
    held.open()
    expect([again.status, (await again.text()).includes('[DONE]')]).toEqual([200, true])
  })

  it('stops the policy and keeps its tokens, untrained', async () => {
    const stop = new AbortController()
    const seen = gate()
    const policy = streaming('x'.repeat(200), async (at, { signal }) => {
      if (at < 100) return
      seen.open()
      await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()))
    })
    await using endpoint = await opened(policy)
    const { baseURL, apiKey } = endpoint.rollout
    const answer = await fetch(`${baseURL}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}` },
      body: JSON.stringify({ model: 'm', messages: HI, stream: true }),
      signal: stop.signal,
    })
    expect(answer.status).toBe(200)
    await seen.passed
    stop.abort()
    await answer.text().catch(() => {})
    const { turns, ledger } = await endpoint.rollout.end()
    expect(turns.map(({ untrained, completionIds }) => [untrained, completionIds.length])).toEqual([
      ['aborted', 100],
    ])
    expect(ledger.numTurns).toBe(0)
  })
})

describe('a limit', () => {
  it('of turns answers as a provider without quota, and is the status', async () => {
    const policy = scripted('one')
    await using endpoint = await opened(policy, { maxTurns: 1 })
    await chat(endpoint.rollout, { messages: HI })
    const { status, headers, body } = await chat(endpoint.rollout, { messages: [user('More')] })
    expect([status, headers.get('x-should-retry')]).toEqual([429, 'false'])
    expect(body.error).toMatchObject({ type: 'insufficient_quota', code: 'insufficient_quota' })
    const record = await endpoint.rollout.end()
    expect([record.status, record.cause, record.turns.length]).toEqual(['truncated_max_turns', null, 1])
  })

  it('of sampled tokens ends the rollout, and shortens its last answer', async () => {
    const policy = scripted('abcdef')
    await using endpoint = await opened(policy, { maxTotalTokens: 4 })
    const { body } = await chat(endpoint.rollout, { messages: HI })
    expect(body.choices[0]).toMatchObject({ finish_reason: 'length', message: { content: 'abcd' } })
    expect((await chat(endpoint.rollout, { messages: [user('More')] })).status).toBe(429)
    expect((await endpoint.rollout.end()).status).toBe('truncated_total_tokens')
  })

  it('of the context is a 400 with the code of a full context', async () => {
    await using endpoint = await opened(scripted('a'), { maxRolloutTokens: 40 })
    const { status, body } = await chat(endpoint.rollout, { messages: [user('x'.repeat(40))] })
    expect([status, body.error.code, body.error.param]).toEqual([400, 'context_length_exceeded', 'messages'])
    expect((await endpoint.rollout.end()).status).toBe('truncated_prompt_too_long')
  })

  it('of time answers 503, and a client may try again', async () => {
    const clock = new ManualClock()
    const started = gate()
    const policy = new ScriptedPolicy({
      reply: () => {
        started.open()
        return new Promise(() => {})
      },
    })
    await using endpoint = await opened(policy, { generateTimeoutMs: 1_000, clock })
    const answer = chat(endpoint.rollout, { messages: HI })
    await started.passed
    clock.advance(1_000)
    const { status, headers, body } = await answer
    expect([status, body.error.code, headers.get('x-should-retry')]).toEqual([503, 'timeout', 'true'])
    // The policy never settles, though its signal fired.
    const ended = endpoint.rollout.end()
    clock.advance(1_000)
    expect((await ended).status).toMatch(/^error/)
  })
})

describe('the end', () => {
  it('revokes the key, and gives the same record again', async () => {
    await using endpoint = await opened(scripted('a'))
    const record = await endpoint.rollout.end()
    expect(await endpoint.rollout.end()).toBe(record)
    expect((await chat(endpoint.rollout, { messages: HI })).status).toBe(401)
    expect(endpoint.server.numOpen).toBe(0)
  })
})

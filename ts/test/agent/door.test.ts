/** The door of the endpoint: keys, limits, broken clients. Whatever one client does, other rollouts are unharmed. */

import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ApiKeys } from '../../src/agent/api-keys.js'
import {
  type AgentRollout,
  InterceptionServer,
  type InterceptionServerOptions,
} from '../../src/agent/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { chat, post } from './client.js'
import { gate, opened, renderer, says, scripted, user } from './scripted.js'

const HI = [user('Hi')]

let server: InterceptionServer
let bystander: AgentRollout

beforeAll(async () => {
  server = await InterceptionServer.listen({ bodyBytesMax: 4_000_000 })
  bystander = server.open({ policy: scripted('fine'), renderer })
})

afterAll(async () => {
  const { ledger, turns } = await bystander.end()
  expect(turns.every(({ untrained }) => untrained === undefined)).toBe(true)
  ledger[Symbol.dispose]()
  await server.close()
})

/** The rollout that no test touches still gets its answers. */
async function expectUnharmed(): Promise<void> {
  const { body } = await chat(bystander, { messages: HI })
  expect(body.choices[0].message.content).toBe('fine')
}

/** Opens a rollout on the shared server, runs `body`, and ends it. */
async function within<T>(policy: ScriptedPolicy, body: (rollout: AgentRollout) => Promise<T>): Promise<T> {
  const rollout = server.open({ policy, renderer })
  try {
    return await body(rollout)
  } finally {
    const { ledger } = await rollout.end()
    ledger[Symbol.dispose]()
  }
}

/** A connection that writes bytes as they are. */
class RawClient {
  readonly socket: Socket
  /** All that came until the server closed the connection. */
  readonly answer: Promise<string>
  /** All that came so far. */
  text = ''

  constructor({ url }: InterceptionServer, ...bytes: readonly string[]) {
    this.socket = connect(Number(new URL(url).port), '127.0.0.1')
    this.answer = new Promise((resolve) => {
      this.socket.on('data', (part) => {
        this.text += String(part)
      })
      this.socket.on('error', () => {})
      this.socket.on('close', () => resolve(this.text))
    })
    for (const part of bytes) this.socket.write(part)
  }
}

function head(rollout: AgentRollout, fields: string): string {
  return `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${rollout.apiKey}\r\n${fields}\r\n\r\n`
}

describe('a key', () => {
  it.each([
    ['none', {}],
    ['another scheme', { authorization: 'Basic abc' }],
    ['a guess', { authorization: 'Bearer sk-fulmar-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' }],
    ['a beginning', { authorization: 'Bearer sk-fulmar-' }],
    ['a very long one', { authorization: `Bearer ${'x'.repeat(9_000)}` }],
  ])('that is %s is a 401, on every path', async (_, headers) => {
    for (const path of ['chat/completions', 'fulmar/reward', 'models', 'nothing', '../../etc/passwd']) {
      const answer = await fetch(`${server.url}/v1/${path}`, { method: 'POST', headers, body: '{}' })
      expect(answer.status).toBe(401)
      expect(await answer.json()).toMatchObject({ error: { code: 'invalid_api_key' } })
    }
    await expectUnharmed()
  })

  it('of another rollout reaches that rollout alone', async () => {
    const [mine, theirs] = [scripted('mine'), scripted('theirs')]
    await within(mine, (one) =>
      within(theirs, async (other) => {
        const { body } = await chat({ baseURL: one.baseURL, apiKey: other.apiKey }, { messages: HI })
        expect(body.choices[0].message.content).toBe('theirs')
        expect([mine.requests.length, theirs.requests.length]).toEqual([0, 1])
      }),
    )
  })

  it('is kept as a hash, and another one is found for no part of it', () => {
    const keys = new ApiKeys<string>()
    const made: string[] = []
    for (const name of ['a', 'b']) {
      keys.issue((key) => {
        made.push(key)
        return name
      })
    }
    expect(made.map((key) => keys.ownerOf(key))).toEqual(['a', 'b'])
    expect(JSON.stringify(keys)).not.toContain(made[0])
    for (const key of made) {
      expect(
        [key.slice(0, -1), `${key}A`, key.toUpperCase(), ''].map((guess) => keys.ownerOf(guess)),
      ).toEqual(Array(4).fill(undefined))
    }
    keys.revoke(made[0] ?? '')
    expect([keys.size, keys.ownerOf(made[0] ?? '')]).toEqual([1, undefined])
  })
})

describe('an address', () => {
  it('is the loopback unless told otherwise', async () => {
    expect(new URL(server.url).hostname).toBe('127.0.0.1')
    await using open = await InterceptionServer.listen({ host: '0.0.0.0' })
    expect(new URL(open.url).hostname).toBe('0.0.0.0')
  })

  it('that is taken is an error that names it', async () => {
    const port = Number(new URL(server.url).port)
    await expect(InterceptionServer.listen({ port })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  it.each([
    ['port', { port: -1 }, 'OUT_OF_RANGE'],
    ['bodyBytesMax', { bodyBytesMax: 0 }, 'OUT_OF_RANGE'],
    ['requestTimeoutMs', { requestTimeoutMs: 1.5 }, 'OUT_OF_RANGE'],
    ['ports', { ports: 1 }, 'UNKNOWN_NAME'],
  ])('needs valid options: %s', async (name, options, code) => {
    const listening = InterceptionServer.listen(options as InterceptionServerOptions)
    await expect(listening).rejects.toMatchObject({ code, message: expect.stringContaining(name) })
  })

  it('takes no rollout once it is closed', async () => {
    const closed = await InterceptionServer.listen()
    await closed.close()
    await closed.close()
    expect(() => closed.open({ policy: scripted('a'), renderer })).toThrow(
      expect.objectContaining({ code: 'CLOSED' }),
    )
  })
})

describe('a route', () => {
  it('is one of four, each with one method', async () => {
    await within(scripted('a'), async (rollout) => {
      const get = (path: string, method = 'GET') =>
        fetch(`${rollout.baseURL}${path}`, { method, headers: { authorization: `Bearer ${rollout.apiKey}` } })
      const models = await get('/models?x=1')
      expect(await models.json()).toMatchObject({ object: 'list', data: [{ id: 'fulmar' }] })
      expect((await get('/chat/completions')).status).toBe(405)
      expect((await get('/files/%2e%2e/secret')).status).toBe(404)
    })
  })

  it('for rewards keeps the last one, and refuses what is none', async () => {
    await within(scripted('a'), async (rollout) => {
      const bad = [
        {},
        { reward: 'x' },
        { reward: 1, unscored: 'y' },
        { rewards: 1 },
        { unscored: 3 },
        '{"reward": 1e999}',
      ]
      for (const body of bad) expect((await post(rollout, '/fulmar/reward', body)).status).toBe(400)
      expect(rollout.reward).toBeNull()
      await post(rollout, '/fulmar/reward', { reward: 0.5 })
      const { body } = await post(rollout, '/fulmar/reward', { unscored: 'the judge was away' })
      expect(body.reward).toEqual(rollout.reward)
      expect(rollout.reward).toEqual({ unscored: 'the judge was away' })
    })
  })
})

describe('a body', () => {
  it('over the limit is a 413, whether it says so or not', async () => {
    await within(scripted('a'), async (rollout) => {
      const chunk = `${(1_000_000).toString(16)}\r\n${'x'.repeat(1_000_000)}\r\n`
      const clients = [
        new RawClient(server, head(rollout, 'content-length: 4000001')),
        new RawClient(server, head(rollout, 'transfer-encoding: chunked'), ...Array(5).fill(chunk)),
      ]
      for (const client of clients) {
        // The rest of the body is read and dropped, so that the client sees its answer.
        await expect.poll(() => client.text).toMatch(/^HTTP\/1.1 413 .*body_too_large/s)
        client.socket.destroy()
      }
    })
    await expectUnharmed()
  })

  it.each([
    ['no JSON', '{"model":', 'invalid_json'],
    ['a list', '[]', 'invalid_type'],
    ['empty', '', 'invalid_json'],
    ['deep', `{"messages":${'['.repeat(100_000)}`, 'invalid_json'],
  ])('that is %s is a 400', async (_, text, code) => {
    await within(scripted('a'), async (rollout) => {
      const { status, body } = await post(rollout, '/chat/completions', text)
      expect([status, body.error.code]).toEqual([400, code])
    })
  })

  it('of bytes that are no UTF-8 is a 400, and a compressed one a 415', async () => {
    await within(scripted('a'), async (rollout) => {
      const send = (body: Uint8Array<ArrayBuffer>, headers = {}) =>
        fetch(`${rollout.baseURL}/chat/completions`, {
          ...{ method: 'POST', body },
          headers: { authorization: `Bearer ${rollout.apiKey}`, ...headers },
        })
      expect((await send(Uint8Array.of(123, 255, 125))).status).toBe(400)
      expect((await send(Uint8Array.of(31, 139), { 'content-encoding': 'gzip' })).status).toBe(415)
    })
  })

  it('may hold 10,000 messages', async () => {
    const policy = scripted('read')
    await within(policy, async (rollout) => {
      const messages = Array.from({ length: 10_000 }, (_, at) =>
        at % 2 === 0 ? user(`${at}`) : { role: 'assistant', content: `${at}` },
      )
      const { status, body } = await chat(rollout, { messages: [...messages, user('end')] })
      expect([status, body.choices[0].message.content]).toEqual([200, 'read'])
      const more = { messages: Array(20_001).fill(user('x')) }
      expect((await chat(rollout, more)).body.error.param).toBe('messages')
    })
  })

  it('whose roles are out of order is rendered, or refused by the template, and harms nobody', async () => {
    const orders = [
      [{ role: 'system', content: 'a' }, { role: 'system', content: 'b' }, user('c')],
      [{ role: 'assistant', content: 'a' }, user('b')],
      [user('a'), { role: 'system', content: 'b' }],
      [user('a'), user('b')],
    ]
    for (const messages of orders) {
      const { status } = await within(scripted('a'), (rollout) => chat(rollout, { messages }))
      expect([200, 400]).toContain(status)
    }
    await expectUnharmed()
  })

  it('with a tool result for a call that was never made is a 400 that names its field', async () => {
    await within(scripted('a'), async (rollout) => {
      const messages = [...HI, { role: 'tool', tool_call_id: 'call_9_9', content: '7' }]
      const { status, body } = await chat(rollout, { messages })
      expect([status, body.error.param]).toEqual([400, 'messages[1].tool_call_id'])
    })
  })

  it('with keys that a prototype has changes nothing', async () => {
    await within(scripted('a'), async (rollout) => {
      const text = '{"model":"m","messages":[{"role":"user","content":"x"}],"__proto__":{"stream":true}}'
      expect((await post(rollout, '/chat/completions', text)).body.error.param).toBe('__proto__')
      const more = '{"model":"m","messages":[{"role":"user","content":"x","constructor":1}]}'
      expect((await post(rollout, '/chat/completions', more)).status).toBe(400)
    })
  })
})

describe('a client', () => {
  it('that sends its header or its body too slowly is a 408', async () => {
    await using slow = await opened(scripted('a'), {}, { requestTimeoutMs: 300 })
    const header = new RawClient(slow.server, 'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n')
    const body = new RawClient(slow.server, head(slow.rollout, 'content-length: 100'), '{')
    expect(await header.answer).toMatch(/^HTTP\/1.1 408 .*request_timeout/s)
    expect(await body.answer).toMatch(/^HTTP\/1.1 408 /)
    expect((await slow.rollout.end()).turns).toEqual([])
  })

  it('that speaks no HTTP is a 400, and with too long headers a 431', async () => {
    expect(await new RawClient(server, '\u0016\u0003\u0001 hello\r\n\r\n').answer).toMatch(
      /^HTTP\/1.1 400 .*invalid_http/s,
    )
    const long = `GET / HTTP/1.1\r\nhost: x\r\nx-long: ${'a'.repeat(20_000)}\r\n\r\n`
    expect(await new RawClient(server, long).answer).toMatch(/^HTTP\/1.1 431 /)
    await expectUnharmed()
  })

  it('that cuts its body off begins no turn', async () => {
    const policy = scripted('a')
    await within(policy, async (rollout) => {
      const client = new RawClient(server, head(rollout, 'content-length: 100'), '{"model"')
      client.socket.destroySoon()
      await client.answer
      expect((await rollout.end()).turns).toEqual([])
    })
    expect(policy.requests.length).toBe(0)
    await expectUnharmed()
  })

  it('that closes its half of a connection still gets its answer', async () => {
    await within(scripted('half'), async (rollout) => {
      const body = JSON.stringify({ model: 'm', messages: HI })
      const fields = `connection: close\r\ncontent-length: ${body.length}`
      const client = new RawClient(server)
      client.socket.end(head(rollout, fields) + body)
      expect(await client.answer).toMatch(/^HTTP\/1.1 200 .*"half"/s)
    })
  })

  it('that leaves before its answer gets the same answer when it asks again', async () => {
    const [asked, go] = [gate(), gate()]
    const policy = new ScriptedPolicy({
      reply: async () => {
        asked.open()
        await go.passed
        return says('late')
      },
    })
    await within(policy, async (rollout) => {
      const body = JSON.stringify({ model: 'test', messages: HI })
      const client = new RawClient(server, head(rollout, `content-length: ${body.length}`) + body)
      await asked.passed
      client.socket.destroy()
      await client.answer
      // The server sees the close before it reads the next request.
      await expectUnharmed()
      go.open()
      const again = await chat(rollout, { messages: HI })
      expect(again.body.choices[0].message.content).toBe('late')
      const { turns } = await rollout.end()
      expect(policy.requests.length).toBe(1)
      expect(turns.map(({ untrained }) => untrained)).toEqual([undefined])
    })
  })

  it('that leaves before its answer, and does not come back, leaves a turn that is not trained', async () => {
    const [asked, go] = [gate(), gate()]
    const policy = new ScriptedPolicy({
      reply: async () => {
        asked.open()
        await go.passed
        return says('late')
      },
    })
    await within(policy, async (rollout) => {
      const body = JSON.stringify({ model: 'test', messages: HI })
      const client = new RawClient(server, head(rollout, `content-length: ${body.length}`) + body)
      await asked.passed
      client.socket.destroy()
      await client.answer
      await expectUnharmed()
      go.open()
      const { turns, ledger } = await rollout.end()
      expect(turns.every(({ untrained }) => untrained !== undefined)).toBe(true)
      expect(ledger.numTurns).toBe(0)
    })
  })

  it('has at most so many requests at a time', async () => {
    const go = gate()
    const policy = new ScriptedPolicy({
      reply: async () => {
        await go.passed
        return says('a')
      },
    })
    await using endpoint = await opened(policy, {}, { requestsMax: 2 })
    const ask = (words: string) => chat(endpoint.rollout, { messages: [user(words)] })
    const asked = Promise.all(['a', 'b'].map(ask))
    await expect.poll(() => policy.requests.length).toBe(2)
    const { status, body } = await ask('c')
    expect([status, body.error.code]).toEqual([429, 'rate_limit_exceeded'])
    go.open()
    expect((await asked).map((reply) => reply.status)).toEqual([200, 200])
  })
})

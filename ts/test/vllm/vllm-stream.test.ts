import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { GenerateRequest } from '../../src/policy/index.js'
import type { AsyncVLLM } from '../../src/vllm/index.js'
import { EVENT_CHARS_MAX, EventReader } from '../../src/vllm/vllm-stream.js'
import { connect, serve } from './connect-vllm.js'
import { type Fault, STREAM_FAULTS } from './fake-vllm.js'

const request: GenerateRequest = {
  requestId: 'a',
  promptIds: Uint32Array.of(1, 2, 3),
  seed: 7,
  maxTokens: 6,
  stopIds: [],
}

/** The ids of the parts of a stream, and how it ended. */
async function listen(policy: AsyncVLLM, asked = request) {
  const stream = policy.stream(asked)
  const parts: number[][] = []
  try {
    for await (const { ids } of stream) parts.push([...ids])
    return { parts, end: await stream.result }
  } catch (error) {
    await expect(stream.result).rejects.toBe(error)
    return { parts, error: error as { name: string; code: string; message: string } }
  }
}

describe('AsyncVLLM.stream', () => {
  it('tells the tokens of generate one by one, and then the same completion', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    for (const own of [{}, { stopIds: [9] }, { temperature: 0.5 }, { maxTokens: 1 }]) {
      const whole = await policy.generate({ ...request, ...own })
      const { parts, end } = await listen(policy, { ...request, ...own })
      expect(parts).toEqual([...whole.ids].map((id) => [id]))
      expect(end).toEqual(whole)
    }
    expect(fake.requests.at(-1)).toMatchObject({ stream: true, return_token_ids: true, logprobs: 0 })
    expect(policy.router.loads).toEqual([0])
  })

  it('tells both kinds of log-probs with each part', async () => {
    const policy = await connect([await serve()])
    const stream = policy.stream({ ...request, temperature: 0.5 })
    for await (const { ids, logProbs, sampledLogProbs } of stream) {
      expect([ids.length, logProbs.length, sampledLogProbs.length]).toEqual([1, 1, 1])
      expect(logProbs[0]).toBeLessThanOrEqual(0)
      expect(sampledLogProbs[0]).toBeNaN()
    }
    expect((await stream.result).logProbs).toHaveLength(6)
  })

  const before: Fault[] = ['reset', '429', '500', '503', 'truncated', 'cutOff', 'notJson']
  const lies: Fault[] = ['wrongCount', 'foreignId', 'lyingLogProb', 'otherPrompt']
  it.each([...before, ...lies])('asks again as long as nothing was told: %s', async (fault) => {
    const fake = await serve()
    const policy = await connect([fake])
    const whole = await listen(policy)
    // If the last log-prob is missing, earlier tokens were already streamed; one token has no earlier ones.
    const asked = fault === 'wrongCount' ? { ...request, maxTokens: 1 } : request
    const expected = fault === 'wrongCount' ? await listen(policy, asked) : whole
    fake.script(fault)
    expect(await listen(policy, asked)).toEqual(expected)
    expect(fake.dealt).toEqual([fault])
  })

  it.each(STREAM_FAULTS)(
    'ends with an error, once and for all, what broke after its first token: %s',
    async (fault) => {
      const fake = await serve()
      const policy = await connect([fake], { attemptTimeoutMs: fault === 'hangMidStream' ? 50 : 60_000 })
      const whole = await listen(policy)
      fake.script(fault)
      const { parts, error } = await listen(policy)
      const codes: Partial<Record<Fault, string>> = {
        ...{ cutMidStream: 'UNAVAILABLE', errorEvent: 'UNAVAILABLE', hangMidStream: 'TIMEOUT' },
      }
      expect(error).toMatchObject({ name: 'FulmarError', code: codes[fault] ?? 'MALFORMED' })
      // The streamed tokens are those of a complete answer: invalid ones are never passed on.
      expect(parts.length).toBeGreaterThanOrEqual(1)
      expect(parts).toEqual(whole.parts.slice(0, parts.length))
      expect(fake.dealt).toEqual([fault])
      expect(policy.router.loads).toEqual([0])
      // The next request is as if nothing had been.
      expect(await listen(policy)).toEqual(whole)
    },
  )

  it('says what a server refuses, in its own words', async () => {
    const policy = await connect([await serve()], { vocabSize: 99 })
    const { parts, error } = await listen(policy, { ...request, promptIds: Uint32Array.of(50) })
    expect(parts).toEqual([])
    expect(error).toMatchObject({ code: 'OUT_OF_RANGE', message: expect.stringMatching(/out of vocabulary/) })
  })

  it('keeps what was told when it is aborted, and closes the connection', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    const whole = await policy.generate(request)
    fake.script('hangMidStream')
    const controller = new AbortController()
    const stream = policy.stream({ ...request, signal: controller.signal })
    for await (const _ of stream) controller.abort()
    const { ids, finishReason } = await stream.result
    expect([[...ids], finishReason]).toEqual([[...whole.ids.slice(0, 1)], 'abort'])
    while (fake.numClosed === 0) await new Promise((resolve) => setImmediate(resolve))
  })

  it('stops for who leaves the loop, and runs for who never enters it', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    fake.script('hangMidStream')
    const left = policy.stream(request)
    for await (const _ of left) break
    expect((await left.result).finishReason).toBe('abort')
    expect(await policy.stream(request).result).toEqual(await policy.generate(request))
    expect(policy.router.loads).toEqual([0])
  })

  it('refuses what no server could answer from the loop and from the result', async () => {
    const policy = await connect([await serve({ contextLength: 8 })])
    expect((await listen(policy)).error?.code).toBe('LIMIT_EXCEEDED')
    const { error } = await listen(policy, { ...request, promptIds: new Uint32Array(0) })
    expect(error?.code).toBe('EMPTY')
  })
})

describe('EventReader', () => {
  it('reads data however it is cut, with any end of line, and nothing else', () => {
    const events = fc.array(fc.stringMatching(/^[a-z {}":ö]{1,12}$/), { minLength: 1, maxLength: 6 })
    const run = fc.record({
      events,
      end: fc.constantFrom('\n', '\r\n', '\r'),
      cuts: fc.array(fc.nat(200), { maxLength: 12 }),
    })
    fc.assert(
      fc.property(run, ({ events, end, cuts }) => {
        const text = events
          .map((event) => `: a comment${end}event: token${end}data: ${event}${end}${end}`)
          .join('')
        const places = [...new Set([0, ...cuts.map((cut) => cut % (text.length + 1)), text.length])].sort(
          (a, b) => a - b,
        )
        const reader = new EventReader()
        const read = places.slice(1).flatMap((to, at) => reader.push(text.slice(places[at], to)))
        // A last carriage return may be half of a line's end, so the next text says that the event has ended.
        expect([...read, ...reader.push('data: next\n\n')]).toEqual([...events, 'next'])
      }),
      { seed: 5, numRuns: 200 },
    )
  })

  it('joins the lines of one event, and takes a field without a space', () => {
    expect(new EventReader().push('data: {\ndata:"a": 1}\n\n')).toEqual(['{\n"a": 1}'])
  })

  it('takes an event of as many characters as one may have, and not one more', () => {
    const event = (size: number) => `data: ${'x'.repeat(size - 'data: '.length)}`
    expect(new EventReader().push(`${event(EVENT_CHARS_MAX)}\n\n`)).toHaveLength(1)
    const push = () => new EventReader().push(event(EVENT_CHARS_MAX + 1))
    expect(push).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
    const line = `data: ${'x'.repeat(1000)}\n`
    const many = new EventReader()
    const pushAll = () => Array.from({ length: 1100 }, () => many.push(line))
    expect(pushAll).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
  })
})

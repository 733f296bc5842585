import { describe, expect, it } from 'vitest'
import type { GenerateRequest } from '../../src/policy/index.js'
import { checkPolicy, checkWeightReceiver } from '../../src/testing/index.js'
import { AsyncVLLM, type AsyncVLLMOptions } from '../../src/vllm/index.js'
import { connect, serve } from './connect-vllm.js'
import { FAULTS, type Fault, letterOf } from './fake-vllm.js'
import { TurningClock } from './turning-clock.js'

const request: GenerateRequest = {
  requestId: 'a',
  promptIds: Uint32Array.of(1, 2, 3),
  seed: 7,
  maxTokens: 6,
  stopIds: [9],
}

describe('AsyncVLLM', () => {
  it.each(['', '/', '/v1', '/v1/'])('connects to one address that ends in "%s"', async (end) => {
    const { url } = await serve()
    const policy = await AsyncVLLM.connect(`${url}${end}`, { clock: new TurningClock() })
    expect((await policy.generate(request)).ids.length).toBeGreaterThan(0)
    await policy.close()
  })

  it('refuses what is neither an address nor a list of some', async () => {
    for (const urls of [7, {}, true])
      await expect(AsyncVLLM.connect(urls as never)).rejects.toMatchObject({ code: 'MALFORMED' })
    await expect(AsyncVLLM.connect([])).rejects.toMatchObject({ code: 'EMPTY' })
    await expect(AsyncVLLM.connect('localhost')).rejects.toMatchObject({ code: 'MALFORMED' })
  })

  it('does what a policy must', async () => {
    const policy = await connect([await serve({ contextLength: 64 }), await serve({ contextLength: 64 })])
    let calls = 0
    // The suite uses ids again while a request of that id is in flight, which an engine refuses.
    const own = {
      get version() {
        return policy.version
      },
      capabilities: policy.capabilities,
      generate: async (one: GenerateRequest) => {
        const requestId = `${one.requestId}-${calls++}`
        return { ...(await policy.generate({ ...one, requestId })), requestId: one.requestId }
      },
      score: policy.score.bind(policy),
      stream: (one: GenerateRequest) => {
        const stream = policy.stream({ ...one, requestId: `${one.requestId}-${calls++}` })
        const result = stream.result.then((completion) => ({ ...completion, requestId: one.requestId }))
        return { ...stream, result }
      },
    }
    await checkPolicy(() => own, { vocabSize: 23, contextLength: 64, tolerance: 1e-6, textOf: letterOf })
  })

  it('says every sampling field, so that no default of a server counts', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    await policy.generate({
      ...request,
      temperature: 0.5,
      topK: 3,
      topP: 0.9,
      minP: 0.1,
      stopStrings: ['ab'],
    })
    expect(fake.requests.at(-1)).toMatchObject({
      ...{ model: 'fake', prompt: [1, 2, 3], max_tokens: 6, n: 1, seed: 7, temperature: 0.5, top_k: 3 },
      ...{ top_p: 0.9, min_p: 0.1, repetition_penalty: 1, frequency_penalty: 0, presence_penalty: 0 },
      ...{ stop: ['ab'], include_stop_str_in_output: true },
      ...{ stop_token_ids: [9], ignore_eos: true, return_token_ids: true, skip_special_tokens: false },
    })
  })

  it('tells the log-probs that it knows, and NaN for those that it does not', async () => {
    const raw = await connect([await serve()])
    expect(raw.served).toEqual({ model: 'fake', vocabSize: 23, contextLength: 64, logProbsMode: 'raw' })
    const plain = await raw.generate(request)
    expect(plain.sampledLogProbs).toEqual(plain.logProbs)
    const warm = await raw.generate({ ...request, temperature: 0.5 })
    expect([warm.logProbs[0], warm.sampledLogProbs[0]]).toEqual([expect.any(Number), Number.NaN])
    const greedy = await raw.generate({ ...request, temperature: 0 })
    expect([...new Set(greedy.sampledLogProbs)]).toEqual([0])
    const processed = await connect([await serve({ logProbsMode: 'processed' })])
    expect(processed.capabilities).toMatchObject({ logProbs: false })
    const cut = await processed.generate({ ...request, topK: 2 })
    expect([...cut.logProbs].every(Number.isNaN)).toBe(true)
    expect([...cut.sampledLogProbs].every((value) => value <= 0)).toBe(true)
  })

  it.each(FAULTS.filter((fault) => fault !== 'duplicate'))('asks again after: %s', async (fault: Fault) => {
    const fake = await serve()
    const policy = await connect([fake], { attemptTimeoutMs: fault === 'hang' ? 50 : 60_000 })
    const whole = await policy.generate(request)
    fake.script(fault)
    expect(await policy.generate(request)).toEqual(whole)
    expect(fake.dealt).toEqual([fault])
    expect(policy.stats.numAttempts).toBe(2 + 1 + 2) // two for the probe
  })

  it('does not take the answer to another request for its own', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    const whole = await policy.generate(request)
    fake.script('duplicate')
    const other = await policy.generate({ ...request, requestId: 'b' }) // of the same prompt
    expect(other).toEqual({ ...whole, requestId: 'b' })
    expect(policy.stats.numMalformed).toBe(1)
  })

  it('gives up with the last error, and the next request is as if nothing had been', async () => {
    const fake = await serve()
    const policy = await connect([fake], { maxAttempts: 3 })
    const causes: [Fault, string][] = [
      ['reset', 'UNAVAILABLE'],
      ['500', 'UNAVAILABLE'],
      ['truncated', 'MALFORMED'],
      ['wrongCount', 'MALFORMED'],
      ['foreignId', 'MALFORMED'],
      ['lyingLogProb', 'MALFORMED'],
    ]
    for (const [fault, code] of causes) {
      fake.script(fault, fault, fault)
      await expect(policy.generate(request)).rejects.toMatchObject({ name: 'FulmarError', code })
    }
    expect((await policy.generate(request)).ids.length).toBeGreaterThan(0)
    expect(policy.router.loads).toEqual([0])
  })

  it('ends at its deadline, whatever a server does', async () => {
    const fake = await serve()
    const policy = await connect([fake], { timeoutMs: 300, attemptTimeoutMs: 100 })
    fake.script('hang', 'hang', 'hang', 'hang', 'hang')
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'TIMEOUT' })
  })

  it('closes the connection of a request that is aborted, and leaves the others alone', async () => {
    const fake = await serve({ holds: true })
    const policy = await connect([fake])
    const controller = new AbortController()
    const stopped = policy.generate({ ...request, requestId: 'stopped', signal: controller.signal })
    const whole = policy.generate(request)
    await until(() => fake.requests.length === 3)
    controller.abort()
    expect(await stopped).toMatchObject({
      finishReason: 'abort',
      ids: new Uint32Array(0),
      requestId: 'stopped',
    })
    await until(() => fake.numClosed === 1)
    fake.release()
    expect((await whole).finishReason).toMatch(/stop|length/)
  })

  it('goes to another server after a failure, and keeps a session on one', async () => {
    const [first, second] = [await serve(), await serve()]
    const policy = await connect([first, second])
    const count = () => [first.requests.length - 1, second.requests.length - 1]
    for (const requestId of ['a', 'b', 'c']) await policy.generate({ ...request, requestId, sessionId: 's' })
    expect(count()).toEqual([3, 0])
    await policy.generate({ ...request, sessionId: 't' })
    expect(count()).toEqual([3, 1])
    first.script('500')
    await policy.generate({ ...request, sessionId: 's' })
    expect(count()).toEqual([4, 2])
  })

  it('takes out a server that fails again and again, and back in', async () => {
    const [bad, good] = [await serve({ faultRate: 1, faultKinds: ['reset'] }), await serve()]
    const policy = await connect([bad, good], { router: { strategy: 'roundRobin' } })
    for (let at = 0; at < 40; at++) await policy.generate({ ...request, requestId: `${at}` })
    expect(policy.stats.numTakenOut).toBeGreaterThanOrEqual(1)
    expect(bad.dealt.length).toBeLessThan(20)
  })

  it('refuses what no server could answer, before it is sent', async () => {
    const fake = await serve({ contextLength: 8 })
    const policy = await connect([fake])
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    await policy.generate({ ...request, maxTokens: 5 })
    await expect(policy.score({ requestId: 'a', ids: Uint32Array.of(23) })).rejects.toMatchObject({
      code: 'OUT_OF_RANGE',
    })
    expect(fake.requests).toHaveLength(2)
  })

  it('says what a server refuses for good, without asking again', async () => {
    const fake = await serve()
    const policy = await connect([fake], { vocabSize: 99 })
    const outside = { ...request, promptIds: Uint32Array.of(50) }
    await expect(policy.generate(outside)).rejects.toMatchObject({
      code: 'OUT_OF_RANGE',
      message: expect.stringMatching(/out of vocabulary/),
    })
    expect(fake.requests).toHaveLength(2)
  })

  it('refuses the id of a request that is in flight', async () => {
    const fake = await serve({ holds: true })
    const policy = await connect([fake])
    const first = policy.generate(request)
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'INCOMPATIBLE' })
    await until(() => fake.requests.length === 2)
    fake.release()
    await first
    await policy.generate(request)
  })

  it('names every attempt anew, and scores under one id as often as it is asked', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    fake.script('500', 'reset')
    await policy.generate(request)
    const ids = Uint32Array.of(1, 2)
    const scores = [0, 1, 2].map(() => policy.score({ requestId: 's', ids }))
    expect(new Set((await Promise.all(scores)).map(({ logProbs }) => logProbs[1])).size).toBe(1)
    const names = fake.requests.map(({ request_id }) => request_id)
    expect([names.length, new Set(names).size]).toEqual([7, 7])
    expect(names.slice(1, 4).every((name) => name.startsWith('a-'))).toBe(true)
  })

  it('keeps to its concurrency, and lets who waits go', async () => {
    const fake = await serve({ holds: true })
    const policy = await connect([fake], { maxConcurrency: 2 })
    const controller = new AbortController()
    const all = [0, 1, 2, 3].map((at) =>
      policy.generate({ ...request, requestId: `${at}`, ...(at === 2 && { signal: controller.signal }) }),
    )
    await until(() => fake.requests.length === 3)
    controller.abort()
    expect((await all[2])?.finishReason).toBe('abort')
    fake.release()
    expect((await Promise.all(all)).map(({ requestId }) => requestId)).toEqual(['0', '1', '2', '3'])
    expect(fake.requests).toHaveLength(4)
  })

  it('fails what is in flight when it is closed', async () => {
    const fake = await serve({ holds: true })
    const policy = await connect([fake])
    const call = policy.generate(request)
    await until(() => fake.requests.length === 2)
    await policy.close()
    await expect(call).rejects.toMatchObject({ code: 'CLOSED' })
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'CLOSED' })
  })

  it('gives servers weights in the order of the protocol, and stamps completions with them', async () => {
    const [first, second] = [await serve(), await serve()]
    const policy = await connect([first, second])
    const before = await policy.generate(request)
    let sent = 0
    const transfer = async () => {
      sent += 1
    }
    const results = await policy.updateWeights({ version: 3, updateInfo: { names: ['w'] }, transfer })
    expect(results).toEqual([
      { target: 0, ok: true },
      { target: 1, ok: true },
    ])
    const order = ['/pause?mode=wait', '/start_weight_update', '/update_weights', '/finish_weight_update']
    expect(first.events).toEqual([...order, '/reset_prefix_cache', '/resume'])
    expect([sent, policy.version]).toEqual([1, 3])
    const after = await policy.generate(request)
    expect([before.maxPolicyVersion, after.minPolicyVersion, after.maxPolicyVersion]).toEqual([0, 3, 3])
    expect(after.logProbs).not.toEqual(before.logProbs)
  })

  it('takes out a server that did not get the weights, and resumes it', async () => {
    const [bad, good] = [await serve({ broken: { '/update_weights': 1 } }), await serve()]
    const policy = await connect([bad, good])
    const results = await policy.updateWeights({ version: 1, updateInfo: {} })
    expect(results.map((one) => (one.ok ? 'ok' : one.phase))).toEqual(['update', 'ok'])
    expect(bad.events.at(-1)).toBe('/resume')
    expect(policy.router.serving).toEqual([false, true])
    expect(policy.version).toBe(1)
    for (const requestId of ['a', 'b'])
      expect((await policy.generate({ ...request, requestId })).minPolicyVersion).toBe(1)
    expect(bad.requests).toHaveLength(1)
  })

  it('asks again where another phase of the protocol fails once', async () => {
    const broken = {
      '/pause?mode=wait': 1,
      '/start_weight_update': 1,
      '/finish_weight_update': 1,
      '/resume': 1,
    }
    const fake = await serve({ broken })
    const policy = await connect([fake])
    expect(await policy.updateWeights({ version: 2, updateInfo: {} })).toEqual([{ target: 0, ok: true }])
    expect([policy.router.serving, policy.version]).toEqual([[true], 2])
  })

  it('trusts no server after a transfer that broke off', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    const transfer = async () => {
      throw new Error('the line went dead')
    }
    await expect(policy.updateWeights({ version: 1, updateInfo: {}, transfer })).rejects.toThrow(
      'the line went dead',
    )
    expect([fake.events.at(-1), policy.router.serving]).toEqual(['/resume', [false]])
  })

  it('draws with an adapter from the next request on', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    await policy.loadAdapter({ name: 'step-1', path: '/adapters/1', version: 1 })
    expect((await policy.generate(request)).minPolicyVersion).toBe(1)
    expect(fake.requests.at(-1)?.model).toBe('step-1')
    await policy.unloadAdapter('step-1')
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  })

  it('draws and scores with the adapter that is loaded when a request is sent, not when it was asked for', async () => {
    const fake = await serve({ holds: true })
    const policy = await connect([fake], { maxConcurrency: 1 })
    const sent = policy.generate({ ...request, requestId: 'sent' })
    await until(() => fake.requests.length === 2)
    const waiting = policy.generate({ ...request, requestId: 'waiting' })
    const scoring = policy.score({ requestId: 'scoring', ids: Uint32Array.of(1, 2) })
    await policy.loadAdapter({ name: 'step-1', path: '/adapters/1', version: 1 })
    fake.release()
    expect((await sent).minPolicyVersion).toBe(0)
    expect([(await waiting).minPolicyVersion, (await scoring).policyVersion]).toEqual([1, 1])
    expect(fake.requests.map(({ model }) => model)).toEqual(['fake', 'fake', 'step-1', 'step-1'])
  })

  it('does what a receiver of weights must', async () => {
    const policy = await connect([await serve(), await serve()])
    await checkWeightReceiver(() => policy, { weights: (version) => `/adapters/v${version}` })
  })

  it('stamps a request that an adapter overtakes with the version that drew it', async () => {
    const fake = await serve({ holds: true })
    const policy = await connect([fake])
    const sent = policy.generate(request)
    await until(() => fake.requests.length === 2)
    await policy.loadAdapter({ name: 'step-1', path: '/adapters/1', version: 1 })
    fake.release()
    const { minPolicyVersion, maxPolicyVersion } = await sent
    expect([minPolicyVersion, maxPolicyVersion]).toEqual([0, 0])
  })

  it('unloads a replaced adapter after its last request', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    const context = { signal: new AbortController().signal }
    await policy.stage('/adapters/v1', 1, context)
    policy.commit(1)
    policy.settle()
    expect([...fake.adapters.values()]).toEqual([1])
    fake.hold()
    const sent = policy.generate(request)
    await until(() => fake.requests.length === 2)
    await policy.stage('/adapters/v2', 2, context)
    policy.commit(2)
    policy.settle()
    expect([...fake.adapters.values()]).toEqual([1, 2])
    fake.release()
    const { minPolicyVersion, maxPolicyVersion } = await sent
    expect([minPolicyVersion, maxPolicyVersion]).toEqual([1, 1])
    await until(() => fake.adapters.size === 1)
    expect([...fake.adapters.values()]).toEqual([2])
  })

  it('serves what it served where a server refuses a staged adapter', async () => {
    const [good, bad] = [await serve(), await serve({ broken: { '/v1/load_lora_adapter': 99 } })]
    const policy = await connect([good, bad], { maxAttempts: 2 })
    const staging = policy.stage('/adapters/v1', 1, { signal: new AbortController().signal })
    await expect(staging).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    expect(() => policy.commit(1)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    policy.rollback()
    await until(() => good.events.includes('/v1/unload_lora_adapter'))
    expect([good.adapters.size, policy.version, policy.served.model]).toEqual([0, 0, 'fake'])
  })

  it('leaves nothing staged where the signal fires during the load', async () => {
    const fake = await serve()
    const policy = await connect([fake])
    const controller = new AbortController()
    const staging = policy.stage('/adapters/v1', 1, controller)
    controller.abort()
    await expect(staging).rejects.toMatchObject({ code: 'ABORTED' })
    expect(() => policy.commit(1)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
    await until(() => fake.adapters.size === 0)
  })

  it('takes a server out that lacks the committed adapter, and puts it back by a rollback', async () => {
    const [away, good] = [await serve(), await serve()]
    const policy = await connect([away, good])
    policy.router.setServing(0, false)
    await policy.stage('/adapters/v1', 1, { signal: new AbortController().signal })
    policy.router.setServing(0, true)
    policy.commit(1)
    expect([policy.router.serving, policy.version]).toEqual([[false, true], 1])
    policy.rollback()
    expect([policy.router.serving, policy.version]).toEqual([[true, true], 0])
    expect((await policy.generate(request)).maxPolicyVersion).toBe(0)
  })

  it('keeps a server out that was out while an adapter was loaded', async () => {
    const [away, good] = [await serve(), await serve()]
    const clock = new TurningClock()
    const policy = await connect([away, good], { clock, router: { strategy: 'roundRobin' } })
    away.script(...new Array<Fault>(8).fill('reset'))
    for (let at = 0; policy.router.serving[0]; at++) await policy.generate({ ...request, requestId: `${at}` })
    await policy.loadAdapter({ name: 'step-1', path: '/adapters/1', version: 1 })
    await new Promise<void>((resolve) => clock.startTimer(6_000, resolve))
    for (const requestId of ['a', 'b', 'c'])
      expect((await policy.generate({ ...request, requestId })).minPolicyVersion).toBe(1)
    expect(policy.router.serving).toEqual([false, true])
    policy.router.setServing(1, false)
    const refused = policy.loadAdapter({ name: 'step-2', path: '/adapters/2', version: 2 })
    await expect(refused).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    expect(policy.served.model).toBe('step-1')
  })

  it('says of each server what it lacks', async () => {
    const [old, good] = [await serve({ old: true }), await serve()]
    const both = connect([good, old])
    await expect(both).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(new RegExp(`${old.url}: .*token ids`)),
    })
    await expect(connect([good], { model: 'other' })).rejects.toMatchObject({
      code: 'UNKNOWN_NAME',
      message: expect.stringContaining('model must be one of those served (fake): got other'),
    })
    const { url } = old
    await old.close()
    await expect(
      AsyncVLLM.connect([url], { clock: new TurningClock(), maxAttempts: 2 }),
    ).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    })
    const mixed = connect([good, await serve({ logProbsMode: 'processed' })])
    await expect(mixed).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(/the same kind of log-probs/),
    })
  })

  it.each<[readonly string[], AsyncVLLMOptions, string]>([
    [[], {}, 'EMPTY'],
    [['ftp://127.0.0.1'], {}, 'MALFORMED'],
    [['localhost:8000x'], {}, 'MALFORMED'],
    [['http://127.0.0.1:1'], { maxAttempts: 0 }, 'OUT_OF_RANGE'],
    [['http://127.0.0.1:1'], { timeoutMs: Number.NaN }, 'OUT_OF_RANGE'],
    [['http://127.0.0.1:1'], { backoffMs: -1 }, 'OUT_OF_RANGE'],
    [['http://127.0.0.1:1'], { timeout: 3 } as AsyncVLLMOptions, 'UNKNOWN_NAME'],
    [new Array<string>(4097).fill('http://127.0.0.1:1'), {}, 'LIMIT_EXCEEDED'],
  ])('refuses to connect (%#)', async (urls, options, code) => {
    await expect(AsyncVLLM.connect(urls, options)).rejects.toMatchObject({ code })
  })

  const count = Number(process.env.FULMAR_VLLM_REQUESTS ?? 4000)
  it(`loses, doubles and hangs nothing of ${count} requests with 20 % faults`, {
    timeout: Math.max(600_000, 100 * count),
  }, async () => {
    const faulty = await Promise.all([1, 2, 3].map((seed) => serve({ faultRate: 0.2, seed })))
    const policy = await connect(faulty, { attemptTimeoutMs: 400, maxConcurrency: 192 })
    const calm = await connect([await serve()])
    const requestOf = (at: number): GenerateRequest => ({
      ...{ ...request, requestId: `r${at}`, sessionId: `s${at % 97}`, seed: at },
      promptIds: Uint32Array.of(1, at % 23, (at * 7) % 23),
    })
    const ended = new Map<number, string>()
    const run = async (at: number) => {
      const one = requestOf(at)
      const controller = new AbortController()
      const stops = at % 50 === 49
      const call = policy.generate(stops ? { ...one, signal: controller.signal } : one)
      if (stops) setImmediate(() => controller.abort())
      const [end] = await Promise.allSettled([call])
      const kind =
        end.status === 'rejected' ? `${end.reason.name} ${end.reason.code}` : end.value.finishReason
      expect(ended.has(at)).toBe(false)
      ended.set(at, kind)
      if (end.status === 'rejected') return
      expect(end.value.requestId).toBe(one.requestId)
      // What was answered is what a server without faults answers.
      if (kind !== 'abort' && at % 101 === 0) expect(end.value).toEqual(await calm.generate(one))
    }
    let next = 0
    const work = async () => {
      while (next < count) await run(next++)
    }
    await Promise.all(Array.from({ length: 256 }, work))
    const dealt = faulty.flatMap((fake) => fake.dealt)
    expect(new Set(dealt)).toEqual(new Set(FAULTS))
    expect(ended.size).toBe(count)
    expect(policy.router.loads).toEqual([0, 0, 0])
    const kinds: Record<string, number> = {}
    for (const kind of ended.values()) kinds[kind] = (kinds[kind] ?? 0) + 1
    const others = Object.keys(kinds).filter((kind) => !['stop', 'length', 'abort'].includes(kind))
    expect(others.filter((kind) => !/^FulmarError (UNAVAILABLE|MALFORMED|TIMEOUT)$/.test(kind))).toEqual([])
    console.info(
      `${count} requests: ${JSON.stringify(kinds)}, ${dealt.length} faults, ${JSON.stringify(policy.stats)}`,
    )
  })
})

/** Waits for what a server is about to see. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve))
}

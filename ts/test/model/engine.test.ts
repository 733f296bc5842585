import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  AdamW,
  Decoder,
  Engine,
  type Generated,
  type GenerationOptions,
  type Prompt,
} from '../../src/model/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const prompt: Prompt = { ids: Uint32Array.of(1, 2, 3), seed: 7 }

async function alone(decoder: Decoder, one: Prompt, options: GenerationOptions): Promise<Generated> {
  using engine = new Engine(decoder)
  return await engine.generate(one, options)
}

/** An optimiser whose next step changes the weights. */
async function trained(decoder: Decoder): Promise<AdamW> {
  const optimizer = new AdamW(decoder, { learningRate: 0.05 })
  const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
  await decoder.forward(batch)
  await decoder.backward(Float32Array.of(0, -1))
  return optimizer
}

describe('Engine', () => {
  it('gives each request the same bits in any mix, order, size of pages and with preemption', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const request = fc.record({
      ids: fc.constantFrom(Uint32Array.of(1, 2, 3, 4, 5, 6, 7), Uint32Array.of(9), Uint32Array.of(4, 4, 4)),
      seed: fc.nat(1000),
      maxTokens: fc.integer({ min: 1, max: 20 }),
      temperature: fc.constantFrom(0, 1),
      topLogProbs: fc.nat(2),
    })
    const requests = fc.array(request, { minLength: 1, maxLength: 12 })
    const property = fc.asyncProperty(requests, fc.integer({ min: 1, max: 7 }), async (asked, pageSize) => {
      const numPages = Math.ceil(7 / pageSize) + Math.ceil(20 / pageSize) + 2
      using engine = new Engine(decoder, { pageSize, numPages, maxNumSeqs: 8, maxNumBatchedTokens: 9 })
      const together = await Promise.all(
        asked.map(({ ids, seed, ...options }) => engine.generate({ ids, seed }, options)),
      )
      for (const [index, { ids, seed, ...options }] of asked.entries())
        expect(together[index]).toEqual(await alone(decoder, { ids, seed }, options))
      expect(engine.numFreePages).toBe(numPages)
    })
    await fc.assert(property, { numRuns: 30, seed: 11 })
  })

  it('ends at the token that completes a stop string, and says which', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const whole = await alone(decoder, prompt, { maxTokens: 40 })
    const open = new Set<object>()
    const decodeStream = () => {
      const stream = { push: (id: number) => `<${id}>`, [Symbol.dispose]: () => void open.delete(stream) }
      open.add(stream)
      return stream
    }
    using engine = new Engine(decoder, { decodeStream })
    const [, , third = 0, fourth = 0] = whole.ids
    const stop = `${third}><${fourth}`
    const others = [
      { maxTokens: 40 },
      { maxTokens: 40, stopStrings: ['never'] },
      { maxTokens: 40, stopIds: [third] },
    ]
    const [stopped, ...beside] = await Promise.all([
      engine.generate(prompt, { maxTokens: 40, stopStrings: ['never', stop] }),
      ...others.map((options) => engine.generate(prompt, options)),
    ])
    const text = [...whole.ids].map((id) => `<${id}>`)
    const length =
      text.findIndex((_, index) =>
        text
          .slice(0, index + 1)
          .join('')
          .includes(stop),
      ) + 1
    expect([...(stopped?.ids ?? [])]).toEqual([...whole.ids.subarray(0, length)])
    expect(stopped).toMatchObject({ finishReason: 'stop', stoppedBy: stop })
    expect(beside.slice(0, 2)).toEqual([whole, whole])
    expect(whole).toMatchObject({ finishReason: 'length', stoppedBy: null })
    expect(beside[2]).toMatchObject({ finishReason: 'stop', stoppedBy: third })
    expect(open.size).toBe(0)
    const streamed = []
    for await (const { id } of engine.stream(prompt, { maxTokens: 40, stopStrings: [stop] }))
      streamed.push(id)
    expect(streamed).toEqual([...whole.ids.subarray(0, length)])
    await expect(engine.generate(prompt, { maxTokens: 1, stopStrings: [''] })).rejects.toThrow(code('EMPTY'))
    await expect(alone(decoder, prompt, { maxTokens: 1, stopStrings: ['a'] })).rejects.toThrow(
      code('UNAVAILABLE'),
    )
  })

  it('fails a request whose logits are not finite, and no other request', async () => {
    const shape = { ...TINY, num_hidden_layers: 1, tie_word_embeddings: false }
    using sound = Decoder.fromSeed(shape, { seed: 5 })
    const bytes = await sound.toSafetensors()
    const view = new DataView(bytes.buffer, bytes.byteOffset)
    const headerLength = Number(view.getBigUint64(0, true))
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + headerLength)))
    const put = (name: string, index: number, value: number) =>
      view.setFloat32(8 + headerLength + header[name].data_offsets[0] + 4 * index, value, true)
    // Only token 5 has anything in the first place of the stream, and the first query overflows there.
    for (let id = 0; id < 23; id += 1) put('model.embed_tokens.weight', id * 16, id === 5 ? 100 : 0)
    put('model.layers.0.self_attn.q_proj.weight', 0, 3e38)
    using decoder = Decoder.fromSafetensors(shape, bytes)
    using engine = new Engine(decoder)
    const options = { maxTokens: 8, bannedIds: [5] }
    const broken = engine.generate({ ids: Uint32Array.of(1, 5), seed: 1 }, options)
    const beside = engine.generate(prompt, options)
    await expect(broken).rejects.toThrow(code('NON_FINITE'))
    expect((await beside).ids).toHaveLength(8)
    expect(await beside).toEqual(await alone(decoder, prompt, options))
  })

  it('streams the tokens of the whole answer as they come', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const options = { maxTokens: 30, topLogProbs: 2 }
    const whole = await alone(decoder, prompt, options)
    using engine = new Engine(decoder)
    const beside = engine.generate({ ids: Uint32Array.of(8), seed: 1 }, { maxTokens: 40 })
    const streamed = []
    for await (const token of engine.stream(prompt, options)) streamed.push(token)
    expect(streamed.map(({ id }) => id)).toEqual([...whole.ids])
    expect(streamed.map(({ logProb }) => logProb)).toEqual([...whole.logProbs])
    expect(streamed.map(({ sampledLogProb }) => sampledLogProb)).toEqual([...whole.sampledLogProbs])
    expect(streamed.map(({ topLogProbs }) => topLogProbs)).toEqual(whole.topLogProbs)
    expect((await beside).ids).toHaveLength(40)
  })

  it('tells the likeliest ids of each token, as scoring does', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const { ids, logProbs, topLogProbs } = await alone(decoder, prompt, { maxTokens: 5, topLogProbs: 3 })
    const all = Uint32Array.of(...prompt.ids, ...ids)
    const mask = Uint8Array.from(all, (_, at) => Number(at >= 3))
    const batch = { ids: all, offsets: Uint32Array.of(0, 8), mask }
    const scores = await decoder.score(batch, { topK: 3 })
    expect([...scores.logProb.subarray(3)]).toEqual([...logProbs])
    expect(topLogProbs.flat().map(({ id }) => id)).toEqual([...scores.topIds.subarray(9)])
    expect(topLogProbs.flat().map(({ logProb }) => logProb)).toEqual([...scores.topLogProb.subarray(9)])
    expect((await decoder.score(batch)).topIds).toHaveLength(0)
    await expect(decoder.score(batch, { topK: 24 })).rejects.toThrow(code('OUT_OF_RANGE'))
  })

  it('frees the pages of a request that was aborted, and of one whose loop was left', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    using engine = new Engine(decoder, { pageSize: 4, numPages: 40 })
    const abort = new AbortController()
    const stopped = engine.generate(prompt, { maxTokens: 60, signal: abort.signal })
    const whole = engine.generate({ ...prompt, seed: 8 }, { maxTokens: 50 })
    let seen = 0
    for await (const _ of engine.stream({ ...prompt, seed: 9 }, { maxTokens: 60 })) {
      if (++seen === 3) break
    }
    abort.abort()
    const { finishReason, ids } = await stopped
    expect(finishReason).toBe('abort')
    expect(ids.length).toBeLessThan(60)
    expect(ids).toEqual((await alone(decoder, prompt, { maxTokens: 60 })).ids.subarray(0, ids.length))
    expect(await whole).toEqual(await alone(decoder, { ...prompt, seed: 8 }, { maxTokens: 50 }))
    expect(engine.numFreePages).toBe(40)
    const early = await engine.generate(prompt, { maxTokens: 4, signal: AbortSignal.abort() })
    expect(early).toMatchObject({ finishReason: 'abort', ids: new Uint32Array(0) })
  })

  it('takes new weights between steps, and each token names those it was drawn under', async () => {
    const versionsOf = async (onWeightChange: 'recompute' | 'keep') => {
      // So many turns that the step begins before the last, however busy the machine is.
      using decoder = Decoder.fromSeed({ ...TINY, max_position_embeddings: 2048 }, { seed: 5 })
      using optimizer = await trained(decoder)
      using engine = new Engine(decoder, { onWeightChange })
      let [looks, stepped]: [number, Promise<unknown> | undefined] = [0, undefined]
      const signal = {
        get aborted() {
          looks += 1
          if (looks === 2) stepped = optimizer.step() // while the next turns run
          return false
        },
      }
      const tokens = []
      for await (const token of engine.stream(prompt, { maxTokens: 2000, signal })) tokens.push(token)
      await stepped
      const versions = tokens.map(({ policyVersion }) => policyVersion)
      const changed = versions.indexOf(1)
      expect(changed).toBeGreaterThan(0)
      expect(versions).toEqual(versions.map((_, at) => Number(at >= changed)))
      const all = Uint32Array.of(...prompt.ids, ...tokens.map(({ id }) => id))
      const mask = Uint8Array.from(all, (_, at) => Number(at >= 3 + changed))
      const batch = { ids: all, offsets: Uint32Array.of(0, all.length), mask }
      const { logProb } = await decoder.score(batch)
      const drawn = tokens.slice(changed).map((token) => token.logProb)
      return { drawn, scored: [...logProb.subarray(3 + changed)] }
    }
    const recomputed = await versionsOf('recompute')
    expect(recomputed.drawn).toEqual(recomputed.scored)
    const kept = await versionsOf('keep')
    expect(kept.drawn).not.toEqual(kept.scored)
  })

  it.each([{ weights: 'q8' }, { kvCacheDtype: 'bf16' }, { weights: 'q8', kvCacheDtype: 'bf16' }] as const)(
    'draws by %j what it draws alone, close to the log-probs of the decoder',
    async (rounded) => {
      using decoder = Decoder.fromSeed(TINY, { seed: 5 })
      using engine = new Engine(decoder, { ...rounded, pageSize: 4 })
      const prompts = [1, 2, 3].map((seed) => ({ ...prompt, seed }))
      const together = await Promise.all(prompts.map((one) => engine.generate(one, { maxTokens: 20 })))
      for (const [at, one] of prompts.entries()) {
        using other = new Engine(decoder, rounded)
        expect(await other.generate(one, { maxTokens: 20 })).toEqual(together[at])
      }
      const ids = Uint32Array.of(...prompt.ids, ...(together[0]?.ids ?? []))
      const mask = Uint8Array.from(ids, (_, at) => Number(at >= prompt.ids.length))
      const { logProb } = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
      const gaps = [...(together[0]?.logProbs ?? [])].map((value, at) =>
        Math.abs(value - (logProb[prompt.ids.length + at] ?? 0)),
      )
      expect(Math.max(...gaps)).toBeGreaterThan(0)
      expect(Math.max(...gaps)).toBeLessThan(0.1)
    },
  )

  it('draws what it draws without speculative tokens, bit for bit, and counts them', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    using engine = new Engine(decoder, { speculativeTokens: 4, pageSize: 4 })
    const prompts = [1, 2, 3].map((seed) => ({ ...prompt, seed }))
    for (const drawMethod of ['gumbelMax', 'inverse'] as const) {
      const options = { maxTokens: 20, drawMethod }
      const together = await Promise.all(prompts.map((one) => engine.generate(one, options)))
      for (const [at, one] of prompts.entries())
        expect(await alone(decoder, one, options)).toEqual(together[at])
    }
    const { numDraftTokens, numAcceptedTokens } = engine.speculation
    expect(numAcceptedTokens).toBeGreaterThan(20)
    expect(numDraftTokens).toBeGreaterThanOrEqual(numAcceptedTokens)
    using plain = new Engine(decoder)
    await plain.generate(prompt, { maxTokens: 4 })
    expect(plain.speculation).toEqual({ numDraftTokens: 0, numAcceptedTokens: 0 })
    expect(() => new Engine(decoder, { speculativeTokens: 9 })).toThrow(code('LIMIT_EXCEEDED'))
    expect(() => new Engine(decoder, { speculativeTokens: 1, weights: 'q8' })).toThrow(code('OUT_OF_RANGE'))
    expect(() => new Engine(decoder, { speculativeTokens: -1 })).toThrow(code('MALFORMED'))
  })

  it('counts on from the version of a decoder that goes on', async () => {
    using first = Decoder.fromSeed(TINY, { seed: 5 })
    using decoder = Decoder.fromSafetensors(TINY, await first.toSafetensors(), { version: 40 })
    expect((await alone(decoder, prompt, { maxTokens: 2 })).policyVersions).toEqual(Float64Array.of(40, 40))
    using optimizer = await trained(decoder)
    await optimizer.step()
    expect((await alone(decoder, prompt, { maxTokens: 2 })).policyVersions).toEqual(Float64Array.of(41, 41))
  })

  it('refuses what it cannot serve, each request by itself', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    using engine = new Engine(decoder, { pageSize: 4, numPages: 6, maxNumWaiting: 3 })
    const good = engine.generate(prompt, { maxTokens: 4 })
    const refuse = (part: object, options: object = {}) =>
      expect(engine.generate({ ...prompt, ...part }, { maxTokens: 4, ...options })).rejects
    await refuse({ ids: new Uint32Array(0) }).toThrow(code('EMPTY'))
    await refuse({ ids: Uint32Array.of(23) }).toThrow(code('OUT_OF_RANGE'))
    await refuse({ seed: -1 }).toThrow(code('OUT_OF_RANGE'))
    await refuse({}, { maxTokens: 0 }).toThrow(code('OUT_OF_RANGE'))
    await refuse({}, { maxTokens: 62 }).toThrow(code('LIMIT_EXCEEDED'))
    await refuse({}, { maxTokens: 30 }).toThrow(code('LIMIT_EXCEEDED'))
    await refuse({}, { topLogProbs: 24 }).toThrow(code('OUT_OF_RANGE'))
    await refuse({}, { bannedIds: [23] }).toThrow(code('OUT_OF_RANGE'))
    await refuse({}, { maxTokns: 3 }).toThrow(code('UNKNOWN_NAME'))
    expect((await good).ids).toHaveLength(4)
    const many = Array.from({ length: 5 }, () => engine.generate(prompt, { maxTokens: 2 }))
    const found = await Promise.allSettled(many)
    expect(found.map(({ status }) => status)).toEqual([
      ...['fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'rejected'],
    ])
    expect(() => new Engine(decoder, { pageSize: 0 })).toThrow(code('OUT_OF_RANGE'))
    expect(() => new Engine(decoder, { numPages: 1 << 23 })).toThrow(code('LIMIT_EXCEEDED'))
    // @ts-expect-error: no such option
    expect(() => new Engine(decoder, { pagesize: 4 })).toThrow(code('UNKNOWN_NAME'))
  })

  it('keeps a bias, penalties and bans', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const { ids } = await alone(decoder, prompt, { maxTokens: 9, logitBias: { 6: 1000 } })
    expect([...ids]).toEqual(Array(9).fill(6))
    const without = await alone(decoder, prompt, { maxTokens: 9, logitBias: { 6: 1000 }, bannedIds: [6] })
    expect([...without.ids]).not.toContain(6)
    const once = await alone(decoder, prompt, { maxTokens: 20, temperature: 0, presencePenalty: 1000 })
    expect(new Set(once.ids).size).toBe(20)
  })

  it('keeps n-grams apart and sequences banned, and fails a request alone that has no token left', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    using engine = new Engine(decoder)
    const repeating = { maxTokens: 12, logitBias: { 6: 1000, 7: 500 } }
    const [plain, apart, banned, spent] = await Promise.allSettled([
      engine.generate(prompt, repeating),
      engine.generate(prompt, { ...repeating, noRepeatNgramSize: 2 }),
      engine.generate(prompt, { ...repeating, badWordsIds: [[6, 6]] }),
      engine.generate(prompt, { maxTokens: 40, noRepeatNgramSize: 1 }),
    ])
    const idsOf = (one: PromiseSettledResult<Generated>) =>
      one.status === 'fulfilled' ? [...one.value.ids] : []
    expect(idsOf(plain)).toEqual(Array(12).fill(6))
    const pairs = [...prompt.ids, ...idsOf(apart)].map((id, at, all) => `${id} ${all[at + 1]}`).slice(0, -1)
    expect(new Set(pairs).size).toBe(14)
    expect(idsOf(banned).join(' ')).toMatch(/^6 7 6 7/)
    expect(spent).toMatchObject({ status: 'rejected', reason: { code: 'EMPTY' } })
    using fresh = new Engine(decoder)
    expect(engine.numFreePages).toBe(fresh.numFreePages)
    await expect(engine.generate(prompt, { maxTokens: 2, badWordsIds: [[23]] })).rejects.toThrow(
      code('OUT_OF_RANGE'),
    )
  })

  it('fails what is in flight once it is disposed', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 5 })
    const engine = new Engine(decoder)
    const lost = engine.generate(prompt, { maxTokens: 50 })
    engine[Symbol.dispose]()
    await expect(lost).rejects.toThrow(code('CLOSED'))
    await expect(engine.generate(prompt, { maxTokens: 5 })).rejects.toThrow(code('CLOSED'))
  })
})

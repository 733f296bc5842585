import { describe, expect, it } from 'vitest'
import { AdamW, Decoder } from '../../src/model/index.js'
import { drawProbabilities } from '../../src/objective/index.js'
import { DecoderPolicy, type DecoderPolicyOptions, type RequestRule } from '../../src/policy/index.js'
import { checkPolicy, checkWeightReceiver } from '../../src/testing/index.js'
import { TINY } from '../model/tiny.js'
import { adapted, train, versioned } from './versioned.js'

const request = { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 7, maxTokens: 8, stopIds: [2] }

describe('DecoderPolicy', () => {
  it('does what a policy must', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const { vocab_size: vocabSize, max_position_embeddings: contextLength = 0 } = TINY
    const limits = { vocabSize, contextLength, tolerance: 0 }
    await checkPolicy(() => new DecoderPolicy(decoder), limits)
    const textOf = (id: number) => `<${id}>`
    await checkPolicy(() => new DecoderPolicy(decoder, { decodeStream: () => ({ push: textOf }) }), {
      ...limits,
      textOf,
    })
  })

  it.each([{ weights: 'q8' }, { kvCacheDtype: 'bf16' }] as const)(
    'does so by %j, whose log-probs are not those of its decoder',
    async (rounded) => {
      using decoder = Decoder.fromSeed(TINY, { seed: 2 })
      const { vocab_size: vocabSize, max_position_embeddings: contextLength = 0 } = TINY
      const policy = new DecoderPolicy(decoder, rounded)
      await checkPolicy(() => policy, { vocabSize, contextLength, tolerance: 0.05 })
      expect(policy.capabilities.exactLogProbs).toBe(false)
      expect(new DecoderPolicy(decoder).capabilities.exactLogProbs).toBe(true)
      const other = new DecoderPolicy(decoder)
      const [ours, exact] = [await policy.generate(request), await other.generate(request)]
      expect(ours.logProbs).not.toEqual(exact.logProbs)
      expect(() => new DecoderPolicy(decoder, { weights: 'q4' as 'q8' })).toThrow(
        expect.objectContaining({ argument: 'options.weights' }),
      )
      expect(() => new DecoderPolicy(decoder, { kvCacheDtype: 'f16' as 'bf16' })).toThrow(
        expect.objectContaining({ argument: 'options.kvCacheDtype' }),
      )
    },
  )

  it('does so with speculative tokens, which change no completion', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const { vocab_size: vocabSize, max_position_embeddings: contextLength = 0 } = TINY
    const policy = new DecoderPolicy(decoder, { speculativeTokens: 3, drawMethod: 'gumbelMax' })
    await checkPolicy(() => policy, { vocabSize, contextLength, tolerance: 0 })
    expect(policy.capabilities.exactLogProbs).toBe(true)
    const plain = await new DecoderPolicy(decoder, { drawMethod: 'gumbelMax' }).generate(request)
    expect(await policy.generate(request)).toEqual(plain)
    expect((await new DecoderPolicy(decoder).generate(request)).ids).not.toEqual(plain.ids)
    for (const options of [{ speculativeTokens: 9 }, { speculativeTokens: 1, weights: 'q8' as const }])
      expect(() => new DecoderPolicy(decoder, options)).toThrow(
        expect.objectContaining({ code: 'OUT_OF_RANGE', argument: 'options.speculativeTokens' }),
      )
  })

  it('does what a receiver of weights must', async () => {
    const replaced: number[] = []
    const first = await versioned(0)
    const onReplaced = (decoder: Decoder) => replaced.push(decoder.version)
    const policy = new DecoderPolicy(first, { onReplaced })
    await checkWeightReceiver(() => policy, { weights: versioned })
    // Rolled back before and after a commit, staged and replaced by another, and served until the next.
    expect(replaced).toEqual([1, 1, 2, 1, 3, 4])
    expect(policy.decoder.version).toBe(5)
  })

  it('refuses weights of another vocabulary, and of another version than they are staged as', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    using other = Decoder.fromSeed({ ...TINY, vocab_size: 24 }, { seed: 2 })
    const policy = new DecoderPolicy(decoder)
    await expect(policy.stage(other, 0)).rejects.toMatchObject({ code: 'INCOMPATIBLE' })
    await expect(policy.stage(decoder, 1)).rejects.toMatchObject({ code: 'INCOMPATIBLE' })
  })

  it('finishes a request with the weights that it began with, and then lets go of them', async () => {
    const [first, second, third] = [await versioned(0), await versioned(1), await versioned(2)]
    const alone = await new DecoderPolicy(second).generate(request)
    const replaced: Decoder[] = []
    const policy = new DecoderPolicy(first, { onReplaced: (decoder) => replaced.push(decoder) })
    const serve = async (decoder: Decoder) => {
      await policy.stage(decoder, decoder.version)
      policy.commit(decoder.version)
      policy.settle()
    }
    await serve(second)
    const running = policy.generate(request)
    await serve(third)
    expect(replaced).toEqual([])
    expect(await running).toEqual(alone)
    expect(replaced).toEqual([second])
  })

  it('serves a snapshot of a decoder with an adapter while that is trained', async () => {
    using decoder = await adapted()
    using snapshot = await decoder.snapshot()
    const wanted = await new DecoderPolicy(decoder).generate(request)
    await train(decoder, 1)
    expect(await new DecoderPolicy(snapshot).generate(request)).toEqual(wanted)
    expect([snapshot.version, decoder.version, snapshot.hasAdapter]).toEqual([3, 4, true])
  })

  it('stamps tokens with the version of a decoder whose adapter was restored', async () => {
    using decoder = await adapted()
    const [config, bytes] = [await decoder.loraConfig(), await decoder.loraToSafetensors()]
    using base = Decoder.fromSeed(TINY, { seed: 2 })
    using again = Decoder.fromSafetensors(TINY, await base.toSafetensors(), { version: decoder.version })
    await again.restoreLora(config, bytes)
    expect(again.version).toBe(3)
    expect(await new DecoderPolicy(again).generate(request)).toEqual(
      await new DecoderPolicy(decoder).generate(request),
    )
  })

  it('refuses an option that it does not know', () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const options = { decodeStreams: () => ({ push: () => '' }) } as DecoderPolicyOptions
    expect(() => new DecoderPolicy(decoder, options)).toThrow(
      expect.objectContaining({ code: 'UNKNOWN_NAME' }),
    )
  })

  it('scores the tokens of a sequence, the first of which follows none', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = new DecoderPolicy(decoder)
    const ids = Uint32Array.of(3, 1, 4)
    const { logProb } = await decoder.score({
      ids,
      offsets: Uint32Array.of(0, 3),
      mask: Uint8Array.of(0, 1, 1),
    })
    const { logProbs } = await policy.score({ requestId: 'a', ids })
    expect([...logProbs]).toEqual([Number.NaN, logProb[1], logProb[2]])
    const { logProbs: alone } = await policy.score({ requestId: 'a', ids: Uint32Array.of(3) })
    expect([...alone]).toEqual([Number.NaN])
    const outside = policy.score({ requestId: 'a', ids: Uint32Array.of(3, 99) })
    await expect(outside).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
  })

  it('answers requests of one tick as if each were alone, whatever their options', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = new DecoderPolicy(decoder)
    const requests = [
      request,
      { ...request, requestId: 'b', maxTokens: 3 },
      { ...request, requestId: 'c', temperature: 0 },
    ]
    const together = await Promise.all(requests.map((one) => policy.generate(one)))
    for (const [index, one] of requests.entries()) expect(await policy.generate(one)).toEqual(together[index])
    expect(together.map(({ requestId }) => requestId)).toEqual(['a', 'b', 'c'])
  })

  it.each<RequestRule>([
    { topH: 0.4 },
    { typicalP: 0.5 },
    { epsilonCutoff: 0.08 },
    { etaCutoff: 0.3 },
    { noRepeatNgramSize: 1 },
    { badWordsIds: [[0], [1, 2], [2, 1], [2, 2]] },
    {
      sequenceBias: [
        [[0], 3],
        [[0, 1], 4],
      ],
    },
  ])('draws by %j, and tells the log-probs of what it drew from', async (rule) => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = new DecoderPolicy(decoder)
    const asked = { ...request, maxTokens: 4, stopIds: [] }
    const [ruled, plain] = [await policy.generate({ ...asked, ...rule }), await policy.generate(asked)]
    expect(ruled.sampledLogProbs).not.toEqual(plain.sampledLogProbs)
    const { promptIds } = request
    for (const [at, id] of ruled.ids.entries()) {
      const ids = Uint32Array.of(...promptIds, ...ruled.ids.subarray(0, at), 0)
      const mask = Uint8Array.from(ids, (_, place) => Number(place === ids.length - 1))
      const whole = await policy.distribution({ ids, offsets: Uint32Array.of(0, ids.length), mask })
      const logProbs = whole.logProbsAt(ids.length - 1).slice()
      const outputIds = ruled.ids.slice(0, at)
      const probabilities = drawProbabilities({ logits: logProbs, promptIds, outputIds, ...rule })
      expect(ruled.sampledLogProbs[at]).toBeCloseTo(Math.log(probabilities[id] ?? 0), 5)
      expect(ruled.logProbs[at]).toBeCloseTo(logProbs[id] ?? 0, 6)
    }
  })

  it('stamps completions with the version of the weights', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    using optimizer = new AdamW(decoder)
    const policy = new DecoderPolicy(decoder)
    await decoder.forward({
      ids: Uint32Array.of(1, 2),
      offsets: Uint32Array.of(0, 2),
      mask: Uint8Array.of(0, 1),
    })
    await decoder.backward(Float32Array.of(0, -1))
    await optimizer.step()
    expect(await policy.generate(request)).toMatchObject({ minPolicyVersion: 1, maxPolicyVersion: 1 })
  })

  it('returns what was drawn once every request of a batch was aborted', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = new DecoderPolicy(decoder)
    const signal = AbortSignal.abort()
    const completion = await policy.generate({ ...request, signal })
    expect(completion).toMatchObject({ finishReason: 'abort', ids: new Uint32Array(0) })
    const [stopped, whole] = await Promise.all([
      policy.generate({ ...request, signal }),
      policy.generate({ ...request, requestId: 'b' }),
    ])
    expect([stopped.finishReason, whole.finishReason]).toEqual([
      'abort',
      expect.stringMatching(/stop|length/),
    ])
  })

  it('rejects a bad request alone', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = new DecoderPolicy(decoder)
    const bad = policy.generate({ ...request, promptIds: Uint32Array.of(99), maxTokens: 5 })
    const good = policy.generate(request)
    await expect(bad).rejects.toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect((await good).ids.length).toBeGreaterThan(0)
    await expect(policy.generate({ ...request, maxTokens: 0 })).rejects.toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
  })
})

import { Worker } from 'node:worker_threads'
import { afterEach, describe, expect, it } from 'vitest'
import { AdamW, Decoder } from '../../src/model/index.js'
import { DecoderPolicy, type WorkerMessage, WorkerPolicy, type WorkerThread } from '../../src/policy/index.js'
import { startThread, WORKER_CALLS_MAX } from '../../src/policy/thread-policy.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { checkPolicy, checkWeightReceiver } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { RemoteTransformersWrapper, TransformersWrapper } from '../../src/torchrl/index.js'
import { TINY } from '../model/tiny.js'
import { adapted, versioned } from './versioned.js'

/** The thread runs the built package: the addon's, or with the condition of these tests the WebAssembly module's. */
const FILE = new URL('../../../dist/policy/policy-worker.js', import.meta.url)
const isWasm = process.env.FULMAR_TEST_BACKEND === 'wasm'
const execArgv = isWasm ? ['--conditions=fulmar-wasm'] : []
const newThread = () => new Worker(FILE, { workerData: { kind: 'fulmar-decoder' }, execArgv })

const request = { requestId: 'a', promptIds: Uint32Array.of(1, 2), seed: 7, maxTokens: 8, stopIds: [] }
const open: WorkerPolicy[] = []
afterEach(async () => {
  for (const policy of open.splice(0)) await policy.close()
})
async function launch(decoder: Decoder, thread: WorkerThread = newThread()): Promise<WorkerPolicy> {
  const policy = await WorkerPolicy.launch(decoder, { thread })
  open.push(policy)
  return policy
}

/** A thread that only sends the messages of the test. */
class SilentThread implements WorkerThread {
  readonly said: WorkerMessage[] = []
  readonly #listeners = new Map<string, (value: never) => void>()

  postMessage(message: WorkerMessage): void {
    this.said.push(message)
    if (message.kind === 'stage' || message.kind === 'commit')
      this.emit('message', { id: message.id, ok: true, value: undefined })
  }

  on(event: string, listener: (value: never) => void): void {
    this.#listeners.set(event, listener)
  }

  emit(event: string, value: unknown): void {
    this.#listeners.get(event)?.(value as never)
  }

  async terminate(): Promise<void> {}
}

describe('WorkerPolicy', () => {
  it('does what a policy must', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = await launch(decoder)
    const { vocab_size: vocabSize, max_position_embeddings: contextLength = 0 } = TINY
    await checkPolicy(() => policy, { vocabSize, contextLength, tolerance: 0 })
  })

  it('reports the version of its weights, and no memory of a GPU on the CPU', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = await launch(decoder)
    expect(await policy.report()).toEqual({ policyVersion: 0 })
    await policy.pushWeights(decoder, { version: 7 })
    expect(await policy.report()).toEqual({ policyVersion: 7 })
  })

  it.each([{ weights: 'q8' }, { kvCacheDtype: 'bf16' }] as const)(
    'samples by %j, also after other weights',
    async (rounded) => {
      using decoder = Decoder.fromSeed(TINY, { seed: 2 })
      const policy = await WorkerPolicy.launch(decoder, { thread: newThread(), ...rounded })
      open.push(policy)
      expect(policy.capabilities.exactLogProbs).toBe(false)
      using next = Decoder.fromSeed(TINY, { seed: 3 })
      for (const [version, weights] of [decoder, next].entries()) {
        if (version > 0) await policy.pushWeights(weights, { version })
        const expected = await new DecoderPolicy(weights, rounded).generate(request)
        const { ids, logProbs } = await policy.generate(request)
        expect({ ids, logProbs }).toEqual({ ids: expected.ids, logProbs: expected.logProbs })
      }
    },
  )

  it('samples with speculative tokens and Gumbel noise where its options ask for them', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const options = { speculativeTokens: 3, drawMethod: 'gumbelMax' } as const
    const policy = await WorkerPolicy.launch(decoder, { thread: newThread(), ...options })
    open.push(policy)
    const expected = await new DecoderPolicy(decoder, { drawMethod: 'gumbelMax' }).generate(request)
    const { ids, logProbs } = await policy.generate(request)
    expect({ ids, logProbs }).toEqual({ ids: expected.ids, logProbs: expected.logProbs })
  })

  it('looks for stop strings with the tokenizer that it was given, also after other weights', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    using tokenizer = new CharTokenizer({ alphabet: 'abcdefghijklmnopqrstuvw' })
    const policy = await WorkerPolicy.launch(decoder, { thread: newThread(), tokenizer })
    open.push(policy)
    const textOf = (id: number) => tokenizer.decode(Uint32Array.of(id))
    await checkPolicy(() => policy, { tolerance: 0, textOf })
    await policy.pushWeights(decoder, { version: 1 })
    const stopStrings = [textOf((await policy.generate(request)).ids[2] ?? 0)]
    const wrapper = new RemoteTransformersWrapper(policy, {
      ...{ inputMode: 'tokens', generateKwargs: { stopIds: [], stopStrings, maxNewTokens: 8 } },
    })
    const dict = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(1, 2)) }) })
    const here = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(1, 2)) }) })
    await wrapper.forward(dict)
    await new TransformersWrapper(decoder, { ...wrapper.options, tokenizer }).forward(here)
    const [there, own] = [dict, here].map((one) => [...one.tensor(['tokens', 'response']).data])
    expect(there).toEqual(own)
    const text = tokenizer.decode(Uint32Array.from(own ?? [], Number))
    expect(own?.length === 8 || text.endsWith(stopStrings[0] ?? '')).toBe(true)
  })

  it.each(['f32', 'bf16'] as const)(
    'draws and scores, to the bit, what the decoder does in this thread, in %s',
    async (matmulPrecision) => {
      using decoder = Decoder.fromSeed(TINY, { seed: 2, matmulPrecision })
      const [here, there] = [new DecoderPolicy(decoder), await launch(decoder)]
      expect(await there.generate(request)).toEqual(await here.generate(request))
      const whole = { requestId: 's', ids: Uint32Array.of(3, 1, 4) }
      expect(await there.score(whole)).toEqual(await here.score(whole))
      expect(request.promptIds).toEqual(Uint32Array.of(1, 2))
    },
  )

  it('does what a receiver of weights must', async () => {
    const policy = await launch(await versioned(0))
    await checkWeightReceiver(() => policy, { weights: versioned })
  })

  it('draws with the adapter of a decoder, to the bit, and stamps its version', async () => {
    using decoder = await adapted()
    const policy = await launch(decoder)
    expect(await policy.generate(request)).toEqual(await new DecoderPolicy(decoder).generate(request))
    using fresh = Decoder.fromSeed(TINY, { seed: 2 })
    await policy.pushWeights(fresh, { version: 7 })
    const base = await policy.generate(request)
    await policy.pushWeights(decoder, { version: 8 })
    const after = await policy.generate(request)
    expect(after.logProbs).not.toEqual(base.logProbs)
    expect([after.minPolicyVersion, after.maxPolicyVersion]).toEqual([8, 8])
    const whole = { requestId: 's', ids: Uint32Array.of(3, 1, 4) }
    expect((await policy.score(whole)).logProbs).toEqual(
      (await new DecoderPolicy(decoder).score(whole)).logProbs,
    )
  })

  it('discards weights that a rollback overtakes, before or after they were sent', async () => {
    const policy = await launch(await versioned(0))
    const early = policy.stage(await versioned(1), 1).catch((error) => error)
    await policy.rollback(0)
    expect(await early).toMatchObject({ code: 'ABORTED' })
    await expect(policy.commit(1)).rejects.toMatchObject({ code: 'CLOSED' })
    for (const numTurns of [1, 5, 20]) {
      const staging = policy.stage(await versioned(1), 1).catch((error) => error)
      for (let turn = 0; turn < numTurns; turn++) await new Promise((resolve) => setImmediate(resolve))
      await policy.rollback(0)
      await staging
      await expect(policy.commit(1)).rejects.toMatchObject({ code: 'CLOSED' })
    }
    expect((await policy.generate(request)).minPolicyVersion).toBe(0)
  })

  it('takes weights whole: what runs ends with those that it began with', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    using optimizer = new AdamW(decoder, { learningRate: 0.1 })
    const policy = await launch(decoder)
    const before = await policy.generate(request)
    await decoder.forward({
      ids: Uint32Array.of(1, 2),
      offsets: Uint32Array.of(0, 2),
      mask: Uint8Array.of(0, 1),
    })
    await decoder.backward(Float32Array.of(0, -1))
    await optimizer.step()
    const during = policy.generate(request)
    const [, { minPolicyVersion, maxPolicyVersion, logProbs }] = await Promise.all([
      policy.pushWeights(decoder, { version: 5 }),
      during,
    ])
    expect([minPolicyVersion, maxPolicyVersion, logProbs]).toEqual([0, 0, before.logProbs])
    const after = await policy.generate(request)
    expect([policy.version, after.minPolicyVersion]).toEqual([5, 5])
    expect(after.ids).toEqual((await new DecoderPolicy(decoder).generate(request)).ids)
    expect(after.logProbs).not.toEqual(before.logProbs)
  })

  it('keeps the weights that it has where others cannot be read', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = await launch(decoder)
    const before = await policy.generate(request)
    await expect(policy.pushWeights('/no/such/folder', { version: 1 })).rejects.toMatchObject({
      name: 'FulmarError',
      code: isWasm ? 'UNAVAILABLE' : 'IO',
    })
    await expect(policy.pushWeights(decoder, { version: -1 })).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
    expect(await policy.generate(request)).toEqual(before)
  })

  it('fails every call when its thread ends, and those after', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const thread = newThread()
    const policy = await launch(decoder, thread)
    const calls = Array.from({ length: 10 }, (_, at) =>
      policy.generate({ ...request, requestId: `${at}`, maxTokens: 60 }),
    )
    const ended = Promise.allSettled(calls)
    await thread.terminate()
    for (const one of await ended) {
      if (one.status === 'rejected')
        expect(one.reason).toMatchObject({
          code: 'UNAVAILABLE',
          message: expect.stringMatching(/thread of the model must answer/),
        })
    }
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect(policy.score({ requestId: 's', ids: Uint32Array.of(1) })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
    })
  })

  it('fails calls with CLOSED once it is closed', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const policy = await launch(decoder)
    const call = policy.generate({ ...request, maxTokens: 60 })
    const closing = policy.close()
    await expect(call).rejects.toMatchObject({ code: 'CLOSED' })
    await closing
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'CLOSED' })
  })

  it('fails what waits with what the thread says of itself', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const thread = new SilentThread()
    const policy = await launch(decoder, thread)
    const controller = new AbortController()
    const call = policy.generate({ ...request, signal: controller.signal })
    controller.abort()
    expect(thread.said.slice(2).map(({ kind }) => kind)).toEqual(['generate', 'abort'])
    thread.emit('message', { id: 99, ok: true, value: null }) // an answer to nothing
    thread.emit('error', new Error('out of memory'))
    await expect(call).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringMatching(/out of memory/),
    })
  })

  it('bounds how many calls wait', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const thread = new SilentThread()
    const policy = await launch(decoder, thread)
    const calls = Array.from({ length: WORKER_CALLS_MAX }, () => policy.generate(request))
    await expect(policy.generate(request)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
    expect(thread.said).toHaveLength(2 + WORKER_CALLS_MAX)
    thread.emit('exit', 1)
    const ended = await Promise.allSettled(calls)
    expect(ended.every(({ status }) => status === 'rejected')).toBe(true)
  })

  it('ends the thread of a model that cannot be read', async () => {
    const thread = newThread()
    const exited = new Promise((resolve) => thread.on('exit', resolve))
    await expect(WorkerPolicy.launch('/no/such/folder', { thread })).rejects.toMatchObject({
      name: 'FulmarError',
    })
    await exited
  })

  it('says so where there is no file to run', async () => {
    const thread = await startThread('no-such-worker', 'x')
    await expect(WorkerPolicy.launch('/no/folder', { thread })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })
})

describe('RemoteTransformersWrapper', () => {
  it('writes what the wrapper of this thread writes', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 2 })
    const options = { inputMode: 'tokens', inPlace: false, generateKwargs: { maxNewTokens: 5 } } as const
    const dict = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(1, 2)) }) })
    const worker = { thread: newThread() }
    const there = await RemoteTransformersWrapper.launch(decoder, { ...options, worker })
    open.push(there.policy)
    const wanted = await new TransformersWrapper(decoder, options).forward(dict)
    const got = await there.forward(dict)
    for (const key of [
      ['tokens', 'full'],
      ['log_probs', 'response'],
    ])
      expect([...got.tensor(key).data].map(Number)).toEqual([...wanted.tensor(key).data].map(Number))
    expect(there.newVersion({ padId: 3 })).toBeInstanceOf(RemoteTransformersWrapper)
  })
})

import { describe, expect, it } from 'vitest'
import type { GenerateRequest } from '../../../src/policy/index.js'
import { ManualClock } from '../../../src/telemetry/index.js'
import {
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
} from '../../../src/tensor/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { LLMWrapperBase, type LLMWrapperOptions } from '../../../src/torchrl/index.js'

const tokenizer = new CharTokenizer()
const rendering = { templateName: 'chatml_format' }
const idsOf = (text: string) => [...tokenizer.encode(text, { addedTokens: true }).ids]
/** Says `ok`, ends its turn, and keeps what it was asked. */
const scripted = (reply = 'ok<|im_end|>') => new ScriptedPolicy({ reply: () => idsOf(reply) })
const make = (options: LLMWrapperOptions = {}, policy = scripted()) =>
  new LLMWrapperBase(policy, { tokenizer, rendering, ...options })
const dictOf = (
  root: string,
  name: string,
  entry: NonTensorData | NonTensorStack | Tensor | Ragged,
  batchSize: number[] = [],
) => TensorDict.from({ [root]: TensorDict.from({ [name]: entry }, { batchSize }) }, { batchSize })
const user = (content: string): Json => ({ role: 'user', content })
const failing = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) })

describe('LLMWrapperBase', () => {
  it.each<[LLMWrapperOptions, string, RegExp]>([
    [{ inputMode: 'image' as never }, 'UNKNOWN_NAME', /inputMode must be one of/],
    [{ generate: false, returnLogProbs: false }, 'INCOMPATIBLE', /returnLogProbs must be true/],
    [{ generate: false }, 'INCOMPATIBLE', /policy must be able to score/],
    [{ padOutput: 1 as never }, 'MALFORMED', /padOutput must be a boolean/],
    [
      { minBatchSize: 5, maxBatchSize: 2 },
      'OUT_OF_RANGE',
      /minBatchSize \(5\) must be <= maxBatchSize \(2\)/,
    ],
    [{ batching: false, minBatchSize: 2 }, 'INCOMPATIBLE', /batching must not be false/],
    [{ inPlace: true, numSamples: 2 }, 'INCOMPATIBLE', /inPlace must not be true with numSamples/],
    [
      { numSamples: 3, generateKwargs: { n: 2 } },
      'INCOMPATIBLE',
      /numSamples must be what generateKwargs says/,
    ],
    [{ numSamples: 0 }, 'OUT_OF_RANGE', /numSamples/],
    [{ padId: -1 }, 'OUT_OF_RANGE', /padId/],
    [{ padOutputs: true } as LLMWrapperOptions, 'UNKNOWN_NAME', /did you mean 'padOutput'/],
    [{ generateKwargs: { temperature: -1 } }, 'OUT_OF_RANGE', /temperature/],
  ])('refuses %j', (options, code, message) => {
    expect(() => make(options)).toThrow(failing(code, message))
  })

  it('needs a tokenizer but for tokens', () => {
    expect(() => new LLMWrapperBase(scripted())).toThrow(failing('INCOMPATIBLE', /tokenizer must be given/))
    expect(new LLMWrapperBase(scripted(), { inputMode: 'tokens' }).outKeys).toEqual([
      ['masks'],
      ['tokens'],
      ['log_probs'],
    ])
  })

  it('says which keys there are where its own is missing', async () => {
    const wrapper = make({ inputKey: 'history' })
    await expect(wrapper.forward(TensorDict.from())).rejects.toThrow(
      failing('UNKNOWN_NAME', /Expected 'history' key for history input mode, but found keys: none/),
    )
    const dict = TensorDict.from({ prompt: new NonTensorData('a') })
    await expect(make().forward(dict)).rejects.toThrow(/Expected 'history.prompt' key .* found keys: prompt/)
  })

  it.each<[LLMWrapperOptions, NonTensorData | Tensor, string, RegExp]>([
    [{}, new NonTensorData('Hi'), 'MALFORMED', /Expected History object at row 0: got "Hi"/],
    [{}, new NonTensorData([]), 'MALFORMED', /Expected History object/],
    [{}, Tensor.from([1]), 'MALFORMED', /must hold texts or histories/],
    [{ inputMode: 'text' }, new NonTensorData(3), 'MALFORMED', /must be text/],
    [{ inputMode: 'tokens' }, new NonTensorData(3), 'MALFORMED', /must be a tensor of tokens/],
    [
      { inputMode: 'tokens' },
      Tensor.from([1, 2], { shape: [1, 2] }),
      'SHAPE_MISMATCH',
      /one dimension behind/,
    ],
    [{ inputMode: 'tokens' }, Tensor.from([-1]), 'OUT_OF_RANGE', /ids must be integers/],
    [{ inputMode: 'tokens' }, Tensor.from([0.5]), 'OUT_OF_RANGE', /ids must be integers/],
  ])('refuses input of another type (%#)', async (options, entry, code, message) => {
    const { inputMode = 'history' } = options
    const wrapper = make(options)
    await expect(wrapper.forward(dictOf(inputMode, 'prompt', entry))).rejects.toThrow(failing(code, message))
  })

  it('refuses more than one batch dimension', async () => {
    const dict = dictOf('history', 'prompt', new NonTensorStack([[[user('a')]]]), [1, 1])
    await expect(make().forward(dict)).rejects.toThrow(
      failing('SHAPE_MISMATCH', /at most one batch dimension/),
    )
  })

  it('reads another key, a message for a conversation, and rows of different turns', async () => {
    const wrapper = make({ inputKey: ['chats', 'now'], inPlace: false })
    expect(wrapper.inKeys).toEqual([['chats', 'now']])
    const chats = [user('a'), [user('b'), { role: 'assistant', content: 'c' }, user('d')]]
    const output = await wrapper.forward(dictOf('chats', 'now', new NonTensorStack(chats), [2]))
    const said = { role: 'assistant', content: 'ok' }
    expect(output.value(['history', 'full'])).toEqual([
      [user('a'), said],
      [...(chats[1] as Json[]), said],
    ])
    expect(output.has('chats')).toBe(false)
  })

  it('asks the policy for what it was told, each row with a seed of its own', async () => {
    const policy = scripted()
    const kwargs = { maxTokens: 10, temperature: 0.7, topK: 5, minP: 0.1, repetitionPenalty: 1.1 }
    const wrapper = make({ generateKwargs: kwargs }, policy)
    await wrapper.forward(dictOf('history', 'prompt', new NonTensorStack([[user('a')], [user('b')]]), [2]))
    await wrapper.forward(dictOf('history', 'prompt', new NonTensorData([user('a')])), {
      generateKwargs: { maxNewTokens: 4 },
    })
    const { maxTokens: _, ...rule } = kwargs
    expect(policy.requests.map(({ maxTokens }) => maxTokens)).toEqual([10, 10, 4])
    for (const request of policy.requests) expect(request).toMatchObject(rule)
    expect(new Set(policy.requests.map(({ seed }) => seed)).size).toBe(3)
    expect(new Set(policy.requests.map(({ requestId }) => requestId)).size).toBe(3)
    expect(policy.requests[0]?.stopIds).toEqual([tokenizer.idOf('<|im_end|>')])
  })

  it('writes the end of a turn once: in the ids, not in the message', async () => {
    const dict = dictOf('history', 'prompt', new NonTensorData([user('a')]))
    await make().forward(dict)
    expect(dict.value(['history', 'response'])).toEqual([{ role: 'assistant', content: 'ok' }])
    expect(dict.value(['text', 'response'])).toBe('ok<|im_end|>')
    const parsed = make({ parseResponse: (ids) => ({ role: 'assistant', content: `${ids.length} ids` }) })
    await parsed.forward(dict)
    expect(dict.value(['history', 'response'])).toEqual([{ role: 'assistant', content: '3 ids' }])
  })

  it('leaves log-probs out where they are not wanted', async () => {
    const output = await make({ returnLogProbs: false }).forward(
      dictOf('history', 'prompt', new NonTensorData([user('a')])),
    )
    expect(output.keys()).toEqual(['history', 'text', 'masks', 'tokens'])
  })

  it.each([1, 2, 3])('answers %i rows with as many texts and rows of tokens', async (count) => {
    const prompt = new NonTensorStack(new Array<Json>(count).fill([user('a')]))
    const output = await make().forward(dictOf('history', 'prompt', prompt, [count]))
    expect(output.value(['text', 'response'])).toHaveLength(count)
    expect(output.ragged(['tokens', 'response']).numRows).toBe(count)
  })

  it('takes the ids that an environment kept, where it is told to', async () => {
    const held = Uint32Array.from(idsOf('<|im_start|>user\nab'))
    const dict = () =>
      TensorDict.from({
        history: TensorDict.from({ prompt: new NonTensorData([user('a')]) }),
        tokens: TensorDict.from({ prompt: Tensor.from(held) }),
      })
    const policy = scripted()
    const wrapper = make({ preferTokens: true }, policy)
    const output = await wrapper.forward(dict())
    expect(policy.requests[0]?.promptIds).toEqual(held)
    expect(output.value(['text', 'prompt'])).toBe('<|im_start|>user\nab')
    await wrapper.newVersion({ preferTokens: false }).forward(dict())
    expect(policy.requests[1]?.promptIds).not.toEqual(held)
    expect(wrapper.newVersion({}).options.preferTokens).toBe(true)
    await wrapper.forward(dictOf('history', 'prompt', new NonTensorData([user('a')])))
    expect(policy.requests[2]?.promptIds).toEqual(policy.requests[1]?.promptIds)
  })

  it('makes a version of itself whose other options stay and whose keys follow', () => {
    const policy = Object.assign(scripted(), {
      score: async ({ requestId, ids }: { requestId: string; ids: Uint32Array }) => ({
        requestId,
        logProbs: new Float32Array(ids.length).fill(Number.NaN),
        policyVersion: 0,
      }),
    })
    const wrapper = make(
      { historyKey: 'chat', padOutput: true, minBatchSize: 2, generateKwargs: { maxNewTokens: 3 } },
      policy,
    )
    const scorer = wrapper.newVersion({ generate: false })
    expect(scorer.inKeys).toEqual([['chat', 'full']])
    expect(scorer.batchingState).toMatchObject({ minBatchSize: 2 })
    const back = scorer.newVersion({ generate: true })
    expect(back.inKeys).toEqual([['chat', 'prompt']])
    expect(back.options).toMatchObject({ padOutput: true, generateKwargs: { maxNewTokens: 3 } })
    expect(back.policy).toBe(wrapper.policy)
  })

  it('gathers rows of several calls, and runs them late rather than never', async () => {
    const clock = new ManualClock()
    const policy = scripted()
    const wrapper = make({ minBatchSize: 3, batchingTimeoutMs: 50, clock }, policy)
    const call = () => wrapper.forward(dictOf('history', 'prompt', new NonTensorData([user('a')])))
    const early = [call(), call()]
    expect([policy.requests.length, wrapper.batchingState?.queueSize]).toEqual([0, 2])
    early.push(call())
    expect(policy.requests.length).toBe(3)
    const late = call()
    clock.advance(50)
    for (const output of await Promise.all([...early, late]))
      expect(output.value(['text', 'response'])).toBe('ok<|im_end|>')
    const stopped = call()
    wrapper.cleanupBatching()
    await expect(stopped).rejects.toMatchObject({ code: 'ABORTED' })
    const flushed = call()
    wrapper.cleanupBatching({ flush: true })
    expect((await flushed).batchSize).toEqual([])
    expect(make().batchingState).toBeUndefined()
  })

  it('writes nothing where a row fails, after the others have ended', async () => {
    const policy = new ScriptedPolicy({
      reply: ({ promptIds }: GenerateRequest) => {
        if (promptIds.length === 2) throw new Error('broken')
        return [1]
      },
    })
    const prompt = Ragged.fromRows([Tensor.from([1, 2]), Tensor.from([1])])
    const dict = dictOf('tokens', 'prompt', prompt, [2])
    await expect(make({ inputMode: 'tokens' }, policy).forward(dict)).rejects.toThrow('broken')
    expect(policy.requests).toHaveLength(2)
    expect(dict.keys()).toEqual(['tokens'])
    expect(dict.has(['tokens', 'response'])).toBe(false)
  })

  it('hands its signal on', async () => {
    const wrapper = make({ inputMode: 'tokens' })
    const dict = dictOf('tokens', 'prompt', Tensor.from([1]))
    await wrapper.forward(dict, { signal: AbortSignal.abort() })
    await expect(wrapper.forward(dict, { signals: 1 } as never)).rejects.toThrow(
      failing('UNKNOWN_NAME', /signal/),
    )
  })
})

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { Decoder } from '../../src/model/index.js'
import { DecoderPolicy, OnnxPolicy, type OnnxPolicyOptions } from '../../src/policy/index.js'
import { startProcess } from '../../src/policy/thread-policy.js'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { checkPolicy } from '../../src/testing/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { OnnxWrapper, TransformersWrapper } from '../../src/torchrl/index.js'
import { has } from '../needs.js'

const golden = (path: string) => new URL(`../../../tests/golden/${path}`, import.meta.url).pathname
/** The process runs the built package. */
const FILE = new URL('../../../dist/policy/onnx-process.js', import.meta.url)
const newThread = () => startProcess(FILE, 'fulmar-onnx')
/** Its binary is there for the platforms that it has one for; a user installs it or does not. */
const isThere = has(
  'onnxruntime-node',
  existsSync(new URL('../../../node_modules/onnxruntime-node', import.meta.url)),
)

const decoder = Decoder.fromSafetensors(
  JSON.parse(await readFile(golden('model/qwen2_untied/config.json'), 'utf8')),
  await readFile(golden('model/qwen2_untied/model.safetensors')),
)
const { plain } = JSON.parse(await readFile(golden('model/qwen2_untied/case.json'), 'utf8'))
const request = { requestId: 'a', promptIds: Uint32Array.of(44, 26, 7), seed: 7, maxTokens: 8, stopIds: [] }

const open: OnnxPolicy[] = []
afterEach(async () => {
  for (const policy of open.splice(0)) await policy.close()
})
async function launch(file: string, options: OnnxPolicyOptions = {}): Promise<OnnxPolicy> {
  const policy = await OnnxPolicy.launch(golden(`policy/${file}`), {
    thread: await newThread(),
    numThreads: 1,
    ...options,
  })
  open.push(policy)
  return policy
}

describe.runIf(isThere)('OnnxPolicy', () => {
  it('does what a policy must', async () => {
    const policy = await launch('qwen2.onnx', { contextLength: 64 })
    await checkPolicy(() => policy, { vocabSize: 59, contextLength: 64, tolerance: 1e-5 })
  })

  it('looks for stop strings with the tokenizer that it was given', async () => {
    const alphabet = Array.from({ length: 59 }, (_, id) => String.fromCharCode(65 + id)).join('')
    using tokenizer = new CharTokenizer({ alphabet })
    const policy = await launch('qwen2.onnx', { tokenizer })
    const textOf = (id: number) => tokenizer.decode(Uint32Array.of(id))
    await checkPolicy(() => policy, { vocabSize: 59, tolerance: 1e-5, textOf })
  })

  it.each(['qwen2.onnx', 'qwen2_past.onnx'])('scores %s as transformers does', async (file) => {
    const policy = await launch(file)
    const [row] = plain.ids as number[][]
    const ids = Uint32Array.from(row ?? [])
    const { logProbs } = await policy.score({ requestId: 's', ids })
    const mask = Uint8Array.from(ids, (_, at) => (at === 0 ? 0 : 1))
    // The decoder's own log-probs are compared with those of transformers in its tests.
    const { logProb } = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
    for (let at = 1; at < ids.length; at++) expect(logProbs[at]).toBeCloseTo(logProb[at] ?? Number.NaN, 4)
  })

  it('says what transformers said of the rows of the fixture', async () => {
    const policy = await launch('qwen2.onnx')
    const expected = await expectedLogProbs()
    for (const [row, ids] of (plain.ids as number[][]).entries()) {
      const { logProbs } = await policy.score({ requestId: `${row}`, ids: Uint32Array.from(ids) })
      for (const [at, value] of expected.slice(row * 11, row * 11 + 11).entries())
        expect(logProbs[at + 1]).toBeCloseTo(value, 4)
    }
  })

  it('draws the tokens that the decoder of the same weights draws', async () => {
    const [there, here] = [await launch('qwen2.onnx'), new DecoderPolicy(decoder)]
    for (const rule of [
      {},
      { temperature: 0 },
      { temperature: 0.7, topK: 9 },
      { repetitionPenalty: 1.3, minP: 0.01 },
    ]) {
      const [got, wanted] = [
        await there.generate({ ...request, ...rule }),
        await here.generate({ ...request, ...rule }),
      ]
      expect(got.ids).toEqual(wanted.ids)
      for (const [at, value] of wanted.sampledLogProbs.entries())
        expect(got.sampledLogProbs[at]).toBeCloseTo(value, 4)
    }
  })

  it('takes bytes for a model, and another one whole or not at all', async () => {
    const bytes = await readFile(golden('policy/qwen2.onnx'))
    const policy = await OnnxPolicy.launch(bytes, { thread: await newThread(), version: 2 })
    open.push(policy)
    const before = await policy.generate(request)
    expect([policy.version, before.minPolicyVersion, bytes.length > 0]).toEqual([2, 2, true])
    const broken = policy.pushModel(new Uint8Array(100), { version: 3 })
    await expect(broken).rejects.toMatchObject({ name: 'FulmarError', code: 'CORRUPT' })
    expect(await policy.generate(request)).toEqual(before)
    await policy.pushModel(golden('policy/qwen2_past.onnx'), { version: 3 })
    expect(await policy.generate(request)).toMatchObject({ ids: before.ids, minPolicyVersion: 3 })
  })

  it.each<[string, string, RegExp]>([
    ['no_such.onnx', 'CORRUPT', /must be an ONNX model/],
    ['HOW.md', 'CORRUPT', /must be an ONNX model/],
    ['pixels.onnx', 'INCOMPATIBLE', /got pixel_values/],
    ['no_logits.onnx', 'INCOMPATIBLE', /outputs must hold logits/],
    ['flat_logits.onnx', 'INCOMPATIBLE', /logits must be float32/],
  ])('refuses %s', async (file, code, message) => {
    await expect(launch(file)).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
  })

  it.each<[OnnxPolicyOptions, string]>([
    [{ contextLength: 0 }, 'OUT_OF_RANGE'],
    [{ numThreads: -1 }, 'OUT_OF_RANGE'],
    [{ version: 0.5 }, 'OUT_OF_RANGE'],
    [{ context: 3 } as OnnxPolicyOptions, 'UNKNOWN_NAME'],
  ])('refuses %j', async (options, code) => {
    await expect(OnnxPolicy.launch('x', options)).rejects.toMatchObject({ code })
  })

  it('fails its calls when the process ends, and lives on', async () => {
    const thread = await newThread()
    const policy = await launch('qwen2.onnx', { thread })
    const call = policy.generate({ ...request, maxTokens: 500 })
    void thread.terminate()
    await expect(call).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })
})

describe.runIf(isThere)('OnnxWrapper', () => {
  it('writes what the wrapper of the decoder writes', async () => {
    const options = { inputMode: 'tokens', inPlace: false, generateKwargs: { maxNewTokens: 4 } } as const
    const onnx = { thread: await newThread() }
    const wrapper = await OnnxWrapper.launch(golden('policy/qwen2.onnx'), { ...options, onnx })
    open.push(wrapper.policy)
    const dict = TensorDict.from({ tokens: TensorDict.from({ prompt: Tensor.from(Uint32Array.of(5, 6)) }) })
    const [got, wanted] = [
      await wrapper.forward(dict),
      await new TransformersWrapper(decoder, options).forward(dict),
    ]
    expect(got.tensor(['tokens', 'full']).equals(wanted.tensor(['tokens', 'full']))).toBe(true)
    const scorer = wrapper.newVersion({ generate: false })
    expect(scorer).toBeInstanceOf(OnnxWrapper)
    const scored = (await scorer.forward(got)).tensor(['log_probs', 'full']).toFloat32()
    const drawn = got.tensor(['log_probs', 'response']).toFloat32()
    for (const [at, value] of drawn.entries()) expect(scored[at + 2]).toBeCloseTo(value, 4)
  })
})

/** `plain.token_logprobs` of the fixture, `[2, 11]`. */
async function expectedLogProbs(): Promise<Float32Array> {
  const bytes = await readFile(golden('model/qwen2_untied/expected.safetensors'))
  const length = Number(bytes.readBigUInt64LE(0))
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString())
  const [start, end] = header['plain.token_logprobs'].data_offsets
  const data = bytes.subarray(8 + length + start, 8 + length + end)
  return new Float32Array(Uint8Array.from(data).buffer)
}

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { AdamW, Decoder, Engine } from '../../src/model/index.js'
import { TINY } from './tiny.js'

const batch = {
  ids: Uint32Array.of(1, 2, 3, 4, 1, 2, 7),
  offsets: Uint32Array.of(0, 4, 7),
  mask: Uint8Array.of(0, 0, 1, 1, 0, 0, 1),
}
const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const golden = (name: string) => new URL(`../../../tests/golden/model/llama_tied/${name}`, import.meta.url)

describe('Decoder', () => {
  it('lies on the CPU, and refuses a device that is not there before anything is loaded', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    expect(decoder.device).toBe('cpu')
    const device = 'cuda:9999'
    const refused = code('UNAVAILABLE')
    expect(() => Decoder.fromSeed(TINY, { seed: 1, device })).toThrow(refused)
    expect(() => Decoder.fromSafetensors(TINY, new Uint8Array(0), { device })).toThrow(refused)
    await expect(Decoder.fromGguf(new Uint8Array(0), { device })).rejects.toThrow(refused)
    await expect(Decoder.fromFolder('/no/such/folder', { device })).rejects.toThrow(refused)
  })

  it('gives the log-probs that transformers gives', async () => {
    const config = JSON.parse(readFileSync(golden('config.json'), 'utf8'))
    const { plain } = JSON.parse(readFileSync(golden('case.json'), 'utf8'))
    using decoder = Decoder.fromSafetensors(config, readFileSync(golden('model.safetensors')))
    const ids = Uint32Array.from(plain.ids[0])
    const mask = new Uint8Array(ids.length).fill(1, 1)
    const { logProb } = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
    const expected = expectedLogProbs(readFileSync(golden('expected.safetensors')))
    for (const [index, value] of expected.slice(0, ids.length - 1).entries()) {
      expect(Math.abs((logProb[index + 1] ?? 0) - value)).toBeLessThan(1e-4)
    }
  })

  it('gives the same bits from score and forward, whatever else is in the batch', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 3 })
    const all = await decoder.forward(batch)
    const alone = await decoder.score({
      ids: batch.ids.subarray(4),
      offsets: Uint32Array.of(0, 3),
      mask: batch.mask.subarray(4),
    })
    expect([...alone.logProb]).toEqual([...all.logProb.subarray(4)])
    expect([...all.logProb].filter((value) => value === 0)).toHaveLength(4)
  })

  it('writes its weights as the same bytes each time and reads them back', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 3 })
    const bytes = await decoder.toSafetensors()
    using again = Decoder.fromSafetensors(decoder.config, bytes, { version: 7 })
    expect(Buffer.compare(await again.toSafetensors(), bytes)).toBe(0)
    expect(again.version).toBe(7)
    expect(again.numParameters).toBe(decoder.numParameters)
  })

  it('gives with weights in bfloat16 the bits of the same weights widened, and trains master copies of them', async () => {
    using halves = Decoder.fromSeed(TINY, { seed: 3, dtype: 'bf16' })
    using whole = Decoder.fromSeed(TINY, { seed: 3 })
    expect([halves.dtype, whole.dtype]).toEqual(['bf16', 'f32'])
    const bytes = await halves.toSafetensors()
    expect(bytes.length).toBeLessThan(0.6 * (await whole.toSafetensors()).length)
    using wide = Decoder.fromSafetensors(TINY, bytes)
    expect(await halves.score(batch)).toEqual(await wide.score(batch))
    using back = Decoder.fromSafetensors(TINY, bytes, { dtype: 'bf16' })
    expect(Buffer.compare(await back.toSafetensors(), bytes)).toBe(0)

    using optimizer = new AdamW(halves, { learningRate: 1e-5 })
    const grad = Float32Array.from(batch.mask, (scored) => -scored)
    for (let step = 0; step < 60; step++) {
      await halves.forward(batch)
      await halves.backward(grad)
      await optimizer.step()
    }
    expect(Buffer.compare(await halves.toSafetensors(), bytes)).not.toBe(0)
    using resumed = new AdamW(halves, { learningRate: 1e-5 }, await optimizer.toSafetensors())
    expect(Buffer.compare(await resumed.toSafetensors(), await optimizer.toSafetensors())).toBe(0)
    const state = await optimizer.toSafetensors()
    expect(() => new AdamW(wide, {}, state)).toThrow(code('INCOMPATIBLE'))
  })

  it('refuses a dtype in which there are no weights', () => {
    const dtype = 'i64' as 'f32'
    expect(() => Decoder.fromSeed(TINY, { seed: 1, dtype })).toThrow(
      'dtype of weights must be f32 or bf16: got i64',
    )
    expect(() => Decoder.fromSeed(TINY, { seed: 1, dtype: 'bfloat' as 'f32' })).toThrow(code('UNKNOWN_NAME'))
  })

  it('multiplies in bfloat16 where it is asked to, for engines and copies too', async () => {
    using exact = Decoder.fromSeed(TINY, { seed: 3 })
    using decoder = Decoder.fromSeed(TINY, { seed: 3, matmulPrecision: 'bf16' })
    expect([exact.matmulPrecision, decoder.matmulPrecision]).toEqual(['f32', 'bf16'])
    const { logProb } = await decoder.score(batch)
    const { logProb: near } = await exact.score(batch)
    expect(logProb).not.toEqual(near)
    for (const [at, value] of logProb.entries()) expect(Math.abs(value - (near[at] ?? 0))).toBeLessThan(0.05)
    expect((await decoder.forward(batch)).logProb).toEqual(logProb)

    using engine = new Engine(decoder)
    const drawn = await engine.generate({ ids: Uint32Array.of(1, 2), seed: 5 }, { maxTokens: 6 })
    const ids = Uint32Array.of(1, 2, ...drawn.ids)
    const mask = Uint8Array.from(ids, (_, at) => Number(at > 1))
    const scores = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
    expect(scores.logProb.subarray(2)).toEqual(drawn.logProbs)

    using snapshot = await decoder.snapshot()
    using critic = await decoder.withScalarHead('v_head', { seed: 1 })
    const weights = await decoder.toSafetensors()
    using loaded = Decoder.fromSafetensors(TINY, weights, { matmulPrecision: 'bf16' })
    for (const other of [snapshot, critic, loaded]) {
      expect(other.matmulPrecision).toBe('bf16')
      expect((await other.score(batch)).logProb).toEqual(logProb)
    }
    expect(() => Decoder.fromSeed(TINY, { seed: 3, matmulPrecision: 'tf32' as 'f32' })).toThrow(
      'matmulPrecision must be one of f32, bf16: got "tf32"',
    )
    expect(() => Decoder.fromSafetensors(TINY, weights, { matmulPrecision: 'BF16' as 'bf16' })).toThrow(
      code('UNKNOWN_NAME'),
    )
  })

  it('refuses impossible shapes by the name of the field', () => {
    const make = (change: object) => () => Decoder.fromSeed({ ...TINY, ...change }, { seed: 0 })
    expect(make({ hidden_size: 0 })).toThrow(code('OUT_OF_RANGE'))
    expect(make({ num_key_value_heads: 3 })).toThrow(/num_key_value_heads/)
    expect(make({ vocab_size: 2 ** 30 })).toThrow(code('LIMIT_EXCEEDED'))
    expect(make({ vocab_size: 'many' })).toThrow(code('MALFORMED'))
    expect(make({ model_type: 'gpt2' })).toThrow(code('UNKNOWN_NAME'))
    expect(() => Decoder.fromSeed(TINY, { seed: -1 })).toThrow(code('OUT_OF_RANGE'))
  })

  it('refuses bad batches, and gradients without a forward pass', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 3 })
    const score = (change: object) => decoder.score({ ...batch, ...change })
    await expect(score({ ids: Uint32Array.of(1, 2) })).rejects.toThrow(code('SHAPE_MISMATCH'))
    await expect(score({ ids: batch.ids.map((id) => id + 20) })).rejects.toThrow(code('OUT_OF_RANGE'))
    await expect(score({ mask: new Uint8Array(7).fill(1) })).rejects.toThrow(code('OUT_OF_RANGE'))
    await expect(score({ offsets: Uint32Array.of(0) })).rejects.toThrow(code('EMPTY'))
    const gradient = new Float32Array(7)
    await expect(decoder.backward(gradient)).rejects.toThrow(code('CLOSED'))
    await decoder.forward(batch)
    await expect(decoder.backward(gradient.subarray(1))).rejects.toThrow(code('SHAPE_MISMATCH'))
    await expect(decoder.backward(gradient.fill(Number.NaN))).rejects.toThrow(code('NON_FINITE'))
  })

  it('refuses damaged files, weights of another architecture and weights that are not finite', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 3 })
    const bytes = await decoder.toSafetensors()
    const load = (config: object, data: Uint8Array) => () =>
      Decoder.fromSafetensors({ ...TINY, ...config }, data)
    expect(load({}, bytes.subarray(0, -4))).toThrow(code('CORRUPT'))
    expect(load({ num_hidden_layers: 1 }, bytes)).toThrow(code('INCOMPATIBLE'))
    expect(load({ intermediate_size: 64 }, bytes)).toThrow(/down_proj/)
    const broken = bytes.slice()
    broken.set([0, 0, 192, 127], broken.length - 4)
    expect(load({}, broken)).toThrow(code('NON_FINITE'))
  })

  it('says that it is closed once it was disposed', async () => {
    const decoder = Decoder.fromSeed(TINY, { seed: 3 })
    decoder[Symbol.dispose]()
    decoder[Symbol.dispose]()
    await expect(decoder.score(batch)).rejects.toThrow(code('CLOSED'))
  })
})

/** `plain.token_logprobs` of a safetensors file. */
function expectedLogProbs(file: Buffer): Float32Array {
  const headerLength = Number(file.readBigUInt64LE(0))
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerLength))
  const [first, end] = header['plain.token_logprobs'].data_offsets
  return new Float32Array(
    file.buffer.slice(file.byteOffset + 8 + headerLength + first, file.byteOffset + 8 + headerLength + end),
  )
}

import { describe, expect, it } from 'vitest'
import { AdamW, Decoder, Muon, type Optimizer, SGD } from '../../src/model/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const batch = { ids: Uint32Array.of(1, 2, 3), offsets: Uint32Array.of(0, 3), mask: Uint8Array.of(0, 1, 1) }
const gradient = Float32Array.of(0, -0.5, -0.5)

async function train(decoder: Decoder, optimizer: Optimizer): Promise<void> {
  await decoder.forward(batch)
  await decoder.backward(gradient)
  await optimizer.step({ maxGradNorm: 1 })
}

describe('AdamW', () => {
  it('goes on from its file with the same bits', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using optimizer = new AdamW(decoder, { learningRate: 0.01, weightDecay: 0.1 })
    await train(decoder, optimizer)
    using copy = Decoder.fromSafetensors(decoder.config, await decoder.toSafetensors())
    const state = await optimizer.toSafetensors()
    using resumed = new AdamW(copy, { learningRate: 0.01, weightDecay: 0.1 }, state)
    for (let step = 0; step < 3; step++) {
      await train(decoder, optimizer)
      await train(copy, resumed)
    }
    expect(Buffer.compare(await decoder.toSafetensors(), await copy.toSafetensors())).toBe(0)
    expect(decoder.version).toBe(4)
  })

  it('does nothing to the weights at a rate of 0 and reports the clipped norm', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using optimizer = new AdamW(decoder)
    const before = await decoder.toSafetensors()
    await decoder.forward(batch)
    await decoder.backward(gradient)
    const { gradientNorm, clipCoefficient } = await optimizer.step({ learningRate: 0, maxGradNorm: 0.01 })
    expect(clipCoefficient).toBeCloseTo(0.01 / gradientNorm, 5)
    expect(Buffer.compare(await decoder.toSafetensors(), before)).toBe(0)
  })

  it('refuses unknown and impossible options, steps without gradients, and files of another shape', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    expect(() => new AdamW(decoder, { lerningRate: 1 } as object)).toThrow(/did you mean 'learningRate'/)
    expect(() => new AdamW(decoder, { beta1: 1 })).toThrow(code('OUT_OF_RANGE'))
    using optimizer = new AdamW(decoder)
    await expect(optimizer.step()).rejects.toThrow(code('CLOSED'))
    await decoder.forward(batch)
    await decoder.backward(gradient)
    await expect(optimizer.step({ maxGradNorm: 0 })).rejects.toThrow(code('OUT_OF_RANGE'))
    await expect(optimizer.step({ learningRate: Number.NaN })).rejects.toThrow(code('OUT_OF_RANGE'))
    using other = Decoder.fromSeed({ ...TINY, num_hidden_layers: 1 }, { seed: 1 })
    const state = await optimizer.toSafetensors()
    expect(() => new AdamW(other, {}, state)).toThrow(code('INCOMPATIBLE'))
    expect(() => new AdamW(decoder, {}, state.subarray(0, 100))).toThrow(code('CORRUPT'))
  })
})

describe('SGD', () => {
  it('steps along the gradient, and refuses Nesterov without momentum', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using optimizer = new SGD(decoder, { learningRate: 0.5, momentum: 0.9, nesterov: true })
    const before = (await decoder.score(batch)).logProb[2] as number
    await train(decoder, optimizer)
    expect((await decoder.score(batch)).logProb[2]).toBeGreaterThan(before)
    expect(() => new SGD(decoder, { nesterov: true })).toThrow(code('INCOMPATIBLE'))
    expect(() => new SGD(decoder, { momentun: 0.9 } as object)).toThrow(/did you mean 'momentum'/)
  })
})

describe('Muon', () => {
  it('goes on from its file, which another optimiser refuses', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using optimizer = new Muon(decoder, { learningRate: 0.02, adamw: { learningRate: 0.001 } })
    await train(decoder, optimizer)
    const state = await optimizer.toSafetensors()
    using resumed = new Muon(decoder, {}, state)
    expect(Buffer.compare(await resumed.toSafetensors(), state)).toBe(0)
    expect(() => new AdamW(decoder, {}, state)).toThrow(code('INCOMPATIBLE'))
  })

  it('refuses unknown options of the AdamW inside it', () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    expect(() => new Muon(decoder, { adamw: { beta: 1 } as object })).toThrow(/options.adamw.beta/)
  })
})

describe('Decay', () => {
  it('pulls at what it names, and must name something', async () => {
    const weights = async (decay: readonly string[] | 'all' | 'matrices') => {
      using decoder = Decoder.fromSeed(TINY, { seed: 1 })
      using optimizer = new AdamW(decoder, { learningRate: 0.01, weightDecay: 0.5, decay })
      await train(decoder, optimizer)
      return await decoder.toSafetensors()
    }
    const [all, matrices] = [await weights('all'), await weights('matrices')]
    expect(Buffer.compare(all, matrices)).not.toBe(0)
    expect(Buffer.compare(await weights(['*']), all)).toBe(0)
    await expect(weights(['*.no_such.*'])).rejects.toThrow(code('UNKNOWN_NAME'))
    await expect(weights('none' as 'all')).rejects.toThrow(code('UNKNOWN_NAME'))
  })
})

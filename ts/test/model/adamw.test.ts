import { describe, expect, it } from 'vitest'
import { AdamW, Decoder } from '../../src/model/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const batch = { ids: Uint32Array.of(1, 2, 3), offsets: Uint32Array.of(0, 3), mask: Uint8Array.of(0, 1, 1) }
const gradient = Float32Array.of(0, -0.5, -0.5)

async function train(decoder: Decoder, optimizer: AdamW): Promise<void> {
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

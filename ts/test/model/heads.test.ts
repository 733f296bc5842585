// Tests of `decoder.ts` without log-probs: scalar heads, recomputed activations, costs.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AdamW, Decoder } from '../../src/model/index.js'
import { backend } from '../../src/native/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const batch = { ids: Uint32Array.of(1, 2, 3), offsets: Uint32Array.of(0, 3), mask: Uint8Array.of(1, 0, 1) }
const tokens = { ...batch, mask: Uint8Array.of(0, 1, 1) }

describe('withScalarHead', () => {
  it('reads numbers that learn, and leaves the first decoder as it was', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    const before = await decoder.toSafetensors()
    using model = await decoder.withScalarHead('v_head', { seed: 2 })
    expect(model.numParameters).toBe(decoder.numParameters + TINY.hidden_size + 1)
    expect((await model.score(tokens)).logProb).toEqual((await decoder.score(tokens)).logProb)
    using optimizer = new AdamW(model, { learningRate: 0.01 })
    const first = await model.forwardValues(batch)
    expect(first[1]).toBe(0)
    await model.backwardValues(Float32Array.of(-1, 0, -1))
    await optimizer.step()
    const second = await model.values(batch)
    expect(second[0]).toBeGreaterThan(first[0] as number)
    expect(second[2]).toBeGreaterThan(first[2] as number)
    expect(Buffer.compare(await decoder.toSafetensors(), before)).toBe(0)
    using again = Decoder.fromSafetensors(model.config, await model.toSafetensors())
    expect(await again.values(batch)).toEqual(second)
  })

  it.runIf(backend === 'native')('is saved and loaded as a folder', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'fulmar-head-'))
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using model = await decoder.withScalarHead('score', { seed: 2 })
    await model.saveFolder(folder)
    using again = await Decoder.fromFolder(folder)
    await rm(folder, { recursive: true })
    expect(again.config).toMatchObject({ scalar_head: 'score' })
    expect(await again.values(batch)).toEqual(await model.values(batch))
  })

  it.each(['score', 'v_head'] as const)(
    'is trained with an adapter, %s, in the files of PEFT, and stays where it is merged',
    async (head) => {
      using decoder = Decoder.fromSeed(TINY, { seed: 1 })
      using base = await decoder.withScalarHead(head, { seed: 2 })
      using model = await decoder.withScalarHead(head, { seed: 2 })
      await model.addLora({ r: 2, target_modules: ['q_proj', 'down_proj'] }, { seed: 3 })
      expect(await model.values(batch)).toEqual(await base.values(batch))
      expect(model.numTrainable).toBeLessThan(model.numParameters)
      using optimizer = new AdamW(model, { learningRate: 0.05 })
      const errors: number[] = []
      for (let step = 0; step < 30; step++) {
        const values = await model.forwardValues(batch)
        const apart = values.map((value, at) => (batch.mask[at] === 1 ? value - at : 0))
        errors.push(apart.reduce((sum, error) => sum + error * error, 0))
        await model.backwardValues(apart)
        await optimizer.step()
      }
      expect(errors.at(-1)).toBeLessThan(0.1 * (errors[0] ?? 0))
      const trained = await model.values(batch)
      const [config, bytes] = [await model.loraConfig(), await model.loraToSafetensors()]
      expect(config).toMatchObject({ modules_to_save: [head] })
      await base.loadLora(config, bytes)
      expect(await base.values(batch)).toEqual(trained)
      await expect(decoder.loadLora(config, bytes)).rejects.toThrow(code('INCOMPATIBLE'))
      await model.mergeLora()
      for (const [at, value] of (await model.values(batch)).entries())
        expect(value).toBeCloseTo(trained[at] ?? 0, 4)
    },
  )

  it('refuses what a head cannot do', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await expect(decoder.values(batch)).rejects.toThrow(code('INCOMPATIBLE'))
    await expect(decoder.withScalarHead('head' as 'score', { seed: 1 })).rejects.toThrow(code('UNKNOWN_NAME'))
    using model = await decoder.withScalarHead('score', { seed: 1 })
    await expect(model.score(tokens)).rejects.toThrow(code('INCOMPATIBLE'))
    await expect(model.withScalarHead('score', { seed: 1 })).rejects.toThrow(code('INCOMPATIBLE'))
    await expect(model.backwardValues(new Float32Array(3))).rejects.toThrow(code('CLOSED'))
  })
})

describe('recomputeActivations', () => {
  it('gives the same step with less memory', async () => {
    const deep = { ...TINY, num_hidden_layers: 8 }
    const step = async (recomputes: boolean) => {
      using decoder = Decoder.fromSeed(deep, { seed: 1 })
      await decoder.recomputeActivations(recomputes)
      using optimizer = new AdamW(decoder)
      await decoder.forward(tokens)
      await decoder.backward(Float32Array.of(0, -0.5, -0.5))
      const bytes = decoder.traceBytes
      await optimizer.step()
      return { bytes, weights: await decoder.toSafetensors() }
    }
    const [kept, recomputed] = [await step(false), await step(true)]
    expect(Buffer.compare(kept.weights, recomputed.weights)).toBe(0)
    expect(recomputed.bytes * 2).toBeLessThan(kept.bytes)
  })
})

describe('flops', () => {
  it('grows with the square of long sequences', () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    expect(decoder.flops(0)).toBe(0)
    expect(decoder.flops(20) - 2 * decoder.flops(10)).toBe(
      decoder.config.num_hidden_layers * TINY.hidden_size * 2 * (20 * 21 - 2 * 10 * 11),
    )
    expect(() => decoder.flops(-1)).toThrow(code('OUT_OF_RANGE'))
  })
})

/** Adapters of a decoder: those of PEFT, trained alone, merged. */

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { AdamW, Decoder, type LoraConfig } from '../../src/model/index.js'
import { TINY } from './tiny.js'

const batch = {
  ids: Uint32Array.of(1, 2, 3, 4, 1, 2, 7),
  offsets: Uint32Array.of(0, 4, 7),
  mask: Uint8Array.of(0, 0, 1, 1, 0, 0, 1),
}
const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const golden = (name: string) => readFileSync(new URL(`../../../tests/golden/model/${name}`, import.meta.url))

describe('an adapter of a Decoder', () => {
  it('reads the files of PEFT and writes the same weights', async () => {
    using decoder = Decoder.fromSafetensors(
      JSON.parse(golden('qwen2_untied/config.json').toString()),
      golden('qwen2_untied/model.safetensors'),
    )
    const config = JSON.parse(golden('qwen2_untied/lora/adapter_config.json').toString())
    const bytes = golden('qwen2_untied/lora/adapter_model.safetensors')
    await decoder.loadLora(config, bytes)
    const written = await decoder.loraConfig()
    expect(written).toMatchObject({ peft_type: 'LORA', r: config.r, lora_alpha: config.lora_alpha })
    const again = Decoder.fromSeed(decoder.config, { seed: 1 })
    await again.loadLora(written, await decoder.loraToSafetensors())
    expect(await again.loraToSafetensors()).toEqual(await decoder.loraToSafetensors())
  })

  it('is trained alone, and merged gives the same log-probs', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 3 })
    const before = await decoder.score(batch)
    await decoder.addLora({ r: 2, target_modules: ['q_proj', 'down_proj'] }, { seed: 5 })
    expect((await decoder.score(batch)).logProb).toEqual(before.logProb)
    expect(decoder.numTrainable).toBeLessThan(decoder.numParameters / 10)
    using optimizer = new AdamW(decoder, { learningRate: 0.01 })
    for (let step = 0; step < 5; step++) {
      await decoder.forward(batch)
      await decoder.backward(Float32Array.from(batch.mask, (scored) => -scored))
      await optimizer.step()
    }
    const trained = await decoder.score(batch)
    const total = ({ logProb }: { logProb: Float32Array }) => logProb.reduce((sum, value) => sum + value, 0)
    expect(total(trained)).toBeGreaterThan(total(before))
    await decoder.mergeLora()
    expect(decoder.numTrainable).toBe(decoder.numParameters)
    const merged = await decoder.score(batch)
    for (const [token, value] of merged.logProb.entries()) {
      expect(Math.abs(value - (trained.logProb[token] ?? 0))).toBeLessThan(1e-4)
    }
  })

  it('is refused by name where it cannot be', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 3 })
    const add = (config: LoraConfig) => decoder.addLora(config, { seed: 0 })
    await expect(add({ r: 0 })).rejects.toThrow(code('OUT_OF_RANGE'))
    await expect(add({ target_modules: ['lm_head'] })).rejects.toThrow(/target_modules/)
    await expect(add({ use_dora: true })).rejects.toThrow(code('INCOMPATIBLE'))
    await expect(decoder.mergeLora()).rejects.toThrow(code('EMPTY'))
    await expect(decoder.loraToSafetensors()).rejects.toThrow(code('EMPTY'))
    await add({ r: 1 })
    await expect(add({ r: 1 })).rejects.toThrow(code('INCOMPATIBLE'))
    await expect(decoder.loadLora({ r: 1 }, new Uint8Array(3))).rejects.toThrow(code('INCOMPATIBLE'))
    expect(decoder.numTrainable).toBe(2 * (16 + 16) + 2 * (16 + 8))
  })
})

/** Input of a model from outside: files, adapters, ids. A typed error names what is wrong with each. */

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { Decoder, Engine } from '../../src/model/index.js'
import { readSafetensors, Tensor, writeSafetensors } from '../../src/tensor/index.js'
import { TINY } from './tiny.js'

const refusal = (code: string, message: RegExp) =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringMatching(message) })

describe('weights', () => {
  const up = 'model.layers.1.mlp.up_proj.weight'
  const extra = 'model.layers.2.mlp.up_proj.weight'
  it.each<[string, (tensors: Map<string, Tensor>) => unknown, RegExp]>([
    ['that miss a tensor', (tensors) => tensors.delete(up), /layers\.1\.mlp\.up_proj\.weight/],
    [
      'that carry one too many',
      (tensors) => tensors.set(extra, Tensor.from([1])),
      /layers\.2\.mlp\.up_proj\.weight/,
    ],
    [
      'of another shape',
      (tensors) => tensors.set(up, Tensor.from([1])),
      /layers\.1\.mlp\.up_proj\.weight.*\[1\]/,
    ],
  ])('are refused by name: %s', async (_, change, message) => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    const tensors = new Map(readSafetensors(await decoder.toSafetensors()).tensors)
    using same = Decoder.fromSafetensors(TINY, writeSafetensors(tensors))
    expect(await same.toSafetensors()).toEqual(await decoder.toSafetensors())
    change(tensors)
    const bytes = writeSafetensors(tensors)
    expect(() => Decoder.fromSafetensors(TINY, bytes)).toThrow(refusal('INCOMPATIBLE', message))
  })
})

describe('adapters', () => {
  it('of another model are refused by the name of a tensor, and the decoder goes on', async () => {
    using wide = Decoder.fromSeed({ ...TINY, hidden_size: 32 }, { seed: 1 })
    await wide.addLora({ r: 2, target_modules: ['q_proj'] }, { seed: 1 })
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    const bytes = await wide.loraToSafetensors()
    const load = (targets: string[]) => decoder.loadLora({ r: 2, target_modules: targets }, bytes)
    await expect(load(['q_proj'])).rejects.toThrow(
      refusal('INCOMPATIBLE', /q_proj\.lora_A\.weight.*\[2, 32\]/),
    )
    await expect(load(['v_proj'])).rejects.toThrow(refusal('INCOMPATIBLE', /[qv]_proj/))
    await decoder.addLora({ r: 2, target_modules: ['q_proj'] }, { seed: 1 })
    expect(decoder.numTrainable).toBeLessThan(decoder.numParameters)
  })
})

describe('a GGUF file', () => {
  const bytes = readFileSync(new URL('../../../tests/golden/model/gguf_llama/tiny.gguf', import.meta.url))
  /** Counts of tensors and of metadata follow magic and version. */
  it.each<[string, number, bigint]>([
    ['tensors', 8, 2n ** 63n],
    ['tensors', 8, 2n ** 64n - 1n],
    ['tensors', 8, 2n ** 32n],
    ['entries of metadata', 16, 2n ** 64n - 1n],
    ['entries of metadata', 16, 2n ** 31n],
  ])(
    'with an absurd number of %s (at byte %i: %i) is refused before memory is taken',
    async (_, at, count) => {
      const absurd = Uint8Array.from(bytes)
      new DataView(absurd.buffer).setBigUint64(at, count, true)
      await expect(Decoder.fromGguf(absurd)).rejects.toThrow(
        refusal('LIMIT_EXCEEDED', /must hold at most \d+ (tensors|.*metadata|.*entries|.*values|.*)/),
      )
    },
  )

  it('with more tensors or entries than it holds is refused', async () => {
    for (const at of [8, 16]) {
      const more = Uint8Array.from(bytes)
      const view = new DataView(more.buffer)
      view.setBigUint64(at, view.getBigUint64(at, true) + 1n, true)
      const error = await Decoder.fromGguf(more).then(
        () => 'no error',
        (reason) => reason.code,
      )
      expect(['CORRUPT', 'LIMIT_EXCEEDED', 'UNKNOWN_NAME']).toContain(error)
    }
  })
})

describe('ids', () => {
  it('over the vocabulary are refused by their place, wherever they come from', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using engine = new Engine(decoder)
    const [offsets, mask] = [Uint32Array.of(0, 3), Uint8Array.of(0, 1, 1)]
    for (const id of [23, 2 ** 32 - 1]) {
      const ids = Uint32Array.of(1, 2, id)
      const wrong = refusal(
        'OUT_OF_RANGE',
        new RegExp(`^ids must be below vocab_size \\(23\\): got ${id} at 2`),
      )
      await expect(decoder.score({ ids, offsets, mask })).rejects.toThrow(wrong)
      await expect(decoder.forward({ ids, offsets, mask })).rejects.toThrow(wrong)
      await expect(engine.generate({ ids, seed: 1 }, { maxTokens: 1 })).rejects.toThrow(
        refusal('OUT_OF_RANGE', new RegExp(`${id}`)),
      )
    }
  })
})

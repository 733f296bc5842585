/** Decoders from folders and GGUF files. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { Decoder } from '../../src/model/index.js'
import { backend } from '../../src/native/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const golden = (name: string) =>
  fileURLToPath(new URL(`../../../tests/golden/model/${name}`, import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'fulmar-model-'))

afterAll(() => rmSync(folder, { recursive: true }))

describe('models of files', () => {
  it('come from GGUF on every backend, or are refused by name', async () => {
    const bytes = readFileSync(golden('gguf_llama/tiny.gguf'))
    using decoder = await Decoder.fromGguf(bytes)
    expect(decoder.config).toMatchObject({ model_type: 'llama', vocab_size: 64, tie_word_embeddings: true })
    await expect(Decoder.fromGguf(bytes.subarray(0, 100))).rejects.toThrow(code('CORRUPT'))
  })

  it.runIf(backend === 'native')('come from folders and go to them', async () => {
    using decoder = await Decoder.fromFolder(golden('qwen3_tied'), { version: 7 })
    expect(decoder.version).toBe(7)
    await decoder.saveFolder(join(folder, 'model'))
    using again = await Decoder.fromFolder(join(folder, 'model'))
    expect(await again.toSafetensors()).toEqual(await decoder.toSafetensors())
    await expect(Decoder.fromFolder(join(folder, 'none'))).rejects.toThrow(code('IO'))
  })

  it.runIf(backend === 'wasm')('say that folders are not to be had in WebAssembly', async () => {
    await expect(Decoder.fromFolder(folder)).rejects.toThrow(code('UNAVAILABLE'))
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await expect(decoder.saveFolder(folder)).rejects.toThrow(code('UNAVAILABLE'))
  })
})

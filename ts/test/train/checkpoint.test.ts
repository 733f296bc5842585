import { mkdtemp, readdir, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AdamW, Decoder } from '../../src/model/index.js'
import { hasCheckpoint, loadCheckpoint, loadOptimizer, saveCheckpoint } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const makeFolder = async () => join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'checkpoint')

describe('saveCheckpoint', () => {
  it.each(['f32', 'bf16'] as const)(
    'writes a folder that loads back with weights in %s, moments, state and files',
    async (dtype) => {
      const folder = await makeFolder()
      using decoder = Decoder.fromSeed(TINY, { seed: 1, dtype })
      using optimizer = new AdamW(decoder)
      await saveCheckpoint({ folder, decoder, optimizer, state: { step: 3 }, files: { 'note.txt': 'hello' } })
      const loaded = await loadCheckpoint(folder)
      using again = loaded.decoder
      using resumed = await loadOptimizer(folder, (state) => new AdamW(again, {}, state))
      expect(loaded.state).toMatchObject({ step: 3, policyVersion: 0 })
      expect(again.dtype).toBe(dtype)
      expect(Buffer.compare(await again.toSafetensors(), await decoder.toSafetensors())).toBe(0)
      expect(Buffer.compare(await resumed.toSafetensors(), await optimizer.toSafetensors())).toBe(0)
      const names = ['config.json', 'model.safetensors', 'note.txt', 'optimizer.safetensors', 'state.json']
      expect((await readdir(folder)).sort()).toEqual(names)
    },
  )

  it('replaces an older checkpoint whole and leaves nothing beside it', async () => {
    const folder = await makeFolder()
    using first = Decoder.fromSeed(TINY, { seed: 1 })
    using second = Decoder.fromSeed(TINY, { seed: 2 })
    await saveCheckpoint({ folder, decoder: first, files: { 'old.txt': '' } })
    await saveCheckpoint({ folder, decoder: second })
    expect(await readdir(folder)).not.toContain('old.txt')
    expect(await readdir(join(folder, '..'))).toEqual(['checkpoint'])
  })

  it('still finds the older checkpoint after a crash between its two renames', async () => {
    const folder = await makeFolder()
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await saveCheckpoint({ folder, decoder, state: { step: 5 } })
    await rename(folder, `${folder}.replaced`)
    expect(await hasCheckpoint(folder)).toBe(true)
    const { decoder: again, state } = await loadCheckpoint(folder)
    again[Symbol.dispose]()
    expect(state).toMatchObject({ step: 5 })
    await saveCheckpoint({ folder, decoder, state: { step: 6 } })
    expect(await readdir(join(folder, '..'))).toEqual(['checkpoint'])
  })

  it('says what a decoder says that has no weights any more, and leaves the older checkpoint', async () => {
    const folder = await makeFolder()
    const decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await saveCheckpoint({ folder, decoder })
    const optimizer = new AdamW(decoder)
    optimizer[Symbol.dispose]()
    await expect(saveCheckpoint({ folder, decoder, optimizer })).rejects.toThrow(code('CLOSED'))
    decoder[Symbol.dispose]()
    expect(await hasCheckpoint(folder)).toBe(true)
  })

  it('leaves the older checkpoint where the new one cannot be written', async () => {
    const folder = await makeFolder()
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await saveCheckpoint({ folder, decoder, state: { step: 1 } })
    const files = { 'no-such-folder/x': 'cannot be written' }
    await expect(saveCheckpoint({ folder, decoder, files })).rejects.toThrow(code('IO'))
    const { decoder: again, state } = await loadCheckpoint(folder)
    again[Symbol.dispose]()
    expect(state).toMatchObject({ step: 1 })
  })
})

describe('loadCheckpoint', () => {
  it('refuses missing, damaged and foreign files by path or tensor', async () => {
    const folder = await makeFolder()
    await expect(loadCheckpoint(folder)).rejects.toThrow(code('IO'))
    expect(await hasCheckpoint(folder)).toBe(false)
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await saveCheckpoint({ folder, decoder })
    await writeFile(join(folder, 'config.json'), JSON.stringify({ ...decoder.config, num_hidden_layers: 1 }))
    await expect(loadCheckpoint(folder)).rejects.toThrow(code('INCOMPATIBLE'))
    await writeFile(join(folder, 'config.json'), '[]')
    await expect(loadCheckpoint(folder)).rejects.toThrow(/config\.json must be a JSON object/)
    await writeFile(join(folder, 'config.json'), JSON.stringify(decoder.config))
    await truncate(join(folder, 'model.safetensors'), 1000)
    await expect(loadCheckpoint(folder)).rejects.toThrow(code('CORRUPT'))
    await rm(join(folder, 'model.safetensors'))
    await expect(loadCheckpoint(folder)).rejects.toThrow(/model\.safetensors/)
  })
})

import { mkdir, mkdtemp, readdir, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { createModel, loadModel, type Model } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { failing } from '../torchrl/envs/chats.js'

const SHAPE = { ...TINY, max_position_embeddings: 256 }
const fresh = (seed = 1) => createModel({ seed }, SHAPE)
const newFolder = async () => join(await mkdtemp(join(tmpdir(), 'fulmar-model-')), 'model')
const answer = (model: Model, seed = 0) => model.chat('Hi', { maxTokens: 8, seed })
const isWasm = process.env.FULMAR_TEST_BACKEND === 'wasm'

afterEach(() => void vi.unstubAllEnvs())

describe('createModel', () => {
  it('fixes the weights by a seed', async () => {
    using one = fresh(1)
    using same = fresh(1)
    using other = fresh(2)
    expect(await answer(one)).toEqual(await answer(same))
    expect(await answer(one)).not.toEqual(await answer(other))
  })

  it('refuses unknown keys and a missing seed', () => {
    expect(() => createModel({ sed: 1 } as never)).toThrow(failing('UNKNOWN_NAME', /seed/))
    expect(() => createModel({} as never)).toThrow(failing('MALFORMED', /seed/))
  })
})

describe('Model', () => {
  it('answers a text as it answers the conversation of it, another way with another seed', async () => {
    using model = fresh()
    const message = await answer(model)
    expect(message.role).toBe('assistant')
    expect(await model.chat([{ role: 'user', content: 'Hi' }], { maxTokens: 8 })).toEqual(message)
    expect(await answer(model, 7)).not.toEqual(message)
    const greedy = () =>
      model.chat('Hi', { maxTokens: 8, temperature: 0, seed: Math.floor(performance.now()) })
    expect(await greedy()).toEqual(await greedy())
  })

  it('refuses unknown options of a chat, and stops with its signal', async () => {
    using model = fresh()
    await expect(model.chat('Hi', { maxtokens: 1 } as never)).rejects.toThrow(
      failing('UNKNOWN_NAME', /maxTokens/),
    )
    await expect(model.chat('Hi', { signal: AbortSignal.abort() })).rejects.toThrow(failing('ABORTED'))
  })

  it('is the same after it was saved and loaded, with its adapter', async () => {
    using model = fresh()
    await model.decoder.addLora({ r: 2 }, { seed: 3 })
    const folder = await newFolder()
    await model.save(folder)
    using again = await loadModel(folder)
    expect(again.decoder.hasAdapter).toBe(true)
    expect(await again.decoder.toSafetensors()).toEqual(await model.decoder.toSafetensors())
    expect(await again.decoder.loraToSafetensors()).toEqual(await model.decoder.loraToSafetensors())
    expect(await answer(again)).toEqual(await answer(model))
    const names = await readdir(folder)
    for (const name of [
      'config.json',
      'model.safetensors',
      'adapter_model.safetensors',
      'adapter_config.json',
      'manifest.json',
    ])
      expect(names).toContain(name)
  })

  it('keeps its dtype and its precision through a file, but for another precision that is asked for', async () => {
    using model = createModel({ seed: 1, dtype: 'bf16', matmulPrecision: 'bf16' }, SHAPE)
    const folder = await newFolder()
    await model.save(folder)
    using again = await loadModel(folder)
    expect([again.decoder.dtype, again.decoder.matmulPrecision]).toEqual(['bf16', 'bf16'])
    using exact = await loadModel(folder, { matmulPrecision: 'f32' })
    expect([exact.decoder.dtype, exact.decoder.matmulPrecision]).toEqual(['bf16', 'f32'])
    expect(await answer(again)).toEqual(await answer(model))
  })

  it.skipIf(isWasm)('has the dtype that is asked for, and then the default precision', async () => {
    using model = createModel({ seed: 1, dtype: 'bf16', matmulPrecision: 'bf16' }, SHAPE)
    const folder = await newFolder()
    await model.save(folder)
    using wide = await loadModel(folder, { dtype: 'f32' })
    expect([wide.decoder.dtype, wide.decoder.matmulPrecision]).toEqual(['f32', 'f32'])
  })

  it('merges its adapter into the weights where it is asked to', async () => {
    using model = fresh()
    await model.decoder.addLora({ r: 2 }, { seed: 3 })
    const folder = await newFolder()
    await model.save(folder, { adapter: 'merged' })
    using again = await loadModel(folder)
    expect([model.decoder.hasAdapter, again.decoder.hasAdapter]).toEqual([false, false])
    await expect(model.save(folder, { adapter: 'inside' as never })).rejects.toThrow(
      failing('UNKNOWN_NAME', /adapter/),
    )
  })

  it.skipIf(isWasm)('writes its adapter alone, as PEFT has it', async () => {
    using model = fresh()
    const folder = await newFolder()
    await expect(model.save(folder, { adapter: 'alone' })).rejects.toThrow(failing('EMPTY'))
    await model.decoder.addLora({ r: 2 }, { seed: 3 })
    await model.save(folder, { adapter: 'alone' })
    expect((await readdir(folder)).sort()).toEqual([
      'adapter_config.json',
      'adapter_model.safetensors',
      'manifest.json',
    ])
    await expect(loadModel(folder)).rejects.toThrow(
      failing('INCOMPATIBLE', /an adapter alone; load its base/),
    )
  })
})

describe('loadModel', () => {
  it('names what a path must be, and offline the cache that lacks a model', async () => {
    vi.stubEnv('HF_HUB_CACHE', '/nowhere/hub')
    vi.stubEnv('HF_HUB_OFFLINE', '1')
    await expect(loadModel('./nowhere')).rejects.toThrow(
      failing('IO', /folder, a file, or a name on the hub: got \.\/nowhere/),
    )
    await expect(loadModel('Org/Name')).rejects.toThrow(
      failing('UNAVAILABLE', /Org\/Name@main must be in the cache \/nowhere\/hub.*offline/),
    )
    await expect(loadModel(7 as never)).rejects.toThrow(failing('MALFORMED', /path/))
    await expect(loadModel('.', { dytpe: 'f32' } as never)).rejects.toThrow(failing('UNKNOWN_NAME', /dtype/))
  })

  it('finds a model by its name in the cache, at the revision that main names, behind links', async () => {
    const cache = await mkdtemp(join(tmpdir(), 'fulmar-hub-'))
    const place = join(cache, 'models--Org--Name')
    using model = fresh()
    const blobs = join(place, 'blobs')
    await mkdir(join(place, 'refs'), { recursive: true })
    await model.save(blobs)
    const [older, newer] = ['a'.repeat(40), 'b'.repeat(40)]
    for (const revision of [older, newer])
      await mkdir(join(place, 'snapshots', revision), { recursive: true })
    for (const name of await readdir(blobs))
      await symlink(join('..', '..', 'blobs', name), join(place, 'snapshots', newer, name))
    await writeFile(join(place, 'refs', 'main'), `${newer}\n`)
    vi.stubEnv('HF_HUB_CACHE', cache)
    vi.stubEnv('HF_HUB_OFFLINE', '1')
    using found = await loadModel('Org/Name')
    expect(await answer(found)).toEqual(await answer(model))
  })
})

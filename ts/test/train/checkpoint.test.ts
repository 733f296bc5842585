import { execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { FulmarError, Rng } from '../../src/core/index.js'
import { AdamW, Decoder } from '../../src/model/index.js'
import { loadCheckpointOn, saveCheckpointOn } from '../../src/train/checkpoint.js'
import { CHECKPOINT_JSON_BYTES_MAX, CHECKPOINT_WEIGHTS_BYTES_MAX } from '../../src/train/checkpoint-folder.js'
import { hasCheckpoint, loadCheckpoint, loadOptimizer, saveCheckpoint } from '../../src/train/index.js'
import { TINY } from '../model/tiny.js'
import { MemoryDisk } from '../telemetry/memory-disk.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const refusal = (value: string, name: string) =>
  expect.objectContaining({ name: 'FulmarError', code: value, message: expect.stringContaining(name) })
const makeFolder = async () => join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'checkpoint')

describe('saveCheckpoint', () => {
  it.each(['f32', 'bf16'] as const)(
    'writes a folder that loads back with weights in %s, moments, state and files',
    async (dtype) => {
      const folder = await makeFolder()
      const matmulPrecision = dtype
      using decoder = Decoder.fromSeed(TINY, { seed: 1, dtype, matmulPrecision })
      using optimizer = new AdamW(decoder)
      await saveCheckpoint({ folder, decoder, optimizer, state: { step: 3 }, files: { 'note.txt': 'hello' } })
      const loaded = await loadCheckpoint(folder)
      using again = loaded.decoder
      using resumed = await loadOptimizer(folder, (state) => new AdamW(again, {}, state))
      expect(loaded.state).toMatchObject({ step: 3, policyVersion: 0 })
      expect([again.dtype, again.matmulPrecision]).toEqual([dtype, matmulPrecision])
      expect(Buffer.compare(await again.toSafetensors(), await decoder.toSafetensors())).toBe(0)
      expect(Buffer.compare(await resumed.toSafetensors(), await optimizer.toSafetensors())).toBe(0)
      const own = ['config.json', 'manifest.json', 'model.safetensors', 'model.safetensors.index.json']
      const names = [...own, 'note.txt', 'optimizer.safetensors', 'state.json']
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

/** Makes the manifest of a folder that of the files which are there now, as a writer of other files would. */
async function reseal(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name !== 'manifest.json')
  const entry = async (name: string) => {
    const bytes = await readFile(join(folder, name))
    return [name, { bytes: bytes.length, crc32: crc32(bytes).toString(16).padStart(8, '0') }] as const
  }
  const files = Object.fromEntries(await Promise.all(names.map(entry)))
  await writeFile(
    join(folder, 'manifest.json'),
    JSON.stringify({ format: 'fulmar manifest', version: 1, files }),
  )
}

describe('loadCheckpoint', () => {
  it('refuses missing, damaged and foreign files by path or tensor', async () => {
    const folder = await makeFolder()
    await expect(loadCheckpoint(folder)).rejects.toThrow(code('IO'))
    expect(await hasCheckpoint(folder)).toBe(false)
    expect(await hasCheckpoint(await mkdtemp(join(tmpdir(), 'fulmar-empty-')))).toBe(false)
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await saveCheckpoint({ folder, decoder })
    const put = async (name: string, text: string) => {
      await writeFile(join(folder, name), text)
      await expect(loadCheckpoint(folder)).rejects.toThrow(refusal('CORRUPT', name))
      await reseal(folder)
    }
    await put('config.json', JSON.stringify({ ...decoder.config, num_hidden_layers: 1 }))
    await expect(loadCheckpoint(folder)).rejects.toThrow(code('INCOMPATIBLE'))
    await put('config.json', '[]')
    await expect(loadCheckpoint(folder)).rejects.toThrow(/config\.json must be a JSON object/)
    await put('config.json', JSON.stringify(decoder.config))
    for (const state of [
      '{}',
      '{"policyVersion": -0.5, "dtype": "f32"}',
      '{"policyVersion": 1, "dtype": "f16"}',
      '{"policyVersion": 1, "dtype": "f32", "matmulPrecision": "tf32"}',
    ]) {
      await put('state.json', state)
      await expect(loadCheckpoint(folder)).rejects.toThrow(refusal('MALFORMED', 'state.json'))
    }
    await put('state.json', '{"policyVersion": 1, "dtype": "f32"}')
    using older = (await loadCheckpoint(folder)).decoder
    expect(older.matmulPrecision).toBe('f32')
    await truncate(join(folder, 'model.safetensors'), 1000)
    await expect(loadCheckpoint(folder)).rejects.toThrow(refusal('CORRUPT', 'model.safetensors'))
    await rm(join(folder, 'model.safetensors'))
    await expect(loadCheckpoint(folder)).rejects.toThrow(/model\.safetensors/)
  })

  it('refuses a folder by the name of any file that is missing, cut, longer, flipped, a pipe or one too many', async () => {
    const folder = await makeFolder()
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await decoder.addLora({ r: 2 }, { seed: 2 })
    using optimizer = new AdamW(decoder)
    await saveCheckpoint({ folder, decoder, optimizer, state: { step: 3 }, files: { 'note.txt': 'hello' } })
    const load = async () => {
      const { decoder: again } = await loadCheckpoint(folder)
      using _ = again
      const resumed = await loadOptimizer(folder, (state) => new AdamW(again, {}, state))
      resumed[Symbol.dispose]()
    }
    await load()
    for (const name of await readdir(folder)) {
      const path = join(folder, name)
      const whole = await readFile(path)
      const wrong = name === 'manifest.json' ? /manifest\.json/ : refusal('CORRUPT', name)
      for (const at of [0, whole.length >> 1, whole.length - 2]) {
        const flipped = Uint8Array.from(whole)
        flipped[at] = (flipped[at] ?? 0) ^ 16
        await writeFile(path, flipped)
        // A flipped manifest lists other files, or is no manifest.
        await expect(load()).rejects.toThrow(name === 'manifest.json' ? /must/ : wrong)
        await writeFile(path, whole.subarray(0, at))
        await expect(load()).rejects.toThrow(wrong)
      }
      if (name !== 'manifest.json') {
        await writeFile(path, Buffer.concat([whole, Uint8Array.of(10)]))
        await expect(load()).rejects.toThrow(wrong)
      }
      await rm(path)
      await expect(load()).rejects.toThrow(new RegExp(name))
      execFileSync('mkfifo', [path])
      await expect(load()).rejects.toThrow(refusal('CORRUPT', name))
      await rm(path)
      await writeFile(path, whole)
    }
    await writeFile(join(folder, 'extra.bin'), '')
    await expect(load()).rejects.toThrow(refusal('CORRUPT', 'extra.bin'))
    await rename(join(folder, 'extra.bin'), join(folder, '.extra.bin'))
    await load()
  })

  const numDamages = Number(process.env.FULMAR_DAMAGES ?? 200)
  it(`is refused or right after each of ${numDamages} damages, also where all checksums fit`, {
    timeout: Math.max(60_000, 1000 * numDamages),
  }, async () => {
    const [folder, other] = [await makeFolder(), await makeFolder()]
    for (const [at, seed] of [
      [folder, 1],
      [other, 2],
    ] as const) {
      using decoder = Decoder.fromSeed({ ...TINY, num_hidden_layers: 1 }, { seed })
      if (seed === 1) await decoder.addLora({ r: 2 }, { seed: 2 })
      using optimizer = new AdamW(decoder)
      await saveCheckpoint({ folder: at, decoder, optimizer, state: { step: seed } })
    }
    const load = async () => {
      const { decoder, state } = await loadCheckpoint(folder)
      using _ = decoder
      using optimizer = await loadOptimizer(folder, (bytes) => new AdamW(decoder, {}, bytes))
      const weights = [await decoder.toSafetensors(), await optimizer.toSafetensors()]
      return { state, weights: weights.map((bytes) => Buffer.from(bytes).toString('base64')) }
    }
    const whole = await load()
    const names = (await readdir(folder)).sort()
    const files = new Map<string, Buffer>()
    for (const name of names) files.set(name, await readFile(join(folder, name)))
    const rng = Rng.fromSeed(7)
    let numRefused = 0
    for (let index = 0; index < numDamages; index++) {
      const name = names[rng.below(names.length)] ?? ''
      const isSealed = name !== 'manifest.json' && rng.below(3) === 0
      const what = await damage(folder, other, name, rng)
      if (isSealed) await reseal(folder).catch(() => undefined)
      const place = `damage ${index}: ${what} of ${name}${isSealed ? ', sealed again' : ''}`
      const end = await load().catch((error: unknown) => error)
      if (end instanceof Error) {
        expect(end, place).toBeInstanceOf(FulmarError)
        expect((end as FulmarError).code, place).not.toBe('PANIC')
        numRefused += 1
      } else if (!isSealed) expect(end, place).toEqual(whole)
      await rm(folder, { recursive: true })
      await mkdir(folder)
      for (const [file, bytes] of files) await writeFile(join(folder, file), bytes)
    }
    expect(await load()).toEqual(whole)
    // A bit of a weight that is sealed again is another weight; all else must be noticed.
    expect(numRefused).toBeGreaterThan(numDamages * 0.7)
  })

  it('has limits that a manifest cannot talk it out of', async () => {
    const folder = await makeFolder()
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await saveCheckpoint({ folder, decoder })
    const manifest = JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8'))
    for (const [name, bytes] of [
      ['config.json', CHECKPOINT_JSON_BYTES_MAX],
      ['model.safetensors', CHECKPOINT_WEIGHTS_BYTES_MAX],
    ] as const) {
      const claim = async (size: number) => {
        const files = { ...manifest.files, [name]: { bytes: size, crc32: '00000000' } }
        await writeFile(join(folder, 'manifest.json'), JSON.stringify({ ...manifest, files }))
      }
      await claim(bytes + 1)
      await expect(loadCheckpoint(folder)).rejects.toThrow(refusal('LIMIT_EXCEEDED', name))
      await claim(bytes)
      await expect(loadCheckpoint(folder)).rejects.toThrow(refusal('CORRUPT', name))
    }
  })
})

/** Spoils a file of a checkpoint in one of many ways and says how; `other` is another whole checkpoint. */
async function damage(folder: string, other: string, name: string, rng: Rng): Promise<string> {
  const path = join(folder, name)
  const bytes = await readFile(path)
  const at = rng.below(bytes.length)
  switch (rng.below(9)) {
    case 0: {
      await truncate(path, at)
      return `a cut at ${at}`
    }
    case 1: {
      bytes.subarray(at, at + 64).fill(0)
      await writeFile(path, bytes)
      return `64 zeros at ${at}`
    }
    case 2: {
      await rm(path)
      return 'the loss'
    }
    case 3: {
      const from = join(other, name)
      await writeFile(path, await readFile(from).catch(() => ''))
      return 'an exchange for that of another checkpoint'
    }
    case 4: {
      await rm(path)
      await mkdir(path)
      return 'a folder in the place'
    }
    case 5: {
      await rm(path)
      await symlink(join(other, name), path)
      return 'a link in the place'
    }
    case 6: {
      await writeFile(join(folder, 'extra.safetensors'), bytes)
      return 'a copy'
    }
    case 7: {
      const piece = bytes.subarray(rng.below(bytes.length)).subarray(0, 40)
      await writeFile(path, Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at)]))
      return `a piece once more at ${at}`
    }
    default: {
      bytes[at] = (bytes[at] ?? 0) ^ (1 << rng.below(8))
      await writeFile(path, bytes)
      return `a flipped bit at ${at}`
    }
  }
}

describe('a checkpoint of an adapter', () => {
  const batch = { ids: Uint32Array.of(1, 2, 3), offsets: Uint32Array.of(0, 3), mask: Uint8Array.of(0, 1, 1) }
  const step = async (decoder: Decoder, optimizer: AdamW) => {
    await decoder.forward(batch)
    await decoder.backward(Float32Array.of(0, -0.5, -0.5))
    await optimizer.step({ learningRate: 0.05 })
  }

  it.each(['f32', 'bf16'] as const)(
    'holds the adapter as PEFT has it, with moments; resumed it takes the same steps (%s)',
    async (dtype) => {
      const folder = await makeFolder()
      using decoder = Decoder.fromSeed({ ...TINY, eos_token_id: 2 }, { seed: 1, dtype })
      await decoder.addLora({ r: 2, lora_alpha: 16, target_modules: ['q_proj', 'up_proj'] }, { seed: 2 })
      using optimizer = new AdamW(decoder)
      for (let index = 0; index < 3; index++) await step(decoder, optimizer)
      await saveCheckpoint({ folder, decoder, optimizer, state: { step: 3 } })
      const names = ['adapter_config.json', 'adapter_model.safetensors', 'generation_config.json']
      expect(await readdir(folder)).toEqual(expect.arrayContaining(names))
      const { decoder: again, state } = await loadCheckpoint(folder)
      using _ = again
      using resumed = await loadOptimizer(folder, (bytes) => new AdamW(again, {}, bytes))
      expect(state).toMatchObject({ step: 3, policyVersion: 3 })
      expect([again.version, again.hasAdapter, again.numTrainable]).toEqual([3, true, decoder.numTrainable])
      for (let index = 0; index < 3; index++) {
        await step(decoder, optimizer)
        await step(again, resumed)
      }
      expect(await again.loraToSafetensors()).toEqual(await decoder.loraToSafetensors())
      expect(await again.toSafetensors()).toEqual(await decoder.toSafetensors())
      expect(await resumed.toSafetensors()).toEqual(await optimizer.toSafetensors())
    },
  )

  it.each(['adapter_config.json', 'adapter_model.safetensors'])(
    'never loads as the base alone where %s was left out',
    async (name) => {
      const folder = await makeFolder()
      using decoder = Decoder.fromSeed(TINY, { seed: 1 })
      await decoder.addLora({ r: 2 }, { seed: 2 })
      await saveCheckpoint({ folder, decoder })
      await rm(join(folder, name))
      await reseal(folder)
      await expect(loadCheckpoint(folder)).rejects.toThrow(refusal('IO', name))
    },
  )

  it('keeps its moments from weights without it and from an adapter of another shape', async () => {
    const folder = await makeFolder()
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    await decoder.addLora({ r: 2 }, { seed: 2 })
    using optimizer = new AdamW(decoder)
    await saveCheckpoint({ folder, decoder, optimizer })
    using plain = Decoder.fromSeed(TINY, { seed: 1 })
    const load = () => loadOptimizer(folder, (bytes) => new AdamW(plain, {}, bytes))
    await expect(load()).rejects.toThrow(code('INCOMPATIBLE'))
    await plain.addLora({ r: 3 }, { seed: 2 })
    await expect(load()).rejects.toThrow(code('INCOMPATIBLE'))
  })
})

describe('saveCheckpoint, whatever fails', () => {
  const folder = '/runs/one/checkpoint'
  const stepOf = async (disk: MemoryDisk) => {
    const { decoder, state } = await loadCheckpointOn(disk, folder)
    decoder[Symbol.dispose]()
    return state.step
  }
  /** A disk with a checkpoint of step 1, and the save of step 2 that fails at call `at`. */
  const saving = async (decoder: Decoder, at: number, forever: boolean) => {
    const disk = new MemoryDisk()
    await disk.makeFolder('/runs/one')
    for (const path of ['/', '/runs', '/runs/one']) await disk.syncFolder(path)
    await saveCheckpointOn(disk, { folder, decoder, state: { step: 1 } })
    disk.numCalls = 0
    disk.fails = { at, code: 'ENOSPC', forever }
    const outcome = await saveCheckpointOn(disk, { folder, decoder, state: { step: 2 } }).then(
      () => 'done' as const,
      (error: unknown) => error,
    )
    disk.fails = undefined
    return { disk, outcome }
  }

  it('leaves the older checkpoint and nothing beside it where one call fails, whichever it is', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    let numFailures = 0
    for (let at = 1; at < 100; at++) {
      const { disk, outcome } = await saving(decoder, at, false)
      const wasReached = disk.numCalls >= at
      expect(await stepOf(disk)).toBe(outcome === 'done' ? 2 : 1)
      if (outcome === 'done' && !wasReached) break
      if (outcome === 'done') continue
      numFailures += 1
      expect(outcome).toMatchObject({
        name: 'FulmarError',
        code: 'IO',
        message: expect.stringMatching(/disk is full/),
      })
      expect(await disk.names('/runs/one')).toEqual(['checkpoint'])
    }
    expect(numFailures).toBeGreaterThan(12)
  })

  it('is the older checkpoint or the new one after a crash at any call, and the new one once it is done', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    const seen = new Set<unknown>()
    for (let at = 1; at < 100; at++) {
      const { disk, outcome } = await saving(decoder, at, true)
      for (const names of ['synced', 'all'] as const) {
        const step = await stepOf(disk.afterCrash(names))
        expect(outcome === 'done' ? [2] : [1, 2]).toContain(step)
        seen.add(step)
        // The next save works on what the crash left.
        const after = disk.afterCrash(names)
        await saveCheckpointOn(after, { folder, decoder, state: { step: 3 } })
        expect([await stepOf(after), await after.names('/runs/one')]).toEqual([3, ['checkpoint']])
      }
      if (outcome === 'done' && disk.numCalls < at) break
    }
    expect(seen).toEqual(new Set([1, 2]))
  })

  it('never removes the only whole checkpoint when an earlier save had crashed between its renames', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    for (let at = 1; at < 40; at++) {
      const disk = new MemoryDisk()
      await disk.makeFolder('/runs/one')
      await saveCheckpointOn(disk, { folder, decoder, state: { step: 1 } })
      await disk.rename(folder, `${folder}.replaced`)
      for (const path of ['/', '/runs', '/runs/one']) await disk.syncFolder(path)
      disk.numCalls = 0
      disk.fails = { at, code: 'EIO', forever: true }
      await saveCheckpointOn(disk, { folder, decoder, state: { step: 2 } }).catch(() => undefined)
      disk.fails = undefined
      for (const names of ['synced', 'all'] as const)
        expect([1, 2]).toContain(await stepOf(disk.afterCrash(names)))
    }
  })

  it('refuses names of files that are taken or leave the folder', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    const save = (name: string) =>
      saveCheckpointOn(new MemoryDisk(), { folder, decoder, files: { [name]: '' } })
    for (const name of ['../out', 'in/side', '/root', '.hidden', 'a\\b'])
      await expect(save(name)).rejects.toThrow(code('IO'))
    for (const name of ['state.json', 'model.safetensors', 'manifest.json'])
      await expect(save(name)).rejects.toThrow(refusal('INCOMPATIBLE', name))
  })
})

/** Checkpoints: a folder that is there whole or not at all. */

import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import { Decoder, type DecoderConfig, type Optimizer } from '../model/index.js'

/** What a checkpoint keeps besides weights and moments: plain JSON, such as where the data stands. */
export type CheckpointState = Readonly<Record<string, unknown>>

/** Options of {@link saveCheckpoint}. */
export interface SaveCheckpointOptions {
  /** Replaced if it is there. */
  readonly folder: string
  /** Written as `model.safetensors` and `config.json`, as Hugging Face lays them out. */
  readonly decoder: Decoder
  /** Written as `optimizer.safetensors`. */
  readonly optimizer?: Optimizer
  /** Written as `state.json`. */
  readonly state?: CheckpointState
  /** Further files by name, such as a tokenizer. */
  readonly files?: Readonly<Record<string, string>>
}

/** A checkpoint that was read. The decoder is the caller's to dispose. */
export interface Checkpoint {
  readonly decoder: Decoder
  readonly state: CheckpointState
}

/**
 * Writes a checkpoint: all files into a temporary folder beside it, each synced, then one rename.
 *
 * @throws {FulmarError} `IO` if the system refuses; an older checkpoint of that name is then still there.
 *
 * @example
 * ```ts
 * import { Decoder, loadCheckpoint, saveCheckpoint } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'policy')
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * await saveCheckpoint({ folder, decoder, state: { step: 3 } })
 * const { decoder: again, state } = await loadCheckpoint(folder)
 * assert.deepEqual(await again.toSafetensors(), await decoder.toSafetensors())
 * assert.equal(state.step, 3)
 * again[Symbol.dispose]()
 * ```
 */
export async function saveCheckpoint(options: SaveCheckpointOptions): Promise<void> {
  checkKnownKeys(
    'options',
    options,
    ['folder', 'decoder', 'optimizer', 'state', 'files'],
    ['folder', 'decoder'],
  )
  const { folder, decoder, optimizer, state = {}, files = {} } = options
  const { version: policyVersion, dtype } = decoder
  const texts: Readonly<Record<string, string>> = {
    'config.json': `${JSON.stringify(decoder.config, null, 2)}\n`,
    'state.json': `${JSON.stringify({ ...state, policyVersion, dtype })}\n`,
    ...files,
  }
  const writing = `${folder}.writing`
  const replaced = `${folder}.replaced`
  try {
    await rm(writing, { recursive: true, force: true })
    await mkdir(writing, { recursive: true })
    for (const [name, text] of Object.entries(texts)) await writeSynced(join(writing, name), text)
    // One after the other, as the bytes of both need not be in memory together.
    await writeSynced(join(writing, 'model.safetensors'), await decoder.toSafetensors())
    if (optimizer) await writeSynced(join(writing, 'optimizer.safetensors'), await optimizer.toSafetensors())
    await rm(replaced, { recursive: true, force: true })
    await rename(folder, replaced).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
    })
    await rename(writing, folder)
    await syncFolder(dirname(folder))
    await rm(replaced, { recursive: true, force: true })
  } catch (cause) {
    if (cause instanceof FulmarError) throw cause
    throw new FulmarError('IO', `checkpoint folder must be writable: got ${folder}`, { cause })
  }
}

/**
 * Reads the weights of a checkpoint that {@link saveCheckpoint} wrote; {@link Decoder.fromFolder} reads models of others.
 *
 * @throws {FulmarError} `IO` if a file cannot be read; `CORRUPT` or `MALFORMED` if it is damaged; `INCOMPATIBLE` if the weights
 * are those of another architecture than `config.json` says.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder, hasCheckpoint, loadCheckpoint, loadOptimizer, saveCheckpoint } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'checkpoint')
 * assert.equal(await hasCheckpoint(folder), false)
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new AdamW(decoder)
 * await saveCheckpoint({ folder, decoder, optimizer })
 * assert.equal(await hasCheckpoint(folder), true)
 * using again = (await loadCheckpoint(folder)).decoder
 * using resumed = await loadOptimizer(folder, (state) => new AdamW(again, {}, state))
 * assert.deepEqual(await resumed.toSafetensors(), await optimizer.toSafetensors())
 * ```
 */
export async function loadCheckpoint(folder: string): Promise<Checkpoint> {
  checkGiven('folder', folder)
  const whole = await wholeFolder(folder)
  const config = parse(join(whole, 'config.json'), await read(join(whole, 'config.json')))
  const statePath = join(whole, 'state.json')
  const stateBytes = await readFile(statePath).catch(() => undefined)
  const state = stateBytes ? parse(statePath, stateBytes) : {}
  const version = typeof state.policyVersion === 'number' ? state.policyVersion : 0
  const bytes = await read(join(whole, 'model.safetensors'))
  const dtype = state.dtype === 'bf16' ? 'bf16' : 'f32'
  return { decoder: Decoder.fromSafetensors(config as DecoderConfig, bytes, { version, dtype }), state }
}

/**
 * The optimiser of a checkpoint, which `make` makes of its file.
 * @throws {FulmarError} `IO`, `CORRUPT` or `INCOMPATIBLE`.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder, loadOptimizer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * await assert.rejects(loadOptimizer('/nowhere', (state) => new AdamW(decoder, {}, state)), { code: 'IO' })
 * ```
 */
export async function loadOptimizer<T extends Optimizer>(
  folder: string,
  make: (state: Uint8Array) => T,
): Promise<T> {
  checkGiven('folder', folder)
  return make(await read(join(await wholeFolder(folder), 'optimizer.safetensors')))
}

/**
 * Whether a whole checkpoint is at `folder`.
 *
 * @example
 * ```ts
 * import { hasCheckpoint } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(await hasCheckpoint('/nowhere'), false)
 * ```
 */
export async function hasCheckpoint(folder: string): Promise<boolean> {
  const names: string[] = await readdir(await wholeFolder(folder)).catch(() => [])
  return names.includes('model.safetensors')
}

/**
 * Removes a checkpoint, if there is one.
 * @throws {FulmarError} `IO` if the system refuses.
 *
 * @example
 * ```ts
 * import { hasCheckpoint, removeCheckpoint } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * await removeCheckpoint('/nowhere')
 * assert.equal(await hasCheckpoint('/nowhere'), false)
 * ```
 */
export async function removeCheckpoint(folder: string): Promise<void> {
  for (const path of [`${folder}.replaced`, folder]) {
    await rm(path, { recursive: true, force: true }).catch((cause: unknown) => {
      throw new FulmarError('IO', `checkpoint folder must be removable: got ${path}`, { cause })
    })
  }
}

/** `folder`; or, after a crash between the two renames of a save, the older checkpoint that stood aside. */
async function wholeFolder(folder: string): Promise<string> {
  const isThere = async (path: string) => (await readdir(path).catch(() => [])).length > 0
  return !(await isThere(folder)) && (await isThere(`${folder}.replaced`)) ? `${folder}.replaced` : folder
}

async function writeSynced(path: string, data: string | Uint8Array): Promise<void> {
  const file = await open(path, 'w')
  try {
    await file.writeFile(data)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Makes a rename last; systems that cannot sync a folder keep its names safe by themselves. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path).catch(() => undefined)
  await folder?.sync().catch(() => undefined)
  await folder?.close()
}

async function read(path: string): Promise<Buffer> {
  return await readFile(path).catch((cause: unknown) => {
    throw new FulmarError('IO', `path must be a readable file: got ${path}`, { cause })
  })
}

function parse(path: string, bytes: Buffer): Record<string, unknown> {
  try {
    const json: unknown = JSON.parse(bytes.toString('utf8'))
    if (typeof json === 'object' && json !== null && !Array.isArray(json))
      return json as Record<string, unknown>
  } catch {
    // Told below, with the path.
  }
  throw new FulmarError('MALFORMED', `${path} must be a JSON object: got something else`)
}

/** Checkpoints: folders that are written atomically. */

import { basename } from 'node:path'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import {
  Decoder,
  type DecoderConfig,
  type LoraConfig,
  type MatmulPrecision,
  type Optimizer,
  type WeightDtype,
} from '../model/index.js'
import { type Disk, nodeDisk, unwritable } from '../telemetry/disk.js'
import { CheckedFolder, type FolderFile, namesOf, wholeFolder, writeFolder } from './checkpoint-folder.js'

const CONFIG = 'config.json'
const WEIGHTS = 'model.safetensors'
const ADAPTER_CONFIG = 'adapter_config.json'
const ADAPTER = 'adapter_model.safetensors'
const MOMENTS = 'optimizer.safetensors'
/** @internal File that marks a folder as a checkpoint. */
export const CHECKPOINT_STATE = 'state.json'
/** Reserved names, which `files` may not use. */
const RESERVED = [
  CONFIG,
  WEIGHTS,
  ADAPTER_CONFIG,
  ADAPTER,
  MOMENTS,
  CHECKPOINT_STATE,
  'manifest.json',
  `${WEIGHTS}.index.json`,
]

/** State of a checkpoint besides weights and moments: plain JSON, such as the position in the data. */
export type CheckpointState = Readonly<Record<string, unknown>>

/** Options of {@link saveCheckpoint}. */
export interface SaveCheckpointOptions {
  /** Folder to write; replaced if it exists. */
  readonly folder: string
  /**
   * Written as `model.safetensors` and `config.json`, as Hugging Face lays them out, with the files of the folder that it was loaded from
   * (tokenizer, chat template, `generation_config.json`); an adapter as PEFT's `adapter_model.safetensors` and `adapter_config.json`.
   */
  readonly decoder: Decoder
  /** Written as `optimizer.safetensors`. */
  readonly optimizer?: Optimizer
  /** Written as `state.json`. */
  readonly state?: CheckpointState
  /** Additional files by name, such as a tokenizer. Names must be plain and not reserved. */
  readonly files?: Readonly<Record<string, string>>
}

/** A checkpoint that was read. The caller disposes the decoder. */
export interface Checkpoint {
  readonly decoder: Decoder
  readonly state: CheckpointState
}

/**
 * Writes a checkpoint: all files into a temporary folder next to it, each synced, then a `manifest.json` with
 * their checksums, then two renames. If a save stops at any point, the older checkpoint or the new one is
 * complete.
 *
 * @throws {FulmarError} `IO` if the system fails (the message names a full disk) or a name in `files` has a
 * folder; `INCOMPATIBLE` if it is a reserved name; `NON_FINITE` for weights that are not finite. After an
 * error an older checkpoint of that name is unchanged, and no temporary folder is left.
 *
 * @example
 * ```ts
 * import { Decoder } from 'fulmar'
 * import { loadCheckpoint, saveCheckpoint } from 'fulmar/train'
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
  await saveCheckpointOn(nodeDisk, options)
}

/** @internal {@link saveCheckpoint} on any disk. */
export async function saveCheckpointOn(disk: Disk, options: SaveCheckpointOptions): Promise<void> {
  const { folder, decoder, optimizer, state = {}, files = {} } = options
  for (const name of Object.keys(files)) checkName(name)
  const { version: policyVersion, dtype, matmulPrecision } = decoder
  const given = Object.entries(files).map(([name, text]): FolderFile => [name, () => text])
  const held = (await decoder.folderFileNames()).filter((name) => !(name in files))
  await writeFolder(disk, folder, [
    ...held.map((name): FolderFile => [name, () => decoder.folderFile(name)]),
    ...given,
    [CHECKPOINT_STATE, () => `${JSON.stringify({ ...state, policyVersion, dtype, matmulPrecision })}\n`],
    [WEIGHTS, () => decoder.toSafetensors()],
    ...(decoder.hasAdapter ? [[ADAPTER, () => decoder.loraToSafetensors()] as const] : []),
    ...(optimizer ? [[MOMENTS, () => optimizer.toSafetensors()] as const] : []),
  ])
}

/** Rejects names outside the folder and reserved names. */
function checkName(name: string): void {
  if (basename(name) !== name || name.startsWith('.') || name.includes('\\')) {
    throw new FulmarError('IO', `files must have plain names: got ${JSON.stringify(name)}`)
  }
  if (RESERVED.includes(name))
    throw new FulmarError(
      'INCOMPATIBLE',
      `files must have other names than ${RESERVED.join(', ')}: got ${name}`,
    )
}

/**
 * Reads a checkpoint of {@link saveCheckpoint}: weights, adapter, version and state, bit for bit.
 * `Decoder.fromFolder` reads models of other programs. Every file is verified against the manifest; pipes and
 * devices are never opened.
 *
 * @throws {FulmarError} `IO` if a file cannot be read or there is no manifest; `CORRUPT` if one is missing,
 * damaged or was not saved with the others; `MALFORMED` for a JSON file of another form; `LIMIT_EXCEEDED` for
 * one above 256 MiB or 64 GiB. The message names the file. `INCOMPATIBLE` if the weights do not fit the
 * architecture of `config.json`.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder } from 'fulmar'
 * import { hasCheckpoint, loadCheckpoint, loadOptimizer, saveCheckpoint } from 'fulmar/train'
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
  return await loadCheckpointOn(nodeDisk, folder)
}

/** @internal {@link loadCheckpoint} on any disk. */
export async function loadCheckpointOn(disk: Disk, folder: string): Promise<Checkpoint> {
  const files = await CheckedFolder.open(disk, folder)
  const [config, state] = [await files.readJson(CONFIG), await files.readJson(CHECKPOINT_STATE)]
  // Checkpoints from before there was a choice have no precision.
  const { policyVersion: version, dtype, matmulPrecision = 'f32' } = state
  const isKnown = (name: unknown): name is WeightDtype & MatmulPrecision => name === 'f32' || name === 'bf16'
  if (
    typeof version !== 'number' ||
    !Number.isSafeInteger(version) ||
    !isKnown(dtype) ||
    !isKnown(matmulPrecision)
  ) {
    const detail = `${CHECKPOINT_STATE} of ${folder} must have the policyVersion, the dtype and the matmulPrecision of its weights`
    throw new FulmarError('MALFORMED', detail)
  }
  const decoder = Decoder.fromSafetensors(config as DecoderConfig, await files.read(WEIGHTS), {
    version,
    dtype,
    matmulPrecision,
  })
  try {
    if (files.names.has(ADAPTER) || files.names.has(ADAPTER_CONFIG)) {
      const lora: LoraConfig = await files.readJson(ADAPTER_CONFIG)
      await decoder.restoreLora(lora, await files.read(ADAPTER))
    }
    const rest = [...files.names].filter((name) => !RESERVED.includes(name))
    for (const name of rest) decoder.keepFile(name, await files.read(name))
    await files.check([...files.names].filter((name) => name.endsWith('.index.json')))
    return { decoder, state }
  } catch (error) {
    decoder[Symbol.dispose]()
    throw error
  }
}

/**
 * Restores the optimizer of a checkpoint; `make` constructs it from the file.
 * @throws {FulmarError} As {@link loadCheckpoint}; `INCOMPATIBLE` for moments of other weights, such as those
 * of an adapter that the decoder does not have.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder } from 'fulmar'
 * import { loadOptimizer } from 'fulmar/train'
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
  return make(await (await CheckedFolder.open(nodeDisk, folder)).read(MOMENTS))
}

/**
 * Returns true if `folder` holds a checkpoint; {@link loadCheckpoint} verifies it.
 * @throws {FulmarError} `IO` if the folder exists and cannot be read.
 *
 * @example
 * ```ts
 * import { hasCheckpoint } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(await hasCheckpoint('/nowhere'), false)
 * ```
 */
export async function hasCheckpoint(folder: string): Promise<boolean> {
  const names = await namesOf(nodeDisk, await wholeFolder(nodeDisk, folder))
  return names !== undefined && names.length > 0
}

/**
 * Removes a checkpoint, if there is one.
 * @throws {FulmarError} `IO` if the system fails.
 *
 * @example
 * ```ts
 * import { hasCheckpoint, removeCheckpoint } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * await removeCheckpoint('/nowhere')
 * assert.equal(await hasCheckpoint('/nowhere'), false)
 * ```
 */
export async function removeCheckpoint(folder: string): Promise<void> {
  for (const path of [`${folder}.replaced`, folder]) {
    await nodeDisk.remove(path).catch((cause: unknown) => {
      throw unwritable('checkpoint folder', path, cause)
    })
  }
}

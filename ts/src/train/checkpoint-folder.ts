/**
 * Atomic writes and checked reads of a folder; an error names the file that is missing, foreign or damaged.
 *
 * ```text
 * X.writing/ all files, each synced     X.writing/manifest.json, last     sync X.writing
 * X -> X.replaced     X.writing -> X     sync the folder around them     remove X.replaced
 * ```
 * If a save stops at any point, X or X.replaced is complete. Node only.
 */

import { dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import { describeValue, FulmarError, unreadable } from '../core/index.js'
import { type Disk, unwritable } from '../telemetry/disk.js'

/** Largest JSON file of a checkpoint, in bytes. */
export const CHECKPOINT_JSON_BYTES_MAX = 2 ** 28

/** Largest file of weights or moments that a checkpoint reads, in bytes. */
export const CHECKPOINT_WEIGHTS_BYTES_MAX = 2 ** 36

const MANIFEST = 'manifest.json'
const FORMAT = 'fulmar manifest'

/** Entry of a manifest for one file. */
interface ManifestEntry {
  readonly bytes: number
  /** Checksum as eight hexadecimal digits. */
  readonly crc32: string
}

/** A file to write; its bytes are made just before the write, to keep only one file in memory. */
export type FolderFile = readonly [name: string, data: () => string | Uint8Array | Promise<Uint8Array>]

/**
 * Writes `files` as `folder`, replacing an older one.
 * @throws {FulmarError} `IO` if the system fails; errors of `data`.
 */
export async function writeFolder(disk: Disk, folder: string, files: readonly FolderFile[]): Promise<void> {
  const writing = `${folder}.writing`
  try {
    await disk.remove(writing)
    await disk.makeFolder(writing)
    const entries: Record<string, ManifestEntry> = {}
    for (const [name, data] of files) {
      const bytes = toBytes(await data())
      entries[name] = { bytes: bytes.length, crc32: checksum(bytes) }
      await writeSynced(disk, join(writing, name), bytes)
    }
    const manifest = { format: FORMAT, version: 1, files: entries }
    await writeSynced(disk, join(writing, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`)
    await disk.syncFolder(writing)
    await putIntoPlace(disk, writing, folder)
  } catch (cause) {
    await disk.remove(writing).catch(() => undefined)
    throw cause instanceof FulmarError ? cause : unwritable('checkpoint folder', folder, cause)
  }
}

/** Moves `writing` to `folder`; after an error the older folder is in its place. */
async function putIntoPlace(disk: Disk, writing: string, folder: string): Promise<void> {
  const replaced = `${folder}.replaced`
  // After a crash between the two renames of an earlier save this is the only complete folder: it stays until
  // the new one is in place.
  const isThere = (await disk.names(folder)) !== undefined
  if (isThere) await disk.remove(replaced)
  if (isThere) await disk.rename(folder, replaced)
  try {
    await disk.rename(writing, folder)
    try {
      await disk.syncFolder(dirname(folder))
    } catch (cause) {
      await disk.rename(folder, writing)
      throw cause
    }
  } catch (cause) {
    if (isThere) await disk.rename(replaced, folder)
    throw cause
  }
  // The new folder is safe: leftovers are removed by the next save.
  await disk.remove(replaced).catch(() => undefined)
}

async function writeSynced(disk: Disk, path: string, data: string | Uint8Array): Promise<void> {
  await disk.write(path, data)
  await disk.syncFile(path)
}

/**
 * Returns `folder`; or, after a crash between the two renames of a save, the older one under its temporary
 * name.
 */
export async function wholeFolder(disk: Disk, folder: string): Promise<string> {
  const isWhole = async (path: string) => ((await namesOf(disk, path)) ?? []).length > 0
  return !(await isWhole(folder)) && (await isWhole(`${folder}.replaced`)) ? `${folder}.replaced` : folder
}

/**
 * Returns the names in a folder; `undefined` if it does not exist.
 * @throws {FulmarError} `IO` if it cannot be read.
 */
export async function namesOf(disk: Disk, folder: string): Promise<readonly string[] | undefined> {
  return await disk.names(folder).catch((cause: unknown) => {
    throw unreadable(folder, cause)
  })
}

/** A folder written by {@link writeFolder}; its files are read one at a time, each verified. */
export class CheckedFolder {
  /** The names of its files. */
  readonly names: ReadonlySet<string>
  readonly #disk: Disk
  readonly #folder: string
  readonly #entries: ReadonlyMap<string, ManifestEntry>

  private constructor(disk: Disk, folder: string, entries: ReadonlyMap<string, ManifestEntry>) {
    this.#disk = disk
    this.#folder = folder
    this.#entries = entries
    this.names = new Set(entries.keys())
  }

  /**
   * Reads the manifest and compares the names; names that begin with a dot belong to the system.
   * @throws {FulmarError} `IO` if there is no folder or no manifest; `CORRUPT` for an extra or a missing file, `MALFORMED` for a
   * manifest of another form.
   */
  static async open(disk: Disk, path: string): Promise<CheckedFolder> {
    const folder = await wholeFolder(disk, path)
    const names = await namesOf(disk, folder)
    if (names === undefined) throw unreadable(join(folder, MANIFEST))
    const bytes = await disk.read(join(folder, MANIFEST), CHECKPOINT_JSON_BYTES_MAX)
    if (bytes === undefined) throw unreadable(join(folder, MANIFEST))
    const entries = parseManifest(join(folder, MANIFEST), bytes)
    for (const name of entries.keys()) {
      if (!names.includes(name))
        throw new FulmarError(
          'CORRUPT',
          `${join(folder, name)} must be there: ${MANIFEST} lists it, and it is missing`,
        )
    }
    const foreign = names.find((name) => name !== MANIFEST && !name.startsWith('.') && !entries.has(name))
    if (foreign !== undefined) {
      const why = `${MANIFEST} does not list it, so it was not saved with this checkpoint`
      throw new FulmarError('CORRUPT', `${join(folder, foreign)} must not be there: ${why}`)
    }
    return new CheckedFolder(disk, folder, entries)
  }

  /** Reads the bytes of a file. @throws {FulmarError} `IO`, `CORRUPT` or `LIMIT_EXCEEDED`, with its name. */
  async read(name: string): Promise<Uint8Array> {
    const path = join(this.#folder, name)
    const entry = this.#entries.get(name)
    if (entry === undefined) {
      throw new FulmarError('IO', `${path} must be there: this checkpoint was saved without it`)
    }
    const bytesMax = name.endsWith('.safetensors') ? CHECKPOINT_WEIGHTS_BYTES_MAX : CHECKPOINT_JSON_BYTES_MAX
    if (entry.bytes > bytesMax)
      throw new FulmarError(
        'LIMIT_EXCEEDED',
        `${path} must have at most ${bytesMax} bytes: got ${entry.bytes}`,
      )
    // A file that grew is not read at all.
    const bytes = await this.#disk.read(path, entry.bytes).catch((cause: unknown) => {
      if (cause instanceof FulmarError && cause.code === 'LIMIT_EXCEEDED') throw damaged(path, cause)
      throw cause
    })
    if (bytes === undefined) throw unreadable(path)
    if (bytes.length !== entry.bytes || checksum(bytes) !== entry.crc32) throw damaged(path)
    return bytes
  }

  /** Reads the object in a JSON file. @throws {FulmarError} As `read`; `MALFORMED` for another value. */
  async readJson(name: string): Promise<Record<string, unknown>> {
    return parseObject(join(this.#folder, name), await this.read(name))
  }

  /** Verifies the checksums of files that are not read otherwise. */
  async check(names: Iterable<string>): Promise<void> {
    for (const name of names) await this.read(name)
  }
}

function damaged(path: string, cause?: unknown): FulmarError {
  const detail = `${path} must have the size and the checksum that ${MANIFEST} lists: it was damaged or changed`
  return new FulmarError('CORRUPT', detail, { cause })
}

function parseManifest(path: string, bytes: Uint8Array): ReadonlyMap<string, ManifestEntry> {
  const { format, version, files } = parseObject(path, bytes)
  const isKnown = format === FORMAT && version === 1 && typeof files === 'object' && files !== null
  const entries = isKnown ? Object.entries(files) : []
  if (entries.length === 0 || !entries.every(([, entry]) => isEntry(entry))) {
    throw new FulmarError(
      'MALFORMED',
      `${path} must list the files of a checkpoint with their sizes and checksums`,
    )
  }
  return new Map(entries)
}

function isEntry(entry: unknown): entry is ManifestEntry {
  if (typeof entry !== 'object' || entry === null || !('bytes' in entry) || !('crc32' in entry)) return false
  const { bytes, crc32: sum } = entry
  return Number.isSafeInteger(bytes) && Number(bytes) >= 0 && typeof sum === 'string'
}

function parseObject(path: string, bytes: Uint8Array): Record<string, unknown> {
  let json: unknown
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (cause) {
    throw new FulmarError('MALFORMED', `${path} must be a JSON object: the text is not JSON`, {
      cause,
    })
  }
  if (typeof json === 'object' && json !== null && !Array.isArray(json))
    return json as Record<string, unknown>
  throw new FulmarError('MALFORMED', `${path} must be a JSON object: got ${describeValue(json)}`)
}

function toBytes(data: string | Uint8Array): Uint8Array {
  return typeof data === 'string' ? new TextEncoder().encode(data) : data
}

function checksum(bytes: Uint8Array): string {
  return crc32(bytes).toString(16).padStart(8, '0')
}

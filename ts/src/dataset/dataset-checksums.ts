/** SHA-256 of the files of a folder of rows, in a file of that folder. */

import { readdir, writeFile } from 'node:fs/promises'
import { join, relative, sep } from 'node:path'
import { aborted } from '../async/index.js'
import { FulmarError, messageOf, readRegular } from '../core/index.js'
import { checksumOf } from '../fetch/checksum.js'
import { writing } from '../telemetry/disk.js'

/** Name of the file. TorchRL does not read it. */
const CHECKSUMS = 'checksums.json'

/** Most bytes of the file. */
const CHECKSUMS_BYTES_MAX = 2 ** 24

/** Reads all files once, and writes their checksums. @throws {FulmarError} `IO`, `ABORTED`. */
export async function writeChecksums(folder: string, signal?: AbortSignal): Promise<void> {
  const sums = await checksumsIn(folder, signal)
  const path = join(folder, CHECKSUMS)
  await writing('checksums', path, () => writeFile(path, JSON.stringify(sums)))
}

/**
 * Compares all files with their checksums, and returns how many there are; nothing if none were written.
 * @throws {FulmarError} `CORRUPT`, with the file, for one that differs, is missing or is new; `IO`, `ABORTED`.
 */
export async function verifyChecksums(folder: string, signal?: AbortSignal): Promise<number | undefined> {
  const want = await wantedIn(folder)
  if (want === undefined) return undefined
  const found = await checksumsIn(folder, signal)
  for (const name of new Set([...Object.keys(want), ...Object.keys(found)])) {
    if (want[name] === found[name]) continue
    const got = found[name] === undefined ? 'it is missing' : `got SHA-256 ${found[name]}`
    const rule = want[name] === undefined ? 'must not be there' : `must have SHA-256 ${want[name]}`
    throw new FulmarError('CORRUPT', `${join(folder, name)} ${rule}: ${got}`)
  }
  return Object.keys(want).length
}

/** True if the folder has checksums. */
export async function hasChecksums(folder: string): Promise<boolean> {
  return (await readRegular(join(folder, CHECKSUMS), CHECKSUMS_BYTES_MAX)) !== undefined
}

async function checksumsIn(folder: string, signal?: AbortSignal): Promise<Readonly<Record<string, string>>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const paths = entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name))
  const sums: Record<string, string> = {}
  for (const path of paths.sort()) {
    if (signal?.aborted) throw aborted(signal)
    const name = relative(folder, path).split(sep).join('/')
    if (name !== CHECKSUMS) sums[name] = await checksumOf(path, 'sha256')
  }
  return sums
}

async function wantedIn(folder: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const path = join(folder, CHECKSUMS)
  const bytes = await readRegular(path, CHECKSUMS_BYTES_MAX)
  if (bytes === undefined) return undefined
  try {
    return { ...JSON.parse(new TextDecoder().decode(bytes)) }
  } catch (cause) {
    throw new FulmarError('CORRUPT', `${path} must be an object of JSON: got ${messageOf(cause)}`, { cause })
  }
}

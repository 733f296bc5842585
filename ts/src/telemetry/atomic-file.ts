/** Files that are either the old ones or the new ones, never something in between. Node only. */

import { randomUUID } from 'node:crypto'
import { basename, dirname, join } from 'node:path'
import { checkGiven } from '../core/index.js'
import { type Disk, nodeDisk, unwritable } from './disk.js'

/**
 * Writes `data` to `path` through a temporary name in the same folder: write, sync, rename, sync the folder.
 * A crash at any moment leaves the old file or the new one.
 *
 * @throws {FulmarError} `IO` if the system refuses; no temporary file is left then.
 */
export async function writeFileAtomic(path: string, data: string | Uint8Array): Promise<void> {
  checkGiven('path', path)
  await writeFileOn(nodeDisk, path, data)
}

/** @internal The same on any disk. @throws {FulmarError} `IO` if the system refuses. */
export async function writeFileOn(disk: Disk, path: string, data: string | Uint8Array): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`)
  try {
    await disk.write(temporary, data)
    await disk.syncFile(temporary)
    await disk.rename(temporary, path)
    await disk.syncFolder(dirname(path))
  } catch (cause) {
    await disk.remove(temporary).catch(() => undefined)
    throw unwritable('path', path, cause)
  }
}

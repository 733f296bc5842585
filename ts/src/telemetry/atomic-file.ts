/** Files that are either the old ones or the new ones, never something in between. Node only. */

import { randomUUID } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { checkGiven, FulmarError, messageOf } from '../core/index.js'

/**
 * Writes `data` to `path` through a temporary name in the same folder: write, sync, rename, sync the folder.
 * A crash at any moment leaves the old file or the new one.
 *
 * @throws {FulmarError} `IO` if the system refuses; no temporary file is left then.
 *
 * @example
 * ```ts
 * import { writeFileAtomic } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp, readdir, readFile } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * await writeFileAtomic(join(folder, 'config.json'), '{}')
 * assert.equal(await readFile(join(folder, 'config.json'), 'utf8'), '{}')
 * assert.deepEqual(await readdir(folder), ['config.json'])
 * ```
 */
export async function writeFileAtomic(path: string, data: string | Uint8Array): Promise<void> {
  checkGiven('path', path)
  const temporary = join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`)
  try {
    const file = await open(temporary, 'wx')
    try {
      await file.writeFile(data)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
    await syncFolder(dirname(path))
  } catch (cause) {
    await rm(temporary, { force: true }).catch(() => undefined)
    throw new FulmarError('IO', `path must be writable: got ${path} (${messageOf(cause)})`, { cause })
  }
}

/** Makes a rename durable. Windows cannot open folders; there the rename itself is all there is. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

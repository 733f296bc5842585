/** File system of crash-safe files, replaceable in tests by one that fails and forgets. Node only. */

import { mkdir, open, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { FulmarError, messageOf, readRegular } from '../core/index.js'

/** @internal A file system. A write counts as kept once the file was synced, a name once its folder was. */
export interface Disk {
  /** Makes a folder and those around it; one that is there stays. */
  makeFolder(path: string): Promise<void>
  /** Writes a new file. */
  write(path: string, data: string | Uint8Array): Promise<void>
  /** Makes the bytes of a file last. */
  syncFile(path: string): Promise<void>
  /** Makes the names in a folder last. */
  syncFolder(path: string): Promise<void>
  /** Moves a file, over another if there is one, or a folder, to a name that is free. */
  rename(from: string, to: string): Promise<void>
  /** Removes a file or a folder with all that is in it; nothing if it is not there. */
  remove(path: string): Promise<void>
  /** The names in a folder; nothing if it is not there. */
  names(path: string): Promise<readonly string[] | undefined>
  /** The bytes of a regular file of at most `bytesMax`; nothing if it is not there. */
  read(path: string, bytesMax: number): Promise<Uint8Array | undefined>
}

/** @internal The system's own. */
export const nodeDisk: Disk = {
  makeFolder: async (path) => {
    await mkdir(path, { recursive: true })
  },
  write: (path, data) => writeFile(path, data, { flag: 'wx' }),
  syncFile: (path) => sync(path, 'r+'),
  syncFolder: async (path) => {
    // Windows cannot open folders; there a rename lasts by itself.
    if (process.platform !== 'win32') await sync(path, 'r')
  },
  rename,
  remove: (path) => rm(path, { recursive: true, force: true }),
  names: (path) => readdir(path).catch(absent),
  read: readRegular,
}

async function sync(path: string, flags: string): Promise<void> {
  const file = await open(path, flags)
  try {
    await file.sync()
  } finally {
    await file.close()
  }
}

function absent(cause: NodeJS.ErrnoException): undefined {
  if (cause.code === 'ENOENT') return undefined
  throw cause
}

/** Reasons by error code of the system, for writes. */
const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota of the disk is used up',
  EFBIG: 'the file is larger than the system allows',
  EROFS: 'the file system is read-only',
  EACCES: 'permission is denied',
  EPERM: 'permission is denied',
}

/** @internal Returns the error of a write, with the message of the system. */
export function unwritable(what: string, path: string, cause: unknown): FulmarError {
  const code = (cause as NodeJS.ErrnoException | null)?.code
  const reason = (code !== undefined && REASONS[code]) || undefined
  const why = reason === undefined ? messageOf(cause) : `${reason}: ${messageOf(cause)}`
  return new FulmarError('IO', `${what} must be writable: got ${path} (${why})`, { cause })
}

/** @internal Runs a write. @throws {FulmarError} Errors of this package as they are; another as {@link unwritable}. */
export async function writing<T>(what: string, path: string, body: () => Promise<T>): Promise<T> {
  try {
    return await body()
  } catch (cause) {
    throw cause instanceof FulmarError ? cause : unwritable(what, path, cause)
  }
}

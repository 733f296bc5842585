/** Reads regular files: no pipes, devices or folders. Imports Node's file system when one is opened. */

import type { FileHandle } from 'node:fs/promises'
import { FulmarError, messageOf } from './error.js'

/** Bytes per read. */
const CHUNK_BYTES = 1 << 20

/**
 * @internal Returns the bytes of a regular file of at most `bytesMax`, or `undefined` if it does not exist.
 * @throws {FulmarError} `CORRUPT` for a pipe, a device or a folder; `LIMIT_EXCEEDED` above `bytesMax`; `IO` if it cannot be read.
 */
export async function readRegular(path: string, bytesMax: number): Promise<Uint8Array | undefined> {
  const file = await openRegular(path)
  if (file === undefined) return undefined
  try {
    const { size } = await file.stat()
    if (size > bytesMax)
      throw new FulmarError('LIMIT_EXCEEDED', `${path} must have at most ${bytesMax} bytes: got ${size}`)
    const bytes = new Uint8Array(size)
    let length = 0
    while (length < size) {
      const { bytesRead } = await file.read(bytes, length, Math.min(CHUNK_BYTES, size - length), length)
      if (bytesRead === 0) break
      length += bytesRead
    }
    return bytes.subarray(0, length)
  } catch (cause) {
    throw cause instanceof FulmarError ? cause : unreadable(path, cause)
  } finally {
    await file.close()
  }
}

/**
 * @internal Opens a regular file for reading; `undefined` if it does not exist.
 * @throws {FulmarError} `CORRUPT` for a pipe, a device or a folder; `IO` if it cannot be opened.
 */
export async function openRegular(path: string): Promise<FileHandle | undefined> {
  const { constants, open } = await import('node:fs/promises')
  // With this flag a pipe opens at once, without a writer, and is then rejected.
  const flags = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)
  const file = await open(path, flags).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return undefined
    throw unreadable(path, cause)
  })
  if (file === undefined) return undefined
  const about = await file.stat()
  if (about.isFile()) return file
  await file.close()
  const kind = about.isDirectory() ? 'a folder' : 'a pipe, a socket or a device'
  throw new FulmarError('CORRUPT', `${path} must be a regular file: got ${kind}`)
}

/** @internal */
export function unreadable(path: string, cause?: unknown): FulmarError {
  const why = cause === undefined ? 'the file does not exist' : messageOf(cause)
  return new FulmarError('IO', `path must be a readable file: got ${path} (${why})`, { cause })
}

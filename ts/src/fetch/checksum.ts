/** Checksums of files: SHA-256, the id of a git blob (SHA-1), MD5. */

import { createHash, type Hash } from 'node:crypto'
import { FulmarError, openRegular, unreadable } from '../core/index.js'

/** An expected checksum of a whole file. */
export interface Checksum {
  /** `git` is the id of a git blob: SHA-1 over `blob SIZE`, a zero byte and the bytes. */
  readonly algorithm: 'sha256' | 'git' | 'md5'
  /** In lowercase hexadecimal digits. */
  readonly hex: string
}

/** Hexadecimal digits by algorithm. */
const HEX_DIGITS = { sha256: 64, git: 40, md5: 32 } as const

/** Bytes per read. */
const CHUNK_BYTES = 1 << 20

/**
 * Returns `checksum` with its digits in lowercase.
 * @throws {FulmarError} `MALFORMED` for digits that are not of its algorithm.
 */
export function checkChecksum(place: string, { algorithm, hex }: Checksum): Checksum {
  const numDigits = HEX_DIGITS[algorithm]
  if (numDigits === undefined) {
    const detail = `${place}.algorithm must be 'sha256', 'git' or 'md5': got ${JSON.stringify(algorithm)}`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  if (typeof hex !== 'string' || hex.length !== numDigits || !/^[0-9a-f]+$/i.test(hex)) {
    const detail = `${place}.hex must have ${numDigits} hexadecimal digits for ${algorithm}: got ${JSON.stringify(hex)}`
    throw new FulmarError('MALFORMED', detail)
  }
  return { algorithm, hex: hex.toLowerCase() }
}

/**
 * Reads a file once and returns its checksum in hexadecimal digits. Memory does not grow with the file.
 * @throws {FulmarError} `IO` if the file cannot be read.
 */
export async function checksumOf(path: string, algorithm: Checksum['algorithm']): Promise<string> {
  const file = await openRegular(path)
  if (file === undefined) throw unreadable(path)
  try {
    const hash = hasher(algorithm, (await file.stat()).size)
    const chunk = new Uint8Array(CHUNK_BYTES)
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, CHUNK_BYTES, null)
      if (bytesRead === 0) return hash.digest('hex')
      hash.update(chunk.subarray(0, bytesRead))
    }
  } catch (cause) {
    throw cause instanceof FulmarError ? cause : unreadable(path, cause)
  } finally {
    await file.close()
  }
}

function hasher(algorithm: Checksum['algorithm'], sizeBytes: number): Hash {
  if (algorithm !== 'git') return createHash(algorithm)
  return createHash('sha1').update(`blob ${sizeBytes}\0`)
}

/**
 * A file that is being fetched: `NAME.incomplete` until all of it is there and checked. `NAME.incomplete.json` has the
 * validator of the answer that it began with, so that a later process continues the same version.
 */

import { type FileHandle, open, readFile, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { nodeDisk, writing } from '../telemetry/disk.js'

/** Writes all of `bytes` at `position`; tests replace it by a full disk. */
export type WriteAt = (file: FileHandle, bytes: Uint8Array, position: number) => Promise<void>

/** Its name in messages. */
const PART = 'the part of a file'

/** Longest validator that is kept. */
const VALIDATOR_LENGTH_MAX = 1024

/** The part of a file, open for writing. Bytes are where they belong as soon as a write returns, so a process may end at any of them. */
export class PartFile {
  readonly path: string
  readonly #file: FileHandle
  readonly #writeAt: WriteAt
  #length: number
  #validator: string | undefined
  #isResumed: boolean

  private constructor(
    path: string,
    file: FileHandle,
    length: number,
    validator: string | undefined,
    writeAt: WriteAt,
  ) {
    this.path = path
    this.#file = file
    this.#length = length
    this.#validator = validator
    this.#writeAt = writeAt
    this.#isResumed = length > 0
  }

  /** Opens the part of `target`, with the bytes that earlier processes wrote. @throws {FulmarError} `IO`. */
  static async open(target: string, writeAt: WriteAt = writeAll): Promise<PartFile> {
    const path = `${target}.incomplete`
    return await writing(PART, path, async () => {
      await nodeDisk.makeFolder(dirname(path))
      // A link here would lead the bytes to another file.
      const { constants } = await import('node:fs')
      const flags = constants.O_RDWR | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0)
      const file = await open(path, flags)
      return new PartFile(path, file, (await file.stat()).size, await validatorIn(path), writeAt)
    })
  }

  /** Number of bytes that are there. */
  get length(): number {
    return this.#length
  }

  /** True if some of the bytes are of an earlier process. */
  get isResumed(): boolean {
    return this.#isResumed
  }

  /** Header `etag` or `last-modified` of the version that the bytes are of. */
  get validator(): string | undefined {
    return this.#validator
  }

  /** Drops all bytes; those that follow are of the version of `validator`. @throws {FulmarError} `IO`. */
  async restart(validator: string | undefined): Promise<void> {
    await writing(PART, this.path, async () => {
      await this.#file.truncate(0)
      this.#length = 0
      this.#isResumed = false
      this.#validator =
        validator === undefined || validator.length > VALIDATOR_LENGTH_MAX ? undefined : validator
      const about = validatorPath(this.path)
      await rm(about, { force: true })
      if (this.#validator !== undefined) await nodeDisk.write(about, JSON.stringify({ validator }))
    })
  }

  /** Appends bytes. @throws {FulmarError} `IO`, as where the disk is full; bytes before stay. */
  async append(bytes: Uint8Array): Promise<void> {
    await writing(PART, this.path, async () => {
      await this.#writeAt(this.#file, bytes, this.#length)
      this.#length += bytes.byteLength
    })
  }

  /**
   * Closes the part and gives it its name, once its bytes are on the disk unless it is temporary.
   * @throws {FulmarError} `IO`.
   */
  async finish(target: string, isTemporary: boolean): Promise<void> {
    await writing(PART, this.path, async () => {
      if (!isTemporary) await this.#file.sync()
      await this.#file.close()
      await rename(this.path, target)
      await rm(validatorPath(this.path), { force: true })
      if (!isTemporary) await nodeDisk.syncFolder(dirname(target))
    })
  }

  /** Closes the part and removes it. */
  async remove(): Promise<void> {
    await this.close()
    await rm(this.path, { force: true })
    await rm(validatorPath(this.path), { force: true })
  }

  /** Closes the part, which stays for a later process. */
  async close(): Promise<void> {
    await this.#file.close().catch(() => undefined)
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let at = 0; at < bytes.byteLength; ) {
    const { bytesWritten } = await file.write(bytes, at, bytes.byteLength - at, position + at)
    at += bytesWritten
  }
}

function validatorPath(path: string): string {
  return `${path}.json`
}

async function validatorIn(path: string): Promise<string | undefined> {
  try {
    const { validator } = JSON.parse(await readFile(validatorPath(path), 'utf8'))
    return typeof validator === 'string' ? validator : undefined
  } catch {
    return undefined
  }
}

/** Whole lines of a file that another program appends to, each once, with their places in the file. */

import type { FileHandle } from 'node:fs/promises'
import { FulmarError, openRegular, unreadable } from '../core/index.js'
import { JSON_LINES_BYTES_MAX } from '../telemetry/run-log.js'

/** Longest line that is read, in bytes; longer ones are skipped. */
export const TAIL_LINE_BYTES_MAX = 2 ** 23

/** Bytes per read. */
const CHUNK_BYTES = 1 << 20

/** Bytes before the position that must be as they were; else the file is another one. */
const MARK_BYTES = 64

const NEWLINE = 10

/** One whole line. */
export interface TailLine {
  /** Counts from 1. */
  readonly number: number
  /** First byte of the line in the file. */
  readonly offset: number
  /** Bytes without the newline. */
  readonly length: number
  /** The text; `undefined` for a line above {@link TAIL_LINE_BYTES_MAX}. */
  readonly text: string | undefined
}

/** Reads what was appended since the last call. A line that is not whole yet waits for its end. */
export class LineTail {
  readonly #path: string
  /** Bytes of whole lines that were taken. */
  #position = 0
  #numLines = 0
  #mark: Buffer = Buffer.alloc(0)

  constructor(path: string) {
    this.#path = path
  }

  /**
   * Gives each new line to `take`. `restart` is called first if the file is another one, or was cut: all its lines come again.
   * Returns `false` if the file is not there.
   * @throws {FulmarError} `CORRUPT` for a pipe or a device; `LIMIT_EXCEEDED` above 2 GiB; `IO` if it cannot be read.
   */
  async refresh(take: (line: TailLine) => void, restart: () => void): Promise<boolean> {
    const file = await openRegular(this.#path)
    if (file === undefined) return false
    try {
      const { size } = await file.stat()
      if (size > JSON_LINES_BYTES_MAX) {
        const detail = `${this.#path} must have at most ${JSON_LINES_BYTES_MAX} bytes: got ${size}`
        throw new FulmarError('LIMIT_EXCEEDED', detail)
      }
      if (!(await this.#isSame(file, size))) {
        this.#position = 0
        this.#numLines = 0
        restart()
      }
      await this.#readNew(file, take)
      this.#mark = await readAt(file, this.#position - MARK_BYTES, this.#position)
      return true
    } catch (cause) {
      throw cause instanceof FulmarError ? cause : unreadable(this.#path, cause)
    } finally {
      await file.close()
    }
  }

  /** The text of a line that was taken. @throws {FulmarError} `IO` if it is not there any more. */
  async read({ offset, length }: { readonly offset: number; readonly length: number }): Promise<string> {
    const file = await openRegular(this.#path)
    if (file === undefined) throw unreadable(this.#path)
    try {
      const bytes = await readAt(file, offset, offset + length)
      if (bytes.length < length) throw unreadable(this.#path, new Error('the file was cut'))
      return bytes.toString('utf8')
    } finally {
      await file.close()
    }
  }

  async #isSame(file: FileHandle, size: number): Promise<boolean> {
    if (size < this.#position) return false
    return this.#mark.equals(await readAt(file, this.#position - MARK_BYTES, this.#position))
  }

  async #readNew(file: FileHandle, take: (line: TailLine) => void): Promise<void> {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
    // Bytes of the line under way: `parts` holds them unless they are too many.
    let parts: Buffer[] = []
    let length = 0
    for (let at = this.#position; ; ) {
      const { bytesRead } = await file.read(chunk, 0, CHUNK_BYTES, at)
      if (bytesRead === 0) return
      at += bytesRead
      let start = 0
      for (
        let end = chunk.indexOf(NEWLINE);
        end >= 0 && end < bytesRead;
        end = chunk.indexOf(NEWLINE, start)
      ) {
        const whole = length + end - start
        parts.push(chunk.subarray(start, end))
        const text = whole > TAIL_LINE_BYTES_MAX ? undefined : Buffer.concat(parts).toString('utf8')
        this.#numLines += 1
        take({ number: this.#numLines, offset: this.#position, length: whole, text })
        this.#position += whole + 1
        start = end + 1
        parts = []
        length = 0
      }
      length += bytesRead - start
      // The chunk is read into again.
      if (length <= TAIL_LINE_BYTES_MAX) parts.push(Buffer.from(chunk.subarray(start, bytesRead)))
      else parts = []
    }
  }
}

async function readAt(file: FileHandle, from: number, to: number): Promise<Buffer> {
  const start = Math.max(0, from)
  const bytes = Buffer.alloc(to - start)
  const { bytesRead } = await file.read(bytes, 0, bytes.length, start)
  return bytes.subarray(0, bytesRead)
}

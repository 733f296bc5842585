/**
 * A run folder: `config.json`, `log.jsonl` (one {@link RunEvent} per line), `samples.jsonl` (one rollout per line).
 *
 * Lines are appended, never changed. After a crash the last line may be torn: opening cuts it off. Resuming from a
 * checkpoint also drops the lines of the steps that will be done again, so a step is never in the log twice.
 * Node only.
 */

import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  writeSync,
} from 'node:fs'
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { checkGiven, checkKnownKeys, FulmarError, openRegular, unreadable } from '../core/index.js'
import { writeFileAtomic } from './atomic-file.js'
import { nodeDisk, unwritable } from './disk.js'
import { isRunEvent, type RunEvent } from './run-event.js'

/** Lines wait in memory until they are this many characters together, or until `flush`. */
export const LINES_BUFFER_LENGTH_MAX = 65_536

/** Largest line of a file of JSON lines, in bytes. */
export const JSON_LINE_BYTES_MAX = 2 ** 26

/** Largest file of JSON lines that is read, in bytes. */
export const JSON_LINES_BYTES_MAX = 2 ** 31

/** Largest `config.json` of a run folder, in bytes. */
export const RUN_CONFIG_BYTES_MAX = 2 ** 24

/**
 * An append-only file of JSON lines.
 */
export class JsonLinesFile {
  readonly #path: string
  #file: number | undefined
  #buffer: string[] = []
  #bufferLength = 0

  /**
   * Opens or creates `path`, and cuts it off before the first line that is torn or that `keep` refuses.
   * @throws {FulmarError} `IO` if the file cannot be opened or read; `CORRUPT` if it is a pipe or a device, or holds no JSON lines;
   * `LIMIT_EXCEEDED` above 2 GiB.
   */
  constructor(path: string, keep: (line: unknown) => boolean = () => true) {
    this.#path = path
    // A pipe opens at once that way, and is then refused.
    const flags = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | (constants.O_NONBLOCK ?? 0)
    const file = orIo(path, () => openSync(path, flags, 0o666))
    try {
      const about = fstatSync(file)
      const reader = new LineReader(path, keep)
      reader.checkFile(about.isFile(), about.size)
      const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, about.size))
      for (let at = 0; at < about.size; ) {
        const count = orIo(path, () => readSync(file, chunk, 0, chunk.length, at))
        if (count === 0 || !reader.push(chunk.subarray(0, count))) break
        at += count
      }
      reader.finish()
      if (reader.sizeBytes < about.size) orIo(path, () => ftruncateSync(file, reader.sizeBytes))
    } catch (error) {
      closeSync(file)
      throw error
    }
    this.#file = file
  }

  /**
   * Adds one line. It is on disk only after {@link JsonLinesFile.flush}, or once many lines wait.
   * @throws {FulmarError} `CLOSED` after `close`; `IO` if a full buffer cannot be written; `LIMIT_EXCEEDED` for a line above
   * 64 MiB, which could not be read again.
   */
  append(line: unknown): void {
    this.#open()
    const text = toLine(line)
    if (text.length > JSON_LINE_BYTES_MAX / 4 && Buffer.byteLength(text) > JSON_LINE_BYTES_MAX) {
      const detail = `line must have at most ${JSON_LINE_BYTES_MAX} bytes: got ${Buffer.byteLength(text)}`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
    this.#buffer.push(text)
    this.#bufferLength += text.length
    if (this.#bufferLength >= LINES_BUFFER_LENGTH_MAX) this.#write()
  }

  /** Writes what waits and syncs it to disk. @throws {FulmarError} `CLOSED` or `IO`. */
  flush(): void {
    const file = this.#open()
    this.#write()
    orIo(this.#path, () => fsyncSync(file))
  }

  /** Flushes and closes; doing it twice is harmless. @throws {FulmarError} `IO`. */
  close(): void {
    const file = this.#file
    if (file === undefined) return
    try {
      this.flush()
    } finally {
      this.#file = undefined
      closeSync(file)
    }
  }

  [Symbol.dispose](): void {
    this.close()
  }

  #write(): void {
    const file = this.#open()
    const text = this.#buffer.join('')
    this.#buffer = []
    this.#bufferLength = 0
    orIo(this.#path, () => writeAll(file, text))
  }

  #open(): number {
    if (this.#file === undefined) throw new FulmarError('CLOSED', 'log must be open: it was closed')
    return this.#file
  }
}

/** Options of a {@link RunLog}. */
export interface RunLogOptions {
  /** The run folder; made if it is not there. */
  readonly folder: string
  /** Written to `config.json`. */
  readonly config: unknown
  /**
   * For a run that is resumed: `log.jsonl` is cut off before the first event that this refuses. A new run keeps none.
   * @default () => false
   */
  readonly keepEvent?: (event: RunEvent) => boolean
  /**
   * The same for `samples.jsonl`.
   * @default () => false
   */
  readonly keepSample?: (sample: unknown) => boolean
}

/**
 * The log of one run.
 *
 * @example
 * ```ts
 * import { readRun, RunLog } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const log = await RunLog.open({ folder, config: { seed: 7 } })
 * log.append({ event: 'eval', phase: 'grpo', step: 0, passRate: 0.25, numProblems: 4 })
 * log.close()
 * const run = await readRun(folder)
 * assert.deepEqual(run.config, { seed: 7 })
 * assert.equal(run.events.length, 1)
 * ```
 */
export class RunLog {
  /** The run folder. */
  readonly folder: string
  /** `samples.jsonl`, for a `RolloutSampleRecorder`. */
  readonly samples: JsonLinesFile
  readonly #events: JsonLinesFile

  private constructor(folder: string, events: JsonLinesFile, samples: JsonLinesFile) {
    this.folder = folder
    this.#events = events
    this.samples = samples
  }

  /** Makes the folder, writes `config.json` and opens the files. @throws {FulmarError} `IO`. */
  static async open(options: RunLogOptions): Promise<RunLog> {
    checkKnownKeys('options', options, ['folder', 'config', 'keepEvent', 'keepSample'], ['folder', 'config'])
    const { folder, config, keepEvent, keepSample } = options
    await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
      throw unwritable('folder', folder, cause)
    })
    const [log, samples] = [join(folder, 'log.jsonl'), join(folder, 'samples.jsonl')]
    // What a new run does not keep is not read either.
    if (!keepEvent) await removeOlder(log)
    if (!keepSample) await removeOlder(samples)
    await writeFileAtomic(join(folder, 'config.json'), `${JSON.stringify(config, null, 2)}\n`)
    const events = new JsonLinesFile(log, (line) => isRunEvent(line) && keepEvent?.(line) === true)
    try {
      return new RunLog(folder, events, new JsonLinesFile(samples, keepSample))
    } catch (error) {
      events.close()
      throw error
    }
  }

  /** Adds one event. @throws {FulmarError} `CLOSED` or `IO`. */
  append(event: RunEvent): void {
    this.#events.append(event)
  }

  /** Brings everything so far to disk; call it before a checkpoint counts as written. */
  flush(): void {
    this.#events.flush()
    this.samples.flush()
  }

  /** Flushes and closes; doing it twice is harmless. */
  close(): void {
    this.#events.close()
    this.samples.close()
  }

  [Symbol.dispose](): void {
    this.close()
  }
}

async function removeOlder(path: string): Promise<void> {
  await rm(path, { force: true }).catch((cause: unknown) => {
    throw unwritable('path', path, cause)
  })
}

/** Content of a run folder. */
export interface RunRecord {
  readonly config: unknown
  /** The whole lines of `log.jsonl` that are events. */
  readonly events: readonly RunEvent[]
  /** The whole lines of `samples.jsonl`. */
  readonly samples: readonly unknown[]
}

/**
 * Reads a run folder, during the run or after it.
 * @throws {FulmarError} `IO` if a file cannot be read; `CORRUPT` if `config.json` is not JSON, if a file is a
 * pipe or a device, or if it is not JSON Lines, as one of zeros; `LIMIT_EXCEEDED` above 2 GiB or 16 MiB. The
 * message names the file.
 *
 * @example
 * ```ts
 * import { readRun } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * await assert.rejects(readRun('/no/such/run'), { code: 'IO' })
 * ```
 */
export async function readRun(folder: string): Promise<RunRecord> {
  checkGiven('folder', folder)
  const configPath = join(folder, 'config.json')
  const bytes = await nodeDisk.read(configPath, RUN_CONFIG_BYTES_MAX)
  if (bytes === undefined) throw unreadable(configPath)
  const config = parseJson(Buffer.from(bytes).toString('utf8'))
  if (config === undefined) throw new FulmarError('CORRUPT', `${configPath} must be JSON: got something else`)
  const events = (await readJsonLines(join(folder, 'log.jsonl'))).filter(isRunEvent)
  return { config, events, samples: await readJsonLines(join(folder, 'samples.jsonl')) }
}

/**
 * The whole lines of a JSON lines file, up to the first torn one.
 * @throws {FulmarError} `IO` if it cannot be read; `CORRUPT` and `LIMIT_EXCEEDED` as {@link readRun}.
 */
export async function readJsonLines(path: string): Promise<unknown[]> {
  const file = await openRegular(path)
  if (file === undefined) throw unreadable(path)
  try {
    const { size } = await file.stat()
    const reader = new LineReader(path, () => true)
    reader.checkFile(true, size)
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size))
    for (let at = 0; at < size; ) {
      const { bytesRead } = await file.read(chunk, 0, chunk.length, at)
      if (bytesRead === 0 || !reader.push(chunk.subarray(0, bytesRead))) break
      at += bytesRead
    }
    reader.finish()
    return reader.lines
  } catch (cause) {
    throw cause instanceof FulmarError ? cause : unreadable(path, cause)
  } finally {
    await file.close()
  }
}

/** Bytes that are read at a time. */
const CHUNK_BYTES = 1 << 20

/** Takes the lines of a file, up to the first that is not whole JSON: after a crash nothing behind it can be trusted. */
class LineReader {
  readonly lines: unknown[] = []
  /** Bytes of the lines that were taken. */
  sizeBytes = 0
  readonly #path: string
  readonly #keep: (line: unknown) => boolean
  #rest: Buffer = Buffer.alloc(0)
  #isRefused = false

  constructor(path: string, keep: (line: unknown) => boolean) {
    this.#path = path
    this.#keep = keep
  }

  /** @throws {FulmarError} `CORRUPT` for anything but a file; `LIMIT_EXCEEDED` for one that is too large. */
  checkFile(isFile: boolean, sizeBytes: number): void {
    if (!isFile) {
      const detail = `${this.#path} must be a regular file: got a pipe, a socket, a device or a folder`
      throw new FulmarError('CORRUPT', detail)
    }
    if (sizeBytes > JSON_LINES_BYTES_MAX) {
      const detail = `${this.#path} must have at most ${JSON_LINES_BYTES_MAX} bytes: got ${sizeBytes}`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
  }

  /** Takes the lines that end in `chunk`; `false` if nothing behind it counts. @throws {FulmarError} `CORRUPT` or `LIMIT_EXCEEDED`. */
  push(chunk: Buffer): boolean {
    const bytes = Buffer.concat([this.#rest, chunk])
    let start = 0
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
      const line = parseJson(bytes.toString('utf8', start, end))
      this.#isRefused = line === undefined || !this.#keep(line)
      if (line === undefined) this.#checkBeginning(bytes, true)
      if (this.#isRefused) return false
      this.lines.push(line)
      this.sizeBytes += end + 1 - start
      start = end + 1
    }
    this.#rest = bytes.subarray(start)
    this.#checkBeginning(this.#rest, false)
    if (this.#rest.length > JSON_LINE_BYTES_MAX) {
      const detail = `a line of ${this.#path} must have at most ${JSON_LINE_BYTES_MAX} bytes`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
    return true
  }

  /** @throws {FulmarError} `CORRUPT` if the rest is not the beginning of a line that a crash cut off. */
  finish(): void {
    if (!this.#isRefused) this.#checkBeginning(this.#rest, false)
  }

  /** A file whose very first line is not JSON is not a file of JSON lines, unless it is the cut-off beginning of one. */
  #checkBeginning(bytes: Buffer, isWhole: boolean): void {
    if (this.sizeBytes > 0 || bytes.length === 0) return
    const first = bytes[0] ?? 0
    if (!isWhole && JSON_BEGINNINGS.includes(String.fromCharCode(first))) return
    const got = first === 0 ? 'zeros' : 'something else'
    throw new FulmarError('CORRUPT', `${this.#path} must hold JSON lines: got ${got}`)
  }
}

/** Characters that a JSON value may begin with. */
const JSON_BEGINNINGS = '{["-0123456789tfn'

const NEWLINE = 10

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function toLine(line: unknown): string {
  return `${JSON.stringify(line)}\n`
}

/** `write(2)` may take less than it was given. */
function writeAll(file: number, text: string): void {
  const bytes = Buffer.from(text, 'utf8')
  let written = 0
  while (written < bytes.length) written += writeSync(file, bytes, written)
}

function orIo<T>(path: string, body: () => T): T {
  try {
    return body()
  } catch (cause) {
    throw unwritable('path', path, cause)
  }
}

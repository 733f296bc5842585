/**
 * A run folder: `config.json`, `log.jsonl` (one {@link RunEvent} per line), `samples.jsonl` (one rollout per line).
 *
 * Lines are appended, never changed. After a crash the last line may be torn: opening cuts it off. Resuming from a
 * checkpoint also drops the lines of the steps that will be done again, so a step never stands in the log twice.
 * Node only.
 */

import { closeSync, fsyncSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { checkGiven, checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import { writeFileAtomic } from './atomic-file.js'
import { isRunEvent, type RunEvent } from './run-event.js'

/** Lines wait in memory until they are this many characters together, or until `flush`. */
export const LINES_BUFFER_LENGTH_MAX = 65_536

/**
 * An append-only file of JSON lines.
 *
 * @example
 * ```ts
 * import { JsonLinesFile, readJsonLines } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const path = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'log.jsonl')
 * const file = new JsonLinesFile(path)
 * file.append({ step: 1 })
 * file.close()
 * assert.deepEqual(await readJsonLines(path), [{ step: 1 }])
 * ```
 */
export class JsonLinesFile {
  #file: number | undefined
  #buffer: string[] = []
  #bufferLength = 0

  /**
   * Opens or creates `path`, and cuts it off before the first line that is torn or that `keep` refuses.
   * @throws {FulmarError} `IO` if the file cannot be opened or read.
   */
  constructor(path: string, keep: (line: unknown) => boolean = () => true) {
    this.#file = orIo(path, () => openSync(path, 'a+'))
    const file = this.#file
    orIo(path, () => {
      const bytes = readFileSync(file)
      const { sizeBytes } = parseLines(bytes, keep)
      if (sizeBytes < bytes.length) ftruncateSync(file, sizeBytes)
    })
  }

  /**
   * Adds one line. It is on disk only after {@link JsonLinesFile.flush}, or once many lines wait.
   * @throws {FulmarError} `CLOSED` after `close`; `IO` if a full buffer cannot be written.
   */
  append(line: unknown): void {
    this.#open()
    const text = toLine(line)
    this.#buffer.push(text)
    this.#bufferLength += text.length
    if (this.#bufferLength >= LINES_BUFFER_LENGTH_MAX) this.#write()
  }

  /** Writes what waits and syncs it to disk. @throws {FulmarError} `CLOSED` or `IO`. */
  flush(): void {
    const file = this.#open()
    this.#write()
    orIo('log', () => fsyncSync(file))
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
    orIo('log', () => writeAll(file, text))
  }

  #open(): number {
    if (this.#file === undefined) throw new FulmarError('CLOSED', 'log must be open: got a closed one')
    return this.#file
  }
}

/** How a {@link RunLog} is opened. */
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
 * import { RunLog, readRun } from 'fulmar'
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
  /** `samples.jsonl`, for a {@link RolloutSampleRecorder}. */
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
    const { folder, config, keepEvent = () => false, keepSample = () => false } = options
    await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
      throw new FulmarError('IO', `folder must be writable: got ${folder}`, { cause })
    })
    await writeFileAtomic(join(folder, 'config.json'), `${JSON.stringify(config, null, 2)}\n`)
    const keepLine = (line: unknown): boolean => isRunEvent(line) && keepEvent(line)
    const events = new JsonLinesFile(join(folder, 'log.jsonl'), keepLine)
    return new RunLog(folder, events, new JsonLinesFile(join(folder, 'samples.jsonl'), keepSample))
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

/** What a run folder holds. */
export interface RunRecord {
  readonly config: unknown
  /** The whole lines of `log.jsonl` that are events. */
  readonly events: readonly RunEvent[]
  /** The whole lines of `samples.jsonl`. */
  readonly samples: readonly unknown[]
}

/**
 * Reads a run folder, while the run goes on or after it.
 * @throws {FulmarError} `IO` if a file cannot be read; `CORRUPT` if `config.json` is not JSON.
 *
 * @example
 * ```ts
 * import { readRun } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * await assert.rejects(readRun('/no/such/run'), { code: 'IO' })
 * ```
 */
export async function readRun(folder: string): Promise<RunRecord> {
  checkGiven('folder', folder)
  const configPath = join(folder, 'config.json')
  const config = parseJson((await readBytes(configPath)).toString('utf8'))
  if (config === undefined) throw new FulmarError('CORRUPT', `${configPath} must be JSON: got something else`)
  const events = (await readJsonLines(join(folder, 'log.jsonl'))).filter(isRunEvent)
  return { config, events, samples: await readJsonLines(join(folder, 'samples.jsonl')) }
}

/**
 * The whole lines of a JSON lines file, up to the first torn one.
 * @throws {FulmarError} `IO` if it cannot be read.
 *
 * @example
 * ```ts
 * import { readJsonLines } from 'fulmar'
 * import assert from 'node:assert/strict'
 * import { mkdtemp, writeFile } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const path = join(await mkdtemp(join(tmpdir(), 'fulmar-')), 'log.jsonl')
 * await writeFile(path, '{"step":1}\n{"step":2}\n{"st')
 * assert.deepEqual(await readJsonLines(path), [{ step: 1 }, { step: 2 }])
 * ```
 */
export async function readJsonLines(path: string): Promise<unknown[]> {
  return parseLines(await readBytes(path), () => true).lines
}

async function readBytes(path: string): Promise<Buffer> {
  return await readFile(path).catch((cause: unknown) => {
    throw new FulmarError('IO', `path must be a readable file: got ${path}`, { cause })
  })
}

/** Everything up to the first line that is not whole JSON: after a crash nothing behind it can be trusted. */
function parseLines(
  bytes: Buffer,
  keep: (line: unknown) => boolean,
): { lines: unknown[]; sizeBytes: number } {
  const lines: unknown[] = []
  let start = 0
  for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
    const line = parseJson(bytes.toString('utf8', start, end))
    if (line === undefined || !keep(line)) break
    lines.push(line)
    start = end + 1
  }
  return { lines, sizeBytes: start }
}

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
    throw new FulmarError('IO', `${path} must be writable: got ${messageOf(cause)}`, {
      cause,
    })
  }
}

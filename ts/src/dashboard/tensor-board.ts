/**
 * A run's log as an event file of TensorBoard.
 *
 * ```text
 * record   length u64, masked CRC-32C of those 8 bytes, data, masked CRC-32C of the data; all little-endian
 * Event    1 wall_time f64, 2 step int64, 3 file_version string | 5 Summary
 * Summary  1 Value { 1 tag string, 2 simple_value f32 }, repeated
 * ```
 * The forms are those of TensorFlow's `record_writer.cc`, `event.proto` and `summary.proto`.
 */

import { mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { checkKnownKeys, FulmarError } from '../core/index.js'
import { writeFileAtomic } from '../telemetry/atomic-file.js'
import { unwritable } from '../telemetry/disk.js'
import type { RunEvent } from '../telemetry/index.js'
import { maskedCrc32c } from './crc32c.js'
import { RunTail } from './run-tail.js'

/** Options of {@link writeTensorBoard}. */
export interface WriteTensorBoardOptions {
  /** The run folder. */
  readonly run: string
  /**
   * Folder of the event file; made if it is not there.
   * @default `tensorboard` in the run folder
   */
  readonly folder?: string
  /**
   * Seconds since 1970 at which the run began, as its log has no times of day: an event is as much later as the steps before it took.
   * @default the time at which `config.json` was written
   */
  readonly startSeconds?: number
}

/**
 * Writes the log of a run, finished or not, as an event file that TensorBoard reads, and returns its path. A metric `reward` of the phase
 * `grpo` has the tag `grpo/reward`. Calling it again replaces the file.
 *
 * @throws {FulmarError} `IO` or `MALFORMED` for a folder that is not there or holds no run; `OUT_OF_RANGE` for a negative time; `IO` if
 * the file cannot be written.
 *
 * @example
 * ```ts
 * import { writeTensorBoard } from 'fulmar/dashboard'
 * import { RunLog } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const run = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const log = await RunLog.open({ folder: run, config: { seed: 7 } })
 * log.append({ event: 'step', phase: 'grpo', step: 1, numSteps: 4, metrics: { reward: 0.5 } })
 * log.close()
 * const path = await writeTensorBoard({ run, startSeconds: 1_700_000_000 })
 * assert.equal(path, join(run, 'tensorboard', 'events.out.tfevents.1700000000.fulmar'))
 * ```
 */
export async function writeTensorBoard(options: WriteTensorBoardOptions): Promise<string> {
  checkKnownKeys('options', options, ['run', 'folder', 'startSeconds'], ['run'])
  const { run: path, folder = join(path, 'tensorboard') } = options
  const run = await RunTail.open(path)
  const startSeconds = options.startSeconds ?? (await writtenAt(run.folder))
  if (!Number.isFinite(startSeconds) || startSeconds < 0)
    throw new FulmarError('OUT_OF_RANGE', `startSeconds must be a number >= 0: got ${startSeconds}`)
  await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
    throw unwritable('folder', folder, cause)
  })
  const file = join(folder, `events.out.tfevents.${Math.floor(startSeconds)}.fulmar`)
  await writeFileAtomic(file, tensorBoardBytes(run.events, startSeconds))
  return file
}

async function writtenAt(folder: string): Promise<number> {
  const about = (await stat(join(folder, 'config.json')).catch(() => undefined)) ?? (await stat(folder))
  return Math.floor(about.mtimeMs / 1_000)
}

/** The bytes of an event file. */
export function tensorBoardBytes(events: readonly RunEvent[], startSeconds: number): Uint8Array {
  const records = [record(message([f64(1, startSeconds), text(3, 'brain.Event:2')]))]
  let [seconds, lastStep] = [startSeconds, 0]
  for (const event of events) {
    if (event.event === 'step') seconds += Math.max(0, event.metrics.seconds ?? 0)
    if (event.event !== 'result') lastStep = event.step
    const values = valuesOf(event).map(([tag, value]) => bytes(1, message([text(1, tag), f32(2, value)])))
    if (values.length === 0) continue
    records.push(record(message([f64(1, seconds), varint(2, lastStep), bytes(5, message(values))])))
  }
  return message(records)
}

function valuesOf(event: RunEvent): readonly (readonly [tag: string, value: number])[] {
  if (event.event === 'eval') return [[`${event.phase}/passRate`, event.passRate]]
  const prefix = event.event === 'step' ? event.phase : 'result'
  return Object.entries(event.metrics).map(([name, value]) => [`${prefix}/${name}`, value])
}

function record(data: Uint8Array): Uint8Array {
  const length = new Uint8Array(8)
  new DataView(length.buffer).setBigUint64(0, BigInt(data.length), true)
  return message([length, u32(maskedCrc32c(length)), data, u32(maskedCrc32c(data))])
}

/** Wire types of protobuf. */
const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 } as const

const tag = (field: number, wire: keyof typeof WIRE): Uint8Array => Uint8Array.of((field << 3) | WIRE[wire])

const text = (field: number, value: string): Uint8Array => bytes(field, new TextEncoder().encode(value))

const bytes = (field: number, value: Uint8Array): Uint8Array =>
  message([tag(field, 'bytes'), unsigned(value.length), value])

/** Left out where it is 0, as other writers do. */
const varint = (field: number, value: number): Uint8Array =>
  value === 0 ? new Uint8Array(0) : message([tag(field, 'varint'), unsigned(value)])

function f64(field: number, value: number): Uint8Array {
  const out = new Uint8Array(8)
  new DataView(out.buffer).setFloat64(0, value, true)
  return message([tag(field, 'fixed64'), out])
}

function f32(field: number, value: number): Uint8Array {
  const out = new Uint8Array(4)
  new DataView(out.buffer).setFloat32(0, value, true)
  return message([tag(field, 'fixed32'), out])
}

function u32(value: number): Uint8Array {
  const out = new Uint8Array(4)
  new DataView(out.buffer).setUint32(0, value, true)
  return out
}

/** Seven bits a byte, the lowest first. */
function unsigned(value: number): Uint8Array {
  const out: number[] = []
  let rest = value
  for (; rest >= 128; rest = Math.floor(rest / 128)) out.push((rest % 128) | 128)
  return Uint8Array.from([...out, rest])
}

function message(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** The video track of an MP4 file: where its frames are, and when they are shown. */

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { FulmarError, messageOf } from '../core/index.js'
import { trackFormat, type VideoTrack } from './video-track.js'

/** Most bytes of the box that describes the tracks. */
const MP4_MOOV_BYTES_MAX = 2 ** 26

/** Most frames of a video. */
const MP4_FRAMES_MAX = 2 ** 24

/** Deepest box that is opened. */
const BOXES = ['moov', 'trak', 'mdia', 'minf', 'stbl']

/** A frame in the order that it is decoded in. */
export interface Mp4Sample {
  readonly offset: number
  readonly sizeBytes: number
  /** When it is shown, in units of the track. */
  readonly shownAt: number
  readonly isKey: boolean
}

/** A frame's bytes. */
export interface EncodedFrame {
  readonly data: Uint8Array
  /** When it is shown, in microseconds from the first frame that is shown. */
  readonly timestamp: number
  readonly isKey: boolean
}

/** A video whose tables are read. It holds no open file. */
export class Mp4File {
  readonly path: string
  readonly track: VideoTrack
  /** Mean frames a second. */
  readonly fps: number
  /** Frames in the order of decoding. */
  readonly #samples: readonly Mp4Sample[]
  /** Place in the order of decoding, by the order of showing. */
  readonly #decodeOrder: Uint32Array
  readonly #timescale: number
  /** When the first frame is shown. */
  readonly #shownFrom: number

  private constructor(path: string, tables: Tables, samples: readonly Mp4Sample[]) {
    this.path = path
    this.track = tables.track
    this.#timescale = tables.timescale
    this.#samples = samples
    const order = Uint32Array.from(samples, (_, at) => at)
    this.#decodeOrder = order.sort((a, b) => (samples[a]?.shownAt ?? 0) - (samples[b]?.shownAt ?? 0) || a - b)
    this.#shownFrom = samples[this.#decodeOrder[0] ?? 0]?.shownAt ?? 0
    this.fps = tables.duration > 0 ? (samples.length * tables.timescale) / tables.duration : 0
  }

  /**
   * Reads the tables of a file. `stream` is the place of the track among all tracks; without it the first of a video is read.
   * @throws {FulmarError} `IO` if the file cannot be read; with the path, `CORRUPT` for damaged tables, `LIMIT_EXCEEDED` for a
   *   description of more than 64 MiB or more than 2^24 frames, `INCOMPATIBLE` for fragments, codecs that are unknown, and a
   *   stream that is not of a video.
   */
  static open(path: string, stream?: number): Mp4File {
    return withFile(path, (file) => {
      const moov = moovOf(path, file)
      const tables = trackOf(path, moov, stream)
      return new Mp4File(path, tables, samplesOf(path, tables, file.sizeBytes))
    })
  }

  /** Number of frames. */
  get numFrames(): number {
    return this.#samples.length
  }

  /**
   * Splits frames, which ascend, into runs that begin at a key frame. A run reads its bytes once.
   * @throws {FulmarError} `OUT_OF_RANGE`, with the path, for a frame that the video lacks.
   */
  runsOf(frames: readonly number[]): readonly Mp4Run[] {
    const runs: { first: number; last: number; frames: number[] }[] = []
    for (const frame of frames) {
      const at = this.#decodeOrder[frame]
      if (at === undefined || frame < 0) {
        const detail = `frame must be from 0 to ${this.numFrames - 1} in ${this.path}: got ${frame}`
        throw new FulmarError('OUT_OF_RANGE', detail)
      }
      const first = this.#keyBefore(at)
      const run = runs.find((one) => one.first === first)
      if (run === undefined) runs.push({ first, last: at, frames: [frame] })
      else {
        run.last = Math.max(run.last, at)
        run.frames.push(frame)
      }
    }
    return runs.map(({ first, last, frames: shown }) => {
      const order = Array.from({ length: last - first + 1 }, (_, at) => first + at)
      order.sort((a, b) => (this.#samples[a]?.shownAt ?? 0) - (this.#samples[b]?.shownAt ?? 0) || a - b)
      const places = shown.map((frame) => order.indexOf(this.#decodeOrder[frame] ?? 0))
      return { first, last, frames: shown, places }
    })
  }

  /** Reads the frames of a run in the order of decoding. @throws {FulmarError} `IO`, `CORRUPT`, with the path. */
  read({ first, last }: Mp4Run): readonly EncodedFrame[] {
    const samples = this.#samples.slice(first, last + 1)
    const start = Math.min(...samples.map(({ offset }) => offset))
    const end = Math.max(...samples.map(({ offset, sizeBytes }) => offset + sizeBytes))
    const bytes = withFile(this.path, (file) => file.read(start, end - start))
    return samples.map(({ offset, sizeBytes, shownAt, isKey }) => ({
      data: bytes.subarray(offset - start, offset - start + sizeBytes),
      timestamp: Math.round(((shownAt - this.#shownFrom) / this.#timescale) * 1e6),
      isKey,
    }))
  }

  #keyBefore(at: number): number {
    let first = at
    while (first > 0 && !this.#samples[first]?.isKey) first -= 1
    return first
  }
}

/** Frames that are decoded together: samples `first` to `last`. */
export interface Mp4Run {
  readonly first: number
  readonly last: number
  /** Frames that were asked for. */
  readonly frames: readonly number[]
  /** Their places among the pictures of the run, in the order of showing. */
  readonly places: readonly number[]
}

interface OpenFile {
  readonly sizeBytes: number
  read(start: number, length: number): Uint8Array
}

function withFile<T>(path: string, body: (file: OpenFile) => T): T {
  let descriptor: number
  try {
    descriptor = openSync(path, 'r')
  } catch (cause) {
    throw new FulmarError('IO', `path must be a readable video: got ${path} (${messageOf(cause)})`, { cause })
  }
  try {
    const { size: sizeBytes } = fstatSync(descriptor)
    const read = (start: number, length: number): Uint8Array => {
      if (start + length > sizeBytes) throw corrupt(path, `${start + length} bytes`, `${sizeBytes}`)
      const bytes = new Uint8Array(length)
      if (readSync(descriptor, bytes, 0, length, start) !== length)
        throw corrupt(path, `${length} bytes`, 'fewer')
      return bytes
    }
    return body({ sizeBytes, read })
  } finally {
    closeSync(descriptor)
  }
}

function corrupt(path: string, rule: string, got: string): FulmarError {
  return new FulmarError('CORRUPT', `${path} must be an MP4 file with ${rule}: got ${got}`)
}

/** Finds the description among the boxes of the file. */
function moovOf(path: string, file: OpenFile): Box {
  for (let at = 0; at + 8 <= file.sizeBytes; ) {
    const head = new DataView(file.read(at, Math.min(16, file.sizeBytes - at)).buffer)
    const { type, sizeBytes, headBytes } = boxHead(path, head, 0, file.sizeBytes - at)
    if (type === 'moof') throw new FulmarError('INCOMPATIBLE', `${path} must be one MP4 file: got fragments`)
    if (type === 'moov') {
      if (sizeBytes > MP4_MOOV_BYTES_MAX) {
        const detail = `${path} must have a description of at most ${MP4_MOOV_BYTES_MAX} bytes: got ${sizeBytes}`
        throw new FulmarError('LIMIT_EXCEEDED', detail)
      }
      return { type, view: viewOf(file.read(at + headBytes, sizeBytes - headBytes)) }
    }
    at += sizeBytes
  }
  throw corrupt(path, 'a box moov', 'no such box')
}

interface Box {
  readonly type: string
  readonly view: DataView
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function boxHead(path: string, view: DataView, at: number, bytesLeft: number) {
  const type = String.fromCharCode(...[4, 5, 6, 7].map((offset) => view.getUint8(at + offset)))
  const short = view.getUint32(at)
  const isLong = short === 1 && bytesLeft >= 16
  const sizeBytes = isLong ? Number(view.getBigUint64(at + 8)) : short === 0 ? bytesLeft : short
  const headBytes = isLong ? 16 : 8
  if (sizeBytes < headBytes || sizeBytes > bytesLeft)
    throw corrupt(
      path,
      `boxes inside of each other, of at most ${bytesLeft} bytes`,
      `${sizeBytes} of ${type}`,
    )
  return { type, sizeBytes, headBytes }
}

function boxesIn(path: string, { view }: Box, from = 0): readonly Box[] {
  const boxes: Box[] = []
  for (let at = from; at + 8 <= view.byteLength; ) {
    const { type, sizeBytes, headBytes } = boxHead(path, view, at, view.byteLength - at)
    const inner = new DataView(view.buffer, view.byteOffset + at + headBytes, sizeBytes - headBytes)
    boxes.push({ type, view: inner })
    at += sizeBytes
  }
  return boxes
}

/** The boxes of a track by their names, through the boxes that hold them. */
function boxesOfTrack(path: string, trak: Box): ReadonlyMap<string, Box> {
  const found = new Map<string, Box>()
  const open = (box: Box): void => {
    for (const inner of boxesIn(path, box)) {
      if (!found.has(inner.type)) found.set(inner.type, inner)
      if (BOXES.indexOf(inner.type) > BOXES.indexOf(box.type)) open(inner)
    }
  }
  open(trak)
  return found
}

interface Tables {
  readonly boxes: ReadonlyMap<string, Box>
  readonly track: VideoTrack
  readonly timescale: number
  readonly duration: number
}

function trackOf(path: string, moov: Box, stream: number | undefined): Tables {
  const tracks = boxesIn(path, moov)
    .filter(({ type }) => type === 'trak')
    .map((trak) => boxesOfTrack(path, trak))
  const isVideo = (boxes: ReadonlyMap<string, Box>) => textAt(boxes.get('hdlr'), 8) === 'vide'
  const boxes = stream === undefined ? tracks.find(isVideo) : tracks[stream]
  if (boxes === undefined || !isVideo(boxes)) {
    const got = stream === undefined ? 'no track of a video' : `another kind at stream ${stream}`
    throw new FulmarError('INCOMPATIBLE', `${path} must have a track of a video: got ${got}`)
  }
  const header = fieldsOf(path, boxes, 'mdhd', 24)
  const isLong = header.getUint8(0) === 1
  if (isLong && header.byteLength < 36) throw corrupt(path, 'a whole box mdhd', `${header.byteLength} bytes`)
  const timescale = header.getUint32(isLong ? 20 : 12)
  if (timescale === 0) throw corrupt(path, 'a time scale above 0', '0')
  const duration = isLong ? Number(header.getBigUint64(24)) : header.getUint32(16)
  const entries = boxesIn(path, { type: 'stsd', view: fieldsOf(path, boxes, 'stsd', 8) }, 8)
  return {
    boxes,
    timescale,
    duration,
    track: trackFormat(path, entries[0], (box, from) => boxesIn(path, box, from)),
  }
}

function textAt(box: Box | undefined, at: number): string {
  if (box === undefined || box.view.byteLength < at + 4) return ''
  return String.fromCharCode(...[0, 1, 2, 3].map((offset) => box.view.getUint8(at + offset)))
}

function fieldsOf(path: string, boxes: ReadonlyMap<string, Box>, type: string, bytesMin: number): DataView {
  const view = boxes.get(type)?.view
  if (view !== undefined && view.byteLength >= bytesMin) return view
  throw corrupt(path, `a whole box ${type}`, view === undefined ? 'none' : `${view.byteLength} bytes`)
}

/** Entries of a table: `width` numbers of 32 bits each, behind a count. */
function entriesOf(path: string, boxes: ReadonlyMap<string, Box>, type: string, width: number): Uint32Array {
  const view = fieldsOf(path, boxes, type, 8)
  const count = view.getUint32(4)
  const most = Math.floor((view.byteLength - 8) / (4 * width))
  if (count > most) throw corrupt(path, `at most ${most} entries in ${type} at its length`, `${count}`)
  return Uint32Array.from({ length: count * width }, (_, at) => view.getUint32(8 + 4 * at))
}

function samplesOf(path: string, { boxes }: Tables, fileBytes: number): readonly Mp4Sample[] {
  const sizes = sizesOf(path, boxes)
  const offsets = offsetsOf(path, boxes, sizes)
  const starts = runLengths(path, boxes, 'stts', sizes.length)
  const delays = boxes.has('ctts') ? runLengths(path, boxes, 'ctts', sizes.length) : undefined
  const keys = boxes.has('stss') ? new Set(entriesOf(path, boxes, 'stss', 1)) : undefined
  let decodedAt = 0
  return Array.from(sizes, (sizeBytes, at) => {
    const offset = offsets[at] ?? 0
    if (offset + sizeBytes > fileBytes)
      throw corrupt(path, `frame ${at} within its ${fileBytes} bytes`, `byte ${offset + sizeBytes}`)
    // Version 1 has signed delays, which writers use in version 0 too.
    const shownAt = decodedAt + ((delays?.[at] ?? 0) | 0)
    decodedAt += starts[at] ?? 0
    return { offset, sizeBytes, shownAt, isKey: keys?.has(at + 1) ?? true }
  })
}

function sizesOf(path: string, boxes: ReadonlyMap<string, Box>): Uint32Array {
  const view = fieldsOf(path, boxes, 'stsz', 12)
  const [same, count] = [view.getUint32(4), view.getUint32(8)]
  if (count > MP4_FRAMES_MAX)
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `${path} must have at most ${MP4_FRAMES_MAX} frames: got ${count}`,
    )
  if (same > 0) return new Uint32Array(count).fill(same)
  if (view.byteLength < 12 + 4 * count)
    throw corrupt(path, `sizes of ${count} frames`, `${view.byteLength} bytes`)
  return Uint32Array.from({ length: count }, (_, at) => view.getUint32(12 + 4 * at))
}

/** Values that are stored with the number of frames that have them. */
function runLengths(path: string, boxes: ReadonlyMap<string, Box>, type: string, count: number): Uint32Array {
  const entries = entriesOf(path, boxes, type, 2)
  const values = new Uint32Array(count)
  let at = 0
  for (let entry = 0; entry < entries.length; entry += 2) {
    const end = at + (entries[entry] ?? 0)
    if (end > count) throw corrupt(path, `${count} frames in ${type}`, `${end}`)
    values.fill(entries[entry + 1] ?? 0, at, end)
    at = end
  }
  if (at === count) return values
  throw corrupt(path, `${count} frames in ${type}`, `${at}`)
}

/** The place of each frame: chunks follow each other anywhere, the frames of one without a gap. */
function offsetsOf(path: string, boxes: ReadonlyMap<string, Box>, sizes: Uint32Array): Float64Array {
  const chunks = chunkOffsets(path, boxes)
  const runs = entriesOf(path, boxes, 'stsc', 3)
  const offsets = new Float64Array(sizes.length)
  let [at, run] = [0, 0]
  for (const [chunk, start] of chunks.entries()) {
    if ((runs[run + 3] ?? Number.POSITIVE_INFINITY) <= chunk + 1) run += 3
    let offset = start
    for (let left = runs[run + 1] ?? 0; left > 0 && at < sizes.length; left--) {
      offsets[at] = offset
      offset += sizes[at] ?? 0
      at += 1
    }
  }
  if (at === sizes.length) return offsets
  throw corrupt(path, `${sizes.length} frames in its chunks`, `${at}`)
}

function chunkOffsets(path: string, boxes: ReadonlyMap<string, Box>): Float64Array {
  if (!boxes.has('co64')) return Float64Array.from(entriesOf(path, boxes, 'stco', 1))
  const halves = entriesOf(path, boxes, 'co64', 2)
  return Float64Array.from({ length: halves.length / 2 }, (_, at) => {
    return (halves[2 * at] ?? 0) * 2 ** 32 + (halves[2 * at + 1] ?? 0)
  })
}

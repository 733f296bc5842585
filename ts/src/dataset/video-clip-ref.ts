/** Addresses of frames in video files, which are decoded when they are asked for. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import {
  type BatchIndex,
  type Dtype,
  type Json,
  NonTensorData,
  NonTensorStack,
  Tensor,
  TensorDict,
} from '../tensor/index.js'
import { binFrames, roundHalfEven } from './frame-bins.js'
import {
  checkPictures,
  findVideoDecoder,
  noDecoder,
  type VideoDecode,
  type VideoPicture,
  videoAt,
  writeRgb,
} from './video-decoder.js'

/** Options of {@link VideoClipRef}. */
export interface VideoClipRefOptions {
  /** Frame of its file, from 0, for each element of the batch. @default all frames of the first file */
  readonly frameIndex?: Tensor | readonly number[]
  /** File of each frame, as its place in the list of files. @default the first for all */
  readonly fileId?: Tensor | readonly number[]
  /** Place of the track among those of a file. @default the first of a video */
  readonly stream?: number
}

/** Options that divide frames into bins. */
export interface VideoBinOptions {
  /** Number of bins, from 1. @default every frame, without bins */
  readonly numBins?: number
  /** Frames of a bin, from 1, as another dimension. @default the one in its middle */
  readonly framesPerBin?: number
  /** Place of the track among those of a file. @default the first of a video */
  readonly stream?: number
}

/** Options of {@link VideoClipRef.decode}. */
export interface DecodeVideoOptions {
  /** @default 'u8' */
  readonly dtype?: Dtype
  /** @default `node-av` if it is installed, else WebCodecs */
  readonly decoder?: VideoDecode
}

/** Most bytes of the frames of one call. */
const FRAMES_BYTES_MAX = 2 ** 32

const BINS = ['numBins', 'framesPerBin', 'stream']

/**
 * Addresses of frames in video files, one for each element of the batch. Indexing, sampling and saving move addresses alone;
 * {@link VideoClipRef.decode} reads the frames. In a dictionary it is a nested dictionary, {@link VideoClipRef.dict}.
 *
 * @example
 * ```ts
 * import { VideoClipRef } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const clip = VideoClipRef.fromFiles(['left.mp4', 'right.mp4'], { numFramesPerFile: [3, 2] })
 * assert.deepEqual(clip.at({ start: 2 }).frameIndex.data, BigInt64Array.of(2n, 0n, 1n)) // reads no file
 * assert.deepEqual(clip.rebin(2).batchSize, [2])
 * ```
 */
export class VideoClipRef {
  /** The addresses as a dictionary: `sources`, `frame_index`, `file_id`, `auto_decode`, and `stream` if it is given. */
  readonly dict: TensorDict

  /**
   * @param sources Files, or one.
   * @throws {FulmarError} `MALFORMED` for sources that are not paths, or an index that is not of whole numbers; `OUT_OF_RANGE` for a
   *   frame below 0, or a file that is not in the list; `SHAPE_MISMATCH` if `fileId` has another shape; `UNKNOWN_NAME` for an unknown
   *   option; without `frameIndex` also `IO`, `CORRUPT`, `LIMIT_EXCEEDED` or `INCOMPATIBLE`, with the path, for a file that
   *   is not a video.
   */
  constructor(sources: string | readonly string[], options: VideoClipRefOptions = {}) {
    checkKnownKeys('options', options, ['frameIndex', 'fileId', 'stream'])
    const paths = typeof sources === 'string' ? [sources] : sources
    checkPaths('sources', paths)
    const { stream, frameIndex, fileId } = options
    checkStream(stream)
    const frames = indexOf('frameIndex', frameIndex ?? allFrames(paths[0] ?? '', stream))
    const files = indexOf('fileId', fileId ?? zerosLike(frames))
    if (files.shape.join() !== frames.shape.join()) {
      const got = `[${files.shape.join(', ')}] and [${frames.shape.join(', ')}]`
      throw new FulmarError('SHAPE_MISMATCH', `options.fileId must have the shape of frameIndex: got ${got}`)
    }
    checkIndex('frameIndex', frames, Number.MAX_SAFE_INTEGER)
    checkIndex('fileId', files, paths.length - 1)
    this.dict = TensorDict.from(
      {
        sources: new NonTensorData([...paths]),
        frame_index: frames,
        file_id: files,
        auto_decode: new NonTensorData(false),
        ...(stream !== undefined && { stream: new NonTensorData(stream) }),
      },
      { batchSize: frames.shape },
    )
  }

  /**
   * Frames of one file: all of them, those of `frameIndex`, or those of bins.
   * @throws {FulmarError} `INCOMPATIBLE` for bins with `frameIndex`, or `framesPerBin` without `numBins`; those of the constructor.
   */
  static fromFile(
    path: string,
    options: VideoBinOptions & {
      /** Frames of the file. @default those that it has */
      readonly numFrames?: number
      /** @default all frames */
      readonly frameIndex?: Tensor | readonly number[]
    } = {},
  ): VideoClipRef {
    checkKnownKeys('options', options, [...BINS, 'numFrames', 'frameIndex'])
    const { numFrames, frameIndex, numBins, framesPerBin, stream } = options
    checkStream(stream)
    if (frameIndex !== undefined && numBins !== undefined)
      throw new FulmarError('INCOMPATIBLE', 'options.frameIndex must come without numBins: both are given')
    if (numFrames !== undefined) checkCount('numFrames', numFrames)
    const options_ = stream === undefined ? {} : { stream }
    if (frameIndex !== undefined) return new VideoClipRef(path, { frameIndex, ...options_ })
    checkPaths('path', [path])
    const count = numFrames ?? videoAt(path, stream).numFrames
    const clip = new VideoClipRef(path, { frameIndex: range(count), ...options_ })
    return binned(clip, numBins, framesPerBin)
  }

  /**
   * The frames of several files, one after the other, or those of bins over all. A path that comes twice is one file.
   * @throws {FulmarError} `EMPTY` without files; `SHAPE_MISMATCH` if `numFramesPerFile` has another length; those of
   *   {@link VideoClipRef.fromFile}.
   */
  static fromFiles(
    paths: readonly string[],
    options: VideoBinOptions & {
      /** Frames of each file, or one number for all. @default those that they have */
      readonly numFramesPerFile?: number | readonly number[]
    } = {},
  ): VideoClipRef {
    checkKnownKeys('options', options, [...BINS, 'numFramesPerFile'])
    checkPaths('paths', paths)
    const { numFramesPerFile, numBins, framesPerBin, stream } = options
    checkStream(stream)
    const counts = countsOf(paths, numFramesPerFile, stream)
    const files = [...new Set(paths)]
    const total = counts.reduce((sum, count) => sum + count, 0)
    checkTotal(total)
    const [frameIndex, fileId] = [new BigInt64Array(total), new BigInt64Array(total)]
    let at = 0
    for (const [place, path] of paths.entries()) {
      const file = BigInt(files.indexOf(path))
      for (let frame = 0; frame < (counts[place] ?? 0); frame++, at++) {
        frameIndex[at] = BigInt(frame)
        fileId[at] = file
      }
    }
    const clip = new VideoClipRef(files, {
      ...{ frameIndex: Tensor.from(frameIndex), fileId: Tensor.from(fileId) },
      ...(stream !== undefined && { stream }),
    })
    return binned(clip, numBins, framesPerBin)
  }

  /**
   * The frames nearest to times, in seconds; those outside the file are its first or last.
   * @throws {FulmarError} `NON_FINITE` for a time that is not finite; `OUT_OF_RANGE` if `fps` is not above 0; those of the constructor.
   */
  static fromTimestamps(
    path: string,
    timestamps: Tensor | readonly number[],
    options: {
      /** Frames a second. @default the mean of the file */
      readonly fps?: number
      /** Place of the track among those of the file. @default the first of a video */
      readonly stream?: number
    } = {},
  ): VideoClipRef {
    checkKnownKeys('options', options, ['fps', 'stream'])
    checkPaths('path', [path])
    const { stream } = options
    checkStream(stream)
    const video = videoAt(path, stream)
    const { fps = video.fps } = options
    if (typeof fps !== 'number' || !(fps > 0) || !Number.isFinite(fps))
      throw new FulmarError('OUT_OF_RANGE', `options.fps must be a number above 0: got ${describeValue(fps)}`)
    const times = timestamps instanceof Tensor ? timestamps : Tensor.from(timestamps)
    const frames = BigInt64Array.from(Array.from(times.data, Number), (time, at) => {
      if (!Number.isFinite(time))
        throw new FulmarError('NON_FINITE', `timestamps must be finite: got ${time} at element ${at}`)
      const frame = roundHalfEven(Math.fround(Math.fround(time) * fps))
      return BigInt(Math.min(Math.max(frame, 0), video.numFrames - 1))
    })
    const frameIndex = Tensor.from(frames, { shape: times.shape })
    return new VideoClipRef(path, { frameIndex, ...(stream !== undefined && { stream }) })
  }

  /**
   * Addresses around a dictionary of them, such as one of a sampled batch; the dictionary is not copied.
   * @throws {FulmarError} `INCOMPATIBLE` for a dictionary without them.
   */
  static around(dict: TensorDict): VideoClipRef {
    const given: unknown = dict
    if (isVideoClip(given)) return Object.assign(Object.create(VideoClipRef.prototype), { dict })
    const got = given instanceof TensorDict ? given.keys().join(', ') || 'no key' : describeValue(given)
    throw new FulmarError('INCOMPATIBLE', `dict must have sources, frame_index and file_id: got ${got}`)
  }

  /** Shape of the batch. */
  get batchSize(): readonly number[] {
    return this.dict.batchSize
  }

  /** Frame of its file, for each element. */
  get frameIndex(): Tensor {
    return this.dict.tensor('frame_index')
  }

  /** File of each frame, as its place in the list of files. */
  get fileId(): Tensor {
    return this.dict.tensor('file_id')
  }

  /** The file of each frame, row-major. @throws {FulmarError} `OUT_OF_RANGE` for a file that is not in the list. */
  get sources(): readonly string[] {
    const entry = this.dict.get('sources')
    const lists = (entry instanceof NonTensorStack ? entry.values : [this.dict.value('sources')]).map(pathsIn)
    return Array.from(this.fileId.data, Number).map((file, at) => {
      const list = lists.length === 1 ? lists[0] : lists[at]
      const path = list?.[file]
      if (path !== undefined) return path
      throw new FulmarError(
        'OUT_OF_RANGE',
        `file_id must be in the list of files: got ${file} at element ${at}`,
      )
    })
  }

  /** Addresses at an index of the batch, as {@link TensorDict.at}; no file is read. */
  at(...index: BatchIndex[]): VideoClipRef {
    return VideoClipRef.around(this.dict.at(...index))
  }

  /** The same addresses in another shape. @throws {FulmarError} `SHAPE_MISMATCH` for another number of elements. */
  reshape(sizes: readonly number[]): VideoClipRef {
    return VideoClipRef.around(this.dict.reshape(sizes))
  }

  /**
   * Divides the frames, row-major, into bins with edges at `round(linspace(0, n, numBins + 1))`, and keeps the one in the middle
   * of each, `[numBins]`, or some over the whole bin, `[numBins, framesPerBin]`.
   * @throws {FulmarError} `OUT_OF_RANGE` for a number below 1; `EMPTY` without frames.
   */
  rebin(numBins: number, framesPerBin?: number): VideoClipRef {
    const total = this.frameIndex.numElements
    const frames = binFrames(total, numBins, framesPerBin)
    const flat = this.dict.reshape([total]).indexSelect(frames)
    return VideoClipRef.around(framesPerBin === undefined ? flat : flat.reshape([numBins, framesPerBin]))
  }

  /**
   * Decodes the frames: `[...batchSize, 3, H, W]`. Each file is read once for each run of frames behind a key frame.
   * @throws {FulmarError} `UNAVAILABLE` without a decoder; `EMPTY` without frames; `OUT_OF_RANGE`, with the path, for a frame that
   *   a file lacks; `SHAPE_MISMATCH` for files of different sizes; `LIMIT_EXCEEDED` for more than 4 GiB; `USER_CODE` if the decoder
   *   returns something else; `IO`, `CORRUPT` or `INCOMPATIBLE` for a file that cannot be read.
   */
  async decode(options: DecodeVideoOptions = {}): Promise<Tensor> {
    checkKnownKeys('options', options, ['dtype', 'decoder'])
    const decoder = options.decoder ?? (await findVideoDecoder())
    const work = planOf(this, decoder)
    const pictures: PlacedPictures[] = []
    for (const { job, decode } of work) pictures.push({ job, shown: await decode() })
    return framesOf(this, pictures, options.dtype)
  }

  /**
   * As {@link VideoClipRef.decode}, at once, by a decoder that does not return a promise.
   * @throws {FulmarError} As {@link VideoClipRef.decode}; `INCOMPATIBLE` for a decoder that returns a promise.
   */
  decodeSync(options: Omit<DecodeVideoOptions, 'decoder'> & { readonly decoder: VideoDecode }): Tensor {
    checkKnownKeys('options', options, ['dtype', 'decoder'], ['decoder'])
    const pictures = planOf(this, options.decoder).map(({ job, decode }): PlacedPictures => {
      const shown = decode()
      if (!(shown instanceof Promise)) return { job, shown }
      shown.catch(() => undefined)
      throw new FulmarError('INCOMPATIBLE', 'options.decoder must decode at once: it returns a promise')
    })
    return framesOf(this, pictures, options.dtype)
  }
}

/** @internal Returns true for a dictionary of addresses of frames. */
export function isVideoClip(entry: unknown): entry is TensorDict {
  return entry instanceof TensorDict && ['sources', 'frame_index', 'file_id'].every((name) => entry.has(name))
}

/** The runs of frames to decode. */
function planOf({ dict, sources, frameIndex }: VideoClipRef, decoder: VideoDecode | undefined) {
  if (decoder === undefined) throw noDecoder('VideoClipRef')
  if (typeof decoder !== 'function')
    throw new FulmarError('MALFORMED', `options.decoder must be a function: got ${describeValue(decoder)}`)
  const stream = dict.has('stream') ? Number(firstOf(dict.get('stream'))) : undefined
  const jobs = jobsOf(sources, Array.from(frameIndex.data, Number), stream)
  if (jobs.length === 0) throw new FulmarError('EMPTY', 'frames must be at least one: the batch has 0')
  return jobs.map((job) => ({ job, decode: () => decoder(job.video.track, job.video.read(job.run)) }))
}

/** The pictures in the shape of the batch. */
function framesOf(
  { batchSize, frameIndex }: VideoClipRef,
  pictures: readonly PlacedPictures[],
  dtype: Dtype = 'u8',
): Tensor {
  const total = frameIndex.numElements
  let frames: Uint8ClampedArray | undefined
  let size: Pick<VideoPicture, 'width' | 'height'> | undefined
  for (const { job, shown } of pictures) {
    const { path } = job.video
    const list = checkPictures(path, shown, job.run.last - job.run.first + 1)
    for (const [at, place] of job.run.places.entries()) {
      const picture = list[place]
      if (picture === undefined) continue
      size ??= picture
      if (picture.width !== size.width || picture.height !== size.height) {
        const detail = `videos must be of one size, ${size.width} x ${size.height}: got ${picture.width} x ${picture.height} of ${path}`
        throw new FulmarError('SHAPE_MISMATCH', detail)
      }
      const bytes = 3 * size.width * size.height
      frames ??= new Uint8ClampedArray(checkBytes(total * bytes))
      for (const element of job.elements.get(job.run.frames[at] ?? -1) ?? [])
        writeRgb(picture, frames, element * bytes)
    }
  }
  const { width = 0, height = 0 } = size ?? {}
  const bytes = new Uint8Array((frames ?? new Uint8ClampedArray()).buffer)
  const tensor = Tensor.from(bytes, { shape: [...batchSize, 3, height, width] })
  return dtype === 'u8' ? tensor : tensor.to(dtype)
}

interface Job {
  readonly video: ReturnType<typeof videoAt>
  readonly run: ReturnType<ReturnType<typeof videoAt>['runsOf']>[number]
  /** Elements of the batch, by their frame. */
  readonly elements: ReadonlyMap<number, readonly number[]>
}

interface PlacedPictures {
  readonly job: Job
  readonly shown: readonly VideoPicture[] | Promise<readonly VideoPicture[]>
}

/** Groups the elements by file and key frame. */
function jobsOf(
  sources: readonly string[],
  frames: readonly number[],
  stream: number | undefined,
): readonly Job[] {
  const files = new Map<string, Map<number, number[]>>()
  for (const [element, path] of sources.entries()) {
    const elements = files.get(path) ?? new Map<number, number[]>()
    files.set(path, elements)
    const frame = frames[element] ?? 0
    elements.set(frame, [...(elements.get(frame) ?? []), element])
  }
  return [...files].flatMap(([path, elements]) => {
    const video = videoAt(path, stream)
    const ascending = [...elements.keys()].sort((a, b) => a - b)
    return video.runsOf(ascending).map((run) => ({ video, run, elements }))
  })
}

function checkBytes(bytes: number): number {
  if (bytes <= FRAMES_BYTES_MAX) return bytes
  throw new FulmarError('LIMIT_EXCEEDED', `frames must take at most ${FRAMES_BYTES_MAX} bytes: got ${bytes}`)
}

function binned(
  clip: VideoClipRef,
  numBins: number | undefined,
  framesPerBin: number | undefined,
): VideoClipRef {
  if (numBins !== undefined) return clip.rebin(numBins, framesPerBin)
  if (framesPerBin === undefined) return clip
  throw new FulmarError('INCOMPATIBLE', 'options.framesPerBin must come with numBins: got it alone')
}

function countsOf(
  paths: readonly string[],
  given: number | readonly number[] | undefined,
  stream: number | undefined,
): readonly number[] {
  if (given === undefined) return paths.map((path) => videoAt(path, stream).numFrames)
  const counts = typeof given === 'number' ? paths.map(() => given) : given
  if (!Array.isArray(counts))
    throw new FulmarError(
      'MALFORMED',
      `options.numFramesPerFile must be numbers: got ${describeValue(given)}`,
    )
  for (const count of counts) checkCount('numFramesPerFile', count)
  if (counts.length === paths.length) return counts
  const detail = `options.numFramesPerFile must have a number for each of ${paths.length} files: got ${counts.length}`
  throw new FulmarError('SHAPE_MISMATCH', detail)
}

/** Most frames of one object. */
const CLIP_FRAMES_MAX = 2 ** 31

function checkTotal(total: number): void {
  if (total <= CLIP_FRAMES_MAX) return
  throw new FulmarError('LIMIT_EXCEEDED', `frames must be at most ${CLIP_FRAMES_MAX}: got ${total}`)
}

function checkCount(name: string, count: unknown): void {
  if (typeof count !== 'number' || !Number.isSafeInteger(count) || count < 0) {
    const got = describeValue(count)
    throw new FulmarError('OUT_OF_RANGE', `options.${name} must be whole numbers from 0: got ${got}`)
  }
  checkTotal(count)
}

function checkPaths(name: string, paths: unknown): void {
  if (Array.isArray(paths) && paths.length === 0)
    throw new FulmarError('EMPTY', `${name} must be at least one file: got 0`)
  if (Array.isArray(paths) && paths.every((path) => typeof path === 'string' && path !== '')) return
  throw new FulmarError('MALFORMED', `${name} must be paths of files: got ${describeValue(paths)}`)
}

function checkStream(stream: unknown): void {
  if (stream === undefined || (Number.isInteger(stream) && (stream as number) >= 0)) return
  throw new FulmarError(
    'OUT_OF_RANGE',
    `options.stream must be a whole number from 0: got ${describeValue(stream)}`,
  )
}

function allFrames(path: string, stream: number | undefined): readonly number[] {
  return range(videoAt(path, stream).numFrames)
}

function range(length: number): readonly number[] {
  return Array.from({ length }, (_, at) => at)
}

function zerosLike({ shape }: Tensor): Tensor {
  return Tensor.zeros('i64', shape)
}

function indexOf(name: string, index: Tensor | readonly number[]): Tensor {
  if (index instanceof Tensor) {
    if (/^[iu]\d+$/.test(index.dtype)) return index.dtype === 'i64' ? index : index.to('i64')
  } else if (Array.isArray(index) && index.every((one) => Number.isSafeInteger(one))) {
    return Tensor.from(BigInt64Array.from(index, BigInt))
  }
  const got = index instanceof Tensor ? index.dtype : describeValue(index)
  throw new FulmarError('MALFORMED', `options.${name} must be whole numbers: got ${got}`)
}

function checkIndex(name: string, index: Tensor, most: number): void {
  for (const value of index.data as BigInt64Array) {
    if (value >= 0n && value <= most) continue
    throw new FulmarError('OUT_OF_RANGE', `options.${name} must be from 0 to ${most}: got ${value}`)
  }
}

/** The files of one value of `sources`. */
function pathsIn(value: Json): readonly string[] {
  const paths = Array.isArray(value) ? value : [value]
  if (paths.every((path) => typeof path === 'string')) return paths as readonly string[]
  throw new FulmarError('INCOMPATIBLE', `sources must be paths of files: got ${describeValue(value)}`)
}

function firstOf(entry: unknown): Json | undefined {
  return entry instanceof NonTensorStack
    ? entry.values[0]
    : entry instanceof NonTensorData
      ? entry.value
      : undefined
}

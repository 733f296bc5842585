/** Decoders of video frames: one that is handed in, `node-av`, or WebCodecs. */

import { describeValue, FulmarError, messageOf } from '../core/index.js'
import { type EncodedFrame, Mp4File } from './mp4-file.js'
import type { VideoTrack } from './video-track.js'

/** A decoded frame. */
export interface VideoPicture {
  readonly width: number
  readonly height: number
  /** `rgb24`: three bytes a pixel; `yuv420p`: a plane of the size, and two of half of it. */
  readonly format: 'rgb24' | 'yuv420p'
  /** The planes without gaps. */
  readonly data: Uint8Array
  /** Matrix of `yuv420p`. @default 'bt601' */
  readonly matrix?: 'bt601' | 'bt709'
  /** True if the luma of `yuv420p` is from 0 to 255, else from 16 to 235. @default false */
  readonly isFullRange?: boolean
}

/**
 * Decodes frames of a track, which are in the order of decoding and begin with a key frame. Returns as many pictures in the order
 * of showing.
 */
export type VideoDecode = (
  track: VideoTrack,
  frames: readonly EncodedFrame[],
) => readonly VideoPicture[] | Promise<readonly VideoPicture[]>

/** The optional package, by a name that compilers do not follow: its types are not needed to build. */
const NODE_AV: string = 'node-av/lib'

/** Videos whose tables are kept. */
const CACHE_SIZE = 8

/** Most videos whose tables may be kept. */
const CACHE_SIZE_MAX = 65_536

let cacheSize = CACHE_SIZE
const cache = new Map<string, Mp4File>()

/**
 * Sets the number of videos that are kept open: their tables, not their frames. The one that was used longest ago is dropped
 * first.
 * @param size From 0 to 65,536; 8 at first.
 * @throws {FulmarError} `OUT_OF_RANGE` for another number.
 *
 * @example
 * ```ts
 * import { clearVideoDecoderCache, setVideoDecoderCacheSize } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * setVideoDecoderCacheSize(32)
 * assert.throws(() => setVideoDecoderCacheSize(-1), { code: 'OUT_OF_RANGE' })
 * setVideoDecoderCacheSize(8)
 * clearVideoDecoderCache()
 * ```
 */
export function setVideoDecoderCacheSize(size: number): void {
  if (!Number.isInteger(size) || size < 0 || size > CACHE_SIZE_MAX) {
    const got = describeValue(size)
    throw new FulmarError(
      'OUT_OF_RANGE',
      `size must be a whole number from 0 to ${CACHE_SIZE_MAX}: got ${got}`,
    )
  }
  cacheSize = size
  shrink()
}

/**
 * Closes the videos that are kept open.
 *
 * @example
 * ```ts
 * import { clearVideoDecoderCache } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(clearVideoDecoderCache(), undefined) // the next frame of a video reads its tables once more
 * ```
 */
export function clearVideoDecoderCache(): void {
  cache.clear()
}

/** @internal Number of videos that are kept open. */
export function numVideosOpen(): number {
  return cache.size
}

/** @internal The tables of a video, from the cache if they are there. @throws {FulmarError} As {@link Mp4File.open}. */
export function videoAt(path: string, stream: number | undefined): Mp4File {
  const name = JSON.stringify([path, stream ?? null])
  const video = cache.get(name) ?? Mp4File.open(path, stream)
  cache.delete(name)
  cache.set(name, video)
  shrink()
  return video
}

function shrink(): void {
  for (const name of cache.keys()) {
    if (cache.size <= cacheSize) return
    cache.delete(name)
  }
}

/**
 * @internal The decoder of this runtime: `node-av` if it is installed, else WebCodecs, else nothing.
 * `node-av` decodes at once, so only it serves draws of a buffer.
 */
export async function findVideoDecoder(
  load: () => Promise<unknown> = () => import(NODE_AV),
): Promise<VideoDecode | undefined> {
  const library = await load().catch((cause: NodeJS.ErrnoException) => {
    // Bundlers put a module that throws in the place of a peer that is not installed.
    if (cause.code === 'ERR_MODULE_NOT_FOUND' || /^Could not resolve/.test(cause.message)) return undefined
    throw new FulmarError('UNAVAILABLE', `node-av must load: got ${messageOf(cause)}`, { cause })
  })
  if (library !== undefined) return (await import('./node-av-decoder.js')).nodeAvDecoder(library)
  if (typeof Reflect.get(globalThis, 'VideoDecoder') !== 'function') return undefined
  return (await import('./web-codecs-decoder.js')).webCodecsDecoder
}

/** @internal The error of a runtime without a decoder. */
export function noDecoder(what: string): FulmarError {
  const ways = "install the package 'node-av', give options.decoder, or run where WebCodecs is"
  return new FulmarError('UNAVAILABLE', `${what} needs a decoder of videos: there is none (${ways})`)
}

/** @internal Checks the pictures of a decoder. @throws {FulmarError} `USER_CODE`, with the path. */
export function checkPictures(path: string, pictures: unknown, count: number): readonly VideoPicture[] {
  const isList = Array.isArray(pictures)
  if (!isList || pictures.length !== count) {
    const got = isList ? String(pictures.length) : describeValue(pictures)
    throw new FulmarError('USER_CODE', `decoder must return ${count} pictures of ${path}: got ${got}`)
  }
  for (const picture of pictures as readonly VideoPicture[]) {
    const { width, height, format, data } = picture
    const half = Math.ceil(width / 2) * Math.ceil(height / 2)
    const bytes = format === 'rgb24' ? 3 * width * height : width * height + 2 * half
    const isKnown = format === 'rgb24' || format === 'yuv420p'
    if (isKnown && data instanceof Uint8Array && data.length === bytes) continue
    const got = `${describeValue(format)} with ${data?.length} bytes`
    const detail = `decoder must return rgb24 or yuv420p of ${width} x ${height} for ${path}: got ${got}`
    throw new FulmarError('USER_CODE', detail)
  }
  return pictures as readonly VideoPicture[]
}

/** @internal Writes a picture as `[3, H, W]`. Chroma is that of the nearest pixel. */
export function writeRgb(picture: VideoPicture, into: Uint8ClampedArray, from: number): void {
  const { width, height, format, data, matrix = 'bt601', isFullRange = false } = picture
  const size = width * height
  if (format === 'rgb24') {
    for (let at = 0; at < size; at++)
      for (let color = 0; color < 3; color++) into[from + color * size + at] = data[3 * at + color] ?? 0
    return
  }
  const halfWidth = Math.ceil(width / 2)
  const half = halfWidth * Math.ceil(height / 2)
  const [red, blue] = matrix === 'bt709' ? [0.2126, 0.0722] : [0.299, 0.114]
  const green = 1 - red - blue
  const [black, lumaScale, chromaScale] = isFullRange ? [0, 1, 1] : [16, 255 / 219, 255 / 224]
  const toRed = 2 * (1 - red) * chromaScale
  const toBlue = 2 * (1 - blue) * chromaScale
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const at = row * width + column
      const chroma = size + (row >> 1) * halfWidth + (column >> 1)
      const luma = ((data[at] ?? 0) - black) * lumaScale
      const u = (data[chroma] ?? 0) - 128
      const v = (data[chroma + half] ?? 0) - 128
      into[from + at] = luma + toRed * v
      into[from + size + at] = luma - (red * toRed * v + blue * toBlue * u) / green
      into[from + 2 * size + at] = luma + toBlue * u
    }
  }
}

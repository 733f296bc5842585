/** The decoder of browsers: WebCodecs. */

import { FulmarError, messageOf } from '../core/index.js'
import type { EncodedFrame } from './mp4-file.js'
import type { VideoPicture } from './video-decoder.js'
import type { VideoTrack } from './video-track.js'

interface WebFrame {
  readonly codedWidth: number
  readonly codedHeight: number
  readonly visibleRect: { readonly width: number; readonly height: number } | null
  readonly timestamp: number
  readonly format: string | null
  readonly colorSpace: { readonly matrix: string | null; readonly fullRange: boolean | null }
  allocationSize(options: object): number
  copyTo(into: Uint8Array, options: object): Promise<unknown>
  close(): void
}

interface WebDecoder {
  configure(track: VideoTrack): void
  decode(chunk: unknown): void
  flush(): Promise<void>
  close(): void
}

/** The part of WebCodecs that is used. */
interface WebCodecs {
  readonly VideoDecoder: new (sinks: {
    readonly output: (frame: WebFrame) => void
    readonly error: (cause: unknown) => void
  }) => WebDecoder
  readonly EncodedVideoChunk: new (chunk: object) => unknown
}

/** @internal Decodes frames by the global `VideoDecoder`. @throws {FulmarError} `CORRUPT` if it refuses them. */
export async function webCodecsDecoder(
  track: VideoTrack,
  frames: readonly EncodedFrame[],
): Promise<readonly VideoPicture[]> {
  const { VideoDecoder, EncodedVideoChunk } = globalThis as unknown as WebCodecs
  const pictures: Promise<readonly [timestamp: number, picture: VideoPicture]>[] = []
  let failure: unknown
  const decoder = new VideoDecoder({
    output: (frame) => pictures.push(pictureOf(frame)),
    error: (cause) => {
      failure = cause
    },
  })
  try {
    decoder.configure(track)
    for (const { data, timestamp, isKey } of frames)
      decoder.decode(new EncodedVideoChunk({ type: isKey ? 'key' : 'delta', timestamp, data }))
    await decoder.flush()
    const shown = await Promise.all(pictures)
    return shown.sort(([a], [b]) => a - b).map(([, picture]) => picture)
  } catch (cause) {
    await Promise.allSettled(pictures)
    const why = messageOf(failure ?? cause)
    throw new FulmarError('CORRUPT', `frames must be of ${track.codec}: the decoder says ${why}`, { cause })
  } finally {
    decoder.close()
  }
}

async function pictureOf(frame: WebFrame): Promise<readonly [number, VideoPicture]> {
  try {
    const { codedWidth, codedHeight, visibleRect, timestamp } = frame
    const { width, height } = visibleRect ?? { width: codedWidth, height: codedHeight }
    const isPlanar = frame.format === 'I420'
    const options = isPlanar ? {} : { format: 'RGBA' }
    const bytes = new Uint8Array(frame.allocationSize(options))
    await frame.copyTo(bytes, options)
    if (!isPlanar) return [timestamp, { width, height, format: 'rgb24', data: withoutAlpha(bytes) }]
    const { matrix, fullRange } = frame.colorSpace
    const color = { matrix: matrix === 'bt709' ? 'bt709' : 'bt601', isFullRange: fullRange === true } as const
    return [timestamp, { width, height, format: 'yuv420p', data: bytes, ...color }]
  } finally {
    frame.close()
  }
}

function withoutAlpha(pixels: Uint8Array): Uint8Array {
  return pixels.filter((_, at) => at % 4 !== 3)
}

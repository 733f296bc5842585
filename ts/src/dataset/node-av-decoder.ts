/** FFmpeg's decoders by the optional package `node-av`. */

import { describeValue, FulmarError } from '../core/index.js'
import type { VideoDecode, VideoPicture } from './video-decoder.js'

/** FFmpeg's numbers of codecs. */
const CODECS: Readonly<Record<string, number>> = {
  avc1: 27,
  avc3: 27,
  hvc1: 173,
  hev1: 173,
  av01: 225,
  vp09: 167,
}

/** FFmpeg's numbers of pixel formats: with limited and with full range. */
const PIXELS = { yuv420p: 0, yuvj420p: 12 }

/** FFmpeg's numbers of the matrix BT.709 and of full range. */
const BT709 = 1
const FULL_RANGE = 2

interface Context {
  extraData: Uint8Array | null
  width: number
  height: number
  allocContext3(codec: unknown): void
  open2Sync(codec: unknown): number
  sendPacketSync(packet: Packet | null): number
  receiveFrameSync(frame: Frame): number
  freeContext(): void
}

interface Packet {
  data: Uint8Array | null
  pts: bigint
  alloc(): void
  unref(): void
  free(): void
}

interface Frame {
  readonly width: number
  readonly height: number
  readonly format: number
  readonly colorSpace: number
  readonly colorRange: number
  alloc(): void
  unref(): void
  free(): void
  toBuffer(): Uint8Array
}

/** The part of `node-av/lib` that is used. */
interface Library {
  readonly Codec: { findDecoder(id: number): unknown }
  readonly CodecContext: new () => Context
  readonly Packet: new () => Packet
  readonly Frame: new () => Frame
}

/** @internal A decoder of the library, which decodes at once. */
export function nodeAvDecoder(library: unknown): VideoDecode {
  const { Codec, CodecContext, Packet, Frame } = library as Library
  return (track, frames) => {
    const codec = Codec.findDecoder(CODECS[track.codec.slice(0, 4)] ?? 0)
    if (!codec)
      throw new FulmarError('UNAVAILABLE', `node-av must have a decoder of ${track.codec}: it has none`)
    const context = new CodecContext()
    const [packet, frame] = [new Packet(), new Frame()]
    packet.alloc()
    frame.alloc()
    try {
      context.allocContext3(codec)
      context.extraData = Buffer.from(track.description)
      context.width = track.codedWidth
      context.height = track.codedHeight
      checked(context.open2Sync(codec), track.codec)
      const pictures: VideoPicture[] = []
      for (const { data, timestamp } of frames) {
        packet.data = Buffer.from(data)
        packet.pts = BigInt(timestamp)
        checked(context.sendPacketSync(packet), track.codec)
        packet.unref()
        takePictures(context, frame, pictures)
      }
      checked(context.sendPacketSync(null), track.codec)
      takePictures(context, frame, pictures)
      return pictures
    } finally {
      context.freeContext()
      packet.free()
      frame.free()
    }
  }
}

function checked(result: number, codec: string): void {
  if (result >= 0) return
  throw new FulmarError('CORRUPT', `frames must be of ${codec}: the decoder gives error ${result}`)
}

function takePictures(context: Context, frame: Frame, pictures: VideoPicture[]): void {
  while (context.receiveFrameSync(frame) >= 0) {
    pictures.push(pictureOf(frame))
    frame.unref()
  }
}

function pictureOf(frame: Frame): VideoPicture {
  const { width, height, format, colorSpace, colorRange } = frame
  if (format !== PIXELS.yuv420p && format !== PIXELS.yuvj420p) {
    const got = describeValue(format)
    throw new FulmarError('INCOMPATIBLE', `frames must be yuv420p: got FFmpeg's pixel format ${got}`)
  }
  return {
    ...{ width, height, format: 'yuv420p', data: new Uint8Array(frame.toBuffer()) },
    matrix: colorSpace === BT709 ? 'bt709' : 'bt601',
    isFullRange: colorRange === FULL_RANGE || format === PIXELS.yuvj420p,
  }
}

/** Pixels of encoded images: PNG and JPEG. */

import { FulmarError, messageOf } from '../core/index.js'

/** Most pixels of an image. */
const IMAGE_PIXELS_MAX = 2 ** 26

/** An image as `[3, height, width]`. */
export interface ImagePixels {
  readonly width: number
  readonly height: number
  readonly pixels: Uint8Array
}

/** Decodes an image. Throws an error of the format for other bytes. */
export type DecodeImage = (bytes: Uint8Array) => ImagePixels

/**
 * @internal Loads the decoder of PNG and JPEG. Gray becomes three equal channels, 16 bits their upper 8, alpha is left out.
 * The decoder throws `CORRUPT` for other bytes and `LIMIT_EXCEEDED` above 2^26 pixels.
 */
export async function imageDecoder(): Promise<DecodeImage> {
  const [png, jpeg] = await Promise.all([import('fast-png'), import('@cwasm/jpeg-turbo')])
  return (bytes) => {
    try {
      if (bytes[0] === 0x89) return pngPixels(bytes, png)
      if (bytes[0] === 0xff && bytes[1] === 0xd8) return jpegPixels(bytes, jpeg)
    } catch (cause) {
      if (cause instanceof FulmarError) throw cause
      throw new FulmarError('CORRUPT', `image must be a whole PNG or JPEG: got ${messageOf(cause)}`, {
        cause,
      })
    }
    const got = [...bytes.subarray(0, 4)].join(', ')
    throw new FulmarError('CORRUPT', `image must be PNG or JPEG: it begins with the bytes ${got}`)
  }
}

function pngPixels(
  bytes: Uint8Array,
  { decode, convertIndexedToRgb }: typeof import('fast-png'),
): ImagePixels {
  if (bytes.length < 24) throw new Error(`${bytes.length} bytes`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  checkPixels(view.getUint32(16), view.getUint32(20))
  const image = decode(bytes, { checkCrc: true })
  const { width, height, depth } = image
  const isIndexed = image.palette !== undefined
  const data = isIndexed ? convertIndexedToRgb(image) : depth < 8 ? unpackedGray(image) : image.data
  const channels = isIndexed ? data.length / (width * height) : image.channels
  return { width, height, pixels: planes({ width, height, data, channels }, depth === 16 ? 256 : 1) }
}

/** Gray of fewer than 8 bits, one byte a pixel: rows begin at whole bytes. */
function unpackedGray({ width, height, depth, data }: import('fast-png').DecodedPng): Uint8Array {
  const rowBytes = Math.ceil((width * depth) / 8)
  const most = 2 ** depth - 1
  return Uint8Array.from({ length: width * height }, (_, at) => {
    const [row, column] = [Math.floor(at / width), at % width]
    const bit = column * depth
    const byte = data[row * rowBytes + (bit >> 3)] ?? 0
    return (((byte >> (8 - depth - (bit & 7))) & most) * 255) / most
  })
}

function jpegPixels(bytes: Uint8Array, { decode }: typeof import('@cwasm/jpeg-turbo')): ImagePixels {
  const [declaredWidth, declaredHeight] = jpegSize(bytes)
  checkPixels(declaredWidth, declaredHeight)
  const { width, height, data } = decode(bytes)
  return { width, height, pixels: planes({ width, height, data, channels: 4 }, 1) }
}

/** Reads the size from the frame header, the first marker from 0xC0 to 0xCF that is not a table. */
function jpegSize(bytes: Uint8Array): readonly [width: number, height: number] {
  const word = (at: number) => ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)
  for (let at = 2; at + 9 <= bytes.length; at += 2 + word(at + 2)) {
    const marker = bytes[at + 1] ?? 0
    if (bytes[at] !== 0xff) break
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)
    if (isFrame) return [word(at + 7), word(at + 5)]
  }
  throw new Error('no header of a frame')
}

function checkPixels(width: number, height: number): void {
  if (width * height <= IMAGE_PIXELS_MAX) return
  const got = `${width} x ${height}`
  throw new FulmarError('LIMIT_EXCEEDED', `image must have at most ${IMAGE_PIXELS_MAX} pixels: got ${got}`)
}

interface Interleaved {
  readonly width: number
  readonly height: number
  readonly data: ArrayLike<number>
  /** 1 or 2: gray; 3 or 4: colors. */
  readonly channels: number
}

function planes({ width, height, data, channels }: Interleaved, divisor: number): Uint8Array {
  const size = width * height
  const pixels = new Uint8Array(3 * size)
  for (let color = 0; color < 3; color++) {
    const channel = channels < 3 ? 0 : color
    for (let at = 0; at < size; at++)
      pixels[color * size + at] = (data[at * channels + channel] ?? 0) / divisor
  }
  return pixels
}

/** Format of a video track, as decoders ask for it. */

import { FulmarError } from '../core/index.js'

/** A video track: the fields of WebCodecs' `VideoDecoderConfig`. */
export interface VideoTrack {
  /** Codec with its profile and level, such as `avc1.64000a`. */
  readonly codec: string
  /** Pixels of a row. */
  readonly codedWidth: number
  /** Rows of pixels. */
  readonly codedHeight: number
  /** The codec's own header: `avcC`, `hvcC`, `av1C` or `vpcC`. */
  readonly description: Uint8Array
}

interface Box {
  readonly type: string
  readonly view: DataView
}

/** Box of a codec's header, by the type of its entry. */
const HEADERS: Readonly<Record<string, string>> = {
  avc1: 'avcC',
  avc3: 'avcC',
  hvc1: 'hvcC',
  hev1: 'hvcC',
  av01: 'av1C',
  vp09: 'vpcC',
}

/** Bytes of an entry of a video before its boxes. */
const ENTRY_BYTES = 78

/** @internal Reads an entry of the box `stsd`. @throws {FulmarError} `CORRUPT`, `INCOMPATIBLE`, with the path. */
export function trackFormat(
  path: string,
  entry: Box | undefined,
  boxesIn: (box: Box, from: number) => readonly Box[],
): VideoTrack {
  if (entry === undefined || entry.view.byteLength < ENTRY_BYTES)
    throw new FulmarError(
      'CORRUPT',
      `${path} must describe its codec: its entry is ${entry ? 'cut' : 'missing'}`,
    )
  const { type, view } = entry
  const header = Object.hasOwn(HEADERS, type) ? HEADERS[type] : undefined
  if (header === undefined) {
    const known = Object.keys(HEADERS).join(', ')
    throw new FulmarError(
      'INCOMPATIBLE',
      `${path} must have a codec of ${known}: got ${JSON.stringify(type)}`,
    )
  }
  const inner = boxesIn(entry, ENTRY_BYTES).find((box) => box.type === header)?.view
  if (inner === undefined || inner.byteLength < HEADER_BYTES_MIN[header as keyof typeof HEADER_BYTES_MIN])
    throw new FulmarError('CORRUPT', `${path} must have a box ${header}: it is ${inner ? 'cut' : 'missing'}`)
  const description = new Uint8Array(
    inner.buffer.slice(inner.byteOffset, inner.byteOffset + inner.byteLength),
  )
  return {
    codec: codecOf(type, description),
    codedWidth: view.getUint16(24),
    codedHeight: view.getUint16(26),
    description,
  }
}

const HEADER_BYTES_MIN = { avcC: 7, hvcC: 23, av1C: 4, vpcC: 12 }

/** The codec's text as RFC 6381 and its codec define it. */
function codecOf(type: string, header: Uint8Array): string {
  const at = (index: number) => header[index] ?? 0
  const hex = (byte: number) => byte.toString(16).padStart(2, '0')
  const two = (number: number) => String(number).padStart(2, '0')
  if (type.startsWith('avc')) return `${type}.${hex(at(1))}${hex(at(2))}${hex(at(3))}`
  if (type === 'vp09') return `vp09.${two(at(4))}.${two(at(5))}.${two(at(6) >> 4)}`
  if (type === 'av01') {
    const depth = at(2) & 0x20 ? 12 : at(2) & 0x40 ? 10 : 8
    return `av01.${at(1) >> 5}.${two(at(1) & 31)}${at(2) & 0x80 ? 'H' : 'M'}.${two(depth)}`
  }
  return hevcCodec(type, header)
}

function hevcCodec(type: string, header: Uint8Array): string {
  const at = (index: number) => header[index] ?? 0
  const space = ['', 'A', 'B', 'C'][at(1) >> 6]
  const flags = [
    ...(((at(2) << 24) | (at(3) << 16) | (at(4) << 8) | at(5)) >>> 0).toString(2).padStart(32, '0'),
  ]
  const compatible = Number.parseInt(flags.reverse().join(''), 2).toString(16).toUpperCase()
  const tier = at(1) & 0x20 ? 'H' : 'L'
  const constraints = [6, 7, 8, 9, 10, 11].map((index) => at(index).toString(16).toUpperCase())
  while (constraints.at(-1) === '0') constraints.pop()
  return [`${type}.${space}${at(1) & 31}`, compatible, `${tier}${at(12)}`, ...constraints].join('.')
}

/** Codecs of compressed Arrow files, with a bound on what they give: LZ4 frames, which pyarrow writes by default, and Zstandard. */

import { Decompress } from 'fzstd'

/** A function that decompresses one buffer. */
export type Codec = (bytes: Uint8Array) => Uint8Array

/**
 * Returns the codecs for one file, which together give at most `bytesMax` bytes.
 * They throw an `Error` for damaged data and for the byte above the bound.
 */
export function boundedCodecs(bytesMax: number): { readonly lz4: Codec; readonly zstd: Codec } {
  let bytesLeft = bytesMax
  const within = (decode: (output: Output) => void): Uint8Array => {
    const output = new Output(bytesLeft)
    decode(output)
    bytesLeft -= output.length
    return output.bytes()
  }
  return {
    lz4: (bytes) => within((output) => decodeLz4Frames(bytes, output)),
    zstd: (bytes) => within((output) => new Decompress((chunk) => output.append(chunk)).push(bytes, true)),
  }
}

/** Bytes that are appended one piece after the other, up to a bound. */
class Output {
  readonly #max: number
  #bytes = new Uint8Array(4096)
  length = 0

  constructor(max: number) {
    this.#max = max
  }

  append(piece: Uint8Array): void {
    this.#reserve(piece.length)
    this.#bytes.set(piece, this.length)
    this.length += piece.length
  }

  /** Appends `count` bytes that begin `distance` bytes before the end; they may overlap what is appended. */
  repeat(distance: number, count: number, start: number): void {
    if (distance === 0 || distance > this.length - start)
      throw new Error(`an LZ4 match ${distance} bytes back`)
    this.#reserve(count)
    for (let at = 0; at < count; at++) {
      this.#bytes[this.length] = this.#bytes[this.length - distance] ?? 0
      this.length += 1
    }
  }

  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.length)
  }

  #reserve(count: number): void {
    const needed = this.length + count
    if (needed > this.#max) throw new Error(`compressed data of more than ${this.#max} bytes`)
    if (needed <= this.#bytes.length) return
    const larger = new Uint8Array(Math.min(Math.max(needed, 2 * this.#bytes.length), this.#max))
    larger.set(this.bytes())
    this.#bytes = larger
  }
}

const LZ4_MAGIC = 0x184d2204
/** Bits of the first byte of a frame's descriptor. */
const [HAS_DICTIONARY, HAS_CONTENT_CHECKSUM, HAS_CONTENT_SIZE, HAS_BLOCK_CHECKSUM] = [1, 4, 8, 16]
/** The bit of a block's size that marks bytes stored as they are. */
const STORED = 0x80000000

/**
 * Appends the contents of LZ4 frames, one after another.
 * Format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md. Checksums are passed over, as Arrow's own reader does.
 */
function decodeLz4Frames(bytes: Uint8Array, output: Output): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let at = 0
  while (at < bytes.length) {
    if (view.getUint32(at, true) !== LZ4_MAGIC) throw new Error(`no LZ4 frame at byte ${at}`)
    const flags = view.getUint8(at + 4)
    if (flags >> 6 !== 1 || flags & HAS_DICTIONARY) throw new Error(`an LZ4 frame of an unknown form`)
    at += 7 + (flags & HAS_CONTENT_SIZE ? 8 : 0)
    const start = output.length
    for (;;) {
      const word = view.getUint32(at, true)
      at += 4
      if (word === 0) break
      const size = word & ~STORED
      if (size > bytes.length - at) throw new Error(`an LZ4 block of ${size} bytes that does not fit`)
      const block = bytes.subarray(at, at + size)
      if (word & STORED) output.append(block)
      else decodeLz4Block(block, output, start)
      at += size + (flags & HAS_BLOCK_CHECKSUM ? 4 : 0)
    }
    if (flags & HAS_CONTENT_CHECKSUM) at += 4
  }
  if (at > bytes.length) throw new Error('an LZ4 frame that ends too early')
}

/** Appends one block; its matches may reach back to `start`, where its frame begins. */
function decodeLz4Block(block: Uint8Array, output: Output, start: number): void {
  let at = 0
  const byte = () => {
    const value = block[at++]
    if (value === undefined) throw new Error('an LZ4 block that ends too early')
    return value
  }
  const length = (nibble: number) => {
    let total = nibble
    for (let more = nibble === 15 ? 255 : 0; more === 255; total += more) more = byte()
    return total
  }
  while (at < block.length) {
    const token = byte()
    const literals = length(token >> 4)
    if (literals > block.length - at) throw new Error('an LZ4 block that ends too early')
    output.append(block.subarray(at, at + literals))
    at += literals
    if (at === block.length) return
    const distance = byte() | (byte() << 8)
    output.repeat(distance, length(token & 15) + 4, start)
  }
}

import { describe, expect, it } from 'vitest'
import { boundedCodecs } from '../../src/table/codec.js'

describe('a codec with a bound', () => {
  /** One LZ4 frame of one block: a literal and a match that repeats it `15 + 255 * count` times and more. */
  const bomb = (count: number) => {
    const block = [0x1f, 0x61, 1, 0, ...Array.from({ length: count }, () => 255), 0, 0]
    const size = [block.length & 255, (block.length >> 8) & 255, block.length >> 16, 0]
    return Uint8Array.from([0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, ...size, ...block, 0, 0, 0, 0])
  }

  it('gives as many bytes as it may and refuses one more', () => {
    const given = boundedCodecs(1e6).lz4(bomb(100))
    expect(given).toEqual(new Uint8Array(1 + 15 + 4 + 100 * 255).fill(0x61))
    expect(boundedCodecs(given.length).lz4(bomb(100))).toEqual(given)
    expect(() => boundedCodecs(given.length - 1).lz4(bomb(100))).toThrow('compressed data of more than')
  })

  it('counts all buffers of a file together', () => {
    const { lz4 } = boundedCodecs(40_000)
    expect(lz4(bomb(100)).length).toBe(25_520)
    expect(() => lz4(bomb(100))).toThrow('compressed data of more than 14480 bytes')
  })

  it('refuses a match that reaches back before its frame', () => {
    const frame = bomb(0)
    frame[13] = 2
    expect(() => boundedCodecs(1000).lz4(frame)).toThrow('an LZ4 match 2 bytes back')
  })
})

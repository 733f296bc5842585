import { readFileSync } from 'node:fs'
import { encode } from 'fast-png'
import { beforeAll, describe, expect, it } from 'vitest'
import { type DecodeImage, imageDecoder } from '../../src/dataset/image-pixels.js'
import { failing } from '../torchrl/envs/chats.js'
import { golden, goldenBytes } from './golden-rows.js'

interface ImageRow {
  readonly file: string
  readonly s: readonly number[]
  readonly d: readonly number[]
}

const ROWS = readFileSync(golden('images.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as ImageRow)

let decode: DecodeImage
beforeAll(async () => {
  decode = await imageDecoder()
})

describe('imageDecoder', () => {
  for (const { file, s, d } of ROWS)
    it(`decodes ${file} as Pillow`, () => {
      const { width, height, pixels } = decode(goldenBytes(file))
      expect([3, height, width]).toEqual(s)
      const worst = Math.max(...d.map((value, at) => Math.abs(value - (pixels[at] ?? 0))))
      expect(worst).toBeLessThanOrEqual(file.endsWith('.png') ? 0 : 3)
    })

  it('keeps the upper bits of 16, and leaves alpha out', () => {
    const data = Uint16Array.from([0x1234, 0xff00, 0x00ff, 0, 0xabcd, 0x8000, 0x7fff, 9])
    const { pixels } = decode(encode({ width: 2, height: 1, data, depth: 16, channels: 4 }))
    expect([...pixels]).toEqual([0x12, 0xab, 0xff, 0x80, 0, 0x7f])
    const gray = encode({ width: 1, height: 2, data: Uint8Array.from([7, 0, 9, 255]), depth: 8, channels: 2 })
    expect([...decode(gray).pixels]).toEqual([7, 9, 7, 9, 7, 9])
  })

  it('refuses bytes that are not whole images', () => {
    expect(() => decode(Uint8Array.of(1, 2, 3))).toThrow(failing('CORRUPT', /bytes 1, 2, 3/))
    expect(() => decode(Uint8Array.of(0x89))).toThrow(failing('CORRUPT', /1 bytes/))
    for (const file of ['images/rgb.png', 'images/q75-2.jpg']) {
      const bytes = goldenBytes(file)
      expect(() => decode(bytes.subarray(0, bytes.length >> 1))).toThrow(failing('CORRUPT', /PNG or JPEG/))
    }
  })

  it('refuses images of too many pixels before it makes them', () => {
    const png = goldenBytes('images/rgb.png').slice()
    new DataView(png.buffer).setUint32(16, 2 ** 31 - 1)
    expect(() => decode(png)).toThrow(failing('LIMIT_EXCEEDED', /67108864 pixels/))
    const jpeg = goldenBytes('images/q75-0.jpg').slice()
    const frame = jpeg.findIndex((byte, at) => byte === 0xff && jpeg[at + 1] === 0xc0)
    new DataView(jpeg.buffer).setUint32(frame + 5, 0xffffffff)
    expect(() => decode(jpeg)).toThrow(failing('LIMIT_EXCEEDED', /67108864 pixels/))
  })
})

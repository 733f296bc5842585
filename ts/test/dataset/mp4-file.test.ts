import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Mp4File } from '../../src/dataset/mp4-file.js'
import { trackFormat } from '../../src/dataset/video-track.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { golden, rowsOf } from './golden-rows.js'

const VIDEOS = rowsOf('datasets', 'video_frames') as unknown as readonly {
  readonly file: string
  readonly frames: readonly { readonly time: number }[]
}[]
const [FIRST] = VIDEOS
const bytesOf = (file = FIRST?.file ?? '') => new Uint8Array(readFileSync(golden(file)))

async function written(bytes: Uint8Array): Promise<string> {
  const path = join(await temporaryFolder(), 'video.mp4')
  await writeFile(path, bytes)
  return path
}

/** A box of a file. */
function box(type: string, ...parts: readonly (Uint8Array | readonly number[])[]): Uint8Array {
  const body = Buffer.concat(parts.map((part) => Buffer.from(part as Uint8Array)))
  const head = Buffer.alloc(8)
  head.writeUInt32BE(8 + body.length)
  head.write(type, 4)
  return new Uint8Array(Buffer.concat([head, body]))
}

const words = (...values: readonly number[]) => {
  const bytes = Buffer.alloc(4 * values.length)
  for (const [at, value] of values.entries()) bytes.writeUInt32BE(value >>> 0, 4 * at)
  return new Uint8Array(bytes)
}

interface Tables {
  readonly sizes?: readonly number[]
  readonly same?: number
  readonly count?: number
  readonly durations?: readonly number[]
  readonly delays?: readonly number[]
  readonly keys?: readonly number[]
  readonly runs?: readonly number[]
  readonly chunks?: readonly number[]
  readonly isLong?: boolean
  readonly handler?: string
  readonly entry?: string
  readonly timescale?: number
}

/** A file of one track, whose frames begin at byte 16. */
function video(tables: Tables = {}): Uint8Array {
  const { sizes = [4, 2, 3], same = 0, count = sizes.length, keys, isLong = false } = tables
  const { durations = [sizes.length, 10], delays, runs = [1, sizes.length, 1], chunks = [16] } = tables
  const { handler = 'vide', entry = 'avc1', timescale = 100 } = tables
  const avcC = box('avcC', [1, 100, 0, 10, 255, 225, 0, 0])
  const format = box(entry, new Uint8Array(24), [0, 32, 0, 16], new Uint8Array(50), avcC)
  const stbl = box(
    'stbl',
    box('stsd', words(0, 1), format),
    box('stsz', words(0, same, count), words(...(same ? [] : sizes))),
    box('stts', words(0, durations.length / 2, ...durations)),
    ...(delays ? [box('ctts', words(0, delays.length / 2, ...delays))] : []),
    ...(keys ? [box('stss', words(0, keys.length, ...keys))] : []),
    box('stsc', words(0, runs.length / 3, ...runs)),
    isLong
      ? box('co64', words(0, chunks.length, ...chunks.flatMap((chunk) => [0, chunk])))
      : box('stco', words(0, chunks.length, ...chunks)),
  )
  const mdhd = isLong ? words(1 << 24, 0, 0, 0, 0, timescale, 0, 30, 0) : words(0, 0, 0, timescale, 30, 0)
  const hdlr = box('hdlr', words(0, 0), Buffer.from(handler), new Uint8Array(13))
  const trak = box('trak', box('mdia', box('mdhd', mdhd), hdlr, box('minf', stbl)))
  const data = box(
    'mdat',
    new Uint8Array(64).map((_, at) => at),
  )
  return new Uint8Array(Buffer.concat([box('ftyp'), data, box('moov', trak)]))
}

describe('Mp4File', () => {
  for (const { file, frames } of VIDEOS)
    it(`finds the frames of ${file} when they are shown`, () => {
      const open = Mp4File.open(golden(file))
      expect(open.numFrames).toBe(frames.length)
      expect(open.fps).toBeCloseTo(10, 6)
      const runs = open.runsOf(frames.map((_, at) => at))
      const times = runs.flatMap((run) => open.read(run).map(({ timestamp }) => timestamp / 1e6))
      expect(times.sort((a, b) => a - b)).toEqual(frames.map(({ time }) => expect.closeTo(time, 5)))
      expect(open.track).toMatchObject({ codedWidth: 32, codedHeight: 32 })
    })

  it('reads each frame at its place: chunks, runs, delays and keys', async () => {
    const file = Mp4File.open(
      await written(
        video({ chunks: [16, 40, 50], runs: [1, 1, 1, 3, 1, 1], keys: [1, 3], delays: [1, 20, 1, 5, 1, 0] }),
      ),
    )
    // Shown at 20, 15 and 20: the second first, the others as they are decoded.
    const [first, second] = file.runsOf([0, 1, 2])
    expect([first?.frames, first?.places]).toEqual([
      [0, 1],
      [0, 1],
    ])
    expect([second?.frames, second?.places]).toEqual([[2], [0]])
    const read = file.read(first as never)
    expect(read.map(({ data }) => [...data])).toEqual([
      [0, 1, 2, 3],
      [24, 25],
    ])
    expect(read.map(({ timestamp, isKey }) => [timestamp, isKey])).toEqual([
      [50_000, true],
      [0, false],
    ])
    expect([...(file.read(second as never)[0]?.data ?? [])]).toEqual([34, 35, 36])
  })

  it('reads frames of one size, all keys, with 64-bit places', async () => {
    const file = Mp4File.open(await written(video({ same: 5, isLong: true, durations: [1, 10, 2, 20] })))
    expect(file.numFrames).toBe(3)
    expect(file.runsOf([0, 2]).map(({ frames, first, last }) => [frames, first, last])).toEqual([
      [[0], 0, 0],
      [[2], 2, 2],
    ])
    expect([...(file.read(file.runsOf([1])[0] as never)[0]?.data ?? [])]).toEqual([5, 6, 7, 8, 9])
    expect(file.fps).toBe(10)
  })

  it('refuses tables that do not agree', async () => {
    const refuse = async (tables: Tables, code: string, message: RegExp) => {
      const path = await written(video(tables))
      expect(() => Mp4File.open(path)).toThrow(failing(code, message))
      expect(() => Mp4File.open(path)).toThrow(/video\.mp4/)
    }
    await refuse({ same: 4, count: 2 ** 32 - 1 }, 'LIMIT_EXCEEDED', /16777216 frames: got 4294967295/)
    await refuse({ count: 9 }, 'CORRUPT', /sizes of 9 frames/)
    await refuse({ durations: [2, 10] }, 'CORRUPT', /3 frames in stts: got 2/)
    await refuse({ durations: [2 ** 32 - 1, 10] }, 'CORRUPT', /3 frames in stts/)
    await refuse({ delays: [1, 0] }, 'CORRUPT', /3 frames in ctts: got 1/)
    await refuse({ chunks: [1000] }, 'CORRUPT', /frame 0 within/)
    await refuse({ chunks: [] }, 'CORRUPT', /3 frames in its chunks: got 0/)
    await refuse({ runs: [1, 2, 1] }, 'CORRUPT', /3 frames in its chunks: got 2/)
    await refuse({ handler: 'soun' }, 'INCOMPATIBLE', /track of a video/)
    await refuse({ entry: 'mp4v' }, 'INCOMPATIBLE', /"mp4v"/)
    await refuse({ timescale: 0 }, 'CORRUPT', /time scale/)
    const path = await written(video())
    expect(Mp4File.open(path, 0).numFrames).toBe(3)
    expect(() => Mp4File.open(path, 1)).toThrow(failing('INCOMPATIBLE', /stream 1/))
  })

  it('refuses files that are not of this kind', async () => {
    const refuse = async (bytes: Uint8Array, code: string, message: RegExp) => {
      const path = await written(bytes)
      expect(() => Mp4File.open(path)).toThrow(failing(code, message))
    }
    await refuse(new Uint8Array(), 'CORRUPT', /box moov/)
    await refuse(Uint8Array.from(Buffer.from('<html> no video </html>')), 'CORRUPT', /boxes inside/)
    await refuse(box('moof'), 'INCOMPATIBLE', /fragments/)
    await refuse(box('moov'), 'INCOMPATIBLE', /track of a video/)
    await refuse(words(1, 0x6d6f6f76, 0, 3), 'CORRUPT', /boxes inside/)
    expect(() => Mp4File.open('/nowhere/a.mp4')).toThrow(failing('IO', /a\.mp4/))
  })

  it('refuses every damaged or cut file, or reads it, with a typed error', async () => {
    const path = join(await temporaryFolder(), 'damaged.mp4')
    const whole = bytesOf()
    const moov = Buffer.from(whole).indexOf('moov') - 4
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: moov, max: whole.length - 1 }),
        fc.integer({ min: 0, max: 255 }),
        fc.boolean(),
        async (at, value, isCut) => {
          const bytes = isCut ? whole.slice(0, at) : whole.map((byte, index) => (index === at ? value : byte))
          await writeFile(path, bytes)
          try {
            const file = Mp4File.open(path)
            for (const run of file.runsOf([0, file.numFrames - 1].filter((frame) => frame >= 0)))
              file.read(run)
          } catch (error) {
            expect(error).toMatchObject({
              name: 'FulmarError',
              message: expect.stringContaining('damaged.mp4'),
            })
          }
        },
      ),
      { numRuns: 300 },
    )
  })
})

describe('trackFormat', () => {
  const format = (type: string, header: string, bytes: readonly number[]) => {
    const view = (part: Uint8Array | readonly number[]) => new DataView(Uint8Array.from(part).buffer)
    const entry = { type, view: view(new Uint8Array(80)) }
    return trackFormat('a.mp4', entry, () => [{ type: header, view: view(bytes) }]).codec
  }

  it('names codecs as decoders do', () => {
    expect(format('avc1', 'avcC', [1, 0x64, 0, 0x0a, 255, 225, 0])).toBe('avc1.64000a')
    expect(format('av01', 'av1C', [0x81, 0x04, 0x0c, 0])).toBe('av01.0.04M.08')
    expect(format('av01', 'av1C', [0x81, 0x2d, 0xcc, 0])).toBe('av01.1.13H.10')
    expect(format('vp09', 'vpcC', [1, 0, 0, 0, 2, 10, 0xa0, 0, 0, 0, 0, 0])).toBe('vp09.02.10.10')
    const hevc = [1, 1, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93, ...new Uint8Array(10)]
    expect(format('hvc1', 'hvcC', hevc)).toBe('hvc1.1.6.L93.B0')
  })

  it('refuses entries without a whole header', () => {
    expect(() => format('avc1', 'avcC', [1])).toThrow(failing('CORRUPT', /avcC: it is cut/))
    expect(() => format('avc1', 'free', [])).toThrow(failing('CORRUPT', /avcC: it is missing/))
    expect(() => trackFormat('a.mp4', undefined, () => [])).toThrow(failing('CORRUPT', /a\.mp4.*missing/))
  })
})

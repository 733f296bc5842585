import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import {
  clearVideoDecoderCache,
  setVideoDecoderCacheSize,
  VideoClipRef,
  type VideoDecode,
  type VideoPicture,
} from '../../src/dataset/index.js'
import { Mp4File } from '../../src/dataset/mp4-file.js'
import { findVideoDecoder, numVideosOpen, writeRgb } from '../../src/dataset/video-decoder.js'
import { loadMemmap, NonTensorData, saveMemmap, Tensor, TensorDict } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { golden, isNative, rowsOf } from './golden-rows.js'
import { hashesOf, nodeAv, sha256, timeDecoder } from './lerobot-hub.js'

const PUSHT = 'raw/hub/datasets/lerobot/pusht/videos'
const TOP = `${PUSHT}/observation.images.top/chunk-000/file-000.mp4`
const REST = `${PUSHT}/observation.images.top/chunk-000/file-001.mp4`
const numbers = (tensor: Tensor) => Array.from(tensor.data, Number)
/** The times that the decoder of tests paints, one a frame. */
const painted = (frames: Tensor) => {
  const size = 3 * 32 * 32
  return Array.from({ length: frames.numElements / size }, (_, at) => Number(frames.data[at * size]))
}

afterEach(() => {
  setVideoDecoderCacheSize(8)
  clearVideoDecoderCache()
})

describe('VideoClipRef', () => {
  it('keeps the address of each frame, in any shape', () => {
    const clip = VideoClipRef.fromFiles(['a.mp4', 'b.mp4', 'a.mp4'], { numFramesPerFile: [2, 1, 1] })
    expect(numbers(clip.frameIndex)).toEqual([0, 1, 0, 0])
    expect(numbers(clip.fileId)).toEqual([0, 0, 1, 0])
    expect(clip.sources).toEqual(['a.mp4', 'a.mp4', 'b.mp4', 'a.mp4'])
    expect(clip.reshape([2, 2]).at(1).sources).toEqual(['b.mp4', 'a.mp4'])
    expect(clip.at(2).batchSize).toEqual([])
    expect(clip.dict.keys().sort()).toEqual(['auto_decode', 'file_id', 'frame_index', 'sources'])
    expect(numbers(VideoClipRef.fromFile('a.mp4', { frameIndex: [3, 1] }).frameIndex)).toEqual([3, 1])
    expect(numbers(VideoClipRef.fromFile('a.mp4', { numFrames: 3 }).frameIndex)).toEqual([0, 1, 2])
    expect(new VideoClipRef('a.mp4', { frameIndex: [1], stream: 2 }).dict.value('stream')).toBe(2)
  })

  it('counts the frames of files that are there', () => {
    expect(new VideoClipRef(golden(TOP)).batchSize).toEqual([21])
    expect(VideoClipRef.fromFile(golden(TOP), { numBins: 3 }).batchSize).toEqual([3])
    expect(VideoClipRef.fromFiles([golden(TOP), golden(REST)]).batchSize).toEqual([27])
  })

  it('has the bins of TorchRL', () => {
    const bins = (numFrames: number, numBins: number, framesPerBin?: number) => {
      const options = { numFrames, numBins, ...(framesPerBin && { framesPerBin }) }
      return numbers(VideoClipRef.fromFile('a.mp4', options).frameIndex)
    }
    expect(bins(10, 5)).toEqual([0, 2, 4, 6, 8])
    expect(bins(10, 4)).toEqual([0, 3, 6, 8])
    expect(bins(8, 2, 3)).toEqual([0, 2, 3, 4, 6, 7])
    expect(bins(2, 4)).toEqual([0, 0, 1, 1])
    expect(VideoClipRef.fromFile('a.mp4', { numFrames: 8, numBins: 2, framesPerBin: 3 }).batchSize).toEqual([
      2, 3,
    ])
  })

  it('divides frames into bins that ascend and cover them', () =>
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 300 }),
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 5 }),
        (numFrames, numBins, framesPerBin) => {
          const clip = VideoClipRef.fromFile('a.mp4', { numFrames })
          const middles = numbers(clip.rebin(numBins).frameIndex)
          const spread = numbers(clip.rebin(numBins, framesPerBin).frameIndex)
          for (const list of [middles, spread]) {
            expect(list.every((frame) => frame >= 0 && frame < numFrames)).toBe(true)
            expect(list).toEqual([...list].sort((a, b) => a - b))
          }
          if (framesPerBin > 1 && numBins <= numFrames)
            expect([spread[0], spread.at(-1)]).toEqual([0, numFrames - 1])
          for (const [bin, middle] of middles.entries()) {
            const [low, high] = [bin, bin + 1].map((edge) => (edge * numFrames) / numBins)
            expect(middle).toBeGreaterThanOrEqual(Math.floor((low ?? 0) - 0.5))
            expect(middle).toBeLessThanOrEqual(Math.ceil((high ?? 0) + 0.5))
          }
        },
      ),
      { numRuns: 100 },
    ))

  it('takes the frame nearest to a time', () => {
    const clip = VideoClipRef.fromTimestamps(golden(TOP), [0, 0.1, 0.26, 1.04, -1, 99])
    expect(numbers(clip.frameIndex)).toEqual([0, 1, 3, 10, 0, 20])
    const slow = VideoClipRef.fromTimestamps(golden(TOP), Tensor.from([[1, 2]].flat(), { shape: [1, 2] }), {
      fps: 2,
    })
    expect(slow.frameIndex.shape).toEqual([1, 2])
    expect(numbers(slow.frameIndex)).toEqual([2, 4])
  })

  it.runIf(isNative)('stays an address through a folder and indexing', async () => {
    const folder = join(await temporaryFolder(), 'rows')
    const clip = VideoClipRef.fromFiles(['nowhere/a.mp4', 'nowhere/b.mp4'], { numFramesPerFile: 2 })
    saveMemmap(folder, TensorDict.from({ top: clip.dict }, { batchSize: [4] }))
    const rows = loadMemmap(folder).indexSelect([3, 0])
    const loaded = VideoClipRef.around(rows.dict('top'))
    expect(loaded.sources).toEqual(['nowhere/b.mp4', 'nowhere/a.mp4'])
    expect(numbers(loaded.frameIndex)).toEqual([1, 0])
  })

  it('decodes each frame at its place, in any order and often', async () => {
    const clip = new VideoClipRef([golden(TOP), golden(REST)], {
      frameIndex: [20, 3, 3, 0, 5, 11],
      fileId: [0, 1, 0, 0, 1, 0],
    })
    const frames = await clip.reshape([2, 3]).decode({ decoder: timeDecoder })
    expect(frames.shape).toEqual([2, 3, 3, 32, 32])
    expect(frames.dtype).toBe('u8')
    expect(painted(frames)).toEqual([20, 3, 3, 0, 5, 11])
    expect(painted(clip.decodeSync({ decoder: timeDecoder, dtype: 'f32' }))).toEqual([20, 3, 3, 0, 5, 11])
    expect(clip.at(1).decodeSync({ decoder: timeDecoder }).shape).toEqual([3, 32, 32])
  })

  it('decodes frames as the naive way, one by one', () =>
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 1, maxLength: 12 }),
        (frameIndex) => {
          const together = new VideoClipRef(golden(TOP), { frameIndex }).decodeSync({ decoder: timeDecoder })
          const naive = frameIndex.map((frame) =>
            new VideoClipRef(golden(TOP), { frameIndex: [frame] }).decodeSync({ decoder: timeDecoder }),
          )
          expect(together.equals(Tensor.cat(naive))).toBe(true)
        },
      ),
      { numRuns: 20 },
    ))

  it('reads a run from its key frame to its last frame once', async () => {
    const calls: number[] = []
    const decoder: VideoDecode = (track, frames) => {
      calls.push(frames.length)
      expect(frames[0]?.isKey).toBe(true)
      expect(track.codec).toMatch(/^avc1\.[0-9a-f]{6}$/)
      expect(track.description[0]).toBe(1)
      return timeDecoder(track, frames)
    }
    await new VideoClipRef(golden(TOP)).decode({ decoder })
    const video = Mp4File.open(golden(TOP))
    const numKeys = video.runsOf(Array.from({ length: 21 }, (_, at) => at)).length
    expect(calls).toHaveLength(numKeys)
    expect(calls.reduce((sum, count) => sum + count)).toBe(21)
  })

  it('keeps the tables of so many videos', () => {
    const open = (file: string) => VideoClipRef.fromFile(golden(file))
    open(TOP)
    open(REST)
    open(TOP)
    expect(numVideosOpen()).toBe(2)
    setVideoDecoderCacheSize(1)
    expect(numVideosOpen()).toBe(1)
    setVideoDecoderCacheSize(0)
    open(REST)
    expect(numVideosOpen()).toBe(0)
    setVideoDecoderCacheSize(3)
    open(TOP)
    clearVideoDecoderCache()
    expect(numVideosOpen()).toBe(0)
    for (const size of [-1, 0.5, 2 ** 20, '8' as never])
      expect(() => setVideoDecoderCacheSize(size)).toThrow(failing('OUT_OF_RANGE', /size/))
  })

  it('refuses addresses that cannot be', () => {
    const refuse = (make: () => unknown, code: string, message: RegExp) =>
      expect(make).toThrow(failing(code, message))
    const clip = (options: object) => () => new VideoClipRef('a.mp4', options)
    refuse(() => new VideoClipRef([]), 'EMPTY', /sources/)
    refuse(() => new VideoClipRef([7 as never]), 'MALFORMED', /sources/)
    refuse(clip({ frameIndex: [-1] }), 'OUT_OF_RANGE', /frameIndex.*-1/)
    refuse(clip({ frameIndex: [0.5] }), 'MALFORMED', /frameIndex/)
    refuse(clip({ frameIndex: Tensor.from([1]) }), 'MALFORMED', /frameIndex.*f32/)
    refuse(clip({ frameIndex: [0], fileId: [1] }), 'OUT_OF_RANGE', /fileId.*0 to 0: got 1/)
    refuse(clip({ frameIndex: [0], fileId: [0, 0] }), 'SHAPE_MISMATCH', /fileId/)
    refuse(clip({ frameIndex: [0], stream: -1 }), 'OUT_OF_RANGE', /stream/)
    refuse(clip({ frames: [0] }), 'UNKNOWN_NAME', /frames/)
    refuse(clip({}), 'IO', /a\.mp4/)
    refuse(() => VideoClipRef.fromFile('a.mp4', { frameIndex: [0], numBins: 1 }), 'INCOMPATIBLE', /numBins/)
    refuse(() => VideoClipRef.fromFile('a.mp4', { numFrames: 3, framesPerBin: 1 }), 'INCOMPATIBLE', /numBins/)
    refuse(() => VideoClipRef.fromFile('a.mp4', { numFrames: -3 }), 'OUT_OF_RANGE', /numFrames/)
    refuse(() => VideoClipRef.fromFile('a.mp4', { numFrames: 0, numBins: 1 }), 'EMPTY', /frames/)
    refuse(() => VideoClipRef.fromFile('a.mp4', { numFrames: 1, numBins: 0 }), 'OUT_OF_RANGE', /numBins/)
    refuse(() => VideoClipRef.fromFile('a.mp4', { numFrames: 1, numBins: 2 ** 25 }), 'LIMIT_EXCEEDED', /bins/)
    refuse(() => VideoClipRef.fromFiles([]), 'EMPTY', /paths/)
    refuse(
      () => VideoClipRef.fromFiles(['a'], { numFramesPerFile: [1, 2] }),
      'SHAPE_MISMATCH',
      /1 files: got 2/,
    )
    refuse(
      () => VideoClipRef.fromFiles(['a'], { numFramesPerFile: 'x' as never }),
      'MALFORMED',
      /numFramesPerFile/,
    )
    refuse(() => VideoClipRef.fromFiles(['a'], { numFramesPerFile: 2 ** 40 }), 'LIMIT_EXCEEDED', /frames/)
    refuse(() => VideoClipRef.fromTimestamps(golden(TOP), [Number.NaN]), 'NON_FINITE', /timestamps/)
    refuse(() => VideoClipRef.fromTimestamps(golden(TOP), [0], { fps: 0 }), 'OUT_OF_RANGE', /fps/)
    refuse(() => VideoClipRef.around(TensorDict.from({})), 'INCOMPATIBLE', /frame_index/)
    refuse(() => VideoClipRef.around(7 as never), 'INCOMPATIBLE', /dict/)
    const dict = VideoClipRef.fromFile('a.mp4', { numFrames: 2 }).dict.set('sources', new NonTensorData(7))
    refuse(() => VideoClipRef.around(dict).sources, 'INCOMPATIBLE', /sources/)
    dict.set('sources', new NonTensorData([]))
    refuse(() => VideoClipRef.around(dict).sources, 'OUT_OF_RANGE', /file_id/)
  })

  it('refuses decoders that do not decode', async () => {
    const clip = VideoClipRef.fromFile(golden(TOP), { frameIndex: [0, 4] })
    const decode = (decoder: unknown) => clip.decode({ decoder: decoder as VideoDecode })
    await expect(decode(7)).rejects.toThrow(failing('MALFORMED', /decoder/))
    await expect(decode(() => [])).rejects.toThrow(failing('USER_CODE', /pictures of .*file-000\.mp4: got 0/))
    await expect(decode(() => 7)).rejects.toThrow(failing('USER_CODE', /got 7/))
    const bad: VideoDecode = (_, frames) =>
      frames.map(() => ({ width: 2, height: 2, format: 'rgb24', data: new Uint8Array(3) }))
    await expect(decode(bad)).rejects.toThrow(failing('USER_CODE', /rgb24.*3 bytes/))
    const later: VideoDecode = async (track, frames) => timeDecoder(track, frames)
    expect(painted(await clip.decode({ decoder: later }))).toEqual([0, 4])
    expect(() => clip.decodeSync({ decoder: later })).toThrow(failing('INCOMPATIBLE', /promise/))
    expect(() => clip.decodeSync({} as never)).toThrow(failing('MALFORMED', /decoder/))
    const sized: VideoDecode = (_, frames) =>
      frames.map(({ timestamp }) => {
        const width = timestamp > 2e5 ? 4 : 2
        return { width, height: 2, format: 'rgb24', data: new Uint8Array(6 * width) }
      })
    await expect(decode(sized)).rejects.toThrow(failing('SHAPE_MISMATCH', /2 x 2: got 4 x 2/))
    const none = VideoClipRef.fromFile(golden(TOP), { frameIndex: [] })
    await expect(none.decode({ decoder: timeDecoder })).rejects.toThrow(failing('EMPTY', /frames/))
    const past = VideoClipRef.fromFile(golden(TOP), { frameIndex: [21] })
    await expect(past.decode({ decoder: timeDecoder })).rejects.toThrow(
      failing('OUT_OF_RANGE', /0 to 20.*got 21/),
    )
    if (nodeAv === undefined) await expect(clip.decode()).rejects.toThrow(failing('UNAVAILABLE', /node-av/))
  })
})

describe('findVideoDecoder', () => {
  const missing = () => Promise.reject(Object.assign(new Error('no'), { code: 'ERR_MODULE_NOT_FOUND' }))

  it('finds nothing without a package and WebCodecs', async () => {
    expect(await findVideoDecoder(missing)).toBeUndefined()
    const broken = findVideoDecoder(() => Promise.reject(new Error('no binary')))
    await expect(broken).rejects.toThrow(failing('UNAVAILABLE', /node-av must load.*no binary/))
  })

  it('uses WebCodecs where it is, and gives its pictures in the order of showing', async () => {
    const restore = withWebCodecs()
    try {
      const decoder = await findVideoDecoder(missing)
      const clip = VideoClipRef.fromFile(golden(TOP), { frameIndex: [4, 1, 20] })
      expect(painted(await clip.decode({ decoder: decoder as VideoDecode }))).toEqual([4, 1, 20])
      expect(() => clip.decodeSync({ decoder: decoder as VideoDecode })).toThrow(
        failing('INCOMPATIBLE', /promise/),
      )
    } finally {
      restore()
    }
  })

  it('names what WebCodecs refuses', async () => {
    const restore = withWebCodecs('no such codec')
    try {
      const decoder = (await findVideoDecoder(missing)) as VideoDecode
      const clip = VideoClipRef.fromFile(golden(TOP), { frameIndex: [4] })
      await expect(clip.decode({ decoder })).rejects.toThrow(failing('CORRUPT', /avc1.*no such codec/))
    } finally {
      restore()
    }
  })
})

/** The interface of WebCodecs with a codec of tests: a picture has the time of its frame in units of 0.1 s. */
function withWebCodecs(failure?: string): () => void {
  class EncodedVideoChunk {
    readonly timestamp: number
    constructor({ timestamp }: { readonly timestamp: number }) {
      this.timestamp = timestamp
    }
  }
  class VideoDecoder {
    readonly #output: (frame: object) => void
    constructor({ output }: { readonly output: (frame: object) => void }) {
      this.#output = output
    }
    configure(): void {
      if (failure !== undefined) throw new Error(failure)
    }
    decode({ timestamp }: EncodedVideoChunk): void {
      this.#output({
        ...{ codedWidth: 32, codedHeight: 32, visibleRect: null, timestamp, format: 'NV12', colorSpace: {} },
        allocationSize: () => 4 * 32 * 32,
        copyTo: async (into: Uint8Array) => void into.fill(Math.round(timestamp / 1e5)),
        close: () => {},
      })
    }
    async flush(): Promise<void> {}
    close(): void {}
  }
  Object.assign(globalThis, { VideoDecoder, EncodedVideoChunk })
  return () => {
    for (const name of ['VideoDecoder', 'EncodedVideoChunk']) Reflect.deleteProperty(globalThis, name)
  }
}

describe('writeRgb', () => {
  const rgbOf = (picture: Omit<VideoPicture, 'width' | 'height'>) => {
    const into = new Uint8ClampedArray(12)
    writeRgb({ width: 2, height: 2, ...picture }, into, 0)
    return [...into]
  }
  const plane = (luma: number, u: number, v: number) => Uint8Array.of(luma, luma, luma, luma, u, v)

  it('converts gray, black, white and colors by their matrix', () => {
    const yuv = (luma: number, u: number, v: number, more = {}) => {
      const [red, , , , green, , , , blue] = rgbOf({ format: 'yuv420p', data: plane(luma, u, v), ...more })
      return [red, green, blue]
    }
    expect(yuv(16, 128, 128)).toEqual([0, 0, 0])
    expect(yuv(235, 128, 128)).toEqual([255, 255, 255])
    expect(yuv(81, 90, 240).map((color) => Math.round(color as number))).toEqual([254, 0, 0])
    expect(yuv(63, 102, 240, { matrix: 'bt709' })).toEqual([255, 1, 0])
    expect(yuv(128, 128, 128, { isFullRange: true })).toEqual([128, 128, 128])
    expect(yuv(76, 85, 255, { isFullRange: true })).toEqual([254, 0, 0])
  })

  it('takes packed pixels apart', () => {
    const data = Uint8Array.from({ length: 12 }, (_, at) => at)
    expect(rgbOf({ format: 'rgb24', data })).toEqual([0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11])
  })
})

describe.runIf(nodeAv !== undefined)('node-av', () => {
  for (const row of rowsOf('datasets', 'video_frames'))
    it(`decodes H.264 exactly: ${Reflect.get(row, 'file')}`, async () => {
      const file = String(Reflect.get(row, 'file'))
      const { frames } = row as unknown as {
        readonly frames: readonly { readonly mean_rgb: readonly number[] }[]
      }
      const hashes: string[] = []
      const decoder: VideoDecode = async (track, encoded) => {
        const pictures = (await nodeAv?.(track, encoded)) ?? []
        hashes.push(...pictures.map(({ data }) => sha256(data)))
        return pictures
      }
      const decoded = await new VideoClipRef(golden(file)).decode({ decoder })
      expect(hashes).toEqual(hashesOf(file))
      const size = 32 * 32
      for (const [at, { mean_rgb }] of frames.entries())
        for (const color of [0, 1, 2]) {
          const plane = (decoded.data as Uint8Array).subarray(
            (3 * at + color) * size,
            (3 * at + color + 1) * size,
          )
          const mean = plane.reduce((sum, value) => sum + value, 0) / size
          expect(Math.abs(mean - (mean_rgb[color] ?? 0))).toBeLessThan(3)
        }
      expect((await new VideoClipRef(golden(file)).decode()).equals(decoded)).toBe(true)
    })

  it('refuses frames that are damaged', async () => {
    const path = join(await temporaryFolder(), 'damaged.mp4')
    const bytes = new Uint8Array(readFileSync(golden(TOP)))
    await writeFile(path, bytes.fill(0xff, 48, 800))
    await expect(new VideoClipRef(path).decode()).rejects.toThrow(failing(expect.any(String) as never))
  })
})

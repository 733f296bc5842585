import { describe, expect, it } from 'vitest'
import { Decoder, UnpaddedTokenBatch } from '../../src/model/index.js'
import { TINY } from './tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const rows = {
  ids: Uint32Array.of(0, 5, 6, 7, 8, 0),
  attentionMask: Uint8Array.of(0, 1, 1, 1, 1, 0),
  mask: Uint8Array.of(0, 0, 1, 0, 1, 0),
  width: 3,
}

describe('UnpaddedTokenBatch', () => {
  it('gives the log-probs of the sequences alone, in their places', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    using unpadded = new UnpaddedTokenBatch(rows)
    const { logProb } = await decoder.score(unpadded.batch)
    const alone = { ids: Uint32Array.of(7, 8), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
    const padded = unpadded.pad(logProb)
    expect(padded[4]).toBe((await decoder.score(alone)).logProb[1])
    expect([padded[0], padded[1], padded[3], padded[5]]).toEqual([0, 0, 0, 0])
    expect(unpadded.unpad(padded)).toEqual(logProb)
    expect(() => unpadded.pad(padded)).toThrow(code('SHAPE_MISMATCH'))
  })

  it('takes the positions of the caller, which change the angles', async () => {
    using decoder = Decoder.fromSeed(TINY, { seed: 1 })
    const three = {
      ids: Uint32Array.of(0, 5, 6, 7),
      attentionMask: Uint8Array.of(0, 1, 1, 1),
      mask: Uint8Array.of(0, 0, 0, 1),
      width: 4,
    }
    const logProb = async (positions?: Uint32Array) => {
      using unpadded = new UnpaddedTokenBatch({ ...three, ...(positions && { positions }) })
      return (await decoder.score(unpadded.batch)).logProb[2] as number
    }
    const counted = await logProb()
    expect(await logProb(Uint32Array.of(9, 0, 1, 2))).toBe(counted)
    expect(await logProb(Uint32Array.of(0, 0, 6, 7))).not.toBe(counted)
    await expect(logProb(Uint32Array.of(0, 0, 6, 64))).rejects.toThrow(code('LIMIT_EXCEEDED'))
  })

  it('refuses a mask that wants padding, and lengths that disagree', () => {
    const wanted = { ...rows, mask: Uint8Array.of(1, 0, 0, 0, 0, 0) }
    expect(() => new UnpaddedTokenBatch(wanted)).toThrow(code('OUT_OF_RANGE'))
    expect(() => new UnpaddedTokenBatch({ ...rows, width: 4 })).toThrow(code('SHAPE_MISMATCH'))
    expect(() => new UnpaddedTokenBatch({ ...rows, with: 3 } as never)).toThrow(/did you mean 'width'/)
  })
})

import { describe, expect, it } from 'vitest'
import { Tensor } from '../../src/tensor/index.js'
import { RandomProjectionHash, SipHash } from '../../src/tree/index.js'
import { codeOf } from '../tensor/code-of.js'

const floats = (...numbers: number[]) => Tensor.from(numbers, { shape: [numbers.length, 1] })

describe('SipHash', () => {
  it('hashes bytes as Python does', () => {
    const rows = Tensor.from(BigInt64Array.of(1n, 2n, 3n))
    const hashes = BigInt64Array.of(2206609067086327257n, -6569889354672326634n, -176652938616201990n)
    expect(new SipHash().forward(rows).data).toEqual(hashes)
    expect(new SipHash().forward(Tensor.zeros('f32', [2, 0])).data).toEqual(BigInt64Array.of(0n, 0n))
  })

  it('hashes 0 and -0 alike, unless compatible', () => {
    const [one, other] = new SipHash().forward(floats(0, -0)).data
    expect(one).toBe(other)
    const [zero, negative] = new SipHash({ compatible: true }).forward(floats(0, -0)).data
    expect(zero).not.toBe(negative)
  })

  it('takes keys of 64 bits and refuses others', () => {
    const key = [2n ** 64n - 1n, 0n] as const
    expect(new SipHash({ key }).forward(floats(1)).data).not.toEqual(new SipHash().forward(floats(1)).data)
    expect(codeOf(() => new SipHash({ key: [2n ** 64n, 0n] }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => new SipHash({ key: [1, 2] as never }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => new SipHash().forward(Tensor.zeros('f32', [])))).toBe('SHAPE_MISMATCH')
  })
})

describe('RandomProjectionHash', () => {
  it('projects by a given matrix', () => {
    const matrix = Tensor.from([1, 0, 0, 1, 1, 1], { shape: [3, 2] })
    const rows = Tensor.from([1, 2, 3, 4, 5, -1], { shape: [2, 3] })
    const projected = Tensor.from([4, 5, 3, 4], { shape: [2, 2] })
    const hash = new RandomProjectionHash({ matrix, dtype: 'f32' })
    expect(hash.forward(rows).data).toEqual(new SipHash().forward(projected).data)
  })

  it('refuses what is no matrix, other features and dtypes without floats', () => {
    const hash = new RandomProjectionHash()
    hash.forward(Tensor.zeros('f32', [1, 4]))
    expect(codeOf(() => hash.forward(Tensor.zeros('f32', [1, 5])))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => new RandomProjectionHash({ matrix: Tensor.zeros('f32', [4]) }))).toBe(
      'SHAPE_MISMATCH',
    )
    expect(codeOf(() => new RandomProjectionHash({ dtype: 'i64' as never }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => new RandomProjectionHash({ numComponents: 0 }))).toBe('OUT_OF_RANGE')
  })
})

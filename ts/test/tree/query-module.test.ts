import { describe, expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { BinaryToDecimal, HashToInt, QueryModule, SipHash } from '../../src/tree/index.js'
import { codeOf } from '../tensor/code-of.js'

const states = (shape: number[], ...numbers: number[]) =>
  TensorDict.from(
    { a: Tensor.from(numbers, { shape }), b: Tensor.from(numbers, { shape }) },
    { batchSize: shape },
  )

describe('QueryModule', () => {
  it('numbers a batch of any shape, row by row', () => {
    const query = new QueryModule({ inKeys: ['a', 'b'] })
    const numbered = query.forward(states([2, 2], 5, 7, 5, 9))
    expect(numbered.tensor('_index').data).toEqual(BigInt64Array.of(0n, 1n, 0n, 2n))
    expect(numbered.tensor('_hash').shape).toEqual([2, 2])
    expect(
      query
        .forward(states([1], 8), { extend: false })
        .tensor('_index')
        .item(),
    ).toBe(3n)
    expect(query.forward(states([], 9)).tensor('_index').item()).toBe(2n)
  })

  it('hashes with the functions that it is given', () => {
    const sum = {
      forward: (rows: Tensor) => Tensor.from(BigInt64Array.from(rows.toFloat32(), (one) => BigInt(one % 2))),
    }
    const query = new QueryModule({ inKeys: ['a'], hashModule: sum, clone: true, indexKey: 'id' })
    const input = states([3], 1, 3, 4)
    expect(query.forward(input).tensor('id').data).toEqual(BigInt64Array.of(0n, 0n, 1n))
    expect(input.has('id')).toBe(false)
    const wrong = new QueryModule({ inKeys: ['a'], hashModule: { forward: (rows) => rows } })
    expect(codeOf(() => wrong.forward(input))).toBe('USER_CODE')
  })

  it('refuses missing entries, no keys and other numbers of hashes', () => {
    expect(codeOf(() => new QueryModule({ inKeys: ['x'] }).forward(states([1], 1)))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => new QueryModule({ inKeys: [] }))).toBe('EMPTY')
    expect(codeOf(() => new QueryModule({ inKeys: ['a'], hashModule: [new SipHash(), new SipHash()] }))).toBe(
      'SHAPE_MISMATCH',
    )
  })
})

describe('HashToInt', () => {
  const hashes = (...numbers: bigint[]) => Tensor.from(BigInt64Array.from(numbers))

  it('comes back from its state', () => {
    const ids = new HashToInt({ maxSize: 3 })
    ids.forward(hashes(9n, -4n), { extend: true })
    const other = new HashToInt()
    other.loadStateDict(ids.stateDict())
    expect([other.length, other.forward(hashes(-4n, 9n)).data]).toEqual([2, BigInt64Array.of(1n, 0n)])
    expect(codeOf(() => other.loadStateDict({ hashes: hashes(1n, 1n) }))).toBe('CORRUPT')
    expect(other.length).toBe(2)
  })

  it('ends at its limit', () => {
    const ids = new HashToInt({ maxSize: 2 })
    expect(codeOf(() => ids.forward(hashes(1n, 2n, 3n), { extend: true }))).toBe('LIMIT_EXCEEDED')
    expect([ids.length, codeOf(() => new HashToInt({ maxSize: 2 ** 28 + 1 }))]).toEqual([0, 'OUT_OF_RANGE'])
    expect(codeOf(() => ids.forward(Tensor.from([1])))).toBe('INCOMPATIBLE')
  })
})

describe('BinaryToDecimal', () => {
  it('reads signs as digits and refuses odd numbers of features', () => {
    const read = new BinaryToDecimal({ numBits: 2, convertToBinary: true })
    expect(read.forward(Tensor.from([0.5, -1, 3, 3], { shape: [2, 2] })).data).toEqual(
      BigInt64Array.of(2n, 3n),
    )
    expect(codeOf(() => read.forward(Tensor.from([1, 2, 3])))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => new BinaryToDecimal({ numBits: 63 }))).toBe('OUT_OF_RANGE')
  })
})

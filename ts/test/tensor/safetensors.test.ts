import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { readSafetensors, Tensor, writeSafetensors } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

function fileOf(header: string, data: readonly number[] = []): Uint8Array {
  const text = new TextEncoder().encode(header)
  const bytes = new Uint8Array(8 + text.length + data.length)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true)
  bytes.set(text, 8)
  bytes.set(data, 8 + text.length)
  return bytes
}

const entry = (dtype: string, shape: string, begin: number, end: number) =>
  `{"dtype":"${dtype}","shape":${shape},"data_offsets":[${begin},${end}]}`

describe('safetensors', () => {
  it('reads what it writes', () => {
    using weight = Tensor.from(Float32Array.of(1, 2, 3, 4), { shape: [2, 2] })
    using column = weight.select(1, 0)
    using step = Tensor.from(BigInt64Array.of(7n), { shape: [] })
    const bytes = writeSafetensors(
      new Map<string, Tensor>([
        ['column', column],
        ['step', step],
      ]),
      { format: 'pt' },
    )
    const { tensors, metadata } = readSafetensors(bytes)
    expect([...tensors.keys()]).toEqual(['column', 'step'])
    expect(tensors.get('column')?.data).toEqual(Float32Array.of(1, 3))
    expect(tensors.get('step')?.shape).toEqual([])
    expect(metadata).toEqual({ format: 'pt' })
  })

  it('writes the same bytes in whatever order', () => {
    const a = Tensor.from([1])
    const b = Tensor.from([2], { dtype: 'u8' })
    const forward = writeSafetensors({ a, b }, { x: '1', y: '2' })
    expect(writeSafetensors({ b, a }, { y: '2', x: '1' })).toEqual(forward)
  })

  it('names the tensor of a hostile file', () => {
    const overlap = `{"a":${entry('U8', '[2]', 0, 2)},"b":${entry('U8', '[2]', 1, 3)}}`
    expect(() => readSafetensors(fileOf(overlap, [1, 2, 3]))).toThrow(
      'tensor "b": data_offsets must begin at 2',
    )
    const cases: [string, string, readonly number[]][] = [
      ['CORRUPT', overlap, [1, 2, 3]],
      ['CORRUPT', `{"a":${entry('F32', '[2]', 0, 8)}}`, [0]],
      ['CORRUPT', `{"a":${entry('U8', '[1]', 0, 1)},"a":${entry('U8', '[1]', 0, 1)}}`, [0]],
      ['CORRUPT', `{"a":${entry('BOOL', '[1]', 0, 1)}}`, [2]],
      ['CORRUPT', 'not json', []],
      ['LIMIT_EXCEEDED', `{"a":${entry('U8', JSON.stringify(new Array(17).fill(1)), 0, 1)}}`, [0]],
      ['UNKNOWN_NAME', `{"a":${entry('F9', '[1]', 0, 1)}}`, [0]],
    ]
    for (const [code, header, data] of cases)
      expect(codeOf(() => readSafetensors(fileOf(header, data)))).toBe(code)
    const claimed = fileOf('{}')
    new DataView(claimed.buffer).setBigUint64(0, 100_000_001n, true)
    expect(codeOf(() => readSafetensors(claimed))).toBe('LIMIT_EXCEEDED')
    expect(codeOf(() => readSafetensors(new Uint8Array(7)))).toBe('CORRUPT')
  })

  it('answers 2,000 damaged files with a code or a whole file', () => {
    const original = writeSafetensors({
      a: Tensor.from([1, 2, 3]),
      b: Tensor.from([1, 0], { dtype: 'bool' }),
    })
    using rng = Rng.fromSeed(3)
    const codes = new Set<string>()
    for (let round = 0; round < 2000; round++) {
      const bytes = original.slice(0, round % 2 ? original.length : rng.below(original.length))
      const at = rng.below(Math.max(bytes.length, 1))
      if (round % 2) bytes[at] = (bytes[at] ?? 0) ^ (1 << rng.below(8))
      codes.add(outcome(bytes))
    }
    expect([...codes].sort()).toEqual(['CORRUPT', 'LIMIT_EXCEEDED', 'UNKNOWN_NAME', 'read'])
  })

  it('refuses a name that the format keeps, memory that is gone, and tensors that are closed', () => {
    const tensor = Tensor.from([1])
    expect(codeOf(() => writeSafetensors({ __metadata__: tensor }))).toBe('MALFORMED')
    tensor[Symbol.dispose]()
    expect(codeOf(() => writeSafetensors({ tensor }))).toBe('CLOSED')
    const own = new Uint8Array(16)
    structuredClone(own, { transfer: [own.buffer] })
    expect(codeOf(() => readSafetensors(own))).toBe('MALFORMED')
  })
})

function outcome(bytes: Uint8Array): string {
  const read = 'read'
  const fail = () => {
    readSafetensors(bytes)
    throw read
  }
  try {
    return codeOf(fail)
  } catch (error) {
    if (error === read) return read
    throw error
  }
}

it('reads what is known and names the dtype of a tensor that is not', () => {
  const header = JSON.stringify({
    a: { dtype: 'F32', shape: [1], data_offsets: [0, 4] },
    w: { dtype: 'F8_E4M3', shape: [3], data_offsets: [4, 7] },
  })
  const bytes = new Uint8Array(8 + header.length + 7)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true)
  bytes.set(new TextEncoder().encode(header), 8)
  const file = readSafetensors(bytes)
  expect([...file.tensors.keys()]).toEqual(['a'])
  expect(file.tensors.get('a')?.data).toEqual(Float32Array.of(0))
  expect(file.tensors.get('b')).toBeUndefined()
  expect(file.unread).toEqual({ w: 'F8_E4M3' })
  const refusal = { code: 'UNAVAILABLE', message: expect.stringMatching(/"w".*F8_E4M3/) }
  expect(() => file.tensors.get('w')).toThrow(expect.objectContaining(refusal))
})

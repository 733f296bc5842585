import { describe, expect, it } from 'vitest'
import { backend } from '../../src/native/index.js'
import { type Dtype, Tensor, type TensorData } from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const grid = () => Tensor.from(Float32Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] })

describe('Tensor', () => {
  it('takes every dtype in and gives it back', () => {
    const samples: [Dtype, TensorData][] = [
      ['f64', Float64Array.of(1.5, -0)],
      ['f32', Float32Array.of(1.5, Number.NaN)],
      ['f16', Uint16Array.of(0x3c00, 0xc000)],
      ['bf16', Uint16Array.of(0x3f80, 0xc000)],
      ['i64', BigInt64Array.of(-(2n ** 63n), 1n)],
      ['i32', Int32Array.of(-(2 ** 31), 1)],
      ['i16', Int16Array.of(-(2 ** 15), 1)],
      ['i8', Int8Array.of(-128, 1)],
      ['u8', Uint8Array.of(255, 1)],
      ['u32', Uint32Array.of(2 ** 32 - 1, 1)],
      ['bool', Uint8Array.of(1, 0)],
    ]
    for (const [dtype, data] of samples) {
      using tensor = Tensor.from(data, { dtype, shape: [1, 2] })
      expect([tensor.dtype, tensor.shape, tensor.data]).toEqual([dtype, [1, 2], data])
      using zeros = Tensor.zeros(dtype, [2])
      expect([...zeros.data].map(Number)).toEqual([0, 0])
    }
  })

  it('reads half floats and bools as singles', () => {
    expect(Tensor.from(Uint16Array.of(0x3c00, 0xc000), { dtype: 'f16' }).toFloat32()).toEqual(
      Float32Array.of(1, -2),
    )
    expect(Tensor.from(Uint16Array.of(0x3f80), { dtype: 'bf16' }).toFloat32()).toEqual(Float32Array.of(1))
    expect(Tensor.from(Uint8Array.of(1, 0), { dtype: 'bool' }).toFloat32()).toEqual(Float32Array.of(1, 0))
  })

  it('takes plain numbers as singles or as the named dtype', () => {
    expect(Tensor.from([0.1, 2]).data).toEqual(Float32Array.of(0.1, 2))
    expect(Tensor.from([1, -2], { dtype: 'i64' }).data).toEqual(BigInt64Array.of(1n, -2n))
    expect(Tensor.from([1, 0], { dtype: 'bool' }).data).toEqual(Uint8Array.of(1, 0))
    expect(Tensor.from([7], { shape: [] }).shape).toEqual([])
    expect(Tensor.from([]).shape).toEqual([0])
  })

  it('copies what it takes and what it gives', () => {
    const source = Float32Array.of(1, 2)
    using tensor = Tensor.from(source)
    source[0] = 9
    expect(tensor.data).toEqual(Float32Array.of(1, 2))
    tensor.data[1] = 9
    using same = tensor.slice()
    expect(same.data).toEqual(Float32Array.of(1, 2))
  })

  it('honours the window of a typed array on its buffer', () => {
    const whole = Int16Array.of(1, 2, 3, 4)
    expect(Tensor.from(whole.subarray(1, 3)).data).toEqual(Int16Array.of(2, 3))
  })

  it('selects, slices, reshapes, transposes and picks', () => {
    using tensor = grid()
    expect(tensor.select(1, 2).data).toEqual(Float32Array.of(3, 6))
    expect(tensor.slice({ dim: 1, start: 1 }).data).toEqual(Float32Array.of(2, 3, 5, 6))
    expect(tensor.slice({ end: 1 }).shape).toEqual([1, 3])
    expect(tensor.reshape([3, 2]).select(0, 2).data).toEqual(Float32Array.of(5, 6))
    expect(tensor.transpose(0, 1).data).toEqual(Float32Array.of(1, 4, 2, 5, 3, 6))
    expect(tensor.indexSelect(1, [2, 0]).data).toEqual(Float32Array.of(3, 1, 6, 4))
    expect(tensor.indexSelect(0, Uint32Array.of(1, 1)).shape).toEqual([2, 3])
  })

  it('stacks along a new dimension and joins along an old one', () => {
    const parts = [Tensor.from([1, 2]), Tensor.from([3, 4])]
    expect(Tensor.stack(parts).shape).toEqual([2, 2])
    expect(Tensor.stack(parts, 1).data).toEqual(Float32Array.of(1, 3, 2, 4))
    expect(Tensor.cat(parts).data).toEqual(Float32Array.of(1, 2, 3, 4))
  })

  it('compares dtype, shape and elements', () => {
    using tensor = grid()
    expect(tensor.equals(grid())).toBe(true)
    expect(tensor.equals(tensor)).toBe(true)
    expect(tensor.equals(grid().reshape([3, 2]))).toBe(false)
    expect(Tensor.from([Number.NaN]).equals(Tensor.from([Number.NaN]))).toBe(false)
  })

  it('keeps views alive after the tensor they came from is disposed', () => {
    const tensor = grid()
    using row = tensor.select(0, 1)
    tensor[Symbol.dispose]()
    tensor[Symbol.dispose]()
    expect(row.data).toEqual(Float32Array.of(4, 5, 6))
    expect(codeOf(() => tensor.select(0, 0))).toBe('CLOSED')
    expect(codeOf(() => tensor.data)).toBe('CLOSED')
    expect(codeOf(() => row.equals(tensor))).toBe('CLOSED')
    expect(codeOf(() => Tensor.stack([row, tensor]))).toBe('CLOSED')
  })

  it('refuses wrong dtypes', () => {
    expect(codeOf(() => grid().as('i32'))).toBe('INCOMPATIBLE')
    expect(grid().as('f32').data[0]).toBe(1)
    expect(codeOf(() => Tensor.from(Uint16Array.of(1)))).toBe('INCOMPATIBLE')
    expect(codeOf(() => Tensor.from(Float32Array.of(1), { dtype: 'i32' }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => Tensor.from([1], { dtype: 'f16' }))).toBe('INCOMPATIBLE')
    expect(codeOf(() => Tensor.from([300], { dtype: 'i8' }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => Tensor.from([0.5], { dtype: 'u32' }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => Tensor.from(Uint8Array.of(2), { dtype: 'bool' }))).toBe('CORRUPT')
    expect(codeOf(() => Tensor.cat([Tensor.from([1]), Tensor.from([1], { dtype: 'f64' }) as Tensor]))).toBe(
      'INCOMPATIBLE',
    )
    // What a program without types may pass.
    expect(codeOf(() => Tensor.zeros('float' as Dtype, [1]))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => Tensor.from(BigUint64Array.of(1n) as unknown as TensorData))).toBe('INCOMPATIBLE')
  })

  it('refuses wrong shapes and indices', () => {
    expect(codeOf(() => Tensor.from([1, 2], { shape: [3] }))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => Tensor.from([1], { shape: new Array(17).fill(1) }))).toBe('LIMIT_EXCEEDED')
    for (const dim of [-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(codeOf(() => Tensor.zeros('f32', [dim]))).toBe('OUT_OF_RANGE')
    }
    const huge = backend === 'wasm' ? [2 ** 30] : [2 ** 31, 2 ** 31]
    expect(codeOf(() => Tensor.zeros('f64', huge))).toBe('OUT_OF_MEMORY')
    expect(codeOf(() => Tensor.zeros('f64', [2 ** 31, 2 ** 31, 4]))).toBe('LIMIT_EXCEEDED')
    expect(codeOf(() => grid().reshape([4]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => grid().select(2, 0))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().select(0, -1))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().slice({ start: 1, end: 3 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().slice({ dim: 7 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().transpose(0, 2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().indexSelect(0, [2]))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => Tensor.stack([]))).toBe('EMPTY')
    expect(codeOf(() => Tensor.stack([grid(), grid().slice({ end: 1 })]))).toBe('SHAPE_MISMATCH')
  })

  it('refuses memory that was transferred away', () => {
    const data = Float32Array.of(1, 2)
    structuredClone(data, { transfer: [data.buffer] })
    expect(codeOf(() => Tensor.from(data))).toBe('MALFORMED')
  })

  it('takes shared and resizable memory as it stands', () => {
    const shared = new Float32Array(new SharedArrayBuffer(8))
    shared.set([1, 2])
    expect(Tensor.from(shared).data).toEqual(Float32Array.of(1, 2))
  })
})

describe('item', () => {
  it('is the only element as JavaScript has it', () => {
    for (const dtype of ['f64', 'f32', 'f16', 'bf16', 'i32', 'i16', 'i8', 'u8', 'u32'] as const)
      expect(Tensor.from([2]).to(dtype).reshape([]).item()).toBe(2)
    expect(Tensor.from([-1]).to('f16').item()).toBe(-1)
    expect(Tensor.from(BigInt64Array.of(-(2n ** 62n)), { shape: [1, 1] }).item()).toBe(-(2n ** 62n))
    expect([Tensor.from([3]).to('bool').item(), Tensor.zeros('bool', []).item()]).toEqual([true, false])
  })

  it('refuses other numbers of elements than one', () => {
    for (const shape of [[0], [2], [1, 3]])
      expect(codeOf(() => Tensor.zeros('f32', shape).item())).toBe('SHAPE_MISMATCH')
  })
})

describe('shapes and sums', () => {
  const grid = () => Tensor.from(Int32Array.of(0, 1, 2, 3, 4, 5), { shape: [2, 3] })

  it('reads parts, other shapes and other element types', () => {
    expect([...grid().at(-1, [2, 0]).data]).toEqual([5, 3])
    expect(grid().at(null, '...').shape).toEqual([1, 2, 3])
    expect(grid().flatten().shape).toEqual([6])
    expect(grid().flatten(1).shape).toEqual([2, 3])
    expect(grid().unsqueeze(-1).shape).toEqual([2, 3, 1])
    expect(grid().unsqueeze(0).squeeze(0).shape).toEqual([2, 3])
    expect([...grid().permute([-1, 0]).data]).toEqual([0, 3, 1, 4, 2, 5])
    expect(grid().view([3, 2]).shape).toEqual([3, 2])
    expect([...grid().at(0).expand([2, 3]).data]).toEqual([0, 1, 2, 0, 1, 2])
    expect(grid().repeat([2, 1]).shape).toEqual([4, 3])
    expect([...grid().select(-1, 0).data]).toEqual([0, 3])
    expect([...grid().to('bool').data]).toEqual([0, 1, 1, 1, 1, 1])
    expect(grid().numElements).toBe(6)
    expect([...grid().sum(0).data, ...grid().sum().data]).toEqual([3n, 5n, 7n, 15n])
  })

  it('refuses what does not fit by code', () => {
    expect(codeOf(() => grid().permute([0, 1]).permute([1, 0]).view([6]))).toBe('INCOMPATIBLE')
    expect(codeOf(() => grid().at(2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().flatten(1, 0))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().flatten(0, 2))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().sum(-3))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => Tensor.from([300]).to('u8'))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => grid().to('f8' as never))).toBe('UNKNOWN_NAME')
  })
})

describe('the name of a dtype', () => {
  it('is refused with the one that is meant, whichever function takes it', () => {
    const wrong = (name: string) => name as Dtype
    const meant = (name: string) =>
      expect.objectContaining({
        code: 'UNKNOWN_NAME',
        message: expect.stringContaining(`did you mean '${name}'?`),
      })
    expect(() => Tensor.from([1], { dtype: wrong('float32') })).toThrow(meant('f32'))
    expect(() => Tensor.from(Float32Array.of(1), { dtype: wrong('torch.bfloat16') })).toThrow(meant('bf16'))
    expect(() => Tensor.zeros(wrong('int64'), [1])).toThrow(meant('i64'))
    expect(() => grid().to(wrong('F64'))).toThrow(meant('f64'))
    expect(codeOf(() => Tensor.from([1], { dtype: wrong('constructor') }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => Tensor.from([1], { dtpye: 'f64' } as never))).toBe('UNKNOWN_NAME')
  })
})

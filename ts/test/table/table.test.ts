import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { fromArrow, fromParquet, toArrow, toParquet } from '../../src/table/index.js'
import {
  type Dtype,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
  type TensorDictEntry,
} from '../../src/tensor/index.js'

const golden = (name: string) => new Uint8Array(readFileSync(`tests/golden/table/${name}`))

const FORMATS = [
  { format: 'parquet', write: (dict: TensorDict) => toParquet(dict), read: fromParquet },
  { format: 'arrow', write: toArrow, read: async (bytes: Uint8Array) => fromArrow(bytes) },
]

describe.each(FORMATS)('a table as $format', ({ format, write, read }) => {
  it('is the same dictionary again, whatever it holds', async () => {
    await fc.assert(
      fc.asyncProperty(dictionaries, async (dict) => {
        const again = await read(write(dict))
        expect(again.leafKeys()).toEqual(dict.leafKeys())
        expect(again.equals(dict)).toBe(true)
      }),
      { seed: 7, numRuns: 60 },
    )
  })

  it('keeps every half float', async () => {
    for (const dtype of ['f16', 'bf16'] as const) {
      const bits = Uint16Array.from({ length: 2 ** 16 }, (_, at) => at)
      const all = Tensor.from(bits, { dtype })
      const again = (await read(write(TensorDict.from({ all }, { batchSize: [bits.length] })))).tensor('all')
      expect(again.dtype).toBe(dtype)
      expect(again.toFloat32()).toEqual(all.toFloat32())
    }
  })

  it('reads what pyarrow wrote', async () => {
    const dict = await read(golden(`pyarrow.${format}`))
    expect(dict.batchSize).toEqual([3])
    expect(dict.tensor('reward').data).toEqual(Float64Array.of(0.5, 1, -2))
    expect(dict.tensor(['next', 'done'])).toMatchObject({ dtype: 'bool', data: Uint8Array.of(0, 0, 1) })
    expect(dict.tensor('action').data).toEqual(BigInt64Array.of(1n, 2n, 2n ** 40n))
    expect(dict.tensor('level').data).toEqual(Int32Array.of(1, 2, 65535))
    expect(
      dict
        .ragged('tokens')
        .equals(Ragged.from(Tensor.from(Int32Array.of(7, 8, 9)), Uint32Array.of(0, 1, 1, 3))),
    ).toBe(true)
    expect(dict.get('task')).toEqual(new NonTensorStack(['add', 'sort', 'add']))
    expect(dict.get('kind')).toEqual(new NonTensorStack(['a', 'b', 'a']))
    // Parquet has no lists of a fixed size.
    const observation =
      format === 'arrow' ? dict.tensor('observation') : dict.ragged('observation').values.reshape([3, 2])
    expect(observation).toMatchObject({
      dtype: 'f32',
      shape: [3, 2],
      data: Float32Array.of(1, 2, 3, 4, 5, 6),
    })
  })

  it.each([
    ['null', 'MALFORMED', "column 'reward' at row 1 must hold one value: got null"],
    [
      'timestamp',
      'INCOMPATIBLE',
      "column 'at' must hold numbers, booleans, texts, or lists and groups of them: got",
    ],
  ])('refuses %s values by column', async (name, code, message) => {
    await expect(read(golden(`${name}.${format}`))).rejects.toMatchObject({
      code,
      message: expect.stringContaining(message),
    })
  })

  it('refuses every truncation of a file', async () => {
    const bytes = write(sample())
    for (let length = 0; length < bytes.length; length += 7) {
      await expect(read(bytes.slice(0, length))).rejects.toMatchObject({ code: expect.stringMatching(KNOWN) })
    }
  })

  it('refuses batches that are no steps, and names that clash', () => {
    expect(() => write(TensorDict.from())).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }))
    const clash = TensorDict.from({ 'a.b': Tensor.from([1]) }, { batchSize: [1] })
    clash.set(['a', 'b'], Tensor.from([2]))
    expect(() => write(clash)).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
  })
})

const KNOWN = /^(MALFORMED|INCOMPATIBLE|LIMIT_EXCEEDED|SHAPE_MISMATCH|OUT_OF_RANGE)$/

it('refuses every change of a Parquet file, or reads a dictionary', async () => {
  const bytes = toParquet(sample())
  for (let at = 0; at < bytes.length; at++) {
    const changed = bytes.slice()
    changed[at] = (changed[at] ?? 0) ^ 0x5a
    await fromParquet(changed).catch((error) =>
      expect(error).toMatchObject({ code: expect.stringMatching(KNOWN) }),
    )
  }
})

it('refuses every change of an Arrow file, or reads a dictionary, soon', () => {
  const bytes = toArrow(sample())
  for (let at = 0; at < bytes.length; at++) {
    for (const byte of [0xff, (bytes[at] ?? 0) ^ 0x5a]) {
      const changed = bytes.slice()
      changed[at] = byte
      try {
        fromArrow(changed)
      } catch (error) {
        expect(error).toMatchObject({ code: expect.stringMatching(KNOWN) })
      }
    }
  }
})

it('refuses options that it does not know', () => {
  expect(() => toParquet(sample(), { compresion: 'none' } as never)).toThrow("did you mean 'compression'?")
  expect(() => toParquet(sample(), { compression: 'zip' as never })).toThrow(
    'must be snappy or none: got zip',
  )
})

function sample(): TensorDict {
  return TensorDict.from(
    {
      reward: Tensor.from([0.5, 1]),
      tokens: Ragged.from(Tensor.from(Int32Array.of(1, 2, 3)), Uint32Array.of(0, 1, 3)),
      task: new NonTensorStack(['add', 'sort']),
    },
    { batchSize: [2] },
  )
}

const DTYPES: readonly Dtype[] = ['f64', 'f32', 'f16', 'bf16', 'i64', 'i32', 'i16', 'i8', 'u8', 'u32', 'bool']
const SIZES = { f64: 8, f32: 4, f16: 2, bf16: 2, i64: 8, i32: 4, i16: 2, i8: 1, u8: 1, u32: 4, bool: 1 }

/** Finite elements of any dtype, from small integers: each dtype holds them exactly. */
function tensorOf(dtype: Dtype, shape: readonly number[], seed: number): Tensor {
  const count = shape.reduce((product, length) => product * length, 1)
  const numbers = Array.from({ length: count }, (_, at) => (seed + at * 7) % (dtype === 'bool' ? 2 : 100))
  if (SIZES[dtype] !== 2 || dtype === 'i16') return Tensor.from(numbers, { dtype, shape })
  // Bits below the exponent of ones: finite half floats.
  return Tensor.from(
    Uint16Array.from(numbers, (number) => number * 311),
    { dtype, shape },
  )
}

const dictionaries = fc
  .record({
    numRows: fc.integer({ min: 0, max: 4 }),
    leaves: fc.array(
      fc.record({
        dtype: fc.constantFrom(...DTYPES),
        kind: fc.constantFrom('tensor', 'ragged', 'text', 'json', 'shared', 'nested'),
        shape: fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 2 }),
        seed: fc.nat({ max: 99 }),
      }),
      { minLength: 1, maxLength: 5 },
    ),
  })
  .map(({ numRows, leaves }) => {
    const dict = TensorDict.from({}, { batchSize: [numRows] })
    leaves.forEach(({ dtype, kind, shape, seed }, at) => {
      const lengths = Array.from({ length: numRows }, (_, row) => (seed + row) % 3)
      const total = lengths.reduce((sum, length) => sum + length, 0)
      const offsets = Uint32Array.from([
        0,
        ...lengths.map((_, row) => lengths.slice(0, row + 1).reduce((a, b) => a + b)),
      ])
      const entries: Record<string, () => TensorDictEntry> = {
        tensor: () => tensorOf(dtype, [numRows, ...shape], seed),
        nested: () => tensorOf(dtype, [numRows, ...shape], seed),
        ragged: () => Ragged.from(tensorOf(dtype, [total, ...shape], seed), offsets),
        text: () => new NonTensorStack(lengths.map((length) => 'ä"\n'.repeat(length))),
        json: () => new NonTensorStack(lengths.map((length) => ({ length, of: [null, true] }))),
        shared: () => (numRows === 0 ? new NonTensorStack([]) : new NonTensorData({ seed })),
      }
      dict.set(kind === 'nested' ? [`n${at}`, 'inner'] : `k${at}`, (entries[kind] as () => TensorDictEntry)())
    })
    return dict
  })

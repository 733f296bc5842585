// Tables of other programs: compressed, nested, of types that Fulmar does not write.
import { readFileSync } from 'node:fs'
import { parquetWriteBuffer, type SchemaElement } from 'hyparquet-writer'
import { describe, expect, it } from 'vitest'
import { TABLE_DEPTH_MAX, TABLE_ROWS_MIN } from '../../src/table/column.js'
import { fromArrow, fromParquet, toParquet } from '../../src/table/index.js'
import { NonTensorStack, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'

const golden = (file: string) => new Uint8Array(readFileSync(`tests/golden/table/${file}`))
const read = async (file: string) =>
  file.endsWith('.parquet') ? fromParquet(golden(file)) : fromArrow(golden(file))

describe('a table of another program', () => {
  const codecs = ['gzip.parquet', 'brotli.parquet', 'zstd.parquet', 'lz4.parquet', 'zstd.arrow', 'lz4.arrow']
  it.each(codecs)('is read whole when it is compressed: %s', async (file) => {
    const dict = await read(file)
    const rows = Array.from({ length: 40 }, (_, row) => row)
    expect(dict.tensor('reward').data).toEqual(Float32Array.from(rows, (row) => row / 4))
    expect(dict.tensor('action').data).toEqual(BigInt64Array.from(rows, (row) => BigInt(row * row)))
    expect(dict.get('task')).toEqual(
      new NonTensorStack(rows.map((row) => (row % 3 ? 'add' : 'sort a longer text'))),
    )
    const lengths = rows.map((row) => row % 4)
    const offsets = [0, ...lengths.map((_, row) => lengths.slice(0, row + 1).reduce((a, b) => a + b))]
    const values = lengths.flatMap((length) => [0, 1, 2].slice(0, length))
    const tokens = Ragged.from(Tensor.from(Int32Array.from(values)), Uint32Array.from(offsets))
    expect(dict.ragged('tokens').equals(tokens)).toBe(true)
  })

  it.each(['constant.parquet', 'constant.arrow'])('may hold more rows than bytes: %s', async (file) => {
    const { data, shape } = (await read(file)).tensor('one')
    expect(shape).toEqual([100_000])
    expect((data as Int32Array).every((value) => value === 1)).toBe(true)
  })

  it('is refused if it states more rows than a file of its length may have', async () => {
    await expect(read('many-rows.parquet')).rejects.toMatchObject({
      code: 'MALFORMED',
      message: `a file of this length must hold at most ${TABLE_ROWS_MIN} rows: got ${TABLE_ROWS_MIN + 1}`,
    })
  })

  it.each(['nested.parquet', 'nested.arrow'])(
    'gives lists of strings and groups as JSON values: %s',
    async (file) => {
      const dict = await read(file)
      expect(dict.get('tags')).toEqual(new NonTensorStack([['a', 'b'], [], ['ä"']]))
      const messages = [
        [{ role: 'user', content: 'hi', turn: 1 }],
        [],
        [
          { role: 'user', content: null, turn: 2 },
          { role: 'tool', content: 'x', turn: null },
        ],
      ]
      expect(dict.get('messages')).toEqual(new NonTensorStack(messages))
      const info = [
        { score: 0.5, ok: true },
        { score: 1, ok: false },
        { score: -2, ok: null },
      ]
      expect(dict.get('info')).toEqual(new NonTensorStack(info))
      expect(dict.get('rows')).toEqual(new NonTensorStack([[[1, 2], [3]], [], [[4]]]))
    },
  )

  it.each(['unsigned.parquet', 'unsigned.arrow'])(
    'refuses integers that i64 cannot hold: %s',
    async (file) => {
      await expect(read(file)).rejects.toMatchObject({
        code: 'OUT_OF_RANGE',
        message: "column 'id' must hold integers below 2^63: got 9223372036854775808",
      })
    },
  )

  it.each(['nested-timestamp.parquet', 'nested-timestamp.arrow'])(
    'refuses groups with what JSON does not have: %s',
    async (file) => {
      await expect(read(file)).rejects.toMatchObject({
        code: 'INCOMPATIBLE',
        message: expect.stringContaining("column 'log' must hold"),
      })
    },
  )

  it('may lie in a Buffer that shares its memory with others', async () => {
    const steps = TensorDict.from({ reward: Tensor.from([1, 2]) }, { batchSize: [2] })
    const bytes = toParquet(steps)
    const pool = Buffer.alloc(bytes.length + 64, 7)
    pool.set(bytes, 32)
    expect((await fromParquet(pool.subarray(32, 32 + bytes.length))).equals(steps)).toBe(true)
  })

  it('is refused or read, however its bytes are changed', async () => {
    for (const file of codecs) {
      const bytes = golden(file)
      for (let at = 0; at < bytes.length; at += 13) {
        const changed = bytes.slice()
        changed[at] = (changed[at] ?? 0) ^ 0x5a
        try {
          await (file.endsWith('.parquet') ? fromParquet(changed) : fromArrow(changed))
        } catch (error) {
          expect(error).toMatchObject({ code: expect.stringMatching(/^[A-Z_]+$/) })
        }
      }
    }
  })
})

it('reads lists as deep as the limit and refuses deeper ones', async () => {
  await expect(fromParquet(nestedLists(TABLE_DEPTH_MAX))).resolves.toBeInstanceOf(TensorDict)
  await expect(fromParquet(nestedLists(TABLE_DEPTH_MAX + 1))).rejects.toMatchObject({
    code: 'LIMIT_EXCEEDED',
    message: "column 'a' at row 0 must be nested at most 64 deep",
  })
})

/** A Parquet file of one row, its number inside `depth` lists. */
function nestedLists(depth: number): Uint8Array {
  const schema: SchemaElement[] = [{ name: 'root', num_children: 1 }]
  let cell: unknown = 7
  for (let level = 0; level < depth; level++) {
    const name = level === 0 ? 'a' : 'element'
    schema.push({ name, repetition_type: 'REQUIRED', converted_type: 'LIST', num_children: 1 })
    schema.push({ name: 'list', repetition_type: 'REPEATED', num_children: 1 })
    cell = [cell]
  }
  schema.push({ name: 'element', type: 'INT32', repetition_type: 'REQUIRED' })
  return new Uint8Array(parquetWriteBuffer({ columnData: [{ name: 'a', data: [cell] }], schema }))
}

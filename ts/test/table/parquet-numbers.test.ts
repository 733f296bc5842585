import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { parquetWriteBuffer, type SchemaElement } from 'hyparquet-writer'
import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { ParquetFile } from '../../src/table/parquet-file.js'
import { temporaryFolder } from '../telemetry/folder.js'

const golden = (file: string) =>
  fileURLToPath(new URL(`../../../tests/golden/table/${file}`, import.meta.url))

/** The numbers of each column that are read as one array, and those of its cells; `undefined` where they are read as cells alone. */
async function columnsOf(path: string) {
  const file = await ParquetFile.open(path)
  const columns = new Map<string, { numbers: number[]; cells: number[]; width: number } | undefined>()
  try {
    for (const column of file.columns) {
      for (const group of file.groups) {
        const read = await file.readNumbers(column, group)
        const cells = [await file.read(column.name, group)].flatMap((all) => Array.from(all)).flat(8)
        const known = columns.get(column.name)
        const found = read && {
          numbers: [...(known?.numbers ?? []), ...Array.from<number | bigint, number>(read.elements, Number)],
          cells: [...(known?.cells ?? []), ...cells.map((cell) => Math.fround(Number(cell)))],
          width: read.width,
        }
        columns.set(column.name, found)
      }
    }
  } finally {
    await file.close()
  }
  return columns
}

/** Schema of a column of numbers, or of lists of them. */
function schemaOf(type: NonNullable<SchemaElement['type']>, isList: boolean): SchemaElement[] {
  const leaf = { name: isList ? 'element' : 'a', type, repetition_type: 'OPTIONAL' } as const
  if (!isList) return [{ name: 'root', num_children: 1 }, leaf]
  return [
    { name: 'root', num_children: 1 },
    { name: 'a', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    leaf,
  ]
}

async function written(cells: readonly unknown[], schema: SchemaElement[], rowGroupSize = 1000) {
  const path = join(await temporaryFolder(), 'a.parquet')
  const bytes = parquetWriteBuffer({ columnData: [{ name: 'a', data: [...cells] }], schema, rowGroupSize })
  await writeFile(path, new Uint8Array(bytes))
  return path
}

describe('readNumbers', () => {
  it.each(['lists-1.parquet', 'lists-2.parquet'])(
    'reads what the cells of pyarrow hold: %s',
    async (file) => {
      const columns = await columnsOf(golden(file))
      for (const [name, width] of Object.entries({ plain: 3, repeated: 2, fixed: 2, one: 1 })) {
        const { numbers, cells, width: found } = columns.get(name) ?? { numbers: [], cells: [], width: 0 }
        expect([name, found, numbers.length]).toEqual([name, width, 50 * width])
        expect(numbers).toEqual(cells)
      }
      for (const name of ['ragged', 'unsigned', 'deep'])
        expect([name, columns.get(name)]).toEqual([name, undefined])
    },
  )

  it('leaves cells of other lengths and nulls to the reader of cells', async () => {
    for (const name of ['gap', 'hole', 'ragged']) {
      const file = await ParquetFile.open(golden('lists-1.parquet'))
      const [column, group] = [file.columns.find((one) => one.name === name), file.groups[0]]
      expect(column && group && (await file.readNumbers(column, group))).toBe(undefined)
      await file.close()
    }
  })

  it('reads what the cells hold, for any of one length and no others', () =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom('FLOAT', 'DOUBLE', 'INT32', 'INT64'),
        fc.array(fc.array(fc.integer({ min: -9, max: 9 }), { minLength: 1, maxLength: 3 }), { minLength: 1 }),
        fc.integer({ min: 1, max: 9 }),
        fc.boolean(),
        async (type, lists, rowGroupSize, isList) => {
          const value = (number: number) => (type === 'INT64' ? BigInt(number) : number)
          const rows = lists.map((list) => (isList ? list.map(value) : value(list[0] ?? 0)))
          const path = await written(rows, schemaOf(type, isList), rowGroupSize)
          const file = await ParquetFile.open(path)
          const [column] = file.columns
          for (const group of file.groups) {
            const cells = rows.slice(group.rowStart, group.rowEnd).map((row) => [row].flat())
            const isEven = cells.every(({ length }) => length === cells[0]?.length)
            const read = column && (await file.readNumbers(column, group))
            expect(read && Array.from<unknown, number>(read.elements, Number)).toEqual(
              isEven ? cells.flat().map(Number) : undefined,
            )
          }
          await file.close()
        },
      ),
      { numRuns: 30 },
    ))

  it('refuses every change of a file, or reads numbers, soon', async () => {
    const rows = Array.from({ length: 40 }, (_, row) => [row, row + 1, 7])
    const path = await written(rows, schemaOf('FLOAT', true))
    const file = await ParquetFile.open(path)
    const [column, group] = [file.columns[0], file.groups[0]]
    if (column === undefined || group === undefined) throw new Error('a column and a group')
    const bytes = new Uint8Array(await readFile(path))
    let numRefused = 0
    for (let at = 4; at < bytes.length - 8; at += 3) {
      const changed = bytes.slice()
      changed[at] = (changed[at] ?? 0) ^ 0xff
      await writeFile(path, changed)
      const failure = await file.readNumbers(column, group).then(
        () => undefined,
        (error: unknown) => error,
      )
      if (failure === undefined) continue
      expect(failure).toBeInstanceOf(FulmarError)
      numRefused += 1
    }
    await file.close()
    expect(numRefused).toBeGreaterThan(5)
  })
})

// Parquet and Arrow files that are read a part at a time.
import { readdirSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  Dictionary,
  Int32,
  RecordBatchStreamWriter,
  Table,
  tableFromArrays,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import { parquetWriteBuffer } from 'hyparquet-writer'
import { describe, expect, it } from 'vitest'
import { arrowParts } from '../../src/table/arrow-parts.js'
import { parquetParts, type TableRow } from '../../src/table/parquet-parts.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'

const texts = Array.from({ length: 10 }, (_, at) => `row ${at}`)

async function fileOf(bytes: Uint8Array, name = 'rows') {
  const path = join(await temporaryFolder(), name)
  await writeFile(path, bytes)
  return path
}

async function partsOf(parts: AsyncIterable<readonly TableRow[]>) {
  const all: (readonly TableRow[])[] = []
  for await (const part of parts) all.push(part)
  return all
}

/** Ten rows in groups of four. */
const parquet = () =>
  new Uint8Array(
    parquetWriteBuffer({ columnData: [{ name: 'text', data: texts, type: 'STRING' }], rowGroupSize: 4 }),
  )

/** A stream of tables, one batch each. */
function stream(...tables: Table[]) {
  const writer = RecordBatchStreamWriter.writeAll(tables.flatMap(({ batches }) => batches))
  return writer.toUint8Array(true)
}

describe('parquetParts', () => {
  it('gives a group of rows at a time', async () => {
    const parts = await partsOf(parquetParts(await fileOf(parquet())))
    expect(parts.map((part) => part.length)).toEqual([4, 4, 2])
    expect(parts.flat().map(({ text }) => text)).toEqual(texts)
  })

  it('reads what other programs compressed', async () => {
    const names = readdirSync('tests/golden/table').filter((name) =>
      /^(gzip|brotli|zstd|lz4)\.parquet$/.test(name),
    )
    expect(names).toHaveLength(4)
    for (const name of names) {
      const rows = (await partsOf(parquetParts(`tests/golden/table/${name}`))).flat()
      expect(rows.map(({ action }) => action)).toEqual(Array.from({ length: 40 }, (_, at) => BigInt(at * at)))
    }
  })

  it('refuses a file that is cut off, or whose description is changed, or reads rows', async () => {
    const bytes = parquet()
    const description = bytes.length - 8 - new DataView(bytes.buffer).getUint32(bytes.length - 8, true)
    for (let end = 0; end < bytes.length; end += 7) {
      const cut = parquetParts(await fileOf(bytes.slice(0, end)))
      await expect(partsOf(cut), String(end)).rejects.toThrow(
        failing('CORRUPT', /rows must be a Parquet file/),
      )
    }
    for (let at = description; at < bytes.length; at += 3) {
      const changed = bytes.slice()
      changed[at] = 255 - (changed[at] ?? 0)
      const outcome = await partsOf(parquetParts(await fileOf(changed))).catch((error) => error)
      if (!Array.isArray(outcome)) expect(outcome, String(at)).toMatchObject({ name: 'FulmarError' })
    }
  })

  it('refuses more values of a column than a file of its length may have', async () => {
    await expect(partsOf(parquetParts('tests/golden/table/many-rows.parquet'))).rejects.toThrow(
      failing(
        'LIMIT_EXCEEDED',
        /column 'one' must have at most 16777216 values in a group of rows: got 16777217/,
      ),
    )
  })

  it('says that a file is not there', async () => {
    await expect(partsOf(parquetParts('/no/such/file'))).rejects.toThrow(failing('IO', /no\/such/))
    await expect(partsOf(arrowParts('/no/such/file'))).rejects.toThrow(failing('IO', /no\/such/))
  })
})

describe('arrowParts', () => {
  it('gives a batch of records at a time, of streams and of files', async () => {
    const table = tableFromArrays({ text: texts })
    const path = await fileOf(stream(table.slice(0, 6), table.slice(6)))
    const parts = await partsOf(arrowParts(path))
    expect(parts.map((part) => part.length)).toEqual([6, 4])
    expect(parts.flat().map(({ text }) => text)).toEqual(texts)
    const rows = (await partsOf(arrowParts('tests/golden/table/zstd.arrow'))).flat()
    expect(rows.map(({ action }) => action)).toEqual(Array.from({ length: 40 }, (_, at) => BigInt(at * at)))
  })

  it('reads texts by their dictionary', async () => {
    const type = new Dictionary(new Utf8(), new Int32())
    const table = new Table({ text: vectorFromArray(['a', 'b', 'a', null], type) })
    const rows = (await partsOf(arrowParts(await fileOf(stream(table))))).flat()
    expect(rows.map(({ text }) => text)).toEqual(['a', 'b', 'a', null])
  })

  it('refuses each file that is cut off or changed, or reads rows, and never fails otherwise', async () => {
    const bytes = stream(tableFromArrays({ text: texts }))
    const whole = bytes.length - 8
    for (let end = 0; end < whole; end += 7) {
      const cut = arrowParts(await fileOf(bytes.slice(0, end)))
      const outcome = await partsOf(cut).catch((error) => error)
      if (Array.isArray(outcome)) expect(outcome.flat(), String(end)).toEqual([])
      else expect(outcome, String(end)).toMatchObject({ name: 'FulmarError', code: 'CORRUPT' })
    }
    for (let at = 0; at < bytes.length; at += 3) {
      const changed = bytes.slice()
      changed[at] = 255 - (changed[at] ?? 0)
      const outcome = await partsOf(arrowParts(await fileOf(changed))).catch((error) => error)
      if (!Array.isArray(outcome)) expect(outcome, String(at)).toMatchObject({ name: 'FulmarError' })
    }
  })

  it('refuses a description longer than the limit before it is read', async () => {
    const bytes = new Uint8Array(2 ** 20)
    const view = new DataView(bytes.buffer)
    view.setInt32(0, -1, true)
    view.setInt32(4, 2 ** 26 + 1, true)
    await expect(partsOf(arrowParts(await fileOf(bytes)))).rejects.toThrow(
      failing('LIMIT_EXCEEDED', /67108864 bytes: got 67108865/),
    )
    view.setInt32(4, 2 ** 26, true)
    await expect(partsOf(arrowParts(await fileOf(bytes)))).rejects.toThrow(
      failing('CORRUPT', /end too early/),
    )
  })

  it('reads the same rows as the whole file at once', async () => {
    const path = 'tests/golden/rlhf/raw/saved/openai_summarize_tldr/train/data-00000-of-00001.arrow'
    const { tableFromIPC } = await import('apache-arrow')
    const whole = tableFromIPC(new Uint8Array(readFileSync(path)))
    const rows = (await partsOf(arrowParts(path))).flat()
    expect(rows).toEqual(whole.toArray().map((row) => ({ ...row.toJSON() })))
  })
})

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parquetMetadataAsync } from 'hyparquet'
import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { fromParquet, toParquet } from '../../src/table/index.js'
import { PARQUET_COMPRESSORS, withCheckedPages } from '../../src/table/parquet-pages.js'
import { parquetParts } from '../../src/table/parquet-parts.js'
import { NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'

const ROWS = 4

/** A file without compression, whose pages begin behind its first four bytes. */
function small(): Uint8Array {
  const dict = TensorDict.from(
    { text: new NonTensorStack(['a', 'b', 'a', 'c']), x: Tensor.from([1, 2, 3, 4]) },
    { batchSize: [ROWS] },
  )
  return toParquet(dict, { compression: 'none' })
}

/** The same with one byte changed. */
function changed(bytes: Uint8Array, at: number, value: number): Uint8Array {
  const copy = bytes.slice()
  copy[at] = value
  return copy
}

/** A frame of Zstandard: blocks of one zero each, repeated. */
function zeros(numBlocks: number, length: number): Uint8Array {
  const blocks = Array.from({ length: numBlocks }, (_, at) => {
    const header = (at === numBlocks - 1 ? 1 : 0) + 2 + length * 8
    return [header & 255, (header >> 8) & 255, header >> 16, 0]
  })
  return Uint8Array.from([0x28, 0xb5, 0x2f, 0xfd, 0, 0x38, ...blocks.flat()])
}

async function readAll(path: string): Promise<undefined> {
  for await (const rows of parquetParts(path)) expect(rows).toHaveLength(ROWS)
}

describe('pages of Parquet', () => {
  it('without a size are refused: they end no loop', async () => {
    const bytes = small()
    let refused = 0
    for (let at = 4; at < 40; at++) {
      const read = fromParquet(changed(bytes, at, 0)).catch((error: unknown) => error)
      if ((await read) instanceof FulmarError) refused++
    }
    expect(refused).toBeGreaterThan(3)
  })

  it('are checked in files that are read a group of rows at a time', async () => {
    const bytes = small()
    const path = join(await temporaryFolder(), 'rows.parquet')
    const codes = new Set<string>()
    for (let at = 4; at < 40; at++) {
      await writeFile(path, changed(bytes, at, 0))
      const failure = await readAll(path).catch((error: FulmarError) => error)
      if (failure) codes.add(failure.code)
    }
    expect([...codes]).toEqual(['CORRUPT'])
  })

  it('with a run of more values than they have are refused', async () => {
    const x = Tensor.from([1, 2, 3, 4, 5, 6, 7, 8], { shape: [ROWS, 2] })
    const bytes = toParquet(TensorDict.from({ x }, { batchSize: [ROWS] }), { compression: 'none' })
    // Packed levels of repetition, then a run of eight levels of definition.
    const levels = [3, 0b10101010, 2 * 8, 1]
    const at = bytes.findIndex((_, place) => levels.every((byte, by) => bytes[place + by] === byte))
    expect((await fromParquet(changed(bytes, at + 2, 2 * 8))).tensor('x').shape).toEqual([ROWS, 2])
    const read = fromParquet(changed(bytes, at + 2, 2 * 9))
    await expect(read).rejects.toThrow(/at most the 8 values of a page: one has 9/)
  })

  it('of more values than a file of this size may hold are refused before any is read', async () => {
    const bytes = small()
    const file = {
      byteLength: bytes.length,
      slice: async (from: number, to?: number) => bytes.slice(from, to).buffer,
    }
    const metadata = await parquetMetadataAsync(file)
    withCheckedPages(file, metadata)
    for (const numValues of [2 ** 24 + 1, 2 ** 40, -1]) {
      const column = metadata.row_groups[0]?.columns[0]?.meta_data
      if (column) column.num_values = BigInt(numValues)
      expect(() => withCheckedPages(file, metadata)).toThrow(
        failing('LIMIT_EXCEEDED', /column 'text' must have at most 16777216 values/),
      )
    }
  })

  it('whose compressed bytes are more than they state take no more memory', () => {
    const decompress = PARQUET_COMPRESSORS.ZSTD as (input: Uint8Array, sizeBytes: number) => Uint8Array
    expect(decompress(zeros(1, 100), 100)).toEqual(new Uint8Array(100))
    const before = process.memoryUsage().arrayBuffers
    let read: Uint8Array | undefined
    try {
      read = decompress(zeros(1000, 2 ** 17), 100)
    } catch {}
    expect(read?.length ?? 100).toBeLessThanOrEqual(100)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(32 * 2 ** 20)
  })

  it('that are whole are read as before', async () => {
    const found = await fromParquet(small())
    expect(found.tensor('x').data).toEqual(Float32Array.of(1, 2, 3, 4))
  })
})

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { FulmarError } from '../../src/core/index.js'
import { fromParquet, toParquet } from '../../src/table/index.js'
import { parquetParts } from '../../src/table/parquet-parts.js'
import { NonTensorStack, Tensor, TensorDict } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'

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

  it('that are whole are read as before', async () => {
    const found = await fromParquet(small())
    expect(found.tensor('x').data).toEqual(Float32Array.of(1, 2, 3, 4))
  })
})

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  loadMemmap,
  NonTensorData,
  Ragged,
  readArchive,
  readConsolidated,
  saveMemmap,
  Tensor,
  TensorDict,
  writeArchive,
  writeConsolidated,
} from '../../src/tensor/index.js'
import { codeOf } from './code-of.js'

const golden = join(import.meta.dirname, '../../../tests/golden/ted/fixtures')
const native = process.env.FULMAR_TEST_BACKEND !== 'wasm'

function sample(): TensorDict {
  const ids = Tensor.from(Uint32Array.of(1, 2, 3))
  return TensorDict.from(
    {
      ids: Ragged.from(ids, Uint32Array.of(0, 1, 3)),
      next: TensorDict.from(
        { done: Tensor.from(Uint8Array.of(0, 1), { dtype: 'bool' }) },
        { batchSize: [2] },
      ),
      task: new NonTensorData({ name: 'sum' }),
    },
    { batchSize: [2] },
  )
}

describe('files of tensordict', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'fulmar-torch-files-'))
  })
  afterEach(() => rmSync(folder, { recursive: true }))

  it('reads the consolidated file and the archive that tensordict wrote', () => {
    const literal = readConsolidated(readFileSync(join(golden, 'consolidate/literal.bin')))
    expect(literal.tensor('a').data).toEqual(Int32Array.of(0, 1, 2))
    expect(literal.tensor(['n', 'b']).data).toEqual(Uint8Array.of(1, 0, 1))
    expect(literal.value('s')).toBe('hi')
    expect([...writeConsolidated(literal)]).toEqual([
      ...readFileSync(join(golden, 'consolidate/literal.bin')),
    ])
    const named = readFileSync(join(golden, 'consolidate/names.bin'))
    expect(readConsolidated(named).names).toEqual(['b', 't'])
    expect([...writeConsolidated(readConsolidated(named))]).toEqual([...named])
    const plain = readArchive(readFileSync(join(golden, 'archive/plain.tdz')))
    expect(plain.tensor('a').data).toEqual(Int32Array.of(0, 1, 2, 3, 4, 5))
  })

  it('reads what it writes, as bytes', () => {
    using dict = sample()
    expect(readArchive(writeArchive(dict)).equals(dict)).toBe(true)
    expect(readConsolidated(writeConsolidated(dict)).equals(dict)).toBe(true)
  })

  it('says which leaf is damaged, and of what is no such file', () => {
    const bytes = readFileSync(join(golden, 'consolidate/literal.bin'))
    expect(codeOf(() => readConsolidated(bytes.subarray(8)))).toBe('CORRUPT')
    expect(codeOf(() => readConsolidated(new Uint8Array(3)))).toBe('CORRUPT')
    expect(codeOf(() => readArchive(bytes))).toBe('CORRUPT')
    using clash = TensorDict.from({ device: Tensor.from([1]) })
    expect(codeOf(() => writeArchive(clash))).toBe('MALFORMED')
  })

  it.runIf(native)('reads and writes folders, whole or not at all', () => {
    using nested = loadMemmap(join(golden, 'memmap/nested'))
    expect(nested.tensor('a').data).toEqual(Int32Array.of(0, 1, 2, 3, 4, 5))
    using dict = sample()
    const path = join(folder, 'dict')
    saveMemmap(path, dict)
    expect(loadMemmap(path).equals(dict)).toBe(true)
    expect(codeOf(() => saveMemmap(path, dict))).toBe('IO')
    expect(readdirSync(folder)).toEqual(['dict'])
    truncateSync(join(path, 'next/done.memmap'), 1)
    expect(() => loadMemmap(path)).toThrow(/"next": "done": .*must hold 2 bytes: got 1/)
    expect(codeOf(() => loadMemmap(join(golden, 'memmap/nontensor_object')))).toBe('FORBIDDEN')
    mkdirSync(join(folder, 'empty'))
    expect(codeOf(() => loadMemmap(join(folder, 'empty')))).toBe('CORRUPT')
    expect(existsSync(join(folder, '.dict'))).toBe(false)
  })
})

describe('sizes and orders', () => {
  it('rolls, flips and counts a batch anew', () => {
    using dict = TensorDict.from({ id: Tensor.from(Int32Array.of(1, 2, 3)) }, { batchSize: [3] })
    expect(dict.roll(1).tensor('id').data).toEqual(Int32Array.of(3, 1, 2))
    expect(dict.flip().tensor('id').data).toEqual(Int32Array.of(3, 2, 1))
    expect(dict.withBatchSize([]).batchSize).toEqual([])
    expect(dict.withBatchSize([]).autoBatchSize().batchSize).toEqual([3])
    expect(dict.autoBatchSize(0).batchSize).toEqual([])
    expect(dict.sizeBytes).toBe(12)
    expect(codeOf(() => dict.withBatchSize([4]))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => dict.roll(1, 1))).toBe('OUT_OF_RANGE')
  })
})

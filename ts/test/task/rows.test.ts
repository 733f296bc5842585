import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseRows, readRows } from '../../src/task/index.js'
import { codeOf } from './said.js'

describe('rows', () => {
  it('ends a row at \\n alone and passes blank lines over', () => {
    expect(parseRows('{"a": "\u2028"}\n\n  \n{"a": 1}\r\n')).toEqual([{ a: '\u2028' }, { a: 1 }])
  })

  it.each(['[1]', '1', 'null', '{"a"', '"x"'])('refuses the line %s by its number', (line) => {
    expect(() => parseRows(`{}\n${line}`)).toThrow(
      expect.objectContaining({
        code: 'MALFORMED',
        message: expect.stringMatching(/^line 2 must be a JSON object/),
      }),
    )
  })

  it('takes as many rows and as much text as it may, and nothing more', () => {
    expect(parseRows('{}\n{}', { rowsMax: 2, bytesMax: 5 })).toHaveLength(2)
    expect(codeOf(() => parseRows('{}\n{}', { rowsMax: 1 }))).toBe('LIMIT_EXCEEDED')
    expect(codeOf(() => parseRows('{}\n{}', { bytesMax: 4 }))).toBe('LIMIT_EXCEEDED')
  })

  it('reads a file by its path, and refuses one that is not there or too large', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rows-'))
    try {
      const path = join(folder, 'rows.jsonl')
      await writeFile(path, '{"a": 1}\n')
      expect(await readRows(path, { bytesMax: 9 })).toEqual([{ a: 1 }])
      await expect(readRows(path, { bytesMax: 8 })).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED' })
      await expect(readRows(join(folder, 'none'))).rejects.toMatchObject({ code: 'IO' })
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})

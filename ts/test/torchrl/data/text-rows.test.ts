// Files of rows: their names, lines of JSON, and folders of `save_to_disk`, also hostile ones.
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LINE_BYTES_MAX, rowFilesIn, splitPatterns, textParts } from '../../../src/torchrl/data/text-rows.js'
import { temporaryFolder } from '../../telemetry/folder.js'
import { failing } from '../envs/chats.js'
import { golden } from './token-sets.js'

async function linesOf(text: string | Uint8Array) {
  const path = join(await temporaryFolder(), 'rows.jsonl')
  await writeFile(path, text)
  const rows = []
  for await (const part of textParts(await rowFilesIn(path, 'train'))) rows.push(...part)
  return rows
}

/** A saved folder with these descriptions. */
async function savedFolder(files: Readonly<Record<string, unknown>>) {
  const folder = await temporaryFolder()
  for (const [name, value] of Object.entries(files)) {
    await mkdir(join(folder, name, '..'), { recursive: true })
    await writeFile(join(folder, name), JSON.stringify(value))
  }
  return folder
}

describe('lines of JSON', () => {
  it('end at a line feed alone, and may be longer than a read', async () => {
    const long = 'ä'.repeat(1_500_000)
    const rows = [{ text: 'a\u2028b' }, { text: long }, { text: '' }]
    expect(await linesOf(rows.map((row) => `${JSON.stringify(row)}\n`).join('\n'))).toEqual(rows)
    expect(await linesOf('{"text": "no end"}')).toEqual([{ text: 'no end' }])
    expect(await linesOf('')).toEqual([])
  })

  it('are refused with their number if they are no object', async () => {
    await expect(linesOf('{}\n\n[]\n')).rejects.toThrow(failing('CORRUPT', /line 3 of .*rows\.jsonl/))
    await expect(linesOf('{}\n{"a"\n')).rejects.toThrow(failing('CORRUPT', /line 2/))
    await expect(linesOf(Uint8Array.of(0x7b, 0xff, 0x7d))).rejects.toThrow(failing('CORRUPT', /UTF-8/))
    await expect(linesOf(new Uint8Array(LINE_BYTES_MAX + 2 ** 21).fill(32))).rejects.toThrow(
      failing('LIMIT_EXCEEDED', /67108864 bytes/),
    )
  })
})

describe('files of a split', () => {
  it('are those of its name, in order', async () => {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'data'))
    for (const name of ['valid1-00000-of-00001', 'valid-00001-of-00002', 'valid-00000-of-00002', 'validate'])
      await writeFile(join(folder, 'data', `${name}.parquet`), '')
    const { format, paths } = await rowFilesIn(folder, 'valid')
    expect(format).toBe('parquet')
    expect(paths.map((path) => path.slice(folder.length))).toEqual([
      '/data/valid-00000-of-00002.parquet',
      '/data/valid-00001-of-00002.parquet',
    ])
    expect((await rowFilesIn(folder, 'valid1')).paths).toHaveLength(1)
    await expect(rowFilesIn(folder, 'train')).rejects.toThrow(failing('UNKNOWN_NAME', /split train/))
    expect(splitPatterns('valid')).toContain('data/valid-*.parquet')
  })

  it('stop at the most rows', async () => {
    const files = await rowFilesIn(golden('raw/saved/openai_summarize_tldr'), 'train')
    const counts = []
    for await (const part of textParts(files, 5)) counts.push(part.length)
    expect(counts).toEqual([5])
  })

  it('of a saved folder are listed there', async () => {
    const one = golden('raw/saved/openai_summarize_tldr/valid')
    expect((await rowFilesIn(one, 'any')).paths).toEqual([join(one, 'data-00000-of-00001.arrow')])
    await expect(rowFilesIn(golden('raw/saved/openai_summarize_tldr'), 'vaild')).rejects.toThrow(
      failing('UNKNOWN_NAME', /split vaild: it has train, valid, test/),
    )
  })

  it('of a saved folder never lead out of it', async () => {
    const state = (filename: unknown) => ({ 'state.json': { _data_files: [{ filename }] } })
    for (const filename of ['../rows.arrow', '/etc/passwd', 'a/../../b', '', 7, undefined]) {
      const folder = await savedFolder(state(filename))
      await expect(rowFilesIn(folder, 'train'), String(filename)).rejects.toThrow(failing('CORRUPT'))
    }
    const outside = await savedFolder({ 'dataset_dict.json': { splits: ['../x'] } })
    await expect(rowFilesIn(outside, '../x')).rejects.toThrow(failing('MALFORMED', /split/))
  })

  it('of a saved folder are refused if its descriptions are damaged', async () => {
    const cases: [Record<string, unknown>, string][] = [
      [{ 'state.json': [] }, 'CORRUPT'],
      [{ 'state.json': { _data_files: 'all' } }, 'CORRUPT'],
      [{ 'state.json': { _data_files: [], _indices_data_files: [{ filename: 'a' }] } }, 'INCOMPATIBLE'],
      [{ 'dataset_dict.json': { splits: ['train'] } }, 'CORRUPT'],
      [{ 'dataset_dict.json': { splits: 'train' } }, 'UNKNOWN_NAME'],
    ]
    for (const [files, code] of cases)
      await expect(rowFilesIn(await savedFolder(files), 'train'), JSON.stringify(files)).rejects.toThrow(
        failing(code),
      )
  })
})

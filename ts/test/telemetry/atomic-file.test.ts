import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { writeFileAtomic } from '../../src/telemetry/index.js'
import { temporaryFolder } from './folder.js'

describe('writeFileAtomic', () => {
  it('replaces a file and leaves nothing else behind', async () => {
    const path = join(await temporaryFolder(), 'a.bin')
    await writeFileAtomic(path, 'old')
    await writeFileAtomic(path, Uint8Array.of(1, 2))
    expect([...(await readFile(path))]).toEqual([1, 2])
    expect(await readdir(join(path, '..'))).toEqual(['a.bin'])
  })

  it('leaves the old file and no temporary one when it fails', async () => {
    const folder = await temporaryFolder()
    await mkdir(join(folder, 'taken'))
    await writeFile(join(folder, 'taken', 'inside'), 'kept')
    await expect(writeFileAtomic(join(folder, 'taken'), 'new')).rejects.toMatchObject({ code: 'IO' })
    expect(await readdir(folder)).toEqual(['taken'])
    await expect(writeFileAtomic(join(folder, 'no', 'such', 'folder'), 'new')).rejects.toMatchObject({
      code: 'IO',
    })
  })
})

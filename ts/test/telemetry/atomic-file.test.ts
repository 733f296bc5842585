import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { writeFileOn } from '../../src/telemetry/atomic-file.js'
import { writeFileAtomic } from '../../src/telemetry/index.js'
import { temporaryFolder } from './folder.js'
import { MemoryDisk } from './memory-disk.js'

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

  const text = async (disk: MemoryDisk) => new TextDecoder().decode(await disk.read('/folder/a'))
  const withOld = async () => {
    const disk = new MemoryDisk()
    await disk.makeFolder('/folder')
    for (const folder of ['/', '/folder']) await disk.syncFolder(folder)
    await writeFileOn(disk, '/folder/a', 'old')
    return disk
  }

  it('is the old file or the new one after a crash at any call, and the new one once it is done', async () => {
    for (let at = 1; ; at++) {
      const disk = await withOld()
      disk.numCalls = 0
      disk.fails = { at, code: 'EIO', forever: true }
      const isDone = await writeFileOn(disk, '/folder/a', 'new').then(
        () => true,
        () => false,
      )
      for (const names of ['synced', 'all'] as const) {
        const found = await text(disk.afterCrash(names))
        expect(isDone ? ['new'] : ['old', 'new']).toContain(found)
      }
      if (isDone) break
      expect(at).toBeLessThan(10)
    }
  })

  it('leaves no temporary file whichever call fails', async () => {
    for (let at = 1; at <= 4; at++) {
      const disk = await withOld()
      disk.numCalls = 0
      disk.fails = { at, code: 'ENOSPC', forever: false }
      await expect(writeFileOn(disk, '/folder/a', 'new')).rejects.toMatchObject({
        code: 'IO',
        message: expect.stringMatching(/the disk is full/),
      })
      expect(await disk.names('/folder')).toEqual(['a'])
      expect(await text(disk)).toBe(at < 4 ? 'old' : 'new')
    }
  })
})

import { execFileSync } from 'node:child_process'
import { mkdir, open, readdir, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { nodeDisk, unwritable } from '../../src/telemetry/disk.js'
import { temporaryFolder } from './folder.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })

describe('the disk of the system', () => {
  it('syncs files and folders where it is asked to', async () => {
    const folder = await temporaryFolder()
    const path = join(folder, 'a')
    await nodeDisk.write(path, 'text')
    const handle = await open(path, 'r')
    const sync = vi.spyOn(Object.getPrototypeOf(handle), 'sync')
    await handle.close()
    try {
      await nodeDisk.syncFile(path)
      expect(sync).toHaveBeenCalledTimes(1)
      await nodeDisk.syncFolder(folder)
      expect(sync).toHaveBeenCalledTimes(process.platform === 'win32' ? 1 : 2)
    } finally {
      sync.mockRestore()
    }
  })

  it('reads regular files up to a limit, and tells absence from other failures', async () => {
    const folder = await temporaryFolder()
    const path = join(folder, 'a')
    await nodeDisk.write(path, 'four')
    expect(await nodeDisk.read(path, 4)).toEqual(new TextEncoder().encode('four'))
    await expect(nodeDisk.read(path, 3)).rejects.toThrow(code('LIMIT_EXCEEDED'))
    expect(await nodeDisk.read(join(folder, 'none'), 4)).toBeUndefined()
    expect(await nodeDisk.names(join(folder, 'none'))).toBeUndefined()
    await expect(nodeDisk.read(join(path, 'inside'), 4)).rejects.toThrow(code('IO'))
    await expect(nodeDisk.names(path)).rejects.toThrow(/ENOTDIR/)
    await truncate(path, 2 ** 40)
    await expect(nodeDisk.read(path, 2 ** 30)).rejects.toThrow(code('LIMIT_EXCEEDED'))
  })

  it('refuses pipes, devices and folders without waiting for them', async () => {
    const folder = await temporaryFolder()
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    await symlink('/dev/zero', join(folder, 'zero'))
    await mkdir(join(folder, 'inner'))
    for (const name of ['pipe', 'zero', 'inner'])
      await expect(nodeDisk.read(join(folder, name), 9)).rejects.toThrow(/must be a regular file/)
  })

  it('does not write over a file, and removes what is there', async () => {
    const folder = await temporaryFolder()
    await writeFile(join(folder, 'a'), 'old')
    await expect(nodeDisk.write(join(folder, 'a'), 'new')).rejects.toThrow(/EEXIST/)
    await nodeDisk.makeFolder(join(folder, 'b', 'c'))
    await nodeDisk.remove(join(folder, 'b'))
    await nodeDisk.remove(join(folder, 'b'))
    expect(await readdir(folder)).toEqual(['a'])
  })

  it('says what a code of the system means', () => {
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    expect(unwritable('checkpoint folder', '/x', full).message).toBe(
      'checkpoint folder must be writable: got /x (the disk is full: ENOSPC: no space left on device, write)',
    )
  })
})

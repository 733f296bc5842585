import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { converter, ensureFolder, removeFolder } from '../../src/dataset/dataset-folder.js'
import { loadDataset } from '../../src/dataset/index.js'
import { DueClock } from '../fetch/due-clock.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { isNative } from './golden-rows.js'

const LABEL = 'toy:rows-v0'

/** A data set whose conversion writes one file. */
async function toy(conversion: Readonly<Record<string, boolean>> = { splitTrajs: false }) {
  const root = await temporaryFolder()
  const dataPath = join(root, 'some', 'rows-v0')
  const converted: string[] = []
  const convert = async (folder: string) => {
    converted.push(folder)
    await mkdir(folder)
    await writeFile(join(folder, 'meta.json'), `{"shape": [${converted.length}]}`)
  }
  return { root, dataPath, converted, source: { dataPath, label: LABEL, conversion, convert } }
}

const options = { clock: new DueClock() }
const names = (dataPath: string) => readdir(join(dataPath, '..'))

describe('ensureFolder', () => {
  it('converts once to a folder of another name, and leaves the folder alone', async () => {
    const { source, dataPath, converted } = await toy()
    await ensureFolder(source, options)
    await ensureFolder(source, { ...options, download: false })
    expect(converted).toEqual([join(`${dataPath}.incomplete`, 'rows')])
    expect(await names(dataPath)).toEqual(['rows-v0'])
    expect((await readdir(dataPath)).sort()).toEqual(['conversion.json', 'meta.json'])
  })

  it('keeps what a conversion leaves beside its folder out of that of the data set', async () => {
    const { source, dataPath } = await toy()
    const withFiles = async (folder: string) => {
      await source.convert(folder)
      await writeFile(join(folder, '..', '.rows-v0.incomplete.1-0.tmp'), '')
    }
    await ensureFolder({ ...source, convert: withFiles }, options)
    expect(await names(dataPath)).toEqual(['rows-v0'])
  })

  it('converts once for all that ask at once', async () => {
    const { source, converted } = await toy()
    await Promise.all([1, 2, 3].map(() => ensureFolder(source, options)))
    expect(converted).toHaveLength(1)
  })

  it('refuses to convert if it may not', async () => {
    const { source, converted, root } = await toy()
    const asking = ensureFolder(source, { ...options, download: false })
    await expect(asking).rejects.toThrow(failing('UNAVAILABLE', /toy:rows-v0 must be in .*rows-v0/))
    expect(converted).toEqual([])
    expect(await readdir(root)).toEqual([])
  })

  it('leaves nothing of a conversion that fails, and converts the next time', async () => {
    const { source, dataPath } = await toy()
    const failed = async (folder: string) => {
      await source.convert(folder)
      throw new Error('no more rows')
    }
    await expect(ensureFolder({ ...source, convert: failed }, options)).rejects.toThrow(
      failing('IO', /no more rows/),
    )
    expect(await names(dataPath)).toEqual([])
    await ensureFolder(source, options)
    expect(await names(dataPath)).toEqual(['rows-v0'])
  })

  it('keeps the rows that are there if a forced conversion fails', async () => {
    const { source, dataPath } = await toy()
    await ensureFolder(source, options)
    const convert = async () => {
      throw new Error('no rows')
    }
    const forced = ensureFolder({ ...source, convert }, { ...options, download: 'force' })
    await expect(forced).rejects.toThrow(failing('IO'))
    expect(await readFile(join(dataPath, 'meta.json'), 'utf8')).toBe('{"shape": [1]}')
  })

  it('replaces rows if it is forced to', async () => {
    const { source, dataPath } = await toy()
    await ensureFolder(source, options)
    await ensureFolder(source, { ...options, download: 'force' })
    expect(await readFile(join(dataPath, 'meta.json'), 'utf8')).toBe('{"shape": [2]}')
    expect(await names(dataPath)).toEqual(['rows-v0'])
  })

  it('replaces what a process left that died', async () => {
    const { source, dataPath, converted } = await toy()
    for (const left of ['.incomplete', '.removed']) {
      await mkdir(`${dataPath}${left}`, { recursive: true })
      await writeFile(join(`${dataPath}${left}`, 'half'), 'a row')
    }
    await ensureFolder(source, options)
    expect(converted).toHaveLength(1)
    expect(await names(dataPath)).toEqual(['rows-v0'])
    expect((await readdir(dataPath)).sort()).toEqual(['conversion.json', 'meta.json'])
  })

  it('refuses to replace what it did not make', async () => {
    const { source, dataPath, converted } = await toy()
    await mkdir(dataPath, { recursive: true })
    await writeFile(join(dataPath, 'letters.txt'), 'dear')
    for (const download of [true, 'force'] as const)
      await expect(ensureFolder(source, { ...options, download })).rejects.toThrow(
        failing('INCOMPATIBLE', /toy:rows-v0 must have .* something else is there/),
      )
    expect(converted).toEqual([])
    expect(await readdir(dataPath)).toEqual(['letters.txt'])
  })

  it('refuses rows of other options', async () => {
    const { source, converted } = await toy({ splitTrajs: false })
    await ensureFolder(source, options)
    const other = ensureFolder({ ...source, conversion: { splitTrajs: true } }, options)
    await expect(other).rejects.toThrow(
      failing('INCOMPATIBLE', /with splitTrajs true: it was with false .*'force'/),
    )
    expect(converted).toHaveLength(1)
  })

  it('tells split trajectories of TorchRL from steps by their dimensions', async () => {
    const { source, dataPath } = await toy({ splitTrajs: true, useTruncatedAsDone: true })
    await mkdir(dataPath, { recursive: true })
    await writeFile(join(dataPath, 'meta.json'), '{"shape": [7]}')
    await expect(ensureFolder(source, options)).rejects.toThrow(failing('INCOMPATIBLE', /splitTrajs/))
    await writeFile(join(dataPath, 'meta.json'), '{"shape": [7, 3]}')
    await ensureFolder(source, options)
  })

  it('names a file of options that is damaged', async () => {
    const { source, dataPath } = await toy()
    await ensureFolder(source, options)
    for (const text of ['{', '7', 'null']) {
      await writeFile(join(dataPath, 'conversion.json'), text)
      await expect(ensureFolder(source, options)).rejects.toThrow(failing('CORRUPT', /conversion\.json/))
    }
  })

  it('stops when the signal fires, before and while it converts', async () => {
    const { source, dataPath, converted } = await toy()
    const early = ensureFolder(source, { ...options, signal: AbortSignal.abort() })
    await expect(early).rejects.toThrow(failing('ABORTED'))
    expect(converted).toEqual([])
    const abort = new AbortController()
    const convert = async (folder: string) => {
      await source.convert(folder)
      abort.abort()
    }
    const late = ensureFolder({ ...source, convert }, { ...options, signal: abort.signal })
    await expect(late).rejects.toThrow(failing('ABORTED'))
    expect(existsSync(dataPath)).toBe(false)
  })

  it('names a folder that cannot be written', async () => {
    const { source, root } = await toy()
    await writeFile(join(root, 'some'), 'a file in the way')
    await expect(ensureFolder(source, options)).rejects.toThrow(failing('IO', /some/))
  })
})

describe('converter', () => {
  it('is there natively, and refused in WebAssembly before anything is fetched', async () => {
    if (isNative) return void expect(converter('convertColumns')).toBeTypeOf('function')
    expect(() => converter('convertColumns')).toThrow(failing('UNAVAILABLE', /WebAssembly/))
    for (const name of ['d4rl:hopper-medium-v2', 'minari:cartpole/random-v0'])
      await expect(loadDataset(name)).rejects.toThrow(failing('UNAVAILABLE', /WebAssembly/))
  })
})

describe('removeFolder', () => {
  it('removes a folder, and is content if there is none', async () => {
    const { source, dataPath } = await toy()
    await ensureFolder(source, options)
    await removeFolder(dataPath)
    expect(await names(dataPath)).toEqual([])
    await removeFolder(dataPath)
  })
})

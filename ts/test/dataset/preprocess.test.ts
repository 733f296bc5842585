import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { D4RLExperienceReplay, MinariExperienceReplay } from '../../src/dataset/index.js'
import { loadMemmap, Tensor, TensorDict } from '../../src/tensor/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'
import { d4rlOptions, isNative, MINARI_ROOT, minariOptions } from './golden-rows.js'

const CARTPOLE = 'cartpole/random-v0'
const MODULE = fileURLToPath(new URL('./double-rows.mjs', import.meta.url))
const FAILURES = fileURLToPath(new URL('./preprocess-failures.mjs', import.meta.url))
const PROGRAM = fileURLToPath(new URL('./preprocess-process.mjs', import.meta.url))

/** A buffer of 120 rows, and a folder that is not there yet. */
async function here() {
  const buffer = await MinariExperienceReplay.open(CARTPOLE, await minariOptions())
  return { buffer, dest: join(await temporaryFolder(), 'mapped') }
}

function doubled(rows: TensorDict): TensorDict {
  const observation = rows.tensor('observation')
  const obs2 = observation.toFloat32().map((value) => 2 * value)
  return rows.select(['action']).set('obs2', Tensor.from(obs2, { shape: observation.shape }))
}

/** The same, one row after the other. */
function naive(rows: TensorDict): TensorDict {
  const [count = 0] = rows.batchSize
  return TensorDict.cat(
    Array.from({ length: count }, (_, row) => doubled(rows.at({ start: row, stop: row + 1 }))),
  )
}

describe.runIf(isNative)('preprocess', () => {
  it('maps rows as a loop over them does, into a folder that is opened as a buffer', async () => {
    const { buffer, dest } = await here()
    const want = naive(buffer.readAllInOrder())
    const mapped = await buffer.preprocess(doubled, { dest, chunksize: 7 })
    expect(mapped.readAllInOrder().equals(want)).toBe(true)
    expect(loadMemmap(dest).equals(want)).toBe(true)
    expect(() => mapped.extend(want)).toThrow(failing('INCOMPATIBLE'))
    expect(await readdir(join(dest, '..'))).toEqual(['mapped'])
  })

  it('maps the first rows, in one call or in many, by a module too', async () => {
    const { buffer, dest } = await here()
    const want = naive(buffer.readAllInOrder(50))
    for (const [at, chunksize] of [1, 49, 50, 51].entries()) {
      const mapped = await buffer.preprocess(MODULE, { dest: `${dest}-${at}`, chunksize, numFrames: 50 })
      expect(mapped.readAllInOrder().equals(want)).toBe(true)
    }
  })

  it('maps rows as they are stored, and trajectories as rows', async () => {
    const { options } = await d4rlOptions()
    const transform = { forward: () => TensorDict.from({}) }
    const buffer = await D4RLExperienceReplay.open('kitchen-complete-v0', {
      ...options,
      splitTrajs: true,
      transform,
    })
    const seen: unknown[] = []
    const fn = (rows: TensorDict) => {
      seen.push(rows.batchSize)
      return rows.select(['mask'])
    }
    const mapped = await buffer.preprocess(fn, { dest: join(options.root, 'masks'), chunksize: 2 })
    expect(seen[0]).toEqual([2, 17])
    expect(mapped.length).toBe(buffer.length)
  })

  it.each([1, 3])('gives the same rows with %i threads', async (numWorkers) => {
    const { buffer, dest } = await here()
    const args = [PROGRAM, CARTPOLE, MINARI_ROOT, buffer.root, dest, String(numWorkers), '7']
    const { stdout } = await promisify(execFile)(process.execPath, args)
    expect(stdout).toBe('opened 120\nmapped 120\n')
    expect(loadMemmap(dest).equals(naive(buffer.readAllInOrder()))).toBe(true)
  })

  it('leaves nothing where fn fails, and names the rows', async () => {
    const { buffer, dest } = await here()
    const refuse = async (fn: never, message: RegExp) =>
      await expect(buffer.preprocess(fn, { dest, chunksize: 50 })).rejects.toThrow(
        failing('USER_CODE', message),
      )
    const fails = (rows: TensorDict) => {
      if (rows.batchSize[0] === 20) throw new Error('no such row')
      return rows
    }
    await refuse(fails as never, /rows 100 to 119: it fails with no such row/)
    await refuse(
      ((rows: TensorDict) => rows.at({ stop: 3 })) as never,
      /rows 0 to 49 to a TensorDict of 50 rows: got \[3\]/,
    )
    await refuse((() => 7) as never, /got 7/)
    await refuse('/no/such/module.mjs' as never, /fn must be a module: file:.*module\.mjs fails/)
    const empty = join(dest, '..', 'empty.mjs')
    await writeFile(empty, 'export const x = 1')
    await refuse(empty as never, /default export/)
    expect(existsSync(dest)).toBe(false)
    expect(await readdir(join(dest, '..'))).toEqual(['empty.mjs'])
  })

  it('leaves nothing where a thread fails, ends, or is stopped', async () => {
    const folder = await temporaryFolder()
    const args = [FAILURES, CARTPOLE, MINARI_ROOT, folder]
    const { stdout } = await promisify(execFile)(process.execPath, args)
    const rows = /^USER_CODE: fn must map rows \d+ to \d+/.source
    expect(JSON.parse(stdout)).toEqual({
      throws: expect.stringMatching(new RegExp(`${rows}: it fails with no such row$`)),
      exits: expect.stringMatching(new RegExp(`${rows}: its thread ends with exit code 3$`)),
      wrong: expect.stringMatching(new RegExp(`${rows} to a TensorDict of \\d+ rows: got `)),
      empty: expect.stringMatching(
        /^USER_CODE: fn must be a module with a function as default export: .*empty\.mjs/,
      ),
      endless: expect.stringMatching(/^ABORTED: /),
    })
    expect((await readdir(folder)).filter((name) => name.startsWith('mapped'))).toEqual([])
  })

  it('stops when the signal fires', async () => {
    const { buffer, dest } = await here()
    const abort = new AbortController()
    const fn = (rows: TensorDict) => {
      abort.abort()
      return rows
    }
    const options = { dest, chunksize: 50, signal: abort.signal }
    await expect(buffer.preprocess(fn, options)).rejects.toThrow(failing('ABORTED'))
    await expect(buffer.preprocess(fn, options)).rejects.toThrow(failing('ABORTED'))
    expect(await readdir(join(dest, '..'))).toEqual([])
  })

  it('shows its progress', async () => {
    const { buffer, dest } = await here()
    let text = ''
    const pbar = { write: (part: string) => (text += part) }
    await buffer.preprocess(doubled, { dest, chunksize: 60, pbar })
    expect(text).toMatch(/^map 60\/120 .*\nmap 120\/120\n$/)
  })

  it('refuses options before a row is mapped', async () => {
    const { buffer, dest } = await here()
    const refuse = async (options: object, code: string, message: RegExp) =>
      await expect(buffer.preprocess(doubled, { dest, ...options })).rejects.toThrow(failing(code, message))
    await refuse({ numWorker: 2 }, 'UNKNOWN_NAME', /numWorkers/)
    await refuse({ numWorkers: 2 }, 'MALFORMED', /fn must be a module/)
    await refuse({ numWorkers: 257 }, 'OUT_OF_RANGE', /from 0 to 256/)
    await refuse({ chunksize: 0 }, 'OUT_OF_RANGE', /chunksize .* at least 1: got 0/)
    await refuse({ numFrames: 121 }, 'OUT_OF_RANGE', /numFrames .* from 1 to 120: got 121/)
    await refuse({ pbar: 'yes' }, 'MALFORMED', /pbar/)
    await refuse({ dest: '' }, 'MALFORMED', /dest/)
    await expect(buffer.preprocess(7 as never, { dest })).rejects.toThrow(failing('MALFORMED', /^fn must be/))
    await mkdir(dest)
    await refuse({}, 'INCOMPATIBLE', /options\.dest must have .*mapped.* something else is there/)
  })
})

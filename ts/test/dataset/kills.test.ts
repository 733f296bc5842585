/**
 * Data sets by real processes: killed at any point of a fetch, a conversion and a mapping, and two at once. `FULMAR_KILLS=200` kills as
 * often as that.
 */

import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { readD4RL, readMinari, writeMinari } from '../../src/dataset/index.js'
import { openRows } from '../../src/dataset/local-datasets.js'
import { writeHdf5 } from '../../src/ted/index.js'
import { loadMemmap, Tensor, TensorDict } from '../../src/tensor/index.js'
import { sha256, startHub } from '../fetch/fake-hub.js'
import { sendSlowly } from '../fetch/slow-send.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { d4rlOptions, isNative } from './golden-rows.js'

const NUM_KILLS = Number(process.env.FULMAR_KILLS ?? 6)
const LIMIT_MS = 60_000 + 30_000 * NUM_KILLS
const PROGRAM = fileURLToPath(new URL('./preprocess-process.mjs', import.meta.url))
const DATASET_PROGRAM = fileURLToPath(new URL('./dataset-process.mjs', import.meta.url))
const CLI = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url))
const ID = 'toy/steps-v0'

/** Steps of episodes of 100, with `width` numbers an observation. */
function stepsOf(numSteps: number, width: number): TensorDict {
  const values = (later: number) =>
    Float32Array.from(
      { length: numSteps * width },
      (_, at) => Math.floor(at / width) + later + (at % width) / 64,
    )
  const shape = [numSteps, width]
  const done = Uint8Array.from({ length: numSteps }, (_, step) => Number(step % 100 === 99))
  const next = {
    observation: Tensor.from(values(1), { shape }),
    reward: Tensor.from(new Float32Array(numSteps), { shape: [numSteps, 1] }),
    done: Tensor.from(done, { shape: [numSteps, 1] }),
  }
  return TensorDict.from(
    {
      observation: Tensor.from(values(0), { shape }),
      action: Tensor.from(new Float32Array(numSteps)),
      next: TensorDict.from(next, { batchSize: [numSteps] }),
    },
    { batchSize: [numSteps] },
  )
}

/** A data set in a folder of Minari. */
async function written(numSteps: number, width: number) {
  const minariRoot = await temporaryFolder()
  const folder = join(await writeMinari(stepsOf(numSteps, width), ID, { minariRoot }), 'data')
  const bytes = new Uint8Array(await readFile(join(folder, 'main_data.hdf5')))
  const metadata = await readFile(join(folder, 'metadata.json'), 'utf8')
  return { minariRoot, bytes, metadata, rows: readMinari(bytes, metadata).steps }
}

const run = (...args: string[]) => promisify(execFile)(process.execPath, args)

const ended = (child: ChildProcess) => new Promise<void>((resolve) => child.once('exit', () => resolve()))

/** Runs a program until a folder that it makes has `stop` bytes, and kills it there. True if it was killed before its end. */
async function killedAt(args: readonly string[], folder: string, stop: number): Promise<boolean> {
  // The folder of an earlier process is not this one's.
  const left = identityOf(folder)
  const child = spawn(process.execPath, args, { stdio: 'ignore' })
  const end = ended(child)
  while (child.exitCode === null && child.signalCode === null) {
    const made = identityOf(folder)
    if (made !== undefined && made !== left && sizeOf(folder) >= stop) child.kill('SIGKILL')
    await new Promise((resolve) => setImmediate(resolve))
  }
  await end
  return child.signalCode === 'SIGKILL'
}

/** A text that no folder of the same path has had; none if it is not there. */
function identityOf(folder: string): string | undefined {
  const about = statSync(folder, { throwIfNoEntry: false })
  return about && `${about.ino} ${about.birthtimeMs}`
}

/** Bytes of all files of a folder; those that vanish meanwhile count nothing. */
function sizeOf(folder: string): number {
  try {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    const sizes = names.map((name) => statSync(join(folder, name), { throwIfNoEntry: false }))
    return sizes.reduce((sum, about) => sum + (about?.isFile() ? about.size : 0), 0)
  } catch {
    return 0
  }
}

/** The state that a folder must have. */
interface Whole {
  readonly want: TensorDict
  readonly reset: () => Promise<unknown>
  /** Reads the folder. */
  readonly read?: () => Promise<TensorDict>
}

/** Starts of a program for each kill: on a busy machine it may end before it is seen to have the size. */
const STARTS_MAX = 5

/**
 * Kills a program that makes `folder` at random sizes of it, until it was killed often enough. What has its name must be whole, and the next
 * start must make it so. `reset` is called after a run that was faster than its kill.
 */
async function expectWholeAfterKills(
  args: readonly string[],
  folder: string,
  { want, reset, read = async () => loadMemmap(folder) }: Whole,
): Promise<void> {
  using rng = Rng.fromSeed(7)
  await run(...args)
  expect((await read()).equals(want)).toBe(true)
  const numBytes = sizeOf(folder)
  await reset()
  let numKilled = 0
  for (let start = 0; start < STARTS_MAX * NUM_KILLS && numKilled < NUM_KILLS; start += 1) {
    numKilled += Number(await killedAt(args, `${folder}.incomplete`, rng.below(numBytes)))
    if (!existsSync(folder)) continue
    expect((await read()).equals(want)).toBe(true)
    await reset()
  }
  expect(numKilled).toBeGreaterThan(0)
  await run(...args)
  expect((await read()).equals(want)).toBe(true)
  expect(readdirSync(join(folder, '..')).filter((name) => name.includes('.') && name !== '.raw')).toEqual([])
}

/** The bytes of a file of D4RL. */
async function writtenColumns(numSteps: number): Promise<Uint8Array> {
  const column = (width: number) =>
    Tensor.from(
      Float32Array.from({ length: numSteps * width }, (_, at) => at % 1009),
      { shape: [numSteps, width] },
    )
  const flat = Tensor.from(new Float32Array(numSteps))
  const columns = { observations: column(64), actions: column(3), rewards: flat, terminals: flat }
  return Uint8Array.from(writeHdf5(TensorDict.from(columns)))
}

/** Files of a split of Atari DQN replay, with `numSteps` frames. */
async function writtenAtari(numSteps: number) {
  const logs = await temporaryFolder()
  const write = async (name: string, kind: string, shape: string, elements: Uint8Array) => {
    const header = `{'descr': '${kind}', 'fortran_order': False, 'shape': ${shape}, }\n`
    const start = Uint8Array.of(0x93, 78, 85, 77, 80, 89, 1, 0, header.length, 0)
    const array = Buffer.concat([start, Buffer.from(header), elements])
    await writeFile(join(logs, `${name}_ckpt.0.gz`), gzipSync(array, { level: 1 }))
  }
  const bytes = (at: number) => (at * 2654435761) >>> 24
  const frames = Uint8Array.from({ length: 84 * 84 * numSteps }, (_, at) => bytes(at))
  await write('$store$_observation', '|u1', `(${numSteps}, 84, 84)`, frames)
  await write('$store$_action', '<i4', `(${numSteps},)`, new Uint8Array(4 * numSteps))
  await write('$store$_reward', '<f4', `(${numSteps},)`, new Uint8Array(4 * numSteps))
  await write('$store$_terminal', '|u1', `(${numSteps},)`, new Uint8Array(numSteps))
  await write('add_count', '<i8', '()', new Uint8Array(8))
  await write('invalid_range', '<i8', '(1,)', new Uint8Array(8))
  return logs
}

// The processes run what `dist/` holds, which finds the addon.
describe.skipIf(!isNative)('a process that is killed', () => {
  it('leaves a conversion whole or not there', { timeout: LIMIT_MS }, async () => {
    const { minariRoot, rows } = await written(20_000, 32)
    const root = await temporaryFolder()
    const folder = join(root, ID)
    const reset = () => rm(folder, { recursive: true })
    await expectWholeAfterKills([PROGRAM, ID, minariRoot, root], folder, { want: rows, reset })
  })

  it('leaves a conversion of Atari DQN replay whole or not there', { timeout: LIMIT_MS }, async () => {
    const [logs, root] = [await writtenAtari(2000), await temporaryFolder()]
    const folder = join(root, 'Pong', '1')
    const reset = () => rm(folder, { recursive: true })
    const args = [DATASET_PROGRAM, 'atari:Pong/1', JSON.stringify({ root, folder: logs })]
    await run(...args)
    const { rows: want } = await openRows(folder)
    const whole = await readFile(join(folder, '0', 'data', 'observation.memmap'))
    await reset()
    const read = async () => {
      expect((await readFile(join(folder, '0', 'data', 'observation.memmap'))).equals(whole)).toBe(true)
      return (await openRows(folder)).rows
    }
    await expectWholeAfterKills(args, folder, { want, reset, read })
  })

  it('leaves a conversion of D4RL whole or not there', { timeout: LIMIT_MS }, async () => {
    const source = await writtenColumns(40_000)
    const { asked, options } = await d4rlOptions({ 'hopper_medium-v2.hdf5': source })
    const folder = join(options.root, 'hopper-medium-v2')
    const reset = () => rm(folder, { recursive: true })
    const want = readD4RL(source).steps
    await expectWholeAfterKills([DATASET_PROGRAM, 'd4rl:hopper-medium-v2', JSON.stringify(options)], folder, {
      ...{ want, reset },
    })
    expect(asked.length).toBeGreaterThan(0)
  })

  it('leaves a mapping whole or not there', { timeout: LIMIT_MS }, async () => {
    const { minariRoot, rows } = await written(20_000, 32)
    const [root, at] = [await temporaryFolder(), await temporaryFolder()]
    const dest = join(at, 'mapped')
    const observation = rows.tensor('observation')
    const obs2 = observation.toFloat32().map((value) => 2 * value)
    const want = rows.select(['action']).set('obs2', Tensor.from(obs2, { shape: observation.shape }))
    const reset = () => rm(dest, { recursive: true })
    const args = [PROGRAM, ID, minariRoot, root, dest, '0', '5000']
    // A folder that is there is not mapped over.
    await expectWholeAfterKills(args, dest, { want, reset })
  })

  it('goes on with a fetch from the hub, and fetches little twice', { timeout: LIMIT_MS }, async () => {
    using rng = Rng.fromSeed(11)
    const { bytes, metadata, rows } = await written(80_000, 160)
    const files = { 'steps-v0/data/main_data.hdf5': bytes, 'steps-v0/data/metadata.json': metadata }
    const hub = await startHub({ kind: 'dataset', repo: 'farama-minari/toy', files })
    const [root, cache] = [await temporaryFolder(), await temporaryFolder()]
    let [numSent, onSent] = [0, (_: number) => {}]
    hub.fault = (seen, response, body) => {
      if (seen.method !== 'GET' || seen.host !== 'files' || body === undefined) return false
      const start = Number(/^bytes=(\d+)-$/.exec(seen.range ?? '')?.[1] ?? 0)
      const range = `bytes ${start}-${body.length - 1}/${body.length}`
      response.writeHead(start > 0 ? 206 : 200, {
        ...{ etag: `"${sha256(body)}"`, 'content-length': body.length - start },
        ...(start > 0 && { 'content-range': range }),
      })
      void sendSlowly(response, body, {
        ...{ start, root: cache },
        onSent: (end, length) => {
          numSent += length
          onSent(end)
        },
      })
      return true
    }
    const args = [CLI, 'dataset', 'fetch', `minari:${ID}`, '--root', root, '--cache', cache]
    args.push('--endpoint', hub.endpoint)
    const stops = Array.from({ length: 10 }, () => rng.below(bytes.length)).sort((a, b) => a - b)
    for (const stop of stops) {
      const child = spawn(process.execPath, args, { stdio: 'ignore' })
      onSent = (sent) => void (sent >= stop && child.kill('SIGKILL'))
      await ended(child)
      expect([child.signalCode, existsSync(join(root, ID))]).toEqual(['SIGKILL', false])
    }
    onSent = () => {}
    const { stdout } = await run(...args)
    expect(loadMemmap(stdout.trim()).equals(rows)).toBe(true)
    const blob = join(cache, 'datasets--farama-minari--toy', 'blobs', sha256(bytes))
    expect(sha256(await readFile(blob))).toBe(sha256(bytes))
    expect(numSent).toBeLessThanOrEqual(1.2 * bytes.length)
  })
})

describe.skipIf(!isNative)('two processes', () => {
  it('convert a data set once, and both read it', { timeout: LIMIT_MS }, async () => {
    const fetch = async (id: string, times: number) => {
      const { asked, options } = await d4rlOptions()
      const args = [CLI, 'dataset', 'fetch', `d4rl:${id}`, '--root', options.root, '--mirror', options.mirror]
      const both = await Promise.all(Array.from({ length: times }, () => run(...args)))
      expect(new Set(both.map(({ stdout }) => stdout))).toEqual(new Set([`${join(options.root, id)}\n`]))
      return { numAsked: asked.length, folder: join(options.root, id) }
    }
    const alone = await fetch('hopper-medium-v2', 1)
    const both = await fetch('hopper-medium-v2', 2)
    expect(both.numAsked).toBe(alone.numAsked)
    expect(loadMemmap(both.folder).equals(loadMemmap(alone.folder))).toBe(true)
  })
})

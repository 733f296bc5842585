/**
 * Data sets by real processes: killed at any point of a fetch, a conversion and a mapping, and two at once. `FULMAR_KILLS=200` kills as
 * often as that.
 */

import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { loadMemmap, Tensor } from '../../src/tensor/index.js'
import { sha256, startHub } from '../fetch/fake-hub.js'
import { sendSlowly } from '../fetch/slow-send.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { d4rlOptions, isNative } from './golden-rows.js'
import { LARGE_DATASETS, MINARI_ID, writtenMinari } from './large-datasets.js'

const NUM_KILLS = Number(process.env.FULMAR_KILLS ?? 3)
const LIMIT_MS = 60_000 + 30_000 * NUM_KILLS
const PROGRAM = fileURLToPath(new URL('./preprocess-process.mjs', import.meta.url))
const DATASET_PROGRAM = fileURLToPath(new URL('./dataset-process.mjs', import.meta.url))
const CLI = fileURLToPath(new URL('../../../dist/cli/main.js', import.meta.url))

const run = (...args: string[]) => promisify(execFile)(process.execPath, args)

/** Waits until a process has ended and its output is read. */
const ended = (child: ChildProcess) => new Promise<void>((resolve) => child.once('close', () => resolve()))

/** The part of its work in which a process was killed: until its conversion has a folder, during it, or once the folder has its name. */
type Moment = 'before' | 'during' | 'after'

/**
 * Runs a program that makes `folder`, and kills it once `isDue`, by the bytes of the unfinished folder and the milliseconds since the start;
 * there are no bytes until this process has made the folder. Returns the moment, or nothing if the program was faster.
 */
async function killedAt(
  args: readonly string[],
  folder: string,
  isDue: (numBytes: number | undefined, ms: number) => boolean,
): Promise<Moment | undefined> {
  const staged = `${folder}.incomplete`
  // The folder of an earlier process is not this one's.
  const left = identityOf(staged)
  const isMade = () => ![undefined, left].includes(identityOf(staged))
  const startMs = performance.now()
  const child = spawn(process.execPath, args, { stdio: 'ignore' })
  const end = ended(child)
  while (child.exitCode === null && child.signalCode === null) {
    if (isDue(isMade() ? sizeOf(staged) : undefined, performance.now() - startMs)) child.kill('SIGKILL')
    await new Promise((resolve) => setImmediate(resolve))
  }
  await end
  if (child.signalCode !== 'SIGKILL') return undefined
  if (existsSync(folder)) return 'after'
  return isMade() ? 'during' : 'before'
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

/** The SHA-256 of the bytes and the names of all files of a folder. */
async function hashOf(folder: string): Promise<string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()
  const files = names.filter((name) => statSync(join(folder, name)).isFile())
  const hashes = files.map(async (name) => `${name} ${sha256(await readFile(join(folder, name)))}`)
  return sha256(Buffer.from((await Promise.all(hashes)).join('\n')))
}

/** Starts of a program for each kill: on a busy machine it may end before it is seen to have the size. */
const STARTS_MAX = 5

/** One start of so many is never killed. */
const WHOLE_EVERY = 8

/** Kills of one fetch. */
const FETCH_KILLS = 10

/**
 * Kills a program that makes `folder` until it was killed often enough: two of three times at a random size of the unfinished folder, else at a
 * random time. What has its name must be whole, and the next start must make it so. `reset` removes it, and whatever it was made of.
 */
async function expectWholeAfterKills(
  { name, args, folder }: { name: string; args: readonly string[]; folder: string },
  reset: () => Promise<unknown>,
): Promise<void> {
  using rng = Rng.fromSeed(7)
  const startMs = performance.now()
  await run(...args)
  const wholeMs = performance.now() - startMs
  const [numBytes, hash] = [sizeOf(folder), await hashOf(folder)]
  await reset()
  const kills = { before: 0, during: 0, after: 0 }
  const numKills = () => kills.before + kills.during + kills.after
  let numWhole = 0
  for (let start = 0; start < STARTS_MAX * NUM_KILLS && numKills() < NUM_KILLS; start += 1) {
    const [stop, stopMs] = [rng.below(numBytes), rng.below(Math.ceil(wholeMs))]
    const isDue = (size: number | undefined, ms: number) =>
      start % 3 === 2 ? ms >= stopMs : size !== undefined && size >= stop
    const moment = await killedAt(args, folder, start % WHOLE_EVERY === WHOLE_EVERY - 1 ? () => false : isDue)
    if (moment !== undefined) kills[moment] += 1
    expect(existsSync(folder)).toBe(moment !== 'before' && moment !== 'during')
    if (!existsSync(folder)) continue
    numWhole += 1
    expect(await hashOf(folder)).toBe(hash)
    await reset()
  }
  await run(...args)
  expect(await hashOf(folder)).toBe(hash)
  const shown = `${kills.before} before, ${kills.during} during and ${kills.after} after it has its folder`
  process.stdout.write(`\nkills of ${name}: ${shown}; whole ${numWhole + 1} times\n`)
  expect(numKills()).toBe(NUM_KILLS)
  expect(kills.during).toBeGreaterThan(0)
  const others = readdirSync(dirname(folder)).filter((entry) => entry.includes('.'))
  expect(others.filter((entry) => !['.raw', '.cache'].includes(entry))).toEqual([])
}

// The processes run what `dist/` holds, which finds the addon.
describe.skipIf(!isNative)('a process that is killed', () => {
  for (const [source, make] of Object.entries(LARGE_DATASETS))
    it(`leaves a conversion of ${source} whole or not there`, { timeout: LIMIT_MS }, async () => {
      const { name, options, folder } = await make()
      const reset = async () => {
        await rm(folder, { recursive: true })
        await rm(join(options.root, '.cache'), { recursive: true, force: true })
      }
      const args = [DATASET_PROGRAM, name, JSON.stringify(options)]
      await expectWholeAfterKills({ name, args, folder }, reset)
    })

  it('leaves a mapping whole or not there', { timeout: LIMIT_MS }, async () => {
    const { minariRoot, rows } = await writtenMinari(20_000, 32)
    const [root, at] = [await temporaryFolder(), await temporaryFolder()]
    const folder = join(at, 'mapped')
    const args = [PROGRAM, MINARI_ID, minariRoot, root, folder, '0', '5000']
    // A folder that is there is not mapped over.
    await expectWholeAfterKills({ name: 'a mapping', args, folder }, () => rm(folder, { recursive: true }))
    const observation = rows.tensor('observation')
    const obs2 = observation.toFloat32().map((value) => 2 * value)
    const want = rows.select(['action']).set('obs2', Tensor.from(obs2, { shape: observation.shape }))
    expect(loadMemmap(folder).equals(want)).toBe(true)
  })

  it('goes on with a fetch from the hub, and fetches little twice', { timeout: LIMIT_MS }, async () => {
    using rng = Rng.fromSeed(11)
    const { bytes, metadata, rows } = await writtenMinari(80_000, 160)
    const files = { 'steps-v0/data/main_data.hdf5': bytes, 'steps-v0/data/metadata.json': metadata }
    const hub = await startHub({ kind: 'dataset', repo: 'farama-minari/toy', files })
    let [numSent, onSent, slowly] = [0, (_: number) => {}, '']
    hub.fault = (seen, response, body) => {
      if (seen.method !== 'GET' || seen.host !== 'files' || body === undefined) return false
      const start = Number(/^bytes=(\d+)-$/.exec(seen.range ?? '')?.[1] ?? 0)
      const range = `bytes ${start}-${body.length - 1}/${body.length}`
      response.writeHead(start > 0 ? 206 : 200, {
        ...{ etag: `"${sha256(body)}"`, 'content-length': body.length - start },
        ...(start > 0 && { 'content-range': range }),
      })
      void sendSlowly(response, body, {
        ...{ start, root: slowly },
        onSent: (end, length) => {
          numSent += length
          onSent(end)
        },
      })
      return true
    }
    for (let fetch = 0; fetch < Math.ceil(NUM_KILLS / FETCH_KILLS); fetch++) {
      const [root, cache] = [await temporaryFolder(), await temporaryFolder()]
      const args = [CLI, 'dataset', 'fetch', `minari:${MINARI_ID}`, '--root', root, '--cache', cache]
      args.push('--endpoint', hub.endpoint)
      ;[numSent, slowly] = [0, cache]
      const stops = Array.from({ length: FETCH_KILLS }, () => rng.below(bytes.length)).sort((a, b) => a - b)
      for (const stop of stops) {
        const child = spawn(process.execPath, args, { stdio: 'ignore' })
        onSent = (sent) => void (sent >= stop && child.kill('SIGKILL'))
        await ended(child)
        expect([child.signalCode, existsSync(join(root, MINARI_ID))]).toEqual(['SIGKILL', false])
      }
      onSent = () => {}
      const { stdout } = await run(...args)
      expect(loadMemmap(stdout.trim()).equals(rows)).toBe(true)
      const blob = join(cache, 'datasets--farama-minari--toy', 'blobs', sha256(bytes))
      expect(sha256(await readFile(blob))).toBe(sha256(bytes))
      expect(numSent).toBeLessThanOrEqual(1.2 * bytes.length)
      const share = (numSent / bytes.length).toFixed(3)
      process.stdout.write(`\nkills of a fetch: ${FETCH_KILLS}, and ${share} times its bytes were sent\n`)
    }
  })
})

describe.skipIf(!isNative)('two processes', () => {
  for (const [source, make] of Object.entries(LARGE_DATASETS))
    it(`convert ${source} once, and both open it`, { timeout: LIMIT_MS }, async () => {
      const { name, options, folder } = await make()
      const args = [DATASET_PROGRAM, name, JSON.stringify(options)]
      const alone = await run(...args)
      const hash = await hashOf(folder)
      await rm(folder, { recursive: true })
      const both = [spawn(process.execPath, args), spawn(process.execPath, args)]
      const texts = ['', '']
      for (const [at, { stdout }] of both.entries()) stdout.on('data', (text) => (texts[at] += text))
      const made = new Set<string>()
      const ends = Promise.all(both.map(ended))
      while (both.some(({ exitCode }) => exitCode === null)) {
        const identity = identityOf(`${folder}.incomplete`)
        if (identity !== undefined) made.add(identity)
        await new Promise((resolve) => setImmediate(resolve))
      }
      await ends
      expect(texts).toEqual([alone.stdout, alone.stdout])
      expect(made.size).toBe(1)
      expect(await hashOf(folder)).toBe(hash)
    })

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

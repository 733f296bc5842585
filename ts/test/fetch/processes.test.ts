/** Fetches by real processes: killed at any byte, and two at once. */

import { type ChildProcess, execFile, fork } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { Rng } from '../../src/core/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { portOf, sha256, someBytes, started } from './fake-hub.js'
import { sendSlowly } from './slow-send.js'

const PROGRAM = fileURLToPath(new URL('./fetch-process.mjs', import.meta.url))
const NUM_KILLS = 10
const BODY = someBytes(48 << 20)
const SUM = sha256(BODY)

/** A server of one file, with the bytes that it sent; `onSent` is called after each piece. */
async function server(root: string) {
  const state = { numRequests: 0, bytes: 0, onSent: (_: number) => {} }
  const onSent = (end: number, length: number) => {
    state.bytes += length
    state.onSent(end)
  }
  const running = await started(
    createServer((request, response) => {
      const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
      state.numRequests += 1
      const range = `bytes ${start}-${BODY.length - 1}/${BODY.length}`
      response.writeHead(start > 0 ? 206 : 200, {
        ...{ etag: '"one"', 'content-length': BODY.length - start },
        ...(start > 0 && { 'content-range': range }),
      })
      void sendSlowly(response, BODY, { start, root, onSent })
    }),
  )
  return Object.assign(state, { url: `http://127.0.0.1:${portOf(running)}/data/rows.bin` })
}

const ended = (child: ChildProcess) => new Promise<void>((resolve) => child.once('exit', () => resolve()))

// The processes run what `dist/` holds, which finds the addon.
describe.skipIf(process.env.FULMAR_TEST_BACKEND !== 'native')('fetchFile', () => {
  it('continues after each of ten kills, and fetches little twice', { timeout: 120_000 }, async () => {
    using rng = Rng.fromSeed(7)
    const root = await temporaryFolder()
    const here = await server(root)
    const stops = Array.from({ length: NUM_KILLS }, () => rng.below(BODY.length)).sort((a, b) => a - b)
    for (const stop of stops) {
      const child = fork(PROGRAM, [here.url, root, SUM], { silent: true })
      here.onSent = (sent) => void (sent >= stop && child.kill('SIGKILL'))
      await ended(child)
      expect((await readdir(root, { recursive: true })).filter((name) => name.endsWith('rows.bin'))).toEqual(
        [],
      )
    }
    here.onSent = () => {}
    const { stdout: path } = await promisify(execFile)(process.execPath, [PROGRAM, here.url, root, SUM])
    expect(sha256(await readFile(path))).toBe(SUM)
    expect(here.bytes).toBeLessThanOrEqual(1.2 * BODY.length)
    expect(here.numRequests).toBeGreaterThan(NUM_KILLS / 2)
  })

  it('fetches a file once for two processes that ask for it', { timeout: 120_000 }, async () => {
    const root = await temporaryFolder()
    const here = await server(root)
    const run = () => promisify(execFile)(process.execPath, [PROGRAM, here.url, root, SUM])
    const [one, other] = await Promise.all([run(), run()])
    expect(one.stdout).toBe(other.stdout)
    expect(sha256(await readFile(one.stdout))).toBe(SUM)
    expect([here.numRequests, here.bytes]).toEqual([1, BODY.length])
  })
})

/**
 * Abuse of the memory of arrays, and of the threads that use them. Everything runs in a process of its
 * own, from `dist/`: a crash is a failed test.
 */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'fulmar-announced-'))
afterAll(() => rmSync(folder, { recursive: true }))

/** Returns the output of a process; after a crash, the last calls that it announced. */
async function outputOf(...args: string[]): Promise<string> {
  // A file takes all that a process announces; a pipe refuses more while this thread is busy.
  const announced = join(folder, 'announced')
  const file = openSync(announced, 'w')
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', file] })
  closeSync(file)
  assert(child.stdout)
  const [output, [code, signal]] = await Promise.all([text(child.stdout), once(child, 'close')])
  if (code === 0) return output
  const last = readFileSync(announced, 'utf8').trimEnd().split('\n').slice(-40).join('\n')
  throw new Error(`ended with ${signal ?? code} after: ${last}`)
}

// The package finds the addon by itself; what WebAssembly is given is copied into its own memory.
describe.skipIf(process.env.FULMAR_TEST_BACKEND !== 'native')('the process lives', () => {
  it('whatever array is given to whatever takes one: refused by an error of ours, or read as it is', {
    timeout: 300_000,
  }, async () => {
    const program = [path('./typescript.mjs'), path('./array-abuse-process.ts')] as const
    const { problems, counts } = JSON.parse(await outputOf('--expose-gc', '--import', ...program))
    expect(problems).toEqual([])
    console.info(`arrays: ${JSON.stringify(counts)}`)
    expect(counts.abuses).toBeGreaterThan(4_000)
    expect(counts.answered).toBeGreaterThan(1_000)
  })

  const count = Number(process.env.FULMAR_STOPPED_THREADS ?? 16)
  it(`when ${count} threads are stopped in the middle of native work`, { timeout: 600_000 }, async () => {
    expect(await outputOf(path('./terminate-process.mjs'), String(count))).toBe(String(count))
  })
})

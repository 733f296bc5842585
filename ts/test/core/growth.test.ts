/** That nothing stays behind of what was made, used and freed. `FULMAR_CYCLES=1000` takes minutes and finds smaller leaks. */

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

const NUM_CYCLES = Number(process.env.FULMAR_CYCLES ?? 120)
/** Upper bound of the memory that allocators and caches of Node keep, for any number of cycles. */
const BYTES_MAX = 24 << 20
/** Without a word, memory is given back once 64 MiB of it wait. */
const FORGOTTEN_BYTES_MAX = 160 << 20

interface Growth {
  readonly bytes: number
  readonly files: number
  readonly handles: number
}

// It runs what `dist/` holds, which finds the addon.
describe.skipIf(process.env.FULMAR_TEST_BACKEND !== 'native')('what was made and freed', () => {
  it(`leaves nothing behind in ${NUM_CYCLES} cycles, and a leak is noticed`, {
    timeout: 3_600_000,
  }, async () => {
    const path = fileURLToPath(new URL('./growth-process.mjs', import.meta.url))
    const args = ['--expose-gc', path, String(NUM_CYCLES)]
    const { stdout } = await promisify(execFile)(process.execPath, args)
    const { 'a leak': leak, ...kinds }: Record<string, Growth> = JSON.parse(stdout)
    expect(leak?.bytes).toBeGreaterThan(BYTES_MAX)
    expect(Object.keys(kinds).length).toBeGreaterThan(12)
    for (const [kind, { bytes, files, handles }] of Object.entries(kinds)) {
      const limit = kind.startsWith('forgotten') ? FORGOTTEN_BYTES_MAX : BYTES_MAX
      expect(bytes, kind).toBeLessThan(limit)
      expect([files, handles], kind).toEqual([0, 0])
    }
    if (process.env.FULMAR_CYCLES) console.info(JSON.stringify(kinds, undefined, 1))
  })
})

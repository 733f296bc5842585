/** Memory of conversions: what a process holds at most while it converts far more rows than that. */

import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { isNative } from './golden-rows.js'
import { LARGE_DATASETS } from './large-datasets.js'

const PROGRAM = fileURLToPath(new URL('./dataset-process.mjs', import.meta.url))

/** Most memory above that of a process that opens the same rows, in bytes. All rows in memory twice would take 64 MiB and more. */
const MEMORY_BYTES_MAX = 24 << 20

const LIMIT_MS = 120_000

/** The memory that a process held at most. */
async function peakBytes(name: string, options: object): Promise<number> {
  const { stdout } = await promisify(execFile)(process.execPath, [
    PROGRAM,
    name,
    JSON.stringify(options),
    'memory',
  ])
  return 1024 * Number(/peak (\d+)/.exec(stdout)?.[1])
}

describe.skipIf(!isNative)('a conversion', () => {
  for (const [source, times] of [
    ['vd4rl', 2],
    ['roboset', 8],
    ['minari', 8],
  ] as const)
    it(`of ${source} holds a part of its rows`, { timeout: LIMIT_MS }, async () => {
      const { name, options, folder } = await LARGE_DATASETS[source](times)
      await peakBytes(name, options)
      const opened = await peakBytes(name, { ...options, download: false })
      await rm(folder, { recursive: true })
      // The files are on this machine already.
      expect((await peakBytes(name, options)) - opened).toBeLessThan(MEMORY_BYTES_MAX)
    })
})

/**
 * A lock that processes share: a file that exists while it is held. Node has no locks of the system, so a holder
 * writes its process into the file and touches it; a lock is abandoned once its process has ended, or once it was
 * not touched for a while, as seen by the clock of the one that waits.
 */

import { randomUUID } from 'node:crypto'
import { mkdir, open, readFile, rename, rm, stat, utimes } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { withDeadline } from '../async/index.js'
import { unwritable, writing } from '../telemetry/disk.js'
import type { Clock } from '../telemetry/index.js'

/** Time between two touches of a lock that is held. */
const TOUCH_MS = 2_000

/** A lock of an unknown process is abandoned once it was not touched for as long. */
export const LOCK_STALE_MS = 20_000

/** Time between two looks at a lock that another process holds. */
const LOOK_MS = 100

/** Options of {@link withFileLock}. */
interface FileLockOptions {
  readonly clock: Clock
  readonly signal: AbortSignal | undefined
}

/**
 * Runs `body` while this process alone holds the lock `path`.
 * @throws {FulmarError} `ABORTED` if the signal fires while it waits; `IO` if the lock cannot be written.
 */
export async function withFileLock<T>(
  path: string,
  options: FileLockOptions,
  body: () => Promise<T>,
): Promise<T> {
  const owner = JSON.stringify({ pid: process.pid, host: hostname(), id: randomUUID() })
  await acquire(path, owner, options)
  const touching = setInterval(() => void touch(path), TOUCH_MS)
  touching.unref()
  try {
    return await body()
  } finally {
    clearInterval(touching)
    if ((await ownerOf(path)) === owner) await rm(path, { force: true })
  }
}

async function acquire(path: string, owner: string, { clock, signal }: FileLockOptions): Promise<void> {
  await writing('the folder of a lock', dirname(path), () => mkdir(dirname(path), { recursive: true }))
  let [seen, sinceMs] = ['', clock.nowMs()]
  for (;;) {
    if (await create(path, owner)) return
    const [held = '', touchedMs] = await Promise.all([ownerOf(path), touchTime(path)])
    const state = `${held} ${touchedMs}`
    if (state !== seen) [seen, sinceMs] = [state, clock.nowMs()]
    const isStale = clock.nowMs() - sinceMs >= LOCK_STALE_MS
    if (isStale || hasEnded(held)) await breakLock(path, held)
    else await withDeadline({ clock, signal, timeoutMs: LOOK_MS, run: () => new Promise<never>(() => {}) })
  }
}

async function create(path: string, owner: string): Promise<boolean> {
  // A process that ends before it wrote its name leaves an empty lock, which goes stale.
  try {
    const file = await open(path, 'wx')
    try {
      await file.writeFile(owner)
    } finally {
      await file.close()
    }
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw unwritable('a lock', path, cause)
  }
}

/**
 * Removes an abandoned lock. Of several processes that found it, one moves it away; if that was meanwhile another lock,
 * its holder keeps working, and what both write is the same bytes at the same places.
 */
async function breakLock(path: string, held: string): Promise<void> {
  if (((await ownerOf(path)) ?? '') !== held) return
  const aside = `${path}.${randomUUID()}`
  try {
    await rename(path, aside)
    await rm(aside, { force: true })
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw unwritable('a lock', path, cause)
  }
}

function hasEnded(held: string): boolean {
  try {
    const { pid, host } = JSON.parse(held)
    if (host !== hostname() || !Number.isSafeInteger(pid) || pid <= 0) return false
    process.kill(pid, 0)
    return false
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'ESRCH'
  }
}

async function ownerOf(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').catch(() => undefined)
}

async function touchTime(path: string): Promise<number> {
  return await stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  )
}

async function touch(path: string): Promise<void> {
  const now = new Date()
  await utimes(path, now, now).catch(() => undefined)
}

import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { LOCK_STALE_MS, withFileLock } from '../../src/fetch/file-lock.js'
import type { Clock } from '../../src/telemetry/index.js'
import { temporaryFolder } from '../telemetry/folder.js'
import { failing } from '../torchrl/envs/chats.js'

/** A clock whose waits are over at the next turn, and took as long as they say. */
function leapingClock(): Clock {
  let nowMs = 0
  return {
    nowMs: () => nowMs,
    startTimer(delayMs, onDue) {
      const timer = setImmediate(() => {
        nowMs += delayMs
        onDue()
      })
      return () => clearImmediate(timer)
    },
  }
}

it('breaks a lock of an unknown process once it was not touched for 20 s', async () => {
  const folder = await temporaryFolder()
  const path = join(folder, 'a.lock')
  for (const owner of ['', JSON.stringify({ pid: 1, host: 'another', id: 'x' })]) {
    await writeFile(path, owner)
    const clock = leapingClock()
    expect(
      await withFileLock(path, { clock, signal: undefined }, async () => clock.nowMs()),
    ).toBeGreaterThanOrEqual(LOCK_STALE_MS)
    expect(await readdir(folder)).toEqual([])
  }
})

it('stops waiting once the signal fires, also at a lock that cannot be read', async () => {
  const path = join(await temporaryFolder(), 'a.lock')
  await mkdir(path)
  const stopping = new AbortController()
  setImmediate(() => stopping.abort())
  const waiting = withFileLock(path, { clock: leapingClock(), signal: stopping.signal }, async () => {})
  await expect(waiting).rejects.toThrow(failing('ABORTED'))
})

it('gives the lock back where the body fails', async () => {
  const folder = await temporaryFolder()
  const failure = new Error('x')
  const run = withFileLock(join(folder, 'a.lock'), { clock: leapingClock(), signal: undefined }, async () => {
    throw failure
  })
  await expect(run).rejects.toBe(failure)
  expect(await readdir(folder)).toEqual([])
})

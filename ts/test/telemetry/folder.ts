/** A folder of its own for each test, removed afterwards. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** Makes an empty folder and gives its path. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

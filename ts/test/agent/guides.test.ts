/** Programs of the two guides that a newcomer follows: saved as `.mjs` files, the oldest Node reads them as they are. */

import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))

it.each(['docs/dashboard.md', 'docs/guides/agents.md'])('%s has programs without types', async (path) => {
  const guide = await readFile(ROOT + path, 'utf8')
  const programs = [...guide.matchAll(/```(?:js|ts|ts native)\n([\s\S]*?)```/g)].map(([, code = '']) => code)
  expect(programs.length).toBeGreaterThan(0)
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-test-'))
  for (const [index, program] of programs.entries()) {
    const file = join(folder, `${index}.mjs`)
    // `using` is newer than the oldest Node, and the only such word that TypeScript takes.
    expect(program).not.toMatch(/^\s*(await )?using /m)
    await writeFile(file, program)
    await promisify(execFile)(process.execPath, ['--check', file])
  }
  await rm(folder, { recursive: true })
})

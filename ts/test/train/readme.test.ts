/** The first program of README.md, as it stands there. */

import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, it, vi } from 'vitest'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const FOLDER = `${ROOT}build/readme-${process.pid}`

afterEach(async () => {
  vi.restoreAllMocks()
  await rm(FOLDER, { recursive: true, force: true })
})

it('the first program of README.md learns: its updates are none of them empty, and its rewards rise', {
  timeout: 120_000,
}, async () => {
  const readme = await readFile(`${ROOT}README.md`, 'utf8')
  const source = /```ts\n(?<source>[\s\S]*?)```/.exec(readme)?.groups?.source ?? ''
  expect(source.split('\n').length).toBeLessThan(35)
  await mkdir(FOLDER, { recursive: true })
  const library = JSON.stringify(`${ROOT}ts/src/index.ts`)
  const exported = source.replace(
    'const rewards',
    'export const updates: unknown[] = []\nexport const rewards',
  )
  const watched = exported.replace('rewards.push(', 'updates.push(update); rewards.push(')
  await writeFile(`${FOLDER}/program.ts`, watched.replace("'fulmar'", library))
  const lines: string[] = []
  vi.spyOn(console, 'log').mockImplementation((...words: unknown[]) => void lines.push(words.join(' ')))
  const program: { rewards: number[]; updates: unknown[] } = await import(`${FOLDER}/program.ts`)
  const { rewards, updates } = program
  expect(lines.filter((line) => line.startsWith('grpo'))).toHaveLength(rewards.length)
  expect(updates.every((update) => typeof update === 'object' && update !== null)).toBe(true)
  const meanOf = (some: readonly number[]) => some.reduce((sum, reward) => sum + reward, 0) / some.length
  expect(meanOf(rewards.slice(-4))).toBeGreaterThan(meanOf(rewards.slice(0, 4)) + 0.05)
})

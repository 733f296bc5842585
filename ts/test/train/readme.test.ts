/** The first program of README.md, unchanged. */

import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, it, vi } from 'vitest'
import { loadModel } from '../../src/train/index.js'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const FOLDER = `${ROOT}build/readme-${process.pid}`

afterEach(async () => {
  vi.restoreAllMocks()
  await rm(FOLDER, { recursive: true, force: true })
})

it('the first program of README.md learns what it is rewarded for, and saves a model that can be loaded', {
  timeout: 120_000,
}, async () => {
  const readme = await readFile(`${ROOT}README.md`, 'utf8')
  const source = /```ts\n(?<source>[\s\S]*?)```/.exec(readme)?.groups?.source ?? ''
  expect(source.trimEnd().split('\n').length).toBeLessThanOrEqual(15)
  await mkdir(FOLDER, { recursive: true })
  const library = JSON.stringify(`${ROOT}ts/src/index.ts`)
  await writeFile(
    `${FOLDER}/program.ts`,
    source.replace("'fulmar'", library).replace("'runs/vowels'", JSON.stringify(`${FOLDER}/model`)),
  )
  const lines: unknown[] = []
  vi.spyOn(console, 'log').mockImplementation((line: unknown) => void lines.push(line))
  await import(`${FOLDER}/program.ts`)
  const rewards = lines
    .flatMap((line) => /^step \d+: reward ([\d.]+)$/.exec(String(line))?.[1] ?? [])
    .map(Number)
  expect(rewards).toHaveLength(4)
  expect(rewards[0]).toBeLessThan(0.2)
  expect(rewards[3]).toBeGreaterThan(0.8)
  using again = await loadModel(`${FOLDER}/model`)
  expect(await again.chat('Sing blue', { maxTokens: 8 })).toEqual(lines.at(-1))
})

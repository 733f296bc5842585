/** Pages that list what the code has: every error code, every page, files that exist. */

import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'

const root = new URL('../../', import.meta.url)
const read = (path) => readFileSync(new URL(path, root), 'utf8')

test('docs/troubleshooting.md has a row for every error code, and for no other', () => {
  const [, list] = /ERROR_CODES = \[(.*?)\]/s.exec(read('ts/src/core/error.ts'))
  const codes = [...list.matchAll(/'(\w+)'/g)].map(([, code]) => code)
  const rows = [...read('docs/troubleshooting.md').matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, code]) => code)
  assert.ok(codes.length >= 19)
  assert.deepEqual(rows, codes)
})

test('docs/troubleshooting.md names metrics that the code measures', () => {
  const measured = ['ts/src', 'crates/fulmar-objective/src'].flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.(ts|rs)$/.test(file))
      .map((file) => read(`${folder}/${file}`)),
  )
  const table = read('docs/troubleshooting.md').split('## By symptom of a run')[1]
  const names = [
    ...table.matchAll(
      /`(?:rollout|rollout_reward|train_batch)\/(\w+)`|`(kl|ess|[a-z]+(?:Fraction|Max|Norm|Abs|Unknown|Finite|Ratio))`/g,
    ),
  ]
  assert.ok(names.length > 12)
  for (const [, path, plain] of names) {
    const name = path ?? plain
    assert.ok(
      measured.some((text) => text.includes(name) || text.includes(snake(name))),
      name,
    )
  }
})

/** The pages of `docs/`, without those that `npm run docs` writes. */
const docs = () =>
  readdirSync(new URL('docs/', root), { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.md') && !file.startsWith('api/'),
  )

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

test('docs/README.md lists every page', () => {
  const index = read('docs/README.md')
  const pages = docs().filter((file) => !file.endsWith('README.md'))
  assert.ok(pages.some((page) => page.startsWith('guides/')))
  assert.deepEqual(
    pages.filter((page) => !index.includes(`(${page})`)),
    [],
  )
})

test('llms.txt leads to files that exist', () => {
  const links = [...read('llms.txt').matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => link)
  assert.ok(links.length > 15)
  assert.deepEqual(
    links.filter((link) => !existsSync(new URL(link, root))),
    [],
  )
})

test('the glossary is in the order of the alphabet and explains no word twice', () => {
  const words = [...read('docs/glossary.md').matchAll(/^\| ([^|]+) \| /gm)]
    .map(([, word]) => word.toLowerCase())
    .slice(1)
  assert.ok(words.length > 40)
  const sorted = [...new Set(words)].sort((a, b) => a.localeCompare(b, 'en'))
  assert.deepEqual(words, sorted)
})

test('links of the pages lead to files and headings that exist', () => {
  const pages = ['README.md', 'examples/README.md', ...docs().map((file) => `docs/${file}`)]
  const links = pages.flatMap((page) =>
    [...read(page).matchAll(/\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)/g)].map(([link, path, heading]) => ({
      place: `${page}: ${link}`,
      target: path === '' ? new URL(page, root) : new URL(path, new URL(page, root)),
      heading,
    })),
  )
  assert.ok(links.length > 150)
  const broken = links.filter(
    ({ target, heading }) =>
      !existsSync(target) ||
      (heading !== undefined && !headings(readFileSync(target, 'utf8')).includes(heading)),
  )
  assert.deepEqual(
    broken.map(({ place }) => place),
    [],
  )
})

/** The anchors of a page, as GitHub makes them. */
function headings(page) {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    title
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  )
}

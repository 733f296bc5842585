/** `docs/names.md` against `api/`, which holds what the package exports: each name is in the entry that the page says, or not built. */

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'

const root = new URL('../../', import.meta.url)
const page = readFileSync(new URL('docs/names.md', root), 'utf8')
const declared = new Map(
  readdirSync(new URL('api/', root)).map((file) => [
    file.replace('.txt', '').replaceAll('-', '/'),
    readFileSync(new URL(`api/${file}`, root), 'utf8'),
  ]),
)
const rows = [
  ...page.matchAll(/^\| `([^`]+)` \| `([^`]+)`(?:, also `([^`]+)` of `([^`]+)`)? \| `([^`]+)` \|$/gm),
]

function isExported(name, entry) {
  const declaration = `(?:abstract )?(?:class|function|const|interface|type) ${name}\\b|${name} (?:=|of) `
  return new RegExp(`^(?:${declaration})`, 'm').test(declared.get(entry) ?? '')
}

test('every name of the page is exported by the entry it stands beside', () => {
  assert.ok(rows.length > 140)
  for (const [, , ours, alias, aliasEntry, entry] of rows) {
    assert.ok(isExported(ours, entry), `${ours} of ${entry}`)
    if (alias) assert.ok(isExported(alias, aliasEntry), `${alias} of ${aliasEntry}`)
  }
  assert.ok(!isExported('ChatEnvironment', 'fulmar/torchrl'))
})

test('no name is called missing that is there', () => {
  const [, list] = /^Not built yet: (.*)\.$/m.exec(page)
  const missing = [...list.matchAll(/`([^`]+)`/g)].map(([, name]) => name)
  const everywhere = [...declared.keys()]
  assert.deepEqual(
    missing.filter((name) => everywhere.some((entry) => isExported(name, entry))),
    [],
  )
})

test('no table of rows is left out', () => {
  const lines = page.split('\n').filter((line) => line.startsWith('| `'))
  assert.equal(lines.length, rows.length)
})

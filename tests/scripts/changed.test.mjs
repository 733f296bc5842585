/** `npm run ready -- --changed`: which stages and which of their tests a change of files selects. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { scopesOf } from '../../scripts/changed.mjs'
import { STAGES } from '../../scripts/stages.mjs'

const scopes = (present, deleted = []) => new Map(scopesOf({ present, deleted }))

test('nothing is run where nothing changed', () => {
  assert.equal(scopes([]).size, 0)
})

test('a source of TypeScript runs the compiler, the tests that import it, and its examples', () => {
  const file = 'ts/src/train/sft.ts'
  const found = scopes([file])
  assert.deepEqual(
    [...found.keys()],
    ['packages', 'tidy', 'dist', 'api', 'tsc', 'biome', 'native', 'docs-examples'],
  )
  for (const stage of ['biome', 'native', 'docs-examples']) assert.deepEqual(found.get(stage), [file], stage)
})

test('a deleted source runs the compiler, and is given to no tool', () => {
  assert.deepEqual(
    [...scopes([], ['ts/src/train/sft.ts']).keys()],
    ['packages', 'tidy', 'dist', 'api', 'tsc'],
  )
})

test('a crate runs its tests, those of the crates built on it, and all tests of TypeScript', () => {
  const found = scopes(['crates/fulmar-store/src/lib.rs'])
  for (const stage of ['rustfmt', 'clippy', 'addon', 'raw', 'conform', 'native'])
    assert.ok(found.has(stage), stage)
  assert.equal(found.get('native'), undefined)
  const programs = found.get('rust')
  assert.equal(programs[0], '--lib')
  for (const name of ['store', 'torture', 'durable', 'fuzz']) assert.ok(programs.includes(name), name)
  for (const name of ['chat', 'model', 'ring']) assert.ok(!programs.includes(name), name)
})

test('a test of a crate builds no addon', () => {
  const found = scopes(['crates/fulmar-ted/tests/ring.rs'])
  assert.ok(found.get('rust').includes('ring'))
  for (const stage of ['addon', 'native', 'conform']) assert.ok(!found.has(stage), stage)
})

test('the lock file of Cargo runs all tests of Rust', () => {
  const found = scopes(['Cargo.lock'])
  assert.ok(found.has('rust') && found.get('rust') === undefined)
})

test('a page runs its examples, and one without examples runs none', () => {
  assert.deepEqual(scopes(['docs/losses.md']).get('docs-examples'), ['docs/losses.md'])
  assert.ok(!scopes(['docs/fuzzing.md']).has('docs-examples'))
})

test('a script runs the tests of the scripts', () => {
  assert.deepEqual([...scopes(['scripts/changed.mjs']).keys()], ['packages', 'tidy', 'scripts', 'biome'])
})

test('every stage that is selected exists', () => {
  const names = STAGES.map(({ name }) => name)
  const files = [
    'crates/fulmar-ted/src/lib.rs',
    'ts/src/train/sft.ts',
    'README.md',
    'tests/conformance/run.mjs',
  ]
  for (const name of scopes(files, ['tests/golden/x.jsonl']).keys()) assert.ok(names.includes(name), name)
})

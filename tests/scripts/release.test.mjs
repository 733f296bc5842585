/** `npm run release`: the versions and the changelog, the workflow that publishes, and the lock files. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { released, versionOf } from '../../scripts/release.mjs'

const read = (file) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')
const FILES = ['package.json', 'package-lock.json', 'Cargo.toml', 'Cargo.lock', 'CHANGELOG.md']
const ours = Object.fromEntries(FILES.map((file) => [file, read(file)]))
const current = versionOf(ours)
const changelog = `# Changelog\n\n## ${current}, not released yet\n\n- One.\n\n## 0.0.9, 2026-01-01\n`
const texts = { ...ours, 'CHANGELOG.md': changelog }

test('every manifest of the repository has one version', () => {
  assert.match(current, /^\d+\.\d+\.\d+/)
})

test('a release sets the version everywhere, and dates the newest entry of the changelog alone', () => {
  const after = released(texts, '9.8.7', '2026-12-24')
  assert.equal(versionOf(after), '9.8.7')
  assert.equal(after['CHANGELOG.md'], changelog.replace(`${current}, not released yet`, '9.8.7, 2026-12-24'))
  const changed = (file) => {
    const lines = texts[file].split('\n')
    return after[file].split('\n').filter((line, at) => line !== lines[at])
  }
  assert.deepEqual(changed('package.json'), ['  "version": "9.8.7",'])
  assert.deepEqual(changed('package-lock.json'), ['  "version": "9.8.7",', '      "version": "9.8.7",'])
  assert.ok(
    changed('Cargo.toml').every((line) =>
      /^(version|fulmar[\w-]* = \{ path .*) = "9\.8\.7"(, default-features = false)?( \})?$/.test(line),
    ),
  )
  const members = read('Cargo.lock').match(/^name = "(fulmar|xtask)[\w-]*"$/gm).length
  assert.deepEqual(changed('Cargo.lock'), new Array(members).fill('version = "9.8.7"'))
})

test('a release may have the version that its changelog announces', () => {
  assert.equal(versionOf(released(texts, current, '2026-12-24')), current)
})

test('a release is refused with an older version, no version, no date, or nothing new', () => {
  assert.throws(() => released(texts, '0.0.1', '2026-12-24'), /must not be older than \d/)
  const next = released(texts, '99.0.0', '2026-12-24')
  for (const version of ['v1.0.0', '1.0', '1.0.0-rc.1'])
    assert.throws(() => released(texts, version, '2026-12-24'), /VERSION must be like 1.2.3/)
  assert.throws(() => released(texts, '1.0.0', 'today'), /date must be like/)
  assert.throws(() => released(next, '99.0.1', '2026-12-25'), /must begin with an entry/)
})

test('manifests that disagree are refused by name', () => {
  const other = {
    ...texts,
    'Cargo.toml': texts['Cargo.toml'].replace(/^version = ".*"/m, 'version = "98.0.0"'),
  }
  assert.throws(() => versionOf(other), /Cargo.toml must have version .* got 98.0.0/)
})

test('the workflow builds an addon for each platform of package.json', () => {
  const { napi } = JSON.parse(ours['package.json'])
  const built = [...read('.github/workflows/release.yml').matchAll(/^ +- target: (\S+)$/gm)]
  assert.deepEqual(built.map(([, target]) => target).sort(), [...napi.targets].sort())
})

test('the workflow compiles the kernels that every addon embeds', () => {
  const workflow = read('.github/workflows/release.yml')
  const [, kernels, addon] = /\n {2}kernels:\n([\s\S]*?)\n {2}addon:\n([\s\S]*?)\n {2}publish:\n/.exec(
    workflow,
  )
  assert.match(kernels, /run: cargo xtask kernels\n/)
  assert.match(kernels, /name: kernels\n +path: crates\/fulmar-cuda\/compiled\//)
  assert.match(addon, /needs: kernels\n/)
  const [download, build] = [
    'name: kernels\n          path: crates/fulmar-cuda/compiled\n',
    'run: npm run build',
  ]
  assert.ok(addon.includes(download) && addon.indexOf(download) < addon.indexOf(build))
})

/** Tools of development, whose packages for other platforms have no hash: see docs/building.md. */
const NO_HASH = /^node_modules\/(@biomejs\/cli-|@cloudflare\/workerd-|@napi-rs\/tar-|@napi-rs\/wasm-tools-)/
const NO_HASH_MAX = 38

for (const file of ['package-lock.json', 'tests/packed/package-lock.json']) {
  const { packages } = JSON.parse(read(file))

  test(`${file} names every package that another one needs`, () => {
    const names = new Set(Object.keys(packages).map((path) => path.split('node_modules/').at(-1)))
    for (const [path, { dependencies, optionalDependencies }] of Object.entries(packages)) {
      const needed = Object.keys({ ...dependencies, ...optionalDependencies })
      assert.deepEqual(
        needed.filter((name) => !names.has(name)),
        [],
        path,
      )
    }
  })

  test(`${file} has a hash for every package, but for tools of other platforms`, () => {
    const without = Object.entries(packages).filter(([path, { integrity }]) => path !== '' && !integrity)
    for (const [path, { optional, dev, version }] of without) {
      assert.ok(NO_HASH.test(path) && optional && dev && version, path)
    }
    assert.ok(without.length <= (file === 'package-lock.json' ? NO_HASH_MAX : 0))
    for (const [path, { integrity }] of Object.entries(packages)) {
      if (integrity) assert.match(integrity, /^sha512-/, path)
    }
  })

  test(`${file} names no registry`, () => {
    for (const [path, { resolved = '' }] of Object.entries(packages)) {
      assert.match(resolved, /^(https:\/\/registry\.npmjs\.org\/.*)?$/, path)
    }
  })
}

/**
 * `npm run release -- VERSION [--date YYYY-MM-DD]`: sets the version in every manifest and lock file, and dates the changelog.
 * `npm run release -- --dry-run`: what publishing would do with what is packed, without doing it.
 *
 * Nothing is published from here: .github/workflows/release.yml does that for a tag.
 */

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { checkKernels } from './kernels.mjs'
import { asProgram, isAllRequired, Refusal, root, run } from './steps.mjs'

const FILES = ['package.json', 'package-lock.json', 'Cargo.toml', 'Cargo.lock', 'CHANGELOG.md']
const TARBALLS = join(root, 'target', 'pack', 'tarballs')
const PLATFORMS = join(root, 'target', 'pack', 'npm')
const NOT_RELEASED = 'not released yet'

/** The version of the workspace and of each crate that its crates depend on. */
const OF_CRATES = /^((?:version|fulmar[\w-]* = \{ path = "[^"]+", version) = )"[^"]+"/gm
/** A crate of the workspace: one that comes from no registry. */
const LOCKED = /(\[\[package\]\]\nname = "[\w-]+"\nversion = )"([^"]+)"(?!\nsource)/g

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  asProgram(async () => {
    const [first, ...rest] = process.argv.slice(2)
    if (first === '--dry-run' && rest.length === 0) return await dryRun()
    const [option, date = new Date().toISOString().slice(0, 10), ...more] = rest
    if (first === undefined || (option !== undefined && option !== '--date') || more.length > 0)
      throw new Refusal('use npm run release -- VERSION [--date YYYY-MM-DD], or npm run release -- --dry-run')
    const texts = released(readTexts(), first, date)
    for (const [file, text] of Object.entries(texts)) writeFileSync(join(root, file), text)
    process.stdout.write(`set ${first} in ${FILES.join(', ')}; commit it, and push the tag v${first}\n`)
    return 0
  })
}

function readTexts() {
  return Object.fromEntries(FILES.map((file) => [file, readFileSync(join(root, file), 'utf8')]))
}

/**
 * Returns the texts of all manifests with another version, and of the changelog with its date.
 * Refuses an invalid version, one older than the current one, and a changelog whose newest entry has a date.
 */
export function released(texts, version, date) {
  if (!/^\d+\.\d+\.\d+$/.test(version)) throw new Refusal(`VERSION must be like 1.2.3: got ${version}`)
  if (!/^\d{4}-\d{2}-\d{2}$/.test(date)) throw new Refusal(`the date must be like 2026-01-31: got ${date}`)
  const old = versionOf(texts)
  if (isOlder(version, old)) throw new Refusal(`VERSION must not be older than ${old}: got ${version}`)
  const newest = /^## .*$/m.exec(texts['CHANGELOG.md'])?.[0] ?? ''
  if (!newest.endsWith(`, ${NOT_RELEASED}`))
    throw new Refusal(`CHANGELOG.md must begin with an entry \`## VERSION, ${NOT_RELEASED}\`: got ${newest}`)
  const manifest = (text) => text.replace(`"version": "${old}"`, `"version": "${version}"`)
  // The first two versions of the lock file are those of the package itself.
  const lock = (text) => manifest(manifest(text))
  const crates = [...texts['Cargo.lock'].matchAll(LOCKED)].length
  if (crates === 0) throw new Refusal('Cargo.lock must hold the crates of the workspace')
  return {
    'package.json': manifest(texts['package.json']),
    'package-lock.json': lock(texts['package-lock.json']),
    'Cargo.toml': texts['Cargo.toml'].replace(OF_CRATES, (_, before) => `${before}"${version}"`),
    'Cargo.lock': texts['Cargo.lock'].replace(LOCKED, (_, before) => `${before}"${version}"`),
    'CHANGELOG.md': texts['CHANGELOG.md'].replace(newest, `## ${version}, ${date}`),
  }
}

/** Returns the one version that all manifests have. Refuses those that disagree. */
export function versionOf(texts) {
  const lock = JSON.parse(texts['package-lock.json'])
  const versions = {
    'package.json': [JSON.parse(texts['package.json']).version],
    'package-lock.json': [lock.version, lock.packages[''].version],
    'Cargo.toml': [...texts['Cargo.toml'].matchAll(OF_CRATES)].map(([text]) => /"([^"]+)"$/.exec(text)[1]),
    'Cargo.lock': [...texts['Cargo.lock'].matchAll(LOCKED)].map(([, , version]) => version),
  }
  const [version] = versions['package.json']
  for (const [file, found] of Object.entries(versions)) {
    const other = found.find((candidate) => candidate !== version)
    if (found.length === 0 || other !== undefined)
      throw new Refusal(`${file} must have version ${version} of package.json everywhere: got ${other}`)
  }
  return version
}

/** Returns whether `version` is older than `old`. */
function isOlder(version, old) {
  const [numbers, oldNumbers] = [version, old].map((text) => text.split('.').map(Number))
  const at = numbers.findIndex((number, index) => number !== oldNumbers[index])
  return at >= 0 && numbers[at] < oldNumbers[at]
}

/** Tells npm and cargo to publish everything but the upload itself; cargo does not compile the crates again. */
async function dryRun() {
  const version = versionOf(readTexts())
  const total = { passed: 1, failed: 0, skipped: 0 }
  process.stdout.write(`every manifest has version ${version}: ok\n`)
  const record = (what, { code, output }) => {
    // Without a registry neither program can say which versions are there.
    const isOffline =
      code !== 0 && /ENOTFOUND|ECONNREFUSED|EAI_AGAIN|Could not resolve host|failed to download/i.test(output)
    const outcome = code === 0 ? 'passed' : isOffline && !isAllRequired ? 'skipped' : 'failed'
    total[outcome] += 1
    const text =
      outcome === 'passed' ? 'ok' : `${outcome.toUpperCase()}\n${output.split('\n').slice(-30).join('\n')}`
    process.stdout.write(`${what}: ${text}\n`)
  }
  const packed = tarballs()
  process.stdout.write(`${checkKernels(addons(), false)}\n`)
  for (const file of packed) {
    record(`npm publish ${file}`, await run('npm', ['publish', '--dry-run', join(TARBALLS, file)]))
  }
  const cargo = ['publish', '--workspace', '--dry-run', '--no-verify', '--allow-dirty', '--locked']
  record('cargo publish of all crates', await run('cargo', cargo))
  const { passed, failed, skipped } = total
  process.stdout.write(`release: ${passed} passed, ${failed} failed, ${skipped} skipped\n`)
  return failed === 0 ? 0 : 1
}

/** The packages in the order in which they are published: the one that needs the others last. */
function tarballs() {
  const files = existsSync(TARBALLS) ? readdirSync(TARBALLS) : []
  if (files.length === 0) throw new Refusal('the packages must be packed first: npm run pack')
  const isMain = (file) => /^fulmar-\d/.test(file)
  return files.sort((a, b) => Number(isMain(a)) - Number(isMain(b)))
}

/** The addons that were packed. */
function addons() {
  const files = readdirSync(PLATFORMS, { recursive: true }).filter((file) => file.endsWith('.node'))
  return files.map((file) => ({ name: basename(file), bytes: readFileSync(join(PLATFORMS, file)) }))
}

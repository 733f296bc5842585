/**
 * `npm run pack -- [--release] [--published]`: packs what a user installs, into target/pack/tarballs.
 *
 * `fulmar` (JavaScript, types, the WebAssembly modules) and the addon of this platform, as napi-rs lays them out: the first names the
 * second as an optional dependency, so that npm fetches only what fits the machine. `fulmar-edge` holds the files behind the import
 * condition `fulmar-edge`, for bundlers that cannot set one.
 * Packs what is built; `--release` builds a release first, and checks its sizes and that its addon holds the kernels of GPUs.
 * `--published` checks both too, and demands the addon of every platform of package.json in `addon/`.
 */

import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { bundleForNode } from './bundle-node.mjs'
import { checkKernels } from './kernels.mjs'
import { asProgram, must, Refusal, root, run, runTool } from './steps.mjs'

const STAGE = join(root, 'target', 'pack')
const TARBALLS = join(STAGE, 'tarballs')
const OPTIONS = ['--release', '--published']

/** Largest sizes in MB of what every build has, and of what a release has: a build for tests is larger. */
const SIZES_MAX = { JavaScript: 3.8, 'JavaScript for Node': 3.2, "import 'fulmar' in Node": 1.1 }
const RELEASE_SIZES_MAX = {
  addon: 26,
  'wasm/fulmar_wasm_bg.wasm': 11.5,
  'wasm/fulmar_sandbox.wasm': 1.7,
  'wasm/fulmar_edge_bg.wasm behind gzip -9': 1,
}

asProgram(async () => {
  const options = process.argv.slice(2)
  const unknown = options.find((option) => !OPTIONS.includes(option))
  if (unknown) throw new Refusal(`option must be one of ${OPTIONS.join(', ')}: got ${unknown}`)
  const isRelease = options.includes('--release')
  if (isRelease) {
    await must('the build', run(process.execPath, ['scripts/build.mjs', '--release'], { echo: true }))
  }
  for (const needed of ['dist/index.js', 'addon/index.cjs', 'wasm/fulmar_wasm.js']) {
    if (!existsSync(join(root, needed))) throw new Refusal(`${needed} must be built first: npm run build`)
  }
  rmSync(STAGE, { recursive: true, force: true })
  mkdirSync(TARBALLS, { recursive: true })
  const platforms = await stagePlatforms(options.includes('--published'))
  const main = await stageMain(platforms)
  const edge = stageEdge()
  checkSizes(main, platforms, options.length > 0)
  const addons = platforms.map(({ addon }) => ({ name: basename(addon), bytes: readFileSync(addon) }))
  process.stdout.write(`${checkKernels(addons, options.length > 0)}\n`)
  for (const folder of [main, edge, ...platforms.map(({ folder }) => folder)]) await pack(folder)
  return 0
})

/** The folders that napi makes, with the addon in those whose addon was built. */
async function stagePlatforms(isAllNeeded) {
  const npm = join(STAGE, 'npm')
  mkdirSync(npm)
  await must(
    'napi create-npm-dirs',
    runTool('@napi-rs/cli/dist/cli.js', ['create-npm-dirs', '--npm-dir', npm]),
  )
  const platforms = []
  for (const platform of readdirSync(npm)) {
    const addon = join(root, 'addon', `fulmar.${platform}.node`)
    const folder = join(npm, platform)
    if (existsSync(addon)) {
      copyFileSync(addon, join(folder, `fulmar.${platform}.node`))
      copyFileSync(join(root, 'LICENSE'), join(folder, 'LICENSE'))
      platforms.push({ folder, addon, manifest: readJson(join(folder, 'package.json')) })
    } else if (isAllNeeded)
      throw new Refusal(`addon/ must hold an addon for every platform: ${platform} is missing`)
  }
  if (platforms.length === 0) throw new Refusal('addon/ must hold an addon for a platform of package.json')
  return platforms
}

/** The main package: our manifest without what only development needs, with the platforms that were packed. */
async function stageMain(platforms) {
  const { devDependencies, overrides, scripts, napi, ...manifest } = readJson(join(root, 'package.json'))
  manifest.optionalDependencies = Object.fromEntries(
    platforms.map((platform) => [platform.manifest.name, manifest.version]),
  )
  const folder = join(STAGE, 'fulmar')
  for (const path of manifest.files) {
    if (!existsSync(join(root, path))) throw new Refusal(`${path} must be there, as package.json names it`)
    cpSync(join(root, path), join(folder, path), { recursive: true })
  }
  manifest.exports = await bundleForNode(folder, manifest)
  writeManifest(folder, manifest)
  return folder
}

/** The edge package: what `dist/edge.js` imports, with the targets of the condition `fulmar-edge`, and rewards, which need no core. */
function stageEdge() {
  const whole = readJson(join(root, 'package.json'))
  const folder = join(STAGE, 'fulmar-edge')
  const { 'fulmar-edge': entry } = whole.exports['.']
  const names = ['#backend', '#sandbox', '#sandbox-binary', '#wasm', '#wasm-address', '#wasm-binary']
  const imports = Object.fromEntries(names.map((name) => [name, underEdge(whole.imports[name])]))
  // Nothing here speaks HTTP, and the client of Node would be a dependency.
  imports['#http'] = whole.imports['#http'].default
  const rewards = Object.fromEntries(
    ['./reward', './reward/ifeval'].map((name) => [name, whole.exports[name]]),
  )
  const started = targetsOf([entry, rewards, imports]).filter(
    (path) => path.endsWith('.js') && path.startsWith('./dist/'),
  )
  for (const path of reachable(started)) {
    for (const file of [path, `${path}.map`, path.replace(/js$/, 'd.ts')]) copyInto(folder, file)
  }
  for (const file of readdirSync(join(root, 'wasm')))
    if (!file.startsWith('fulmar_wasm')) copyInto(folder, `wasm/${file}`)
  for (const file of ['LICENSE', 'NOTICE']) copyInto(folder, file)
  writeFileSync(join(folder, 'README.md'), edgeReadme())
  const { version, license, repository, type, engines, sideEffects } = whole
  const description =
    'Fulmar for pages and edge workers: tokenizers, chat renderers, ledgers and losses in 1 MB of WebAssembly.'
  const exports = { '.': entry, ...rewards, './package.json': './package.json' }
  const shared = { version, description, license, repository, type, engines, sideEffects }
  writeManifest(folder, {
    name: 'fulmar-edge',
    ...shared,
    exports,
    imports,
    files: ['dist', 'wasm', 'NOTICE'],
  })
  return folder
}

/** The page of docs/runtimes.md that begins in an empty folder, as npm shows it. */
function edgeReadme() {
  const page = readFileSync(join(root, 'docs/runtimes.md'), 'utf8')
  const section = /^### A page, from an empty folder\n(.*?)^## /ms.exec(page)?.[1]
  if (section === undefined)
    throw new Refusal('docs/runtimes.md must have the section of a page from an empty folder')
  return `# fulmar-edge\n\nThe part of Fulmar for pages and edge workers. A page, from an empty folder:\n${section}`
}

/** A target of package.json where the condition `fulmar-edge` holds. */
function underEdge(target) {
  if (typeof target === 'string') return target
  const { 'fulmar-edge': edge, 'fulmar-wasm': _, ...others } = target
  if (typeof edge === 'string') return edge
  return { ...others, ...edge }
}

/** Each file that a part of package.json names. */
function targetsOf(part) {
  return typeof part === 'string' ? [part] : Object.values(part).flatMap(targetsOf)
}

/** The files of `dist/` that `paths` import, at any depth, with themselves. */
function reachable(paths) {
  const found = new Set()
  const waiting = paths.map((path) => join(path))
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (found.has(path)) continue
    found.add(path)
    const types = path.replace(/js$/, 'd.ts')
    for (const text of [path, types].map((file) => readFileSync(join(root, file), 'utf8'))) {
      for (const [, relative] of text.matchAll(/(?:from|import\(|import) ?['"](\.[^'"]+)['"]/g))
        waiting.push(join(path, '..', relative))
    }
  }
  return [...found].sort()
}

function copyInto(folder, path) {
  if (existsSync(join(root, path))) cpSync(join(root, path), join(folder, path))
}

/** Refuses packages that have grown: a limit is raised on purpose, with a reason in the commit. */
function checkSizes(main, platforms, isRelease) {
  const forNode = sizeOf(join(main, 'dist', 'node'), /\.js$/)
  const sizes = [
    ['JavaScript', sizeOf(join(main, 'dist'), /\.js$/) - forNode],
    ['JavaScript for Node', forNode],
    ["import 'fulmar' in Node", sizeOfImport(join(main, 'dist', 'node'), 'fulmar.js')],
  ]
  if (isRelease) {
    for (const { addon } of platforms) sizes.push(['addon', statSync(addon).size])
    for (const file of Object.keys(RELEASE_SIZES_MAX)) {
      if (file.endsWith('.wasm')) sizes.push([file, statSync(join(main, file)).size])
      const [zipped, suffix] = file.split(' behind ')
      if (suffix) sizes.push([file, gzipSync(readFileSync(join(main, zipped)), { level: 9 }).length])
    }
  }
  for (const [what, bytes] of sizes) {
    const most = { ...SIZES_MAX, ...RELEASE_SIZES_MAX }[what]
    const megabytes = (bytes / 1e6).toFixed(2)
    process.stdout.write(`${what}: ${megabytes} of at most ${most} MB\n`)
    if (bytes > most * 1e6) throw new Refusal(`${what} must be at most ${most} MB: got ${megabytes} MB`)
  }
}

/** Bytes that an import of `file` reads: it and what it imports, at any depth. */
function sizeOfImport(folder, file) {
  const read = new Set([file])
  let bytes = 0
  for (const name of read) {
    const text = readFileSync(join(folder, name), 'utf8')
    bytes += text.length
    for (const [, other] of text.matchAll(/^(?:import|export) .*["']\.\/([^"']+)["'];?$/gm)) read.add(other)
  }
  return bytes
}

function sizeOf(folder, pattern) {
  const files = readdirSync(folder, { recursive: true }).filter((file) => pattern.test(file))
  return files.reduce((sum, file) => sum + statSync(join(folder, file)).size, 0)
}

async function pack(folder) {
  const args = ['pack', '--json', '--pack-destination', TARBALLS]
  const output = await must('npm pack', run('npm', args, { cwd: folder }))
  const [{ filename, size, entryCount }] = Object.values(JSON.parse(output.slice(output.search(/^[[{]/m))))
  process.stdout.write(`${filename}: ${entryCount} files, ${(size / 1e6).toFixed(2)} MB\n`)
}

function writeManifest(folder, manifest) {
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'))
}
